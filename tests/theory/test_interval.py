"""Interval arithmetic on programs: what it encloses, it encloses; what it cannot, it refuses."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from viceversa import precision
from viceversa.constants.enclosure import enclose
from viceversa.constants.interval import Interval, NotCertified

W = np.random.default_rng(1).normal(size=(3, 4))
INDEX = np.array([2, 0, 2])

# One function for every family of primitives; all are run on the same box.
FUNCTIONS = {
    "arithmetic": lambda x: (x[0] * x[1] - x[2] / (3.0 + x[3])) * (x - 0.5),
    "itself": lambda x: x * x + (x - x) + jnp.dot(x, x),
    "matrix": lambda x: W @ (x * x) + (W @ x) * (W @ x[::-1]),
    "outer": lambda x: jnp.einsum("i,j->ij", x, W @ x) @ jnp.ones(3),
    "powers": lambda x: x**3 + x**2 - (2.0 + x) ** -2 + (x + 3.0) ** 1.7 + (x + 3.0) ** x[0],
    "transcendental": lambda x: (
        jnp.exp(x) + jnp.log(x + 3.0) + jnp.sqrt(x + 3.0) + jnp.tanh(x) + jnp.arctan(x)
    ),
    "periodic": lambda x: jnp.sin(5.0 * x) + jnp.cos(3.0 * x),
    "smooth": lambda x: (
        jax.nn.softplus(x) + jax.nn.sigmoid(x) + jnp.log1p(jnp.exp(x)) + jax.lax.rsqrt(x + 3.0)
    ),
    "kinks": lambda x: jnp.maximum(x, 0.1) + jnp.abs(x) + jnp.clip(x, -0.5, 0.5) + jnp.where(x > 0.2, x, -x),
    "moves": lambda x: jnp.concatenate([x[INDEX], jnp.stack([x[1], x[3]]), jnp.pad(x, 1)]).reshape(-1)[::-1],
    "scatter": lambda x: jnp.zeros(5).at[INDEX].add(x[:3]).at[4].set(x[3]),
    "sums": lambda x: jnp.cumsum(x) + x.sum() + x.mean() + x.max() - x.min() + jnp.prod(x) + jnp.sort(x),
    "scan": lambda x: jax.lax.scan(lambda c, row: (c + row @ x, c * row[0]), x[0], W)[1],
    "derivative": lambda x: jax.jacfwd(lambda v: jnp.exp(-v) * (W @ v)[0] / (3.0 + v.sum() ** 2))(x).ravel(),
    "reverse": lambda x: jax.grad(lambda v: jnp.sum(jnp.log(4.0 + W @ v) ** 2) + v[0] ** 3 * v[1])(x),
}
LOW, HIGH = np.array([-0.7, 0.1, -0.2, 0.3]), np.array([0.4, 0.6, 0.5, 0.3])


def _program(function):
    with precision.double():
        return jax.make_jaxpr(function)(jax.ShapeDtypeStruct((4,), np.float64))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_encloses_every_value_and_is_a_point_at_a_point(name):
    closed = _program(FUNCTIONS[name])
    (bounds,) = enclose(closed, [], Interval(LOW, HIGH))
    rng = np.random.default_rng(0)
    points = rng.uniform(LOW, HIGH, (200, 4))
    points[:16] = np.array(np.meshgrid(*zip(LOW, HIGH, strict=True))).reshape(4, -1).T  # the corners
    with precision.double():
        values = np.asarray(jax.jit(jax.vmap(FUNCTIONS[name]))(points))
    slack = 1e-12 * (1.0 + np.abs(values))
    assert (values >= bounds.lo - slack).all()
    assert (values <= bounds.hi + slack).all()
    (at,) = enclose(closed, [], Interval(points[20]))
    assert at.is_point
    np.testing.assert_allclose(at.lo, values[20], rtol=1e-11, atol=1e-13)


def test_affine_and_sign_definite_products_are_exact():
    (affine,) = enclose(_program(lambda x: W @ x + 1.0), [], Interval(LOW, HIGH))
    plus, minus = np.maximum(W, 0.0), np.minimum(W, 0.0)
    np.testing.assert_allclose(affine.hi, plus @ HIGH + minus @ LOW + 1.0, rtol=1e-14)
    np.testing.assert_allclose(affine.lo, plus @ LOW + minus @ HIGH + 1.0, rtol=1e-14)
    box = Interval(np.array([1.0, 2.0, 0.0, 3.0]), np.array([2.0, 5.0, 1.0, 3.0]))
    (product,) = enclose(_program(lambda x: x[:2] @ x[2:]), [], box)
    assert (product.lo, product.hi) == (6.0, 17.0)


def test_what_has_no_rule_is_refused_by_name():
    with pytest.raises(NotCertified, match="log of an argument that may be below 0"):
        enclose(_program(lambda x: jnp.log(x)), [], Interval(LOW, HIGH))
    with pytest.raises(NotCertified, match="primitive digamma"):
        enclose(_program(lambda x: jax.scipy.special.digamma(x + 3.0)), [], Interval(LOW, HIGH))
    with pytest.raises(NotCertified, match="loop whose end depends"):
        enclose(
            _program(lambda x: jax.lax.while_loop(lambda v: v[0] < 0, lambda v: v + 1.0, x)),
            [],
            Interval(LOW, HIGH),
        )


def test_division_through_zero_is_unbounded_not_wrong():
    (found,) = enclose(_program(lambda x: 1.0 / x), [], Interval(LOW, HIGH))
    assert found.lo[0] == -np.inf
    assert found.hi[0] == np.inf
    np.testing.assert_allclose([found.lo[1], found.hi[1]], [1 / 0.6, 10.0])
