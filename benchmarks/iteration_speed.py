"""µs per iteration of Algorithm 1 on Cournot: `vv.solve` beside NumPy, numba and C loops of the same arithmetic.

Every number is the median over repeats of (time of many iterations − time of few) / (their difference), all loops
taking turns in one process, so that set-up drops out. Times are processor time, which other work on the machine
hardly changes; where XLA uses two threads both count, to its disadvantage.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from pathlib import Path
from time import perf_counter, process_time

import numpy as np

import viceversa as vv
from benchmarks import machine, plain_loops
from benchmarks.market import Numbers, market, method

SIZES = ((50, 5), (100, 10), (1_000, 10), (10_000, 10), (100_000, 10))
RECORDED_SIZES = ((50, 5), (100, 10), (1_000, 10), (10_000, 10))
N_STREAMS = 8  # arrays a single pass must read (x, F_prev, average, r, g) and write (x, F_prev, average)
_FEW = 0.1  # the shorter of the two runs, as a fraction of the longer


def run(output: Path, quick: bool = False) -> None:
    """Both tables: iteration_speed and recording."""
    sizes = ((5, 2), (10, 3)) if quick else SIZES
    loops = _loops()
    rows = [_row(n_firms, n_products, loops, quick) for n_firms, n_products in sizes]
    machine.write(
        output, "iteration_speed", "µs per iteration of Algorithm 1 on Cournot", _header(), rows, _NOTES
    )
    sizes = ((5, 2),) if quick else RECORDED_SIZES
    recorded = [_recording_row(n_firms, n_products, quick) for n_firms, n_products in sizes]
    header = ["n", "iterations", "start and end only [ms]", "default grid [ms]", "cost [%]"]
    header += ["start and end only, processor [ms]", "default grid, processor [ms]", "cost, processor [%]"]
    machine.write(
        output, "recording", "What recording on the default grid costs", header, recorded, _RECORDED
    )


def _loops() -> dict[str, plain_loops.Loop | None]:
    in_c = plain_loops.c_loops()
    return {
        "numpy": plain_loops.numpy_loop,
        "numba": plain_loops.numba_loop(),
        "C": in_c.get("as_declared"),
        "C fused": in_c.get("fused"),
    }


def _header() -> list[str]:
    times = [f"{name} [µs]" for name in ("viceversa", "numpy", "numba", "C", "C fused", "streaming limit")]
    return ["n", *times, "viceversa / C", "viceversa / C fused", "numpy / viceversa"]


def _row(n_firms: int, n_products: int, loops: dict[str, plain_loops.Loop | None], quick: bool) -> list:
    problem, at = market(n_firms, n_products)
    n = at.r.size
    n_steps = 20 if quick else int(np.clip(2e7 / n, 40, 20_000))
    contenders: dict[str, Callable[[int], object]] = {"viceversa": _solver(problem, at)}
    contenders |= {name: _bound(loop, at) for name, loop in loops.items() if loop is not None}
    _check_agreement(contenders, n_steps=10)
    times = _take_turns(contenders, n_steps, 2 if quick else 11)
    limit = 1e6 * machine.copy_seconds(N_STREAMS // 2 * n)  # a copy reads and writes
    microseconds = {name: 1e6 * seconds for name, seconds in times.items()}
    ours = microseconds["viceversa"]
    ratios = [ours / microseconds.get("C", np.nan), ours / microseconds.get("C fused", np.nan)]
    listed = [microseconds.get(name, np.nan) for name in ("viceversa", "numpy", "numba", "C", "C fused")]
    return [n, *(float(value) for value in (*listed, limit, *ratios, microseconds["numpy"] / ours))]


def _solver(problem: vv.MisspecifiedVI, at: Numbers) -> Callable[[int], vv.Solution]:
    rule = method(at)

    def solve(n_steps: int) -> vv.Solution:
        record = vv.Record(at=[n_steps])
        return vv.solve(problem, rule, theta0=at.b0, tol=0.0, max_iter=n_steps, record=record)

    return solve


def _bound(loop: plain_loops.Loop, at: Numbers) -> Callable[[int], tuple]:
    return lambda n_steps: loop(at, n_steps)


def _check_agreement(contenders: dict[str, Callable], n_steps: int) -> None:
    """All loops must be the same iteration, or their times say nothing."""
    ours = contenders["viceversa"](n_steps)
    for name, loop in contenders.items():
        if name == "viceversa":
            continue
        x, lam, b, average = loop(n_steps)
        pairs = ((ours.x, x), (ours.multiplier, lam), (ours.theta, b), (ours.x_average, average))
        if not all(np.allclose(u, v, rtol=1e-9, atol=1e-11) for u, v in pairs):
            raise AssertionError(f"the {name} loop does not do what viceversa does")


def _take_turns(contenders: dict[str, Callable], n_steps: int, n_repeats: int) -> dict[str, float]:
    """Median seconds per iteration of each; NumPy's slower loop gets fewer iterations at small sizes."""
    lengths = {name: max(n_steps // 10, 20) if name == "numpy" else n_steps for name in contenders}
    for name, loop in contenders.items():  # compile, and touch every page once
        loop(lengths[name])
        loop(max(int(_FEW * lengths[name]), 1))
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(n_repeats):
        for name, loop in contenders.items():
            many, few = lengths[name], max(int(_FEW * lengths[name]), 1)
            times[name].append((_seconds(loop, many) - _seconds(loop, few)) / (many - few))
    return {name: statistics.median(seconds) for name, seconds in times.items()}


def _seconds(function: Callable, *arguments, clock: Callable[[], float] = process_time) -> float:
    began = clock()
    function(*arguments)
    return clock() - began


def _recording_row(n_firms: int, n_products: int, quick: bool) -> list:
    problem, at = market(n_firms, n_products)
    n_steps = 100 if quick else 10_000
    rule = method(at)

    def solve(record: vv.Record) -> None:
        vv.solve(problem, rule, theta0=at.b0, tol=0.0, max_iter=n_steps, record=record)

    ends, default = vv.Record(at=[n_steps]), vv.Record()
    solve(ends)
    solve(default)
    n_repeats = 2 if quick else 3 if at.r.size > 10_000 else 31
    row: list = [at.r.size, n_steps]
    for clock in (perf_counter, process_time):
        times = [
            (_seconds(solve, ends, clock=clock), _seconds(solve, default, clock=clock))
            for _ in range(n_repeats)
        ]
        without, with_grid = (statistics.median(part) for part in zip(*times, strict=True))
        ratio = statistics.median(pair[1] / pair[0] for pair in times)
        row += [1e3 * without, 1e3 * with_grid, 100.0 * (ratio - 1.0)]
    return row


_NOTES = """
`C` evaluates each oracle as Algorithm 1 declares it: F with its totals, f at x_k and its pullback, f at x_{k+1}
(gcc -O3 -march=native, one thread, no -ffast-math). `C fused` is written by hand knowing that all of them need the
same totals: one pass over the arrays. The goal is at most 1.5 × C for n ≥ 1000 and 2 × C at n = 250. The streaming limit is
the time to copy four arrays of x's size: as much is read and written as in one fused pass. Times are processor time; from
n = 10⁵ on XLA uses a second thread for some of the passes, and both are counted.
""".strip()

_RECORDED = """
The default grid has 24 rows; each computes every residual once. Seconds on the clock, and processor time, which also counts a second
thread that some of these computations wake up. The goal is at most 10 %.
""".strip()
