"""The default: problems whose coordinates meet in one total are searched, all others and what the search leaves are Newton's."""

from __future__ import annotations

from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from viceversa.certificates.kkt import evaluate
from viceversa.methods.base import Info, OracleCounts
from viceversa.problem import MisspecifiedVI
from viceversa.schemes.base import Point, Scheme
from viceversa.schemes.newton_state import NewtonState
from viceversa.schemes.search_in_totals import SearchInTotals, SearchState
from viceversa.schemes.semismooth_newton import SemismoothNewton

State = SearchState | NewtonState
_FAR_NEARER = 0.1  # of the relative residual


class SearchThenNewton(Scheme):
    """`SearchInTotals` where it suits the problem, until it gives up; `SemismoothNewton` otherwise, and from there on.

    The step from one to the other is the host's, so that Newton's program, which few such problems ever want, is not compiled
    before. A search that gives up has found nothing: Newton begins where it began, unless it came far nearer, and its iterations
    are not counted.
    """

    reference: ClassVar[str] = f"{SearchInTotals.reference}; {SemismoothNewton.reference}"
    few_steps: ClassVar[bool] = True
    takes_any_axes: ClassVar[bool] = True

    search: SearchInTotals
    newton: SemismoothNewton

    def __init__(self):
        self.search, self.newton = SearchInTotals(), SemismoothNewton()

    def _at(self, state: State) -> SearchInTotals | SemismoothNewton:
        """Whose turn it is."""
        return self.newton if isinstance(state, NewtonState) else self.search

    def check(self, problem: MisspecifiedVI) -> None:
        self.newton.check(problem)

    def init(self, problem: MisspecifiedVI, x0: Array, theta0: PyTree, lam0: Array, key: Array) -> State:
        first = self.search if self.search.suits(problem) else self.newton
        return first.init(problem, x0, theta0, lam0, key)

    def step(self, problem: MisspecifiedVI, state: Any) -> tuple[State, Info]:
        return self._at(state).step(problem, state)

    def output(self, state: Any) -> Point:
        return self._at(state).output(state)

    def pauses(self, state: Any) -> Array:
        return self._at(state).pauses(state)

    def converging(self, state: Any) -> Array | None:
        return self._at(state).converging(state)

    def settled(self, state: Any) -> Array | None:
        return self._at(state).settled(state)

    def resumed(self, state: Any) -> State:
        return self._at(state).resumed(state)

    def gives_up(self, state: Any) -> Array:
        return self._at(state).gives_up(state)

    def is_tentative(self, state: Any) -> bool:
        return self._at(state).is_tentative(state)

    def blames_constraints(self, state: Any) -> bool:
        return self._at(state).blames_constraints(state)

    def rescued(self, problem: MisspecifiedVI, state: Any, is_far: bool) -> State:
        if isinstance(state, NewtonState):
            return self.newton.rescued(problem, state, is_far)
        return _begun(self.newton, problem, state)

    def phase(self, state: Any) -> Array:
        phase = self._at(state).phase(state)
        if not isinstance(state, NewtonState):
            return phase
        return jnp.where(
            phase < 0, phase, phase + self.search.n_phases
        )  # what is negative is counted from the end

    def phases(self, problem: MisspecifiedVI) -> tuple[str, ...]:
        return (*self.search.phases(problem), *self.newton.phases(problem))

    def counts(self, problem: MisspecifiedVI, state: Any, n_steps: Any) -> OracleCounts:
        return self._at(state).counts(problem, state, n_steps)


@eqx.filter_jit
def _begun(newton: SemismoothNewton, problem: MisspecifiedVI, state: SearchState) -> NewtonState:
    """Newton from where the search began, or from its last point if that is far nearer, with what was evaluated so far."""
    theta = state.learner.theta

    def worst(x: Array, lam: Array) -> Array:
        return evaluate(problem, x, lam, theta, state.x_start, theta).worst()

    is_nearer = worst(state.x, state.lam) < _FAR_NEARER * worst(state.x_start, state.lam_start)  # NaN is not
    x = jnp.where(is_nearer, state.x, state.x_start)
    lam = jnp.where(is_nearer, state.lam, state.lam_start)
    key = jax.random.key(0)  # nobody draws
    begun = newton.init(problem, x, theta, lam, key)
    counts = state.n_searches, state.n_evaluations
    return eqx.tree_at(lambda s: (s.n_newton, s.n_products), begun, counts)
