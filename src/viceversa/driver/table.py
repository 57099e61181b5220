"""The verbose table: one line per recorded iteration."""

from __future__ import annotations

import sys
from typing import Any

COLUMNS = ("k", "relative", "residual", "infeasibility", "learning_error", "step_size", "penalty", "time")


class ProgressTable:
    """Writes a heading and then one line for every row it is shown, if `verbose` is above 0."""

    def __init__(self, verbose: int):
        self.verbose = verbose
        self._write("".join(f"{name:>15}" for name in COLUMNS))

    def row(self, seen: dict[str, Any]) -> None:
        """One recorded iteration."""
        numbers = "".join(f"{float(seen[name]):>15.3e}" for name in COLUMNS[1:])
        self._write(f"{seen['k']:>15d}{numbers}  {seen.get('phase', '')}".rstrip())

    def _write(self, line: str) -> None:
        if self.verbose > 0:
            sys.stdout.write(line + "\n")
