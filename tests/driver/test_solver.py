"""A solver that is kept: other data, the same answers as from a new problem; nothing compiled, nothing shared with the user."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest

import viceversa as vv
from viceversa.driver import loop
from viceversa.precision import double

RNG = np.random.default_rng(0)
N = 6
SKEW = RNG.normal(size=(N, N))
MATRIX = np.eye(N) + 0.3 * (SKEW - SKEW.T)
SLOPES = RNG.uniform(0.5, 2.0, N)


class Affine(eqx.Module):
    """F(x, θ) = c∘x + Σx + q − θ, which the default solver's smallest program is for."""

    c: np.ndarray
    q: np.ndarray

    def __call__(self, x, theta):
        return self.c * x + x.sum() + self.q - theta


class Budget(eqx.Module):
    """Σx ≤ most."""

    most: np.ndarray

    def __call__(self, x, theta):
        return x.sum() - self.most


def rows(seed=0):
    rng = np.random.default_rng(seed)
    A = rng.normal(size=(40, 2))
    return A, A @ np.array([1.0, 2.0]) + 0.01 * rng.normal(size=40)


def least_squares(seed=0) -> vv.LeastSquares:
    A, b = rows(seed)
    return vv.LeastSquares(A, b, set=vv.Box([0.0, 0.0], [5.0, 5.0]))


class Coupled(eqx.Module):
    """F(x, θ) = c∘x + Σx + q − θ₁ for half of x and θ₂ for the rest."""

    c: np.ndarray
    q: np.ndarray

    def __call__(self, x, theta):
        first = np.arange(N) < N // 2
        return self.c * x + x.sum() + self.q - first * theta[0] - ~first * theta[1]


def a_problem(q=None, **parts) -> vv.MisspecifiedVI:
    parts = {
        "operator": Coupled(SLOPES, np.zeros(N) if q is None else q),
        "set": vv.Box(np.zeros(N), np.full(N, 3.0)),
        "constraints": Budget(np.array(4.0)),
        "learning": least_squares(),
    } | parts
    return vv.MisspecifiedVI(**parts)


def same(one: vv.Solution, other: vv.Solution) -> None:
    assert one.status == other.status == "solved"
    np.testing.assert_allclose(one.x, other.x, rtol=0, atol=1e-7)
    np.testing.assert_allclose(one.theta, other.theta, rtol=0, atol=1e-7)
    np.testing.assert_allclose(one.multiplier, other.multiplier, rtol=0, atol=1e-7)


UPDATES = {
    "an operator": {"operator": Coupled(SLOPES + 0.5, RNG.normal(size=N))},
    "a field of it": {"operator": {"q": RNG.normal(size=N)}},
    "constraints": {"constraints": Budget(np.array(2.5))},
    "a field of those": {"constraints": {"most": 2.5}},
    "bounds": {"set": vv.Box(np.full(N, 0.1), np.full(N, 0.8))},
    "bounds that differ": {"set": vv.Box(np.full(N, 0.1), np.linspace(0.5, 1.0, N))},
    "data to learn from": {"learning": least_squares(1)},
    "all": {
        "operator": {"q": RNG.normal(size=N)},
        "set": vv.Box(np.zeros(N), np.full(N, 2.0)),
        "constraints": {"most": 3.0},
        "learning": least_squares(2),
    },
}


def built_with(update: dict) -> vv.MisspecifiedVI:
    """The same by a new problem."""
    parts = dict(update)
    if isinstance(parts.get("operator"), dict):
        parts["operator"] = Coupled(SLOPES, parts["operator"]["q"])
    if isinstance(parts.get("constraints"), dict):
        parts["constraints"] = Budget(np.asarray(parts["constraints"]["most"]))
    return a_problem(**parts)


@pytest.mark.parametrize("update", UPDATES.values(), ids=UPDATES)
def test_the_answer_is_that_of_a_new_problem(update):
    solver = vv.Solver(a_problem())
    same(solver.solve(), vv.solve(a_problem()))
    answer, expected = solver.update(**update).solve(), vv.solve(built_with(update))
    same(answer, expected)
    assert answer.nit <= expected.nit
    certificate = vv.certify(solver.problem, answer.x, answer.multiplier, answer.theta)
    assert certificate.holds


@pytest.mark.parametrize("method", [None, vv.SemismoothNewton()], ids=["default", "Newton"])
def test_other_data_compile_nothing_and_begin_at_the_last_answer(method):
    solver = vv.Solver(a_problem(RNG.normal(size=N)), method)
    solver.solve()
    n_programs = len(loop.begin_compiled._programs)
    for _ in range(3):
        q = RNG.normal(size=N)
        again = solver.update(operator={"q": q}).solve()
        same(again, vv.solve(a_problem(q), method))
    assert len(loop.begin_compiled._programs) == n_programs
    # A search makes sure that a start which passes is the answer in a unit of every coordinate.
    assert solver.solve().nit == (1 if method is None else 0)
    assert solver.solve(warm=False).nit == vv.solve(a_problem(q), method).nit >= 1


