"""The figures: the paper's layout (one row per instance, gap left, infeasibility right), and what it leaves out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from viceversa.experiments.curves import (
    AXES,
    EXTRAGRADIENT,
    LABELS,
    METHODS,
    OURS,
    TIKHONOV,
    Curve,
    Curves,
    Size,
)
from viceversa.experiments.step_rules import RULES

# Line styles as the paper's caption words them; colours are safe for colour-blind readers (Okabe and Ito).
STYLES: dict[str, dict[str, Any]] = {
    OURS: {"color": "#0072B2", "linestyle": "-"},
    TIKHONOV: {"color": "#D55E00", "linestyle": "--", "marker": "o"},
    EXTRAGRADIENT: {"color": "#009E73", "linestyle": ":", "marker": "x"},
}
PANELS = {"gap_upper": "Relaxed Minty gap", "infeasibility": "Infeasibility"}
_SMALLEST = 1e-14  # distances below are rounding
_TEXT: Any = {
    "font.size": 10,
    "axes.titlesize": 11,
    "axes.labelsize": 10,
    "legend.fontsize": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.6,
    "pdf.fonttype": 42,  # text stays text in the PDF
}


def paper_figure(curves: Curves, step_rule: str, axis: str = "iteration", point: str = "average") -> Figure:
    """Gap (left) and infeasibility (right) of one point, a row per instance: the paper's figure."""
    sizes = curves.sizes()
    with matplotlib.rc_context(_TEXT):
        figure = Figure(figsize=(8.2, 2.35 * len(sizes) + 1.15), layout="constrained")
        axes = figure.subplots(len(sizes), len(PANELS), squeeze=False, sharex=True)
        for row, size in enumerate(sizes):
            for column, metric in enumerate(PANELS):
                ax = axes[row, column]
                for method in METHODS:
                    _draw(ax, curves.curve(size, step_rule, method, metric, axis, point), method)
                _finish(ax)
                ax.set_title(f"{size[0]} firms, {size[1]} products")
                ax.set_ylabel(PANELS[metric])
        for ax in axes[-1]:
            ax.set_xlabel(AXES[axis].capitalize())
        n_seeds = curves.frame["seed"].nunique()
        what = {"average": "the average of the iterates", "last": "the last iterate"}[point]
        figure.suptitle(
            f"Constrained Cournot market, unknown slope: {what}\nStep sizes: {RULES[step_rule]}; line: median, band: all {n_seeds} seeds",
            fontsize=11.5,
        )
        _legend(figure, axes[0, 0], ncols=3)
    return figure


def axis_figure(curves: Curves, axis: str, metric: str = "gap_upper") -> Figure:
    """One metric of the average over evaluations or seconds: a row per instance, a column per step rule."""

    def draw(ax, size: Size, rule: str) -> None:
        for method in METHODS:
            _draw(ax, curves.curve(size, rule, method, metric, axis), method)

    title = f"{PANELS[metric]} of the average against {AXES[axis]}"
    return _grid_figure(curves, draw, title, AXES[axis].capitalize(), PANELS[metric])


def last_iterate_figure(curves: Curves) -> Figure:
    """Distance to the equilibrium: last iterate (as in the legend), average (thin), and the learning floor (grey)."""

    def draw(ax, size: Size, rule: str) -> None:
        for method in METHODS:
            _draw(ax, curves.curve(size, rule, method, "x_error", point="last"), method)
        for method in METHODS:
            average = curves.curve(size, rule, method, "x_error").visible()
            label = "averages (thin)" if method == OURS else None
            ax.plot(average.at, average.median, color=STYLES[method]["color"], linewidth=0.8, label=label)
        floor = curves.curve(size, rule, OURS, "learning_floor", point="last").visible()
        top = np.maximum(floor.median, _SMALLEST)
        label = "learning floor"
        ax.fill_between(floor.at, _SMALLEST, top, color="#bbbbbb", alpha=0.45, linewidth=0, label=label)

    title = "Distance to the equilibrium: last iterate and average, and what learning allows"
    return _grid_figure(curves, draw, title, "Iterations", "‖x − x*‖", ncols=5)


def _grid_figure(curves: Curves, draw, title: str, xlabel: str, ylabel: str, ncols: int = 3) -> Figure:
    sizes, rules = curves.sizes(), [rule for rule in RULES if rule in curves.rules]
    with matplotlib.rc_context(_TEXT):
        figure = Figure(figsize=(3.6 * len(rules) + 0.4, 2.4 * len(sizes) + 1.1), layout="constrained")
        axes = figure.subplots(len(sizes), len(rules), squeeze=False, sharex=True, sharey="row")
        for row, size in enumerate(sizes):
            for column, rule in enumerate(rules):
                ax = axes[row, column]
                draw(ax, size, rule)
                _finish(ax)
                ax.set_title(f"{size[0]} firms, {size[1]} products\n{RULES[rule]}", fontsize=9.5)
            axes[row, 0].set_ylabel(ylabel)
        for ax in axes[-1]:
            ax.set_xlabel(xlabel)
        figure.suptitle(title, fontsize=11.5)
        _legend(figure, axes[0, 0], ncols)
    return figure


def _draw(ax, curve: Curve, method: str) -> None:
    """Median as a line in the method's style, all seeds as a band; row 0 has no place on a log axis."""
    curve = curve.visible()
    style = STYLES[method]
    ax.plot(
        curve.at,
        curve.median,
        label=LABELS[method],
        linewidth=1.6,
        markersize=4.5,
        markevery=(METHODS.index(method), 3),
        markerfacecolor="none",
        **style,
    )
    ax.fill_between(curve.at, curve.low, curve.high, color=style["color"], alpha=0.18, linewidth=0)


def _finish(ax) -> None:
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.minorticks_off()


def _legend(figure: Figure, ax, ncols: int) -> None:
    handles, labels = ax.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=ncols, frameon=False, handlelength=3.2)


def write_figures(frame: pd.DataFrame, directory: Path) -> list[Path]:
    """`figure.png` and `figure.pdf` (the paper's), and the figures it leaves out; the files written."""
    curves = Curves(frame)
    figures = {
        "figure": paper_figure(curves, "paper"),
        "figure_corrected": paper_figure(curves, "corrected"),
        "figure_tuned": paper_figure(curves, "tuned"),
        "figure_evaluations": axis_figure(curves, "operator_evaluations"),
        "figure_seconds": axis_figure(curves, "seconds"),
        "figure_last_iterate": last_iterate_figure(curves),
    }
    written = []
    for name, figure in figures.items():
        path = directory / f"{name}.png"
        figure.savefig(path, dpi=110 if name == "figure" else 100)
        written.append(path)
    figures["figure"].set_layout_engine("none")  # laid out already
    figures["figure"].savefig(directory / "figure.pdf")
    written.insert(1, directory / "figure.pdf")
    return written
