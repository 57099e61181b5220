"""A constant with where it comes from, and the table of all of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields

from viceversa.errors import InputError
from viceversa.learning.base import Provenance

_ORDER: tuple[Provenance, ...] = ("exact", "certified", "declared", "estimated")


@dataclass(frozen=True)
class Constant:
    """A number of the theory: its value, how sure it is, and how it was found.

    `exact`: the supremum itself. `certified`: a proved bound. `declared`: somebody's word that sampling did not
    refute. `estimated`: the largest (for μ: the smallest) of `n_samples` samples, which bounds nothing.
    """

    value: float
    provenance: Provenance
    how: str
    n_samples: int = 0

    def __float__(self) -> float:
        return self.value

    @property
    def is_bound(self) -> bool:
        """Whether something may be proved from it."""
        return self.provenance != "estimated"


def derived(value: float, how: str, *sources: Constant) -> Constant:
    """A constant computed from others: as sure as the least sure of them."""
    rank = max((_ORDER.index(source.provenance) for source in sources), default=0)
    provenance = _ORDER[rank]
    n_samples = max((source.n_samples for source in sources), default=0)
    return Constant(float(value), provenance, how, n_samples if provenance == "estimated" else 0)


@dataclass(frozen=True)
class Constants:
    """The constants of Assumption 1 and of the analysis, over X × Θ; Euclidean norms throughout.

    `C1` is the tight form √J L_∇f,x D_f + M_∇f², `C1_paper` the printed one. `L_Phi_x_theta` is taken at the
    penalty and multiplier size its `how` names.
    """

    L_F_x: Constant
    L_F_theta: Constant
    mu_F: Constant
    L_f_x: Constant
    L_f_theta: Constant
    ell: Constant
    L_grad_f_x: Constant
    L_grad_f_theta: Constant
    M_grad_f: Constant
    D_f: Constant
    L_H: Constant
    mu_H: Constant
    D_X: Constant
    D_Theta: Constant
    C1: Constant
    C1_paper: Constant
    C2: Constant
    C3: Constant
    C4: Constant
    L_Phi_lambda_theta: Constant
    L_Phi_x_theta: Constant

    def items(self) -> Iterable[tuple[str, Constant]]:
        """(name, constant) in the order of the table."""
        return [(field.name, getattr(self, field.name)) for field in fields(self)]

    @property
    def estimated(self) -> tuple[str, ...]:
        """The names of those that are only sampled, from which nothing may be proved."""
        return tuple(name for name, constant in self.items() if not constant.is_bound)

    def require_bounds(self, purpose: str, *names: str) -> None:
        """Refuse, naming them, when a constant that `purpose` needs is only estimated or infinite."""
        sampled = [name for name in names if not getattr(self, name).is_bound]
        if sampled:
            raise InputError(
                f"{purpose}: {', '.join(sampled)} {'is' if len(sampled) == 1 else 'are'} only estimated, and nothing "
                "can be proved from samples. Declare a value you can prove: declared={"
                + ", ".join(f'"{name}": ...' for name in sampled)
                + "}."
            )
        infinite = [name for name in names if not getattr(self, name).value < float("inf")]
        if infinite:
            raise InputError(
                f"{purpose}: {', '.join(infinite)} {'is' if len(infinite) == 1 else 'are'} not finite. The theorem needs "
                "X and Θ bounded; use bounded sets, or declare a finite value you can prove."
            )

    def __str__(self) -> str:
        rows = [f"{'constant':<20}{'value':>14}  {'provenance':<11}how"]
        for name, constant in self.items():
            mark = "≈" if constant.provenance == "estimated" else " "
            rows.append(f"{name:<20}{mark}{constant.value:>13.6g}  {constant.provenance:<11}{constant.how}")
        if self.estimated:
            rows.append(
                f"≈ marks samples, not bounds: {', '.join(self.estimated)}. No theorem is evaluated with them."
            )
        return "\n".join(rows)
