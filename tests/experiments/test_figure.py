"""The figure is laid out as in the paper: rows of instances, gap left, infeasibility right, its line styles."""

from __future__ import annotations

import pytest

from experiments.made_tables import SIZES, table_where_every_claim_holds
from viceversa.experiments.curves import Curves
from viceversa.experiments.figure import last_iterate_figure, paper_figure


@pytest.fixture(scope="module")
def curves():
    return Curves(table_where_every_claim_holds())


def test_layout_and_line_styles_of_the_paper(curves):
    figure = paper_figure(curves, "paper")
    panels = figure.axes
    assert len(panels) == 2 * len(SIZES)
    for n, panel in enumerate(panels):
        size = SIZES[n // 2]
        assert panel.get_title() == f"{size[0]} firms, {size[1]} products"
        assert panel.get_ylabel() == ("Relaxed Minty gap", "Infeasibility")[n % 2]
        assert panel.get_xscale() == panel.get_yscale() == "log"
        styles = {line.get_label(): (line.get_linestyle(), line.get_marker()) for line in panel.get_lines()}
        assert styles == {
            "ALM-Misspecified VI": ("-", "None"),
            "Lagrangian–Tikhonov": ("--", "o"),
            "EG–Lagrangian": (":", "x"),
        }
        assert len(panel.collections) == 3  # a band over seeds for each
    assert panels[-1].get_xlabel() == "Iterations"
    assert "the paper's theory" in figure.get_suptitle()


def test_lines_are_the_tables_numbers(curves):
    line = paper_figure(curves, "tuned").axes[0].get_lines()[0]
    assert line.get_ydata()[-1] == pytest.approx(100.0 / (line.get_xdata()[-1] + 1))


def test_last_iterate_figure_shows_the_floor(curves):
    panel = last_iterate_figure(curves).axes[0]
    labels = panel.get_legend_handles_labels()[1]
    assert "averages (thin)" in labels
    assert "learning floor" in labels
