"""Errors a user can act on: what was given, what is needed, what to do."""

from __future__ import annotations


class InputError(ValueError):
    """An argument does not describe what it should; the message names it and says what to change."""


class UserFunctionError(InputError):
    """A function the user gave (operator, constraints, ...) raised or returned something unusable."""


class SolveError(RuntimeError):
    """`solve(..., throw=True)` ended without success; the message is the status sentence."""


class MissingExtra(ImportError):
    """A feature needs an optional dependency that is not installed; the message says how to get it."""

    def __init__(self, feature: str, package: str, extra: str):
        super().__init__(
            f"{feature} needs {package}, which is not installed. Run: pip install 'viceversa[{extra}]'"
        )


class PrecisionWarning(UserWarning):
    """A user's function closes over float32 data, so the answer is only that precise."""
