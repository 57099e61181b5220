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

def peak(problem, numbers):
    gc.collect()
    before = status("VmRSS:")
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")  # the high-water mark starts anew
    solution = vv.solve(problem, method(numbers), theta0=numbers.b0, tol=0.0, max_iter=5)
    assert solution.x.shape == problem.shape and solution.nit == 5
    return status("VmHWM:") - before

compiler = peak(*market(60_000, 10))  # the smallest sizes are compiled in another way
large = market(int(sys.argv[1]), int(sys.argv[2]))
held = status("VmRSS:")
first = peak(*large)
gc.collect()
print(json.dumps([compiler, held, first, status("VmRSS:") - held, peak(*large)]))
"""


def run(output: Path, quick: bool = False) -> None:
    """The table memory."""
    if not Path("/proc/self/clear_refs").exists():
        print("memory: needs Linux's /proc/self/clear_refs; skipped.")
        return
    rows = [_row(*size) for size in ([(10_000, 10)] if quick else [(100_000, 10), (1_000_000, 10)])]
    title = "Memory of a solve, in arrays of x's size"
    machine.write(output, "memory", title, _HEADER, rows, _NOTES)


def _row(n_firms: int, n_products: int) -> list:
    root = str(Path(__file__).resolve().parent.parent)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([root, os.environ.get("PYTHONPATH", "")])}
    command = [sys.executable, "-c", _PROGRAM, str(n_firms), str(n_products)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=environment)
    compiler, held, first, left, second = json.loads(done.stdout.splitlines()[-1])
    array = 8 * n_firms * n_products
    arrays = [first / array, left / array, second / array]
    return [n_firms * n_products, array / 1e6, compiler / 1e6, held / 1e6, *arrays]


_HEADER = [
    "n",
    "x [MB]",
    "compiler, once in a process [MB]",
    "held with the problem built [MB]",
    "first solve",
    "left by the first",
    "second solve",
]

_NOTES = """
Peak resident memory during 5 iterations, minus what was resident just before the solve, over the size of x; `left by the
first` is what stays resident after its solution was dropped. Compilers and threads take what the third column says in the
first solve of a process, here one with n = 6·10⁵ (its own arrays, of 5 MB each, included); each later program, as in the
column `first solve`, some 50 MB at any size. The goal is at most 8 at n = 10⁷.
""".strip()
