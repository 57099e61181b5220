"""Factorizations of a solve take one thread of BLAS, and leave the others as they were."""

from __future__ import annotations

import contextlib
import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg  # noqa: F401  (so that the BLAS JAX uses is among those seen)
from threadpoolctl import ThreadpoolController, threadpool_limits

import viceversa as vv
from viceversa.driver import compiled
from viceversa.driver import one_blas_thread as thread_module
from viceversa.driver.one_blas_thread import factors_matrices, one_blas_thread


def n_threads() -> set[int]:
    """Of the BLAS that JAX uses."""
    return {library.num_threads for library in thread_module._library().lib_controllers}


@pytest.fixture(autouse=True)
def _three_threads():
    with threadpool_limits(limits=3, user_api="blas"):
        yield


def test_within_there_is_one_thread_and_afterwards_as_many_as_before():
    assert n_threads() == {3}
    with one_blas_thread():
        assert n_threads() == {1}
    assert n_threads() == {3}


def test_numpy_keeps_its_threads():
    loaded = ThreadpoolController().select(user_api="blas").lib_controllers
    others = [each for each in loaded if "numpy.libs" in each.filepath]
    with one_blas_thread():
        assert {each.num_threads for each in others} <= {3}


def test_one_that_was_left_unfinished_does_not_keep_others_from_it():
    abandoned = one_blas_thread()
    abandoned.__enter__()
    del abandoned  # as an interrupt may
    assert n_threads() == {3}
    with one_blas_thread():
        assert n_threads() == {1}
    assert n_threads() == {3}


def test_an_error_within_lifts_the_limit_too():
    with pytest.raises(ValueError, match="within"), one_blas_thread():
        raise ValueError("within")
    assert n_threads() == {3}


@pytest.mark.parametrize("first_leaves_last", [True, False])
def test_two_solves_at_the_same_time_leave_as_many_threads_as_there_were(first_leaves_last):
    entered, leave = threading.Event(), threading.Event()

    def other() -> None:
        with one_blas_thread():
            entered.set()
            leave.wait()

    second = threading.Thread(target=other, daemon=True)
    with one_blas_thread():
        second.start()
        entered.wait()
        assert n_threads() == {1}
        if first_leaves_last:
            leave.set()
            second.join()
            assert n_threads() == {1}
    leave.set()
    second.join()
    assert n_threads() == {3}
    third = threading.Thread(target=other, daemon=True)  # who sets it is whoever comes first
    third.start()
    third.join()
    assert n_threads() == {3}


def test_a_factorization_is_found_in_loops_and_branches():
    def plain(a):
        return jnp.sum(a @ a)

    def factored(a):
        return jax.lax.fori_loop(
            0, 2, lambda _, b: jax.lax.cond(b[0, 0] > 0, lambda c: jnp.linalg.inv(c), lambda c: c, b), a
        )

    a = jax.ShapeDtypeStruct((40, 40), np.float32)
    assert not factors_matrices(jax.make_jaxpr(plain)(a).jaxpr)
    assert factors_matrices(jax.make_jaxpr(factored)(a).jaxpr)


@pytest.mark.parametrize(("n", "verbose"), [(20, 0), (50, 0), (50, 1)])
def test_a_vi_takes_one_thread_if_its_systems_are_factored_by_blas(n, verbose, monkeypatch, capsys):
    seen = []

    @contextlib.contextmanager
    def watched():
        with one_blas_thread():
            seen.append(n_threads())
            yield

    for module in (compiled, thread_module):
        monkeypatch.setattr(module, "one_blas_thread", watched)
    # A program that nobody has compiled here: what a solve of this structure does is seen from its first call on.
    monkeypatch.setattr(compiled.Compiled, "_programs", {}, raising=False)
    rng = np.random.default_rng(n)
    A = rng.normal(size=(n, n))
    M, q = A @ A.T / n + np.eye(n) + (A - A.T), rng.normal(size=n)
    problem = vv.MisspecifiedVI(
        lambda x, theta: theta * (M @ x) + q, set=vv.Box(-np.ones(n), np.ones(n)), learning=vv.Known(1.0)
    )
    assert vv.solve(problem, verbose=verbose).success
    assert (seen != []) is (n > 32)
    assert all(each == {1} for each in seen)
    assert n_threads() == {3}
