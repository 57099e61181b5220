"""Reports: figures and tables of results, for people."""

from viceversa.report.compare_figure import comparison_figure, plot_comparison

__all__ = ["comparison_figure", "plot_comparison"]
