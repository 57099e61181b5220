"""Iterative Tikhonov regularisation of the Lagrangian: the second baseline of the paper's experiment."""

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
from viceversa.steps import Power, as_steps


class TikhonovState(eqx.Module):
    """k and (x_k, λ_k)."""

    k: Int[Array, ""]
    x: Float[Array, "..."]
    lam: Float[Array, "..."]


class TikhonovLagrangian(Method):
    """Misspecified iterative Tikhonov on the Lagrangian's (KKT) operator in (x, λ):

        x_{k+1} = P_X[x_k − γ_k (F(x_k, θ_k) + Jf(x_k, θ_k)ᵀ λ_k + ε_k x_k)]                        (1)
        λ_{k+1} = [λ_k + ωγ_k (f(x_k, θ_k) − ε_k λ_k)]₊                                             (2)

    Converges to the least-norm solution if γ_k/ε_k → 0, Σ γ_k ε_k = ∞ and (ε_{k−1} − ε_k)/(γ_k ε_k²) → 0, for
    example γ_k = γ_0 (k+1)^−α, ε_k = ε_0 (k+1)^−β with 0 < β < α, α + β < 1 (default β = 0.45 for α = 0.5). The bias
    ‖x^ε − x*‖ ~ ε_k keeps it no faster than about K^−½; a constant step cannot converge.

    Example:
        >>> import viceversa as vv
        >>> float(vv.TikhonovLagrangian(step_size=vv.steps.Power(0.01, 0.5)).regularization.exponent)
        0.45
    """

    reference: ClassVar[str] = "ahmadi2020resolution; jiang2011learning"
    init_counts: ClassVar[OracleCounts] = OracleCounts()
    step_counts: ClassVar[OracleCounts] = OracleCounts(F=1, f=1, pullback=1)

    step_size: Any
    regularization: Any
    dual_ratio: np.ndarray
    multipliers: str = eqx.field(static=True)
    learning_rate: Any
    learner: Any

    def __init__(
        self,
        step_size,
        regularization=None,
        dual_ratio=1.0,
        multipliers="shared",
        learning_rate=None,
        learner=None,
    ):
        name = "TikhonovLagrangian"
        self.step_size = as_steps(f"{name}: step_size", step_size)
        regularization = Power(1.0, 0.45) if regularization is None else regularization
        self.regularization = as_steps(f"{name}: regularization", regularization)
        self.dual_ratio = fraction(f"{name}: dual_ratio", dual_ratio, 0.0, np.inf)
        self.multipliers = one_of(f"{name}: multipliers", multipliers, ("shared", "per_player"))
        self.learner, self.learning_rate = check_learning(name, learner, learning_rate)

    def init(self, problem: MisspecifiedVI, theta: PyTree, x0: Array, lam0: Array) -> TikhonovState:
        lam = dual_start("TikhonovLagrangian", self.multipliers, x0, lam0)
        return TikhonovState(k=jnp.asarray(0), x=x0, lam=lam)

    def step(self, problem: MisspecifiedVI, theta: PyTree, state: TikhonovState, key=None):
        gamma, eps = self.step_size(state.k), self.regularization(state.k)
        sigma = self.dual_ratio * gamma
        per_player = self.multipliers == "per_player"
        G_x, f_x = lagrangian_operator(problem, state.x, state.lam, theta, per_player=per_player)
        x_next = problem.set.project(state.x - gamma * (G_x + eps * state.x))  # (1)
        lam_next = positive_part(state.lam + sigma * (f_x - eps * state.lam))  # (2)
        return TikhonovState(k=state.k + 1, x=x_next, lam=lam_next), Info(step_size=gamma, penalty=sigma)

    def output(self, state: TikhonovState) -> tuple[Array, Array]:
        return state.x, state.lam.mean(axis=0) if self.multipliers == "per_player" else state.lam

    def ergodic(self, state: TikhonovState):
        return state.x, jnp.ones(())


MisspecifiedTikhonov = TikhonovLagrangian
