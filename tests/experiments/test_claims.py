"""The claims table: every verdict follows from the Parquet file, and follows it when the file changes."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from experiments.made_tables import table_where_every_claim_holds
from viceversa.errors import InputError
from viceversa.experiments import claims_table, read_table, write_table
from viceversa.experiments.curves import (
    EXTRAGRADIENT,
    OURS,
    TIKHONOV,
    Curve,
    linear_rate,
    reached_at,
    tail_slope,
)
from viceversa.experiments.step_rules import RULES
from viceversa.experiments.summary import summary


@pytest.fixture(scope="module")
def favourable():
    return table_where_every_claim_holds()


def verdicts(frame, tmp_path):
    path = tmp_path / "results.parquet"
    write_table(frame, path)
    table = claims_table(read_table(path))
    return table.set_index(["key", "step_rule"])["holds"].to_dict()


def altered(frame, change, **where):
    frame = frame.copy()
    keep = np.logical_and.reduce(
        [(frame[name] == value).to_numpy(dtype=bool) for name, value in where.items()]
    )
    assert keep.any()
    change(frame, keep)
    return frame


def times(column, factor):
    def change(frame, keep):
        late = keep & (frame["iteration"] > 0).to_numpy()
        frame.loc[late, column] *= factor

    return change


def test_every_claim_holds_on_a_table_made_to_fit(favourable, tmp_path):
    found = verdicts(favourable, tmp_path)
    assert len(found) == 5 * len(RULES) + 2
    assert all(found.values())


@pytest.mark.parametrize(
    ("change", "where", "flipped"),
    [
        (times("gap_upper", 0.01), {"method": EXTRAGRADIENT, "step_rule": "tuned"}, {"superior"}),
        (times("infeasibility", 0.01), {"method": TIKHONOV, "n_firms": 100, "step_rule": "tuned"}, {"superior", "deteriorate"}),
        (times("infeasibility", 1e3), {"method": OURS, "n_firms": 100, "step_rule": "tuned"},
         {"superior", "deteriorate", "extragradient_slower", "tikhonov_slower"}),
    ],
)  # fmt: skip
def test_altering_the_file_changes_the_verdict(favourable, tmp_path, change, where, flipped):
    found = verdicts(altered(favourable, change, multipliers="shared", point="average", **where), tmp_path)
    assert {key for (key, rule), holds in found.items() if not holds} >= flipped
    assert {rule for (_, rule), holds in found.items() if not holds} == {"tuned"}


def test_a_slower_decrease_is_no_rate(favourable, tmp_path):
    def flatten(frame, keep):
        frame.loc[keep, "gap_upper"] = 1e-3 * np.sqrt(frame.loc[keep, "gap_upper"])

    found = verdicts(altered(favourable, flatten, method=OURS, step_rule="paper", n_firms=50), tmp_path)
    assert not found["rate", "paper"]
    assert found["rate", "corrected"]


def test_diminishing_steps_are_not_constant(favourable, tmp_path):
    def diminish(frame, keep):
        frame.loc[keep, "step_exponent"] = 0.5

    found = verdicts(altered(favourable, diminish, method=TIKHONOV, step_rule="paper"), tmp_path)
    assert not found["constant_steps", "paper"]


def test_literal_reading_is_judged_by_its_own_rows(favourable, tmp_path):
    change = times("gap_upper", 1e-3)

    def faster(frame, keep):
        change(frame, keep)
        times("infeasibility", 1e-3)(frame, keep)

    found = verdicts(
        altered(favourable, faster, method=EXTRAGRADIENT, multipliers="per_player", step_rule="paper"),
        tmp_path,
    )
    assert [key for key, holds in found.items() if not holds] == [("per_player", "paper")]


def test_summary_says_plainly_what_does_not_hold(favourable):
    assert "17 of 17 verdicts hold." in summary(favourable)
    worse = altered(
        favourable, times("gap_upper", 0.01), method=EXTRAGRADIENT, step_rule="paper", point="average"
    )
    text = summary(worse)
    assert "**These do not:**" in text
    assert "“exhibits a superior performance across all instances” under (a)" in text
    assert "| **no** |" in text


def test_a_file_that_is_no_table_is_refused(tmp_path):
    with pytest.raises(InputError, match="does not exist"):
        read_table(tmp_path / "results.parquet")
    pd.DataFrame({"n_firms": [1]}).to_parquet(tmp_path / "results.parquet")
    with pytest.raises(InputError, match="lacks the column 'n_products'"):
        read_table(tmp_path / "results.parquet")


def curve(at, median):
    return Curve(iteration=at, at=at, median=median, low=median, high=median)


def test_fits_recover_what_was_planted():
    k = np.geomspace(1, 1e5, 40)
    assert tail_slope(curve(k, 7 * k**-0.7)) == pytest.approx(-0.7, abs=1e-9)
    error = 5 * 0.99 ** np.arange(0, 2000, 40)
    assert linear_rate(curve(np.arange(0, 2000, 40), error)) == pytest.approx(0.99, abs=1e-9)
    assert np.isnan(linear_rate(curve(k, k**-0.45)))  # never under 1% of its start over three factors of ten
    assert reached_at([curve(k, 1 / k)], 0.01) == pytest.approx(100.0)
    assert reached_at([curve(k, 1 / k), curve(k, 1 / np.sqrt(k))], 0.01) == pytest.approx(1e4)
    assert np.isinf(reached_at([curve(k, k**-0.1)], 0.01))
