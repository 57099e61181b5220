"""`reproduce`: run the experiment, keep the table, and write everything else from the kept table."""

from __future__ import annotations

import os
from pathlib import Path

from viceversa.errors import InputError
from viceversa.experiments.cournot_experiment import Report, Settings, run_experiment
from viceversa.experiments.figure import write_figures
from viceversa.experiments.summary import summary
from viceversa.experiments.tables import read_table, write_table

TABLE, SUMMARY = "results.parquet", "summary.md"


def reproduce(settings: Settings, directory: Path, report: Report = lambda *_: None) -> list[Path]:
    """The paper's experiment into `directory`: table, figures and summary; the files written.

    Figures and summary are made from the Parquet file as it is on disk, never from numbers in memory.
    """
    directory = Path(directory)
    check_writable(directory)
    frame = run_experiment(settings, report)
    write_table(frame, directory / TABLE)
    return [directory / TABLE, *describe(directory)]


def describe(directory: Path) -> list[Path]:
    """Figures and summary from the table already in `directory`."""
    frame = read_table(Path(directory) / TABLE)
    figures = write_figures(frame, Path(directory))
    (Path(directory) / SUMMARY).write_text(summary(frame), encoding="utf-8")
    return [*figures, Path(directory) / SUMMARY]


def check_writable(directory: Path) -> None:
    """Make the directory, or say in a sentence why it cannot be used."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            f"output: {directory} cannot be made ({error.strerror}). Choose another directory."
        ) from None
    if not os.access(directory, os.W_OK | os.X_OK):
        raise InputError(f"output: {directory} cannot be written to. Choose another directory.")
