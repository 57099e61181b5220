"""Accelerated primal–dual for saddle points whose parameter is being learned, with momentum that knows it."""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PyTree

from viceversa import numerics
from viceversa.errors import InputError
from viceversa.methods.base import Info, Method, OracleCounts, check_learning, fraction, one_of
from viceversa.problem import MisspecifiedVI
from viceversa.saddle import SaddleOperator
from viceversa.sets import Product

_SHRINK = 0.7  # a refused step is multiplied by this
_C_A, _C_B, _DELTA = 0.3, 0.3, 0.1  # any with c_a + c_b + δ ≤ 1
_MAX_TESTS = 100  # 0.7^100 ≈ 3e-16: beyond it the step is below rounding


class PrimalDualState(eqx.Module):
    """k, (x_k, y_k), (x_{k−1}, y_{k−1}), ∇_yφ there at θ_{k−1}, τ_k, the ratio r_k = σ_k/τ_k, σ_{k−1}, and the tests made."""

    k: Int[Array, ""]
    x: Float[Array, "..."]
    y: Float[Array, "..."]
    x_prev: Float[Array, "..."]
    y_prev: Float[Array, "..."]
    slope_prev: Float[Array, "..."]
    tau: Float[Array, ""]
    ratio: Float[Array, ""]
    sigma_prev: Float[Array, ""]
    n_tests: Int[Array, ""]


class _Trial(NamedTuple):
    tau: Array
    x: Array
    y: Array
    accepted: Array
    n_tests: Array


