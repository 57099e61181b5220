"""Nothing wrong is called solved: starts at poles and roots, forces that differ by decades, parameters without a scale."""

from __future__ import annotations

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest

import viceversa as vv
from unchecked import refused
from viceversa.certificates.infeasibility import prove_infeasible

KNOWN = vv.Known(0.0)
WIDE = vv.Box(-200.0, 200.0, shape=2)


def solved(F, X, truth, f=None, learning=KNOWN, **options) -> vv.Solution:
    solution = vv.solve(vv.MisspecifiedVI(F, X, f, learning), **options)
    assert solution.status == vv.Status.solved
    np.testing.assert_allclose(solution.x, truth, rtol=1e-6)
    return solution


@pytest.mark.parametrize(("power", "low"), [pytest.param(2, 1e-6, marks=pytest.mark.slow), (4, 1e-3)])
def test_a_start_near_a_pole_is_not_the_measure_of_all_forces(power, low):
    """F(x_0) = −10¹² at the default start: within 10⁻⁸ of it lies almost everything."""
    solved(lambda x, t: 1.0 - x**-power, vv.Box(low, 10.0, shape=2), 1.0)


@pytest.mark.parametrize(
    ("f", "low", "x0", "truth"),
    [
        (lambda x, t: 1.0 / x - 1.0, 1e-6, None, 1.0),
        pytest.param(lambda x, t: jnp.exp(x) - 10.0 * t, 0.0, [50.0], jnp.log(10.0), marks=pytest.mark.slow),
    ],
    ids=["pole", "exponential"],
)
def test_slopes_of_constraints_at_the_start_are_forgotten_when_newton_fails(f, low, x0, truth):
    """∇f(x_0) is 10¹² or 10²¹ times what it is at the solution, and every weight of the first steps hangs on it."""
    force = 1.0 if x0 is None else -30.0
    solution = solved(
        lambda x, t: x + force * t, vv.Box([low], [50.0]), truth, f, vv.Known(1.0), x0=x0, max_iter=30_000
    )
    assert "interior point: x and λ" in solution.trace.phase


def test_a_far_start_of_a_steep_force():
    solved(lambda x, t: x**9 - 1.0, WIDE, 1.0, x0=[100.0, 50.0])


@pytest.mark.parametrize(("X", "shift"), [(vv.Box(0.0, 5.0, shape=2), 1e-60), (vv.NonNegative(2), 0.0)])
def test_an_infinite_slope_at_the_start_is_no_unit(X, shift):
    F = lambda x, t: jnp.sqrt(x + shift) - 1.0
    solved(F, X, 1.0)
    problem = vv.MisspecifiedVI(F, X, learning=KNOWN)
    assert not any(vv.certify(problem, x).holds for x in ([0.0, 0.0], [5.0, 5.0], [0.3, 2.0]))


def test_a_force_that_vanishes_at_the_start_of_learning_is_measured_at_the_learned_parameter():
    """F(0, θ_0) = 0 at the default starts; at θ* it is not."""
    M, theta = 2.0 * np.eye(3) + 0.3, np.array([1.0, 2.0, 3.0])
    learning = vv.LeastSquares(np.eye(3), theta, set=vv.Box(0.0, 9.0, shape=3))
    for X in (vv.Box(-100.0, 100.0, shape=3), vv.Free(3)):
        found = solved(lambda x, t: M @ x - t, X, np.linalg.solve(M, theta), learning=learning)
        assert found.nit < 20


def test_an_error_of_a_parameter_without_a_scale_is_a_whole_one():
    """θ = θ_0 = 0 in an unbounded Θ has no size to measure its error by."""
    learning = vv.SecondaryVI(lambda t: t - 1.0, set=vv.Free(()), mu=1.0, lipschitz=1.0)
    problem = vv.MisspecifiedVI(lambda x, t: x - t, vv.Box([-5.0], [5.0]), learning=learning)
    certificate = vv.certify(problem, [0.0], theta=0.0)
    assert not certificate.holds
    assert certificate.relative["learning"] == 1.0
    for method in (None, vv.AdaptiveAugmentedLagrangian()):
        assert vv.solve(problem, method).x[0] == pytest.approx(1.0, abs=1e-7)


