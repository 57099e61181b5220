"""The examples in the docstrings of the sets run as printed."""

from __future__ import annotations

import doctest
import importlib

import pytest

MODULES = ["affine", "ball", "box", "intersection", "polyhedron", "product", "simplex"]


@pytest.mark.parametrize("name", MODULES)
def test_docstring_examples(name):
    result = doctest.testmod(importlib.import_module(f"viceversa.sets.{name}"))
    assert result.attempted > 0
    assert result.failed == 0
