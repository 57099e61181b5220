"""Peak memory of a solve in arrays of x's size, beyond what the process held once the problem was built (Linux)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from benchmarks import machine

_PROGRAM = """
import gc, json, sys
import viceversa as vv
from benchmarks.market import market, method

def status(key):
    with open("/proc/self/status") as file:
        return 1024 * next(int(line.split()[1]) for line in file if line.startswith(key))

def solve(sizes):
    problem, numbers = market(*sizes)
    gc.collect()
    before = status("VmRSS:")
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")  # the high-water mark starts anew
    solution = vv.solve(problem, method(numbers), theta0=numbers.b0, tol=0.0, max_iter=5)
    peak, after = status("VmHWM:"), status("VmRSS:")
    assert solution.x.shape == sizes and solution.nit == 5
    return before, peak, after

solve((7, 3))  # compilers and threads are paid for on a small problem
print(json.dumps(solve((int(sys.argv[1]), int(sys.argv[2])))))
"""


def run(output: Path, quick: bool = False) -> None:
    """The table memory."""
    if not Path("/proc/self/clear_refs").exists():
        print("memory: needs Linux's /proc/self/clear_refs; skipped.")
        return
    sizes = [(10_000, 10)] if quick else [(100_000, 10), (1_000_000, 10)]
    rows = [_row(*size) for size in sizes]
    header = [
        "n",
        "x [MB]",
        "problem held before [MB]",
        "peak during solve, arrays beyond",
        "kept after, arrays beyond",
    ]
    machine.write(output, "memory", "Memory of a solve, in arrays of x's size", header, rows, _NOTES)


def _row(n_firms: int, n_products: int) -> list:
    root = str(Path(__file__).resolve().parent.parent)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([root, os.environ.get("PYTHONPATH", "")])}
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, str(n_firms), str(n_products)],
        stdout=subprocess.PIPE, text=True, check=True, env=environment,
    )  # fmt: skip
    before, peak, after = json.loads(done.stdout.splitlines()[-1])
    array = 8 * n_firms * n_products
    return [
        n_firms * n_products,
        array / 1e6,
        before / 1e6,
        (peak - before) / array,
        (after - before) / array,
    ]


_NOTES = """
Peak resident memory during 5 iterations, minus what was resident once the problem was built, over the size of x; the
compiled program of the large problem (some tens of MB) is included. The goal is at most 8 arrays at n = 10⁷.
""".strip()
