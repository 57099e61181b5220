"""`python -m benchmarks` runs every benchmark; names choose some, `--list` shows them, `--quick` shrinks them."""

from __future__ import annotations

import argparse
import importlib
import os
from pathlib import Path

BENCHMARKS = {
    "iteration_speed": "µs per iteration of Algorithm 1 beside NumPy, numba and C; what recording costs",
    "first_solve": "seconds from a fresh process to the first answer, beyond `import jax`",
    "peers": "the default solver beside QP, NLP and root-finding packages that are given θ* (pip install 'viceversa[peers]')",
    "robustness": "640 planted problems and the gallery, solved with defaults and judged by the planted answers, beside other methods",
    "theory_speed": "seconds that constants, audit and certify take on the (100, 10) market",
    "table1": "the paper's Table 1 with measured rates",
    "apps": "the applications at full size, each answer checked by a solver or formula outside the package",
    "scaling": "seconds of the default solver from 10⁴ to 10⁷ unknowns",
    "memory": "arrays of x's size that a solve with 10⁷ unknowns needs beyond the problem's data",
}

OPTIONAL = ("apps", "peers")  # minutes, or packages of their own: these run only when named


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"of {', '.join(BENCHMARKS)}; all by default"
    )
    parser.add_argument("--list", action="store_true", help="say what there is and stop")
    parser.add_argument(
        "--quick", action="store_true", help="small sizes, few repeats: only to see that it runs"
    )
    parser.add_argument(
        "--output", type=Path, default=Path(__file__).parent / "results", help="where tables go"
    )
    given = parser.parse_args(arguments)
    unknown = [name for name in given.names if name not in BENCHMARKS]
    if unknown:
        parser.error(f"there is no benchmark {unknown[0]!r}; there are {', '.join(BENCHMARKS)}")
    if "apps" in given.names:
        # Before NumPy loads: on a busy machine the threads of BLAS and of XLA wait for each other.
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    chosen = [name for name in BENCHMARKS if given.list or name not in OPTIONAL]
    for name in given.names or chosen:
        print(f"{name}: {BENCHMARKS[name]}", flush=True)
        if not given.list:
            importlib.import_module(f"benchmarks.{name}").run(given.output, quick=given.quick)


if __name__ == "__main__":
    main()
