"""Every example in a docstring, in the README and in the documentation runs and prints what it says."""

from __future__ import annotations

import doctest
import importlib
import pkgutil
import re
from pathlib import Path

import pytest

import viceversa

ROOT = Path(__file__).resolve().parent.parent
MODULES = sorted(m.name for m in pkgutil.walk_packages(viceversa.__path__, "viceversa."))
PAGES = sorted([*ROOT.glob("README.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("CONTRIBUTING.md")])
FLAGS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS


def examples():
    finder = doctest.DocTestFinder(exclude_empty=True)
    for name in MODULES:
        if name.endswith("__main__"):
            continue
        for test in finder.find(importlib.import_module(name)):
            if test.examples and test.name.startswith(name):
                yield pytest.param(test, id=test.name)


@pytest.mark.parametrize("example", list(examples()))
def test_docstring_example(example):
    report = []
    result = doctest.DocTestRunner(optionflags=FLAGS).run(example, out=report.append)
    assert result.failed == 0, "".join(report)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_page_runs(page, tmp_path, monkeypatch):
    """The python blocks of a page run in order, in one namespace, in an empty directory."""
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(
        r"^```python\n(.*?)^```", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE
    )
    namespace: dict = {"__name__": "__main__"}
    for block in blocks:
        exec(compile(block, str(page), "exec"), namespace)


def test_examples_are_short():
    for example in examples():
        (test,) = example.values
        lines = [line for e in test.examples for line in e.source.splitlines()]
        assert len(lines) <= 8, f"{test.name} takes {len(lines)} lines"
