"""Seconds from a fresh process to the first answer, beyond `import jax`: a named method, the default solver, and the default
solver with JAX's persistent compilation cache filled by an earlier process."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks import machine

_PROGRAM = """
import json, sys, time
marks, busy = [time.perf_counter()], [time.process_time()]
def mark():
    marks.append(time.perf_counter()); busy.append(time.process_time())
import jax
jax.devices()
mark()
import numpy as np
import viceversa as vv
mark()
rng = np.random.default_rng(0)
quantity = rng.uniform(2, 20, 300)
costs = rng.uniform(1, 10, (50, 5)), rng.uniform(5, 20, (50, 5))
market = vv.cournot(costs, 5.0, (100 - quantity, quantity), price_cap=12.0, intercept=100.0)
mark()
if sys.argv[1] == "named":
    method = vv.AugmentedLagrangian(step_size=1e-3, penalty=0.1, learning_rate=1e-6)
    solve = lambda: vv.solve(market, method, tol=0.0, max_iter=1000)
else:
    solve = lambda: vv.solve(market, throw=True)
solve(); mark()
solve(); mark()
print(json.dumps([[b - a for a, b in zip(t, t[1:])] for t in (marks, busy)]))
"""
_STAGES = ("import jax", "import viceversa", "build the market", "first solve", "second solve")


def run(output: Path, quick: bool = False) -> None:
    """The table first_solve: medians over fresh processes."""
    n_runs = 1 if quick else 5
    with tempfile.TemporaryDirectory() as folder:
        cache = {"JAX_COMPILATION_CACHE_DIR": folder, "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}
        _fresh_process("default", cache)  # fills the cache
        kinds = {"named": {}, "default": {}, "default, cache warm": cache}
        rounds = [  # side by side, so that a busy minute falls on all of them
            {kind: _fresh_process(kind.split(",")[0], more) for kind, more in kinds.items()}
            for _ in range(n_runs)
        ]
    columns = []
    for kind in kinds:
        for part in (0, 1):
            runs = [[*one[kind][part], sum(one[kind][part][1:4])] for one in rounds]
            columns.append([*_medians(runs), min(run[-1] for run in runs)])
    rows = [
        [stage, *numbers]
        for stage, *numbers in zip(
            (*_STAGES, "beyond import jax", "the same, fastest"), *columns, strict=True
        )
    ]
    header = ["stage", *(f"{kind} [{unit}]" for kind in kinds for unit in ("s", "processor s"))]
    title = "The first solve in a fresh process (Cournot, n = 250)"
    machine.write(output, "first_solve", title, header, rows, _NOTES)


def _medians(runs: list[list[float]]) -> list[float]:
    return [statistics.median(column) for column in zip(*runs, strict=True)]


def _fresh_process(kind: str, more: dict[str, str]) -> list[list[float]]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("JAX_", "XLA_"))}
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, kind],
        stdout=subprocess.PIPE,
        text=True,
        env=environment | more,
        check=True,
    )
    return json.loads(done.stdout.splitlines()[-1])


_NOTES = """
The market is README's. `named` is Algorithm 1 with given steps, `default` is `vv.solve(market)`; `cache warm` is the default with
JAX's persistent compilation cache (`JAX_COMPILATION_CACHE_DIR`) filled by an earlier process. The goals, beyond `import jax` on
2 cores: 3 s, 4 s and 1.5 s. A cold first solve is almost all compilation; a warm one is tracing.
""".strip()
