"""The matrix read off a linear program is the one that products with the identity give, whatever the program does."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from viceversa import precision
from viceversa.linear_matrix import matrix_of

RNG = np.random.default_rng(3)
A, B = RNG.normal(size=(5, 6)), RNG.normal(size=(4, 3, 6))
W, D = RNG.normal(size=(3, 2)), RNG.normal(size=6)
MASK = RNG.normal(size=6) > 0


def looped(v):
    """A loop whose state moves."""
    return jax.lax.fori_loop(0, 3, lambda _, u: A[:, :5] @ u + v[:5], v[:5])


PROGRAMS = {
    "a matrix": lambda v: A @ v,
    "a matrix from the right": lambda v: v @ A.T,
    "a matrix of parts": lambda v: A[:, 1:4] @ v[2:5],
    "unknowns in another order": lambda v: A @ v[::-1] + A[:, :3] @ v[::2],
    "unknowns that are picked": lambda v: A @ v[jnp.array([3, 0, 0, 5, 1, 2])],
    "an array contracted twice": lambda v: jnp.tensordot(RNG_CUBE, v.reshape(3, 2), axes=([0, 2], [0, 1])),
    "contracted in the other order": lambda v: jnp.einsum("kji,ij->k", RNG_CUBE_2, v.reshape(3, 2)),
    "only some axes contracted": lambda v: (W.T @ v.reshape(3, 2)).ravel(),
    "batched": lambda v: jnp.einsum("bi,bi->b", A, jnp.broadcast_to(v, (5, 6))),
    "unknowns used twice": lambda v: A @ jnp.concatenate([v[:3], v[:3]]),
    "a product of products": lambda v: jnp.einsum("kri,kr->i", B, 2.0 * (B @ v)),
    "scaled": lambda v: D * v - v / (1.0 + D**2) + (-v),
    "chosen": lambda v: jnp.where(MASK, v, 0.0) + jnp.where(MASK, D * v, v[::-1]),
    "sums": lambda v: v.sum() - v.reshape(2, 3).sum(axis=0).repeat(2) + jnp.cumsum(v),
    "turned": lambda v: (v.reshape(2, 3).T * W).ravel(),
    "parts joined": lambda v: jnp.concatenate([A @ v, 3.0 * v[:2], jnp.zeros(1)]),
    "a sum with what does not move": lambda v: v + jnp.zeros(6),
    "split": lambda v: jnp.concatenate(jnp.split(D * v, [1, 4])[::-1]),
    "a jitted function": lambda v: jax.jit(lambda u: A @ (D * u))(v) + jax.jit(jnp.sum)(v),
    "a loop": looped,
    "padded": lambda v: jnp.pad(v, (1, 2)),
    "written out": lambda v: jnp.stack(
        [sum(A[i, j] * v[j] for j in range(6)) + D[k] * v[k] for i in range(5) for k in range(6)]
    ),
    "no rows": lambda v: jnp.zeros((0, 6)) @ v,
    "no columns": lambda v: A[:, :0] @ v[:0] + A @ v,
    "nothing moves": lambda v: jnp.zeros(4),
    "a number": lambda v: (D @ v)[None],
}
RNG_CUBE, RNG_CUBE_2 = RNG.normal(size=(3, 4, 2)), RNG.normal(size=(4, 2, 3))


@pytest.mark.parametrize("name", PROGRAMS)
def test_it_is_the_matrix_of_the_products_with_unit_vectors(name):
    function = PROGRAMS[name]
    with precision.double():
        expected = np.column_stack([np.asarray(function(jnp.asarray(e))) for e in np.eye(6)])
        found = np.asarray(jax.jit(lambda: matrix_of(function, 6))())
    np.testing.assert_allclose(found, expected, rtol=1e-13, atol=1e-13)
    assert found.dtype == np.float64


def test_a_matrix_among_the_constants_is_not_multiplied_by_the_identity():
    with precision.double():
        program = jax.make_jaxpr(lambda d: matrix_of(lambda v: A @ (d * v) - d[:5] * v[:5], 6))(D)
    assert not [eqn for eqn in program.jaxpr.eqns if eqn.primitive.name == "dot_general"]


def test_what_is_captured_may_be_traced_itself():
    with precision.double():
        found = jax.jit(jax.vmap(lambda d: matrix_of(lambda v: A @ (d * v), 6)))(np.stack([D, 2.0 * D]))
    np.testing.assert_allclose(found, np.stack([A * D, 2.0 * A * D]), rtol=1e-14)


def test_a_small_system_of_a_quadratic_problem_brings_no_arrays_of_its_own():
    # A solver's step can be one native function only if it captures none.
    def system(M, B, lam):
        def product(v):
            u, y = v[:6], v[6:]
            curved = jnp.einsum("kr,kri->i", y[:, None] * (B @ D6) + lam[:, None] * (B @ u), B)
            return jnp.concatenate([M @ u + curved, jnp.einsum("kr,kr->k", B @ D6, B @ u) - y])

        return matrix_of(product, 10)

    with precision.double():
        D6 = 1.0 + jnp.arange(6.0)
        closed = jax.make_jaxpr(system)(np.eye(6), B, np.ones(4))
    assert max((np.size(const) for const in closed.consts if const is not D6), default=0) <= 1
