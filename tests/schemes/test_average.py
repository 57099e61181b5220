"""The running mean against the definition: weights, zero weights before the first, and the start."""

import jax.numpy as jnp
import numpy as np

from viceversa import precision
from viceversa.schemes.average import Average


def test_is_the_weighted_mean_after_every_point():
    rng = np.random.default_rng(0)
    points = rng.normal(size=(40, 3, 2))
    weights = np.concatenate([[0.0, 0.0], rng.uniform(0.1, 2.0, 38)])
    with precision.double():
        average = Average.start(jnp.full((3, 2), 7.0))
        for k, (x, weight) in enumerate(zip(points, weights, strict=True), start=1):
            average = average.add(jnp.asarray(x), jnp.asarray(weight))
            if k <= 2:
                np.testing.assert_array_equal(average.value, np.full((3, 2), 7.0))
            else:
                expected = np.tensordot(weights[:k], points[:k], axes=1) / weights[:k].sum()
                np.testing.assert_allclose(average.value, expected, rtol=0, atol=1e-13)
    assert float(average.weight) == np.float64(weights.cumsum()[-1])


def test_a_lost_iterate_is_not_averaged_away():
    with precision.double():
        average = Average.start(jnp.zeros(2))
        for x in ([1.0, np.nan], [1.0, 1.0]):
            average = average.add(jnp.array(x), jnp.ones(()))
    assert np.isnan(average.value[1])
    assert float(average.value[0]) == 1.0
