"""Extragradient on the Lagrangian: the first baseline of the paper's experiment."""

from __future__ import annotations

from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PyTree

from viceversa.lagrangian import lagrangian_operator
from viceversa.methods.base import Info, Method, OracleCounts, check_learning, dual_start, fraction, one_of
from viceversa.numerics import positive_part
from viceversa.problem import MisspecifiedVI
from viceversa.steps import as_steps


class ExtragradientState(eqx.Module):
    """k, (x_k, λ_k), and the midpoint y of the last step, which the average is about."""

    k: Int[Array, ""]
    x: Float[Array, "..."]
    lam: Float[Array, "..."]
    midpoint: Float[Array, "..."]


class ExtragradientLagrangian(Method):
    """Misspecified extragradient on the Lagrangian's (KKT) operator in (x, λ):

        y       = P_X[x_k − τ_k (F(x_k, θ_k) + Jf(x_k, θ_k)ᵀ λ_k)],   ν       = [λ_k + ωτ_k f(x_k, θ_k)]₊     (1)
        x_{k+1} = P_X[x_k − τ_k (F(y, θ_k) + Jf(y, θ_k)ᵀ ν)],         λ_{k+1} = [λ_k + ωτ_k f(y, θ_k)]₊       (2)

    ω = `dual_ratio` is the dual over the primal step. Monotone Lipschitz operator, τL_F + τ√ω M_∇f < 1; the
    average of the midpoints y has gap O(1/K) where λ stays bounded. `multipliers="per_player"` keeps one copy
    of λ for each player (the first axis of x), the literal wording of the paper's experiment: that operator
    is not monotone, and its solutions are all generalized Nash equilibria.

    Example:
        >>> import viceversa as vv
        >>> vv.ExtragradientLagrangian(step_size=0.01).step_counts.F
        2
    """

    reference: ClassVar[str] = "ahmadi2020resolution; korpelevich1976extragradient"
    init_counts: ClassVar[OracleCounts] = OracleCounts()
    step_counts: ClassVar[OracleCounts] = OracleCounts(F=2, f=2, pullback=2)

    step_size: Any
    dual_ratio: np.ndarray
    multipliers: str = eqx.field(static=True)
    learning_rate: Any
    learner: Any

    def __init__(self, step_size, dual_ratio=1.0, multipliers="shared", learning_rate=None, learner=None):
        name = "ExtragradientLagrangian"
        self.step_size = as_steps(f"{name}: step_size", step_size)
        self.dual_ratio = fraction(f"{name}: dual_ratio", dual_ratio, 0.0, np.inf)
        self.multipliers = one_of(f"{name}: multipliers", multipliers, ("shared", "per_player"))
        self.learner, self.learning_rate = check_learning(name, learner, learning_rate)

    def init(self, problem: MisspecifiedVI, theta: PyTree, x0: Array, lam0: Array) -> ExtragradientState:
        lam = dual_start("ExtragradientLagrangian", self.multipliers, x0, lam0)
        return ExtragradientState(k=jnp.asarray(0), x=x0, lam=lam, midpoint=x0)

    def step(self, problem: MisspecifiedVI, theta: PyTree, state: ExtragradientState, key=None):
        X, per_player = problem.set, self.multipliers == "per_player"
        tau = self.step_size(state.k)
        sigma = self.dual_ratio * tau
        G_x, f_x = lagrangian_operator(problem, state.x, state.lam, theta, per_player=per_player)
        y = X.project(state.x - tau * G_x)  # (1)
        nu = positive_part(state.lam + sigma * f_x)
        G_y, f_y = lagrangian_operator(problem, y, nu, theta, per_player=per_player)
        x_next = X.project(state.x - tau * G_y)  # (2)
        lam_next = positive_part(state.lam + sigma * f_y)
        next_state = ExtragradientState(k=state.k + 1, x=x_next, lam=lam_next, midpoint=y)
        return next_state, Info(step_size=tau, penalty=sigma)

    def output(self, state: ExtragradientState) -> tuple[Array, Array]:
        return state.x, state.lam.mean(axis=0) if self.multipliers == "per_player" else state.lam

    def ergodic(self, state: ExtragradientState):
        return state.midpoint, jnp.ones(())


Extragradient = ExtragradientLagrangian
MisspecifiedExtragradient = ExtragradientLagrangian
