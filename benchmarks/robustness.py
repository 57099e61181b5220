"""The robustness corpus and the gallery's known answers, solved with defaults and judged by what was planted.

`python -m benchmarks robustness` writes `results/robustness.csv` (one row per problem and method), `results/robustness.md`
(one row per family) and `results/robustness.png` (a performance profile in evaluations of F beside other methods).
"""

from __future__ import annotations

import csv
import inspect
import itertools
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.flatten_util
import jax.numpy as jnp
import numpy as np

import viceversa as vv
from benchmarks import corpus, corpus_congestion, corpus_markets, judge

TOL = 1e-8
# The gallery's answers: how far x may be from a published one that it has solved for.
PUBLISHED_TOL = 100 * TOL
# The adaptive methods are run on the first generated seeds only; extragradient on everything.
N_SEEDS_OTHERS = 2
_FAMILIES_KEPT = 8  # an operating system lets a process map only so many compiled programs
LIMIT_OTHERS = 10_000
_GALLERY_VARIANTS = {"harker": {"cap": 12.0}, "braess": {"bridge": False}, "internet_switching": {"bounded_first_user": True}}  # fmt: skip


class Case(NamedTuple):
    """A problem, its truth, and how an answer is judged."""

    family: str
    seed: int
    problem: Any
    truth: tuple[np.ndarray, np.ndarray, Any]  # x*, λ*, θ*
    theta0: Any
    judge: Any  # (x, multiplier, theta) → Verdict


# -- what is solved ------------------------------------------------------------------------------
# Each part of the corpus with its judge.
_PARTS: tuple[tuple[Callable, Callable], ...] = (
    (corpus.problems, judge.judge),
    (corpus_congestion.problems, corpus_congestion.judge),
    (corpus_markets.problems, corpus_markets.judge),
)


def generated(n_seeds: int) -> Iterator[Case]:
    """The corpus, family by family."""
    for problems, judged in _PARTS:
        yield from (generated_case(planted, judged) for planted in problems(n_seeds))


def generated_case(planted: Any, judged: Callable = judge.judge) -> Case:
    """A problem of the corpus, judged by what was planted."""
    truth = (planted.x_true, planted.multiplier_true, planted.theta_true)

    def verdict(x: np.ndarray, multiplier: np.ndarray, theta: np.ndarray) -> judge.Verdict:
        return judged(planted, x, multiplier, theta)

    return Case(planted.family.name, planted.seed, planted.problem, truth, planted.theta0, verdict)


def gallery() -> Iterator[Case]:
    """Every known-answer problem of the gallery."""
    yield from (
        gallery_case(entry.name, seed, entry.function(**options))
        for entry, seed, options in gallery_options()
    )


def gallery_options() -> Iterator[tuple[vv.gallery.Entry, int, dict[str, Any]]]:
    """Each entry with its number and options: θ known and learned where both exist, and its variants."""
    for entry in vv.gallery.instances():
        learned = "misspecified" in inspect.signature(entry.function).parameters
        variants = [{}, _GALLERY_VARIANTS[entry.name]] if entry.name in _GALLERY_VARIANTS else [{}]
        options = [{**v, "misspecified": m} for v in variants for m in (False, True)] if learned else variants
        yield from ((entry, seed, option) for seed, option in enumerate(options))


def gallery_case(name: str, seed: int, instance: vv.gallery.Instance) -> Case:
    """A gallery problem, judged by its published answer: x, or its aggregates where x is not unique."""
    multiplier = instance.multiplier_true
    multiplier = np.zeros(instance.problem.n_constraints) if multiplier is None else multiplier

    def verdict(x: np.ndarray, _: np.ndarray, theta: Any) -> judge.Verdict:
        error = judge.published_error(instance, x) if np.isfinite(x).all() else np.inf
        far = judge.relative_error(_flat(theta), _flat(instance.theta_true))
        return judge.Verdict(0.0, far, 0.0, 0.0, error, PUBLISHED_TOL)

    truth = (instance.x_true, multiplier, instance.theta_true)
    return Case(f"gallery: {name}", seed, instance.problem, truth, instance.theta0, verdict)


