"""Every method at its rate on a problem where the rate is tight, and off it as soon as a line of its step is wrong.

On a skew problem with a coupling constraint (merely monotone: a wrong step is not forgiven) most methods are linear maps near the
solution, so the factor of the last iterate is a spectral radius, written here from the formulas and known to all digits, and
the average is at exactly c/K. Elsewhere the slope of the theorem is measured. θ is learned in every case with a factor of ½, so the
rates are those of THEORY's max(c, q). A mutant is the method's own source with one expression changed; a stale θ is the
method with a learner that hardly moves. Both must fail the same check.
"""

from __future__ import annotations
import __future__

import inspect
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

import viceversa as vv
from methods_zoo import small_problems as P
from methods_zoo.running import many_seeds, run
from viceversa.catalogue import method_classes

LEARN, STALE = 0.25, 1e-9  # H = 2(θ − 1): θ's error falls by the factor 1 − 2·rate
I3, I4 = np.eye(3), np.eye(4)


# -- problems ---------------------------------------------------------------------------------------------------------
def learning():
    return vv.SecondaryVI(lambda theta: 2.0 * (theta - 1.0), set=vv.Box(0.5, 3.0, shape=()))


# Skew F in R³ and one coupling constraint, both with θ: (x*, λ*) = (X_STAR, 1) at θ* = 1, and M is the KKT operator's matrix.
K = np.array([[0.0, 1.0, 0.3], [-1.0, 0.0, 0.2], [-0.3, -0.2, 0.0]])
A = np.array([0.4, -0.3, 1.1])
X_STAR = np.array([1.0, -0.5, 0.5])
Z_STAR = np.append(X_STAR, 1.0)
M = np.block([[K, A[:, None]], [-A[None], np.zeros((1, 1))]])
COUPLED = vv.MisspecifiedVI(
    lambda x, theta: K @ (x - theta * X_STAR) - theta * A,
    set=vv.Box(np.full(3, -9.0), np.full(3, 9.0)),
    constraints=lambda x, theta: (A @ x - theta * (A @ X_STAR))[None],
    learning=learning(),
)
COUPLED_START = ([2.0, 1.0, -1.0], 2.0)
ROTATION = P.rotation()
ROTATION_START = ([3.0, 1.0], 2.0)
MU = 0.5
SPIRAL = vv.MisspecifiedVI(  # μ = ½ and a quarter turn: strongly monotone
    lambda x, theta: MU * (x - theta) + np.stack([x[1] - theta, theta - x[0]]),
    set=vv.Box([-9.0, -9.0], [9.0, 9.0]),
    learning=learning(),
)
RPS = np.array([[0.0, -1.0, 1.0], [1.0, 0.0, -1.0], [-1.0, 1.0, 0.0]])
SCISSORS = vv.MisspecifiedVI(
    lambda x, theta: theta * (RPS @ x) + (theta - 1.0) * np.array([1.0, 0.0, -1.0]),
    set=vv.Simplex(3),
    learning=learning(),
)
SADDLE = vv.SaddlePoint(
    lambda x, y, t: t * (x[0] - t) * (y[0] - 1.0), vv.Box([-9.0], [9.0]), vv.Box([-9.0], [9.0]), learning()
)
NONSMOOTH = vv.MisspecifiedVI(
    lambda x, theta: np.stack([np.sign(x[0] - theta), 3.0 * np.sign(x[1])]),
    set=vv.Box([-2.0, -2.0], [4.0, 2.0]),
    learning=learning(),
)
# min ½(x₁² + 2x₂²) over x₁ + x₂ ≥ θ: x* = (2, 1)/3, λ* = 2/3.
QUADRATIC = vv.MisspecifiedVI(
    lambda x, theta: np.stack([x[0], 2.0 * x[1]]),
    set=vv.Box([-3.0, -3.0], [3.0, 3.0]),
    constraints=lambda x, theta: (theta - x[0] - x[1])[None],
    learning=learning(),
)
QUADRATIC_X, QUADRATIC_START = np.array([2.0, 1.0]) / 3.0, ([-1.0, 2.0], 2.0)
NOISE = np.array([[1.0], [-1.0]])
NOISY = vv.MisspecifiedVI(
    vv.FiniteSum(lambda x, theta, row: x - theta + row, data=NOISE),
    set=vv.Box([-5.0], [5.0]),
    learning=learning(),
)
# max cᵀx over an octagon of radius θ around 0: x* is the vertex between the normals at 0 and 45 degrees.
ANGLES = np.pi / 4 * np.arange(8)
NORMALS, C = np.stack([np.cos(ANGLES), np.sin(ANGLES)], axis=1), np.array([np.cos(0.3), np.sin(0.3)])
VERTEX = np.linalg.solve(NORMALS[:2], np.ones(2))
OCTAGON = vv.MisspecifiedVI(
    lambda x, theta: -C + 0.0 * x,
    set=vv.Box([-3.0, -3.0], [3.0, 3.0]),
    constraints=vv.IndexedConstraints(lambda x, theta, row: row @ x - theta, data=NORMALS),
    learning=learning(),
)


