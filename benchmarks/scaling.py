"""How the default solver's time grows with the number of unknowns, on Cournot markets with 10 products."""

from __future__ import annotations

import statistics
from pathlib import Path
from time import perf_counter

import viceversa as vv
from benchmarks import machine

FIRMS = (1_000, 10_000, 100_000, 1_000_000)
N_PRODUCTS = 10


def run(output: Path, quick: bool = False) -> None:
    """The table scaling."""
    rows = []
    for n_firms in FIRMS[: 1 if quick else None]:
        problem = vv.gallery.cournot(n_firms, N_PRODUCTS, 0).problem
        vv.solve(problem)  # compilation
        seconds, solution = [], None
        for _ in range(5 if n_firms <= 10_000 else 2):
            began = perf_counter()
            solution = vv.solve(problem)
            seconds.append(perf_counter() - began)
        assert solution is not None
        n, median = n_firms * N_PRODUCTS, statistics.median(seconds)
        worst = max(solution.certificate.relative.values())
        rows.append([n, median, 1e9 * median / n, solution.nit, solution.nfev, str(solution.status), worst])
        print(rows[-1], flush=True)
    machine.write(
        output,
        "scaling",
        "Time of the default solver against the number of unknowns",
        ["n", "seconds", "ns per unknown", "iterations", "evaluations of F", "status", "relative"],
        rows,
        "Cournot with 10 products, θ learned, tol 1e-8, compilation apart, the median of repeats. Linear growth would keep the "
        "nanoseconds per unknown constant.",
    )