def _is_gallery(family: str) -> bool:
    return family.startswith("gallery")


def _flat(tree: Any) -> np.ndarray:
    return np.concatenate([np.ravel(np.asarray(leaf, float)) for leaf in jax.tree.leaves(tree)])


# -- the runs ------------------------------------------------------------------------------------
def run(output: Path, quick: bool = False) -> None:
    """Run, judge, write and print."""
    n_seeds = 1 if quick else corpus.N_SEEDS
    rows: list[dict[str, Any]] = []
    for n, cases in enumerate(_by_family(itertools.chain(generated(n_seeds), gallery())), start=1):
        began = time.process_time()
        mine = [row for case in cases for row in rows_of(case, with_others=not quick)]
        rows += mine
        print(f"{_progress(cases[0].family, mine)}, {time.process_time() - began:.1f} s", flush=True)
        if n % _FAMILIES_KEPT == 0:
            jax.clear_caches()
    write(output, rows)


def rows_of(case: Case, with_others: bool = True) -> list[dict[str, Any]]:
    """One problem solved with defaults and, to compare, by other methods."""
    rows = [_row("default", case, vv.solve(case.problem, theta0=case.theta0, tol=TOL))]
    for name, method in others(case) if with_others else []:
        if name == "extragradient" or (case.seed < N_SEEDS_OTHERS and not _is_gallery(case.family)):
            solution = vv.solve(case.problem, method, theta0=case.theta0, tol=TOL, max_iter=LIMIT_OTHERS)
            rows.append(_row(name, case, solution))
    return rows


def write(output: Path, rows: list[dict[str, Any]]) -> None:
    """The tables and the performance profile."""
    output.mkdir(parents=True, exist_ok=True)
    _write_csv(output, rows)
    text = summary(rows)
    (output / "robustness.md").write_text(text)
    print(text)
    if len({row["method"] for row in rows}) > 1:
        _write_profile(output, rows)


def _by_family(cases: Iterator[Case]) -> Iterator[list[Case]]:
    for _, mine in itertools.groupby(cases, key=lambda case: case.family):
        yield list(mine)


def _progress(family: str, rows: list[dict[str, Any]]) -> str:
    default, first = _of(rows, "default"), _of(rows, "extragradient")
    wrong = sum(row["wrong"] for row in default)
    return (
        f"{family:<36}{_n_solved(default):>3}/{len(default)} solved, {wrong} wrong, worst residual "
        f"{max(row['residual'] for row in default):.1e}, extragradient {_n_solved(first)}/{len(first)}"
    )


def others(case: Case) -> list[tuple[str, Any]]:
    """Methods to compare with: the two without constants, and extragradient with the step its theory allows."""
    return [
        ("extragradient", vv.ExtragradientLagrangian(step_size=0.5 / lipschitz(case))),
        ("adaptive Algorithm 1", vv.AdaptiveAugmentedLagrangian()),
        ("adaptive golden ratio", vv.AdaptiveGoldenRatio()),
    ]


def lipschitz(case: Case) -> float:
    """The norm of the KKT operator's Jacobian at the answer: what a user with the best information would take for L."""
    with jax.enable_x64(True):
        x, lam, theta = jax.tree.map(jnp.asarray, case.truth)
        F, f, _ = case.problem.at(theta)

        def kkt(joined):
            at, multiplier = joined[: x.size].reshape(x.shape), joined[x.size :]
            f_x, pullback = f.vjp(at)
            return jnp.concatenate([jnp.ravel(F(at) + pullback(multiplier)), -f_x])

        jacobian = jax.jacfwd(kkt)(jnp.concatenate([jnp.ravel(x), lam]))
        found = float(np.linalg.norm(np.asarray(jacobian), 2))
    return found if found > 0 else 1.0


def _row(method: str, case: Case, solution: Any) -> dict[str, Any]:
    verdict = case.judge(solution.x, solution.multiplier, solution.theta)
    return {
        "method": method,
        "family": case.family,
        "seed": case.seed,
        "status": solution.status.name,
        "solved": solution.success,
        "wrong": solution.success and verdict.is_wrong(TOL),
        **{name: float(value) for name, value in verdict._asdict().items()},
        "iterations": solution.nit,
        "evaluations": solution.nfev,
    }


