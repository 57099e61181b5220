"""The paper's slips, each shown by the smallest example: what is printed fails, what is corrected holds (docs/paper.md)."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

import viceversa as vv
from viceversa.constants.ingredients import Ingredients, LearningSums, dual_radius, printed_dual_radius
from viceversa.constants.multiplier_bound import MultiplierBound


# -- Algorithm 1 on X = [−2, 2] with F = −1 and f(x) = x: x* = 0, λ* = 1 ---------------------------------
def run(n, gamma, rho, x=2.0, lam=0.0, low=-2.0, high=2.0):
    """(x_k, λ_k) for k = 1..n; F is constant, so the reflected difference vanishes."""
    xs, lams = [], []
    for _ in range(n):
        x = float(np.clip(x - gamma * (-1.0 + max(rho * x + lam, 0.0)), low, high))
        lam = max(lam + rho * x, 0.0)
        xs.append(x)
        lams.append(lam)
    return np.array(xs), np.array(lams)


def corner_problem():
    return vv.MisspecifiedVI(
        lambda x, t: 0.0 * x - 1.0,
        set=vv.Box([-2.0], [2.0]),
        constraints=lambda x, t: x,
        learning=vv.Known(0.0),
    )


def test_T1_strong_monotonicity_without_the_square_is_impossible():
    """⟨H(θ) − H(ϑ), θ − ϑ⟩ ≤ L‖θ − ϑ‖² < μ‖θ − ϑ‖ for every pair closer than μ/L; with the square H(θ) = θ has μ = 1."""
    H, L = (lambda t: t), 1.0
    for mu in (1.0, 1e-3):
        a, b = 0.0, 0.5 * mu / L
        assert (H(a) - H(b)) * (a - b) < mu * abs(a - b)
        assert (H(a) - H(b)) * (a - b) >= 1.0 * (a - b) ** 2


def test_T2_the_step_needs_the_transpose():
    """Jf is J × n; only Jfᵀ[ρf + λ]₊ has the shape of x, and it is the gradient of Φ (finite differences)."""
    A, b = np.array([[1.0, 2.0, 3.0], [0.0, -1.0, 1.0]]), np.array([1.0, 0.5])
    problem = vv.MisspecifiedVI(
        lambda x, t: x,
        set=vv.Box(-np.ones(3), np.ones(3)),
        constraints=lambda x, t: A @ x - b,
        learning=vv.Known(0.0),
    )
    x, lam, rho, theta = np.array([0.9, 0.4, 0.7]), np.array([0.2, 1.0]), 0.5, np.array(0.0)
    weights = np.maximum(rho * (A @ x - b) + lam, 0.0)
    with pytest.raises(ValueError, match="mismatch"):
        A @ weights
    gradient = vv.grad_x_Phi(problem, x, lam, theta, rho)
    assert gradient == pytest.approx(A.T @ weights)
    slopes = [
        (vv.Phi(problem, x + 1e-6 * e, lam, theta, rho) - vv.Phi(problem, x - 1e-6 * e, lam, theta, rho))
        / 2e-6
        for e in np.eye(3)
    ]
    assert gradient == pytest.approx(slopes, abs=1e-8)


def test_T7_the_inverse_step_grows_with_the_dual_radius():
    """1/γ = … + C₂(‖λ*‖ + D_Λ): a larger multiplier makes γ smaller, not larger."""
    problem = vv.MisspecifiedVI(
        lambda x, t: x - 2.0,
        set=vv.Box([-2.0], [2.0]),
        constraints=lambda x, t: x**2 - 1.0,
        learning=vv.Known(0.0),
    )
    constants = vv.constants(problem)
    small, large = (
        vv.theory_steps(problem, multiplier_norm=size, constants=constants, penalty=1.0)
        for size in (1.0, 10.0)
    )
    assert large.dual_radius > small.dual_radius
    assert large.step_size < small.step_size


def test_T8_both_sums_of_the_learning_errors_are_finite_together():
    sums = LearningSums(a0=3.0, q=0.9)
    k = np.arange(2000)
    a_sq = (3.0 * 0.9**k) ** 2
    assert np.sum((k + 2) ** 2 * a_sq) == pytest.approx(sums.S_weighted)
    assert np.sum((k + 1) ** 2 * a_sq) <= sums.S_weighted <= 4.0 * np.sum((k + 1) ** 2 * a_sq)


def test_T10_learning_needs_a_condition_on_eta():
    """η = 2.1/L_H diverges on a quadratic, and the proved factor says so; bounds refuse it."""
    learning = vv.SecondaryVI(lambda t: 4.0 * (t - 1.0), set=vv.Box([-1e9], [1e9]))
    eta, theta = 2.1 / 4.0, 1.1
    assert learning.contraction(eta) > 1.0
    for _ in range(50):
        theta -= eta * 4.0 * (theta - 1.0)
    assert abs(theta - 1.0) > 1.0


def test_C1_the_distance_to_the_solution_does_not_bound_the_diameter():
    """X = [0, 2], x* = 1: sup‖x − x*‖ = 1, but x_0 = 0 and x = 2, which the theorem's proof compares, are 2 apart."""
    X, x_star = vv.Box([0.0], [2.0]), 1.0
    assert max(abs(0.0 - x_star), abs(2.0 - x_star)) == 1.0
    assert X.diameter() == 2.0


