"""A table of returns, one row per period and one column per asset, from memory or from a file."""

from __future__ import annotations

import csv
import math
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from viceversa.errors import InputError, MissingExtra
from viceversa.precision import as_finite_float64


class Returns(NamedTuple):
    """T × n returns and the names of the assets."""

    values: np.ndarray
    assets: tuple[str, ...]


def read_returns(table: Any) -> Returns:
    """The user's table of returns, in any of its forms.

    A path is a CSV file (a header with the names of the assets; a first column that is not numeric, such as a date,
    is left out) or a Parquet file; a DataFrame or a dict has one column per asset; an array is T × n. A line that cannot
    be read is named with its file and number.

    Example:
        >>> import viceversa as vv
        >>> vv.read_returns({"bonds": [0.01, 0.00], "shares": [0.04, -0.02]}).assets
        ('bonds', 'shares')
    """
    if isinstance(table, (str, Path)):
        return _checked(*_read_file(Path(table)))
    if isinstance(table, dict):
        try:
            columns = [np.asarray(column) for column in table.values()]
            return _checked(np.column_stack(columns) if columns else np.zeros((0, 0)), tuple(map(str, table)))
        except ValueError as error:
            if isinstance(error, InputError):
                raise
            lengths = ", ".join(f"{name}: {np.shape(column)}" for name, column in table.items())
            raise InputError(
                f"returns: the columns have different lengths ({lengths}). One return per period is needed."
            ) from None
    if hasattr(table, "columns"):
        return _of_frame(table, "returns")
    values = as_finite_float64("returns", table)
    return _checked(values, tuple(f"asset[{i}]" for i in range(values.shape[-1] if values.ndim else 0)))


def _checked(values: np.ndarray, assets: tuple[str, ...]) -> Returns:
    values = as_finite_float64("returns", values)
    if values.ndim != 2 or values.shape[1] == 0:
        raise InputError(
            f"returns has shape {values.shape}; one row per period and one column per asset is needed."
        )
    if values.shape[0] < 2:
        raise InputError(f"returns has {values.shape[0]} row(s); a covariance needs at least 2 periods.")
    if len(set(assets)) < len(assets):
        twice = next(name for name in assets if assets.count(name) > 1)
        raise InputError(f"returns: the asset {twice} appears twice. Give every column a name of its own.")
    return Returns(values, assets)


def _of_frame(frame: Any, name: str) -> Returns:
    numeric = [np.issubdtype(np.asarray(frame[column]).dtype, np.number) for column in frame.columns]
    # Dates or labels in front of the returns are no asset.
    kept = list(frame.columns)[0 if not numeric or numeric[0] else 1 :]
    for column in kept:
        values = np.asarray(frame[column])
        if not np.issubdtype(values.dtype, np.number):
            raise InputError(
                f"{name}: the column {column} holds {values.dtype} values; numbers are needed (returns such as 0.01)."
            )
        missing = np.isnan(values.astype(np.float64))
        if missing.any():
            raise InputError(
                f"{name}: the column {column} has no number in {int(missing.sum())} of {len(values)} rows (first: row "
                f"{int(np.argmax(missing))}). Fill or drop them; every asset needs a return in every period."
            )
    values = np.asarray(frame[kept], dtype=np.float64) if kept else np.zeros((len(frame), 0))
    return _checked(values, tuple(map(str, kept)))


def _read_file(path: Path) -> tuple[np.ndarray, tuple[str, ...]]:
    try:
        import pandas as pd
    except ImportError:
        raise MissingExtra("Reading a file of returns", "pandas", "tables") from None
    if not path.exists():
        raise InputError(f"returns: the file {path} does not exist.")
    if path.suffix.lower() in (".parquet", ".pq"):
        try:
            frame = pd.read_parquet(path)
        except Exception as error:
            raise InputError(f"{path}: not a Parquet file ({str(error).splitlines()[0]}).") from None
        return _of_frame(frame, str(path))
    try:
        frame = pd.read_csv(path)
        return _of_frame(frame, str(path))
    except (ValueError, OSError) as error:  # the parser's errors are ValueErrors
        _name_the_bad_line(path)
        if isinstance(error, InputError):
            raise
        raise InputError(f"{path}: cannot be read as CSV ({str(error).splitlines()[0]}).") from None


def _name_the_bad_line(path: Path) -> None:
    """Raise a sentence with the number of the first line that is not one return per asset; return if there is none."""
    with path.open(newline="", encoding="utf-8-sig", errors="replace") as file:
        reader = csv.reader(file)
        header = next(reader, None)
        if not header:
            raise InputError(f"{path}, line 1: empty; a header with one name per asset is expected.")
        labelled = None
        for row in reader:
            if not row:
                continue
            line = f"{path}, line {reader.line_num}"
            if labelled is None:
                labelled = not _is_number(row[0])
            if len(row) != len(header):
                raise InputError(f"{line}: {len(row)} fields; {len(header)}, as in the header, are expected.")
            for name, field in list(zip(header, row, strict=True))[1 if labelled else 0 :]:
                if not _is_number(field):
                    raise InputError(
                        f"{line}: {field!r} for {name}; a return, a finite number such as 0.01, is expected."
                    )


def _is_number(field: str) -> bool:
    try:
        return math.isfinite(float(field))
    except ValueError:
        return False