def test_arrays_are_the_solvers_own():
    q, most = np.ones(N), np.array(4.0)
    solver = vv.Solver(a_problem())
    solver.update(operator=Coupled(SLOPES, q), constraints={"most": most})
    q[:], most[()] = 1e3, -1e3
    same(solver.solve(), vv.solve(a_problem(np.ones(N))))
    np.testing.assert_array_equal(solver.problem.operator.q, np.ones(N))
    field = np.ones(N)
    solver.update(operator={"q": field})
    field[:] = 1e3
    same(solver.solve(), vv.solve(a_problem(np.ones(N))))


def test_large_arrays_are_the_solvers_own_too():
    """Beyond some size arrays go into the program as they are, not side by side with others."""

    class Diagonal(eqx.Module):
        d: np.ndarray
        q: np.ndarray

        def __call__(self, x, theta):
            return self.d * x + self.q - theta

    n = 3000
    X = vv.Box(np.full(n, -1.0), np.ones(n))
    solver = vv.Solver(vv.MisspecifiedVI(Diagonal(np.ones(n), np.zeros(n)), X, learning=vv.Known(0.5)))
    q = np.full(n, 0.25)
    solver.update(operator=Diagonal(np.ones(n), q))
    q[:] = 9.0
    np.testing.assert_allclose(solver.solve().x, 0.25, atol=1e-8)


def test_parts_of_another_structure_make_a_new_problem():
    solver = vv.Solver(a_problem(constraint_names=["budget"]))
    solver.solve()
    q = RNG.normal(size=N)
    same(solver.update(operator=lambda x, t: MATRIX @ x + q - t[0]).solve(), vv.solve(solver.problem))
    assert solver.problem.constraint_names == ("budget",)
    free = vv.NonNegative(N)
    same(solver.update(operator=Coupled(SLOPES, q), set=free).solve(), vv.solve(a_problem(q, set=free)))


class Two(eqx.Module):
    """F(x, θ) = 3x − a + 2bx − θ."""

    a: Any
    b: Any

    def __call__(self, x, theta):
        return 3.0 * x - self.a + 2.0 * self.b * x - theta


def of_two(a, b) -> vv.MisspecifiedVI:
    return vv.MisspecifiedVI(Two(a, b), vv.Box(np.zeros(3), np.full(3, 9.0)), learning=vv.Known(1.0))


def test_fields_that_hold_the_same_array_are_two_fields():
    with double():
        shared = jnp.asarray([1.0, 2.0, 3.0])
    b = np.array([0.5, 0.1, 0.7])
    solver = vv.Solver(of_two(shared, shared))
    solver.solve()
    same(solver.update(operator={"b": b}).solve(), vv.solve(of_two(shared, b)))
    solver.update(operator=Two(shared, shared))
    same(solver.update(operator={"a": 3.0 * b, "b": 2.0 * b}).solve(), vv.solve(of_two(3.0 * b, 2.0 * b)))


@pytest.mark.parametrize(
    ("dtype", "new"), [(np.int64, [1.5, 2.5, 3.5]), (np.int64, [4, 5, 6]), (np.bool_, [0.5, 0.0, 1.0])]
)
def test_numbers_are_not_cut_to_the_type_that_was_there(dtype, new):
    solver = vv.Solver(of_two(np.array([1, 2, 3]).astype(dtype), np.ones(3)))
    solver.solve()
    same(solver.update(operator={"a": new}).solve(), vv.solve(of_two(np.array(new, dtype=float), np.ones(3))))


def test_starts_that_no_longer_fit_are_said():
    solver = vv.Solver(of_two(np.ones(3), np.ones(3)), x0=[1.0, 2.0, 3.0])
    two = {"operator": {"a": np.ones(2), "b": np.ones(2)}, "set": vv.Box(np.zeros(2), np.ones(2))}
    with pytest.raises(vv.InputError, match=r"told to start does not fit .* x0 has shape \(3,\)"):
        solver.update(**two)
    assert solver.solve().x.shape == (3,)


def test_fields_that_are_no_arrays():
    """A plain number is part of the program, so another one is another program; a module is replaced as a whole."""

    class Sum(eqx.Module):
        factor: float
        rest: Affine

        def __call__(self, x, theta):
            return self.factor * x + self.rest(x, theta)

    def made(factor, q):
        operator = Sum(factor, Affine(SLOPES, q))
        return vv.MisspecifiedVI(operator, vv.Box(np.zeros(N), np.ones(N)), learning=vv.Known(0.5))

    q = RNG.normal(size=N)
    solver = vv.Solver(made(1.0, np.zeros(N)))
    same(solver.update(operator={"factor": 2.0}).solve(), vv.solve(made(2.0, np.zeros(N))))
    same(solver.update(operator={"rest": Affine(SLOPES, q)}).solve(), vv.solve(made(2.0, q)))


