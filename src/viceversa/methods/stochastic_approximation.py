"""Misspecified stochastic approximation, plain and with iterative Tikhonov regularisation."""

from __future__ import annotations

from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PyTree

from viceversa.errors import InputError
from viceversa.methods.base import Info, Method, OracleCounts, check_learning, fraction
from viceversa.numerics import positive_part
from viceversa.problem import MisspecifiedVI
from viceversa.sampling import SampledOperator
from viceversa.steps import as_steps


class StochasticApproximationState(eqx.Module):
    """k, (x_k, λ_k), and x_{k−1} with its weight γ_{k−1} in the average."""

    k: Int[Array, ""]
    x: Float[Array, "..."]
    lam: Float[Array, " J"]
    x_prev: Float[Array, "..."]
    gamma_prev: Float[Array, ""]


class StochasticApproximation(Method):
    """Misspecified stochastic approximation on the Lagrangian's operator; F̂ is the mean of `batch` samples of F:

        x_{k+1} = P_X[x_k − γ_k (F̂(x_k, θ_k) + Jf(x_k, θ_k)ᵀ λ_k + ε_k x_k)]                        (1)
        λ_{k+1} = [λ_k + ωγ_k (f(x_k, θ_k) − ε_k λ_k)]₊                                             (2)
        θ_{k+1} = P_Θ[θ_k − η_k Ĥ(θ_k)]                          (3, the learner `vv.StochasticGradient`)

    Without `regularization` (ε = 0): F μ-strongly monotone, γ_k = γ_0/(k + 1), γ_0 > 1/(2μ): almost sure convergence and
    E‖x_k − x*‖² = O(1/k). With it, merely monotone F: γ_k = γ_0(k+1)^−α, ε_k = ε_0(k+1)^−β with ½ < α < 1, 0 < β < α,
    α + β < 1: almost sure convergence to the least-norm solution. Under weak sharpness the γ-weighted average is
    O(√(log K/K)). The answer is the last iterate; `vv.Averaged` makes it the average. `operator` of the problem must be a
    `vv.FiniteSum` or `vv.NoisyOperator`; `solve(seed=...)` repeats a run exactly.

    Example:
        >>> import viceversa as vv
        >>> vv.StochasticApproximation(vv.steps.Power(1.0, 0.55), regularization=vv.steps.Power(1.0, 0.4)).batch
        1
    """

    reference: ClassVar[str] = "jiang2016solution"
    init_counts: ClassVar[OracleCounts] = OracleCounts()
    step_counts: ClassVar[OracleCounts] = OracleCounts(F=1, f=1, pullback=1)
    stochastic: ClassVar[bool] = True

    step_size: Any
    regularization: Any
    batch: int = eqx.field(static=True)
    dual_ratio: np.ndarray
    learning_rate: Any
    learner: Any

    def __init__(
        self, step_size, regularization=None, batch=1, dual_ratio=1.0, learning_rate=None, learner=None
    ):
        name = "StochasticApproximation"
        self.step_size = as_steps(f"{name}: step_size", step_size)
        self.regularization = (
            None if regularization is None else as_steps(f"{name}: regularization", regularization)
        )
        if int(batch) != batch or batch < 1:
            raise InputError(f"{name}: batch is {batch}; a whole number >= 1 is needed.")
        self.batch = int(batch)
        self.dual_ratio = fraction(f"{name}: dual_ratio", dual_ratio, 0.0, np.inf)
        self.learner, self.learning_rate = check_learning(name, learner, learning_rate)

    def check(self, problem: MisspecifiedVI) -> None:
        if not isinstance(problem.operator, SampledOperator):
            raise InputError(
                "StochasticApproximation: the operator gives no samples. Make it a vv.FiniteSum(function, data) or a "
                "vv.NoisyOperator(operator, draw), or use a deterministic method."
            )

    def init(
        self, problem: MisspecifiedVI, theta: PyTree, x0: Array, lam0: Array
    ) -> StochasticApproximationState:
        k = jnp.asarray(0)
        return StochasticApproximationState(k, x0, lam0, x0, self.step_size(k))

    def step(self, problem: MisspecifiedVI, theta: PyTree, state: StochasticApproximationState, key=None):
        assert key is not None
        _, f, X = problem.at(theta)
        gamma = self.step_size(state.k)
        sigma = gamma * self.dual_ratio
        eps = 0.0 if self.regularization is None else self.regularization(state.k)
        F_hat = problem.operator.sample(state.x, theta, key, self.batch)
        f_x, pullback = f.vjp(state.x)
        x_next = X.project(state.x - gamma * (F_hat + pullback(state.lam) + eps * state.x))  # (1)
        lam_next = positive_part(state.lam + sigma * (f_x - eps * state.lam))  # (2)
        next_state = StochasticApproximationState(state.k + 1, x_next, lam_next, state.x, gamma)
        return next_state, Info(step_size=gamma, penalty=sigma)

    def output(self, state: StochasticApproximationState) -> tuple[Array, Array]:
        return state.x, state.lam

    def ergodic(self, state: StochasticApproximationState):
        return state.x_prev, state.gamma_prev
