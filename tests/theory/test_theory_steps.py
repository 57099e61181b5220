"""Steps from theory: they satisfy the conditions, do not depend on units of θ, and refuse what they cannot prove."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import viceversa as vv


def _rescaled(scale: float) -> tuple[vv.MisspecifiedVI, np.ndarray]:
    """One problem with curved constraints, its parameter measured in units of 1/scale."""
    A = np.array([[1.0, 0.3], [0.2, 0.8], [0.5, -0.4]])
    true = np.array([1.0, 1.5])
    M = np.array([[2.0, 1.0], [-1.0, 1.5]])

    def F(x, theta):
        return M @ x - theta / scale

    def f(x, theta):
        t = theta / scale
        return np.stack([t[0] * x[0] ** 2 + x[1] ** 2 - 0.5, x[0] + t[1] * x[1] - 1.0])

    theta_set = vv.Box(scale * np.array([0.5, 0.5]), scale * np.array([2.0, 2.0]))
    learning = vv.LeastSquares(A / scale, A @ true, set=theta_set)
    problem = vv.MisspecifiedVI(F, vv.Box([-2.0, -2.0], [2.0, 2.0]), f, learning)
    return problem, scale * np.array([2.0, 0.5])


def test_rescaling_theta_leaves_the_corrected_iterates_unchanged_and_moves_the_papers():
    steps, points = {}, {}
    for scale in (1.0, 64.0):
        problem, theta0 = _rescaled(scale)
        for version in ("corrected", "paper"):
            method = vv.AugmentedLagrangian.from_theory(problem, version, theta0=theta0)
            steps[version, scale] = np.array([method.theory.step_size, method.theory.penalty])
            iterates = itertools.islice(vv.iterate(problem, method, theta0=theta0), 30)
            points[version, scale] = np.stack([np.concatenate([p.x, p.lam]) for p in iterates])
    np.testing.assert_allclose(steps["corrected", 1.0], steps["corrected", 64.0], rtol=1e-6)
    np.testing.assert_allclose(points["corrected", 1.0], points["corrected", 64.0], rtol=1e-6, atol=1e-9)
    assert abs(np.log(steps["paper", 64.0][1] / steps["paper", 1.0][1])) > 1  # ρ = 1/L^Φ_λθ is in units of θ
    assert not np.allclose(points["paper", 1.0], points["paper", 64.0], rtol=1e-3)


def test_the_conditions_of_both_versions_and_the_limiting_constant():
    problem, theta0 = _rescaled(1.0)
    c = vv.constants(problem)
    corrected = vv.theory_steps(problem, theta0=theta0, constants=c)
    size = corrected.given.multiplier.value + corrected.dual_radius
    needed = corrected.penalty * float(c.C1) + float(c.C2) * size + 2 * float(c.L_F_x)
    assert 1 / corrected.step_size == pytest.approx(needed, rel=1e-12)
    assert corrected.penalty * float(c.C1) == pytest.approx(0.2 * 2 * float(c.L_F_x))
    assert corrected.limiting_constant == max(corrected.parts, key=corrected.parts.get)
    assert corrected.limiting_constant in str(corrected)
    assert "as printed, not proved" in str(vv.theory_steps(problem, "paper", theta0=theta0, constants=c))
    paper = vv.theory_steps(problem, "paper", theta0=theta0, constants=c)
    assert paper.penalty == pytest.approx(1 / float(c.L_Phi_lambda_theta))
    assert paper.parts["L_F,θ"] == float(c.L_F_theta)
    free = vv.theory_steps(problem, penalty=3.0, theta0=theta0, constants=c)
    assert free.penalty == 3.0


def test_the_papers_market_is_limited_by_how_F_moves_with_theta():
    problem = vv.gallery.cournot(50, 5).problem
    paper = vv.theory_steps(problem, "paper")
    corrected = vv.theory_steps(problem, constants=paper.constants)
    assert paper.limiting_constant == "L_F,θ"
    assert corrected.limiting_constant == "2L_F,x"
    assert corrected.step_size > 10 * paper.step_size
    assert corrected.learner_steps == 0  # f is affine in x: no multiplier enters


def test_the_multiplier_bound_is_robust_to_an_empty_feasible_set_at_the_start():
    """X(θ₀) is empty: nothing is proved until the learner has moved, and it says by how much."""

    def f(x, theta):
        return np.stack([x[0] ** 2 + x[1] ** 2 - 1.0, theta - x[0] - x[1]])  # feasible iff θ < √2

    true = 0.5
    learning = vv.SecondaryVI(lambda t: t - true, set=vv.Box(0.0, 3.0, shape=()))
    problem = vv.MisspecifiedVI(lambda x, t: x + 1.0, vv.Box([-1.0, -1.0], [1.0, 1.0]), f, learning)
    steps = vv.theory_steps(problem, theta0=3.0, learning_rate=0.1)
    assert steps.learner_steps > 0
    assert f"after {steps.learner_steps} learning steps" in str(steps)
    answer = vv.solve(problem.with_known(true))
    assert answer.success
    assert steps.given.multiplier.value >= np.linalg.norm(answer.multiplier)
    slater = steps.given.multiplier.slater_point
    assert (f(slater, true) < 0).all()
    method = vv.AugmentedLagrangian.from_theory(problem, theta0=3.0, learning_rate=0.1)
    run = vv.solve(problem, method, theta0=3.0, max_iter=20_000)
    np.testing.assert_allclose(run.x, answer.x, atol=1e-4)


def test_without_slater_nothing_is_claimed():
    problem = vv.MisspecifiedVI(
        lambda x, t: x - t, vv.Box([-1.0], [1.0]), lambda x, t: x**2, vv.Known(np.array([1.0]))
    )
    with pytest.raises(vv.InputError, match="Slater's condition is not established"):
        vv.bounds(problem, 10)
    assert vv.bounds(problem, 10, multiplier_norm=5.0).C_feas > 0


def test_one_step_learning():
    """η = 1/L_H on a scalar least-squares fit learns θ* at once: q = 0, and the sums are their first terms."""
    instance = vv.gallery.cournot(20, 2)
    proved = vv.bounds(instance.problem, 10, theta0=instance.theta0, theta_true=instance.theta_true)
    assert proved.given.sums.q == pytest.approx(0.0, abs=1e-12)
    assert proved.learning_sums["S1"] == pytest.approx(
        abs(float(instance.theta0 - instance.theta_true)), rel=1e-9
    )
    points = itertools.islice(
        vv.iterate(
            instance.problem, vv.AugmentedLagrangian.from_theory(instance.problem), theta0=instance.theta0
        ),
        2,
    )
    assert float(list(points)[1].theta) == pytest.approx(float(instance.theta_true), rel=1e-12)


def test_a_step_above_the_proved_range_is_refused_in_advance_and_judged_along_the_run():
    instance = vv.gallery.planted(n=6, n_constraints=2, n_theta=2)
    problem, theta0 = instance.problem, instance.theta0
    c = vv.constants(problem)
    proved = vv.theory_steps(problem, constants=c, theta0=theta0)
    bold = vv.AugmentedLagrangian(step_size=2 * proved.step_size, penalty=proved.penalty)
    with pytest.raises(vv.InputError, match="above the proved range"):
        vv.bounds(problem, 60, method=bold, constants=c, theta0=theta0)
    record = vv.Record(at=range(61), points=True, theta_true=instance.theta_true)
    run = vv.solve(problem, bold, theta0=theta0, tol=0.0, max_iter=60, record=record)
    found = vv.runtime_certificate(problem, run, bold, constants=c)
    largest = np.linalg.norm(run.trace.points.lam[:-1], axis=1).max()
    needed = proved.penalty * float(c.C1) + float(c.C2) * largest + 2 * float(c.L_F_x)
    assert found.inverse_step_needed == pytest.approx(needed)
    assert found.holds
    assert run.trace.infeasibility_average_true[-1] <= found.infeasibility < np.inf
    sparse = vv.solve(
        problem, bold, theta0=theta0, tol=0.0, max_iter=60, record=vv.Record(at=[30], points=True)
    )
    loose = vv.runtime_certificate(problem, sparse, bold, constants=c)
    assert loose.largest_multiplier > found.largest_multiplier
    reckless = vv.AugmentedLagrangian(step_size=0.9 / float(c.L_F_x), penalty=proved.penalty)
    run = vv.solve(problem, reckless, theta0=theta0, tol=0.0, max_iter=60, record=record)
    failed = vv.runtime_certificate(problem, run, reckless, constants=c)
    assert not failed.holds
    assert failed.relaxed_gap(0.0) == np.inf
    assert "nothing is proved about this run" in str(failed)


def test_what_the_theorem_does_not_cover_is_refused_in_a_sentence():
    problem, theta0 = _rescaled(1.0)
    with pytest.raises(vv.InputError, match="version is 'mine'"):
        vv.theory_steps(problem, "mine")
    with pytest.raises(vv.InputError, match="not proved to contract"):
        vv.theory_steps(problem, learning_rate=1e3, theta0=theta0)
    with pytest.raises(vv.InputError, match="K is 0"):
        vv.bounds(problem, 0)
    with pytest.raises(vv.InputError, match="ExtragradientLagrangian; the theorem is about"):
        vv.bounds(problem, 10, method=vv.ExtragradientLagrangian(step_size=0.1))
    plain = vv.MisspecifiedVI(lambda x, t: x - t, vv.Box([0.0], [1.0]), learning=vv.Known(0.5))
    with pytest.raises(vv.InputError, match="1/L\\^Φ_λθ is not defined"):
        vv.AugmentedLagrangian.from_theory(plain, "paper")
    assert vv.bounds(plain, 10).C_feas > 0  # no constraints: the theorem of the plain VI


def test_the_remark_of_a_method_recompiles_nothing():
    problem, theta0 = _rescaled(1.0)
    method = vv.AugmentedLagrangian.from_theory(problem, theta0=theta0)
    plain = vv.AugmentedLagrangian(0.1, 0.2, learning_rate=0.3)
    assert plain.theory is None
    import jax

    assert jax.tree.structure(method) == jax.tree.structure(plain)
