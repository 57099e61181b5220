"""The claims the paper makes about its figure, each judged from the long table alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pandas as pd

from viceversa.experiments.curves import (
    AXES,
    BASELINES,
    EXTRAGRADIENT,
    LABELS,
    METHODS,
    METRICS,
    OURS,
    TIKHONOV,
    Curve,
    Curves,
    Size,
    final_value,
    left_over,
    ratio,
    reached_at,
    tail_slope,
    value_at,
)
from viceversa.experiments.step_rules import RULES

RATE = -0.9  # a fitted exponent at or below this counts as O(1/K)
SAME_STEPS, CONSTANT = "paper_same_steps", "paper_constant"  # step rules of the literal readings


class Verdict(NamedTuple):
    """What was measured, and whether the claim holds."""

    measured: str
    holds: bool


@dataclass(frozen=True)
class Claim:
    """One sentence of the paper, how it is tested, and the test."""

    key: str
    quote: str
    test: str
    judge: Callable[[Curves, str], Verdict]
    rules: tuple[str, ...] = tuple(RULES)


class Judged(NamedTuple):
    """A claim under one step rule: a row of the claims table."""

    key: str
    quote: str
    test: str
    step_rule: str
    measured: str
    holds: bool


def judge(frame: pd.DataFrame) -> list[Judged]:
    """Every claim under every step rule it concerns."""
    curves = Curves(frame)
    judged = []
    for claim in CLAIMS:
        for rule in claim.rules:
            if rule in curves.rules:
                verdict = claim.judge(curves, rule)
                row = Judged(claim.key, claim.quote, claim.test, rule, verdict.measured, bool(verdict.holds))
                judged.append(row)
    return judged


def claims_table(frame: pd.DataFrame) -> pd.DataFrame:
    """The claims table: one row for every claim and step rule."""
    return pd.DataFrame(judge(frame))


# -- the judges ----------------------------------------------------------------------------------------------
def _superior(curves: Curves, rule: str) -> Verdict:
    """Smaller gap and infeasibility of the average than both baselines, everywhere, at equal iterations."""
    won = {axis: _comparisons_won(curves, rule, axis) for axis in AXES}
    counts = ", ".join(f"{sum(w)} of {len(w)} at equal {AXES[axis]}" for axis, w in won.items())
    ratios = [
        f"{LABELS[baseline]} over ALM, {name}: {_list(_final_ratios(curves, rule, baseline, metric))}"
        for baseline in BASELINES
        for metric, name in METRICS.items()
    ]
    return Verdict("; ".join([f"comparisons ALM wins: {counts}", *ratios]), all(won["iteration"]))


def _comparisons_won(curves: Curves, rule: str, axis: str) -> list[bool]:
    won = []
    for size in curves.sizes(rule):
        for metric in METRICS:
            found = {method: curves.curve(size, rule, method, metric, axis) for method in METHODS}
            budget = min(curve.at[-1] for curve in found.values())
            ours = value_at(found[OURS], budget)
            won += [ours < value_at(found[baseline], budget) for baseline in BASELINES]
    return won


def _final_ratios(curves: Curves, rule: str, baseline: str, metric: str) -> list[float]:
    return [
        ratio(*(final_value(curves.curve(size, rule, method, metric)) for method in (baseline, OURS)))
        for size in curves.sizes(rule)
    ]


def _slower(baseline: str) -> Callable[[Curves, str], Verdict]:
    def verdict(curves: Curves, rule: str) -> Verdict:
        texts = [
            f"{AXES[axis]}: {LABELS[baseline]} {_counts(curves, rule, baseline, axis)}; ALM {_counts(curves, rule, OURS, axis)}"
            for axis in ("iteration", "operator_evaluations")
        ]
        slower = [_is_slower(curves, size, rule, baseline) for size in curves.sizes(rule)]
        return Verdict("; ".join(texts), all(slower))

    return verdict


def _is_slower(curves: Curves, size: Size, rule: str, baseline: str, multipliers="shared") -> bool:
    """More iterations to the target than ALM; where neither gets there within the run, the one further from it."""
    theirs, ours = curves.pair(size, rule, baseline, multipliers=multipliers), curves.pair(size, rule, OURS)
    if np.isinf(reached_at(theirs)) and np.isinf(reached_at(ours)):
        return _worst_left(theirs) > _worst_left(ours)
    return reached_at(theirs) > reached_at(ours)


def _worst_left(pair: list[Curve]) -> float:
    return max(left_over(curve) for curve in pair)


def _deteriorate(curves: Curves, rule: str) -> Verdict:
    """The final value over the start's, largest instance over smallest: more than ALM's, for both baselines."""
    small, large = curves.sizes(rule)[0], curves.sizes(rule)[-1]

    def growth(method: str, metric: str) -> float:
        return ratio(*(left_over(curves.curve(size, rule, method, metric)) for size in (large, small)))

    factors = {method: {metric: growth(method, metric) for metric in METRICS} for method in METHODS}
    texts = [
        f"{LABELS[method]}: "
        + ", ".join(f"{METRICS[metric]} ×{factor:.3g}" for metric, factor in found.items())
        for method, found in factors.items()
    ]
    holds = all(factors[b][metric] > factors[OURS][metric] for b in BASELINES for metric in METRICS)
    return Verdict(f"from {small} to {large}, " + "; ".join(texts), holds)


def _rate(curves: Curves, rule: str) -> Verdict:
    slopes = {
        name: [tail_slope(curves.curve(size, rule, OURS, metric)) for size in curves.sizes(rule)]
        for metric, name in METRICS.items()
    }
    texts = [f"exponent of the {name}: {_list(found, '.2f')}" for name, found in slopes.items()]
    return Verdict("; ".join(texts), all(slope <= RATE for found in slopes.values() for slope in found))


def _constant_steps(curves: Curves, rule: str) -> Verdict:
    """Every method ran with constant steps; where one did not, what constant steps do to it."""
    moving = [
        method
        for method in METHODS
        if any(curves.median("step_exponent", size, rule, method) != 0 for size in curves.sizes(rule))
    ]
    texts = [f"{LABELS[method]} has no theory with constant steps; it ran with (k+1)^−α" for method in moving]
    if CONSTANT in curves.rules:
        found = [
            curves.curve(size, CONSTANT, TIKHONOV, "x_error", point="last") for size in curves.sizes(CONSTANT)
        ]
        left = [100 * left_over(curve) for curve in found]
        texts.append(
            f"with constant γ and ε its last iterate ends at {_list(left, '.2g')}% of the starting ‖x − x*‖ (exponents "
            f"{_list([tail_slope(curve) for curve in found], '.2f')} over the last factor of ten)"
        )
    return Verdict("; ".join(texts) or "all three methods ran with constant steps", not moving)


def _per_player(curves: Curves, rule: str) -> Verdict:
    """Read literally, do the baselines become slower than ALM? Same iterates at the same steps; smaller steps by theory."""
    sizes = curves.sizes(rule, "per_player")
    if not sizes:
        return Verdict("not run", False)
    texts, slower = [], []
    for baseline in BASELINES:
        differences = [_largest_difference(curves, size, rule, baseline) for size in sizes]
        steps = [
            [curves.median("step_size", size, rule, baseline, m) for m in ("shared", "per_player")]
            for size in sizes
        ]
        slower += [_is_slower(curves, size, rule, baseline, "per_player") for size in sizes]
        texts.append(
            f"{LABELS[baseline]}: at equal steps the copies never separate (‖x − x*‖ differs by at most {max(differences):.0e}); the "
            f"Lipschitz constant with copies divides the step by {_list([ratio(*pair) for pair in steps])}, and then it needs "
            f"{_counts(curves, rule, baseline, 'iteration', 'per_player', sizes)} iterations "
            f"(one shared multiplier: {_counts(curves, rule, baseline, 'iteration', sizes=sizes)})"
        )
    texts.append(f"ALM: {_counts(curves, rule, OURS, 'iteration', sizes=sizes)}")
    return Verdict("; ".join(texts), all(slower))


def _largest_difference(curves: Curves, size: Size, rule: str, method: str) -> float:
    keys = ["seed", "iteration"]
    found = []
    for point in ("average", "last"):
        shared = curves.rows(size, rule, method, point).set_index(keys)["x_error"]
        copies = curves.rows(size, SAME_STEPS, method, point, "per_player").set_index(keys)["x_error"]
        found.append((shared - copies).abs().max())
    return float(max(found))


# -- words ---------------------------------------------------------------------------------------------------
def _counts(curves: Curves, rule, method, axis, multipliers="shared", sizes: list[Size] | None = None) -> str:
    """Where the target is reached, by instance; `> end` where it is not within the run."""
    texts = []
    for size in sizes or curves.sizes(rule):
        pair = curves.pair(size, rule, method, axis, multipliers)
        at = reached_at(pair)
        texts.append(f"{at:,.0f}" if np.isfinite(at) else f"> {pair[0].at[-1]:,.0f}")
    return " / ".join(texts)


def _list(values: list[float], form: str = ".3g") -> str:
    return " / ".join(format(value, form) for value in values)


_TO_ONE_PERCENT = "until gap and infeasibility of the average are at 1% of the start"
CLAIMS = (
    Claim(
        "superior",
        "exhibits a superior performance across all instances",
        "gap and infeasibility of the average at the end of the run, at equal iterations, below both baselines' in every "
        "instance (median over seeds); ratios are listed by instance",
        _superior,
    ),
    Claim(
        "tikhonov_slower",
        "the Lagrangian-Tikhonov ... baselines converge more slowly",
        f"iterations {_TO_ONE_PERCENT}: more than ALM's in every instance",
        _slower(TIKHONOV),
    ),
    Claim(
        "extragradient_slower",
        "... and EG-Lagrangian baselines converge more slowly",
        f"iterations {_TO_ONE_PERCENT}: more than ALM's in every instance",
        _slower(EXTRAGRADIENT),
    ),
    Claim(
        "deteriorate",
        "and deteriorate more noticeably as (N,D) grow",
        "final value relative to the start's, largest instance over smallest: larger than ALM's for both baselines and both "
        "metrics",
        _deteriorate,
    ),
    Claim(
        "rate",
        "we establish O(1/K) ergodic convergence rates for these metrics",
        f"exponent fitted over the last factor of ten of the iterations, ALM's average, at most {RATE} in every instance",
        _rate,
    ),
    Claim(
        "constant_steps",
        "constant step-sizes chosen according to the theoretical findings",
        "every method has a theory with constant steps",
        _constant_steps,
        rules=("paper",),
    ),
    Claim(
        "per_player",
        "we employ the Lagrangian reformulation for each player (baselines slower, read literally)",
        "with one multiplier per player and the step its Lipschitz constant gives, both baselines need more iterations than ALM "
        f"{_TO_ONE_PERCENT}",
        _per_player,
        rules=("paper",),
    ),
)
