"""The certificate: true points pass, wrong ones do not, units do not matter, and nothing fools it."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import viceversa as vv
from unchecked import refused
from viceversa.certificates.residuals import learning_error_bound

# F(x) = (2(x₁ − θ₁), 2(x₂ − θ₂)), x₁ + x₂ ≤ 1, x₂ ≤ 0.8: x* = (3/4, 1/4), λ* = (1/2, 0) at θ = (1, 1/2).
X_TRUE, LAM_TRUE, THETA = np.array([0.75, 0.25]), np.array([0.5, 0.0]), np.array([1.0, 0.5])


def textbook(unit_F=1.0, unit_f=(1.0, 1.0), unit_x=1.0, box=2.0):
    """The same problem in other units: x' = unit_x·x, F' = unit_F·F, f'_j = unit_f[j]·f_j."""
    units = np.asarray(unit_f)

    def f(x, theta):
        return units * np.array([x[0] + x[1] - unit_x, x[1] - 0.8 * unit_x]) / unit_x

    return vv.MisspecifiedVI(
        lambda x, theta: unit_F * 2.0 * (x / unit_x - theta),
        set=vv.Box(np.zeros(2), np.full(2, box * unit_x)),
        constraints=f,
        learning=vv.Known(THETA),
        constraint_names=("budget", "cap"),
    )


PLAIN = textbook()


def test_the_truth_passes():
    certificate = vv.certify(PLAIN, X_TRUE, LAM_TRUE)
    assert certificate.holds
    assert certificate.violated == ()
    assert certificate.kkt_residual < 1e-15
    assert certificate.infeasibility == 0.0
    assert "holds" in str(certificate)


WRONG = {
    "not stationary": ([0.7, 0.25], [0.5, 0.0], "stationarity", ()),
    "no multiplier": ([0.75, 0.25], [0.0, 0.0], "stationarity", ()),
    "violated": ([0.75 + 1e-5, 0.25], [0.5 - 2e-5, 0.0], "feasibility", ("budget",)),
    "both violated, worst first": ([0.3, 0.95], [0.5, 0.0], "feasibility", ("budget", "cap")),
    "slack with a multiplier": ([0.5, 0.0], [1.0, 0.0], "complementarity", ()),
    "outside X": ([0.75, -0.25], [0.5, 0.0], "stationarity", ()),
}


@pytest.mark.parametrize(("x", "lam", "part", "violated"), WRONG.values(), ids=WRONG)
def test_wrong_points_do_not(x, lam, part, violated):
    certificate = vv.certify(PLAIN, x, lam)
    assert not certificate.holds
    assert certificate.relative[part] > 1e-8
    assert certificate.violated == violated
    assert "FAILS" in str(certificate)


def test_the_kkt_residual_is_the_natural_map():
    x, lam = np.array([1.9, 0.3]), np.array([0.2, 0.1])
    G = 2.0 * (x - THETA) + np.array([[1.0, 0.0], [1.0, 1.0]]) @ lam
    f = np.array([x.sum() - 1.0, x[1] - 0.8])
    expected = max(np.abs(x - np.clip(x - G, 0.0, 2.0)).max(), np.abs(lam - np.maximum(lam + f, 0.0)).max())
    certificate = vv.certify(PLAIN, x, lam)
    assert certificate.kkt_residual == pytest.approx(expected, rel=1e-14)
    assert certificate.infeasibility == pytest.approx(np.maximum(f, 0.0).sum(), rel=1e-14)
    np.testing.assert_allclose(certificate.constraint_values, f)


@pytest.mark.parametrize(
    "point", [([0.7, 0.31], [0.4, 0.1]), ([1.9, 0.0], [0.0, 0.3]), ([0.75, 0.25], [0.5, 0.0])]
)
@pytest.mark.parametrize(
    "units",
    [
        (1e6, (1.0, 1.0), 1.0),
        (1e-6, (1.0, 1.0), 1.0),
        (1.0, (1e6, 1e-6), 1.0),
        (1.0, (1.0, 1.0), 1e6),
        (1.0, (1.0, 1.0), 1e-6),
        (1e-6, (1e6, 1.0), 1e6),
    ],
)
def test_relative_parts_know_no_units(point, units):
    """λ'_j = λ_j·unit_F·unit_x/(unit_f[j]·…): the multipliers carry the units of F·x/f."""
    x, lam = np.asarray(point[0]), np.asarray(point[1])
    unit_F, unit_f, unit_x = units
    scaled = textbook(unit_F, unit_f, unit_x)
    found = vv.certify(scaled, unit_x * x, lam * unit_F * unit_x / np.asarray(unit_f)).relative
    expected = vv.certify(PLAIN, x, lam).relative
    assert found == pytest.approx(expected, rel=1e-6, abs=1e-12)


