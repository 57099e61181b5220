"""Solves run on a device of their own, in the thread that calls them, and leave everything else as it was."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import viceversa as vv
from viceversa.driver import own_device
from viceversa.driver.own_device import in_this_thread


class Coupled(eqx.Module):
    """F(x, θ) = Ax − θ, with A wherever the user has put it."""

    A: jax.Array

    def __call__(self, x, theta):
        return self.A @ x - theta


def coupled(n: int, device=None) -> vv.MisspecifiedVI:
    with vv.precision.double():
        A = jax.device_put(2.0 * jnp.eye(n) + 1.0 / n, device)
    return vv.MisspecifiedVI(Coupled(A), vv.Box(np.zeros(n), np.ones(n)), learning=vv.Known(0.6))


needs_own_device = pytest.mark.skipif(
    own_device._device() is None,
    reason="this release of JAX, or a machine with several devices, is not asked",
)


@needs_own_device
def test_a_program_that_would_go_to_another_thread_is_done_when_the_call_returns():
    long = jax.jit(lambda x: jax.lax.fori_loop(0, 20_000, lambda _, y: jnp.sin(y) + 0.1, x))
    with in_this_thread():
        long(np.ones(1000))  # compiles
        found = long(np.ones(1000))
        assert found.is_ready()
        assert found.devices() == {own_device._device()}
    assert long(np.ones(1000)).devices() == {jax.devices()[0]}


@needs_own_device
def test_the_default_device_is_what_it_was_and_a_chosen_one_is_kept():
    vv.solve(coupled(3))
    assert jnp.ones(2).devices() == {jax.devices()[0]}
    with jax.default_device(jax.devices()[0]), in_this_thread():
        assert jnp.ones(2).devices() == {jax.devices()[0]}


# Small arrays are packed, large ones handed over.
@pytest.mark.parametrize(("n", "committed"), [(3, False), (80, True)])
def test_data_on_jax_own_device_is_used_wherever_it_was_put(n, committed):
    problem = coupled(n, jax.devices()[0] if committed else None)
    expected = np.full(n, 0.6 / 3.0)
    for _ in range(3):  # as it is, then kept on the device
        np.testing.assert_allclose(vv.solve(problem).x, expected, rtol=1e-7)
    with jax.default_device(jax.devices()[0]):
        np.testing.assert_allclose(vv.solve(problem).x, expected, rtol=1e-7)
