"""`audit`: what is proved, refuted or open about the paper's Assumption 1 for one problem."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from viceversa import precision
from viceversa.audit.eigenvalue_search import (
    Lowest,
    ViolatingPair,
    lowest_eigenvalue,
    random_violating_pair,
    violating_pair,
)
from viceversa.audit.feasibility import feasibility_notes, slater_item
from viceversa.audit.fields import (
    ConstraintGradient,
    LearningField,
    OperatorField,
    has_jumps,
    has_kinks,
    unravel,
)
from viceversa.audit.report import ASSUMPTIONS, Audit, Item, Verdict
from viceversa.audit.slater import Depth
from viceversa.constants import Constant, Constants
from viceversa.constants import constants as compute_constants
from viceversa.constants.derivatives import Domain, derivative
from viceversa.constants.interval import NotCertified
from viceversa.constants.suprema import smallest_eigenvalue, spectral
from viceversa.learning import CoupledLearning
from viceversa.problem import MisspecifiedVI
from viceversa.sets import Box

_ZERO = 1e-12  # an eigenvalue within this share of its matrix is zero up to rounding
_MAX_SEARCHED = 64  # constraints whose curvature is searched one by one


def audit(
    problem: MisspecifiedVI,
    declared: Mapping[str, float | Constant] | None = None,
    *,
    constants: Constants | None = None,
    theta0: Any = None,
) -> Audit:
    """Assumption 1, item by item: `proved`, `not_refuted`, `refuted` (with the points) or `unknown`.

    What structure does not prove is attacked with derivatives: the smallest eigenvalue of the symmetrised Jacobian is
    minimised over X × Θ from many starts. `declared` and `constants` are as in `vv.constants`; `theta0` is where learning starts.

    Example:
        >>> import viceversa as vv
        >>> problem = vv.MisspecifiedVI(lambda x, t: t * x - 1.0, set=vv.Box([0.0], [2.0]), learning=vv.Known(-1.0))
        >>> found = vv.audit(problem)
        >>> found.refuted, found.items["v"].verdict
        (['i'], 'proved')
    """
    c = compute_constants(problem, declared) if constants is None else constants
    slater, depths = slater_item(problem, c, theta0)
    items = {
        "i": _monotone(problem, c),
        "ii": _learning(problem),
        "iii": _constraints(problem, c),
        "iv": _lipschitz(problem, c),
        "v": _compact(problem, c),
        "vi": slater,
    }
    return Audit(items, c, _notes(items, depths))


# -- (i) -----------------------------------------------------------------------------------------------
def _monotone(problem: MisspecifiedVI, c: Constants) -> Item:
    mu, jumps = c.mu_F, not problem.runs_on_host and has_jumps(problem.operator, problem)
    if mu.is_bound and mu.value >= 0.0 and not jumps:
        kind = "strongly monotone" if mu.value > 0 else "monotone"
        evidence = f"λ_min of F's symmetrised Jacobian is at least {mu.value:.6g} on X × Θ, so F is {kind} ({mu.how})."
        return Item(ASSUMPTIONS["i"], "not_refuted" if mu.provenance == "declared" else "proved", evidence)
    field = OperatorField(problem)
    lowest, pair = _attack(field, problem, problem.set, problem.learning.set)
    if pair is not None:
        evidence = (
            f"⟨F(x, θ) − F(y, θ), x − y⟩ = {pair.product:.6g} at the pair in `points` ({_times(pair)} ‖x − y‖²)"
            + (
                "."
                if lowest is None
                else f"; λ_min of the symmetrised Jacobian goes down to {lowest.value:.6g}."
            )
        )
        return _refuted("i", problem, pair, evidence)
    return Item(ASSUMPTIONS["i"], "not_refuted", _survived("F", lowest, mu))


def _attack(
    field: Any, problem: MisspecifiedVI, moving, parameter, modulus: float = 0.0
) -> tuple[Lowest | None, ViolatingPair | None]:
    """The lowest eigenvalue descent finds and the clearest violating pair; random pairs alone for callbacks."""
    if problem.runs_on_host:
        return None, random_violating_pair(field, moving, parameter, modulus)
    lowest = lowest_eigenvalue(field, moving, parameter)
    return lowest, violating_pair(field, moving, parameter, lowest, modulus)


def _survived(name: str, lowest: Lowest | None, bound: Constant | None = None) -> str:
    if lowest is None:
        return f"No pair of random points refutes {name} (a callback has no derivatives to search with)."
    proved = "" if bound is None or not bound.is_bound else f"; proved is only ≥ {bound.value:.6g}"
    return (
        f"Descent from {lowest.n_starts} starts found no eigenvalue of {name} below {lowest.value:.6g} that a pair of points "
        f"confirms{proved}."
    )


def _times(pair: ViolatingPair) -> str:
    return f"{pair.ratio:.6g} times"


def _refuted(key: str, problem: MisspecifiedVI, pair: ViolatingPair, evidence: str, **more: Any) -> Item:
    points = tuple(np.reshape(point, problem.shape) for point in (pair.x, pair.y))
    with precision.double():
        theta = jax.tree.map(np.asarray, unravel(problem.learning.set, jnp.asarray(pair.t)))
    return Item(ASSUMPTIONS[key], "refuted", evidence, points, theta, **more)


# -- (ii) ----------------------------------------------------------------------------------------------
def _learning(problem: MisspecifiedVI) -> Item:
    learning = problem.learning
    mu, lipschitz, provenance, _ = learning.modulus()
    numbers = f"μ_H = {mu:.6g}, L_H = {lipschitz:.6g} ({provenance})"
    if learning.is_known:
        return Item(ASSUMPTIONS["ii"], "proved", "θ is given: there is nothing to learn.")
    if isinstance(learning, CoupledLearning):
        return Item(
            ASSUMPTIONS["ii"],
            "unknown",
            "H depends on x (coupled learning), which the theorem does not cover.",
        )
    if provenance in ("exact", "certified") and mu > 0 and np.isfinite(lipschitz):
        return Item(ASSUMPTIONS["ii"], "proved", f"{numbers}.")
    modulus = mu if provenance == "declared" else 0.0
    field, one_point = LearningField(learning), Box([0.0], [0.0])
    lowest = lowest_eigenvalue(field, learning.set, one_point)
    pair = violating_pair(field, learning.set, one_point, lowest, modulus * (1.0 - 1e-6))
    if pair is None:
        return Item(ASSUMPTIONS["ii"], "not_refuted", f"{numbers}. {_survived('H', lowest)}")
    with precision.double():
        points = tuple(
            jax.tree.map(np.asarray, unravel(learning.set, jnp.asarray(p))) for p in (pair.x, pair.y)
        )
    wanted = f"the declared μ_H = {mu:.6g}" if modulus else "0"
    evidence = f"⟨H(θ) − H(ϑ), θ − ϑ⟩ is {_times(pair)} ‖θ − ϑ‖² at the pair in `points`, below {wanted}."
    return Item(ASSUMPTIONS["ii"], "refuted", evidence, points)


# -- (iii) ---------------------------------------------------------------------------------------------
def _constraints(problem: MisspecifiedVI, c: Constants) -> Item:
    if problem.n_constraints == 0:
        return Item(ASSUMPTIONS["iii"], "proved", "There are no constraints.")
    details = _proved_convex(problem, c)
    lowest_seen = np.inf
    worst: tuple[str, ViolatingPair] | None = None
    open_ones = [j for j, name in enumerate(problem.constraint_names) if name not in details]
    for j in open_ones[:_MAX_SEARCHED]:
        name = problem.constraint_names[j]
        field = ConstraintGradient(problem, np.asarray(j))
        lowest, pair = _attack(field, problem, problem.set, problem.learning.set)
        details[name] = "not_refuted" if pair is None else "refuted"
        lowest_seen = min(lowest_seen, np.inf if lowest is None else lowest.value)
        if pair is not None and (worst is None or pair.ratio < worst[1].ratio):
            worst = name, pair
    for j in open_ones[_MAX_SEARCHED:]:
        details[problem.constraint_names[j]] = "unknown"
    if worst is not None:
        bad = [name for name, verdict in details.items() if verdict == "refuted"]
        evidence = (
            f"not convex: {_listed(bad)}. For {worst[0]}, ⟨∇f(x) − ∇f(y), x − y⟩ = {worst[1].product:.6g} at the pair in "
            f"`points` ({_times(worst[1])} ‖x − y‖²)."
        )
        return _refuted("iii", problem, worst[1], evidence, details=details)
    names = ("L_f_x", "L_f_theta", "L_grad_f_x")
    sure, sentence = _bounded(c, *names)
    convex = list(details.values())
    if all(verdict == "proved" for verdict in convex):
        verdict: Verdict = "proved" if sure else "not_refuted"
        return Item(
            ASSUMPTIONS["iii"],
            verdict,
            f"All {len(convex)} constraints are convex. {sentence}",
            details=details,
        )
    n_open = sum(verdict != "proved" for verdict in convex)
    seen = f"; smallest eigenvalue found {lowest_seen:.6g}" if np.isfinite(lowest_seen) else ""
    evidence = f"{len(convex) - n_open} of {len(convex)} constraints proved convex, {n_open} searched and not refuted{seen}. "
    return Item(ASSUMPTIONS["iii"], "not_refuted", evidence + sentence, details=details)


def _proved_convex(problem: MisspecifiedVI, c: Constants) -> dict[str, str]:
    """The constraints whose Hessian is proved positive semidefinite on X × Θ, by name."""
    names = problem.constraint_names
    if problem.runs_on_host or has_kinks(problem.constraints, problem):
        return {}
    if c.L_grad_f_x.provenance in ("exact", "certified") and c.L_grad_f_x.value == 0.0:
        return dict.fromkeys(names, "proved")
    try:
        enclosed = derivative(problem.constraints, problem, "xx").over(Domain.of(problem))
    except NotCertified:
        return {}
    shape = (problem.n_constraints, *[int(np.prod(problem.shape))] * 2)
    low, high = (np.broadcast_to(end, shape) for end in (enclosed.lo, enclosed.hi))
    return {name: "proved" for name, lo, hi in zip(names, low, high, strict=True) if _semidefinite(lo, hi)}


def _semidefinite(low: np.ndarray, high: np.ndarray) -> bool:
    """Whether every symmetric matrix between two is positive semidefinite, up to rounding (a sufficient test)."""
    if not (np.isfinite(low).all() and np.isfinite(high).all()):
        return False
    diagonal = np.eye(len(low), dtype=bool)
    # Raising the diagonal raises every eigenvalue, so its lower ends are the worst case.
    base, radius = np.where(diagonal, low, 0.5 * (low + high)), np.where(diagonal, 0.0, 0.5 * (high - low))
    spread = spectral(radius) if radius.any() else 0.0
    scale = max(np.abs(low).max(initial=0.0), np.abs(high).max(initial=0.0)) * len(low)
    return bool(smallest_eigenvalue(base) - spread >= -_ZERO * scale)


def _listed(names: list[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


# -- (iv), (v) -----------------------------------------------------------------------------------------
def _bounded(c: Constants, *names: str) -> tuple[bool, str]:
    """Whether these constants are proved finite, and a sentence with them."""
    parts = [
        f"{name} {'≤' if (k := getattr(c, name)).is_bound else '≈'} {k.value:.6g} ({k.provenance})"
        for name in names
    ]
    sampled = [name for name in names if not getattr(c, name).is_bound]
    note = f" {_listed(sampled)} only sampled, which proves nothing." if sampled else ""
    sure = all(
        getattr(c, name).provenance in ("exact", "certified") and np.isfinite(getattr(c, name).value)
        for name in names
    )
    return sure, ", ".join(parts) + "." + note


def _lipschitz(problem: MisspecifiedVI, c: Constants) -> Item:
    sure, sentence = _bounded(c, "L_F_x", "L_F_theta")
    values = (c.L_F_x.value, c.L_F_theta.value)
    if sure and not (not problem.runs_on_host and has_jumps(problem.operator, problem)):
        return Item(ASSUMPTIONS["iv"], "proved", sentence)
    if not np.isfinite(values).all():
        return Item(
            ASSUMPTIONS["iv"], "unknown", f"{sentence} A derivative is not finite somewhere on X × Θ."
        )
    return Item(ASSUMPTIONS["iv"], "not_refuted", sentence)


def _compact(problem: MisspecifiedVI, c: Constants) -> Item:
    unbounded = [name for name, S in (("X", problem.set), ("Θ", problem.learning.set)) if not S.bounded]
    numbers = f"diam X = {c.D_X.value:.6g}, diam Θ = {c.D_Theta.value:.6g}"
    if unbounded:
        evidence = f"{' and '.join(unbounded)} unbounded ({numbers}); use bounded sets to apply the theorem."
        return Item(ASSUMPTIONS["v"], "refuted", evidence)
    return Item(ASSUMPTIONS["v"], "proved", f"{numbers}; closed and convex by construction.")


def _notes(items: dict[str, Item], depths: dict[str, Depth]) -> tuple[str, ...]:
    notes = feasibility_notes(items["vi"], depths)
    if items["i"].verdict == "refuted":
        notes += (
            "F is not monotone: no convergence theorem applies. A certificate with small residuals still means a KKT point.",
        )
    return notes
