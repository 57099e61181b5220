"""Seconds from a fresh process to the first answer of a named method, beyond `import jax`; nothing is cached on disk."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

from benchmarks import machine

_PROGRAM = """
import json, time
marks, busy = [time.perf_counter()], [time.process_time()]
def mark():
    marks.append(time.perf_counter()); busy.append(time.process_time())
import jax
jax.devices()
mark()
import numpy as np
import viceversa as vv
mark()
instance = vv.gallery.cournot(50, 5, 0)
mark()
method = vv.AugmentedLagrangian(step_size=1e-3, penalty=0.1, learning_rate=1e-6)
solve = lambda: vv.solve(instance.problem, method, theta0=instance.theta0, tol=0.0, max_iter=1000)
solve(); mark()
solve(); mark()
print(json.dumps([[b - a for a, b in zip(t, t[1:])] for t in (marks, busy)]))
"""
_STAGES = ("import jax", "import viceversa", "build the market", "first solve", "second solve")


def run(output: Path, quick: bool = False) -> None:
    """The table first_solve: medians over fresh processes."""
    runs = [_fresh_process() for _ in range(1 if quick else 5)]
    wall, busy = (
        [statistics.median(column) for column in zip(*part, strict=True)] for part in zip(*runs, strict=True)
    )
    rows = [[stage, w, b] for stage, w, b in zip(_STAGES, wall, busy, strict=True)]
    rows.append(["beyond import jax", sum(wall[1:4]), sum(busy[1:4])])
    header = ["stage", "seconds", "processor seconds"]
    machine.write(
        output, "first_solve", "The first solve in a fresh process (Cournot, n = 250)", header, rows, _NOTES
    )


def _fresh_process() -> list[list[float]]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("JAX_")}
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM],
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
        check=True,
    )
    return json.loads(done.stdout.splitlines()[-1])


_NOTES = "The goal is at most 3 s beyond `import jax` on 2 cores. `first solve` is almost all compilation."
