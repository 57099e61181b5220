"""The set-up: one sentence for an old Python, any path, pinned versions, and nothing heavy on import."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
LOCKS = ("requirements.lock", "requirements-dev.lock", "requirements-bench.lock")


@pytest.fixture
def project(tmp_path):
    """The Makefile and its tools alone, in a directory with a space in its name."""
    directory = tmp_path / "a b"
    directory.mkdir()
    for name in ("Makefile", "pyproject.toml", *LOCKS):
        shutil.copy(ROOT / name, directory)
    shutil.copytree(ROOT / "tools", directory / "tools")
    return directory


def make(project, *arguments):
    # The variables of an outer make must not reach this one.
    environment = {
        k: v for k, v in os.environ.items() if k not in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS", "PYTHON")
    }
    return subprocess.run(
        ["make", *arguments], cwd=project, env=environment, capture_output=True, text=True, timeout=60
    )


def interpreter(path, version):
    """A stand-in for a Python of the given version: it runs `-c` programs and nothing else."""
    pretend = f"import sys; sys.version_info = {version}; sys.version = '{'.'.join(map(str, version))} (old)'; exec(sys.argv[1])"
    path.write_text(f'#!/bin/sh\n[ "$1" = -c ] || exit 9\nexec "{sys.executable}" -c "{pretend}" "$2"\n')
    path.chmod(0o755)
    return path


@pytest.mark.parametrize("goal", ["reproduce", "test", "setup", "bench", "lock"])
def test_old_python_is_refused_in_one_sentence(project, goal):
    old = interpreter(project / "old python", (3, 8, 18))
    result = make(project, f"PYTHON={old}", goal)
    assert result.returncode != 0
    assert result.stdout == ""
    (sentence,) = result.stderr.splitlines()
    assert "needs Python 3.11 or newer" in sentence
    assert "is Python 3.8.18" in sentence
    assert f"make PYTHON=/path/to/python3.11 {goal}" in sentence
    assert not (project / ".venv").exists()


def test_missing_python_is_refused_in_one_sentence(project):
    result = make(project, "PYTHON=python-that-is-not-here", "test")
    (sentence,) = result.stderr.splitlines()
    assert result.returncode != 0
    assert "python-that-is-not-here does not run" in sentence


def test_python_3_11_is_accepted(project):
    exact = interpreter(project / "exact", (3, 11, 0))
    result = make(project, "--dry-run", f"PYTHON={exact}", "reproduce")
    assert result.returncode == 0, result.stderr
    assert f'"{exact}" tools/environment.py requirements.lock' in result.stdout


def test_newer_python_is_found_behind_an_old_one(project, tmp_path, monkeypatch):
    programs = tmp_path / "bin"
    programs.mkdir()
    interpreter(programs / "python3", (3, 9, 1))
    interpreter(programs / "python3.12", (3, 12, 0))
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    result = make(project, "--dry-run", "setup")
    chosen = re.search(r'"(\S+)" tools/environment\.py', result.stdout)
    assert chosen, result.stderr
    assert chosen[1] != "python3"


def test_make_alone_explains_itself(project):
    result = make(project)
    assert result.returncode == 0
    assert "make reproduce" in result.stdout
    assert "make test" in result.stdout


def test_environment_is_left_alone_when_nothing_changed(project, monkeypatch, capsys):
    environment = load_environment(project)
    installed = []
    monkeypatch.setattr(
        environment, "run", lambda command, *_: installed.append(command) or fake_venv(environment)
    )
    environment.main(["requirements.lock"])
    assert len(installed) == 3  # venv, lock, package
    assert "Installing" in capsys.readouterr().out
    environment.main(["requirements.lock"])
    assert len(installed) == 3
    assert capsys.readouterr().out == ""


def test_changed_lock_is_installed_again_without_starting_over(project, monkeypatch):
    environment = load_environment(project)
    installed = []
    monkeypatch.setattr(
        environment, "run", lambda command, *_: installed.append(command) or fake_venv(environment)
    )
    environment.main(["requirements.lock"])
    (project / "requirements.lock").write_text("numpy==2.4.6\n")
    environment.main(["requirements.lock"])
    assert [command[-2:] for command in installed[3:]] == [["-r", "requirements.lock"]]


@pytest.mark.parametrize("accident", ["interrupted", "moved", "interpreter gone", "state unreadable"])
def test_broken_environment_is_made_anew(project, monkeypatch, accident):
    environment = load_environment(project)
    commands = []

    def interrupt(command, *_):
        fake_venv(environment)
        if "-r" in command:
            raise KeyboardInterrupt

    def succeed(command, *_):
        commands.append(command)
        fake_venv(environment)

    monkeypatch.setattr(environment, "run", succeed)
    if accident == "interrupted":
        monkeypatch.setattr(environment, "run", interrupt)
        with pytest.raises(KeyboardInterrupt):
            environment.main(["requirements.lock"])
        monkeypatch.setattr(environment, "run", succeed)
    else:
        environment.main(["requirements.lock"])
    if accident == "moved":
        project = project.rename(project.with_name("c d"))
        environment = load_environment(project)
        monkeypatch.setattr(environment, "run", succeed)
    elif accident == "interpreter gone":
        environment.PYTHON.unlink()
    elif accident == "state unreadable":
        environment.STATE.write_text("{")
    commands.clear()
    environment.main(["requirements.lock"])
    assert commands[0][1:4] == ["-m", "venv", "--clear"]
    assert len(commands) == 3


def load_environment(project):
    """tools/environment.py of the copied project, as a module."""
    from importlib.util import module_from_spec, spec_from_file_location

    spec = spec_from_file_location("environment", project / "tools" / "environment.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def fake_venv(environment):
    environment.PYTHON.parent.mkdir(parents=True, exist_ok=True)
    environment.PYTHON.touch()


@pytest.mark.parametrize("lock", LOCKS)
def test_locks_pin_exact_versions_and_name_no_host(lock):
    lines = [line for line in (ROOT / lock).read_text().splitlines() if not line.startswith("#")]
    assert lines
    for line in lines:
        assert re.fullmatch(r"[A-Za-z0-9_.-]+==[0-9][A-Za-z0-9.]*", line), line


def test_locks_cover_every_declared_dependency():
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())
    extras = declared["project"]["optional-dependencies"]
    wanted = [*declared["project"]["dependencies"], *declared["build-system"]["requires"]]
    wanted += [requirement for name, extra in extras.items() if name != "peers" for requirement in extra]
    pinned = {normalized(line) for lock in LOCKS for line in (ROOT / lock).read_text().splitlines()}
    missing = {normalized(w) for w in wanted} - pinned - {"viceversa"}
    assert not missing


def normalized(requirement):
    return re.split(r"[\[<>=!~; ]", requirement, maxsplit=1)[0].lower().replace("_", "-")


def test_ci_runs_make_test_and_nothing_else():
    script = ROOT / ".ci" / "run"
    assert os.access(script, os.X_OK)
    assert script.read_text().splitlines()[1:] == ['cd "$(dirname "$0")/.." && exec make test']
    assert "entry: .ci/run" in (ROOT / ".pre-commit-config.yaml").read_text()


def test_import_loads_no_extra_and_changes_no_setting():
    program = (
        "import sys, jax; before = dict(jax.config.values); import viceversa; "
        "extras = 'clarabel matplotlib numba pandas pyarrow rich typer'.split(); "
        "print([name for name in extras if name in sys.modules]); "
        "print([k for k, v in jax.config.values.items() if before.get(k) != v])"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout == "[]\n[]\n"
