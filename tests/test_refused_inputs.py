"""Arguments that describe nothing: each is refused in a sentence, and what is only unusual is taken."""

from __future__ import annotations

import functools
import warnings

import jax
import numpy as np
import pytest

import viceversa as vv
from unchecked import refused, unchecked
from viceversa.errors import UserFunctionError

PLANE, KNOWN, SCALAR = vv.Free(2), vv.Known(2.0), vv.Box(0.0, 9.0, shape=())


def F(x, theta):
    return x - theta


def problem(**changes):
    return vv.MisspecifiedVI(**{"operator": F, "set": PLANE, "learning": KNOWN} | changes)


def phi(x, y, theta):
    return (x * y).sum() + theta * x.sum()


def coupled(operator=lambda theta, x: theta - x.sum(), **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", vv.CoupledLearningWarning)
        return vv.CoupledLearning(operator, set=options.pop("set", SCALAR), **options)


# -- sets without coordinates ------------------------------------------------------------------------------
WITHOUT_COORDINATES = {
    "box": lambda: vv.Box(np.zeros(0), np.zeros(0)),
    "free": lambda: vv.Free(0),
    "non-negative": lambda: vv.NonNegative((2, 0)),
    "ball": lambda: vv.Ball(np.zeros(0), 1.0),
    "simplex": lambda: vv.Simplex((0, 3)),
    "affine": lambda: vv.Affine(np.zeros((1, 0)), np.zeros(1)),
    "polyhedron": lambda: vv.Polyhedron(np.zeros((2, 0)), np.zeros(2)),
    "intersection": lambda: vv.Intersection([vv.Free(0), vv.Ball(np.zeros(0), 1.0)]),
    "product": lambda: vv.Product([vv.Free(0), vv.NonNegative(0)]),
}


@pytest.mark.parametrize("make", WITHOUT_COORDINATES.values(), ids=WITHOUT_COORDINATES)
def test_a_set_without_coordinates_exists_but_nothing_is_solved_on_it(make):
    empty = make()
    nothing = np.zeros(empty.shape)
    assert nothing.size == 0
    assert empty.project(nothing).shape == empty.interior_point().shape == empty.width().shape == empty.shape
    assert empty.violation(nothing) == 0.0
    with refused(
        f"MisspecifiedVI: set has points of shape {empty.shape}, which have no coordinates, so there is "
        "nothing to solve for"
    ):
        problem(set=empty)


@pytest.mark.parametrize("theta", [np.zeros(0), [], {"a": np.zeros(0), "b": np.ones(2)}])
def test_a_parameter_or_constraints_without_numbers_are_nothing_wrong(theta):
    given = problem(
        operator=lambda x, theta: x - 1.0, constraints=lambda x, theta: x[:0], learning=vv.Known(theta)
    )
    solution = vv.solve(given)
    assert solution.success
    assert given.n_constraints == 0
    np.testing.assert_allclose(solution.x, 1.0, rtol=1e-8)


def test_a_block_without_coordinates_beside_others_is_nothing_wrong():
    assert vv.solve(problem(set=vv.Product([vv.Free(0), vv.NonNegative(2)]))).success


# -- saddle points ------------------------------------------------------------------------------------------
def pessimistic(set_x=PLANE, set_y=PLANE, set_theta=PLANE, horizon=10):
    return vv.PessimisticSaddlePoint(
        lambda x, y, t: (x * y).sum(), set_x, set_y, lambda t: t.sum(), set_theta, horizon
    )


SADDLES = {
    "no learning": (
        lambda: vv.SaddlePoint(phi, PLANE, PLANE, None),
        "SaddlePoint: learning is missing. Pass vv.",
    ),
    "a number to learn": (
        lambda: vv.SaddlePoint(phi, PLANE, PLANE, 3),
        "SaddlePoint: learning is int; vv.LeastSquares, vv.SecondaryVI or vv.Known is needed",
    ),
    "no X": (
        lambda: vv.SaddlePoint(phi, None, PLANE, KNOWN),
        "SaddlePoint: set_x is NoneType; a set of arrays",
    ),
    "no Y": (lambda: vv.SaddlePoint(phi, PLANE, 3, KNOWN), "SaddlePoint: set_y is int; a set of arrays"),
    "learning without Θ": (
        lambda: vv.SaddleLearning(lambda t, w: t * w, None, SCALAR),
        "SaddleLearning: set_theta is NoneType; a viceversa set is needed",
    ),
    "learning without W": (
        lambda: vv.SaddleLearning(lambda t, w: t * w, SCALAR, 3),
        "SaddleLearning: set_w is int; a viceversa set is needed",
    ),
    "pessimistic X": (
        lambda: pessimistic(set_x=None),
        "PessimisticSaddlePoint: set_x is NoneType; a set of arrays",
    ),
    "pessimistic Θ": (
        lambda: pessimistic(set_theta=3),
        "PessimisticSaddlePoint: set_theta is int; a set of arrays",
    ),
    "no horizon": (lambda: pessimistic(horizon=None), "horizon is None; a whole number >= 1"),
    "half a horizon": (lambda: pessimistic(horizon=1.5), "horizon is 1.5; a whole number >= 1"),
}


@pytest.mark.parametrize(("make", "words"), SADDLES.values(), ids=SADDLES)
def test_wrong_parts_of_a_saddle_point(make, words):
    with refused(words):
        make()


def test_a_problem_without_learning():
    with refused("MisspecifiedVI: learning is missing. Pass vv."):
        problem(learning=None)


# -- learning that depends on x -----------------------------------------------------------------------------
MODULI = {
    "two mu": ({"mu": [1.0, 2.0]}, "CoupledLearning: mu is [1.0, 2.0]; one positive number is needed"),
    "a list of one mu": ({"mu": [1.0]}, "CoupledLearning: mu is [1.0]; one positive number is needed"),
    "mu in words": ({"mu": "a"}, "CoupledLearning: mu is str, which does not convert"),
    "negative mu": ({"mu": -1}, "CoupledLearning: mu is -1; one positive number is needed"),
    "infinite mu": ({"mu": np.inf}, "CoupledLearning: mu is infinite"),
    "two lipschitz": (
        {"mu": 1.0, "lipschitz": np.array([1.0, 2.0])},
        "CoupledLearning: lipschitz is [1. 2.]; one positive number is needed",
    ),
    "lipschitz alone, two": (
        {"lipschitz": [1.0, 2.0]},
        "CoupledLearning: lipschitz is [1.0, 2.0]; one positive",
    ),
    "zero lipschitz": (
        {"lipschitz": 0.0},
        "CoupledLearning: lipschitz is 0.0; one positive number is needed",
    ),
    "the wrong order": (
        {"mu": 2.0, "lipschitz": 1.0},
        "mu = 2 and lipschitz = 1 were given; 0 < mu <= lipschitz",
    ),
}


@pytest.mark.parametrize(("options", "words"), MODULI.values(), ids=MODULI)
def test_wrong_moduli_of_coupled_learning(options, words):
    with refused(words):
        coupled(**options)


def test_moduli_of_coupled_learning_may_be_any_numbers():
    with unchecked():
        assert coupled(mu=np.float32(2.0)).lipschitz == 2.0
        assert coupled(mu=np.asarray(0.5), lipschitz=3).modulus()[:2] == (0.5, 3.0)
        assert coupled().modulus()[:2] == (1.0, 1.0)


PAIR = vv.Product({"a": SCALAR, "b": vv.Box(0.0, 9.0, shape=2)})
SHAPES = {
    "x for a number": (
        lambda t, x: t - x,
        SCALAR,
        "returns shape (3,); θ has shape () (from `set`), and H(θ, x) must",
    ),
    "a number for two": (lambda t, x: t.sum(), vv.Free(2), "operator returns shape (); θ has shape (2,)"),
    "two arrays": (lambda t, x: (t, x), SCALAR, "operator returns ((), (3,)); θ has shape ()"),
    "a part missing": (
        lambda t, x: {"a": t["a"]},
        PAIR,
        "operator returns {'a': ()}; θ has {'a': (), 'b': (2,)}",
    ),
    "a part too long": (
        lambda t, x: {"a": t["a"], "b": x},
        PAIR,
        "operator returns {'a': (), 'b': (3,)}; θ has {'a': (), 'b': (2,)}",
    ),
    "whole numbers": (lambda t, x: 1, SCALAR, "operator returns int64 numbers; floating point is needed"),
}


@pytest.mark.parametrize(("H", "Theta", "words"), SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("method", [None, vv.AugmentedLagrangian(step_size=0.1, penalty=1.0)])
def test_a_coupled_operator_must_have_the_shape_of_theta(H, Theta, words, method):
    learning = coupled(H, set=Theta)
    with refused(words, UserFunctionError) as caught:
        vv.solve(problem(operator=lambda x, t: 1.0 * x, set=vv.Free(3), learning=learning), method)
    assert str(caught.value).startswith("CoupledLearning: operator returns ")


# -- arguments left out or not in a list ------------------------------------------------------------------------
def test_an_intersection_wants_one_list():
    with refused(
        "Intersection: 2 arguments are given; one list of sets is needed. Write vv.Intersection([a, b])"
    ):
        vv.Intersection(vv.NonNegative(2), vv.Ball([0.0, 0.0], radius=1.0))


def test_least_squares_wants_a_set():
    with refused("LeastSquares: set is missing; it says which θ are possible. Pass set=vv.Free(n)"):
        vv.LeastSquares(np.eye(2), np.ones(2))


@pytest.mark.parametrize("Theta", [vv.Free(0), vv.Product([vv.Free(0), vv.NonNegative((2, 0))])])
def test_a_secondary_problem_wants_something_to_learn(Theta):
    with refused("which have no coordinates, so there is nothing to learn. Pass vv.Known(theta) instead"):
        vv.SecondaryVI(lambda theta: theta, set=Theta)


# -- arguments of solve -------------------------------------------------------------------------------------
def _of_two(seen, more):
    return False


VERBOSE, SEED = (
    "a whole number >= 0, or True or False, is needed",
    "a whole number from 0 to 2**63 - 1 is needed",
)
ARGUMENTS = {
    "verbose None": ({"verbose": None}, f"verbose is None; {VERBOSE}"),
    "verbose in words": ({"verbose": "yes"}, f"verbose is 'yes'; {VERBOSE}"),
    "verbose below 0": ({"verbose": -1}, f"verbose is -1; {VERBOSE}"),
    "verbose in parts": ({"verbose": 0.5}, f"verbose is 0.5; {VERBOSE}"),
    "seed None": ({"seed": None}, f"seed is None; {SEED}"),
    "seed too large": ({"seed": 2**70}, f"seed is {2**70}; {SEED}"),
    "seed in parts": ({"seed": 1.5}, f"seed is 1.5; {SEED}"),
    "seed below 0": ({"seed": -1}, f"seed is -1; {SEED}"),
    "clock None": (
        {"clock": None},
        "clock is NoneType; a function without arguments that returns seconds is",
    ),
    "clock of one": (
        {"clock": lambda now: 0.0},
        "clock cannot be called without arguments (it is <lambda>(now))",
    ),
    "callback of none": (
        {"callback": lambda: None},
        "callback cannot be called with one dict (it is <lambda>())",
    ),
    "callback of two": (
        {"callback": _of_two},
        "callback cannot be called with one dict (it is _of_two(seen, more))",
    ),
    "callback by name": ({"callback": lambda *, seen: None}, "callback cannot be called with one dict"),
    "tol True": ({"tol": True}, "tol is True; a number >= 0 is needed"),
    "tol False": ({"tol": False}, "tol is False; a number >= 0 is needed"),
    "max_iter True": ({"max_iter": True}, "max_iter is True; a whole number >= 0 is needed"),
    "time_limit True": ({"time_limit": True}, "time_limit is True; seconds > 0 are needed"),
    "tol 1": ({"tol": 1.0}, "tol is 1.0; it is relative, so a number below 1 is needed"),
    "tol 100": ({"tol": 100}, "tol is 100; it is relative, so a number below 1 is needed"),
    "tol of 401 digits": ({"tol": 10**400}, "it is relative, so a number below 1 is needed"),
    "max_iter too large": (
        {"max_iter": 2**70},
        f"max_iter is {2**70}; a whole number from 0 to 2**53 is needed",
    ),
}


@pytest.mark.parametrize(("options", "words"), ARGUMENTS.values(), ids=ARGUMENTS)
def test_wrong_arguments_of_solve(options, words):
    with refused(words):
        vv.solve(problem(), **options)


def test_iterate_wants_a_seed_too():
    with refused(f"seed is None; {SEED}"):
        next(vv.iterate(problem(), seed=None))


class _Seen:
    def __init__(self):
        self.ks = []

    def __call__(self, seen, *more, name="k"):
        self.ks.append(seen[name])


UNUSUAL = {
    "verbose": {"verbose": np.bool_(False)},
    "verbosely": {"verbose": True},
    "the largest seed": {"seed": 2**63 - 1},
    "a seed of NumPy": {"seed": np.int32(3)},
    "an object": {"callback": _Seen()},
    "a built-in": {"callback": dict},
    "a method": {"callback": [].append},
    "a part of a function": {"callback": functools.partial(_of_two, more=1)},
    "any arguments": {"callback": lambda *given: None},
    "a clock with a default": {"clock": lambda now=0.0: now},
    "numbers of NumPy": {"tol": np.float32(1e-6), "max_iter": np.int64(50), "time_limit": np.float64(60.0)},
    "a tol just below 1": {"tol": 0.999},
    "the largest max_iter": {"max_iter": 2**53},
}


@pytest.mark.parametrize("options", UNUSUAL.values(), ids=UNUSUAL)
def test_unusual_arguments_of_solve(options, capsys):
    with unchecked():
        status = vv.solve(problem(), **options).status
    assert status is (vv.Status.interrupted if options.get("callback") is dict else vv.Status.solved)


# -- symmetric ----------------------------------------------------------------------------------------------
SYMMETRIC = "True (F is a gradient), False (it is not) or None (not known) is needed"


@pytest.mark.parametrize(
    ("symmetric", "words"),
    [
        ("yes", "symmetric is 'yes'"),
        (1, "symmetric is 1"),
        (np.array([True, False]), "symmetric has shape (2,)"),
    ],
)
def test_symmetric_is_yes_no_or_not_known(symmetric, words):
    with refused(f"MisspecifiedVI: {words}; {SYMMETRIC}"):
        problem(symmetric=symmetric)


def test_symmetric_of_numpy_is_taken():
    with unchecked():
        assert [problem(symmetric=given).symmetric for given in (np.True_, False, None)] == [
            True,
            False,
            None,
        ]


def test_the_default_solver_asks_for_the_forward_derivative_of_constraints():
    @jax.custom_vjp
    def total(x):
        return x.sum()

    total.defvjp(lambda x: (x.sum(), x), lambda x, w: (w + 0.0 * x,))
    problem = vv.MisspecifiedVI(
        lambda x, t: x - 1.0, vv.Box(0.0, 3.0, shape=2), lambda x, t: total(x) - 1.0, vv.Known(0.0)
    )
    with pytest.raises(UserFunctionError, match=r"constraints.*AdaptiveAugmentedLagrangian"):
        vv.solve(problem)
    assert vv.solve(problem, vv.AdaptiveAugmentedLagrangian()).success
