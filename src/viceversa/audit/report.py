"""The outcome of an audit: one verdict for each assumption, with the numbers and the points behind it."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass, field
from typing import Any, Literal

from viceversa.constants import Constants

Verdict = Literal["proved", "not_refuted", "refuted", "unknown"]

ASSUMPTIONS: dict[str, str] = {
    "i": "F(·, θ) monotone on X for every θ of Θ",
    "ii": "H strongly monotone and Lipschitz on Θ",
    "iii": "every f_j(·, θ) convex, Lipschitz, with Lipschitz gradient",
    "iv": "F Lipschitz in x and in θ",
    "v": "X and Θ compact",
    "vi": "Slater: a strictly feasible point at θ*",
}


@dataclass(frozen=True)
class Item:
    """One assumption: the verdict, a sentence with numbers, and the points that show it.

    `points` of a refuted monotonicity or convexity are x and y with ⟨g(x) − g(y), x − y⟩ < 0 at `theta`; of Slater's condition
    the strictly feasible point. `details` holds the verdict for each part (for each constraint, by name).
    """

    assumption: str
    verdict: Verdict
    evidence: str
    points: tuple[Any, ...] = ()
    theta: Any = None
    details: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Audit:
    """Assumption 1 of the paper for one problem, item by item; `notes` say what follows where something fails."""

    items: dict[str, Item]
    constants: Constants = field(repr=False)
    notes: tuple[str, ...] = ()

    @property
    def refuted(self) -> list[str]:
        """The keys of what is refuted."""
        return [key for key, item in self.items.items() if item.verdict == "refuted"]

    @property
    def proved(self) -> list[str]:
        """The keys of what is proved."""
        return [key for key, item in self.items.items() if item.verdict == "proved"]

    def __str__(self) -> str:
        rows = [f"{'':<5}{'assumption':<60}verdict"]
        for key, item in self.items.items():
            rows.append(f"{key:<5}{item.assumption:<60}{item.verdict}")
            rows += textwrap.wrap(item.evidence, 105, initial_indent=" " * 5, subsequent_indent=" " * 5)
        for note in self.notes:
            rows += textwrap.wrap(note, 108, subsequent_indent="  ")
        return "\n".join(rows)
