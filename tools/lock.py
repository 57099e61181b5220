"""Renew the lock files: install the newest versions that pyproject.toml allows into a clean environment, write down what came.

The lock is made with the oldest supported Python, because newer releases of a package may have left it behind
while older releases still install on newer Pythons.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
OLDEST = (3, 11)
HEADER = "# Exact versions of {what}, by `make lock`; the ranges are in pyproject.toml.\n"
# The backend is pinned too: the package is installed with it and without build isolation.
BUILD_EXTRA = ["editables"]


def main() -> None:
    if sys.version_info[:2] != OLDEST:
        sys.exit(
            "make lock needs Python {}.{}, the oldest supported: make PYTHON=python3.11 lock".format(*OLDEST)
        )
    with tempfile.TemporaryDirectory() as directory:
        python = Path(directory) / "venv" / "bin" / "python"
        say("Creating a clean environment ...")
        call(sys.executable, "-m", "venv", Path(directory) / "venv")
        build = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]
        runtime = locked(python, "all", [*build, *BUILD_EXTRA])
        write("requirements.lock", "what the package needs with every extra a user meets", runtime)
        checked = locked(python, "dev", [])
        write("requirements-dev.lock", "what the checks need beyond requirements.lock", checked - runtime)
        changed = runtime - checked
        benched = locked(python, "bench", [])
        write(
            "requirements-bench.lock", "what the benchmarks need beyond requirements.lock", benched - checked
        )
        changed |= checked - benched
    if changed:
        sys.exit(f"The extras disagree about {', '.join(sorted(changed))}: narrow the ranges and lock again.")


def locked(python: Path, extra: str, more: list[str]) -> set[str]:
    say(f"Installing the extra {extra!r} ...")
    pip = [python, "-m", "pip", "--disable-pip-version-check"]
    call(*pip, "install", "-q", "--no-compile", f"{ROOT}[{extra}]", *more)
    frozen = call(*pip, "freeze", "--exclude", "viceversa", "--exclude", "pip", "--exclude", "setuptools")
    return {line for line in frozen.splitlines() if "==" in line}


def write(name: str, what: str, pins: set[str]) -> None:
    (ROOT / name).write_text(
        HEADER.format(what=what) + "".join(f"{pin}\n" for pin in sorted(pins, key=str.lower))
    )
    say(f"{name}: {len(pins)} packages.")


def call(*command: object) -> str:
    return subprocess.run([str(c) for c in command], check=True, stdout=subprocess.PIPE, text=True).stdout


def say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    main()
