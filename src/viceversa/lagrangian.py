"""The paper's augmented Lagrangian: φ_ρ, Φ_ρ, its gradients and 𝓛_ρ (Definition 2.1)."""

from __future__ import annotations

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from viceversa import precision
from viceversa.numerics import positive_part
from viceversa.problem import MisspecifiedVI


def _numpy_in_numpy_out(function: Callable) -> Callable:
    """Called on NumPy arrays or numbers, answer in NumPy float64; inside a compiled program, be the formula."""

    @functools.wraps(function)
    def call(*args):
        if any(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(args[_n_problems(args) :])):
            return function(*args)
        with precision.double():
            numbers = jax.tree.map(lambda leaf: jnp.asarray(leaf, dtype=float), args[_n_problems(args) :])
            return np.asarray(function(*args[: _n_problems(args)], *numbers))

    return call


def _n_problems(args: tuple) -> int:
    return int(isinstance(args[0], MisspecifiedVI))


@_numpy_in_numpy_out
def phi(u: Float[Array, "..."], v: Float[Array, "..."], rho) -> Float[Array, "..."]:
    """φ_ρ(u, v) = uv + (ρ/2)u² if ρu + v ≥ 0, else −v²/(2ρ); both are ([v + ρu]₊² − v²)/(2ρ)."""
    return (jnp.square(positive_part(v + rho * u)) - jnp.square(v)) / (2.0 * rho)


@_numpy_in_numpy_out
def Phi(problem: MisspecifiedVI, x: Array, lam: Array, theta: PyTree, rho) -> Float[Array, ""]:
    """Φ_ρ(x, λ, θ) = Σ_j φ_ρ(f_j(x, θ), λ_j)."""
    f = problem.at(theta).f
    return jnp.sum(phi(f(x), lam, rho))


@_numpy_in_numpy_out
def grad_x_Phi(problem: MisspecifiedVI, x: Array, lam: Array, theta: PyTree, rho) -> Array:
    """∇ₓΦ_ρ(x, λ, θ) = Jf(x, θ)ᵀ [ρ f(x, θ) + λ]₊."""
    f_x, pullback = problem.at(theta).f.vjp(x)
    return pullback(positive_part(rho * f_x + lam))


@_numpy_in_numpy_out
def grad_lambda_Phi(problem: MisspecifiedVI, x: Array, lam: Array, theta: PyTree, rho) -> Float[Array, " J"]:
    """∇_λΦ_ρ(x, λ, θ) = max(f(x, θ), −λ/ρ), so that λ + ρ ∇_λΦ_ρ = [λ + ρ f]₊."""
    return jnp.maximum(problem.at(theta).f(x), -lam / rho)


@_numpy_in_numpy_out
def augmented_lagrangian(
    problem: MisspecifiedVI, x: Array, y: Array, theta: PyTree, lam: Array, rho
) -> Float[Array, ""]:
    """𝓛_ρ(x, y, θ, λ) = F(y, θ)ᵀ(x − y) + Φ_ρ(x, λ, θ)."""
    F = problem.at(theta).F
    return jnp.sum(F(y) * (x - y)) + Phi(problem, x, lam, theta, rho)


def lagrangian_operator(
    problem: MisspecifiedVI, x: Array, lam: Array, theta: PyTree, *, per_player: bool = False
) -> tuple[Array, Array]:
    """The KKT operator's parts (F(x, θ) + Jf(x, θ)ᵀλ, f(x, θ)); the operator on (x, λ) is (first, −second).

    With `per_player`, λ has shape (N, J), one copy for each player (the first axis of x), as the paper's
    wording of the baselines has it: player i's gradient sees λ_i, and every copy is driven by the same f.
    """
    F, f, _ = problem.at(theta)
    f_x, pullback = f.vjp(x)
    if not per_player:
        return F(x) + pullback(lam), f_x
    identity = jnp.eye(lam.shape[1], dtype=x.dtype)
    rows = [pullback(e) for e in identity] if problem.runs_on_host else jax.vmap(pullback)(identity)
    jacobian = jnp.asarray(rows).reshape(lam.shape[1], *x.shape)  # (J, N, ...)
    weighted = jnp.einsum("ij,jik->ik", lam, jacobian.reshape(jacobian.shape[0], x.shape[0], -1))
    return F(x) + weighted.reshape(x.shape), jnp.broadcast_to(f_x, lam.shape)