# -- what is written -----------------------------------------------------------------------------
def _of(rows: list[dict[str, Any]], method: str) -> list[dict[str, Any]]:
    return [row for row in rows if row["method"] == method]


def _n_solved(rows: list[dict[str, Any]]) -> int:
    return sum(row["solved"] for row in rows)


def _write_csv(output: Path, rows: list[dict[str, Any]]) -> None:
    with open(output / "robustness.csv", "w", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=list(rows[0]))
        writer.writeheader()
        for row in rows:
            writer.writerow({k: f"{v:.3e}" if isinstance(v, float) else v for k, v in row.items()})


def summary(rows: list[dict[str, Any]]) -> str:
    """The table of families with the totals above it."""
    default, first = _of(rows, "default"), _of(rows, "extragradient")
    n_gallery = sum(_is_gallery(row["family"]) for row in default)
    n_solved, n_wrong = _n_solved(default), sum(row["wrong"] for row in default)
    lines = [
        "# Robustness corpus",
        "",
        f"{len(default)} problems ({len(default) - n_gallery} generated, {n_gallery} of the gallery), defaults, tol {TOL:g}: "
        f"**{n_solved} solved ({100 * n_solved / len(default):.1f}%)**, **{n_wrong} wrongly reported as solved**.",
        "",
    ]
    if first:
        failed = len(first) - _n_solved(first)
        lines += [
            f"Extragradient with the step 1/(2L), L at the answer, does not solve **{failed} of {len(first)} "
            f"({100 * failed / len(first):.0f}%)** in {LIMIT_OTHERS} iterations.",
            "",
        ]
    lines += [
        "Judged in NumPy (`benchmarks/judge.py`) against the planted answer; the worst over the seeds. *Residual*: the",
        f"inequalities behind `solved`, recomputed, and the true error of θ; wrong above {TOL:g}. *At the truth*: the KKT residual at θ*",
        f"in units of the forces at x alone, and ⟨F(x) − F(x*), x − x*⟩, zero at every solution; wrong above {100 * TOL:g}. *x error*:",
        "‖x − x*‖ in natural units where F is strongly monotone, beside what the residuals prove about it; wrong above that.",
        "In the rows of the gallery the residual is the error of θ, and the x error the relative distance to the known answer;",
        f"wrong above {PUBLISHED_TOL:g}.",
        "",
        "| family | solved | residual | at the truth | x error | proved | iterations | F evaluations | extragradient |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    by_family: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        by_family[row["family"]].append(row)
    lines += [_family_line(family, mine) for family, mine in by_family.items()]
    return "\n".join(lines) + "\n"


def _family_line(family: str, rows: list[dict[str, Any]]) -> str:
    default, first = _of(rows, "default"), _of(rows, "extragradient")

    def worst(*names: str) -> str:
        values = [row[name] for row in default for name in names]
        return "–" if np.isnan(values).any() else f"{max(values):.1e}"

    cells = [
        family,
        f"{_n_solved(default)}/{len(default)}",
        worst("residual", "theta_error"),
        "–" if _is_gallery(family) else worst("true_residual", "disagreement"),
        worst("x_error"),
        "–" if _is_gallery(family) else worst("x_bound"),
        *(f"{np.median([row[name] for row in default]):.0f}" for name in ("iterations", "evaluations")),
        f"{_n_solved(first)}/{len(first)}" if first else "–",
    ]
    return f"| {' | '.join(cells)} |"


def _write_profile(output: Path, rows: list[dict[str, Any]]) -> None:
    """Dolan and Moré's profile: the share of problems a method solves within τ times the fewest evaluations."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    wanted = {
        (row["family"], row["seed"])
        for row in rows
        if row["seed"] < N_SEEDS_OTHERS and not _is_gallery(row["family"])
    }
    table: dict[str, dict[Any, float]] = defaultdict(dict)
    for row in rows:
        cost = max(row["evaluations"], 1) if row["solved"] else np.inf
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
