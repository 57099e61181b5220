"""docs/paper.md names only tests and code that exist, and every slip."""

from __future__ import annotations

import functools
import re
from pathlib import Path

import pytest

import viceversa as vv

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "paper.md").read_text(encoding="utf-8")
HOME = ROOT / "tests" / "audit" / "test_errata.py"


def defined(path: Path) -> set[str]:
    return set(re.findall(r"^def (test_\w+)", path.read_text(encoding="utf-8"), re.M))


def test_every_test_it_names_exists():
    for path, name in re.findall(r"`(tests/[\w/]+\.py)(?:::(test_\w+))?`", PAGE):
        assert (ROOT / path).exists(), path
        assert not name or name in defined(ROOT / path), f"{path}::{name}"
    for name in re.findall(r"`(test_\w+)`", PAGE):
        assert name in defined(HOME), name


def test_every_example_of_a_slip_is_named():
    assert {name for name in defined(HOME) if name not in PAGE} == set()


@pytest.mark.parametrize(("letter", "count"), [("T", 10), ("C", 7), ("G", 6), ("H", 6), ("E", 7)])
def test_every_slip_has_a_row(letter, count):
    rows = re.findall(rf"^\| {letter}(\d+) \|", PAGE, re.M)
    assert sorted(map(int, rows)) == list(range(1, count + 1))


def test_every_public_name_exists():
    for name in set(re.findall(r"`vv\.([\w.]+)", PAGE)):
        functools.reduce(getattr, name.split("."), vv)
