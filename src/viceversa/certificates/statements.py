"""One line of what can be said about a point: a number, what it bounds, on which assumptions, and how sure that is."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass


@dataclass(frozen=True)
class Statement:
    """`name` ≤ `value`, under `assumptions`, as sure as `provenance`; a `value` of None says that nothing is proved, and why.

    Nothing estimated is ever printed as a bound: where a constant is only sampled, `value` is None and `how` names it.
    """

    name: str
    value: float | None
    how: str
    assumptions: tuple[str, ...] = ()
    provenance: str = "exact"

    @property
    def proved(self) -> bool:
        """Whether there is a bound."""
        return self.value is not None

    def __str__(self) -> str:
        if self.value is None:
            text = f"{self.name}: no bound. {self.how}"
        else:
            text = f"{self.name} ≤ {self.value:.3g} (constants {self.provenance}): {self.how}"
        if self.assumptions and self.value is not None:
            text += f"; assuming {', '.join(self.assumptions)}"
        return "\n".join(textwrap.wrap(text, 108, subsequent_indent="    ", break_long_words=False))


def refused(name: str, *sampled: str) -> Statement:
    """The statement that there is no bound, because constants it needs are only estimated."""
    verb = "is" if len(sampled) == 1 else "are"
    how = f"{', '.join(sampled)} {verb} only estimated, and nothing is proved from samples; declare a value you can prove."
    return Statement(name, None, how, provenance="estimated")
