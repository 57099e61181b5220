"""A tiny experiment end to end: what is run is what the table says, and the files follow from the table."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest

import viceversa as vv
from viceversa.driver import loop
from viceversa.experiments import QUICK, Settings, claims_table, read_table, reproduce
from viceversa.experiments.cournot_experiment import _solve as solve_one
from viceversa.experiments.cournot_experiment import draw, learning_rate, moduli, recording_grid
from viceversa.experiments.curves import BASELINES, EXTRAGRADIENT, METHODS, OURS, TIKHONOV
from viceversa.experiments.step_rules import RULES, candidates, corrected_steps, paper_steps
from viceversa.experiments.tables import COLUMNS, KEY

SIZE = (24, 2)
TINY = Settings(
    sizes=(SIZE,),
    seeds=(0, 1),
    tuning_seeds=(9,),
    n_iterations=300,
    tuning_evaluations=100,
    n_rows=8,
    n_literal_sizes=1,
)


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    where = tmp_path_factory.mktemp("reproduce") / "made when needed"
    seen = []
    written = reproduce(TINY, where, lambda words, n, total: seen.append((n, total)))
    assert {"results.parquet", "figure.png", "figure.pdf", "summary.md"} <= {path.name for path in written}
    assert all(path.parent == where and path.stat().st_size > 0 for path in written)
    assert (where / "figure.png").read_bytes().startswith(b"\x89PNG")
    assert (where / "figure.pdf").read_bytes().startswith(b"%PDF")
    assert seen[-1][0] == seen[-1][1] == len(METHODS) + 2 * (3 * len(METHODS) + 1 + 2 * len(BASELINES))
    return where


@pytest.fixture(scope="module")
def frame(directory):
    return read_table(directory / "results.parquet")


def rows(frame, **where):
    where = {"multipliers": "shared", **where}
    for name, value in where.items():
        frame = frame[frame[name] == value]
    return frame


def test_one_long_table(frame):
    assert list(frame.columns) == list(COLUMNS)
    assert not frame.duplicated(KEY).any()
    assert set(frame["step_rule"]) == {*RULES, "paper_constant", "paper_same_steps"}
    assert (frame.groupby(KEY[:-1])["iteration"].agg(["min", "max", "size"]) == [0, 300, 9]).all().all()
    assert (frame["gap_lower"] <= frame["gap_upper"] + 1e-12).all()
    metrics = ["gap_upper", "infeasibility", "x_error", "theta_error", "learning_floor", "seconds"]
    assert np.isfinite(frame[metrics]).all().all()


def test_the_table_says_what_was_run(frame):
    """A run repeated from the steps in its own row ends at the same point."""
    instance = draw(SIZE, 1, TINY)
    builders = {
        OURS: lambda r: vv.AugmentedLagrangian(r.step_size, r.penalty, learning_rate=r.learning_rate),
        EXTRAGRADIENT: lambda r: vv.ExtragradientLagrangian(r.step_size, r.dual_ratio, learning_rate=r.learning_rate),
        TIKHONOV: lambda r: vv.TikhonovLagrangian(
            vv.steps.Power(r.step_size, r.step_exponent),
            vv.steps.Power(r.regularization, r.regularization_exponent),
            r.dual_ratio,
            learning_rate=r.learning_rate,
        ),
    }  # fmt: skip
    for method, build in builders.items():
        end = rows(frame, method=method, step_rule="tuned", seed=1, iteration=300).set_index("point")
        points = vv.iterate(instance.problem, build(end.loc["last"]), theta0=instance.theta0)
        point = next(itertools.islice(points, 300, None))
        assert np.linalg.norm(point.x - instance.x_true) == pytest.approx(
            end.loc["last", "x_error"], abs=1e-9
        )
        average = np.linalg.norm(point.x_average - instance.x_true)
        assert average == pytest.approx(end.loc["average", "x_error"], abs=1e-9)
        prices = 100.0 - point.x_average.sum(axis=0)  # b* = 1
        violation = np.maximum(prices - end["price_cap"].iloc[0], 0).sum()
        assert violation == pytest.approx(end.loc["average", "infeasibility"], abs=1e-9)


def test_every_evaluation_of_the_operator_is_counted(frame):
    for method, per_iteration, at_start in ((OURS, 1, 1), (TIKHONOV, 1, 0), (EXTRAGRADIENT, 2, 0)):
        of = rows(frame, method=method)
        assert (of["operator_evaluations"] == per_iteration * of["iteration"] + at_start).all()


def test_paper_steps_are_the_printed_ones():
    """The closed forms written out for N firms, D products, Cap = 5, b_max = 2."""
    N, D = 50, 5
    instance = vv.gallery.cournot(N, D, seed=0)
    r_max = instance.problem.operator.costs.r.max()
    L_F, L_F_theta = r_max + 2 * (N + 1), (N + 1) * 5 * np.sqrt(N * D)
    rho = 1 / (np.sqrt(D) * N * 5)
    steps = paper_steps(OURS, moduli(instance))
    assert steps.penalty == pytest.approx(rho)
    assert steps.step_size == pytest.approx(0.99 / (rho * np.sqrt(D) * 4 * N + 2 * L_F + L_F_theta))
    assert paper_steps(EXTRAGRADIENT, moduli(instance)).step_size == pytest.approx(
        0.99 / (L_F + 2 * np.sqrt(N))
    )
    copies = paper_steps(EXTRAGRADIENT, moduli(instance), "per_player")
    assert copies.step_size == pytest.approx(0.99 / (L_F + 2 * N))


def test_corrected_steps_satisfy_their_theorems():
    instance = vv.gallery.cournot(50, 5, seed=0)
    m = moduli(instance)
    ours, eg, tikhonov = (corrected_steps(method, m) for method in (OURS, EXTRAGRADIENT, TIKHONOV))
    assert 1 / ours.step_size >= (ours.penalty * m.M**2 + 2 * m.L_F) * (1 - 1e-12)
    assert eg.step_size * (m.L_F + np.sqrt(eg.dual_ratio) * m.M) < 1
    k = np.arange(1, 1e5, 997)
    gamma, eps = tikhonov.step_size * k**-0.5, tikhonov.regularization * k**-0.45
    assert (gamma <= eps / (m.L_F + m.M + eps) ** 2 * (1 + 1e-12)).all()


def test_tuning_is_the_same_for_every_method_and_sees_other_seeds(frame):
    m = moduli(draw(SIZE, 9, TINY))
    assert {len(candidates(method, m)) for method in METHODS} == {16}
    for settings in (TINY, QUICK, Settings()):
        assert not set(settings.seeds) & set(settings.tuning_seeds)
    assert len(Settings().seeds) >= 5
    tuned = frame[frame["step_rule"] == "tuned"]
    assert (tuned["tuning_evaluations"] == TINY.tuning_evaluations).all()
    assert np.isfinite(tuned["tuning_score"]).all()
    for method in METHODS:
        found = tuned[tuned["method"] == method][
            ["step_size", "penalty", "dual_ratio", "regularization"]
        ].drop_duplicates()
        assert len(found) == 1
        proposed = [(c.step_size, c.dual_ratio) for c in candidates(method, m)]
        assert any(
            np.allclose((found.step_size.iloc[0], found.dual_ratio.iloc[0]), c, equal_nan=True)
            for c in proposed
        )


def test_copies_of_the_multipliers_never_separate(frame):
    keys = ["seed", "point", "iteration"]
    for method in BASELINES:
        shared = rows(frame, method=method, step_rule="paper").set_index(keys)["x_error"]
        copies = rows(frame, method=method, step_rule="paper_same_steps", multipliers="per_player").set_index(
            keys
        )["x_error"]
        assert len(copies) == len(shared)
        assert (shared - copies).abs().max() < 1e-11


def test_learning_has_one_factor_and_a_floor(frame):
    assert np.allclose(frame["learning_factor"], 0.9)
    learning = frame[frame["theta_error"] > 1e-12]
    assert np.allclose(learning["theta_error"], 0.9 ** learning["iteration"], rtol=1e-6)
    ends = frame[frame["iteration"] == 300]
    assert (ends["learning_floor"] < 1e-9).all()
    assert (frame[frame["iteration"] == 0]["learning_floor"] > 0.1).all()


def test_both_coefficients_learn_as_fast_as_they_can():
    settings = Settings(learn="both")
    instance = draw(SIZE, 0, settings)
    learning = instance.problem.learning
    assert learning_rate(instance, settings) == pytest.approx(float(learning.default_rate()))
    assert learning.contraction(learning_rate(instance, settings)) > 0.99


def test_other_seeds_and_steps_do_not_recompile(directory, monkeypatch):
    traced = []
    look = loop.look
    monkeypatch.setattr(loop, "look", lambda *args: traced.append(1) or look(*args))
    for seed, rule in ((5, paper_steps), (6, corrected_steps)):
        instance = draw(SIZE, seed, TINY)
        for method in METHODS:
            solve_one(instance, rule(method, moduli(instance)), TINY, 50)
    assert not traced
    solve_one(instance, paper_steps(OURS, moduli(instance)), replace(TINY, n_rows=9), 50)
    assert traced  # another shape does


@pytest.mark.parametrize(("n_iterations", "n_rows"), [(8, 8), (9, 8), (40, 20), (100_000, 36)])
def test_grid_has_always_as_many_rows(n_iterations, n_rows):
    grid = recording_grid(n_iterations, n_rows)
    assert len(grid) == n_rows
    assert (grid[0], grid[-1]) == (1, n_iterations)
    assert (np.diff(grid) > 0).all()


def test_summary_and_claims_come_from_the_file(directory, frame):
    text = (directory / "summary.md").read_text(encoding="utf-8")
    judged = claims_table(frame)
    assert f"{int(judged['holds'].sum())} of {len(judged)} verdicts hold." in text
    for measured in judged["measured"]:
        assert measured in text