def test_C2_multipliers_are_larger_than_the_dual_radius():
    """Along a run with λ_0 = 0, λ* = 1: sup‖λ_k − λ*‖ = D, yet ‖λ_k‖ exceeds D; D + ‖λ*‖ is never exceeded."""
    _, lams = run(200, gamma=0.3, rho=0.5, x=0.0)
    D = max(1.0, np.abs(lams - 1.0).max())
    assert lams.max() > D
    assert lams.max() <= D + 1.0


def test_C3_the_distance_to_the_trial_multiplier_exceeds_two_dual_radii():
    """λ* = 0 and a small penalty: λ_1 = 0.005, so D_Λ = 0.005, while λ̃ = λ* + 1 is 0.995 away."""
    lam_star, rho, f_x1, J = 0.0, 0.01, 0.5, 1
    lam_1 = max(0.0 + rho * f_x1, 0.0)
    D = max(abs(0.0 - lam_star), abs(lam_1 - lam_star))
    trial = lam_star + 1.0  # where f(x̄) > 0
    assert abs(lam_1 - trial) > 2.0 * D
    assert abs(lam_1 - trial) <= D + np.sqrt(J) + lam_star


def test_C4_differences_of_the_parameter_cost_twice_what_is_printed():
    """η just below 2/L_H: θ_k − θ* changes sign, ½Σ‖θ_k − θ_{k−1}‖² > S_2, and it stays below 2 S_2."""
    error = (-0.9) ** np.arange(400)
    half, S2 = 0.5 * np.sum(np.diff(error) ** 2), np.sum(error**2)
    assert S2 < half <= 2.0 * S2


def test_C5_a_start_other_than_zero_breaks_the_bound_on_the_trial_multiplier():
    """λ̃_j = 0 where f_j(x̄) ≤ 0, so ‖λ̃ − λ*‖² = ‖λ*‖² can exceed J; ‖λ̃‖² ≤ 2(J + ‖λ*‖²) holds."""
    J, lam_star = 1, 5.0
    for trial in (0.0, lam_star + 1.0):
        assert trial**2 <= 2.0 * (J + lam_star**2)
    assert (0.0 - lam_star) ** 2 > J


def test_C6_the_positive_part_does_not_bound_the_constraint():
    """On the paper's market sup|f_d| over X × Θ is larger than D_f/√J, the bound the proof takes for |f_d|."""
    instance = vv.gallery.cournot(50, 5, 0)
    D_f = vv.constants(instance.problem).D_f
    full = np.full(instance.problem.shape, 5.0)
    theta = np.ravel(instance.problem.learning.set.upper)
    f = np.asarray(
        instance.problem.constraints(jnp.asarray(full), theta.reshape(np.shape(instance.theta_true)))
    )
    assert D_f.is_bound
    assert np.abs(f).max() > D_f.value


