"""`explain`: every line that can be proved about one answer, each with its assumptions."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import PyTree

from viceversa.audit.feasibility import feasibility_notes, slater_item
from viceversa.certificates import Certificate, certify
from viceversa.certificates.statements import Statement, refused
from viceversa.constants import Constant, Constants
from viceversa.constants import constants as compute_constants
from viceversa.driver.solution import Solution
from viceversa.errors import InputError
from viceversa.metrics import relaxed_gap
from viceversa.problem import MisspecifiedVI

_GAP = "relaxed gap at θ*"


@dataclass(frozen=True)
class Explanation:
    """A certificate with its detailed lines, the gap if it was asked for, Slater's condition, and notes in words."""

    certificate: Certificate
    lines: tuple[Statement, ...]
    notes: tuple[str, ...]

    def __getitem__(self, name: str) -> Statement:
        for line in self.lines:
            if line.name.startswith(name):
                return line
        raise KeyError(
            f"there is no line {name!r}; there are: {', '.join(repr(line.name) for line in self.lines)}"
        )

    def __str__(self) -> str:
        shown = {id(line) for line in self.certificate.statements}
        rows = [str(self.certificate), *(str(line) for line in self.lines if id(line) not in shown)]
        for note in self.notes:
            rows += textwrap.wrap(note, 108, subsequent_indent="  ")
        return "\n".join(rows)


def explain(
    problem: MisspecifiedVI,
    x: Any,
    multiplier: Any = None,
    theta: Any = None,
    *,
    gap: bool = False,
    theta0: Any = None,
    tol: float = 1e-8,
    declared: Mapping[str, float | Constant] | None = None,
    constants: Constants | None = None,
) -> Explanation:
    """What is proved about an answer: `explain(problem, solution)`, or x, multiplier and theta from anywhere.

    `gap=True` adds the upper end of the relaxed gap at θ*, learning error included. No bound comes from an estimated
    constant: the line says which one is missing instead.

    Example:
        >>> import viceversa as vv
        >>> problem = vv.MisspecifiedVI(lambda x, t: 2.0 * x - t, set=vv.Box([0.0], [4.0]), learning=vv.Known(2.0))
        >>> round(vv.explain(problem, [1.5])["‖x − x*‖"].value, 6)  # x* = 1
        0.5
    """
    if isinstance(x, Solution):
        x, multiplier, theta = x.x, x.multiplier, x.theta
    c = compute_constants(problem, declared) if constants is None else constants
    certificate = certify(problem, x, multiplier, theta, tol=tol, detail=True, constants=c)
    lines = list(certificate.statements)
    if gap:
        lines.append(_gap_statement(problem, x, theta, certificate, c))
    item, depths = slater_item(problem, c, theta0)
    slater = f"Slater's condition: {item.verdict}. {item.evidence}"
    return Explanation(certificate, tuple(lines), (slater, *feasibility_notes(item, depths)))


def _gap_statement(
    problem: MisspecifiedVI, x: Any, theta: PyTree, certificate: Certificate, c: Constants
) -> Statement:
    """Gap_ε(x, θ*) ≤ U + L_{F,θ} â D with U the proved upper end at θ over X_{ε'}, ε' = ε + J L_{f,θ} â (D.5)."""
    added, enlarged = (certificate.statement(name) for name in ("added to the gap", "added to ε"))
    missing = [line for line in (added, enlarged) if line.value is None]
    if added.value is None or enlarged.value is None:
        return Statement(_GAP, None, missing[0].how, provenance=missing[0].provenance)
    modulus = c.mu_F.value if c.mu_F.is_bound and c.mu_F.value > 0 else None
    epsilon = certificate.infeasibility + enlarged.value
    try:
        interval = relaxed_gap(problem, x, epsilon, theta, mu=modulus)
    except InputError as reason:
        return Statement(_GAP, None, str(reason))
    if not np.isfinite(interval.upper):
        return Statement(_GAP, None, f"the upper end is infinite: {interval.upper_rule}.")
    if interval.upper_rule.startswith("estimate"):
        return refused(_GAP, interval.upper_rule)
    how = f"at ε = {certificate.infeasibility:.3g}; at θ it lies in [{interval.lower:.6g}, {interval.upper:.6g}] ({interval.upper_rule})"
    assumptions = ("F monotone and every f_j convex", *added.assumptions)
    return Statement(_GAP, interval.upper + added.value, how, assumptions, added.provenance)
