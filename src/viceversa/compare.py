"""Learning and solving at the same time, one after the other, or with θ* known: the same method at equal evaluations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from viceversa import precision
from viceversa.certificates.residuals import Scales, learning_error_bound, residuals
from viceversa.driver import loop
from viceversa.errors import InputError, MissingExtra
from viceversa.learners import ProjectedGradient
from viceversa.learners.base import Learner
from viceversa.methods import AdaptiveAugmentedLagrangian
from viceversa.methods.base import Method, OracleCounts
from viceversa.numerics import tree_norm, tree_subtract
from viceversa.problem import MisspecifiedVI
from viceversa.schemes import Oracle, Scheme, Sequential, Simultaneous

_NAMES = ("joint", "sequential", "oracle")
_N_ROWS = 40  # points of a curve
_MAX_STEPS = 20  # steps per evaluation granted: only free learning (learning_cost=0) can be cheaper than this
_TRUTH_TOL, _TRUTH_STEPS = 1e-13, 1_000_000


@dataclass(frozen=True)
class Comparison:
    """One row per scheme and recorded budget; `evaluations` is n_F + learning_cost·n_H, the axis all schemes share."""

    rows: list[dict[str, Any]] = field(repr=False)
    learning_cost: float
    theta_true: PyTree = field(repr=False)

    @property
    def schemes(self) -> list[str]:
        """The schemes, in the order given."""
        return list(dict.fromkeys(row["scheme"] for row in self.rows))

    def curve(self, scheme: str, column: str) -> tuple[np.ndarray, np.ndarray]:
        """(evaluations, a column) of one scheme."""
        own = [row for row in self.rows if row["scheme"] == scheme]
        return np.array([row["evaluations"] for row in own]), np.array([row[column] for row in own])

    @property
    def final(self) -> list[dict[str, Any]]:
        """The last row of every scheme: where it stands when the budget is spent."""
        return [[row for row in self.rows if row["scheme"] == name][-1] for name in self.schemes]

    def to_frame(self):
        """All rows as a pandas DataFrame."""
        try:
            import pandas as pd
        except ImportError:
            raise MissingExtra("Comparison.to_frame", "pandas", "tables") from None
        return pd.DataFrame(self.rows)

    def figure(self, column: str = "residual_true") -> Any:
        """A Matplotlib figure of one column over evaluations, one line per scheme, above the error of θ.

        `figure().savefig("compare.png")` writes it; columns are those of `rows` that are errors, such as "relative_true".
        """
        from viceversa.report import comparison_figure  # late: only the figure needs Matplotlib

        return comparison_figure(self, column)

    def __str__(self) -> str:
        head = f"{'scheme':<14}{'evaluations':>12}{'n_F':>9}{'n_H':>9}{'residual at θ*':>17}{'‖θ − θ*‖':>12}"
        lines = [
            f"{row['scheme']:<14}{row['evaluations']:>12.6g}{row['n_F']:>9d}{row['n_H']:>9d}"
            f"{row['residual_true']:>17.2e}{row['theta_error']:>12.2e}"
            for row in self.final
        ]
        return "\n".join([head, *lines])


def compare(
    problem: MisspecifiedVI,
    schemes: Sequence[Any] = _NAMES,
    *,
    method: Method | None = None,
    learner: Learner | None = None,
    theta_true: Any = None,
    x_true: Any = None,
    learn_tol: float = 1e-6,
    learning_cost: float | int = 1.0,
    evaluations: float | int = 2000,
    x0: Any = None,
    theta0: Any = None,
    multiplier0: Any = None,
    seed: int = 0,
) -> Comparison:
    """Run `method` under several schemes from the same start until each has spent the same number of evaluations.

    `schemes` names "joint" (learning and solving at the same time), "sequential" (learn to `learn_tol`, then solve) and
    "oracle" (θ* known from the start), or holds schemes. One evaluation of H costs `learning_cost` evaluations of F.
    Everything is measured at θ*: `theta_true`, or, left out, what the learning problem itself leads to.
    Printing the result gives a table, `.figure()` the figure.

    Example:
        >>> import numpy as np, viceversa as vv
        >>> learning = vv.SecondaryVI(lambda t: t - 2.0, set=vv.Box(0.0, 9.0, shape=()))
        >>> problem = vv.MisspecifiedVI(lambda x, t: x - t, set=vv.Box([0.0], [9.0]), learning=learning)
        >>> vv.compare(problem, method=vv.Extragradient(0.3), evaluations=60).schemes
        ['joint', 'sequential', 'oracle']
    """
    _check_given(problem, method, learner, schemes)
    method = AdaptiveAugmentedLagrangian() if method is None else method
    if learner is None:
        learner = ProjectedGradient(method.learning_rate) if method.learner is None else method.learner
    assert learner is not None
    if not (np.ndim(learning_cost) == 0 and np.isfinite(learning_cost) and learning_cost >= 0):
        raise InputError(f"compare: learning_cost is {learning_cost}; a number >= 0 is needed.")
    if not evaluations >= 1:
        raise InputError(f"compare: evaluations is {evaluations}; at least 1 is needed.")
    truth = _truth(problem) if theta_true is None else problem.check_theta("theta_true", theta_true)
    x_star = None if x_true is None else problem.check_x("x_true", x_true)
    named = dict(_scheme(given, method, learner, truth, learn_tol) for given in schemes)
    starts = _starts(problem, x0, theta0, multiplier0)
    rows = []
    for name, scheme in named.items():
        scheme.check(problem)
        with precision.double():
            rows += _run(
                problem, name, scheme, starts, truth, x_star, float(learning_cost), float(evaluations), seed
            )
    return Comparison(rows=rows, learning_cost=float(learning_cost), theta_true=truth)


def _check_given(problem: Any, method: Any, learner: Any, schemes: Any) -> None:
    """The arguments that are easily mistaken for others, each answered in a sentence."""
    if not isinstance(problem, MisspecifiedVI):
        inner = isinstance(getattr(problem, "problem", None), MisspecifiedVI)
        advice = f" Pass {type(problem).__name__.lower()}.problem." if inner else ""
        raise InputError(
            f"compare: problem is {type(problem).__name__}; a vv.MisspecifiedVI is needed.{advice}"
        )
    for name, value, kind, example in (
        ("method", method, Method, "vv.Extragradient(step_size=...)"),
        ("learner", learner, Learner, "vv.ProjectedGradient()"),
    ):
        if value is None or isinstance(value, kind):
            continue
        given, advice = type(value).__name__, ""
        if isinstance(value, type):
            given, advice = f"the class {value.__name__}", f" Make an instance: vv.{value.__name__}(...)."
        elif isinstance(value, (list, tuple)):
            advice = f" Call compare once for each {name}."
        elif isinstance(value, Scheme):
            advice = " Pass a scheme in `schemes`, beside the others."
        raise InputError(f"compare: {name} is {given}; one {name} such as {example} is needed.{advice}")
    if isinstance(schemes, (str, Scheme)) or not isinstance(schemes, Sequence):
        given = repr(schemes) if isinstance(schemes, str) else type(schemes).__name__
        raise InputError(
            f"compare: schemes is {given}; a list is needed, such as ['joint', 'sequential', 'oracle']."
        )


def _scheme(
    given: Any, method: Method, learner: Learner, truth: PyTree, learn_tol: float
) -> tuple[str, Scheme]:
    if isinstance(given, Scheme):
        return type(given).__name__, given
    if given == "joint":
        return given, Simultaneous(method, learner)
    if given == "sequential":
        return given, Sequential(learner, method, learn_tol)
    if given == "oracle":
        return given, Oracle(method, truth)
    raise InputError(f"compare: {given!r} is not a scheme; use {', '.join(map(repr, _NAMES))} or a scheme.")


def _run(
    problem: MisspecifiedVI, name: str, scheme: Scheme, starts, truth, x_star, learning_cost, budget, seed
) -> list[dict[str, Any]]:
    """One scheme's rows: it is advanced to each target of a grid of costs, never past it by more than a step."""
    on_host = problem.runs_on_host
    begin = loop.start if on_host else loop.start_compiled
    advance = loop.advance if on_host else loop.advance_compiled
    measure = _measure if on_host else _measure_compiled
    x0, theta0, lam0 = starts
    progress, scales = begin(problem, scheme, x0, theta0, lam0, jax.random.key(seed))

    def counts() -> OracleCounts:
        return scheme.counts(problem, progress.scheme, int(progress.k))

    def cost() -> float:
        return float(counts().F + learning_cost * counts().H)

    rows, unit = [], _declared_unit(scheme, learning_cost)
    for target in np.concatenate([[cost()], np.geomspace(max(cost(), 1.0), budget, _N_ROWS)]):
        while int(progress.k) < _MAX_STEPS * budget:
            # A scheme that declares nothing takes one step to see what it costs.
            n = 1 if unit == 0.0 else int((target - cost()) // unit)
            if n < 1 or cost() >= target:
                break
            before, k = cost(), int(progress.k)
            progress = advance(problem, scheme, progress, np.int64(k + n))
            unit = max(unit, (cost() - before) / n)
        values = measure(problem, scheme.output(progress.scheme), truth, x_star, scales)
        rows.append(
            {
                "scheme": name,
                "k": int(progress.k),
                "evaluations": cost(),
                "n_F": int(counts().F),
                "n_H": int(counts().H),
                **{key: float(value) for key, value in values.items()},
            }
        )
    return rows


def _declared_unit(scheme: Scheme, learning_cost: float) -> float:
    """The declared cost of the dearest step, so that a scheme that changes its step does not overshoot."""
    if isinstance(scheme, Oracle):
        return float(scheme.method.step_counts.F)
    if isinstance(scheme, (Simultaneous, Sequential)):
        return scheme.method.step_counts.F + learning_cost * scheme.learner.step_counts
    return 0.0


def _measure(problem: MisspecifiedVI, point, truth, x_star, scales: Scales) -> dict[str, Any]:
    truth = jax.tree.map(jnp.asarray, truth)
    found = residuals(problem, point.x, point.lam, truth, scales)
    values = {
        "residual_true": found.kkt,
        "relative_true": found.worst(),
        "infeasibility_true": found.infeasibility,
        "theta_error": tree_norm(tree_subtract(point.theta, truth)),
    }
    if x_star is not None:
        values["x_error"] = tree_norm(point.x - x_star)
    return values


_measure_compiled = eqx.filter_jit(_measure)


def _starts(problem: MisspecifiedVI, x0, theta0, multiplier0):
    x = np.zeros(problem.shape) if x0 is None else problem.check_x("x0", x0)
    theta = problem.learning.set.zeros() if theta0 is None else problem.check_theta("theta0", theta0)
    multiplier = np.zeros(problem.n_constraints) if multiplier0 is None else multiplier0
    return (
        np.asarray(problem.set.project(x)),
        jax.tree.map(np.asarray, problem.learning.set.project(theta)),
        problem.check_multiplier("multiplier0", multiplier),
    )


def _truth(problem: MisspecifiedVI) -> PyTree:
    """θ*, by learning alone until the certified error is at rounding level."""
    learning = problem.learning
    if learning.is_known:
        return learning.set.interior_point()

    @eqx.filter_jit
    def run(learning, theta):
        learner = ProjectedGradient()

        def unfinished(carry):
            state, k = carry
            bound = learning_error_bound(learning, state.theta)
            return (bound > _TRUTH_TOL * (1.0 + tree_norm(state.theta))) & (k < _TRUTH_STEPS)

        def advance(carry):
            state, k = carry
            return learner.step(learning, state), k + 1

        start = (learner.init(learning, jax.tree.map(jnp.asarray, theta)), jnp.asarray(0))
        return jax.lax.while_loop(unfinished, advance, start)[0].theta

    with precision.double():
        return jax.tree.map(np.asarray, run(learning, learning.set.interior_point()))
