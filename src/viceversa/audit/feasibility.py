"""Slater's condition as an item of the audit, and what to tell the user where it fails."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from viceversa import precision
from viceversa.audit.report import ASSUMPTIONS, Item, Verdict
from viceversa.audit.slater import Depth, depth, learned_parameter
from viceversa.constants import Constants
from viceversa.learning import CoupledLearning
from viceversa.problem import MisspecifiedVI

_ZERO = 1e-12  # a slack below this share of its terms is zero up to rounding
_LEARNED = 1e-9  # an effect of the learning error below this share of the constraints' size is none
EMPTY_AT_START = (
    "X(θ₀) is empty at the start of learning, X(θ*) is not. Methods of the Lagrangian kind do not need X(θ_k) to have a point, "
    "so `solve` works; whatever projects on X(θ_k) does not."
)
NO_SLATER = (
    "Slater's condition is not established, so multipliers need not be bounded and the theorem's constants are not proved. "
    "`solve` still applies: its certificate is checked at the point itself and does not use Slater's condition."
)
EMPTY = "X(θ*) is empty, so there is nothing to solve: `solve` ends with `infeasible` and the weights that prove it."


def slater_item(problem: MisspecifiedVI, c: Constants, theta0: Any = None) -> tuple[Item, dict[str, Depth]]:
    """The verdict on Slater's condition at θ*, and how deep the constraints are at θ* ("learned") and θ₀ ("start")."""
    name = ASSUMPTIONS["vi"]
    if problem.n_constraints == 0:
        return Item(name, "proved", "There are no constraints."), {}
    if problem.runs_on_host or isinstance(problem.learning, CoupledLearning):
        why = (
            "the constraints are a callback" if problem.runs_on_host else "θ* depends on x (coupled learning)"
        )
        return Item(name, "unknown", f"No strictly feasible point was searched for: {why}."), {}
    start = _start(problem, theta0)
    theta, error, n_steps = learned_parameter(problem, start)
    depths = {"learned": depth(problem, theta)}
    if not problem.learning.is_known:
        depths["start"] = depth(problem, start)
    margin = c.L_f_theta.value * error if error > 0 else 0.0
    certain = error == 0.0 or (c.L_f_theta.is_bound and problem.learning.provenance != "estimated")
    learned = "" if problem.learning.is_known else f", ‖θ − θ*‖ ≤ {error:.2g} after {n_steps} learning steps"
    return _judge(depths["learned"], theta, margin, certain, learned), depths


def _judge(found: Depth, theta: Any, margin: float, certain: bool, learned: str) -> Item:
    name, witness = ASSUMPTIONS["vi"], {"points": (found.x,), "theta": theta}
    if found.slack > margin and found.slack > _ZERO * found.size:
        robust = f"; the learning error can take away at most {margin:.2g}" if margin > 0 else ""
        evidence = f"max_j f_j = {-found.slack:.6g} at the point in `points`{learned}{robust}."
        verdict: Verdict = "proved" if certain else "not_refuted"
        return Item(name, verdict, evidence, **witness)
    empty = found.empty and certain and found.floor > margin
    if empty or (found.flat and margin <= _LEARNED * found.size):
        sense = "X(θ*) is empty" if empty else "no point is strictly feasible beyond rounding"
        floor = f"a weighted sum of the constraints is at least {found.floor:.3g} on all of X (if they are convex)"
        return Item(name, "refuted", f"{sense}: {floor}{learned}.", **witness)
    evidence = (
        f"The deepest point found has max_j f_j = {-found.slack:.6g}{learned}; needed is below {-margin:.2g}."
    )
    return Item(name, "unknown", evidence, **witness)


def feasibility_notes(item: Item, depths: dict[str, Depth]) -> tuple[str, ...]:
    """What follows where X(θ₀) is empty, Slater's condition is not established, or nothing is feasible."""
    if "learned" not in depths:
        return () if item.verdict == "proved" else (NO_SLATER,)
    if depths["learned"].empty:
        return (EMPTY,)
    notes = (EMPTY_AT_START,) if "start" in depths and depths["start"].empty else ()
    return notes if item.verdict in ("proved", "not_refuted") else (*notes, NO_SLATER)


def _start(problem: MisspecifiedVI, theta0: Any) -> Any:
    """θ_0 as `solve` takes it: P_Θ(0) where left out."""
    theta = problem.learning.set.zeros() if theta0 is None else problem.check_theta("theta0", theta0)
    with precision.double():
        return jax.tree.map(np.asarray, problem.learning.set.project(jax.tree.map(jnp.asarray, theta)))
