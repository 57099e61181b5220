"""Algorithm 1 without constants: step and penalty found along the way by an acceptance test."""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PyTree

from viceversa import numerics
from viceversa.methods.base import Info, Method, OracleCounts, check_learning, fraction
from viceversa.numerics import positive_part, safe_divide, tree_norm
from viceversa.problem import MisspecifiedVI

_SHRINK = 0.7  # THEORY.md B.4: a refused step is multiplied by this
_GROW = 1.2  # and the next iteration starts from this much more
_MAX_TESTS = 100  # 0.7^100 ≈ 3e-16: beyond it the step is below rounding
_GAMMA_RANGE = 1e6  # B.4: γ_max = 10⁶ γ_0; the proof needs some cap
_NEARBY = 1e-6  # of the step that crosses X: where F is looked at next to x_0
_IN_DOUBT = 3.0  # halvings that are tried although F's slope there says that they are too few
_MOST_DOUBLINGS = 200.0  # of a step in a set without end; 2²⁰⁰ is beyond all units
_FREEZE = 1e-9  # B.4: below this relative movement the tests only see rounding
_PENALTY_SHARE = 0.2  # γρ‖Jf‖² at the start; the test allows ½ − ν = ¼


class AdaptiveState(eqx.Module):
    """k, x_k, λ_k, F(x_{k−1}, θ_{k−1}), γ_{k−1}, the primal weights s, and what the safeguards remember.

    `slope_sq`: ‖∇f_j‖² where γ was found, and `gradient_sq` what counts for it; `size_sq`: the largest ‖x‖² so far; `restarts`: x_k was put there, so x_{k−1} = x_k and nothing is reflected.
    """

    k: Int[Array, ""]
    x: Float[Array, "..."]
    lam: Float[Array, " J"]
    F_prev: Float[Array, "..."]
    gamma: Float[Array, ""]
    gamma_max: Float[Array, ""]
    weight: Float[Array, " J"]
    slope_sq: Float[Array, " J"]
    gradient_sq: Float[Array, " J"]
    size_sq: Float[Array, ""]
    moved: Bool[Array, ""]
    restarts: Bool[Array, ""]
    n_first: Int[Array, ""]
    n_tests: Int[Array, ""]

    def placed(self, x: Array, lam: Array) -> AdaptiveState:
        """The state to go on from at a point that another method found."""
        yes = jnp.asarray(True)
        return eqx.tree_at(lambda s: (s.x, s.lam, s.moved, s.restarts), self, (x, lam, yes, yes))


class _Trial(NamedTuple):
    gamma: Array
    x: Array
    f: Array
    accepted: Array
    n_tests: Array