# -- what a loose box must not hide ------------------------------------------------------------------
LOOSE = [1e6, 1e12, 1e20, np.inf]


@pytest.mark.parametrize("width", LOOSE)
def test_a_loose_box_hides_nothing(width):
    """F = x − 3, x ≤ 1, so x* = 1 and λ* = 2, in a box far larger than anything that happens in it."""
    problem = vv.MisspecifiedVI(
        lambda x, t: x - 3.0,
        set=vv.Box(np.zeros(1), np.full(1, width)),
        constraints=lambda x, t: x - 1.0,
        learning=vv.Known(0.0),
    )
    assert vv.certify(problem, [1.0], [2.0]).holds
    for x, lam in ((0.996, 2.004), (1.01, 1.99), (1.0, 1.99), (0.005, 2.995), (0.005, 0.0), (0.0, 0.0)):
        certificate = vv.certify(problem, [x], [lam])
        assert max(certificate.relative.values()) > 1e-4
        assert not certificate.holds


def test_a_small_point_in_a_large_box_with_a_force_on_it():
    for force in (-1.0, 1.0):
        problem = vv.MisspecifiedVI(
            lambda x, t, force=force: force + 0.0 * x, set=vv.Box([0.0], [1e6]), learning=vv.Known(0.0)
        )
        assert not vv.certify(problem, [0.005]).holds


def test_a_parameter_that_is_learned_has_to_be_given():
    """The middle of Θ would be taken for the truth: here the answer there is another one."""
    learning = vv.LeastSquares([[1.0]], [2.0], set=vv.Box([0.0], [3.0]))
    problem = vv.MisspecifiedVI(lambda x, t: x - t, set=vv.Box([0.0], [9.0]), learning=learning)
    with refused("theta is missing. This problem learns its parameter"):
        vv.certify(problem, [1.5])
    assert vv.certify(problem, [2.0], theta=[2.0]).holds


def test_a_tiny_box():
    problem = vv.MisspecifiedVI(
        lambda x, t: -1.0 + 0.0 * x, set=vv.Box([0.0], [1e-9]), learning=vv.Known(0.0)
    )
    assert not vv.certify(problem, [0.0]).holds
    assert vv.certify(problem, [1e-9]).holds


def test_a_constraint_that_starts_active_is_measured_where_the_point_is():
    """f = x₁ − x₂ is zero at the start; its unit comes from the point."""
    problem = vv.MisspecifiedVI(
        lambda x, t: np.array([x[0] - 3.0, x[1] - 1.0]),
        set=vv.Box([-9.0, -9.0], [9.0, 9.0]),
        constraints=lambda x, t: x[0] - x[1],
        learning=vv.Known(0.0),
    )
    assert vv.certify(problem, [2.0, 2.0], [1.0]).holds
    assert vv.certify(problem, [2.0 + 1e-9, 2.0], [1.0 - 1e-9]).holds
    assert not vv.certify(problem, [2.0 + 1e-6, 2.0], [1.0 - 1e-6]).holds


@given(
    x=st.floats(0.0, 2.0),
    y=st.floats(0.0, 2.0),
    a=st.floats(0.0, 3.0),
    b=st.floats(0.0, 3.0),
    box=st.sampled_from([2.0, 1e6]),
)
@settings(max_examples=40)
def test_what_holds_is_near_the_truth(x, y, a, b, box):
    """The problem is strongly monotone with unit constants, so a small certificate means a small error."""
    certificate = vv.certify(LOOSE_OR_NOT[box], [x, y], [a, b])
    worst = max(certificate.relative.values())
    # Strong monotonicity 2 and every unit at most about 5 at these points.
    error = np.abs([x - 0.75, y - 0.25]).max()
    assert error <= 40.0 * np.sqrt(worst) + 1e-12


LOOSE_OR_NOT = {box: textbook(box=box) for box in (2.0, 1e6)}


# -- the learning part --------------------------------------------------------------------------------
def learner(theta_set, answers=(1.0, 2.0)):
    return vv.LeastSquares([1.0, 2.0], answers, set=theta_set)  # H(θ) = 5θ − 5, θ = 1 without Θ


def problem_with(learning):
    return vv.MisspecifiedVI(lambda x, t: x - t, set=vv.Box([0.0], [5.0]), learning=learning)