# -- what is measured -------------------------------------------------------------------------------------------------
def radius(matrix) -> float:
    return float(np.abs(np.linalg.eigvals(matrix)).max())


def errors(points, answer) -> np.ndarray:
    z = np.concatenate([points.x, points.lam], axis=1) if len(answer) > points.x.shape[1] else points.x
    return np.linalg.norm(z - answer, axis=1)


def factor(error: np.ndarray, first: int, last: int, period: int = 30) -> float:
    """The mean factor per step between two iterations, each seen through the largest error of the period after it."""
    ends = error[last : last + period].max() / error[first : first + period].max()
    return float(ends ** (1.0 / (last - first)))


def slope(error: np.ndarray, first: int, last: int, period: int = 1) -> float:
    ends = error[last : last + period].max() / error[first : first + period].max()
    return float(np.log(ends) / np.log(last / first))


def average_slope(points, answer, first: int, last: int) -> float:
    return slope(np.linalg.norm(points.x_average - answer, axis=1), first, last)


class Case(NamedTuple):
    """A method, its problem, what is measured there, the interval each measure must lie in, and mutants (old, new)."""

    problem: Any
    build: Callable[[Any, float], Any]  # (class, learning rate) → method
    start: tuple
    n: int
    measure: Callable[[Any], dict[str, float]]
    expected: dict[str, tuple[float, float]]
    mutants: list[tuple[str, str]]
    execute: Callable[..., Any] = lambda *given: run(*given)[0]


def linear(value: float, width: float = 0.001) -> tuple[float, float]:
    """An interval around a factor that theory gives exactly."""
    return value - width, value + width


ONE_OVER_K = (-1.05, -0.95)
WEIGHTED = (-1.1, -0.9)  # an average weighted by steps that change


