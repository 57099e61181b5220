"""The summary in words and tables, computed from the long table alone."""

from __future__ import annotations

import numpy as np
import pandas as pd

from viceversa.experiments.claims import judge
from viceversa.experiments.curves import (
    LABELS,
    METHODS,
    OURS,
    ROUNDING,
    SOLVED_FRACTION,
    Curves,
    final_value,
    linear_rate,
    reached_at,
    tail_slope,
)
from viceversa.experiments.step_rules import RULES


def summary(frame: pd.DataFrame) -> str:
    """`summary.md`: what was run, which claims hold, rates, step sizes, and what learning allows."""
    curves = Curves(frame)
    parts = [
        "# The paper's experiment, reproduced",
        _what_was_run(frame),
        "## Claims",
        _claims(frame),
        "## Rates",
        _rates(curves),
        "## What the corrected theory and tuning change",
        _speedups(curves),
        "## Step sizes",
        _step_sizes(curves),
        "## What learning allows",
        _floor(frame),
        "## Files",
        _FILES,
    ]
    return "\n\n".join(parts) + "\n"


_FILES = """\
- `figure.png`, `figure.pdf`: the paper's figure, steps by the paper's theory; `figure_corrected.png`, `figure_tuned.png`: the
  same with the other step rules.
- `figure_evaluations.png`, `figure_seconds.png`: the gap over operator evaluations and over seconds.
- `figure_last_iterate.png`: distance to the equilibrium of the last iterate and of the average, and the learning floor.
- `results.parquet`: the table everything here is computed from; its columns are described in `docs/reproduction.md`."""


def _what_was_run(frame: pd.DataFrame) -> str:
    sizes = ", ".join(f"({n}, {d})" for n, d in Curves(frame).sizes())
    seeds = sorted(frame["seed"].unique())
    learned = {"slope": "the slope of demand", "both": "slope and intercept of demand"}[
        frame["learn"].iloc[0]
    ]
    return (
        f"Cournot markets with a price cap, (firms, products) = {sizes}; learned while solving: {learned}, with the contraction "
        f"factor q = {frame['learning_factor'].median():.4g} for every method. {len(seeds)} seeds "
        f"({', '.join(map(str, seeds))}), {frame['iteration'].max():,} iterations, {len(frame):,} rows. Numbers are medians over "
        "seeds, measured at the true parameter; the gap is the relaxed Minty gap with ε = the point's own infeasibility, its "
        f"upper bound (bounds agree to {_interval_width(frame):.0e} of 1 + gap). Extragradient evaluates the operator twice per "
        "iteration, the others once. Seconds are each run's seconds per iteration times the iteration, without compilation."
    )


def _interval_width(frame: pd.DataFrame) -> float:
    lower, upper = (frame[name].to_numpy(dtype=float) for name in ("gap_lower", "gap_upper"))
    return float(np.nanmax((upper - lower) / (1 + np.abs(upper))))


def _claims(frame: pd.DataFrame) -> str:
    judged = judge(frame)
    quotes = {row.key: row.quote for row in judged}
    head = f"{sum(row.holds for row in judged)} of {len(judged)} verdicts hold."
    failed: dict[str, list[str]] = {}
    for row in judged:
        if not row.holds:
            failed.setdefault(row.key, []).append(RULES[row.step_rule][:3])
    if failed:
        listed = (f"“{quotes[key]}” under {', '.join(rules)}" for key, rules in failed.items())
        head += " **These do not:** " + "; ".join(listed) + "."
    table = _markdown(
        ["the paper says", "step sizes", "holds", "measured"],
        [
            [f"“{row.quote}”", RULES[row.step_rule], "yes" if row.holds else "**no**", row.measured]
            for row in judged
        ],
    )
    tests = "\n".join(
        f"- “{quotes[key]}”: {test}." for key, test in {row.key: row.test for row in judged}.items()
    )
    caution = (
        "Rules (b) and (c) have constants that were chosen after looking at some of these instances: `docs/reproduction.md` says "
        "which, and how much hangs on them. Rule (a) leaves nothing to choose for ALM and extragradient."
    )
    note = (
        "Numbers separated by “/” are those of the three instances, smallest first. How each claim is tested:"
    )
    return f"{head}\n\n{caution}\n\n{table}\n\n{note}\n\n{tests}"