class AdaptiveAugmentedLagrangian(Method):
    """Algorithm 1 with steps found by a test, for monotone F and convex f; no constant is asked for.

        ρ_k     = s γ_k                                                                             (1)
        x_{k+1} = P_X[x_k − γ_k (F_k + Jf(x_k, θ_k)ᵀ[ρ_k f(x_k, θ_k) + λ_k]₊) − γ_{k−1}(F_k − F_{k−1})]  (2)
        accept γ_k if  γ_k ‖F(x_{k+1}, θ_k) − F_k‖ ≤ ν ‖Δ_k‖                                        (3a)
                  and  γ_k ⟨∇ₓΦ(x_{k+1}) − ∇ₓΦ(x_k), Δ_k⟩ ≤ (½ − ν) ‖Δ_k‖²,  else γ_k ← 0.7 γ_k     (3b)
        λ_{k+1} = [λ_k + ρ_k f(x_{k+1}, θ_k)]₊                                                      (4)

    F_k = F(x_k, θ_k), Δ_k = x_{k+1} − x_k, ν = ¼. Averages are weighted by γ_k; they have the O(1/K) rate of
    Algorithm 1 with only local Lipschitz continuity. Both tests use the same θ_k on both sides. The primal
    weight s is one number per constraint, s_j = `weight`·0.2/(γ_0²‖∇f_j‖²), so that scaling a constraint
    changes nothing.

    Example:
        >>> import viceversa as vv
        >>> float(vv.AdaptiveAugmentedLagrangian().nu)
        0.25
    """

    reference: ClassVar[str] = "dey2026misspecified, Alg. 1; malitsky2020forward, Sec. 3"
    init_counts: ClassVar[OracleCounts] = OracleCounts(F=1, f=1)  # and what the state has counted
    step_counts: ClassVar[OracleCounts] = OracleCounts(F=1, f=1)

    weight: np.ndarray
    nu: np.ndarray
    learning_rate: Any
    learner: Any

    def __init__(self, weight: float = 1.0, nu: float = 0.25, learning_rate=None, learner=None):
        self.weight = fraction("AdaptiveAugmentedLagrangian: weight", weight, 0.0, np.inf)
        self.nu = fraction("AdaptiveAugmentedLagrangian: nu", nu, 0.0, 0.5)
        self.learner, self.learning_rate = check_learning(
            "AdaptiveAugmentedLagrangian", learner, learning_rate
        )

    def init(self, problem: MisspecifiedVI, theta: PyTree, x0: Array, lam0: Array) -> AdaptiveState:
        F, f, _ = problem.at(theta)
        F_0 = F(x0)
        gamma, n_first = self._first_step(problem, theta, x0, F_0)
        slope_sq, gradient_sq = _gradient_norms_sq(problem, f, x0, gamma * F_0)
        return AdaptiveState(
            k=jnp.asarray(0),
            x=x0,
            lam=lam0,
            F_prev=F_0,
            gamma=gamma,
            gamma_max=_GAMMA_RANGE * gamma,
            weight=safe_divide(self.weight * _PENALTY_SHARE, gamma**2 * gradient_sq, 1.0),
            slope_sq=slope_sq,
            gradient_sq=gradient_sq,
            size_sq=jnp.sum(x0 * x0),
            moved=jnp.asarray(True),
            restarts=jnp.asarray(True),
            n_first=n_first,
            n_tests=jnp.asarray(0),
        )

    def step(self, problem: MisspecifiedVI, theta: PyTree, state: AdaptiveState, key=None):
        F, f, X = problem.at(theta)
        F_x = F(state.x)
        f_x, pullback = f.vjp(state.x)
        reflected = jnp.where(state.restarts, 0.0, state.gamma * (F_x - state.F_prev))
        may_test = state.moved

        def attempt(trial: _Trial) -> _Trial:
            gamma = jnp.where(trial.n_tests == 0, trial.gamma, _SHRINK * trial.gamma)
            rho = state.weight * gamma  # (1)
            gradient = pullback(positive_part(rho * f_x + state.lam))
            x_next = X.project(state.x - gamma * (F_x + gradient) - reflected)  # (2)
            f_next, pullback_next = f.vjp(x_next)
            gradient_next = pullback_next(positive_part(rho * f_next + state.lam))
            delta = x_next - state.x
            delta_sq = jnp.sum(delta * delta)
            change = gamma * jnp.sqrt(jnp.sum(jnp.square(F(x_next) - F_x)))
            smooth = change <= self.nu * jnp.sqrt(delta_sq)  # (3a)
            convex = gamma * jnp.sum((gradient_next - gradient) * delta) <= (0.5 - self.nu) * delta_sq  # (3b)
            return _Trial(gamma, x_next, f_next, (smooth & convex) | ~may_test, trial.n_tests + 1)

        start = jnp.where(may_test, jnp.minimum(_GROW * state.gamma, state.gamma_max), state.gamma)
        trial = _Trial(start, state.x, f_x, jnp.asarray(False), jnp.asarray(0))
        trial = numerics.while_loop(
            lambda t: ~t.accepted & (t.n_tests < _MAX_TESTS), attempt, trial, on_host=problem.runs_on_host
        )
        rho = state.weight * trial.gamma
        size_sq = jnp.maximum(state.size_sq, jnp.sum(trial.x * trial.x))
        lam_next = positive_part(state.lam + rho * trial.f)  # (4)
        next_state = AdaptiveState(
            k=state.k + 1,
            x=trial.x,
            lam=lam_next,
            F_prev=F_x,
            gamma=trial.gamma,
            gamma_max=state.gamma_max,
            weight=state.weight,
            slope_sq=state.slope_sq,
            gradient_sq=state.gradient_sq,
            size_sq=size_sq,
            moved=jnp.sum(jnp.square(trial.x - state.x)) > _FREEZE**2 * size_sq,
            restarts=jnp.asarray(False),
            n_first=state.n_first,
            n_tests=state.n_tests + trial.n_tests,
        )
        return next_state, Info(step_size=trial.gamma, penalty=jnp.max(rho, initial=0.0))

    def begun_anew(self, problem: MisspecifiedVI, theta: PyTree, state: AdaptiveState) -> AdaptiveState:
        """The same point with steps and weights found there; evaluations are counted on."""
        anew = self.init(problem, theta, state.x, state.lam)
        return eqx.tree_at(
            lambda s: (s.k, s.n_first, s.n_tests),
            anew,
            (state.k, state.n_first + anew.n_first, state.n_tests),
        )

    def output(self, state: AdaptiveState) -> tuple[Array, Array]:
        return state.x, state.lam

    def ergodic(self, state: AdaptiveState):
        return state.x, state.gamma

    def counts(self, state: AdaptiveState, n_steps: Any) -> OracleCounts:
        n_tests = state.n_tests  # each asks for F and f at the trial point and for both sides of (3b)
        tested = OracleCounts(F=n_tests, f=n_tests, pullback=2 * n_tests)
        first = OracleCounts(F=state.n_first, pullback=state.lam.shape[0])  # γ_0 and ‖∇f_j(x_0)‖
        return self.init_counts + first + self.step_counts.times(n_steps) + tested

    def _first_step(
        self, problem: MisspecifiedVI, theta: PyTree, x0: Array, F_0: Array
    ) -> tuple[Array, Array]:
        """γ_0: from the step that crosses X, halved until F is seen to change slowly enough (3a).

        Halvings that F's slope at x_0 says to be far too few are left out: a large market would need dozens. Where X has no
        end, that slope alone says how far to go.
        """
        F, _, X = problem.at(theta)

        def tried(gamma) -> tuple[Array, Array]:
            x_next = X.project(x0 - gamma * F_0)
            return tree_norm(F(x_next) - F_0), tree_norm(x_next - x0)

        across = safe_divide(_reach(problem, x0), tree_norm(F_0), 1.0)
        nearby = X.project(x0 - _NEARBY * across * F_0) - x0
        change, length = tree_norm(_change(problem, F, x0, F_0, nearby)), tree_norm(nearby)
        needed = jnp.log2(safe_divide(across * change, self.nu * length, 1.0))
        fewest = jnp.where(jnp.all(jnp.isfinite(problem.x_width)), 0.0, -_MOST_DOUBLINGS)
        n_halvings = jnp.where(jnp.isfinite(needed), jnp.maximum(jnp.floor(needed) - _IN_DOUBT, fewest), 0.0)
        start = jnp.ldexp(across, -n_halvings.astype(int))

        def too_long(carry) -> Array:
            _, accepted, n_tests = carry
            return ~accepted & (n_tests < _MAX_TESTS)

        def halve(carry):
            gamma, _, n_tests = carry
            gamma = 0.5 * gamma
            change, length = tried(gamma)
            return gamma, gamma * change <= self.nu * length, n_tests + 1

        carry = (2.0 * start, jnp.asarray(False), jnp.asarray(1))
        gamma, _, n_tests = numerics.while_loop(too_long, halve, carry, on_host=problem.runs_on_host)
        return gamma, n_tests


