"""The benchmarks' loops do what viceversa does, and their tables can be written; nothing here looks at a time."""

import functools
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from benchmarks import __main__ as command
from benchmarks import corpus, corpus_markets, iteration_speed, judge, machine, plain_loops, robustness
from benchmarks.market import market

import viceversa as vv


def test_every_loop_is_the_same_iteration_as_solve():
    problem, at = market(20, 3)
    contenders = {
        "viceversa": iteration_speed._solver(problem, at),
        "numpy": iteration_speed._bound(plain_loops.numpy_loop, at),
    }
    contenders |= {name: iteration_speed._bound(loop, at) for name, loop in plain_loops.c_loops().items()}
    iteration_speed._check_agreement(contenders, n_steps=60)
    x, lam, b, _ = plain_loops.numpy_loop(at, 60)
    # The cap binds, a capacity does not everywhere, and the slope is being learned: every formula matters.
    assert (x > 0).any()
    assert (x < at.capacity).any()
    assert (lam > 0).all()
    assert b < at.b0


def test_a_loop_that_differs_is_refused():
    problem, at = market(20, 3)
    wrong = {
        "viceversa": iteration_speed._solver(problem, at),
        "wrong": lambda n: plain_loops.numpy_loop(at, n + 1),
    }
    with pytest.raises(AssertionError, match="wrong"):
        iteration_speed._check_agreement(wrong, n_steps=60)


def test_a_table_has_its_machine_and_its_numbers(tmp_path):
    machine.write(tmp_path, "speed", "A title", ["n", "time"], [[250, 1.25]], "A note.")
    text = (tmp_path / "speed.md").read_text()
    assert all(part in text for part in ("Measured on", "| 250 | 1.25 |", "A note."))
    assert (tmp_path / "speed.csv").read_text().split() == ["n,time", "250,1.25"]


def test_the_command_lists_and_refuses(capsys):
    command.main(["--list"])
    listed = capsys.readouterr().out
    assert all(name in listed for name in command.BENCHMARKS)
    with pytest.raises(SystemExit):
        command.main(["no_such_benchmark"])


def test_large_data_is_stored_where_jax_reads_it_in_place():
    _, at = market(1000, 3)
    assert at.r.ctypes.data % 64 == at.g.ctypes.data % 64 == 0
    assert at.r.flags.c_contiguous


# -- the robustness corpus ------------------------------------------------------------------------
KINDS = ["nonlinear-box", "nonlinear-ill-1e6-simplex", "ill-1e6-graded-ball", "bad-units-mere-norm", "bad-coordinates-product-logsumexp"]  # fmt: skip


@functools.cache
def _planted(name: str) -> corpus.Planted:
    (family,) = [family for family in corpus.FAMILIES if family.name == name]
    return corpus.plant(family, seed=0)


def test_the_corpus_is_as_large_and_as_varied_as_it_says():
    families = corpus.FAMILIES
    assert len({family.name for family in families}) == len(families)
    assert len(families) * corpus.N_SEEDS >= 500
    assert {family.set for family in families} == {"box", "orthant", "free", "simplex", "ball", "product"}
    assert {family.constraints for family in families} == {"quadratic", "norm", "logsumexp"}
    assert max(family.condition for family in families) == 1e8
    assert {0, 200} <= {family.n_constraints for family in families}
    assert {1, 100} <= {family.n_theta for family in families}


def test_merely_monotone_families_have_rank_deficient_symmetric_parts():
    for family in corpus.FAMILIES:
        M, K = corpus._matrices(family, np.random.default_rng(0))
        spectrum = np.linalg.eigvalsh(0.5 * (M + M.T))
        rounding = 1e-13 * np.abs(M).max()
        assert spectrum[0] > -rounding
        assert np.abs(K + K.transpose(0, 2, 1)).max() <= rounding
        n_zero = int((spectrum < 1e-10).sum())
        assert n_zero == (0 if family.rank is None else family.n - family.rank), family.name
        if family.condition > 1 and family.rank != 0:
            assert spectrum[-1] / spectrum[n_zero] == pytest.approx(family.condition, rel=1e-2)


@pytest.mark.parametrize("name", KINDS)
def test_the_judge_accepts_the_planted_answer_and_no_other(name):
    planted = _planted(name)
    x, multiplier, theta = planted.x_true, planted.multiplier_true, planted.theta_true
    assert not judge.judge(planted, x, multiplier, theta).is_wrong(1e-10)
    unit, rng = planted.problem.operator.x_unit, np.random.default_rng(1)
    moved = judge.project(planted.problem.set, x + 1e-3 * unit * rng.normal(size=x.size))
    assert judge.judge(planted, moved, multiplier, theta).is_wrong(1e-8)
    assert judge.judge(planted, x, multiplier * 1.001, theta).is_wrong(1e-8)
    assert judge.judge(planted, x, multiplier, theta * 1.001).is_wrong(1e-8)
    assert judge.judge(planted, x + np.nan, multiplier, theta).is_wrong(1e-8)