@pytest.mark.parametrize(
    ("stiff", "far"), [*(pytest.param(s, 1e4, marks=pytest.mark.slow) for s in (1e4, 1e5)), (1e3, 1e6)]
)
def test_small_parts_beside_a_large_one_come_to_rest_too(stiff, far):
    """A market of its own, 10⁹ times as forceful, would make the others' errors pass."""
    a, b = np.array([stiff, 1.0, 1.0]), np.array([far, 2.0, 3.0])
    X, f = vv.Box(0.0, 1e9, shape=3), lambda x, t: x[1] + x[2] - 4.0
    found = solved(lambda x, t: a * (x - b), X, [far, 1.5, 2.5], f)
    assert found.multiplier[0] == pytest.approx(0.5, rel=1e-6)


CASES = {
    "a norm": (lambda x, t: x - 1.0, vv.Box(-9.0, 9.0, shape=2), lambda x, t: jnp.linalg.norm(x) - 1.0, 0.5**0.5),
    "a root": (lambda x, t: x, vv.Box(0.0, 5.0, shape=2), lambda x, t: 1.0 - jnp.sqrt(x), 1.0),
    "a logarithm": (lambda x, t: jnp.log(x) - jnp.log(2.0), vv.Box(0.0, 9.0, shape=2), None, 2.0),
    "a pole": (lambda x, t: 2.0 - 1.0 / x, vv.NonNegative(2), None, 0.5),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_where_nothing_is_finite_at_the_default_start_the_run_begins_inside(case):
    F, X, f, truth = CASES[case]
    found = solved(F, X, truth, f)
    assert any("not finite at the default start" in note for note in found.notes)
    given = vv.solve(vv.MisspecifiedVI(F, X, f, KNOWN), x0=[0.0, 0.0])  # what was asked for is done
    assert given.status == vv.Status.nonfinite
    assert not given.notes


def test_what_is_not_a_problem_but_has_one_is_told_so():
    with refused("problem is Instance; a vv.MisspecifiedVI, its `.problem`, is needed."):
        vv.solve(vv.gallery.harker())  # pyright: ignore[reportArgumentType]


def test_a_start_outside_its_set_is_projected_and_a_note_says_so():
    learning = vv.LeastSquares([1.0, 2.0], [0.3, 0.6], set=vv.Box(0.0, 1.0, shape=()))
    problem = vv.MisspecifiedVI(
        lambda x, theta: x - theta, set=vv.Box([0.0, 0.0], [1.0, 1.0]), learning=learning
    )
    found = vv.solve(problem, x0=[4.0, 0.5], theta0=2.0)
    assert [note[:42] for note in found.notes] == [
        "The start of x lies outside X, so the run ",
        "The start of θ lies outside Θ, so the run ",
    ]
    assert "0.75 of its largest" in found.notes[0]
    assert vv.solve(problem, x0=[4.0, 0.5], callback=lambda seen: False).notes == found.notes[:1]
    assert vv.solve(problem, x0=[0.3, 1.0], theta0=1.0).notes == vv.solve(problem, init=found).notes == ()


@pytest.mark.parametrize("width", [pytest.param(1e7, marks=pytest.mark.slow), 1e10])
def test_a_constraint_on_small_coordinates_beside_a_large_one_is_not_left_pressing(width):
    """λ|f| of 10³ is nothing beside forces of 10⁶ over lengths of 10⁶, and yet x would be [10⁶, 0, 0]."""
    b = np.array([1e6, 3.0, 3.0])
    X, f = vv.Box(0.0, width, shape=3), lambda x, t: x[1] + x[2] - 2.0
    found = solved(lambda x, t: x - b, X, [1e6, 1.0, 1.0], f)
    assert found.multiplier[0] == pytest.approx(2.0, rel=1e-6)
    assert found.nit < 100
    wrong = vv.certify(vv.MisspecifiedVI(lambda x, t: x - b, X, f, KNOWN), [1e6, 0.0, 0.0], [500.0])
    assert not wrong.holds
    assert wrong.relative["complementarity"] > 1e-4


def test_a_far_start_inside_a_wide_box():
    X, f = vv.Box(0.0, 1e10, shape=2), lambda x, t: x.sum() - 2.0
    assert solved(lambda x, t: x - 3.0, X, 1.0, f, x0=[1e6, 1e6]).nit < 100


@pytest.mark.parametrize("power", [pytest.param(2, marks=pytest.mark.slow), 4])
def test_slopes_of_a_constraint_at_a_far_start_do_not_last(power):
    """‖∇f(x_0)‖ is up to 10³⁰ times what it is at the answer."""
    f = lambda x, t: (x**power).sum() - 2.0
    solved(lambda x, t: x - 3.0, vv.Free(2), 1.0, f, x0=[1e8, -1e8 / 3])


@pytest.mark.parametrize(
    "X",
    [
        vv.NonNegative(3),
        pytest.param(vv.Free(3), marks=pytest.mark.slow),
        pytest.param(vv.Box(0.0, np.inf, shape=3), marks=pytest.mark.slow),
    ],
)
def test_units_of_x_change_nothing_where_x_has_no_end(X):
    """The same iterations for x of 1 and of 10⁻⁶ to 10⁹, in sets that have no width to tell."""

    def found(unit):
        b = unit * np.array([1.0, 2.0, 3.0])
        return solved(lambda x, t: x - b, X, b - 0.5 * unit, lambda x, t: x.sum() - 4.5 * unit)

    assert len({found(unit).nit for unit in (1e-6, 1.0, 1e9)}) == 1


def test_a_step_below_rounding_is_not_taken_for_rest():
    """γ of a start where F is 10¹² times as steep, or of one far smaller than x, would leave x − γF = x."""
    solved(lambda x, t: x**3 + x - 2.0, vv.Box(-1e8, 1e8, shape=2), 1.0, x0=[1e6, -1e6])
    solved(lambda x, t: 1e-6 - 1.0 / x, vv.NonNegative(2), 1e6)


def test_a_force_that_vanishes_at_the_start_and_at_the_answer():
    rows = np.array([[0.0, 1.0, -1.0], [-1.0, 0.0, 1.0], [1.0, -1.0, 0.0]])
    f = lambda x, t: jnp.stack([1.0 - x.sum(), x.sum() - 1.0])
    solved(lambda x, t: rows @ x, vv.Box(0.0, 1.0, shape=3), 1.0 / 3.0, f)


def test_a_far_start_is_not_the_measure_of_a_callbacks_forces():
    cube = vv.callback_operator(lambda x, t: x**3 - 1.0)
    solved(cube, vv.Box(0.0, 1e4, shape=1), 1.0, x0=[1e3])


@pytest.mark.parametrize(
    ("D", "e", "c", "A", "b", "x"),
    [
        ([2.7, 0.49], [0.91, 0.47], [-86.0, -21.0], [55.0, 11.0], 47.0, [0.0, 47.0 / 11.0]),
        ([7.9, 0.15], [0.48, 0.027], [110.0, -41.0], [-48.0, 21.0], 13.0, None),
    ],
)
def test_exponentials_that_only_a_constraint_holds_back(D, e, c, A, b, x):
    """Forces at the start drive x to where exp overflows; a step whose slopes foretell nothing there is not taken."""
    D, e, c, A = map(np.array, (D, e, c, A))
    problem = vv.MisspecifiedVI(
        lambda x, t: D**2 * x + D * e * np.exp(D * x) + c,
        vv.NonNegative((2,)),
        lambda x, t: A @ x - b,
        vv.Known(1.0),
    )
    solution = vv.solve(problem)
    assert solution.success
    assert solution.nit < 100
    if x is not None:
        np.testing.assert_allclose(solution.x, x, rtol=0, atol=1e-7)


@pytest.mark.slow
def test_a_large_problem_that_starts_where_f_is_steepest_starts_again_inside():
    """Entropic transport from the corner x = 10⁻⁹, where logarithms are 10⁸ times as steep as at the answer."""
    rng = np.random.default_rng(4)
    cost, supply, demand = rng.uniform(1, 5, (40, 40)), rng.uniform(1, 2, 40), rng.uniform(1, 2, 40)
    demand *= 0.8 * supply.sum() / demand.sum()
    problem = vv.MisspecifiedVI(
        lambda x, t: cost + 0.1 * np.log(x),
        vv.Box(1e-9, 10.0, shape=(40, 40)),
        lambda x, t: np.concatenate([x.sum(axis=1) - supply, demand - x.sum(axis=0)]),
        vv.Known(1.0),
    )
    solution = vv.solve(problem, max_iter=1000)
    assert solution.success
    np.testing.assert_allclose(solution.x.sum(axis=0), demand, rtol=1e-7)


def test_a_start_beside_a_pole_is_no_solution():
    """Forces of 1e150, and one step further infinite ones: neither may become the unit of the others."""
    problem = vv.MisspecifiedVI(
        lambda x, theta: np.array([1.0, 2.0, 0.5]) - theta / x + 0.1 * x.sum(),
        set=vv.Box(np.zeros(3), 5.0 * np.ones(3)),
        constraints=lambda x, theta: x.sum() - 4.0,
        learning=vv.Known(1.0),
    )
    near, usual = vv.solve(problem, x0=np.full(3, 1e-150), multiplier0=[1.0]), vv.solve(problem)
    assert near.success
    assert usual.success
    np.testing.assert_allclose(near.x, usual.x, rtol=1e-7)


class Powers(eqx.Module):
    """H(θ) = θ⁵ + θ − c: Newton's step from below overshoots far, and 1/L is nothing on a wide Θ."""

    c: np.ndarray

    def __call__(self, theta):
        return theta**5 + theta - self.c


def shares_at_least(theta_true: float, n: int = 4) -> vv.MisspecifiedVI:
    """Σ x ≥ θ in the unit box: feasible at θ* < n, and not at the θ that learning passes on its way."""
    return vv.MisspecifiedVI(
        lambda x, theta: x + 0.3 * x.sum() + 1.0,
        set=vv.Box(np.zeros(n), np.ones(n)),
        constraints=lambda x, theta: theta - x.sum(),
        learning=vv.SecondaryVI(
            Powers(np.asarray(theta_true**5 + theta_true)), set=vv.Box(0.0, 1e3, shape=())
        ),
    )


@pytest.mark.parametrize("theta_true", [0.5, 3.0, 3.8])
def test_a_steep_parameter_is_learned_and_no_theta_on_the_way_makes_the_problem_infeasible(theta_true):
    problem = shares_at_least(theta_true)
    near = vv.solve(shares_at_least(0.1))
    for solution in (vv.solve(problem), vv.solve(problem, init=near), vv.solve(problem, theta0=40.0)):
        assert solution.success
        np.testing.assert_allclose(solution.theta, theta_true, rtol=1e-10)
        np.testing.assert_allclose(solution.x, theta_true / 4.0, rtol=1e-8)


def test_infeasibility_is_not_proved_by_estimated_constants():
    """H(5) = 0, so no constant is needed there; beside it, how far θ* is away is only estimated."""
    problem = shares_at_least(5.0)
    at_zero, beside = (prove_infeasible(problem, np.ones(4), [1.0], np.asarray(t)) for t in (5.0, 5.001))
    assert at_zero is not None
    assert beside is not None
    assert (at_zero.error, at_zero.proved) == (0.0, True)
    assert beside.error > 0
    assert not beside.proved


def test_an_infeasible_problem_is_not_called_so_before_its_parameter_is_learned():
    solution = vv.solve(shares_at_least(5.0))
    assert str(solution.status).startswith("infeasible")
    np.testing.assert_allclose(solution.theta, 5.0, rtol=1e-6)


def test_a_limit_on_what_bounds_hold_fixed_is_kept_up_to_rounding():
    """The first market can only be as it is, and its limit holds with equality but for the last digit."""
    fixed = np.array([-1.48975861, 0.3, 0.7])
    d = -1.24612545 * fixed.sum() - 0.61028499
    problem = vv.MisspecifiedVI(
        lambda x, t: x**3 - 4.0,
        vv.Box(np.stack([fixed, np.zeros(3)]), np.stack([fixed, np.ones(3)])),
        lambda x, t: np.array([-1.24612545, 0.5]) * x.sum(axis=1) - np.array([0.61028499 + t, 1.0]),
        vv.Known(0.0),
    )
    for last_digit in (-1e-16, 1e-16):
        solution = vv.solve(problem.with_known(d + last_digit), max_iter=100)
        assert solution.success
        np.testing.assert_allclose(solution.x[1], 2.0 / 3.0, rtol=1e-8)


# -- a start so far away that a tolerance relative to the way says little --------------------------
def nearly_satisfiable(gap: float) -> vv.MisspecifiedVI:
    """x ≥ 0 with Σx + gap ≤ 0."""
    return vv.MisspecifiedVI(
        lambda x, t: np.array([1.0, 2.0]) * x + x.sum() - 5.0,
        vv.NonNegative(2),
        lambda x, t: x.sum() + t,
        vv.Known(gap),
    )


@pytest.mark.parametrize("way", ["fused", "callback", "solver"])
def test_no_start_is_so_far_away_that_an_empty_set_passes(way):
    problem, start = nearly_satisfiable(2e-3), [1e6, 0.0]
    if way == "solver":
        solution = vv.Solver(problem, x0=start).solve()
    else:
        solution = vv.solve(problem, x0=start, callback=(lambda _: False) if way == "callback" else None)
    assert solution.status is vv.Status.infeasible
    assert "so far away" in " ".join(solution.notes)


@pytest.mark.parametrize("n", [4, pytest.param(20, marks=pytest.mark.slow)])
def test_rows_that_contradict_each_other_do_so_from_far_away_too(n):
    rng = np.random.default_rng(n)
    A, b, c, g = (
        rng.normal(size=(3, n)),
        rng.normal(size=3),
        10.0 ** rng.uniform(-1, 1, n),
        rng.normal(size=n),
    )
    A[2], b[2] = -A[0], -b[0] - 0.1
    problem = vv.MisspecifiedVI(lambda x, t: c * x - g, vv.Free(n), lambda x, t: A @ x - b, vv.Known(0.0))
    solution = vv.solve(problem, x0=1e12 * rng.normal(size=n), max_iter=300)
    assert np.max(A @ solution.x - b) > 0.04
    assert not solution.success


def test_a_small_answer_is_no_far_start():
    """x* = 0 beside forces that are what they were at the start: there is no length to be solved in again."""
    problem = vv.MisspecifiedVI(lambda x, t: x + x**3 - t, vv.Free(4), lambda x, t: x.sum(), vv.Known(1.3))
    solution = vv.solve(problem, x0=[1.0, -1.0, 0.5, 0.2], max_iter=300)
    assert solution.success
    assert solution.notes == ()
    np.testing.assert_allclose(solution.x, 0.0, atol=1e-8)


@pytest.mark.parametrize(
    "X", [vv.NonNegative(3), vv.Box(0.0, 1e13, shape=3)], ids=["no width", "as good as none"]
)
@pytest.mark.parametrize("far", [1e5, 1e9, 1e12])
def test_tol_refers_to_lengths_of_the_problem_wherever_it_begins(far, X):
    problem = vv.MisspecifiedVI(
        lambda x, t: x + 0.1 * x * jnp.abs(x) - t,
        X,
        learning=vv.Known(np.array([1.0, 2.0, 3.0])),
    )
    usual = vv.solve(problem)
    solution = vv.solve(problem, x0=[far, 0.0, far], tol=1e-4)
    assert solution.success
    np.testing.assert_allclose(solution.x, usual.x, rtol=0, atol=1e-3)
    assert vv.certify(problem, solution.x, tol=1e-4).holds


def test_a_kept_solver_does_not_measure_small_answers_by_large_ones():
    class Shifted(eqx.Module):
        shift: np.ndarray

        def __call__(self, x, theta):
            return theta * x + 0.1 * x**3 - self.shift

    problem = vv.MisspecifiedVI(Shifted(np.full(3, 1e18)), vv.NonNegative(3), learning=vv.Known(1.0))
    solver = vv.Solver(problem, tol=1e-4)
    assert solver.solve().x.max() > 1e6
    small = solver.update(operator={"shift": np.array([1.0, 2.0, 3.0])}).solve()
    assert small.success
    assert vv.certify(solver.problem, small.x, tol=1e-4).holds


def test_a_usual_start_has_no_note():
    problem = nearly_satisfiable(-2.0)
    first = vv.solve(problem)
    assert first.success
    for solution in (first, vv.solve(problem, x0=[10.0, 3.0]), vv.solve(problem, init=first)):
        assert solution.notes == ()
