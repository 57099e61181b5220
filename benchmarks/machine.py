"""What the numbers were measured on, and the tables they are written to."""

from __future__ import annotations

import csv
import os
import platform
import shutil
import subprocess
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from time import process_time

import numpy as np


def describe() -> str:
    """One paragraph: processor, cores, compiler and versions."""
    parts = [f"{_processor()}, {os.cpu_count()} cores", f"Python {platform.python_version()}"]
    parts += [f"{name} {version(name)}" for name in ("jax", "jaxlib", "numpy")]
    compiler = c_compiler()
    if compiler:
        first = subprocess.run([compiler, "--version"], capture_output=True, text=True).stdout.splitlines()[0]
        parts.append(first)
    return "Measured on: " + "; ".join(parts) + f". Load when it began: {os.getloadavg()[0]:.1f}."


def c_compiler() -> str | None:
    """The machine's C compiler, if it has one."""
    return next((found for name in ("cc", "gcc", "clang") if (found := shutil.which(name))), None)


def copy_seconds(n: int, repeats: int = 25) -> float:
    """Processor seconds to copy n float64 numbers, the best of some repeats."""
    source, n_copies = np.ones(n), max(1, 200_000 // n)
    target = np.zeros_like(source)
    times = []
    for _ in range(repeats):
        began = process_time()
        for _ in range(n_copies):
            np.copyto(target, source)
        times.append((process_time() - began) / n_copies)
    return min(times)


def write(
    output: Path, name: str, title: str, header: Sequence[str], rows: Sequence[Sequence], notes: str
) -> None:
    """One table as `name.csv` (numbers) and `name.md` (to read, with the machine), and on the terminal."""
    output.mkdir(parents=True, exist_ok=True)
    with open(output / f"{name}.csv", "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(header)
        writer.writerows(rows)
    cells = [[_show(value) for value in row] for row in rows]
    table = [list(header), ["---"] * len(header), *cells]
    body = "\n".join("| " + " | ".join(row) + " |" for row in table)
    text = f"# {title}\n\n{describe()}\n\n{body}\n\n{notes}\n"
    (output / f"{name}.md").write_text(text)
    print(text, flush=True)


def _show(value) -> str:
    return (
        f"{value:.3g}"
        if isinstance(value, float) and abs(value) < 1000
        else (f"{value:.0f}" if isinstance(value, float) else str(value))
    )


def _processor() -> str:
    try:
        with open("/proc/cpuinfo") as file:
            return next(line.split(":", 1)[1].strip() for line in file if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()
