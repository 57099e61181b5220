"""The adaptive golden ratio algorithm: no constant, only local Lipschitz continuity."""

from __future__ import annotations

from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PyTree

from viceversa.methods.base import Info, Method, OracleCounts, check_learning, fraction
from viceversa.numerics import safe_divide
from viceversa.primal_dual import Pair, PrimalDualOperator, primal_dual
from viceversa.problem import MisspecifiedVI
from viceversa.steps import as_steps

_PHI = 1.5  # the author's choice of the averaging constant; anything in (1, golden ratio] is proved
_GROWTH = 1.0 / _PHI + 1.0 / _PHI**2  # the largest growth of the step in one iteration
_RANGE = 1e6  # τ_max = 10⁶ τ_0; the proof needs some cap
_NUDGE = 1e-4  # how far towards a random point of Z the first Lipschitz ratio looks


class AdaptiveGoldenRatioState(eqx.Module):
    """k, z_k, z̄_{k−1}, τ_k, ϑ_k, τ_max, the step of the last iteration, G(z_k) for a known θ, and what is counted."""

    k: Int[Array, ""]
    z: Pair
    z_bar: Pair
    tau: Float[Array, ""]
    ratio: Float[Array, ""]
    tau_max: Float[Array, ""]
    tau_used: Float[Array, ""]
    G_z: Pair
    n_tests: Int[Array, ""]
    per_step: int = eqx.field(static=True)


class AdaptiveGoldenRatio(Method):
    """Adaptive golden ratio (aGRAAL) on z = (x, λ) with the Lagrangian's operator G and Z = X × R^J₊:

        z̄_k     = ((φ − 1) z_k + z̄_{k−1})/φ,   φ = 3/2                                              (1)
        z_{k+1} = P_Z[z̄_k − τ_k G(z_k, θ_k)]                                                        (2)
        τ_{k+1} = min{ (1/φ + 1/φ²) τ_k, (φϑ_k/4τ_k) ‖z_{k+1} − z_k‖²/‖G(z_{k+1}, θ_k) − G(z_k, θ_k)‖², τ_max }  (3)
        ϑ_{k+1} = φ τ_{k+1}/τ_k                                                                      (4)

    (ϑ is the step ratio, the paper's θ, a letter taken here by the parameter.) Monotone, locally Lipschitz G: no bound on λ
    is needed. Averages weighted by τ_k have gap O(1/K), the last iterate converges. The ratio in (3) uses the same
    θ_k twice, so a moving θ costs a second evaluation; with θ known a step costs one. `step_size` is τ_0;
    left out, it comes from one finite difference at the start.

    Example:
        >>> import viceversa as vv
        >>> vv.AdaptiveGoldenRatio().step_counts.F
        1
    """

    reference: ClassVar[str] = "malitsky2020golden, Alg. 1"
    init_counts: ClassVar[OracleCounts] = OracleCounts(F=1, f=1, pullback=1)
    step_counts: ClassVar[OracleCounts] = OracleCounts(F=1, f=1, pullback=1)

    step_size: Any
    dual_ratio: np.ndarray
    learning_rate: Any
    learner: Any

    def __init__(self, step_size=None, dual_ratio=1.0, learning_rate=None, learner=None):
        name = "AdaptiveGoldenRatio"
        self.step_size = None if step_size is None else as_steps(f"{name}: step_size", step_size)
        self.dual_ratio = fraction(f"{name}: dual_ratio", dual_ratio, 0.0, np.inf)
        self.learner, self.learning_rate = check_learning(name, learner, learning_rate)

    def init(
        self, problem: MisspecifiedVI, theta: PyTree, x0: Array, lam0: Array
    ) -> AdaptiveGoldenRatioState:
        G, _ = primal_dual(problem, theta, self.dual_ratio)
        z, k = Pair(x0, lam0), jnp.asarray(0)
        G_z = G(z)
        tau = _first_step(problem, G, z, G_z) if self.step_size is None else self.step_size(k)
        return AdaptiveGoldenRatioState(
            k=k,
            z=z,
            z_bar=z,
            tau=tau,
            ratio=jnp.ones(()),
            tau_max=_RANGE * tau,
            tau_used=tau,
            G_z=G_z,
            n_tests=jnp.asarray(1 if self.step_size is None else 0),
            per_step=1 if problem.learning.is_known else 2,
        )

    def step(self, problem: MisspecifiedVI, theta: PyTree, state: AdaptiveGoldenRatioState, key=None):
        G, Z = primal_dual(problem, theta, self.dual_ratio)
        known = problem.learning.is_known
        G_z = state.G_z if known else G(state.z)
        z_bar = (1.0 / _PHI) * ((_PHI - 1.0) * state.z + state.z_bar)  # (1)
        z_next = Z.project(z_bar - state.tau * G_z)  # (2)
        G_next = G(z_next)  # at θ_k, like G_z
        curvature = safe_divide(G.norm_sq(z_next - state.z), G.norm_sq(G_next - G_z), jnp.inf)
        local = _PHI * state.ratio / (4.0 * state.tau) * curvature
        tau_next = jnp.minimum(jnp.minimum(_GROWTH * state.tau, local), state.tau_max)  # (3)
        next_state = AdaptiveGoldenRatioState(
            k=state.k + 1,
            z=z_next,
            z_bar=z_bar,
            tau=tau_next,
            ratio=_PHI * tau_next / state.tau,  # (4)
            tau_max=state.tau_max,
            tau_used=state.tau,
            G_z=G_next,
            n_tests=state.n_tests,
            per_step=state.per_step,
        )
        return next_state, Info(step_size=state.tau, penalty=state.tau * self.dual_ratio)

    def output(self, state: AdaptiveGoldenRatioState) -> tuple[Array, Array]:
        return state.z.x, state.z.lam

    def ergodic(self, state: AdaptiveGoldenRatioState):
        return state.z.x, state.tau_used

    def counts(self, state: AdaptiveGoldenRatioState, n_steps: Any) -> OracleCounts:
        return self.init_counts + self.step_counts.times(state.per_step * n_steps + state.n_tests)


def _first_step(problem: MisspecifiedVI, G: PrimalDualOperator, z: Pair, G_z: Pair) -> Array:
    """τ_0 = (φ/2)‖z_0 − z'‖/‖G(z_0) − G(z')‖ for a z' a little way towards a random point of Z."""
    towards = problem.set.sample(jax.random.key(0))
    nudged = Pair(z.x + _NUDGE * (towards - z.x), z.lam + _NUDGE * (1.0 + z.lam))
    return safe_divide(
        0.5 * _PHI * jnp.sqrt(G.norm_sq(nudged - z)), jnp.sqrt(G.norm_sq(G(nudged) - G_z)), 1.0
    )
