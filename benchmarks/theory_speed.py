"""Seconds that `constants`, `audit` and `certify` take on the (100, 10) market, first (with compilation) and again."""

from __future__ import annotations

import statistics
from pathlib import Path
from time import perf_counter, process_time

import viceversa as vv
from benchmarks import machine


def run(output: Path, quick: bool = False) -> None:
    """The table theory_speed."""
    instance = vv.gallery.cournot(20 if quick else 100, 2 if quick else 10, 0)
    problem, x, lam, theta = instance.problem, instance.x_true, instance.multiplier_true, instance.theta_true
    constants = vv.constants(problem)
    tasks = {
        "constants": (lambda: vv.constants(problem), "5 s"),
        "audit": (lambda: vv.audit(problem), "5 s"),
        "certify": (lambda: vv.certify(problem, x, lam, theta), "1 s"),
        "certify, detail": (
            lambda: vv.certify(problem, x, lam, theta, detail=True, constants=constants),
            "–",
        ),
        "explain": (lambda: vv.explain(problem, x, lam, theta, constants=constants), "–"),
    }
    rows = []
    for name, (task, goal) in tasks.items():
        first, _ = _time(task)
        again = [_time(task) for _ in range(1 if quick else 5)]
        wall, busy = (statistics.median(part) for part in zip(*again, strict=True))
        rows.append([name, first, wall, busy, goal])
    header = [
        "task",
        "first, seconds",
        "again, seconds",
        "again, processor seconds",
        "goal after compilation",
    ]
    title = f"Theory on the market with {problem.shape} quantities"
    machine.write(output, "theory_speed", title, header, rows, _NOTES)


def _time(task) -> tuple[float, float]:
    wall, busy = perf_counter(), process_time()
    task()
    return perf_counter() - wall, process_time() - busy


_NOTES = (
    "`constants` was called once before the first row, so its programs are traced; medians of five calls."
)

if __name__ == "__main__":
    run(Path(__file__).parent / "results")
