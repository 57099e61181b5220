"""A long table made by hand, in which every claim of the paper holds."""

from __future__ import annotations

import numpy as np

from viceversa.experiments.curves import EXTRAGRADIENT, METHODS, OURS, TIKHONOV
from viceversa.experiments.step_rules import RULES
from viceversa.experiments.tables import COLUMNS, as_table

SIZES = ((50, 5), (50, 10), (100, 10))
K = np.concatenate([[0], np.unique(np.round(np.geomspace(1, 10_000, 30)).astype(int))])


def row(size, method, rule, point, k, value, **other):
    per_iteration = 2 if method == EXTRAGRADIENT else 1
    numbers = {name: 1.0 for name, kind in COLUMNS.items() if kind == "float64"}
    metrics = dict.fromkeys(("gap_lower", "gap_upper", "infeasibility", "x_error"), value)
    return {
        **numbers,
        **metrics,
        "n_firms": size[0],
        "n_products": size[1],
        "seed": 0,
        "method": method,
        "multipliers": "shared",
        "step_rule": rule,
        "point": point,
        "iteration": k,
        "operator_evaluations": per_iteration * k,
        "constraint_evaluations": k,
        "learning_evaluations": k,
        "seconds": 1e-6 * k,
        "step_exponent": 0.5 if method == TIKHONOV else 0.0,
        "learning_floor": 0.9**k,
        "learn": "slope",
        **other,
    }


def table_where_every_claim_holds():
    """ALM's values 100/(k+1); the baselines' larger, and more so in larger instances; constant steps everywhere."""
    rows = []
    for n, size in enumerate(SIZES):
        for rule in RULES:
            for method in METHODS:
                scale = 1.0 if method == OURS else 2.0 + n
                for point in ("average", "last"):
                    for k in K:
                        value = 100.0 if k == 0 else scale * 100.0 / (k + 1)
                        rows.append(row(size, method, rule, point, k, value, step_exponent=0.0))
                        if rule == "paper" and method != OURS:
                            literal = {"multipliers": "per_player", "step_exponent": 0.0}
                            rows.append(row(size, method, rule, point, k, 2 * value, **literal))
                            rows.append(row(size, method, "paper_same_steps", point, k, value, **literal))
    return as_table(rows)
