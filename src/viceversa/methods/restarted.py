"""Restarting as a wrapper: begin again from the better of the iterate and the average when the residual has fallen."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PyTree

from viceversa.errors import InputError
from viceversa.methods.base import Info, Method, OracleCounts
from viceversa.numerics import cond
from viceversa.primal_dual import Pair, PrimalDualOperator, PrimalDualSet, primal_dual
from viceversa.problem import MisspecifiedVI

_SUFFICIENT = 0.2  # the three thresholds of the restart rule of PDLP (applegate2023faster)
_NECESSARY = 0.8
_ARTIFICIAL = 0.36
_NOISE = 5.0  # a residual below this many times the drift of G with θ says nothing about z


class RestartedState(eqx.Module):
    """The wrapped method's state, the sums since the last restart, the residuals the rule compares, and θ then."""

    inner: Any
    n_steps: Int[Array, ""]
    n_since: Int[Array, ""]
    n_restarts: Int[Array, ""]
    z_sum: Pair
    weight_sum: Float[Array, ""]
    residual_start: Float[Array, ""]
    residual_last: Float[Array, ""]
    theta_last: PyTree
    per_check: int = eqx.field(static=True)


class _Candidate(eqx.Module):
    z: Pair
    residual: Float[Array, ""]
    above_noise: Bool[Array, ""]


