"""MINRES, GMRES and elimination against dense solves, and the local derivative against the Jacobian it is read from."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from viceversa.krylov import gmres, minres
from viceversa.local_derivative import local_derivative
from viceversa.numerics import solve_dense

N = 30


@pytest.fixture(autouse=True)
def _double():
    with jax.enable_x64(True):
        yield


def _split(v):
    return {"x": v[:20], "lam": v[20:]}


def _joined(tree):
    return np.concatenate([tree["x"], tree["lam"]])


@pytest.mark.parametrize("method", [minres, gmres])
def test_solves_an_indefinite_saddle_system(method):
    rng = np.random.default_rng(1)
    A, J = rng.normal(size=(20, 20)), rng.normal(size=(10, 20))
    H = A @ A.T + np.eye(20) if method is minres else A @ A.T + np.eye(20) + 3.0 * (A - A.T)
    K = np.block([[H, J.T], [J, -1e-3 * np.eye(10)]])
    rhs = rng.normal(size=N)
    limit = 120 if method is minres else N
    found = method(
        lambda v: _split(K @ jnp.concatenate([v["x"], v["lam"]])),
        _split(jnp.asarray(rhs)),
        1e-13,
        limit,
    )
    np.testing.assert_allclose(_joined(found.solution), np.linalg.solve(K, rhs), rtol=0, atol=1e-8)
    assert int(found.n_products) <= limit


def test_low_rank_plus_identity_takes_rank_plus_two_products():
    """The reason for a diagonal metric: after it, a market's system is the identity plus a few ones."""
    rng = np.random.default_rng(2)
    U = rng.normal(size=(N, 3))
    K = np.eye(N) + U @ U.T
    found = minres(lambda v: K @ v, jnp.asarray(rng.normal(size=N)), 1e-10, 100)
    assert int(found.n_products) <= 6  # they come in pairs


def test_minres_that_is_done_after_one_product_is_not_spoilt_by_the_second():
    found = minres(lambda v: 4.0 * v, jnp.asarray([1.0, -2.0]), 0.0, 10)
    np.testing.assert_allclose(found.solution, [0.25, -0.5], rtol=0, atol=1e-16)


def test_zero_right_hand_side_gives_zero():
    for method in (minres, gmres):
        found = method(lambda v: 2.0 * v, jnp.zeros(4), 1e-10, 4)
        assert np.all(np.asarray(found.solution) == 0.0)


def test_local_derivative_is_the_diagonal_where_nothing_is_summed():
    x = jnp.linspace(-1.0, 1.0, 6).reshape(3, 2)

    def F(v):
        return jnp.exp(v) * v - jnp.tanh(2.0 * v) + jnp.where(v > 0, v**3, 2.0 * v)

    jacobian = jax.jacfwd(F)(x).reshape(6, 6)
    np.testing.assert_allclose(local_derivative(F, x).ravel(), np.diag(jacobian), atol=1e-12)


def test_local_derivative_leaves_out_what_passes_through_a_sum():
    r = np.arange(1.0, 7.0).reshape(3, 2)
    x = jnp.ones((3, 2))
    found = local_derivative(lambda v: r * v + 5.0 * (v.sum(0) + v) - 1.0, x)
    np.testing.assert_allclose(found, r + 5.0)  # not r + 10: the total's own share is of low rank


def test_local_derivative_reads_a_matrix():
    M = np.arange(16.0).reshape(4, 4)
    np.testing.assert_allclose(local_derivative(lambda v: M @ v + v, jnp.ones(4)), np.diag(M) + 1.0)
    np.testing.assert_allclose(local_derivative(lambda v: v @ M, jnp.ones(4)), np.diag(M))


M3, M2 = np.arange(1.0, 10.0).reshape(3, 3), np.array([[2.0, 5.0], [7.0, 3.0]])
REARRANGING = {
    "transposed and back": lambda v: (v.T * jnp.exp(v.T)).T,
    "a neighbour's value": lambda v: v * jnp.roll(v, 1, axis=0) + v[::-1] * v,
    "players one below the other": lambda v: jnp.stack([v[0] ** 3 + v[1], v[1] * v[2], jnp.sin(v[2]) - v[0]]),
    "blocks": lambda v: jnp.concatenate([v[:2] ** 2 - v[1:], v[2:] * v[:1]]),
    "parts of a split": lambda v: jnp.concatenate(jnp.split(jnp.exp(v), [1, 2])[::-1])[::-1] * v,
    "a matrix along either axis": lambda v: M3 @ v + v @ M2,
    "one number for all": lambda v: v[0, 0] * v,
}


@pytest.mark.parametrize("F", REARRANGING.values(), ids=REARRANGING)
def test_local_derivative_follows_coordinates_that_are_rearranged(F):
    x = jnp.asarray(np.random.default_rng(0).uniform(0.5, 2.0, (3, 2)))
    jacobian = jax.jacfwd(F)(x).reshape(6, 6)
    np.testing.assert_allclose(local_derivative(F, x).ravel(), np.diag(jacobian), rtol=1e-12)


@pytest.mark.parametrize("n", [1, 2, 7, 60])
def test_elimination_exchanges_rows(n):
    """A matrix whose diagonal is zero until rows are exchanged, against NumPy."""
    rng = np.random.default_rng(n)
    matrix = rng.normal(size=(n, n))
    if n > 1:
        np.fill_diagonal(matrix, 0.0)
    rhs = rng.normal(size=n)
    found = np.asarray(jax.jit(solve_dense)(matrix, rhs))
    np.testing.assert_allclose(found, np.linalg.solve(matrix, rhs), rtol=1e-9, atol=1e-12)


def test_local_derivative_of_programs_in_other_types_or_written_out_at_length():
    x = jnp.linspace(0.5, 1.5, 12)
    mixed = lambda v: jnp.sin(jnp.concatenate([v[:3].astype(jnp.float32), np.zeros(9, np.float32)])) + v
    whole = lambda v: 2.0 * v + 0.0 * jnp.concatenate([v[:3].astype(int), np.zeros(9, int)])
    at_length = lambda v: jnp.stack(
        [v[i] ** 2 + 0.1 * sum(v[j] * v[i] for j in range(12)) for i in range(12)]
    )
    assert len(jax.make_jaxpr(at_length)(x).jaxpr.eqns) > 300
    np.testing.assert_allclose(local_derivative(mixed, x), 1.0 + np.cos(x) * (np.arange(12) < 3), rtol=1e-6)
    np.testing.assert_array_equal(local_derivative(whole, x), np.full(12, 2.0))
    np.testing.assert_allclose(local_derivative(at_length, x), np.diag(jax.jacfwd(at_length)(x)), rtol=1e-12)
