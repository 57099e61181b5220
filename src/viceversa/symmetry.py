"""Whether F is the gradient of a function: refuted by one pair of directions, never proved by samples."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from viceversa import precision
from viceversa.errors import InputError
from viceversa.problem import MisspecifiedVI

_N_SAMPLES = 4  # points × direction pairs; one pair refutes almost every operator that is not a gradient
_TOLERANCE = 1e-8  # relative, far above rounding in two directional derivatives


def asymmetry(problem: MisspecifiedVI, seed: int = 0) -> float:
    """The largest |uᵀJv − vᵀJu|/(|uᵀJv| + |vᵀJu|) over sampled points (x, θ) and directions (u, v), J = ∂F/∂x.

    Positive (beyond rounding) proves that F is not a gradient; zero is evidence only.
    """
    rng = np.random.default_rng(seed)
    x, theta = problem.set.interior_point(), problem.learning.set.interior_point()
    found = []
    for _ in range(_N_SAMPLES):
        near_x, near_theta = jax.tree.map(
            lambda p: p + (1.0 + np.abs(p)) * rng.standard_normal(p.shape), (x, theta)
        )
        u, v = rng.standard_normal(problem.shape), rng.standard_normal(problem.shape)
        with precision.double():
            found.append(float(_asymmetry(problem, near_x, near_theta, u, v)))
    return max(found)


@eqx.filter_jit
def _asymmetry(problem: MisspecifiedVI, x, theta, u, v):
    x, theta = (
        problem.set.project(jnp.asarray(x)),
        problem.learning.set.project(jax.tree.map(jnp.asarray, theta)),
    )

    def along(direction):
        return jax.jvp(problem.at(theta).F, (x,), (direction,))[1]

    u, v = jnp.asarray(u), jnp.asarray(v)
    uJv, vJu = jnp.sum(u * along(v)), jnp.sum(v * along(u))
    size = jnp.abs(uJv) + jnp.abs(vJu)
    return jnp.where(size > 0.0, jnp.abs(uJv - vJu) / jnp.where(size > 0.0, size, 1.0), 0.0)


def require_gradient(name: str, problem: MisspecifiedVI) -> None:
    """Refuse a problem whose F is declared or proved not to be a gradient; the method `name` minimises a function."""
    advice = (
        "Use a method for VIs, such as vv.AugmentedLagrangian, vv.AdaptiveGoldenRatio or vv.Extragradient."
    )
    if problem.symmetric is False:
        raise InputError(
            f"{name}: the problem declares symmetric=False, but this method needs F to be a gradient. {advice}"
        )
    if problem.runs_on_host:
        if problem.symmetric is None:
            raise InputError(
                f"{name}: F is a callback, whose Jacobian cannot be looked at. Pass symmetric=True to MisspecifiedVI if F "
                f"is the gradient of a function. {advice}"
            )
        return
    found = asymmetry(problem)
    if found > _TOLERANCE:
        raise InputError(
            f"{name}: F is not the gradient of a function: its sampled Jacobian J has |uᵀJv − vᵀJu| as large as {found:.2g} "
            f"of its size. {advice}"
        )