def test_C7_a_radius_for_the_end_of_the_interval_does_not_hold_inside_it():
    """F = −1, f = x, ρ = 1: at 1/γ = ρC₁ the printed D_Λ is √10; at γ = 1/100, also allowed, λ swings out to 20."""
    problem = corner_problem()
    constants = vv.constants(problem)
    given = Ingredients(2.0, 4.0, LearningSums(0.0, 0.0), MultiplierBound(1.0, "known"), 1.0)
    printed = printed_dual_radius(constants, given, 0.0, rho=1.0, J=1)
    assert printed == pytest.approx(np.sqrt(10.0))
    _, lams = run(400, gamma=0.01, rho=1.0)
    swing = np.abs(lams - 1.0).max()
    assert swing > 3.0 * printed
    assert swing <= dual_radius(constants, given, rho=1.0, inverse_step=100.0)


def test_G2_the_parameters_can_disagree_on_which_constraints_are_active():
    """∂Φ/∂λ = max(f, −λ/ρ): with f(θ_k) = −1 and f(θ*) = 1 the index sets of θ_k give −λ/ρ where f is right."""
    rho, lam, at_k, at_star = 1.0, 0.5, -1.0, 1.0
    inactive_at_k = rho * at_k + lam < 0.0
    printed = -lam / rho if inactive_at_k else at_star
    slope = (float(vv.phi(at_star, lam + 1e-6, rho)) - float(vv.phi(at_star, lam - 1e-6, rho))) / 2e-6
    assert inactive_at_k
    assert slope == pytest.approx(max(at_star, -lam / rho))
    assert slope != pytest.approx(printed)


def test_G3_the_multiplier_is_updated_with_the_parameter_of_the_step():
    """Algorithm 1's line 6 has θ_k; with θ* in its place, as the proof of Lemma 2 writes, λ_1 is another."""
    problem = vv.MisspecifiedVI(
        lambda x, t: x - 1.0,
        set=vv.Box([0.0], [4.0]),
        constraints=lambda x, t: t * x,
        learning=vv.SecondaryVI(lambda t: t - 2.0, set=vv.Box([0.0], [3.0])),
    )
    method = vv.AugmentedLagrangian(step_size=0.5, penalty=1.0, learning_rate=0.1)
    points = vv.iterate(problem, method, x0=[1.0], theta0=[0.5])
    _, first = next(points), next(points)
    assert first.lam == pytest.approx(0.5 * first.x)
    assert first.lam != pytest.approx(2.0 * first.x)


def test_G4_terms_without_a_sign_may_not_be_weighted():
    """t_k ≤ 1 decreasing and T = (1, −1): Σ t_k T_k = ½ exceeds Σ T_k = 0."""
    t, T = np.array([1.0, 0.5]), np.array([1.0, -1.0])
    assert t @ T > T.sum()


def test_G5_the_gradient_of_Phi_moves_faster_with_theta_where_multipliers_are_large():
    """f = θx − 1: ∇ₓΦ = θ[ρf + λ]₊ has slope ≈ λ in θ, so no constant independent of λ exists; ρC₃ + ‖λ‖C₄ bounds it."""
    problem = vv.MisspecifiedVI(
        lambda x, t: x,
        set=vv.Box([0.0], [2.0]),
        constraints=lambda x, t: t * x - 1.0,
        learning=vv.SecondaryVI(lambda t: t - 1.0, set=vv.Box([0.5], [2.0])),
    )
    constants, x, rho = vv.constants(problem), np.array([1.0]), 0.1
    slopes = []
    for lam in (0.0, 10.0, 1000.0):
        a, b = (vv.grad_x_Phi(problem, x, np.array([lam]), np.array([t]), rho) for t in (1.0, 1.5))
        slopes.append(float(np.abs(b - a)[0]) / 0.5)
        assert slopes[-1] <= rho * constants.C3.value + lam * constants.C4.value
    assert slopes[2] > 50.0 * slopes[1] > 50.0 * slopes[0]


