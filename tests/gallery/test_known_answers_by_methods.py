"""Every published equilibrium to 1e-8 in x and λ by four methods that share no step (`make test-slow`)."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import viceversa as vv
from viceversa import gallery, precision

pytestmark = pytest.mark.slow

NAMES = (
    "harker", "shared_budget", "cournot_duopoly", "river_basin", "murphy", "murphy_price_cap", "internet_switching",
    "electricity", "fukushima", "ball_2d", "rosen", "braess", "transport", "rock_paper_scissors",
)  # fmt: skip
METHODS = ("default", "augmented Lagrangian", "extragradient", "adaptive golden ratio")
# A linear program: both go round its vertices for more than 10⁵ iterations.
TOO_SLOW = {("transport", "extragradient"), ("transport", "adaptive golden ratio")}


def lipschitz_at_the_answer(instance) -> float:
    """The norm of the Jacobian of the Lagrangian's operator, for extragradient's constant step."""
    problem, n = instance.problem, instance.x_true.size

    def operator(z):
        F, f, _ = problem.at(theta)
        x = z[:n].reshape(problem.shape)
        f_x, pullback = f.vjp(x)
        return jnp.concatenate([jnp.ravel(F(x) + pullback(z[n:])), -f_x])

    with precision.double():
        theta = jax.tree.map(jnp.asarray, instance.theta_true)
        z = jnp.concatenate([jnp.ravel(jnp.asarray(instance.x_true)), jnp.asarray(instance.multiplier_true)])
        return float(np.linalg.norm(np.asarray(jax.jacfwd(operator)(z)), 2))


def solve(instance, method: str) -> vv.Solution:
    if method == "extragradient":
        # Its step is right near the answer only, and some prices have no slope bound at 0: it starts nearby.
        step = 0.5 / lipschitz_at_the_answer(instance)
        chosen, x0 = vv.ExtragradientLagrangian(step_size=step), 0.8 * instance.x_true
    else:
        chosen = {
            "default": None,
            "augmented Lagrangian": vv.AdaptiveAugmentedLagrangian(),
            "adaptive golden ratio": vv.AdaptiveGoldenRatio(),
        }[method]
        x0 = None
    return vv.solve(instance.problem, chosen, x0=x0, tol=1e-10, max_iter=100_000)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", NAMES)
def test_every_method_finds_the_published_answer(name, method):
    if (name, method) in TOO_SLOW:
        pytest.skip("a linear program, on which this method needs more than 100,000 iterations")
    instance = getattr(gallery, name)()
    solution = solve(instance, method)
    assert solution.success, solution
    size = max(1.0, float(np.abs(instance.multiplier_true).max(initial=0.0)))
    np.testing.assert_allclose(solution.multiplier, instance.multiplier_true, rtol=0, atol=1e-8 * size)
    if instance.x_unique:
        size = max(1.0, float(np.abs(instance.x_true).max()))
        np.testing.assert_allclose(solution.x, instance.x_true, rtol=0, atol=1e-8 * size)
    elif instance.aggregates is not None:
        truth = instance.aggregates(instance.x_true)
        for quantity, value in instance.aggregates(solution.x).items():
            np.testing.assert_allclose(value, truth[quantity], rtol=1e-8, atol=1e-8, err_msg=quantity)


def test_kojima_shindo_is_refused_by_the_monotonicity_check():
    assert "i" in vv.audit(gallery.kojima_shindo().problem).refuted
