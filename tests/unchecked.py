"""Calls without the tests' run-time type checker, for arguments whose sentence is our own."""

from __future__ import annotations

import contextlib
import re

import jaxtyping
import pytest

import viceversa as vv


@contextlib.contextmanager
def unchecked():
    """As a user's process runs: annotations are not enforced."""
    jaxtyping.config.update("jaxtyping_disable", True)
    try:
        yield
    finally:
        jaxtyping.config.update("jaxtyping_disable", False)


@contextlib.contextmanager
def refused(words, error=vv.InputError):
    """The block ends in an input error whose sentence contains `words`."""
    with unchecked(), pytest.raises(error, match=re.escape(words)) as caught:
        yield caught
    assert str(caught.value).endswith((".", ").")), caught.value
