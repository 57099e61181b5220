"""The robustness corpus, solved with defaults and judged by arithmetic that shares nothing with the package.

`python -m benchmarks robustness` writes `results/robustness.csv` (one row per problem), `results/robustness.md`
(one row per family) and `results/robustness.png` (a performance profile in evaluations of F beside other methods).
"""

from __future__ import annotations

import csv
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np

import viceversa as vv
from benchmarks import corpus

TOL = 1e-8
N_SEEDS = 16
N_SEEDS_OTHERS = (
    2  # the other methods are run on the first seeds only: they take the full limit where they fail
)
LIMIT_OTHERS = 10_000


# -- the judge: KKT residuals in plain NumPy -----------------------------------------------------
def _force(op: corpus.PlantedOperator, x: np.ndarray, theta: np.ndarray) -> np.ndarray:
    skew = sum(theta[i] * op.K[i] @ x for i in range(op.K.shape[0]))
    return (
        op.M @ x
        + skew
        + op.exponential * np.exp(x)
        + op.softplus * np.log1p(np.exp(x))
        + op.q1 @ theta
        + op.q0
    )


def _constraints(f: Any, x: np.ndarray, theta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Values and Jacobian of the corpus's constraints, from their formulas."""
    if f is None:
        return np.zeros(0), np.zeros((0, x.size))
    if isinstance(f, corpus.QuadraticConstraints):
        linear = f.c + np.einsum("jnm,m->jn", f.C, theta)
        Bx = np.einsum("jrn,n->jr", f.B, x)
        values = 0.5 * (Bx**2).sum(1) + linear @ x - f.d
        return values, np.einsum("jr,jrn->jn", Bx, f.B) + linear
    inner = np.einsum("jrn,n->jr", f.B, x) + np.einsum("jrm,m->jr", f.C, theta)
    if isinstance(f, corpus.NormConstraints):
        root = np.sqrt(1.0 + (inner**2).sum(1))
        return root - f.d, np.einsum("jr,jrn->jn", inner / root[:, None], f.B)
    peak = inner.max(1, keepdims=True)
    weights = np.exp(inner - peak)
    total = weights.sum(1, keepdims=True)
    return (np.log(total) + peak)[:, 0] - f.d, np.einsum("jr,jrn->jn", weights / total, f.B)


def _project(X: Any, v: np.ndarray) -> np.ndarray:
    """Projections by bisection and formulas of their own."""
    if isinstance(X, vv.Box):
        return np.minimum(np.maximum(v, X.lower), X.upper)
    if isinstance(X, vv.Free):
        return v
    if isinstance(X, vv.Ball):
        d = v - X.center
        return X.center + d * min(1.0, float(X.radius) / max(float(np.linalg.norm(d)), 1e-300))
    if isinstance(X, vv.Simplex):
        low, high = v.min() - float(X.total), v.max()
        for _ in range(200):
            middle = 0.5 * (low + high)
            low, high = (middle, high) if np.maximum(v - middle, 0).sum() > X.total else (low, middle)
        return np.maximum(v - high, 0.0)
    sizes = [int(np.prod(block.shape)) for block in X.blocks]
    parts = np.split(v, np.cumsum(sizes)[:-1])
    return np.concatenate([_project(block, part) for block, part in zip(X.blocks, parts, strict=True)])


def judged_residual(planted: corpus.Planted, x: np.ndarray, multiplier: np.ndarray) -> float:
    """The largest KKT violation at the planted θ*, in units of the planted forces and constraint variation."""
    problem, theta = planted.problem, planted.theta_true
    values, jacobian = _constraints(problem.constraints, x, theta)
    F = _force(problem.operator, x, theta)
    force_unit = max(np.abs(F).max(), np.abs(jacobian.T @ multiplier).max(initial=0.0))
    size = max(float(np.abs(x).max()), 1.0)
    step = size / force_unit
    moved = np.abs(x - _project(problem.set, x - step * (F + jacobian.T @ multiplier))).max() / size
    unit = np.maximum(np.abs(jacobian).sum(1) * size, 1e-300)
    violated = (np.maximum(values, 0.0) / unit).max(initial=0.0)
    slack = (multiplier * np.abs(values)).max(initial=0.0) / (force_unit * size)
    return float(max(moved, violated, slack, -multiplier.min(initial=0.0)))


# -- the runs ------------------------------------------------------------------------------------
def run(output: Path, quick: bool = False) -> None:
    """Run, judge, write and print."""
    n_seeds = 1 if quick else N_SEEDS
    rows = []
    for family in corpus.FAMILIES:
        began = time.perf_counter()
        for seed in range(n_seeds):
            rows.append(_default_row(corpus.plant(family, seed)))
        mine = [row for row in rows if row["family"] == family.name]
        solved = sum(row["status"] == "solved" for row in mine)
        worst = max(row["judged"] for row in mine)
        print(
            f"{family.name:<36}{solved:>3}/{len(mine)} solved, worst judged residual {worst:.1e}, "
            f"{time.perf_counter() - began:.1f} s",
            flush=True,
        )
    others = [row for family in corpus.FAMILIES for row in _other_rows(family, min(n_seeds, N_SEEDS_OTHERS))]
    output.mkdir(parents=True, exist_ok=True)
    _write_csv(output, rows + others)
    _write_summary(output, rows, others)
    _write_profile(output, rows, others)


def _default_row(planted: corpus.Planted) -> dict[str, Any]:
    began = time.perf_counter()
    solution = vv.solve(planted.problem, theta0=planted.theta0, tol=TOL)
    return _row("default", planted, solution, time.perf_counter() - began)


def _other_rows(family: corpus.Family, n_seeds: int) -> list[dict[str, Any]]:
    rows = []
    for seed in range(n_seeds):
        planted = corpus.plant(family, seed)
        for name, method in _others(planted):
            began = time.perf_counter()
            solution = vv.solve(
                planted.problem, method, theta0=planted.theta0, tol=TOL, max_iter=LIMIT_OTHERS
            )
            rows.append(_row(name, planted, solution, time.perf_counter() - began))
    return rows


def _others(planted: corpus.Planted) -> list[tuple[str, Any]]:
    """Methods to compare with: the two without constants, and extragradient with the step its theory allows."""
    problem, theta, x = planted.problem, planted.theta_true, planted.x_true
    n, J = x.size, problem.n_constraints
    eps = 1e-6
    H = np.stack(
        [
            (_lagrangian_force(planted, x + eps * e) - _lagrangian_force(planted, x - eps * e)) / (2 * eps)
            for e in np.eye(n)
        ]
    )
    jacobian = _constraints(problem.constraints, x, theta)[1]
    K = np.block([[H.T, jacobian.T], [-jacobian, np.zeros((J, J))]])
    lipschitz = np.linalg.norm(K, 2)
    return [
        ("extragradient", vv.ExtragradientLagrangian(step_size=0.5 / lipschitz)),
        ("adaptive Algorithm 1", vv.AdaptiveAugmentedLagrangian()),
        ("adaptive golden ratio", vv.AdaptiveGoldenRatio()),
    ]


def _lagrangian_force(planted: corpus.Planted, x: np.ndarray) -> np.ndarray:
    problem, theta = planted.problem, planted.theta_true
    jacobian = _constraints(problem.constraints, x, theta)[1]
    return _force(problem.operator, x, theta) + jacobian.T @ planted.multiplier_true


def _row(method: str, planted: corpus.Planted, solution: vv.Solution, seconds: float) -> dict[str, Any]:
    finite = np.isfinite(solution.x).all() and np.isfinite(solution.multiplier).all()
    return {
        "method": method,
        "family": planted.family.name,
        "seed": planted.seed,
        "status": str(solution.status),
        "judged": judged_residual(planted, solution.x, solution.multiplier) if finite else float("inf"),
        "x_error": float(np.abs(solution.x - planted.x_true).max()) if finite else float("inf"),
        "theta_error": float(np.abs(solution.theta - planted.theta_true).max()),
        "iterations": solution.nit,
        "evaluations": solution.nfev,
        "seconds": seconds,
    }


# -- what is written -----------------------------------------------------------------------------
def _write_csv(output: Path, rows: list[dict[str, Any]]) -> None:
    with open(output / "robustness.csv", "w", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=list(rows[0]))
        writer.writeheader()
        for row in rows:
            writer.writerow({k: f"{v:.3e}" if isinstance(v, float) else v for k, v in row.items()})


def _write_summary(output: Path, rows: list[dict[str, Any]], others: list[dict[str, Any]]) -> None:
    solved = [row for row in rows if row["status"] == "solved"]
    wrong = [row for row in solved if row["judged"] > 100 * TOL]
    first = [row for row in others if row["method"] == "extragradient"]
    unsolved = sum(row["status"] != "solved" for row in first)
    lines = [
        "# Robustness corpus",
        "",
        f"{len(rows)} problems, defaults, tol {TOL:g}: **{len(solved)} solved ({100 * len(solved) / len(rows):.1f}%)**, "
        f"**{len(wrong)} wrongly reported as solved** (judged by an independent NumPy residual above {100 * TOL:g}).",
        f"Extragradient with the step 1/(2L) does not solve {unsolved} of {len(first)} in {LIMIT_OTHERS} iterations.",
        "",
        "| family | solved | worst judged residual | median iterations | median F evaluations |",
        "| --- | --- | --- | --- | --- |",
    ]
    by_family = defaultdict(list)
    for row in rows:
        by_family[row["family"]].append(row)
    for family, mine in by_family.items():
        n_solved = sum(row["status"] == "solved" for row in mine)
        lines.append(
            f"| {family} | {n_solved}/{len(mine)} | {max(row['judged'] for row in mine):.1e} "
            f"| {int(np.median([row['iterations'] for row in mine]))} "
            f"| {int(np.median([row['evaluations'] for row in mine]))} |"
        )
    text = "\n".join(lines) + "\n"
    (output / "robustness.md").write_text(text)
    print(text)


def _write_profile(output: Path, rows: list[dict[str, Any]], others: list[dict[str, Any]]) -> None:
    """Dolan and Moré's profile: the share of problems a method solves within τ times the fewest evaluations."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    wanted = {(row["family"], row["seed"]) for row in others}
    table: dict[str, dict[Any, float]] = defaultdict(dict)
    for row in [r for r in rows if (r["family"], r["seed"]) in wanted] + others:
        cost = row["evaluations"] if row["status"] == "solved" else np.inf
        table[row["method"]][row["family"], row["seed"]] = cost
    best = {key: min(costs[key] for costs in table.values()) for key in wanted}
    taus = np.geomspace(1, 1000, 300)
    figure, axes = plt.subplots(figsize=(6.4, 4.0))
    for (name, costs), style in zip(table.items(), ("-", ":", "--", "-."), strict=False):
        ratios = np.array([costs[key] / best[key] if np.isfinite(best[key]) else np.inf for key in wanted])
        axes.step(taus, [(ratios <= tau).mean() for tau in taus], style, where="post", label=name)
    axes.set(
        xscale="log",
        xlabel="τ: evaluations of F over the fewest of any method",
        ylabel="share of problems solved",
    )
    axes.set_ylim(0, 1.02)
    axes.legend(loc="lower right", frameon=False)
    axes.grid(alpha=0.3)
    figure.tight_layout()
    figure.savefig(output / "robustness.png", dpi=150)
