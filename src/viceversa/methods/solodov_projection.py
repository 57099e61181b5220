"""A Solodov-type projection method: a line search finds a hyperplane that separates the iterate from the solutions."""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, PyTree

from viceversa import numerics
from viceversa.methods.base import Info, Method, OracleCounts, check_learning, fraction
from viceversa.numerics import safe_divide
from viceversa.primal_dual import Pair, primal_dual
from viceversa.problem import MisspecifiedVI
from viceversa.steps import as_steps

_MAX_TESTS = 60  # 0.5^60 ≈ 1e-18: beyond it the trial point is the iterate itself


class SolodovState(eqx.Module):
    """k, z_k and how many trial points the line searches have evaluated."""

    k: Int[Array, ""]
    z: Pair
    n_tests: Int[Array, ""]


class _Trial(NamedTuple):
    length: Array
    y: Pair
    G_y: Pair
    accepted: Array
    n_tests: Array


class SolodovProjection(Method):
    """Solodov-type projection with a line search, on z = (x, λ), the Lagrangian's G and Z = X × R^J₊:

        r       = z_k − P_Z[z_k − μ_k G(z_k, θ_k)]                                                  (1)
        y       = z_k − β^m r, the smallest m ≥ 0 with ⟨G(y, θ_k), r⟩ ≥ (σ/μ_k) ‖r‖²                (2)
        z_{k+1} = P_Z[z_k − (⟨G(y, θ_k), z_k − y⟩/‖G(y, θ_k)‖²) G(y, θ_k)]                          (3)

    with β = ½ and μ_k = `step_size` (a scale, not a constant of G). The hyperplane {z : ⟨G(y), z − y⟩ = 0} of (3)
    separates z_k from every solution, so the distance to the solutions falls for any continuous, monotone (even
    pseudomonotone) G: no Lipschitz constant at all. No rate is claimed.

    Example:
        >>> import viceversa as vv
        >>> float(vv.SolodovProjection().sigma)
        0.3
    """

    reference: ClassVar[str] = "solodov1999new; iusem1997variant"
    init_counts: ClassVar[OracleCounts] = OracleCounts()
    step_counts: ClassVar[OracleCounts] = OracleCounts(F=1, f=1, pullback=1)

    step_size: Any
    sigma: np.ndarray
    shrink: np.ndarray
    dual_ratio: np.ndarray
    learning_rate: Any
    learner: Any

    def __init__(
        self, step_size=1.0, sigma=0.3, shrink=0.5, dual_ratio=1.0, learning_rate=None, learner=None
    ):
        self.step_size = as_steps("SolodovProjection: step_size", step_size)
        self.sigma = fraction("SolodovProjection: sigma", sigma, 0.0, 1.0)
        self.shrink = fraction("SolodovProjection: shrink", shrink, 0.0, 1.0)
        self.dual_ratio = fraction("SolodovProjection: dual_ratio", dual_ratio, 0.0, np.inf)
        self.learner, self.learning_rate = check_learning("SolodovProjection", learner, learning_rate)

    def init(self, problem: MisspecifiedVI, theta: PyTree, x0: Array, lam0: Array) -> SolodovState:
        return SolodovState(k=jnp.asarray(0), z=Pair(x0, lam0), n_tests=jnp.asarray(0))

    def step(self, problem: MisspecifiedVI, theta: PyTree, state: SolodovState, key=None):
        G, Z = primal_dual(problem, theta, self.dual_ratio)
        z, mu = state.z, self.step_size(state.k)
        G_z = G(z)
        r = z - Z.project(z - mu * G_z)  # (1)
        needed = self.sigma / mu * G.norm_sq(r)

        def attempt(trial: _Trial) -> _Trial:
            length = jnp.where(trial.n_tests == 0, 1.0, self.shrink * trial.length)
            y = z - length * r
            G_y = G(y)
            return _Trial(length, y, G_y, G.dot(G_y, r) >= needed, trial.n_tests + 1)  # (2)

        trial = _Trial(jnp.ones(()), z, G_z, jnp.asarray(False), jnp.asarray(0))
        trial = numerics.while_loop(
            lambda t: ~t.accepted & (t.n_tests < _MAX_TESTS), attempt, trial, on_host=problem.runs_on_host
        )
        ahead = jnp.maximum(G.dot(trial.G_y, z - trial.y), 0.0)  # negative only by rounding
        z_next = Z.project(z - safe_divide(ahead, G.norm_sq(trial.G_y), 0.0) * trial.G_y)  # (3)
        next_state = SolodovState(k=state.k + 1, z=z_next, n_tests=state.n_tests + trial.n_tests)
        return next_state, Info(step_size=mu * trial.length, penalty=self.dual_ratio * mu * trial.length)

    def output(self, state: SolodovState) -> tuple[Array, Array]:
        return state.z.x, state.z.lam

    def ergodic(self, state: SolodovState):
        return state.z.x, jnp.ones(())

    def counts(self, state: SolodovState, n_steps: Any) -> OracleCounts:
        return self.step_counts.times(n_steps + state.n_tests)