def _change(problem: MisspecifiedVI, F, x0: Array, F_0: Array, step: Array) -> Array:
    """F(x_0 + step) − F(x_0) by the slope at x_0, free of rounding; a callback has none and is asked."""
    return F(x0 + step) - F_0 if problem.runs_on_host else jax.jvp(F, (x0,), (step,))[1]


def _reach(problem: MisspecifiedVI, x0: Array, step: Array | None = None) -> Array:
    """How far it is across X: the norm of its widths, where it has none of |x_0| and a step, with 1 where both are 0."""
    beyond = jnp.abs(x0) if step is None else jnp.abs(x0) + jnp.abs(step)
    width = jnp.broadcast_to(problem.x_width, x0.shape)
    size = jnp.sqrt(jnp.sum(jnp.square(jnp.where(jnp.isfinite(width), width, beyond))))
    return jnp.where(size > 0, size, 1.0)


def _gradient_norms_sq(problem: MisspecifiedVI, f, x0: Array, step: Array) -> tuple[Array, Array]:
    """‖∇f_j(x_0)‖² for every j, and the same never below (|f_j(x_0)| / size of X)², for constraints that are flat at x_0.

    Where X has no end, the first step against F says what size is.
    """
    f_0, (norms_sq,) = f.of_gradients(x0, (jnp.square, jnp.sum))
    return norms_sq, jnp.maximum(norms_sq, jnp.square(f_0 / _reach(problem, x0, step)))