@pytest.mark.parametrize("name", KINDS)
def test_the_judge_computes_what_the_corpus_defines(name):
    planted = _planted(name)
    problem, theta = planted.problem, planted.theta0
    unit, rng = problem.operator.x_unit, np.random.default_rng(2)
    v = planted.x_true + unit * rng.normal(size=unit.size)
    with jax.enable_x64(True):
        x = np.asarray(problem.set.project(jnp.asarray(v)))
        F = np.asarray(problem.operator(jnp.asarray(x), jnp.asarray(theta)))
        f = np.asarray(problem.constraints(jnp.asarray(x), jnp.asarray(theta)))
        J = np.asarray(jax.jacfwd(problem.constraints)(jnp.asarray(x), jnp.asarray(theta)))
    np.testing.assert_allclose(judge.project(problem.set, v), x, atol=1e-12 * np.abs(x).max())
    np.testing.assert_allclose(judge.force(problem.operator, x, theta), F, rtol=1e-9)
    values, jacobian = judge.constraints(problem.constraints, x, theta)
    np.testing.assert_allclose(values, f, rtol=1e-9, atol=1e-12 * np.abs(f).max())
    np.testing.assert_allclose(jacobian, J, rtol=1e-9, atol=1e-12 * np.abs(J).max())


def test_the_distance_bound_holds_away_from_the_answer():
    planted = _planted("strong-ball")
    for size in (1e-1, 1e-3, 1e-6):
        rng = np.random.default_rng(3)
        x = judge.project(planted.problem.set, planted.x_true + size * rng.normal(size=20))
        multiplier = np.maximum(planted.multiplier_true + size * rng.normal(size=5), 0.0)
        verdict = judge.judge(planted, x, multiplier, planted.theta_true)
        assert 0 < verdict.x_error <= verdict.x_bound < np.inf


def test_gallery_answers_are_judged_by_what_was_published():
    chosen = {entry.name for entry, _, _ in robustness.gallery_options()}
    assert chosen == {entry.name for entry in vv.gallery.instances()}
    instance = vv.gallery.electricity()
    case = robustness.gallery_case("electricity", 0, instance)
    x = instance.x_true.copy()
    x[0, 0, 0], x[0, 1, 0] = (
        x[0, 0, 0] - 1.0,
        x[0, 1, 0] + 1.0,
    )  # another plant of the same firm: also an answer
    assert not case.judge(x, instance.multiplier_true, instance.theta_true).is_wrong(1e-10)
    x[0, 0, 0] += 1.0
    assert case.judge(x, instance.multiplier_true, instance.theta_true).is_wrong(1e-8)


@pytest.mark.parametrize("family", corpus_markets.FAMILIES, ids=lambda family: family.name)
def test_the_markets_judge_passes_the_planted_answer_alone(family):
    seeds = (corpus_markets.plant(family, seed) for seed in range(8))
    planted = next(each for each in seeds if each.multiplier_true.any())
    x, multiplier, theta = planted.x_true, planted.multiplier_true, planted.theta_true

    def is_wrong(*answer) -> bool:
        return corpus_markets.judge(planted, *answer).is_wrong(1e-8)

    assert not is_wrong(x, multiplier, theta)
    assert is_wrong(0.999 * x, multiplier, theta)
    assert is_wrong(x, 1.01 * multiplier, theta)
    assert is_wrong(x, multiplier, 1.001 * theta)
    assert is_wrong(x, -multiplier, theta)
    # In F as the package evaluates it, the planted answer solves the market.
    assert vv.certify(planted.problem, x, multiplier, theta, tol=1e-10).holds


def test_the_summary_counts_failures_and_wrong_reports():
    planted = _planted("nonlinear-box")
    truth = {"x": planted.x_true, "multiplier": planted.multiplier_true, "theta": planted.theta_true}
    said = {"status": vv.Status.solved, "success": True, "nit": 1, "nfev": 1}
    case = robustness.generated_case(planted)
    honest = robustness._row("default", case, SimpleNamespace(**truth, **said))
    claimed = robustness._row("default", case, SimpleNamespace(**truth | {"x": 0.9 * planted.x_true}, **said))
    failed = dict(honest, method="extragradient", solved=False)
    assert (honest["wrong"], claimed["wrong"]) == (False, True)
    text = robustness.summary([honest, claimed, failed])
    assert "**1 wrongly reported as solved**" in text
    assert "**1 of 1 (100%)**" in text
