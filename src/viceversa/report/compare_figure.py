"""The figure of a comparison: a residual at θ* and the error of θ against evaluations, one line per scheme."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from viceversa.compare import Comparison
from viceversa.errors import InputError, MissingExtra

# Safe for colour-blind readers (Okabe and Ito); a scheme of the user's own takes one of the others.
_STYLES = {"joint": ("#0072B2", "-"), "sequential": ("#D55E00", "--"), "oracle": ("#555555", ":")}
_OTHERS = ("#009E73", "#CC79A7", "#E69F00", "#56B4E9")
_WORDS = {
    "joint": "joint: learn and solve together",
    "sequential": "sequential: learn, then solve",
    "oracle": "oracle: θ* known",
}
_LABELS = {
    "residual_true": "KKT residual at θ*",
    "relative_true": "relative residual at θ*",
    "infeasibility_true": "infeasibility at θ*",
    "theta_error": "‖θ − θ*‖",
    "x_error": "‖x − x*‖",
}
_TEXT: Any = {
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.6,
    "pdf.fonttype": 42,  # text stays text in the PDF
}
_SMALLEST = 1e-17  # below it a value is nothing: a line on a logarithmic axis ends there


def comparison_figure(comparison: Comparison, column: str = "residual_true") -> Any:
    """A Matplotlib figure: one column of a comparison above, what is still to be learned of θ below."""
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingExtra("The figure of a comparison", "matplotlib", "plot") from None
    known = [name for name in _LABELS if name in comparison.rows[0]]
    if column not in known:
        raise InputError(f"figure: there is no column {column!r}; there are {', '.join(known)}.")
    with matplotlib.rc_context(_TEXT):
        lower = [] if column == "theta_error" else ["theta_error"]
        figure = Figure(figsize=(7.2, 5.4 if lower else 3.9), layout="constrained")
        axes = figure.subplots(
            1 + len(lower), 1, sharex=True, squeeze=False, height_ratios=[2.0] + [1.0] * len(lower)
        )[:, 0]
        for ax, shown in zip(axes, [column, *lower], strict=True):
            for i, name in enumerate(comparison.schemes):
                _draw(ax, *comparison.curve(name, shown), name, i)
            ax.set(xscale="log", yscale="log", ylabel=_LABELS[shown])
            ax.margins(x=0.02)
        cost = f"{comparison.learning_cost:g}"
        axes[-1].set_xlabel(f"evaluations of F, with one of H counted as {cost}")
        lines, names = axes[0].get_legend_handles_labels()
        figure.legend(lines, names, loc="outside upper center", ncols=min(len(names), 3), frameon=False, fontsize=9, columnspacing=1.4)  # fmt: skip
    return figure


def plot_comparison(comparison: Comparison, path: Any, column: str = "residual_true") -> Path:
    """Write the figure of a comparison to `path` (its suffix chooses the format) and return the path."""
    figure = comparison_figure(comparison, column)
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=160)
    return path


def _draw(ax: Any, evaluations: np.ndarray, values: np.ndarray, name: str, position: int) -> None:
    colour, line = _STYLES.get(name, (_OTHERS[position % len(_OTHERS)], "-."))
    shown = (values > _SMALLEST) & np.isfinite(values)
    ax.plot(
        np.where(shown, np.maximum(evaluations, 1.0), np.nan),
        np.where(shown, values, np.nan),
        color=colour,
        linestyle=line,
        linewidth=1.8,
        label=_WORDS.get(name, name),
    )
