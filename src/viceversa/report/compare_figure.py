"""The figure of a comparison: residual at θ* against evaluations, one line per scheme."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from viceversa.compare import Comparison
from viceversa.errors import MissingExtra

_STYLES = {"joint": ("C0", "-"), "sequential": ("C1", "--"), "oracle": ("0.4", ":")}
_LABELS = {
    "residual_true": "KKT residual at θ*",
    "relative_true": "relative residual at θ*",
    "infeasibility_true": "infeasibility at θ*",
    "theta_error": "‖θ − θ*‖",
    "x_error": "‖x − x*‖",
}


def plot_comparison(comparison: Comparison, path: Any, column: str = "residual_true") -> Path:
    """Write the figure of one column of a comparison to `path` (its suffix chooses the format) and return the path."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingExtra("plot_comparison", "matplotlib", "plot") from None
    figure = Figure(figsize=(6.0, 4.0), layout="constrained")
    axes = figure.add_subplot()
    for i, name in enumerate(comparison.schemes):
        evaluations, values = comparison.curve(name, column)
        colour, line = _STYLES.get(name, (f"C{i + 2}", "-."))
        axes.loglog(evaluations.clip(1.0), values.clip(1e-17), color=colour, linestyle=line, label=name)
    axes.set_xlabel(f"evaluations of F (one of H counts {comparison.learning_cost:g})")
    axes.set_ylabel(_LABELS.get(column, column))
    axes.legend()
    axes.grid(visible=True, which="major", alpha=0.3)
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=160)
    return path