class LearningAwarePrimalDual(Method):
    """Accelerated primal–dual with learning, in the style of Ahmadi & Yazdandoost Hamedani, for `vv.SaddlePoint`:

        s_k     = (1 + η_k) ∇_yφ(x_k, y_k, θ_k) − η_k ∇_yφ(x_{k−1}, y_{k−1}, θ_{k−1})                (1, learning-aware)
        s_k     = (1 + η_k) ∇_yφ(x_k, y_k, θ_k) − η_k ∇_yφ(x_{k−1}, y_{k−1}, θ_k)                    (1', naive)
        y_{k+1} = P_Y[y_k + σ_k s_k]                                                                (2)
        x_{k+1} = P_X[x_k − τ_k ∇ₓφ(x_k, y_{k+1}, θ_k)]                                             (3)
        σ_k = r_k τ_k,   η_k = σ_{k−1}/σ_k,   r_{k+1} = r_k (1 + μτ_k),   τ_{k+1} = τ_k √(r_k/r_{k+1})  (4)

    The old gradient in (1) keeps its old θ: it costs nothing and follows the drift, where (1') needs one gradient more.
    φ convex–concave, smooth; fixed steps 1/τ ≥ L_xx + σL_yx² (φ linear in y). `backtracking=True` asks for no constant: τ_k is
    multiplied by 0.7 until, with all gradients at θ_k, Δx = x_{k+1} − x_k, Δy likewise,

        ⟨∇ₓφ(x_{k+1}, y_{k+1}) − ∇ₓφ(x_k, y_{k+1}), Δx⟩ + (σ_k/2c_a)‖∇_yφ(x_{k+1}, y_{k+1}) − ∇_yφ(x_k, y_{k+1})‖²
        + (σ_k/2c_b)‖∇_yφ(x_k, y_{k+1}) − ∇_yφ(x_k, y_k)‖² ≤ (1−δ)‖Δx‖²/(2τ_k) + (1−δ−c_a−c_b)‖Δy‖²/(2σ_k).   (5)

    The gap of the σ-weighted average is O(log K/K). `mu` is the strong convexity in x (0 if none), `ratio` is r_0 = σ_0/τ_0.
    Oracle counts: F counts single partial gradients, ∇ₓφ or ∇_yφ. (Details reconstructed from the published description.)

    Example:
        >>> import viceversa as vv
        >>> vv.LearningAwarePrimalDual(step_size=0.5).momentum
        'learning_aware'
    """

    reference: ClassVar[str] = "ahmadi2025learning; hamedani2021primal"
    init_counts: ClassVar[OracleCounts] = OracleCounts(F=1)
    step_counts: ClassVar[OracleCounts] = OracleCounts(F=2)

    step_size: np.ndarray
    ratio: np.ndarray
    mu: np.ndarray
    momentum: str = eqx.field(static=True)
    backtracking: bool = eqx.field(static=True)
    learning_rate: Any
    learner: Any

    def __init__(
        self,
        step_size=1.0,
        ratio=1.0,
        mu=0.0,
        momentum="learning_aware",
        backtracking=False,
        learning_rate=None,
        learner=None,
    ):
        name = "LearningAwarePrimalDual"
        self.step_size = fraction(f"{name}: step_size", step_size, 0.0, np.inf)
        self.ratio = fraction(f"{name}: ratio", ratio, 0.0, np.inf)
        self.mu = np.asarray(mu, dtype=np.float64)
        if self.mu.shape != () or not 0.0 <= self.mu < np.inf:
            raise InputError(f"{name}: mu is {mu}; a number >= 0 is needed.")
        self.momentum = one_of(f"{name}: momentum", momentum, ("learning_aware", "naive"))
        self.backtracking = bool(backtracking)
        self.learner, self.learning_rate = check_learning(name, learner, learning_rate)

    def check(self, problem: MisspecifiedVI) -> None:
        if not isinstance(problem.operator, SaddleOperator):
            raise InputError(
                "LearningAwarePrimalDual: the problem is not a saddle point. Build it with vv.SaddlePoint(phi, set_x, set_y, "
                "learning), or use a method for VIs."
            )
        if problem.n_constraints:
            raise InputError(
                "LearningAwarePrimalDual: the problem has constraints, which this method does not take. Put them into phi with "
                "their multipliers as part of y, or use vv.AugmentedLagrangian."
            )

    def init(self, problem: MisspecifiedVI, theta: PyTree, x0: Array, lam0: Array) -> PrimalDualState:
        x, y = problem.operator.split(x0)
        slope = problem.operator.grad_y(x, y, theta)
        tau, ratio = jnp.asarray(self.step_size), jnp.asarray(self.ratio)
        return PrimalDualState(jnp.asarray(0), x, y, x, y, slope, tau, ratio, tau * ratio, jnp.asarray(0))

    def step(self, problem: MisspecifiedVI, theta: PyTree, state: PrimalDualState, key=None):
        phi = problem.operator
        X, Y = _sides(problem)
        slope = phi.grad_y(state.x, state.y, theta)
        naive = self.momentum == "naive"
        slope_prev = phi.grad_y(state.x_prev, state.y_prev, theta) if naive else state.slope_prev

        def attempt(trial: _Trial) -> _Trial:
            tau = jnp.where(trial.n_tests == 0, trial.tau, _SHRINK * trial.tau)
            sigma = state.ratio * tau
            eta = state.sigma_prev / sigma  # (4)
            s = (1.0 + eta) * slope - eta * slope_prev  # (1), (1')
            y_next = Y.project(state.y + sigma * s)  # (2)
            pull = phi.grad_x(state.x, y_next, theta)
            x_next = X.project(state.x - tau * pull)  # (3)
            if not self.backtracking:
                return _Trial(tau, x_next, y_next, jnp.asarray(True), trial.n_tests + 1)
            dx, dy = x_next - state.x, y_next - state.y
            rise = phi.grad_y(state.x, y_next, theta)
            bent = jnp.sum((phi.grad_x(x_next, y_next, theta) - pull) * dx)
            crossed = _norm_sq(phi.grad_y(x_next, y_next, theta) - rise) * sigma / (2.0 * _C_A)
            curved = _norm_sq(rise - slope) * sigma / (2.0 * _C_B)
            room = (1.0 - _DELTA) * _norm_sq(dx) / (2.0 * tau)
            room += (1.0 - _DELTA - _C_A - _C_B) * _norm_sq(dy) / (2.0 * sigma)
            return _Trial(tau, x_next, y_next, bent + crossed + curved <= room, trial.n_tests + 1)  # (5)

        start = _Trial(state.tau, state.x, state.y, jnp.asarray(False), jnp.asarray(0))
        if self.backtracking:
            trial = numerics.while_loop(
                lambda t: ~t.accepted & (t.n_tests < _MAX_TESTS), attempt, start, on_host=problem.runs_on_host
            )
        else:
            trial = attempt(start)
        ratio_next = state.ratio * (1.0 + self.mu * trial.tau)  # (4)
        next_state = PrimalDualState(
            k=state.k + 1,
            x=trial.x,
            y=trial.y,
            x_prev=state.x,
            y_prev=state.y,
            slope_prev=slope,
            tau=trial.tau * jnp.sqrt(state.ratio / ratio_next),
            ratio=ratio_next,
            sigma_prev=state.ratio * trial.tau,
            n_tests=state.n_tests + trial.n_tests,
        )
        return next_state, Info(step_size=trial.tau, penalty=state.ratio * trial.tau)

    def output(self, state: PrimalDualState) -> tuple[Array, Array]:
        return jnp.concatenate([jnp.ravel(state.x), jnp.ravel(state.y)]), jnp.zeros(0, state.x.dtype)

    def ergodic(self, state: PrimalDualState):
        return self.output(state)[0], state.sigma_prev

    def counts(self, state: PrimalDualState, n_steps: Any) -> OracleCounts:
        # ∇_yφ at the new point, and at the old one with the new θ
        per_step = 2 if self.momentum == "naive" else 1
        # A tried step asks for ∇ₓφ once, and for three gradients more in the test (5).
        tried = 4 * state.n_tests if self.backtracking else n_steps
        return self.init_counts + OracleCounts(F=per_step * n_steps + tried)


def _sides(problem: MisspecifiedVI):
    assert isinstance(problem.set, Product)
    return problem.set.blocks


def _norm_sq(v: Array) -> Array:
    return jnp.sum(v * v)
