"""A Newton step on θ, then the whole answer at that θ, for affine problems in which coordinates meet in one total."""

from __future__ import annotations

from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PyTree

from viceversa.learners.newton import NewtonLearner
from viceversa.methods.base import Info, OracleCounts
from viceversa.problem import MisspecifiedVI
from viceversa.schemes.base import Point, Scheme
from viceversa.schemes.one_total import has_one_total, solve_one_total
from viceversa.schemes.smoothed_newton import is_linear
from viceversa.sets.intervals import is_box

_MOST_SEARCHES = 50  # while θ moves


class SearchState(eqx.Module):
    """(x, λ), where the first search began, the learner's state, searches and evaluations so far; whether θ moves, whether a search
    has found all digits, and whether to be looked at or to give up."""

    x: Float[Array, "..."]
    lam: Float[Array, " J"]
    x_start: Float[Array, "..."]
    lam_start: Float[Array, " J"]
    learner: Any
    n_searches: Int[Array, ""]
    n_evaluations: Int[Array, ""]
    theta_moves: Bool[Array, ""]
    settled: Bool[Array, ""]
    pause: Bool[Array, ""]
    gives_up: Bool[Array, ""]


class SearchInTotals(Scheme):
    """One iteration learns a step and solves the problem there, by a search in one number for each market (`one_total`).

    θ_{k+1} by a Newton step on H                                                               (1)
    (x, λ)_{k+1} = the solution at θ_{k+1}, from (x, λ)_k                                       (2)

    Where θ rests, the second search begins at the first one's answer and only has its rounding to mend, as after a far start; what
    it leaves then is not for this method. A start is searched from whatever its certificate: in a market whose forces are nothing
    beside another's, any point would pass.
    """

    reference: ClassVar[str] = "cominetti2014newton, Sec. 3"
    few_steps: ClassVar[bool] = True
    takes_any_axes: ClassVar[bool] = True
    n_phases: ClassVar[int] = 1

    learner: NewtonLearner

    def __init__(self):
        self.learner = NewtonLearner()

    def suits(self, problem: MisspecifiedVI) -> bool:
        """Whether F and f are affine, X is a box and coordinates meet in one total or none; known while a program is traced."""
        return (
            is_box(problem.set)
            and not problem.runs_on_host
            and not problem.learning.depends_on_x
            and is_linear(problem)
            and has_one_total(problem)
        )

    def init(
        self, problem: MisspecifiedVI, x0: Array, theta0: PyTree, lam0: Array, key: Array
    ) -> SearchState:
        none, no = jnp.asarray(0), jnp.asarray(False)
        learner = self.learner.init(problem.learning, theta0)
        return SearchState(
            x=x0,
            lam=lam0,
            x_start=x0,
            lam_start=lam0,
            learner=learner,
            n_searches=none,
            n_evaluations=none,
            theta_moves=no,
            settled=no,
            pause=no,
            gives_up=no,
        )

    def step(self, problem: MisspecifiedVI, state: SearchState) -> tuple[SearchState, Info]:
        learning, old = problem.learning, state.learner
        learner = old if learning.is_known else self.learner.step(learning, old)  # (1)
        found = solve_one_total(problem, state.x, state.lam, learner.theta)  # (2)
        pairs = zip(jax.tree.leaves(learner.theta), jax.tree.leaves(old.theta), strict=True)
        theta_moves = jnp.any(jnp.stack([jnp.any(new != before) for new, before in pairs]))
        theta_moves = theta_moves & (state.n_searches < _MOST_SEARCHES)
        moved = SearchState(
            x=jnp.where(found.solved, found.x, state.x),
            lam=jnp.where(found.solved, found.lam, state.lam),
            x_start=state.x_start,
            lam_start=state.lam_start,
            learner=learner,
            n_searches=state.n_searches + 1,
            n_evaluations=state.n_evaluations + found.n_evaluations,
            theta_moves=theta_moves,
            settled=found.settled | (state.n_searches > 0),
            pause=jnp.asarray(True),
            gives_up=~(found.solved & (theta_moves | (state.n_searches == 0))),
        )
        return moved, Info(step_size=jnp.ones(()), penalty=jnp.zeros(()))

    def output(self, state: SearchState) -> Point:
        return Point(x=state.x, lam=state.lam, theta=state.learner.theta, x_average=state.x)

    def pauses(self, state: SearchState) -> Array:
        return state.pause

    def converging(self, state: SearchState) -> Array:
        return state.theta_moves & ~state.gives_up

    def settled(self, state: SearchState) -> Array:
        return state.settled

    def resumed(self, state: SearchState) -> SearchState:
        return eqx.tree_at(lambda s: s.pause, state, jnp.asarray(False))

    def gives_up(self, state: SearchState) -> Array:
        return state.gives_up

    def is_tentative(self, state: SearchState) -> bool:
        return True

    def blames_constraints(self, state: SearchState) -> bool:
        return False

    def phase(self, state: SearchState) -> Array:
        return jnp.asarray(0)

    def phases(self, problem: MisspecifiedVI) -> tuple[str, ...]:
        decision = "x and λ" if problem.n_constraints else "x"
        return (f"search in totals: {'' if problem.learning.is_known else 'θ, then '}{decision}",)

    def counts(self, problem: MisspecifiedVI, state: SearchState, n_steps: Any) -> OracleCounts:
        n, learning = state.n_searches, problem.learning
        is_given = learning.is_known or learning.newton_point() is not None
        H = 0 if is_given else self.learner.step_counts * n
        return OracleCounts(F=n + state.n_evaluations, f=n + state.n_evaluations, pullback=n, H=H)
