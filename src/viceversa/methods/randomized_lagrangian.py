"""A randomized augmented Lagrangian for very many constraints: each step looks at a block of them."""

from __future__ import annotations

from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PyTree

from viceversa.errors import InputError
from viceversa.methods.base import Info, Method, OracleCounts, check_learning
from viceversa.numerics import positive_part
from viceversa.problem import MisspecifiedVI
from viceversa.sampling import IndexedConstraints, SampledOperator
from viceversa.steps import as_steps


class RandomizedLagrangianState(eqx.Module):
    """k, x_k, λ_k, and x_{k−1} with its weight γ_{k−1} in the average."""

    k: Int[Array, ""]
    x: Float[Array, "..."]
    lam: Float[Array, " J"]
    x_prev: Float[Array, "..."]
    gamma_prev: Float[Array, ""]


class RandomizedLagrangian(Method):
    """Randomized Lagrangian stochastic approximation in the style of Alizadeh, Jalilzadeh & Yousefian, for large J:

        S_k ⊂ {1..J}, `block` indices drawn uniformly without repetition                            (1)
        x_{k+1} = P_X[x_k − γ_k (F̂(x_k, θ_k) + (J/|S_k|) Σ_{j∈S_k} [ρ_k f_j(x_k, θ_k) + λ_j]₊ ∇f_j(x_k, θ_k))]   (2)
        λ_{k+1,j} = [λ_j + ρ_k f_j(x_{k+1}, θ_k)]₊ for j ∈ S_k, the others unchanged                (3)

    F̂ is a mean of `batch` samples where the operator can be sampled, F itself otherwise. γ_k, ρ_k ~ 1/(√k log k): gap and
    infeasibility of the γ-weighted average are O(log K/√K) in mean. `constraints` must be a `vv.IndexedConstraints`; a step
    costs `block` of them, twice, whatever J is. (Reconstructed from the published description.)

    Example:
        >>> import viceversa as vv
        >>> vv.RandomizedLagrangian(vv.steps.Power(0.1, 0.5), vv.steps.Power(0.1, 0.5), block=16).block
        16
    """

    reference: ClassVar[str] = "alizadeh2024randomized"
    init_counts: ClassVar[OracleCounts] = OracleCounts()
    step_counts: ClassVar[OracleCounts] = OracleCounts(F=1, f=2, pullback=1)  # f: of a block
    stochastic: ClassVar[bool] = True

    step_size: Any
    penalty: Any
    block: int = eqx.field(static=True)
    batch: int = eqx.field(static=True)
    learning_rate: Any
    learner: Any

    def __init__(self, step_size, penalty, block=1, batch=1, learning_rate=None, learner=None):
        name = "RandomizedLagrangian"
        self.step_size = as_steps(f"{name}: step_size", step_size)
        self.penalty = as_steps(f"{name}: penalty", penalty)
        for word, n in (("block", block), ("batch", batch)):
            if int(n) != n or n < 1:
                raise InputError(f"{name}: {word} is {n}; a whole number >= 1 is needed.")
        self.block, self.batch = int(block), int(batch)
        self.learner, self.learning_rate = check_learning(name, learner, learning_rate)

    def check(self, problem: MisspecifiedVI) -> None:
        if not isinstance(problem.constraints, IndexedConstraints):
            raise InputError(
                "RandomizedLagrangian: the constraints cannot be asked for a block. Make them a "
                "vv.IndexedConstraints(function, data), or use vv.AugmentedLagrangian."
            )
        if self.block > problem.n_constraints:
            raise InputError(
                f"RandomizedLagrangian: block is {self.block}; there are only {problem.n_constraints} constraints."
            )

    def init(
        self, problem: MisspecifiedVI, theta: PyTree, x0: Array, lam0: Array
    ) -> RandomizedLagrangianState:
        k = jnp.asarray(0)
        return RandomizedLagrangianState(k, x0, lam0, x0, self.step_size(k))

    def step(self, problem: MisspecifiedVI, theta: PyTree, state: RandomizedLagrangianState, key=None):
        assert key is not None
        for_block, for_F = jax.random.split(key)
        gamma, rho = self.step_size(state.k), self.penalty(state.k)
        J = problem.n_constraints
        S = jax.random.choice(for_block, J, (self.block,), replace=False)  # (1)
        F_hat = self._sample(problem, state.x, theta, for_F)
        f_S, pullback = jax.vjp(lambda x: problem.constraints.block(S, x, theta), state.x)
        (pushed,) = pullback(positive_part(rho * f_S + state.lam[S]))
        x_next = problem.set.project(state.x - gamma * (F_hat + (J / self.block) * pushed))  # (2)
        f_next = problem.constraints.block(S, x_next, theta)
        lam_next = state.lam.at[S].set(positive_part(state.lam[S] + rho * f_next))  # (3)
        next_state = RandomizedLagrangianState(state.k + 1, x_next, lam_next, state.x, gamma)
        return next_state, Info(step_size=gamma, penalty=rho)

    def _sample(self, problem: MisspecifiedVI, x: Array, theta: PyTree, key: Array) -> Array:
        if isinstance(problem.operator, SampledOperator):
            return problem.operator.sample(x, theta, key, self.batch)
        return problem.at(theta).F(x)

    def output(self, state: RandomizedLagrangianState) -> tuple[Array, Array]:
        return state.x, state.lam

    def ergodic(self, state: RandomizedLagrangianState):
        return state.x_prev, state.gamma_prev
