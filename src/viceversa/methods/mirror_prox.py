"""Mirror-prox: extragradient whose steps are multiplicative on simplices."""

from __future__ import annotations

from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PyTree

from viceversa.lagrangian import lagrangian_operator
from viceversa.methods.base import Info, Method, OracleCounts, check_learning, fraction
from viceversa.numerics import positive_part
from viceversa.problem import MisspecifiedVI
from viceversa.sets import Product, Simplex
from viceversa.sets.base import ConvexSet
from viceversa.steps import as_steps

# Share of the barycentre mixed into a start on a simplex's boundary, where entropy has no gradient.
_INSIDE = 1e-6


class MirrorProxState(eqx.Module):
    """k, x_k, its mirror image (log x_k on simplices, x_k elsewhere), λ_k and the last midpoint."""

    k: Int[Array, ""]
    x: Float[Array, "..."]
    mirror: Float[Array, "..."]
    lam: Float[Array, " J"]
    midpoint: Float[Array, "..."]


class MirrorProx(Method):
    """Mirror-prox on (x, λ), with entropy on every simplex of X and the Euclidean distance elsewhere:

        y       = Prox_{x_k}[τ_k (F(x_k, θ_k) + Jf(x_k, θ_k)ᵀ λ_k)],  ν       = [λ_k + ωτ_k f(x_k, θ_k)]₊      (1)
        x_{k+1} = Prox_{x_k}[τ_k (F(y, θ_k) + Jf(y, θ_k)ᵀ ν)],        λ_{k+1} = [λ_k + ωτ_k f(y, θ_k)]₊        (2)
        Prox_x[g]_i = total·x_i exp(−g_i)/Σ_j x_j exp(−g_j) on a simplex's row,   P_X[x − g] elsewhere        (3)

    Monotone G, τL ≤ 1 with L in the ℓ₁/ℓ_∞ norms on simplices (log n where extragradient pays n); the average of the
    midpoints has gap O(1/K). On sets without a simplex it is the extragradient method. log x is what is kept, so a share that is
    almost zero can come back when θ moves; a start on a simplex's boundary is moved 10⁻⁶ inside.

    Example:
        >>> import viceversa as vv
        >>> vv.MirrorProx(step_size=0.1).step_counts.F
        2
    """

    reference: ClassVar[str] = "nemirovski2004prox"
    init_counts: ClassVar[OracleCounts] = OracleCounts()
    step_counts: ClassVar[OracleCounts] = OracleCounts(F=2, f=2, pullback=2)

    step_size: Any
    dual_ratio: np.ndarray
    learning_rate: Any
    learner: Any

    def __init__(self, step_size, dual_ratio=1.0, learning_rate=None, learner=None):
        self.step_size = as_steps("MirrorProx: step_size", step_size)
        self.dual_ratio = fraction("MirrorProx: dual_ratio", dual_ratio, 0.0, np.inf)
        self.learner, self.learning_rate = check_learning("MirrorProx", learner, learning_rate)

    def init(self, problem: MisspecifiedVI, theta: PyTree, x0: Array, lam0: Array) -> MirrorProxState:
        x, mirror = _mirror_start(problem.set, x0)
        return MirrorProxState(k=jnp.asarray(0), x=x, mirror=mirror, lam=lam0, midpoint=x)

    def step(self, problem: MisspecifiedVI, theta: PyTree, state: MirrorProxState, key=None):
        X, tau = problem.set, self.step_size(state.k)
        sigma = self.dual_ratio * tau
        G_x, f_x = lagrangian_operator(problem, state.x, state.lam, theta)
        y, _ = _prox(X, state.mirror, tau * G_x)  # (1)
        nu = positive_part(state.lam + sigma * f_x)
        G_y, f_y = lagrangian_operator(problem, y, nu, theta)
        x_next, mirror = _prox(X, state.mirror, tau * G_y)  # (2)
        lam_next = positive_part(state.lam + sigma * f_y)
        next_state = MirrorProxState(k=state.k + 1, x=x_next, mirror=mirror, lam=lam_next, midpoint=y)
        return next_state, Info(step_size=tau, penalty=sigma)

    def output(self, state: MirrorProxState) -> tuple[Array, Array]:
        return state.x, state.lam

    def ergodic(self, state: MirrorProxState):
        return state.midpoint, jnp.ones(())


def _prox(X: ConvexSet, mirror: Array, g: Array) -> tuple[Array, Array]:
    """(3) from the mirror image of x: the new point and its mirror image."""
    if isinstance(X, Simplex):
        log_x = jax.nn.log_softmax(mirror - g, axis=-1)  # (3)
        return _scaled(X, jnp.exp(log_x)), log_x
    if isinstance(X, Product) and X.joined:
        parts = [
            _prox(block, a, b) for block, a, b in zip(X.blocks, X.split(mirror), X.split(g), strict=True)
        ]
        return _join([x for x, _ in parts]), _join([m for _, m in parts])
    x = X.project(mirror - g)  # (3)
    return x, x


def _mirror_start(X: ConvexSet, x: Array) -> tuple[Array, Array]:
    if isinstance(X, Simplex):
        total = jnp.asarray(X.total)[..., None]
        share = x / jnp.where(total > 0.0, total, 1.0)
        allowed = jnp.broadcast_to(True if X.mask is None else X.mask, x.shape)
        centre = allowed / jnp.maximum(jnp.sum(allowed, axis=-1, keepdims=True), 1)
        on_boundary = jnp.any(allowed & (share <= 0.0), axis=-1, keepdims=True)
        share = jnp.where(on_boundary, (1.0 - _INSIDE) * share + _INSIDE * centre, share)
        log_x = jnp.where(allowed, jnp.log(jnp.where(allowed, share, 1.0)), -jnp.inf)
        return _scaled(X, share), log_x
    if isinstance(X, Product) and X.joined:
        parts = [_mirror_start(block, a) for block, a in zip(X.blocks, X.split(x), strict=True)]
        return _join([p for p, _ in parts]), _join([m for _, m in parts])
    return x, x


def _scaled(X: Simplex, share: Array) -> Array:
    return jnp.asarray(X.total)[..., None] * share


def _join(parts: list[Array]) -> Array:
    return jnp.concatenate([jnp.ravel(part) for part in parts])
