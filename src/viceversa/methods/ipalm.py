"""IPALM: the inexact parametric augmented Lagrangian with accelerated proximal-gradient inner solves."""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PyTree

from viceversa import functions, numerics
from viceversa.errors import InputError
from viceversa.methods.base import Info, Method, OracleCounts, check_learning, fraction
from viceversa.numerics import positive_part
from viceversa.problem import MisspecifiedVI
from viceversa.symmetry import require_gradient


class IPALMState(eqx.Module):
    """k, x_k, λ_k, and how many inner iterations were made."""

    k: Int[Array, ""]
    x: Float[Array, "..."]
    lam: Float[Array, " J"]
    n_inner: Int[Array, ""]


class _Inner(NamedTuple):
    x: Array
    y: Array
    t: Array
    gap: Array
    n: Array


class IPALM(Method):
    """Inexact parametric augmented Lagrangian for min φ(x, θ*) over X, f(x, θ*) ≤ 0 affine in x; F = ∇ₓφ:

        x_{k+1} ∈ X with L_{ρ_k}(x_{k+1}, λ_k, θ_k) − min_X L_{ρ_k}(·, λ_k, θ_k) ≤ α_k               (1)
        λ_{k+1} = [λ_k + ρ_k f(x_{k+1}, θ_k)]₊                                                      (2)
        ρ_k = ρ_0 β^k,   α_k = α_0 (k + 1)^(−2(1+c)) β^(−k)                                         (3)

    L_ρ = φ + Σ_j ([λ_j + ρf_j]₊² − λ_j²)/(2ρ). β = `growth` = 1 is the constant penalty, O(K^−¼) in all inner steps;
    1 < β < 1/q, with q the factor of the learning step, is the increasing one, O(log K/K). (1) is solved from x_k by

        x^l = P_X[y^l − ∇L_{ρ_k}(y^l)/L_k],   t_{l+1} = (1 + √(1 + 4t_l²))/2                        (4)
        y^{l+1} = x^l + ((t_l − 1)/t_{l+1})(x^l − x^{l−1}),   L_k = L_φ + ρ_k ‖A‖²                  (5)

    until max_{v∈X} ∇L(x^l)ᵀ(x^l − v) ≤ α_k, which certifies (1), or l ≥ D_X √(2L_k/α_k), which proves it. `lipschitz` is
    L_φ and `jacobian_norm` bounds ‖A(θ)‖ = ‖Jf(·, θ)‖. X must be bounded. F that is not a gradient is refused.

    Example:
        >>> import viceversa as vv
        >>> float(vv.IPALM(lipschitz=2.0, jacobian_norm=1.0, growth=1.5).growth)
        1.5
    """

    reference: ClassVar[str] = "aybat2021analysis; beck2009fast"
    init_counts: ClassVar[OracleCounts] = OracleCounts()
    step_counts: ClassVar[OracleCounts] = OracleCounts(f=1)

    lipschitz: np.ndarray
    jacobian_norm: np.ndarray
    penalty: np.ndarray
    growth: np.ndarray
    accuracy: np.ndarray
    decay: np.ndarray
    learning_rate: Any
    learner: Any

    def __init__(
        self,
        lipschitz,
        jacobian_norm,
        penalty=1.0,
        growth=1.0,
        accuracy=1.0,
        decay=0.1,
        learning_rate=None,
        learner=None,
    ):
        self.lipschitz = fraction("IPALM: lipschitz", lipschitz, 0.0, np.inf)
        self.jacobian_norm = fraction("IPALM: jacobian_norm", jacobian_norm, 0.0, np.inf)
        self.penalty = fraction("IPALM: penalty", penalty, 0.0, np.inf)
        self.growth = np.asarray(growth, dtype=np.float64)
        if self.growth.shape != () or not 1.0 <= self.growth < np.inf:
            raise InputError(
                f"IPALM: growth is {growth}; a number >= 1 is needed (1 keeps the penalty constant)."
            )
        self.accuracy = fraction("IPALM: accuracy", accuracy, 0.0, np.inf)
        self.decay = fraction("IPALM: decay", decay, 0.0, np.inf)
        self.learner, self.learning_rate = check_learning("IPALM", learner, learning_rate)

    def check(self, problem: MisspecifiedVI) -> None:
        if not problem.set.bounded:
            raise InputError(
                "IPALM: the set X is unbounded, so the inner accuracy cannot be certified. Bound it, or use "
                "vv.AugmentedLagrangian."
            )
        if problem.constraints is not None and not problem.runs_on_host:
            likes = problem.set.interior_point(), problem.learning.set.interior_point()
            if not functions.is_affine_in(problem.constraints, 0, *likes):
                raise InputError(
                    "IPALM: the constraints are not provably affine in x, which its inner step 1/L_k needs. Use "
                    "vv.AugmentedLagrangian, which takes any convex constraints."
                )
        require_gradient("IPALM", problem)

    def init(self, problem: MisspecifiedVI, theta: PyTree, x0: Array, lam0: Array) -> IPALMState:
        return IPALMState(k=jnp.asarray(0), x=x0, lam=lam0, n_inner=jnp.asarray(0))

    def step(self, problem: MisspecifiedVI, theta: PyTree, state: IPALMState, key=None):
        F, f, X = problem.at(theta)
        k = state.k.astype(state.x.dtype)
        rho = jnp.power(self.growth, k) * self.penalty  # (3)
        alpha = self.accuracy * (k + 1.0) ** (-2.0 * (1.0 + self.decay)) * self.growth ** (-k)
        L = rho * self.jacobian_norm**2 + self.lipschitz
        diameter_sq = jnp.sum(jnp.square(jnp.broadcast_to(problem.x_width, state.x.shape)))  # at least D_X²
        n_enough = jnp.sqrt(diameter_sq * 2.0 * L / alpha)

        def gradient(x: Array) -> Array:
            f_x, pullback = f.vjp(x)
            return F(x) + pullback(positive_part(state.lam + rho * f_x))

        def advance(inner: _Inner) -> _Inner:
            x = X.project(inner.y - gradient(inner.y) / L)  # (4)
            t = 0.5 * (1.0 + jnp.sqrt(1.0 + 4.0 * inner.t**2))
            y = x + ((inner.t - 1.0) / t) * (x - inner.x)  # (5)
            slope = gradient(x)
            gap = jnp.sum(slope * x) + X.support(-slope)[0]
            return _Inner(x, y, t, gap, inner.n + 1)

        start = _Inner(state.x, state.x, jnp.ones(()), jnp.asarray(jnp.inf), jnp.asarray(0))
        inner = numerics.while_loop(
            lambda i: (i.gap > alpha) & (i.n < n_enough), advance, start, on_host=problem.runs_on_host
        )  # (1)
        lam_next = positive_part(state.lam + rho * f(inner.x))  # (2)
        next_state = IPALMState(k=state.k + 1, x=inner.x, lam=lam_next, n_inner=state.n_inner + inner.n)
        return next_state, Info(step_size=1.0 / L, penalty=rho)

    def output(self, state: IPALMState) -> tuple[Array, Array]:
        return state.x, state.lam

    def ergodic(self, state: IPALMState):
        return state.x, jnp.ones(())

    def counts(self, state: IPALMState, n_steps: Any) -> OracleCounts:
        inner = OracleCounts(F=2, f=2, pullback=2).times(state.n_inner)  # at y^l, and at x^l for the gap
        return self.init_counts + self.step_counts.times(n_steps) + inner
