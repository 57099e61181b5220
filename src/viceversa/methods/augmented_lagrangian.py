"""The paper's Algorithm 1: augmented Lagrangian with a forward–reflected–backward step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PyTree

from viceversa.methods.base import Info, Method, OracleCounts, check_learning
from viceversa.numerics import positive_part
from viceversa.problem import MisspecifiedVI
from viceversa.steps import as_steps

if TYPE_CHECKING:
    from viceversa.constants import TheorySteps


class AugmentedLagrangianState(eqx.Module):
    """What the next iteration needs: k, x_k, λ_k and F(x_{k−1}, θ_{k−1})."""

    k: Int[Array, ""]
    x: Float[Array, "..."]
    lam: Float[Array, " J"]
    F_prev: Float[Array, "..."]


class Remark:
    """A note a method carries for its reader: all remarks are equal, so none of them recompiles anything."""

    __slots__ = ("content",)

    def __init__(self, content: Any = None):
        self.content = content

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Remark)

    def __hash__(self) -> int:
        return hash(Remark)


class AugmentedLagrangian(Method):
    """Algorithm 1 of the paper, for monotone F and convex f, θ moving at the same time:

        r_k     = F(x_k, θ_k) − F(x_{k−1}, θ_{k−1})                                                  (1)
        x_{k+1} = P_X[x_k − γ_k (F(x_k, θ_k) + r_k + Jf(x_k, θ_k)ᵀ [ρ_k f(x_k, θ_k) + λ_k]₊)]        (2)
        λ_{k+1} = [λ_k + ρ_k f(x_{k+1}, θ_k)]₊                                                       (3)
        θ_{k+1} = P_Θ[θ_k − η_k H(θ_k)]                                   (4, the learner's step)

    with x_{−1} = x_0, θ_{−1} = θ_0 and λ_0 = 0. The multiplier sees the *new* x and the *old* θ.
    The gap and the infeasibility of (1/K) Σ_{k=1..K} x_k decrease as O(1/K) for constant ρ > 0 and
    1/γ ≥ ρC₁ + C₂ sup‖λ_k‖ + 2L_{F,x}. (The paper prints Jf without its transpose.)

    Example:
        >>> import viceversa as vv
        >>> vv.AugmentedLagrangian(step_size=0.01, penalty=0.1, learning_rate=1e-3).step_counts.F
        1
    """

    reference: ClassVar[str] = "dey2026misspecified, Alg. 1"
    init_counts: ClassVar[OracleCounts] = OracleCounts(F=1)
    step_counts: ClassVar[OracleCounts] = OracleCounts(F=1, f=2, pullback=1)

    step_size: Any
    penalty: Any
    learning_rate: Any
    learner: Any
    remark: Remark = eqx.field(static=True, repr=False)

    def __init__(
        self, step_size, penalty, learning_rate=None, learner=None, *, theory: TheorySteps | None = None
    ):
        self.step_size = as_steps("AugmentedLagrangian: step_size", step_size)
        self.penalty = as_steps("AugmentedLagrangian: penalty", penalty)
        self.learner, self.learning_rate = check_learning("AugmentedLagrangian", learner, learning_rate)
        self.remark = Remark(theory)

    @classmethod
    def from_theory(
        cls, problem: MisspecifiedVI, version: str = "corrected", **given: Any
    ) -> AugmentedLagrangian:
        """Algorithm 1 with ρ, γ and η that satisfy the theorem's conditions for this problem.

        `given` are the arguments of `theory_steps` (`penalty`, `learning_rate`, `x0`, `theta0`, `multiplier_norm`,
        `declared`, `constants`). `.theory` then says which constant made γ small.

        Example:
            >>> import viceversa as vv
            >>> problem = vv.MisspecifiedVI(lambda x, t: x - t, set=vv.Box([0.0], [4.0]), learning=vv.Known(2.0),
            ...                             constraints=lambda x, t: x - 1.0)
            >>> vv.AugmentedLagrangian.from_theory(problem).theory.limiting_constant
            '2L_F,x'
        """
        from viceversa.constants import theory_steps  # late: only this needs the theory

        steps = theory_steps(problem, version, **given)
        return cls(steps.step_size, steps.penalty, learning_rate=steps.learning_rate, theory=steps)

    @property
    def theory(self) -> TheorySteps | None:
        """Where γ, ρ and η come from, if `from_theory` made them."""
        return self.remark.content

    def init(
        self, problem: MisspecifiedVI, theta: PyTree, x0: Array, lam0: Array
    ) -> AugmentedLagrangianState:
        F_prev = problem.at(theta).F(x0)  # x_{−1} = x_0 and θ_{−1} = θ_0
        return AugmentedLagrangianState(k=jnp.asarray(0), x=x0, lam=lam0, F_prev=F_prev)

    def step(self, problem: MisspecifiedVI, theta: PyTree, state: AugmentedLagrangianState, key=None):
        F, f, X = problem.at(theta)
        gamma, rho = self.step_size(state.k), self.penalty(state.k)
        F_x = F(state.x)
        r = F_x - state.F_prev  # (1)
        f_x, pullback = f.vjp(state.x)
        x_next = X.project(
            state.x - gamma * (F_x + r + pullback(positive_part(rho * f_x + state.lam)))
        )  # (2)
        lam_next = positive_part(state.lam + rho * f(x_next))  # (3)
        next_state = AugmentedLagrangianState(k=state.k + 1, x=x_next, lam=lam_next, F_prev=F_x)
        return next_state, Info(step_size=gamma, penalty=rho)

    def output(self, state: AugmentedLagrangianState) -> tuple[Array, Array]:
        return state.x, state.lam

    def ergodic(self, state: AugmentedLagrangianState):
        return state.x, jnp.ones(())
