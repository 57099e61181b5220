"""Reports: figures and tables of results, for people."""

from viceversa.report.compare_figure import plot_comparison

__all__ = ["plot_comparison"]
