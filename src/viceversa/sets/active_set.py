"""Projection on a polyhedron by the dual active-set method, exact when it ends."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from viceversa.numerics import solve_upper

# A row is violated beyond this multiple of the numbers in it: some forty units of rounding.
ROUNDING = 1e-14
# The accuracy promised for the answer, relative to the numbers in a row; without it the answer is NaN.
PROMISED = 1e-12
# A multiplier of the wrong sign beyond this (relative to x and y) is an error, not the rounding of a tie.
WRONG_SIGN = 1e-9
# A normal this close to the span of the active ones counts as dependent on them.
DEPENDENT = 1e-10


class Rows(NamedTuple):
    """{ y : A y ≤ b, E y = e, lower ≤ y ≤ upper } with unit rows in A and the orthonormal rows E = basis[:, :r]ᵀ.

    `project` needs the basis completed to k = n columns; a set with at most one row keeps k = r.
    """

    A: Float[Array | np.ndarray, "m n"]
    b: Float[Array | np.ndarray, " m"]
    e: Float[Array | np.ndarray, " r"]
    basis: Float[Array | np.ndarray, "n k"]
    lower: Float[Array | np.ndarray, " n"]
    upper: Float[Array | np.ndarray, " n"]

    def normal(self, p):
        """The unit normal of inequality p: the rows of A, then the upper bounds, then the lower bounds."""
        m, n = self.A.shape
        coordinate = jnp.where(jnp.arange(n) == (p - m) % n, jnp.where(p < m + n, 1.0, -1.0), 0.0)
        return (
            coordinate
            if m == 0
            else jnp.where(p < m, jnp.take(self.A, jnp.minimum(p, m - 1), axis=0), coordinate)
        )

    def offsets(self):
        """The right-hand sides, in the order of `normal`."""
        return jnp.concatenate([self.b, self.upper, -self.lower])

    def excess(self, y):
        """⟨normal, y⟩ − offset for every inequality."""
        return jnp.concatenate([self.A @ y - self.b, y - self.upper, self.lower - y])


class Working(NamedTuple):
    """The working set: its normals are the first n_active columns of Q R, in the order of `members`."""

    y: Float[Array, " n"]
    multiplier: Float[Array, " n"]
    Q: Float[Array, "n n"]
    R: Float[Array, "n n"]
    members: Int[Array, " n"]
    n_active: Int[Array, ""]
    entering: Int[Array, ""]  # −1 when the next row is still to be chosen
    given_up: Bool[Array, " rows"]
    n_steps: Int[Array, ""]
    done: Bool[Array, ""]


@jax.custom_jvp
def project(x, rows: Rows):
    """argmin ‖y − x‖ over the polyhedron (Goldfarb and Idnani 1983 with identity Hessian); NaN if it fails.

    Start from the projection on the equations; while a row is violated, move towards it keeping the working
    set, drop members whose multiplier reaches 0, then let it enter.
    """
    return _verified(x, rows, _solve(x, rows))


@project.defjvp
def _project_jvp(primals, tangents):
    (x, rows), (dx, _) = primals, tangents
    # The derivative is piecewise constant: nothing in the search for the active rows is differentiated again.
    x, rows = jax.lax.stop_gradient((x, rows))
    state = _solve(x, rows)
    Q, n_active = _all_active(state, x, rows)
    face_normals = jnp.where(jnp.arange(x.size) < n_active, Q, 0.0)
    return _verified(x, rows, state), dx - face_normals @ (face_normals.T @ dx)


@jax.jit
def _solve(x, rows: Rows) -> Working:
    m, n = rows.A.shape
    n_rows = m + 2 * n
    start = Working(
        y=x,
        multiplier=jnp.zeros_like(x),
        Q=jnp.asarray(rows.basis),
        R=jnp.eye(n),
        members=jnp.full(n, -1, jnp.int32),
        n_active=jnp.asarray(rows.e.size, jnp.int32),
        entering=jnp.asarray(-1, jnp.int32),
        given_up=jnp.zeros(n_rows, bool),
        n_steps=jnp.asarray(0, jnp.int32),
        done=jnp.asarray(False),
    )
    # Every full step adds a row and raises the dual objective; this cap only stops cycles made by rounding.
    cap = 20 * n_rows + 100
    return jax.lax.while_loop(lambda s: ~s.done & (s.n_steps < cap), lambda s: _step(x, rows, s), start)


def _step(x, rows: Rows, state: Working) -> Working:
    n = x.size
    state = jax.lax.cond(state.entering < 0, lambda: _restored(x, rows, state), lambda: state)
    excess = rows.excess(state.y)
    violated = jnp.where(_inside_working_set(state, excess.size) | state.given_up, -jnp.inf, excess)
    margin = violated - 4 * ROUNDING * _scale(x, state.y, rows)
    p = jnp.where(state.entering >= 0, state.entering, jnp.argmax(margin).astype(jnp.int32))
    done = (state.entering < 0) & (jnp.max(margin, initial=-jnp.inf) <= 0.0)

    d = state.Q.T @ rows.normal(p)
    inside = jnp.arange(n) < state.n_active
    r = _solve_upper(state, jnp.where(inside, d, 0.0))
    beside = jnp.where(inside, 0.0, d)
    beside_sq = jnp.sum(beside * beside)
    dependent = beside_sq <= DEPENDENT**2

    droppable = inside & (state.members >= 0) & (r > ROUNDING)
    ratios = jnp.where(droppable, jnp.maximum(state.multiplier, 0.0) / jnp.where(droppable, r, 1.0), jnp.inf)
    leaving = jnp.argmin(ratios)
    t_dual = ratios[leaving]
    t_primal = jnp.where(
        dependent, jnp.inf, jnp.maximum(excess[p], 0.0) / jnp.where(dependent, 1.0, beside_sq)
    )

    none = jnp.asarray(-1, jnp.int32)

    def stuck():
        # Dependent on the working set with nothing to drop: only rounding can violate it; the final check judges.
        return state._replace(given_up=state.given_up.at[p].set(True), entering=none)

    def enter():
        Q, R = _with_normal(state.Q, state.R, d, state.n_active)
        members = state.members.at[state.n_active].set(p)
        return state._replace(Q=Q, R=R, members=members, n_active=state.n_active + 1, entering=none)

    def drop():
        moved = state.y - jnp.where(dependent, 0.0, t_dual) * (state.Q @ beside)
        kept = jnp.arange(n) + (jnp.arange(n) >= leaving)
        kept = jnp.minimum(kept, n - 1)
        multiplier = (state.multiplier - t_dual * r)[kept]
        members, n_active = state.members[kept], state.n_active - 1
        Q, R = _factor(rows, members, n_active)
        still = jnp.arange(n) < n_active
        return state._replace(
            y=moved,
            multiplier=jnp.where(still, multiplier, 0.0),
            Q=Q,
            R=R,
            members=jnp.where(still, members, -1),
            n_active=n_active,
            entering=p,
        )

    def move():
        case = jnp.where(jnp.isinf(t_dual) & jnp.isinf(t_primal), 0, jnp.where(t_primal <= t_dual, 1, 2))
        return jax.lax.switch(case, [stuck, enter, drop])

    moved = jax.lax.cond(done, lambda: state, move)
    return moved._replace(n_steps=state.n_steps + 1, done=done)


def _restored(x, rows: Rows, state: Working) -> Working:
    """The point and the multipliers the working set determines, computed afresh so that nothing drifts."""
    inside = jnp.arange(x.size) < state.n_active
    offsets = rows.offsets()[jnp.maximum(state.members, 0)]
    offsets = offsets.at[: rows.e.size].set(rows.e)
    level = _solve_upper(state, jnp.where(inside, offsets, 0.0), transpose=True)
    excess = jnp.where(inside, state.Q.T @ x - level, 0.0)
    return state._replace(y=x - state.Q @ excess, multiplier=_solve_upper(state, excess))


def _solve_upper(state: Working, right, transpose=False):
    inside = jnp.arange(right.size) < state.n_active
    R = jnp.where(inside[:, None] & inside[None, :], state.R, jnp.eye(right.size))
    return solve_upper(R, right, transpose)


def _with_normal(Q, R, d, n_active):
    """Q and R after one more column, d in the coordinates of Q: one Householder reflection of the free columns."""
    position = jnp.arange(d.size)
    tail = jnp.where(position >= n_active, d, 0.0)
    alpha = -jnp.where(d[n_active] >= 0.0, 1.0, -1.0) * jnp.sqrt(jnp.sum(tail * tail))
    v = tail.at[n_active].add(-alpha)
    Q = Q - (Q @ v)[:, None] * (2.0 / jnp.sum(v * v) * v)[None, :]
    return Q, R.at[:, n_active].set(jnp.where(position < n_active, d, 0.0).at[n_active].set(alpha))


def _factor(rows: Rows, members, n_active):
    """Q and R of the normals of the working set, from scratch."""
    n = members.size
    normals = jax.vmap(rows.normal)(jnp.maximum(members, 0)).T
    normals = normals.at[:, : rows.e.size].set(rows.basis[:, : rows.e.size])
    Q, R = jnp.linalg.qr(jnp.where(jnp.arange(n) < n_active, normals, 0.0), mode="complete")
    return Q, R


def _inside_working_set(state: Working, n_rows: int):
    valid = (jnp.arange(state.members.size) < state.n_active) & (state.members >= 0)
    return jnp.zeros(n_rows, bool).at[jnp.where(valid, state.members, n_rows)].set(True, mode="drop")


def _scale(x, y, rows: Rows):
    """The size of the numbers a row is computed from."""
    return jnp.sqrt(jnp.sum(x * x)) + jnp.sqrt(jnp.sum(y * y)) + jnp.abs(rows.offsets())


@jax.jit
def _verified(x, rows: Rows, state: Working):
    """The point when every row holds to the promised accuracy, NaN otherwise: never a silent approximation."""
    feasible = jnp.all(rows.excess(state.y) <= PROMISED * _scale(x, state.y, rows))
    size = jnp.sqrt(jnp.sum(x * x)) + jnp.sqrt(jnp.sum(state.y * state.y))
    stationary = jnp.all((state.members < 0) | (state.multiplier >= -WRONG_SIGN * size))
    y = jnp.clip(state.y, rows.lower, rows.upper)
    return jnp.where(feasible & stationary & state.done, y, jnp.nan)


@jax.jit
def _all_active(state: Working, x, rows: Rows):
    """An orthonormal basis that begins with the span of *all* normals active at y, and the dimension of that span.

    Just outside x along the sum of those normals the projection is differentiable and its derivative removes
    exactly this span: an element of the B-subdifferential even where more rows meet than are independent.
    """
    excess = rows.excess(state.y)
    tied = (excess >= -PROMISED * _scale(x, state.y, rows)) & ~_inside_working_set(state, excess.size)
    tied = tied & jnp.isfinite(rows.offsets())

    def absorb(carry):
        Q, n_active, left = carry
        p = jnp.argmax(left)
        d = Q.T @ rows.normal(p)
        beside = jnp.where(jnp.arange(x.size) < n_active, 0.0, d)
        independent = jnp.sum(beside * beside) > DEPENDENT**2
        grown, _ = _with_normal(Q, state.R, d, jnp.minimum(n_active, x.size - 1))
        Q = jnp.where(independent, grown, Q)
        return Q, n_active + independent.astype(jnp.int32), left.at[p].set(False)

    Q, n_active, _ = jax.lax.while_loop(lambda c: jnp.any(c[2]), absorb, (state.Q, state.n_active, tied))
    return Q, n_active