class Restarted(Method):
    """`method`, begun again whenever its residual has fallen enough. Every `every` iterations, with

        r(z) = ‖z − P_Z[z − τ G(z, θ_k)]‖/τ,   c = argmin{r(z_k), r(z̄)},  z̄ the average since the last restart  (1)

    it restarts from c if  r(c) ≤ 0.2 r(c_prev),                                                      (2a)
              or           r(c) ≤ 0.8 r(c_prev) and r(c) is larger than at the last check,            (2b)
              or           the run since the last restart is 0.36 of all iterations;                  (2c)
    never while r(c) < 5 ‖G(c, θ_k) − G(c, θ_{k−every})‖: a residual below the drift of θ is noise.   (3)

    Linear on sharp problems for methods with an O(1/K) average or an anchor. A check costs two evaluations, three
    while θ moves. Counters of the wrapped method (fields named n_…) go on across restarts.

    Example:
        >>> import viceversa as vv
        >>> vv.Restarted(vv.AnchoredExtragradient(step_size=0.1), every=20).every
        20
    """

    reference: ClassVar[str] = "applegate2023faster"

    method: Method
    every: int = eqx.field(static=True)
    dual_ratio: np.ndarray
    learning_rate: Any
    learner: Any

    def __init__(self, method: Method, every: int = 10):
        if int(every) != every or every < 1:
            raise InputError(f"Restarted: every is {every}; a whole number of iterations >= 1 is needed.")
        self.method, self.every = method, int(every)
        # A method without its own metric for λ (an augmented Lagrangian) is measured in the plain one.
        self.dual_ratio = np.asarray(getattr(method, "dual_ratio", 1.0), dtype=np.float64)
        self.learner, self.learning_rate = method.learner, method.learning_rate

    @property
    def init_counts(self) -> OracleCounts:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.method.init_counts

    @property
    def step_counts(self) -> OracleCounts:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.method.step_counts

    @property
    def stochastic(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.method.stochastic

    def check(self, problem: MisspecifiedVI) -> None:
        self.method.check(problem)

    def init(self, problem: MisspecifiedVI, theta: PyTree, x0: Array, lam0: Array) -> RestartedState:
        return RestartedState(
            inner=self.method.init(problem, theta, x0, lam0),
            n_steps=jnp.asarray(0),
            n_since=jnp.asarray(0),
            n_restarts=jnp.asarray(0),
            z_sum=Pair(jnp.zeros_like(x0), jnp.zeros_like(lam0)),
            weight_sum=jnp.zeros(()),
            residual_start=jnp.asarray(jnp.inf),
            residual_last=jnp.asarray(jnp.inf),
            theta_last=theta,
            per_check=2 if problem.learning.is_known else 3,
        )

    def step(self, problem: MisspecifiedVI, theta: PyTree, state: RestartedState, key=None):
        inner, info = self.method.step(problem, theta, state.inner, key)
        y, weight = self.method.ergodic(inner)
        _, lam = self.method.output(inner)
        moved = RestartedState(
            inner=inner,
            n_steps=state.n_steps + 1,
            n_since=state.n_since + 1,
            n_restarts=state.n_restarts,
            z_sum=state.z_sum + weight * Pair(y, lam),
            weight_sum=state.weight_sum + weight,
            residual_start=state.residual_start,
            residual_last=state.residual_last,
            theta_last=state.theta_last,
            per_check=state.per_check,
        )
        is_check = moved.n_steps % self.every == 0
        checked = cond(
            is_check,
            lambda s: self._check(problem, theta, s, info),
            lambda s: s,
            moved,
            on_host=problem.runs_on_host,
        )
        return checked, info

    def _check(
        self, problem: MisspecifiedVI, theta: PyTree, state: RestartedState, info: Info
    ) -> RestartedState:
        candidate = self._candidate(problem, theta, state, info)
        r, r_start = candidate.residual, state.residual_start
        first = ~jnp.isfinite(r_start)
        fallen = (r <= _SUFFICIENT * r_start) | ((r <= _NECESSARY * r_start) & (r > state.residual_last))
        long = state.n_since >= _ARTIFICIAL * state.n_steps
        restart = ~first & (fallen | long) & candidate.above_noise  # (2), (3)

        def begin_again(state: RestartedState) -> RestartedState:
            fresh = self.method.init(problem, theta, candidate.z.x, candidate.z.lam)
            return RestartedState(
                inner=_keep_counters(state.inner, fresh),
                n_steps=state.n_steps,
                n_since=jnp.zeros_like(state.n_since),
                n_restarts=state.n_restarts + 1,
                z_sum=jax.tree.map(jnp.zeros_like, state.z_sum),
                weight_sum=jnp.zeros(()),
                residual_start=r,
                residual_last=r,
                theta_last=theta,
                per_check=state.per_check,
            )

        def go_on(state: RestartedState) -> RestartedState:
            return RestartedState(
                inner=state.inner,
                n_steps=state.n_steps,
                n_since=state.n_since,
                n_restarts=state.n_restarts,
                z_sum=state.z_sum,
                weight_sum=state.weight_sum,
                residual_start=jnp.where(first, r, r_start),
                residual_last=r,
                theta_last=theta,
                per_check=state.per_check,
            )

        return cond(restart, begin_again, go_on, state, on_host=problem.runs_on_host)

    def _candidate(
        self, problem: MisspecifiedVI, theta: PyTree, state: RestartedState, info: Info
    ) -> _Candidate:
        G, Z = primal_dual(problem, theta, self.dual_ratio)
        current = Pair(*self.method.output(state.inner))
        average = (1.0 / state.weight_sum) * state.z_sum
        G_current, G_average = G(current), G(average)
        r_current = _residual(G, Z, current, G_current, info.step_size)
        r_average = _residual(G, Z, average, G_average, info.step_size)
        take_average = r_average < r_current

        def choose(a, b):
            return jax.tree.map(lambda u, v: jnp.where(take_average, u, v), a, b)

        z, G_z = choose(average, current), choose(G_average, G_current)  # (1)
        residual = jnp.minimum(r_average, r_current)
        if problem.learning.is_known:
            return _Candidate(z, residual, jnp.asarray(True))
        before, _ = primal_dual(problem, state.theta_last, self.dual_ratio)
        drift = jnp.sqrt(G.norm_sq(G_z - before(z)))
        return _Candidate(z, residual, residual >= _NOISE * drift)

    def output(self, state: RestartedState) -> tuple[Array, Array]:
        return self.method.output(state.inner)

    def ergodic(self, state: RestartedState):
        return self.method.ergodic(state.inner)

    def counts(self, state: RestartedState, n_steps: Any) -> OracleCounts:
        checked = OracleCounts(F=1, f=1, pullback=1).times(state.per_check * (n_steps // self.every))
        begun = self.method.init_counts.times(state.n_restarts)
        return self.method.counts(state.inner, n_steps) + begun + checked


def _residual(G: PrimalDualOperator, Z: PrimalDualSet, z: Pair, G_z: Pair, tau: Array) -> Array:
    return jnp.sqrt(G.norm_sq(z - Z.project(z - tau * G_z))) / tau


def _keep_counters(old: Any, fresh: Any) -> Any:
    """`fresh` with what it has counted (fields n_…) added to what `old` had counted."""
    names = [field.name for field in dataclasses.fields(fresh) if field.name.startswith("n_")]
    for name in names:
        fresh = eqx.tree_at(
            lambda s, name=name: getattr(s, name), fresh, getattr(old, name) + getattr(fresh, name)
        )
    return fresh
