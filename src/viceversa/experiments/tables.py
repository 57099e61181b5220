"""The long table: one row for each point looked at, kept as Parquet; everything reported is computed from it."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from viceversa.errors import InputError

# What a row is about, in the order of the file. One run is everything before `point`.
RUN = ["n_firms", "n_products", "seed", "method", "multipliers", "step_rule"]
KEY = [*RUN, "point", "iteration"]

COLUMNS = {
    "n_firms": "int64",
    "n_products": "int64",
    "seed": "int64",
    "method": "string",
    "multipliers": "string",  # shared, or one copy per player
    "step_rule": "string",
    "point": "string",  # average (what the theorems are about) or last (iterate)
    "iteration": "int64",
    # the three x-axes, and the other oracles
    "operator_evaluations": "int64",
    "seconds": "float64",
    "constraint_evaluations": "int64",
    "learning_evaluations": "int64",
    # what is measured, all of it at the true parameter
    "gap_lower": "float64",
    "gap_upper": "float64",
    "infeasibility": "float64",
    "x_error": "float64",
    "theta_error": "float64",
    "learning_floor": "float64",  # ‖x(θ_k) − x*‖, the equilibrium of the parameter known so far
    # the step sizes used: initial·(k + 1)^(−exponent), exponent 0 where they are constant
    "step_size": "float64",
    "step_exponent": "float64",
    "penalty": "float64",
    "dual_ratio": "float64",
    "regularization": "float64",
    "regularization_exponent": "float64",
    "learning_rate": "float64",
    "learning_factor": "float64",
    # how a tuned rule was found: its score, and what every method was given
    "tuning_score": "float64",
    "tuning_evaluations": "float64",
    # the instance
    "learn": "string",
    "slope_true": "float64",
    "price_cap": "float64",
}


def as_table(rows: list[dict]) -> pd.DataFrame:
    """Rows as the long table: these columns, these types, sorted by what a row is about."""
    frame = pd.DataFrame(rows)
    return frame.reindex(columns=list(COLUMNS)).astype(COLUMNS).sort_values(KEY, ignore_index=True)


def write_table(frame: pd.DataFrame, path: Path) -> None:
    """The long table as one Parquet file."""
    frame.to_parquet(path, index=False)


def read_table(path: Path) -> pd.DataFrame:
    """The long table of a Parquet file, refused in a sentence if a column is missing."""
    if not Path(path).is_file():
        raise InputError(f"{path} does not exist. Run `viceversa reproduce` to make it.")
    frame = pd.read_parquet(path)
    missing = [name for name in COLUMNS if name not in frame.columns]
    if missing:
        raise InputError(
            f"{path} lacks the column {missing[0]!r}; it was not written by `viceversa reproduce`."
        )
    return frame