def test_the_learning_error_is_certified():
    problem = problem_with(learner(vv.Box(0.0, 3.0, shape=())))
    assert vv.certify(problem, [1.0], theta=1.0).holds
    off = vv.certify(problem, [1.01], theta=1.01)
    assert off.learning_error >= 0.01 * (1 - 1e-12)
    assert off.relative["learning"] > 1e-8
    assert not off.holds


def test_a_loose_set_of_parameters_hides_nothing():
    problem = problem_with(learner(vv.Box(0.0, 1e6, shape=())))
    assert vv.certify(problem, [1.0], theta=1.0).holds
    assert not vv.certify(problem, [1.001], theta=1.001).holds


def test_a_parameter_against_its_bound():
    """Θ = [2, 3] does not contain the fit 1: θ* = 2, where H = 5 does not vanish."""
    problem = problem_with(learner(vv.Box(2.0, 3.0, shape=())))
    assert vv.certify(problem, [2.0], theta=2.0).holds
    inside = vv.certify(problem, [2.1], theta=2.1)
    assert inside.learning_error >= 0.1
    assert not inside.holds
    # Outside Θ the operator vanishes at 1; that is not the answer.
    outside = vv.certify(problem, [1.0], theta=1.0)
    assert outside.learning_error >= 1.0
    assert not outside.holds


@given(theta=st.floats(-3.0, 6.0), low=st.floats(-2.0, 2.0), width=st.floats(0.1, 4.0))
@settings(max_examples=60)
def test_the_learning_bound_is_a_bound(theta, low, width):
    learning = learner(vv.Box(low, low + width, shape=()))
    answer = np.clip(1.0, low, low + width)
    with vv.precision.double():
        bound = float(learning_error_bound(learning, jnp.asarray(theta)))
    assert abs(theta - answer) <= bound * (1 + 1e-12) + 1e-12


def test_estimated_constants_are_not_a_proof():
    estimated = vv.SecondaryVI(lambda t: t + t**3 - 2.0, set=vv.Box(0.0, 3.0, shape=()))
    problem = problem_with(estimated)
    solution = vv.solve(problem, vv.AugmentedLagrangian(step_size=0.5, penalty=1.0))
    assert solution.status is vv.Status.solved_estimated_learning
    assert solution.success
    assert "estimated" in str(solution.certificate)


# -- its own arguments --------------------------------------------------------------------------------
def test_a_number_that_is_not_one_does_not_hold():
    problem = vv.MisspecifiedVI(
        lambda x, t: 0.0 * x,
        set=vv.Box([0.0], [1.0]),
        constraints=lambda x, t: np.log(x - 2.0),
        learning=vv.Known(0.0),
    )
    assert not vv.certify(problem, [0.5], [0.0]).holds


def test_points_are_checked():
    with refused("x has shape (3,); x has shape (2,)"):
        vv.certify(PLAIN, [1.0, 2.0, 3.0])
    with refused("multiplier has 1 entries; there are 2 constraints"):
        vv.certify(PLAIN, X_TRUE, [1.0])
    with refused("theta has shape ()"):
        vv.certify(PLAIN, X_TRUE, LAM_TRUE, theta=1.0)


def test_a_callback_problem_is_certified_too():
    traced, hosted = (
        PLAIN,
        vv.MisspecifiedVI(
            vv.callback_operator(lambda x, t: 2.0 * (x - t)),
            set=PLAIN.set,
            constraints=vv.callback_constraints(
                lambda x, t: np.array([x.sum() - 1.0, x[1] - 0.8]),
                lambda x, t, w: np.array([w[0], w[0] + w[1]]),
            ),
            learning=vv.Known(THETA),
        ),
    )
    for x, lam in (([0.75, 0.25], [0.5, 0.0]), ([0.9, 0.4], [0.1, 0.2])):
        a, b = vv.certify(traced, x, lam), vv.certify(hosted, x, lam)
        assert a.relative == pytest.approx(b.relative, abs=1e-14)
        assert a.holds == b.holds


@pytest.mark.parametrize("max_iter", [0, 1, 3, 1000])
def test_the_certificate_of_a_solve_is_that_of_its_point(max_iter):
    """Wherever a run ends, far from the answer or at it, the last look says what `certify` says of the point."""
    instance = vv.gallery.river_basin(misspecified=True)
    problem, theta0 = instance.problem, instance.theta0
    solution = vv.solve(problem, theta0=theta0, max_iter=max_iter)
    again = vv.certify(problem, solution.x, solution.multiplier, solution.theta, theta0=theta0)
    assert solution.certificate.holds == again.holds == (max_iter == 1000)
    assert solution.certificate.violated == again.violated
    for part, value in again.relative.items():
        np.testing.assert_allclose(solution.certificate.relative[part], value, rtol=1e-6, atol=1e-12)