def on_coupled(build, matrix, mutants, n=1200, first=200, last=600) -> Case:
    """The factor of (x, λ) is the spectral radius of the method's matrix; the average is at c/K."""

    def measure(points):
        return {
            "factor": factor(errors(points, Z_STAR), first, last),
            "average": average_slope(points, X_STAR, n // 3, n),
        }

    rate = radius(matrix)
    assert 0.9 < rate < 0.99
    return Case(COUPLED, build, COUPLED_START, n, measure, {"factor": linear(rate), "average": ONE_OVER_K}, mutants)  # fmt: skip


TAU = 0.2
GOLDEN = (1.0 + np.sqrt(5.0)) / 2.0
EXTRAGRADIENT = I4 - TAU * M + TAU**2 * M @ M
POPOV = np.block([[I4 - TAU * M, TAU**2 * M @ M], [I4, -TAU * M]])
REFLECTED = np.block([[I4 - 2 * TAU * M, TAU * M], [I4, 0 * I4]])
AVERAGING = np.block([[(1 - 1 / GOLDEN) * I4 - 0.4 * M, I4 / GOLDEN], [(1 - 1 / GOLDEN) * I4, I4 / GOLDEN]])
GAMMA, RHO = 0.2, 0.3
_x_row = np.hstack([I3 - GAMMA * (2 * K + RHO * np.outer(A, A)), -GAMMA * A[:, None], GAMMA * K])
ALGORITHM_1 = np.vstack([_x_row, np.hstack([np.zeros((1, 3)), [[1.0]], np.zeros((1, 3))]) + RHO * A[None] @ _x_row, np.hstack([I3, np.zeros((3, 4))])])  # fmt: skip


def sizes(points):
    """Last iterate and average without an exact factor."""
    return {
        "factor": factor(errors(points, Z_STAR), 200, 600),
        "average": average_slope(points, X_STAR, 400, 1200),
    }


def rotation_factor(points):
    return {"factor": factor(errors(points, np.ones(2)), 5, 40, period=1)}


def anchored(points):
    """k τ (x_k − x*) → T⁻¹(x_0 − x*), with T the quarter turn: order 1/k, and where it comes from."""
    k, limit = 2000, np.array([[0.0, -1.0], [1.0, 0.0]]) @ (points.x[0] - 1.0)
    far = np.linalg.norm(k * 0.5 * (points.x[k] - 1.0) - limit) / np.linalg.norm(limit)
    return {"slope": slope(errors(points, np.ones(2)), 200, k, period=40), "distance to the limit": far}


def tikhonov(points):
    """‖z_k − z*‖/ε_k → ‖M⁻¹z*‖, the first-order bias of the regularised problem."""
    error, k = errors(points, Z_STAR), 40_000
    return {"slope": slope(error, 4000, k), "bias": error[k] / (k + 1.0) ** -0.3 / np.linalg.norm(np.linalg.solve(M, Z_STAR))}  # fmt: skip


def nonsmooth(points):
    value = np.abs(points.x_average[:, 0] - 1.0) + 3.0 * np.abs(points.x_average[:, 1])
    return {"slope": slope(value, 300, 10_000)}


def accelerated(points):
    infeasibility = np.maximum(1.0 - points.x_average.sum(axis=1), 0.0)
    return {"slope": slope(infeasibility, 500, 4000)}


def scissors(points):
    return {"factor": factor(errors(points, np.full(3, 1.0 / 3.0)), 50, 350)}


def saddle(points):
    return {"factor": factor(errors(points, np.ones(2)), 30, 130, period=10)}


def ipalm(points):
    return {"factor": factor(errors(points, np.append(QUADRATIC_X, 2.0 / 3.0)), 10, 40, period=4)}


def stochastic(points):
    """k E|x_k − x*|² → the variance 1, for steps 1/k."""
    square = ((points.x[:, :, 0] - 1.0) ** 2).mean(axis=0)
    return {"slope": slope(square, 150, 2400), "variance": 2400 * square[2400:2500].mean()}


def randomized(points):
    average = points.x_average
    excess = np.maximum(average @ NORMALS.T - 1.0, 0.0).sum(axis=2) + np.abs((VERTEX - average) @ C)
    return {"slope": slope(excess.mean(axis=0), 300, 3000)}


def restarted(points):
    return {"factor": factor(errors(points, Z_STAR), 100, 500)}


def recent(points):
    """At a power of two the mean is over the half before it: from c ρ^64/64 at 128 to c ρ^512/512 at 1024."""
    return {"factor": factor(errors(points, X_STAR), 128, 1024, period=1)}


SPIRAL_FACTOR = np.sqrt((1.0 - 0.2 * MU) ** 2 + 0.2**2)
# On the simplex the entropy's step is, to first order, a step in the metric D = diag(x*) − x*x*ᵀ.
SCISSORS_STEP = 0.3 * (np.eye(3) - 1.0 / 3.0) / 3.0 @ RPS
SCISSORS_FACTOR = radius(
    (np.eye(3) - SCISSORS_STEP + SCISSORS_STEP @ SCISSORS_STEP) @ (np.eye(3) - 1.0 / 3.0)
)
RECENT_FACTOR = (radius(EXTRAGRADIENT) ** (512 - 64) * 64 / 512) ** (1 / (1024 - 128))
SADDLE_FACTOR = radius(np.array([[1.0 - 2 * 0.09, -0.3, 0.09], [0.6, 1.0, -0.3], [1.0, 0.0, 0.0]]))

CASES = {
    "AugmentedLagrangian": on_coupled(
        lambda kind, rate: kind(GAMMA, RHO, learning_rate=rate),
        ALGORITHM_1,
        [("F_x + r +", "F_x - r +"), ("rho * f(x_next)", "rho * f_x")],
    ),
    "AdaptiveAugmentedLagrangian": Case(
        COUPLED, lambda kind, rate: kind(learning_rate=rate), COUPLED_START, 1200, sizes,
        {"factor": (0.96, 0.985), "average": WEIGHTED},
        [("+ gradient) - reflected", "+ gradient) + reflected"), ("state.lam + rho * trial.f", "state.lam - rho * trial.f")],
    ),
    "AcceleratedAugmentedLagrangian": Case(
        QUADRATIC, lambda kind, rate: kind(1.0, 8.0, 3.0, penalty=1e-2, learning_rate=rate), QUADRATIC_START, 4000, accelerated,
        {"slope": (-2.3, -1.8)},
        [("rho_next = rho + 4.0 * mu", "rho_next = rho + 0.0 * mu"), ("state.lam + rho * f(x", "state.lam - rho * f(x")],
    ),
    "ExtragradientLagrangian": on_coupled(
        lambda kind, rate: kind(TAU, learning_rate=rate),
        EXTRAGRADIENT,
        [("x_next = X.project(state.x - tau * G_y)", "x_next = X.project(y - tau * G_y)"), ("problem, y, nu, theta", "problem, state.x, nu, theta")],
    ),
    "TikhonovLagrangian": Case(
        COUPLED, lambda kind, rate: kind(vv.steps.Power(0.3, 0.5), vv.steps.Power(1.0, 0.3), learning_rate=rate), COUPLED_START, 40_000, tikhonov,
        {"slope": (-0.32, -0.28), "bias": (0.9, 1.1)},
        [("+ eps * state.x", "- eps * state.x"), ("- eps * state.lam", "+ eps * state.lam")],
    ),
    "ProjectionMethod": Case(
        SPIRAL, lambda kind, rate: kind(0.2, learning_rate=rate), ROTATION_START, 60, rotation_factor,
        {"factor": linear(SPIRAL_FACTOR)},
        [("state.z - tau", "state.z + tau")],
    ),
    "MisspecifiedSubgradient": Case(
        NONSMOOTH, lambda kind, rate: kind(vv.steps.Power(0.5, 0.5), learning_rate=rate), ([-1.0, 1.7], 2.5), 10_000, nonsmooth,
        {"slope": (-0.65, -0.4)},
        [("gamma * G(state.z)", "-gamma * G(state.z)"), ("self.step_size(state.k)", "self.step_size(0 * state.k)")],
    ),
    "MirrorProx": Case(
        SCISSORS, lambda kind, rate: kind(0.3, learning_rate=rate), ([0.6, 0.3, 0.1], 2.0), 420, scissors,
        {"factor": linear(SCISSORS_FACTOR)},
        [("x_next, mirror = _prox(X, state.mirror, tau * G_y)", "x_next, mirror = _prox(X, state.mirror, tau * G_x)")],
    ),
    "Popov": on_coupled(
        lambda kind, rate: kind(TAU, learning_rate=rate),
        POPOV,
        [("y_next = Z.project(state.z - tau * state.G_y)", "y_next = Z.project(state.z + tau * state.G_y)"), ("z_next = Z.project(state.z - tau * G_next)", "z_next = Z.project(y_next - tau * G_next)")],
    ),
    "TsengForwardBackwardForward": on_coupled(
        lambda kind, rate: kind(TAU, learning_rate=rate), EXTRAGRADIENT, [("y - tau * (G(y) - G_z)", "y + tau * (G(y) - G_z)")]
    ),
    "ForwardReflectedBackward": on_coupled(
        lambda kind, rate: kind(TAU, learning_rate=rate),
        REFLECTED,
        [("(G_z - state.G_prev)", "(G_z + state.G_prev)")],
    ),
    "GoldenRatio": on_coupled(
        lambda kind, rate: kind(0.4, learning_rate=rate), AVERAGING, [("z_bar - tau * G(state.z)", "state.z - tau * G(state.z)")]
    ),
    "AdaptiveGoldenRatio": Case(
        COUPLED, lambda kind, rate: kind(learning_rate=rate), COUPLED_START, 1200, sizes,
        {"factor": (0.95, 0.98), "average": WEIGHTED},
        [("z_bar - state.tau * G_z", "state.z - state.tau * G_z"), ("z_bar - state.tau * G_z", "z_bar + state.tau * G_z")],
    ),
    "SolodovProjection": Case(
        ROTATION, lambda kind, rate: kind(0.5, learning_rate=rate), ROTATION_START, 60, rotation_factor,
        {"factor": linear(1.0 / np.sqrt(1.0 + 0.5**2))},
        [("* trial.G_y)", "* G_z)"), ("G_y = G(y)", "G_y = G(z)")],
    ),
    "AnchoredExtragradient": Case(
        ROTATION, lambda kind, rate: kind(0.5, learning_rate=rate), ROTATION_START, 2100, anchored,
        {"slope": ONE_OVER_K, "distance to the limit": (0.0, 0.01)},
        [("(state.anchor - z)", "(z - state.anchor)"), ("v = z - tau * G(z_hat) + a", "v = z - tau * G(z) + a"), ("anchor=state.anchor", "anchor=z")],
    ),
    "IPALM": Case(
        QUADRATIC, lambda kind, rate: kind(2.0, np.sqrt(2.0), penalty=0.5, growth=1.3, accuracy=1.0, learning_rate=rate), QUADRATIC_START, 45, ipalm,
        {"factor": (0.5, 1.3**-0.5)},
        [("alpha = self.accuracy * (k + 1.0)", "alpha = self.accuracy + 0.0 * (k + 1.0)"), ("state.lam + rho * f(inner.x)", "state.lam - rho * f(inner.x)")],
    ),
    "LearningAwarePrimalDual": Case(
        SADDLE, lambda kind, rate: kind(0.3, learning_rate=rate), ([3.0, 0.0], 2.0), 150, saddle,
        {"factor": linear(SADDLE_FACTOR)},
        [("- eta * slope_prev", "- 0.0 * eta * slope_prev"), ("phi.grad_x(state.x, y_next, theta)", "phi.grad_x(state.x, state.y, theta)")],
    ),
    "StochasticApproximation": Case(
        NOISY, lambda kind, rate: kind(vv.steps.Power(1.0, 1.0), learning_rate=rate), ([4.0], 2.0), 2500, stochastic,
        {"slope": (-1.15, -0.85), "variance": (0.6, 1.5)},
        [("self.step_size(state.k)", "self.step_size(0 * state.k)")],
        many_seeds,
    ),
    "RandomizedLagrangian": Case(
        OCTAGON, lambda kind, rate: kind(vv.steps.Power(0.5, 0.5), vv.steps.Power(0.5, 0.5), block=2, learning_rate=rate), ([-1.0, 2.0], 2.0), 3001, randomized,
        {"slope": (-0.7, -0.4)},
        [("state.lam[S] + rho * f_next", "state.lam[S] - rho * f_next")],
        many_seeds,
    ),
    "Averaged": Case(
        COUPLED, lambda kind, rate: kind(vv.ExtragradientLagrangian(TAU, learning_rate=rate), over="recent"), COUPLED_START, 1100, recent,
        {"factor": linear(RECENT_FACTOR)},
        [("before_sum=keep * state.before_sum", "before_sum=state.before_sum")],
    ),
    "Restarted": Case(
        COUPLED, lambda kind, rate: kind(vv.AnchoredExtragradient(TAU, learning_rate=rate)), COUPLED_START, 1200, restarted,
        {"factor": (0.9, 0.97)},
        [("restart = ~first &", "restart = first & ~first &")],
    ),
}  # fmt: skip


def changed(kind: type, old: str, new: str) -> type:
    """The class with one expression of its source changed."""
    source, module = inspect.getsource(kind), sys.modules[kind.__module__]
    assert source.count(old) == 1, f"{kind.__name__}: {old!r} occurs {source.count(old)} times"
    namespace = dict(vars(module))
    code = compile(source.replace(old, new), f"<mutant of {kind.__name__}>", "exec", __future__.annotations.compiler_flag)  # fmt: skip
    exec(code, namespace)
    return namespace[kind.__name__]


def measured(case: Case, kind: type, rate: float = LEARN) -> dict[str, float]:
    points = case.execute(case.problem, case.build(kind, rate), case.n, *case.start)
    with np.errstate(all="ignore"):  # a mutant may leave nothing to measure
        return case.measure(points)


def misses(case: Case, values: dict[str, float]) -> list[str]:
    """The measures outside their intervals; a NaN is outside."""
    return [name for name, (low, high) in case.expected.items() if not low <= values[name] <= high]


def test_every_method_of_the_catalogue_has_a_rate_test():
    assert set(CASES) == set(method_classes())


@pytest.mark.parametrize("name", CASES)
def test_the_method_has_its_rate_and_its_mutants_do_not(name):
    case, kind = CASES[name], method_classes()[name]
    values = measured(case, kind)
    assert not misses(case, values), values
    assert misses(case, measured(case, kind, STALE)), "a stale θ keeps the rate"
    for old, new in case.mutants:
        values = measured(case, changed(kind, old, new))
        assert misses(case, values), f"the mutant {new!r} keeps the rate: {values}"
