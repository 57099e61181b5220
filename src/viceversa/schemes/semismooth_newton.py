"""Semismooth Newton on the joint natural map of (x, λ, θ), with a first-order method to fall back on."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from viceversa.errors import InputError
from viceversa.functions import float64_of, is_doubtful, require_derivative
from viceversa.learners.newton import NewtonLearner
from viceversa.learners.projected_gradient import ProjectedGradient
from viceversa.methods.adaptive_augmented_lagrangian import AdaptiveAugmentedLagrangian
from viceversa.methods.base import Info, OracleCounts
from viceversa.problem import MisspecifiedVI
from viceversa.schemes.base import Point, Scheme
from viceversa.schemes.box_interior_point import box_interior_point, box_meets_in_totals
from viceversa.schemes.interior_point import LARGEST, Lifted, interior_point, lift
from viceversa.schemes.newton_state import NewtonPoint, NewtonState
from viceversa.schemes.newton_strides import coupled, smoothed, triangular
from viceversa.schemes.newton_system import DENSE, Probed
from viceversa.schemes.row_interior_point import meets_in_totals, row_interior_point
from viceversa.schemes.simultaneous import Simultaneous, SimultaneousState
from viceversa.schemes.smoothed_newton import Smoothing, is_linear
from viceversa.schemes.smoothed_projection import has_row_sums
from viceversa.sets.intervals import is_box

_FIRST_BATCH = 20  # first-order iterations before Newton is tried
# The same where X is a box: smoothing needs no good guess of the active bounds; and where F and f are affine besides, so that
# only a length of step is wanted.
_FIRST_BATCH_BOX = 5
_FIRST_BATCH_LINEAR = 1  # and from a solution nearby
_NEXT_BATCH = 10  # at least so many after a Newton step that did not help; every further time twice as many
_LONGEST_BATCH = 5000
_N_LEARNING_STEPS = 10  # Newton steps on θ before the interior-point method, which works at a fixed θ
_PRODUCTS_INSIDE = 12  # of one interior-point step by elimination, about
_PATIENCE = 3  # failed Newton steps before a small problem is handed to the interior-point method
# Of the way across X: where a problem too large for a rescue starts again, one after the other.
_INSIDE = (0.1, 0.5, 0.01)
_EASY = 0.5  # of a step: where less of it helps on a simplex, its interior-point method comes next

NO_DERIVATIVES = (
    "the second-order phase needs derivatives of F and f, and a callback (vv.callback_operator, vv.callback_constraints) "
    "has none."
)
# What the last step was; RESCUED is only seen by the Newton step that follows the interior-point method.
FIRST_ORDER, NEWTON, NEWTON_REFUSED, INTERIOR_POINT, RESCUED = 0, 1, 2, 3, -1
NOT_YET, NEXT, DONE = 0, 1, 2


class SemismoothNewton(Scheme):
    """First order until close, Newton until done; back to first order whenever a Newton step does not help.

    θ comes first: H does not depend on x, so the joint Newton system is block triangular. One Newton step
    is taken on θ, then one on (x, λ) at the new θ; where H does depend on x, one on all three. A Newton step is kept only if it reduces the merit
    ‖r_x‖²/γ + Σ r_λ²/ρ of the natural map; otherwise the constant-free Algorithm 1 goes on from the same point for a
    longer batch, so that the scheme converges whenever that method does.
    """

    reference: ClassVar[str] = "facchinei2003finite, Ch. 7-9; qi2000new; dey2026misspecified, Alg. 1"
    few_steps: ClassVar[bool] = True
    takes_any_axes: ClassVar[bool] = True

    first: Simultaneous
    newton_learner: NewtonLearner

    def __init__(self):
        self.first = Simultaneous(AdaptiveAugmentedLagrangian(), ProjectedGradient())
        self.newton_learner = NewtonLearner()

    def first_order(self, problem: MisspecifiedVI) -> Simultaneous:
        """The first-order scheme; where H depends on x its constants are not known, and θ moves by Newton steps."""
        return (
            Simultaneous(self.first.method, self.newton_learner)
            if problem.learning.depends_on_x
            else self.first
        )

    def check(self, problem: MisspecifiedVI) -> None:
        if problem.runs_on_host:
            raise InputError(
                f"SemismoothNewton: {NO_DERIVATIVES} Leave the method out, or name a first-order one."
            )
        if is_doubtful(problem.constraints, "forward"):
            likes = float64_of(problem.shape), problem.learning.set.zeros()
            require_derivative(problem.constraints, likes, "forward")

    def init(
        self, problem: MisspecifiedVI, x0: Array, theta0: PyTree, lam0: Array, key: Array
    ) -> NewtonState:
        learner = self._learn(problem, self.first.learner.init(problem.learning, theta0))
        # Steps and weights are taken at the θ that is used from here on: at a θ₀ where F or f is flat they say nothing.
        first = self.first.init(problem, x0, learner.theta, lam0, key)
        first = eqx.tree_at(lambda s: s.learner, first, learner)
        none = jnp.asarray(0)
        # Who has multipliers to start from comes from a solution nearby: only a length of step is wanted, and what the merit is
        # small beside is the forces' work over x, since there it is small itself.
        is_near = jnp.any(lam0 > 0)
        batch = jnp.where(is_near, _FIRST_BATCH_LINEAR, _first_batch(problem))
        F = problem.at(learner.theta).F
        work = (
            jnp.zeros(()) if problem.runs_on_host else jnp.sum(jnp.abs(x0 * F(x0)))
        )  # without Newton nobody asks
        # A step that fails there stands before other bounds than those that held; a small system has a method for that.
        n_failed = jnp.where(is_near, _PATIENCE - 1, 0) if _size(problem) <= DENSE else none
        return NewtonState(
            first=first,
            n_left=batch,
            batch=batch,
            merit_start=jnp.where(is_near & (work > 0), work, jnp.inf),
            newton=_restarted(problem, first),
            converging=jnp.asarray(False),
            settled=jnp.asarray(True),
            pause=jnp.asarray(False),
            n_newton=none,
            n_failed=n_failed,
            patience=jnp.asarray(_PATIENCE),
            inside=jnp.asarray(NOT_YET),
            n_products=none,
            n_tried=none,
            n_first=none,
            phase=jnp.asarray(FIRST_ORDER),
        )

    def step(self, problem: MisspecifiedVI, state: NewtonState) -> tuple[NewtonState, Info]:
        if problem.runs_on_host:
            return self._first_order(problem, state)
        kinds = [self._first_order, self._newton]
        which = jnp.where(state.n_left > 0, 0, 1)
        if _has_rows_and_totals(problem):
            kinds, which = [*kinds, self._inside], jnp.where(state.inside == NEXT, 2, which)
        return jax.lax.switch(which, [lambda s, kind=kind: kind(problem, s) for kind in kinds], state)

    def output(self, state: NewtonState) -> Point:
        return self.first.output(state.first)

    def pauses(self, state: NewtonState) -> Array:
        """Whether the driver should look at the point now: after every Newton step and every batch."""
        return state.pause

    def converging(self, state: NewtonState) -> Array:
        return state.converging

    def settled(self, state: NewtonState) -> Array:
        return state.settled

    def resumed(self, state: NewtonState) -> NewtonState:
        """The state to go on from after the driver has looked."""
        return eqx.tree_at(lambda s: s.pause, state, jnp.asarray(False))

    def gives_up(self, state: NewtonState) -> Array:
        """Whether Newton has failed so often that a dense method should take over."""
        return state.n_failed >= state.patience

    def rescued(self, problem: MisspecifiedVI, state: NewtonState, is_far: bool) -> NewtonState:
        """θ to the end, then an interior-point method at that θ: for boxes with totals, or the dense one for small problems.

        A larger one that has come nowhere starts again inside its box: at the corner where it began, F may be far steeper
        than anywhere else. Next time when Newton has failed as often again.
        """
        n_before = round(math.log2(int(state.patience) / _PATIENCE))
        state = eqx.tree_at(lambda s: s.patience, state, 2 * state.patience)
        if problem.runs_on_host or problem.learning.depends_on_x:
            return state
        # Widths are good units; where there are none, the dense method is surer.
        in_totals = LARGEST if not np.isfinite(np.asarray(problem.x_width)).all() else DENSE
        if _size(problem) > in_totals and _is_box_with_totals(problem):
            return _rescue_box(self, problem, state)
        if _size(problem) <= LARGEST:
            lifted = lift(problem.set)
            return state if lifted is None else _rescue(self, problem, lifted, state)
        if _smooths(problem) and is_far and n_before < len(_INSIDE):
            return _begin_inside(
                self, problem, jnp.asarray(problem.set.interior_point()), _INSIDE[n_before], state
            )
        return state

    def phase(self, state: NewtonState) -> Array:
        return state.phase

    def phases(self, problem: MisspecifiedVI) -> tuple[str, ...]:
        learning = problem.learning
        return _phases(problem.n_constraints > 0, learning.is_known, learning.depends_on_x)

    def counts(self, problem: MisspecifiedVI, state: NewtonState, n_steps: Any) -> OracleCounts:
        # The points that were linearised at, and those of the line searches.
        seen = state.n_newton + state.n_tried
        F = state.n_products + seen
        if problem.learning.depends_on_x:
            H = F
        else:
            is_given = problem.learning.is_known or problem.learning.newton_point() is not None
            H = 0 if is_given else self.newton_learner.step_counts * (1 + state.n_newton)
        first = self.first_order(problem).counts(problem, state.first, state.n_first)
        return first + OracleCounts(F=F, f=F, pullback=seen, H=H)

    @property
    def _adaptive(self) -> AdaptiveAugmentedLagrangian:
        assert isinstance(self.first.method, AdaptiveAugmentedLagrangian)
        return self.first.method

    # -- the two kinds of step -----------------------------------------------------------------
    def _first_order(self, problem: MisspecifiedVI, state: NewtonState) -> tuple[NewtonState, Info]:
        first, info = self.first_order(problem).step(problem, state.first)
        n_left = state.n_left - 1
        moved = eqx.tree_at(
            lambda s: (s.first, s.newton, s.n_left, s.converging, s.settled, s.pause, s.n_first, s.phase),
            state,
            (
                first,
                _restarted(problem, first),
                n_left,
                jnp.asarray(False),
                _tol_decides(problem, state.n_failed),  # the next Newton step looks again
                n_left == 0,
                state.n_first + 1,
                jnp.asarray(FIRST_ORDER),
            ),
            is_leaf=lambda leaf: leaf is None,
        )
        return moved, info

    def _newton(self, problem: MisspecifiedVI, state: NewtonState) -> tuple[NewtonState, Info]:
        stride = smoothed if _smooths(problem) else triangular
        stride = coupled if problem.learning.depends_on_x else stride
        trial = stride(problem, state, self._learn(problem, state.first.learner))
        helped, old = trial.helped, state.first.method
        hard = ~helped | (trial.t < _EASY)
        # Where Newton fails, the first-order method finds its steps and weights anew: those of a far start say nothing here.
        method = jax.lax.cond(
            helped,
            lambda: old.placed(trial.x, trial.lam),
            lambda: self._adaptive.begun_anew(problem, trial.learner.theta, old.placed(old.x, old.lam)),
        )
        longer = jnp.clip(2 * state.batch, _NEXT_BATCH, _LONGEST_BATCH)
        batch = jnp.where(helped, state.batch, longer)
        rescued = state.phase == RESCUED
        first = eqx.tree_at(lambda s: (s.method, s.learner), state.first, (method, trial.learner))
        moved = NewtonState(
            first=first,
            n_left=jnp.where(helped, 0, batch),
            batch=batch,
            merit_start=trial.merit_start,
            newton=jax.tree.map(
                lambda new, old: jnp.where(helped, new, old), trial.newton, _restarted(problem, first)
            ),
            # What had to be rescued is ill-conditioned: a small residual says little there, so go on while Newton helps.
            converging=helped & (trial.fast | (state.patience > _PATIENCE)),
            settled=trial.settled | _tol_decides(problem, state.n_failed + ~helped) | (state.inside == DONE),
            pause=jnp.asarray(True),
            n_newton=state.n_newton + 1,
            n_failed=state.n_failed + jnp.where(helped, 0, 1),
            patience=state.patience,
            inside=jnp.where(~hard | (state.inside == DONE), state.inside, NEXT),
            n_products=state.n_products + trial.n_products,
            n_tried=state.n_tried + 1 - jnp.log2(trial.t).astype(int),  # t = 1, ½, ¼, …
            n_first=state.n_first,
            phase=jnp.where(rescued, INTERIOR_POINT, jnp.where(helped, NEWTON, NEWTON_REFUSED)),
        )
        return moved, Info(step_size=trial.t, penalty=jnp.max(trial.metric.rho, initial=0.0))

    def _inside(self, problem: MisspecifiedVI, state: NewtonState) -> tuple[NewtonState, Info]:
        """θ to the end, then the interior-point method of simplices at that θ, all in one iteration."""
        learner = self._learned(problem, state.first.learner)
        found = row_interior_point(problem, learner.theta)
        moved = _placed(self, problem, state, learner, found.x, found.lam)
        moved = eqx.tree_at(
            lambda s: (s.n_products, s.inside, s.phase, s.pause, s.converging, s.settled),
            moved,
            (
                state.n_products + _PRODUCTS_INSIDE * found.n_steps,
                jnp.asarray(DONE),
                jnp.asarray(INTERIOR_POINT),
                jnp.asarray(True),
                jnp.asarray(True),  # the Newton step that follows betters it
                jnp.asarray(True),
            ),
        )
        return moved, Info(step_size=jnp.ones(()), penalty=jnp.zeros(()))

    def _learn(self, problem: MisspecifiedVI, learner: Any) -> Any:
        learning = problem.learning
        alone = not (learning.is_known or learning.depends_on_x)
        return self.newton_learner.step(learning, learner) if alone else learner

    def _learned(self, problem: MisspecifiedVI, learner: Any) -> Any:
        return jax.lax.fori_loop(0, _N_LEARNING_STEPS, lambda _, s: self._learn(problem, s), learner)


@cache
def _phases(has_constraints: bool, is_known: bool, depends_on_x: bool) -> tuple[str, ...]:
    decision = "x and λ" if has_constraints else "x"
    if is_known:
        return (
            f"first order: {decision}",
            f"Newton: {decision}",
            "Newton: refused",
            f"interior point: {decision}",
        )
    if depends_on_x:
        whole = decision.replace(" and", ",") + " and θ"
        return f"first order: {whole}", f"Newton: {whole} together", "Newton: refused", ""
    return (
        f"first order: {decision}, then θ",
        f"Newton: θ, then {decision}",
        "Newton: θ alone",
        f"interior point: θ, then {decision}",
    )


def _smooths(problem: MisspecifiedVI) -> bool:
    X = problem.set
    return (is_box(X) or has_row_sums(X)) and not problem.runs_on_host and not problem.learning.depends_on_x


def _has_rows_and_totals(problem: MisspecifiedVI) -> bool:
    return _smooths(problem) and has_row_sums(problem.set) and meets_in_totals(problem)


def _is_box_with_totals(problem: MisspecifiedVI) -> bool:
    return _smooths(problem) and is_box(problem.set) and box_meets_in_totals(problem)


def _tol_decides(problem: MisspecifiedVI, n_failed) -> Array:
    """Whether `tol` decides alone: coordinates have no units of their own, or Newton has failed too often to wait for it.

    Once more than that where a rescue, which every box allows, comes between.
    """
    often = _PATIENCE + 1 if _size(problem) <= LARGEST else _PATIENCE
    return jnp.asarray(not _smooths(problem)) | (n_failed >= often)


def _first_batch(problem: MisspecifiedVI) -> int:
    if not _smooths(problem):
        return _FIRST_BATCH
    return _FIRST_BATCH_LINEAR if is_linear(problem) else _FIRST_BATCH_BOX


def _restarted(problem: MisspecifiedVI, first: SimultaneousState) -> NewtonPoint | None:
    """Newton from the first-order point, smoothing and metric to be chosen anew."""
    if not _smooths(problem):
        return None
    return NewtonPoint(first.method.x, first.method.lam, Smoothing.to_be_chosen(), Probed.nothing())


@eqx.filter_jit
def _begin_inside(
    scheme: SemismoothNewton, problem: MisspecifiedVI, centre: Array, share: float, state: NewtonState
) -> NewtonState:
    """From the point that lies the share of the way across X from P_X(0), without multipliers."""
    corner = problem.set.project(jnp.zeros_like(centre))
    x = problem.set.project(corner + 2.0 * share * (centre - corner))
    method = state.first.method
    method = method.placed(x, jnp.zeros_like(method.lam))
    method = scheme._adaptive.begun_anew(problem, state.first.learner.theta, method)
    first = eqx.tree_at(lambda s: s.method, state.first, method)
    return eqx.tree_at(
        lambda s: (s.first, s.newton, s.n_left, s.batch, s.merit_start),
        state,
        (
            first,
            _restarted(problem, first),
            jnp.asarray(_FIRST_BATCH_BOX),
            jnp.asarray(_FIRST_BATCH_BOX),
            jnp.asarray(jnp.inf),
        ),
        is_leaf=lambda leaf: leaf is None,
    )


@eqx.filter_jit
def _rescue(
    scheme: SemismoothNewton, problem: MisspecifiedVI, lifted: Lifted, state: NewtonState
) -> NewtonState:
    each = 3 * math.prod(problem.shape)
    return _from_inside(
        scheme, problem, state, lambda x, theta: interior_point(problem, lifted, x, theta), each
    )


@eqx.filter_jit
def _rescue_box(scheme: SemismoothNewton, problem: MisspecifiedVI, state: NewtonState) -> NewtonState:
    return _from_inside(
        scheme, problem, state, lambda x, theta: box_interior_point(problem, x, theta), _PRODUCTS_INSIDE
    )


def _from_inside(
    scheme: SemismoothNewton, problem: MisspecifiedVI, state: NewtonState, inside: Callable, n_products: int
) -> NewtonState:
    """θ to the end, then an interior-point method at that θ, whose steps take so many products each."""
    learner = scheme._learned(problem, state.first.learner)
    found = inside(state.first.method.x, learner.theta)
    moved = _placed(scheme, problem, state, learner, found.x, found.lam)
    counted = state.n_products + n_products * found.n_steps
    return eqx.tree_at(lambda s: (s.n_products, s.phase), moved, (counted, jnp.asarray(RESCUED)))


def _placed(
    scheme: SemismoothNewton, problem: MisspecifiedVI, state: NewtonState, learner: Any, x: Array, lam: Array
) -> NewtonState:
    """The state at a point that another method has found, if it is one; Newton comes next."""
    finite = jnp.all(jnp.isfinite(x)) & jnp.all(jnp.isfinite(lam))
    method = state.first.method
    x, lam = jnp.where(finite, x, method.x), jnp.where(finite, lam, method.lam)
    method = scheme._adaptive.begun_anew(problem, learner.theta, method.placed(x, lam))
    first = eqx.tree_at(lambda s: (s.method, s.learner), state.first, (method, learner))
    return eqx.tree_at(
        lambda s: (s.first, s.newton, s.n_left),
        state,
        (first, _restarted(problem, first), jnp.asarray(0)),
        is_leaf=lambda leaf: leaf is None,
    )


def _size(problem: MisspecifiedVI) -> int:
    return math.prod(problem.shape) + problem.n_constraints