def test_H1_the_gradient_of_f_need_not_be_lipschitz_in_theta():
    """f = √(x² + θ²) is convex and 1-Lipschitz in x and θ; ∂f/∂x = x/f jumps as θ leaves 0 at small x."""
    slope = lambda x, t: x / np.hypot(x, t)
    x = 1e-9
    assert abs(slope(x, 1e-9) - slope(x, 0.0)) / 1e-9 > 1e8


def test_H2_an_unbounded_parameter_set_is_refused():
    """The least-squares example has b ≥ 0 only."""
    problem = vv.MisspecifiedVI(
        lambda x, b: x - b,
        set=vv.Box([0.0], [2.0]),
        learning=vv.LeastSquares(np.array([[1.0], [2.0]]), np.array([1.0, 2.0]), set=vv.NonNegative(1)),
    )
    assert "v" in vv.audit(problem).refuted


def test_H3_monotonicity_is_needed_at_the_true_parameter_only():
    """F = (θ − ½)x − 1 is not monotone for θ < ½, where learning starts; Algorithm 1 finds x* all the same."""
    problem = vv.MisspecifiedVI(
        lambda x, t: (t - 0.5) * x - 1.0,
        set=vv.Box([0.0], [4.0]),
        learning=vv.SecondaryVI(lambda t: t - 1.5, set=vv.Box([0.0], [3.0])),
    )
    assert "i" in vv.audit(problem).refuted
    method = vv.AugmentedLagrangian(step_size=0.3, penalty=1.0, learning_rate=0.1)
    assert vv.solve(problem, method, tol=0.0, max_iter=400).x == pytest.approx([1.0], abs=1e-8)


def test_H4_an_average_from_a_late_start_keeps_its_multiplier():
    """F = −1, X = [−1, 1], f = x, started at λ = 100 with ρ = 0.1: the gap of the average stays 1, and only the
    additional ‖λ_m‖²/(2ρ) = 50 000 makes the bound true."""
    K, gamma, rho = 500, 0.1, 0.1
    xs, _ = run(K, gamma, rho, x=-1.0, lam=100.0, low=-1.0, high=1.0)
    gap = 0.0 - np.mean(xs)  # max over y ≤ 0 of F(y)(x̄ − y) = −(x̄ − y) at y = 0
    assert gap == pytest.approx(1.0)
    printed = (2.0**2 / (2.0 * gamma)) / K
    assert gap > printed
    assert gap <= printed + 100.0**2 / (2.0 * rho) / K


def test_H5_the_slater_bound_needs_no_solution():
    """‖λ*‖₁ ≤ max F(x̂)ᵀ(x̂ − x)/min(−f(x̂)) at x̂ = −2 of F = −1, f = x on [−2, 2]: (2 + 2)/2 = 2 ≥ λ* = 1."""
    x_hat, vertices = -2.0, np.array([-2.0, 2.0])
    bound = np.max(-1.0 * (x_hat - vertices)) / (-x_hat)
    assert bound == pytest.approx(2.0)
    from viceversa.constants import multiplier_bound

    problem = corner_problem()
    found = multiplier_bound(problem, vv.constants(problem), np.array(0.0), 1.0)
    assert 1.0 <= found.value <= bound * (1 + 1e-9)


def scaled(c):
    """The same problem with θ counted in other units, ϑ = cθ."""
    return vv.MisspecifiedVI(
        lambda x, t: 2.0 * x - t / c,
        set=vv.Box([0.0], [4.0]),
        constraints=lambda x, t: t / c * x - 1.0,
        learning=vv.SecondaryVI(lambda t: t - 2.0 * c, set=vv.Box([1.0 * c], [3.0 * c])),
    )


def test_H6_the_printed_steps_depend_on_the_units_of_theta():
    steps = {
        version: [vv.theory_steps(scaled(c), version=version) for c in (1.0, 100.0)]
        for version in ("corrected", "paper")
    }
    one, hundred = steps["corrected"]
    assert (one.step_size, one.penalty) == pytest.approx((hundred.step_size, hundred.penalty), rel=1e-9)
    one, hundred = steps["paper"]
    assert hundred.penalty == pytest.approx(100.0 * one.penalty)
    assert abs(hundred.step_size - one.step_size) > 0.1 * one.step_size