def _rates(curves: Curves) -> str:
    intro = (
        "Exponents p of C·Kᵖ fitted to the average over the last factor of ten of the iterations; the factor per iteration of the "
        "last iterate's ‖x − x*‖ where it decreases geometrically (“–”: it does not within the run); both distances at the end."
    )
    header = [
        "instance",
        "steps",
        "method",
        "gap",
        "infeasibility",
        "last iterate",
        "‖x_K − x*‖",
        "‖x̄_K − x*‖",
        "µs/iteration",
    ]
    rows = []
    for size in curves.sizes():
        for rule in _rules(curves):
            for method in METHODS:
                exponents = [tail_slope(curve) for curve in curves.pair(size, rule, method)]
                error = curves.curve(size, rule, method, "x_error", point="last")
                seconds = curves.curve(size, rule, method, "x_error", "seconds")
                rate = linear_rate(error)
                rows.append(
                    [
                        str(size),
                        RULES[rule][:3],
                        LABELS[method],
                        *(f"{p:.2f}" for p in exponents),
                        f"{rate:.5f}" if np.isfinite(rate) else "–",
                        f"{final_value(error):.1e}",
                        f"{final_value(curves.curve(size, rule, method, 'x_error')):.1e}",
                        f"{1e6 * seconds.at[-1] / seconds.iteration[-1]:.2g}",
                    ]
                )
    return intro + "\n\n" + _markdown(header, rows)


def _speedups(curves: Curves) -> str:
    percent = f"{100 * SOLVED_FRACTION:g}%"
    header = ["instance", "method", *(f"{RULES[rule]}" for rule in _rules(curves))]
    rows = []
    for size in curves.sizes():
        for method in METHODS:
            cells = []
            for rule in _rules(curves):
                pair = curves.pair(size, rule, method, "operator_evaluations")
                at = reached_at(pair)
                cells.append(f"{at:,.0f}" if np.isfinite(at) else f"> {pair[0].at[-1]:,.0f}")
            rows.append([str(size), LABELS[method], *cells])
    return (
        f"Operator evaluations until gap and infeasibility of the average are at {percent} of the start:\n\n"
        + _markdown(header, rows)
    )


def _step_sizes(curves: Curves) -> str:
    """One line per instance, rule and method; theory's steps differ a little between seeds, so medians."""
    names = {
        "step_size": "γ or τ",
        "penalty": "ρ",
        "dual_ratio": "ω",
        "regularization": "ε₀",
    }
    header = ["instance", "steps", "method", *names.values(), "score"]
    rows = []
    for size in curves.sizes():
        for rule in _rules(curves):
            for method in METHODS:
                values = [curves.median(name, size, rule, method) for name in [*names, "tuning_score"]]
                cells = [f"{v:.3g}" if np.isfinite(v) else "" for v in values]
                alpha = curves.median("step_exponent", size, rule, method)
                if alpha > 0:
                    beta = curves.median("regularization_exponent", size, rule, method)
                    cells[0] += f"·(k+1)^−{alpha:g}"
                    cells[3] += f"·(k+1)^−{beta:g}"
                rows.append([str(size), RULES[rule][:3], LABELS[method], *cells])
    if "tuned" not in curves.rules:
        return _markdown(header, rows)
    evaluations = curves.median("tuning_evaluations", curves.sizes("tuned")[0], "tuned", OURS)
    return _markdown(header, rows) + (
        f"\n\nTuned: the best of 16 candidates for every method, each given {evaluations:,.0f} evaluations of the operator on seeds "
        "that are not reported. The score is the larger of gap and infeasibility of the average then."
    )


def _floor(frame: pd.DataFrame) -> str:
    """How close the last iterates come to the equilibrium of the parameter known so far."""
    last = frame.query(
        "point == 'last' and iteration > 0 and multipliers == 'shared' and step_rule in @RULES"
    )
    floor, error = (last[name].to_numpy(dtype=float) for name in ("learning_floor", "x_error"))
    seen = np.flatnonzero(floor > ROUNDING)
    if seen.size == 0:
        return "Learning was finished (to rounding) before the first recorded iteration."
    times = error[seen] / floor[seen]
    best = last.iloc[int(seen[np.argmin(times)])].to_dict()
    finished = last["iteration"].to_numpy()[floor <= ROUNDING]
    return (
        "No method can know more than the parameter learned so far: ‖x(θ_k) − x*‖ is the distance at which an exact solver would "
        f"stand at iteration k. {seen.size:,} last iterates were recorded while this floor was above {ROUNDING:g}; below it: "
        f"{int((times < 1).sum())}. The closest is {LABELS[best['method']]} with steps {RULES[best['step_rule']][:3]} at iteration "
        f"{best['iteration']:,}, {times.min():.3g} times the floor. (An iterate may cross it by chance on its way; none can stay below.)"
        + (f" From iteration {finished.min():,} on the floor is rounding." if finished.size else "")
    )


def _rules(curves: Curves) -> list[str]:
    return [rule for rule in RULES if rule in curves.rules]


def _markdown(header: list[str], rows: list[list[str]]) -> str:
    lines = ["| " + " | ".join(header) + " |", "| " + " | ".join("---" for _ in header) + " |"]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)])
