"""BLAS in one thread while a program factors matrices.

Newton systems of hundreds of unknowns are factored by BLAS, with threads of its own that wait for each other by asking over and
over. On an idle machine they gain little: nothing up to 500 unknowns, a third at 1500. On one whose cores are busy, with other
solves perhaps, a step waits for a thread that does not get a turn, and a solve of 5 ms takes 580.

How many threads there are is a number of the whole process, so one solve at a time sees to it and the others do without. Who
limits threads in another thread meanwhile may find this one's limit where he expects his own, as with any two limits.
"""

from __future__ import annotations

import contextlib
import math
import sys
import weakref
from collections.abc import Iterator
from functools import cache
from typing import Any

from viceversa.numerics import FEW
from viceversa.operations import inner_programs
from viceversa.problem import MisspecifiedVI

_BY_BLAS = frozenset(
    "cholesky eigh geqrf householder_product lu qr schur svd triangular_solve tridiagonal_solve".split()
)


class _Holder:
    """Who sees to the limit; gone with the call that made it, however that ends."""


_nobody = weakref.ref(_Holder())
_holder: weakref.ref[_Holder] = _nobody


@contextlib.contextmanager
def one_blas_thread() -> Iterator[None]:
    """A context with one thread; within another such context, of this thread or another, it does nothing."""
    global _holder
    if _holder() is not None:
        yield
        return
    me = _Holder()
    _holder = weakref.ref(me)
    try:
        with _library().limit(limits=1, user_api="blas"):
            yield
    finally:
        _holder = _nobody


def while_factoring(problem: MisspecifiedVI) -> contextlib.AbstractContextManager[None]:
    """`one_blas_thread` where steps of a problem may factor matrices; a callback's own BLAS keeps its threads.

    JAX loads BLAS with the first program that needs it: before, there is none to be limited.
    """
    n_unknowns = math.prod(problem.shape) + problem.n_constraints
    may = not problem.runs_on_host and n_unknowns > FEW and "scipy.linalg" in sys.modules
    return one_blas_thread() if may else contextlib.nullcontext()


def factors_matrices(jaxpr: Any) -> bool:
    """Whether a traced program, or one within it, calls what BLAS does."""
    return any(name in _BY_BLAS for name in _names(jaxpr))


def _names(jaxpr: Any) -> Iterator[str]:
    for equation in jaxpr.eqns:
        yield equation.primitive.name
        for inner in inner_programs(equation.params):
            yield from _names(inner)


@cache
def _library() -> Any:
    """The BLAS that JAX uses, which is SciPy's; all there are where SciPy has none of its own."""
    import scipy.linalg  # noqa: F401  (loads it)
    from threadpoolctl import ThreadpoolController

    loaded = ThreadpoolController().select(user_api="blas")
    own = [each.filepath for each in loaded.lib_controllers if "scipy.libs" in each.filepath]
    return loaded.select(filepath=own) if own else loaded
