"""The paper's experiment: Cournot instances × three methods × step rules × seeds, measured off the clock."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd

from viceversa import metrics
from viceversa.driver import Record, Solution, solve
from viceversa.errors import InputError
from viceversa.experiments.claims import CONSTANT, SAME_STEPS
from viceversa.experiments.curves import BASELINES, METHODS
from viceversa.experiments.step_rules import (
    Moduli,
    Steps,
    candidates,
    constant_tikhonov_steps,
    corrected_steps,
    paper_steps,
)
from viceversa.experiments.tables import as_table
from viceversa.gallery import Instance, cournot
from viceversa.gallery.cournot import CAPACITY
from viceversa.gallery.piecewise_market import equilibrium

Report = Callable[[str, int, int], None]  # what is being done, how many of how many are finished


@dataclass(frozen=True)
class Settings:
    """What is run. Tuning sees other seeds than the reported ones, and gives every method the same evaluations of F."""

    sizes: tuple[tuple[int, int], ...] = ((50, 5), (50, 10), (100, 10))
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    tuning_seeds: tuple[int, ...] = (1000, 1001)
    n_iterations: int = 100_000
    tuning_evaluations: int = 5_000  # of F, for each candidate and tuning seed
    n_rows: int = 36  # recorded iterations, spread geometrically
    n_literal_sizes: int = 3  # instances in which the baselines also run with one multiplier per player
    learn: Literal["slope", "both"] = "slope"
    learning_factor: float = (
        0.9  # q; with both coefficients learned H allows no such factor, and the best one is used
    )


QUICK = Settings(
    seeds=(0, 1),
    tuning_seeds=(1000,),
    n_iterations=10_000,
    tuning_evaluations=2_000,
    n_rows=20,
    n_literal_sizes=1,
)


@dataclass(frozen=True)
class Run:
    """One cell: an instance, a method with its steps, and the words under which it enters the table."""

    instance: Instance
    seed: int
    steps: Steps
    step_rule: str
    tuning_score: float = np.nan
    tuning_evaluations: float = np.nan


def run_experiment(settings: Settings, report: Report = lambda *_: None) -> pd.DataFrame:
    """The long table of the whole experiment.

    All runs of one (N, D) and method share one compiled program. Tuning (or a short run) compiles it before anything is
    timed, two programs at a time; the reported runs then have the machine for themselves, one after the other.
    `seconds` are the run's seconds per iteration × the iteration.
    """
    rows: list[dict[str, Any]] = []
    n_done, n_runs = 0, sum(_n_runs(size, settings) for size in settings.sizes)
    for size in settings.sizes:
        where = f"({size[0]}, {size[1]})"
        tuned = {}
        with ThreadPoolExecutor(max_workers=2) as pool:
            jobs = [pool.submit(_compile_gaps, size, settings)]
            jobs += [pool.submit(_compile, method, size, settings) for method in _literal(size, settings)]
            tunings = {method: pool.submit(_tune, method, size, settings) for method in METHODS}
            for method, tuning in tunings.items():
                report(f"{where}: compiling and tuning {method}", n_done, n_runs)
                tuned[method], n_done = tuning.result(), n_done + 1
            for job in jobs:
                job.result()
        for run in _runs(size, tuned, settings):
            report(f"{where}: {run.steps.method}, seed {run.seed}", n_done, n_runs)
            rows += _measure(run, _solve(run.instance, run.steps, settings, settings.n_iterations), settings)
            n_done += 1
    report("done", n_runs, n_runs)
    return as_table(rows)


def draw(size: tuple[int, int], seed: int, settings: Settings) -> Instance:
    """The instance of one size and seed; the seed alone decides it, never the method."""
    return cournot(*size, seed=seed, learn=settings.learn)


def moduli(instance: Instance) -> Moduli:
    """The constants the step rules may use, over all of X and Θ."""
    assert instance.constants is not None
    c = instance.constants
    return Moduli(
        L_F=c["L_F_x"],
        L_F_theta=c["L_F_theta"],
        L_f=c["L_f_x"],
        L_f_theta=c["L_f_theta"],
        M=c["M_grad_f"],
        n_constraints=instance.problem.n_constraints,
        n_players=instance.problem.shape[0],
    )


def learning_rate(instance: Instance, settings: Settings) -> float:
    """η with the contraction factor asked for, or the best one where H allows no such factor."""
    learning = instance.problem.learning
    best = float(learning.default_rate())
    if learning.contraction(best) > settings.learning_factor:
        return best
    return learning.rate_for(settings.learning_factor)


def recording_grid(n_iterations: int, n_rows: int) -> np.ndarray:
    """`n_rows` different iterations from 1 to the last, as geometric as whole numbers allow.

    Always the same number of rows, so that runs of other lengths use the same compiled program.
    """
    if n_iterations < n_rows:
        raise InputError(f"n_iterations is {n_iterations}; at least n_rows = {n_rows} are needed.")
    grid = np.round(np.geomspace(1, n_iterations, n_rows)).astype(np.int64)
    for i in range(1, n_rows):  # whole numbers collide at the start: move them up
        grid[i] = max(grid[i], grid[i - 1] + 1)
    return np.minimum(grid, n_iterations - np.arange(n_rows)[::-1])


# -- what is run -------------------------------------------------------------------------------------------------
def _runs(size: tuple[int, int], tuned: dict[str, Run], settings: Settings) -> Iterator[Run]:
    for seed in settings.seeds:
        instance = draw(size, seed, settings)
        m = moduli(instance)
        for method in METHODS:
            yield Run(instance, seed, paper_steps(method, m), "paper")
            yield Run(instance, seed, corrected_steps(method, m), "corrected")
            best = tuned[method]
            yield Run(instance, seed, best.steps, "tuned", best.tuning_score, best.tuning_evaluations)
        yield Run(instance, seed, constant_tikhonov_steps(m), CONSTANT)
        # The paper's words read literally: a copy of the multipliers for every player.
        for method in _literal(size, settings):
            literal = paper_steps(method, m, "per_player")
            shared = Steps(**{**asdict(paper_steps(method, m)), "multipliers": "per_player"})
            yield Run(instance, seed, literal, "paper")
            yield Run(instance, seed, shared, SAME_STEPS)


def _literal(size: tuple[int, int], settings: Settings) -> tuple[str, ...]:
    """The methods that are also run with one multiplier per player, in this instance."""
    return BASELINES if size in settings.sizes[: settings.n_literal_sizes] else ()


def _n_runs(size: tuple[int, int], settings: Settings) -> int:
    """Reported runs of one instance, and its tunings."""
    per_seed = 3 * len(METHODS) + 1 + 2 * len(_literal(size, settings))
    return len(METHODS) + len(settings.seeds) * per_seed


def _compile(method: str, size: tuple[int, int], settings: Settings) -> None:
    """A short run with one multiplier per player, so that no reported run waits for the compiler."""
    instance = draw(size, settings.tuning_seeds[0], settings)
    _solve(instance, paper_steps(method, moduli(instance), "per_player"), settings, settings.n_rows)


def _compile_gaps(size: tuple[int, int], settings: Settings) -> None:
    instance = draw(size, settings.tuning_seeds[0], settings)
    _gaps(instance, instance.x_true[None], np.zeros(1))


def _tune(method: str, size: tuple[int, int], settings: Settings) -> Run:
    """Rule (c): of sixteen candidates the one with the smallest score after the same number of evaluations of F.

    The score is what the figure shows: the larger of gap and infeasibility of the average, geometric mean over the
    tuning seeds. Candidates come from the constants of the first tuning seed.
    """
    drawn = [draw(size, seed, settings) for seed in settings.tuning_seeds]
    proposed = candidates(method, moduli(drawn[0]))
    scores = np.zeros(len(proposed))
    for instance in drawn:
        ends = [
            _solve(instance, steps, settings, _n_tuning_iterations(steps, settings)) for steps in proposed
        ]
        infeasibility = np.array([end.trace.infeasibility_average_true[-1] for end in ends])
        _, gap = _gaps(instance, np.stack([end.x_average for end in ends]), infeasibility)
        scores += np.log(np.maximum(np.maximum(gap, infeasibility), 1e-300)) / len(drawn)
    best = int(np.argmin(np.where(np.isfinite(scores), scores, np.inf)))
    evaluations = float(settings.tuning_evaluations)
    return Run(
        drawn[0], settings.tuning_seeds[0], proposed[best], "tuned", float(np.exp(scores[best])), evaluations
    )


def _n_tuning_iterations(steps: Steps, settings: Settings) -> int:
    return settings.tuning_evaluations // steps.build(1.0).step_counts.F


def _solve(instance: Instance, steps: Steps, settings: Settings, n_iterations: int) -> Solution:
    record = Record(
        at=recording_grid(n_iterations, settings.n_rows),
        points=True,
        theta_true=instance.theta_true,
        x_true=instance.x_true,
    )
    return solve(
        instance.problem,
        steps.build(learning_rate(instance, settings)),
        theta0=instance.theta0,
        tol=0.0,
        max_iter=n_iterations,
        record=record,
    )


# -- what is measured, after the run -----------------------------------------------------------------------------
def _measure(run: Run, solution: Solution, settings: Settings) -> list[dict[str, Any]]:
    """Rows of one run: both points at every recorded iteration."""
    instance, trace = run.instance, solution.trace
    points = trace.points
    assert points is not None
    floor = _learning_floor(instance, points.theta)
    eta = learning_rate(instance, settings)
    same = {
        "n_firms": instance.problem.shape[0],
        "n_products": instance.problem.shape[1],
        "seed": run.seed,
        "step_rule": run.step_rule,
        "learning_rate": eta,
        "learning_factor": instance.problem.learning.contraction(eta),
        "tuning_score": run.tuning_score,
        "tuning_evaluations": run.tuning_evaluations,
        "learn": settings.learn,
        "slope_true": float(_slope_and_intercept(instance, instance.theta_true)[1]),
        "price_cap": float(instance.problem.constraints.price_cap),
        **asdict(run.steps),
    }
    rows = []
    for point, xs, error, infeasibility in (
        ("average", points.x_average, trace.x_average_error, trace.infeasibility_average_true),
        ("last", points.x, trace.x_error, trace.infeasibility_true),
    ):
        lower, upper = _gaps(instance, np.asarray(xs), infeasibility)
        for n, k in enumerate(trace.k):
            counts = trace.counts[n]
            rows.append(
                {
                    **same,
                    "point": point,
                    "iteration": int(k),
                    "operator_evaluations": counts.F,
                    "constraint_evaluations": counts.f,
                    "learning_evaluations": counts.H,
                    "seconds": trace.time[n],
                    "gap_lower": lower[n],
                    "gap_upper": upper[n],
                    "infeasibility": infeasibility[n],
                    "x_error": error[n],
                    "theta_error": trace.theta_error[n],
                    "learning_floor": floor[n],
                }
            )
    return rows


def _gaps(instance: Instance, xs: np.ndarray, infeasibility: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The relaxed gaps of several points at θ*, from below and from above.

    Each is relaxed by the point's own infeasibility, ε = 1ᵀ[f(x, θ*)]₊: the bound of the theorem holds for every
    ε ≥ 0, and the ε it names exceeds any possible infeasibility, which would relax the constraints away.
    """
    found = metrics.relaxed_gaps(instance.problem, xs, infeasibility, instance.theta_true)
    return found.lower, found.upper


def _learning_floor(instance: Instance, thetas: Any) -> np.ndarray:
    """‖x(θ_k) − x*‖ with x(θ) from the gallery's direct method; nan where the cap cannot be met at θ_k."""
    costs = instance.problem.operator.costs
    cap = float(instance.problem.constraints.price_cap)
    intercepts, slopes = np.broadcast_arrays(*_slope_and_intercept(instance, thetas))
    floor = np.full(len(slopes), np.nan)
    for n, (a, b) in enumerate(zip(intercepts, slopes, strict=True)):
        try:
            x = equilibrium(costs.r, costs.g, np.asarray(CAPACITY), float(a), float(b), cap, pooled=False).x
        except InputError:
            continue
        floor[n] = np.linalg.norm(x - instance.x_true)
    return floor


def _slope_and_intercept(instance: Instance, theta: Any) -> tuple[np.ndarray, np.ndarray]:
    """(a, b) of one θ or of a stack of them."""
    a, b = instance.problem.operator.demand.coefficients(theta)
    return np.asarray(a), np.asarray(b)
