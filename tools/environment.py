"""Bring `.venv` to the state the named lock files describe, the package itself installed editable.

Run by make with any Python 3.11+:  python tools/environment.py requirements.lock [more.lock ...]
A second run with nothing changed does nothing. An interrupted run is noticed and the environment is made anew.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
STATE = VENV / "viceversa-state.json"


def main(locks: list[str]) -> None:
    # One set-up at a time: a second make in the same directory waits here and then finds everything done.
    with open(ROOT / "pyproject.toml") as guard:
        fcntl.flock(guard, fcntl.LOCK_EX)
        state = read_state()
        if not healthy(state):
            state = create()
        for lock in locks:
            packages = pinned(ROOT / lock)
            install(state, lock, ["-r", lock], f"{len(packages)} packages of {lock}", packages=len(packages))
        # The build backend is pinned in the lock, so nothing is fetched here.
        install(state, "pyproject.toml", ["--no-deps", "--no-build-isolation", "-e", "."], "viceversa itself")


def healthy(state: dict) -> bool:
    """Whether the environment is whole, for this Python, and in the place it was made (scripts contain the path)."""
    return PYTHON.exists() and state.get("whole") and state.get("made") == identity()


def identity() -> dict:
    return {"python": "{}.{}".format(*sys.version_info), "root": str(ROOT)}


def create() -> dict:
    try:
        import ensurepip  # noqa: F401  (Debian ships Python without it)
    except ImportError:
        sys.exit(
            f"{sys.executable} cannot make virtual environments because its venv module is incomplete; "
            "install it (on Debian and Ubuntu: apt install python3-venv) or name another Python, "
            "as in: make PYTHON=/path/to/python3.11 test"
        )
    print(f"Creating .venv with Python {sys.version.split()[0]} ...", flush=True)
    run([sys.executable, "-m", "venv", "--clear", str(VENV)], "Creating .venv")
    state = {"made": identity(), "whole": True, "installed": {}}
    write_state(state)
    return state


def install(state: dict, key: str, arguments: list[str], what: str, packages: int = 1) -> None:
    """Install unless the file `key` is the one installed last time; `whole` is false meanwhile."""
    digest = hashlib.sha256((ROOT / key).read_bytes()).hexdigest()
    if state["installed"].get(key) == digest:
        return
    print(f"Installing {what} into .venv ...", flush=True)
    started = time.monotonic()
    write_state({**state, "whole": False})
    # Compiling every file of every package takes longer than compiling the used ones on first import.
    pip = [str(PYTHON), "-m", "pip", "--disable-pip-version-check", "--no-input", "install", "--no-compile"]
    run([*pip, *arguments], f"Installing {what}", packages)
    state["installed"][key] = digest
    write_state(state)
    print(f"  done in {time.monotonic() - started:.0f} s.", flush=True)


def run(command: list[str], what: str, packages: int = 0) -> None:
    """Run quietly, a counter on a terminal; on failure show what the command said."""
    said: list[str] = []
    collected = 0
    with subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            said.append(line)
            if line.startswith("Collecting "):
                collected += 1
                show(f"  {collected} of {packages}: {line.split()[1]}")
            elif line.startswith("Installing collected packages"):
                show("  unpacking ...")
    show("")
    if process.returncode:
        sys.stderr.write("".join(said))
        sys.exit(
            f"{what} failed; the lines above are what pip or venv said. Run make again once the cause is gone."
        )


def show(text: str) -> None:
    if sys.stdout.isatty():
        print(f"\r\033[K{text}", end="", flush=True)


def pinned(lock: Path) -> list[str]:
    return [line for line in lock.read_text().splitlines() if line and not line.startswith("#")]


def read_state() -> dict:
    try:
        return json.loads(STATE.read_text())
    except (OSError, ValueError):
        return {}


def write_state(state: dict) -> None:
    STATE.write_text(json.dumps(state, indent=1))


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except KeyboardInterrupt:
        sys.exit("Interrupted; the next make starts the environment anew.")