def test_a_problem_of_another_size_begins_anew():
    problem = vv.MisspecifiedVI(
        Affine(SLOPES, np.zeros(N)), vv.Box(np.zeros(N), np.ones(N)), learning=vv.Known(0.5)
    )
    solver = vv.Solver(problem)
    solver.solve()
    smaller = {"operator": {"c": SLOPES[:4], "q": np.zeros(4)}, "set": vv.Box(np.zeros(4), np.ones(4))}
    assert solver.update(**smaller).solve().x.shape == (4,)


def test_a_run_that_breaks_down_is_begun_again():
    """From x = 9 the logarithm's argument is negative, so that nothing can be said there."""

    class Barrier(eqx.Module):
        end: np.ndarray

        def __call__(self, x, theta):
            return x - theta - 0.1 / (self.end - x) + 0.0 * jnp.log(self.end - x)

    problem = vv.MisspecifiedVI(Barrier(np.array(20.0)), vv.Box([0.0], [15.0]), learning=vv.Known(9.0))
    solver = vv.Solver(problem, x0=[0.5])
    far = solver.solve()
    assert far.success
    solver.update(operator={"end": 5.0}, learning=vv.Known(1.0))
    assert vv.solve(solver.problem, init=far).status == "nonfinite"
    closer = solver.solve()
    assert closer.success
    assert 0.9 < closer.x[0] < 1.2


def test_a_fixed_number_of_iterations_goes_on_where_it_stopped():
    """As in control: a few iterations for every change, whether they solve or not."""
    method = vv.AugmentedLagrangian(step_size=0.05, penalty=0.5)
    solver = vv.Solver(a_problem(), method, tol=0.0, max_iter=40)
    whole = vv.solve(a_problem(), method, tol=0.0, max_iter=4000)
    distances = [np.abs(solver.solve().x - whole.x).max() for _ in range(20)]
    assert distances[-1] < 0.1 * distances[0]


def test_a_method_may_refuse_new_data():
    ones, X = np.ones(3), vv.Box(np.zeros(3), np.full(3, 9.0))
    problem = vv.MisspecifiedVI(Two(ones, ones), X, learning=vv.Known(1.0), symmetric=True)
    solver = vv.Solver(problem, vv.IPALM(lipschitz=5.0, jacobian_norm=1.0))
    infinite = vv.Box(np.zeros(3), np.array([9.0, 9.0, np.inf]))
    with pytest.raises(vv.InputError, match="IPALM: the set X is unbounded"):
        solver.update(set=infinite)
    assert solver.problem.set.bounded


def test_callbacks_are_solved_again_on_the_host():
    def F(x, theta):
        return np.asarray(x) - theta

    problem = vv.MisspecifiedVI(vv.callback_operator(F), vv.Box([0.0], [9.0]), learning=vv.Known(2.0))
    solver = vv.Solver(problem, tol=1e-6)
    assert solver.solve().x.round(5) == [2.0]
    assert solver.update(set=vv.Box([3.0], [9.0])).solve().x.round(5) == [3.0]


@pytest.mark.parametrize(
    ("update", "sentence"),
    [
        ({"operator": {"cost": 1.0}}, r"operator has no field 'cost'; Coupled has c, q"),
        ({"operator": {"q": "many"}}, r"update: operator q is str, which does not convert"),
        ({"operator": {"q": [np.nan] * N}}, r"update: operator q has NaN"),
        ({"set": {"upper": 1.0}}, r"update: set is a dict"),
        ({"constraints": lambda x, t: x}, r"constraint_names has 1 entries; constraints returns 6"),
    ],
)
def test_what_cannot_be_used_is_said_and_changes_nothing(update, sentence):
    solver = vv.Solver(a_problem(constraint_names=["budget"]))
    before, problem = solver.solve(), solver.problem
    with pytest.raises(vv.InputError, match=sentence):
        solver.update(**update)
    assert solver.problem is problem
    same(solver.solve(), before)


def test_fields_of_a_plain_function_have_no_names():
    solver = vv.Solver(a_problem(operator=lambda x, t: SLOPES * x - t[0], constraints=None))
    with pytest.raises(
        vv.InputError, match="it is no Equinox module in JAX style, so that its data have no names"
    ):
        solver.update(operator={"q": 1.0})
    with pytest.raises(vv.InputError, match="but there is none"):
        solver.update(constraints={"most": 1.0})


def test_what_solve_refuses_a_solver_refuses():
    with pytest.raises(vv.InputError, match=r"tol is 2\.0"):
        vv.Solver(a_problem(), tol=2.0)
    with pytest.raises(vv.InputError, match="x0 has shape"):
        vv.Solver(a_problem(), x0=[1.0])
    with pytest.raises(vv.SolveError, match="max_iterations"):
        vv.Solver(a_problem(), max_iter=0).solve(throw=True)
