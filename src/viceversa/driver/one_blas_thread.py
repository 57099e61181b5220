"""BLAS in one thread while a program factors matrices.

Newton systems of hundreds of unknowns are factored by BLAS, with threads of its own that wait for each other by asking over and
over. On an idle machine they gain little: nothing up to 500 unknowns, a third at 1500. On one whose cores are busy, with other
solves perhaps, a step waits for a thread that does not get a turn, and a solve of 5 ms takes 580.
"""

from __future__ import annotations

import contextlib
import math
import threading
from collections.abc import Iterator
from functools import cache
from typing import Any

from viceversa.numerics import FEW
from viceversa.operations import inner_programs
from viceversa.problem import MisspecifiedVI

_BY_BLAS = frozenset(
    "cholesky eigh geqrf householder_product lu qr schur svd triangular_solve tridiagonal_solve".split()
)


_taken = threading.Lock()


@contextlib.contextmanager
def one_blas_thread() -> Iterator[None]:
    """While one solve is within, others that come do without: the limit is the process's, and who sets it has to lift it."""
    if not _taken.acquire(blocking=False):
        yield
        return
    try:
        with _libraries().limit(limits=1, user_api="blas"):
            yield
    finally:
        _taken.release()


def while_factoring(problem: MisspecifiedVI) -> contextlib.AbstractContextManager[None]:
    """`one_blas_thread` where steps of a problem may factor matrices; a callback's own BLAS keeps its threads."""
    n_unknowns = math.prod(problem.shape) + problem.n_constraints
    return contextlib.nullcontext() if problem.runs_on_host or n_unknowns <= FEW else one_blas_thread()


def factors_matrices(jaxpr: Any) -> bool:
    """Whether a traced program, or one within it, calls what BLAS does."""
    return any(name in _BY_BLAS for name in _names(jaxpr))


def _names(jaxpr: Any) -> Iterator[str]:
    for equation in jaxpr.eqns:
        yield equation.primitive.name
        for inner in inner_programs(equation.params):
            yield from _names(inner)


@cache
def _libraries() -> Any:
    """Those that are loaded once JAX's is; it is loaded when a program first needs it."""
    import scipy.linalg  # noqa: F401  (JAX takes BLAS from there)
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()
