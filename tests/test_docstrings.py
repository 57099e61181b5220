"""Every example in a docstring runs and prints what it says (pages of documentation: test_documents.py)."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest

import viceversa

MODULES = sorted(m.name for m in pkgutil.walk_packages(viceversa.__path__, "viceversa."))
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


def test_examples_are_short():
    for example in examples():
        (test,) = example.values
        lines = [line for e in test.examples for line in e.source.splitlines()]
        assert len(lines) <= 8, f"{test.name} takes {len(lines)} lines"
