"""Intersections with an exact projection: linear sets merged into one, and balls cut into anything."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from viceversa import numerics, precision
from viceversa.errors import InputError
from viceversa.sets.affine import Affine, Halfspace
from viceversa.sets.ball import Ball
from viceversa.sets.base import ConvexSet, is_shape, lives_in_jax, point_method, sample_method, to_numpy
from viceversa.sets.box import Box, Free, NonNegative
from viceversa.sets.linear_program import Description
from viceversa.sets.polyhedron import MAX_COORDINATES, Polyhedron
from viceversa.sets.product import Product
from viceversa.sets.simplex import Simplex

# Halving [0, 1] this often leaves 1e-24, so that even a point 10⁸ radii away is projected to the last digits.
N_HALVINGS = 80
# Beyond this multiple of the radius along c a ball that is still not reached cannot bind.
LONGEST_STRIDE = 2.0**20
# Where the rest leaves y less than this share of the squared radius to move radially, it fixes y.
FIXED = 1e-14
# A ball that misses the rest by no more than this, relative to its radius, touches it.
TOUCHING = 1e-12
# More balls than this would nest the searches too deeply for an inner loop.
MAX_BALLS = 2


class Intersection(ConvexSet):
    """The points that lie in every one of several sets.

    Sets made of linear rows (Box, NonNegative, Free, Halfspace, Affine, Simplex, Polyhedron, list Products of
    them) merge into one `rest`: a Box, an Affine or a Polyhedron, with that set's own rules and limits. A ball
    of centre m and radius r cuts the rest R by the one number τ its multiplier leaves free:

        P(x) = P_R(m + τ(x − m)),   τ ∈ [0, 1] the largest with ‖P_R(m + τ(x − m)) − m‖ ≤ r            (1)

    ‖P_R(m + τ(x − m)) − m‖ does not decrease in τ, so halving finds τ to the last bit: y ∈ S and ⟨x − y, z − y⟩ ≤ 0 on
    S to 1e-12. (Where the sphere is tangent to R these fix y itself only to √ε.) Up to two balls are taken; other
    combinations are refused: pass one of the sets as constraints.

    Example:
        >>> import numpy as np
        >>> from viceversa.sets import Ball, Intersection, NonNegative
        >>> quarter = Intersection([NonNegative(2), Ball([0.0, 0.0], radius=1.0)])
        >>> quarter.project(np.array([-1.0, 3.0])).round(12)
        array([0., 1.])
    """

    rest: ConvexSet
    ball: Ball | None

    def __init__(self, sets: Any, *more: Any):
        if more:
            raise InputError(
                f"Intersection: {1 + len(more)} arguments are given; one list of sets is needed. Write "
                "vv.Intersection([a, b])."
            )
        sets = _flattened(sets)
        balls = [one for one in sets if isinstance(one, Ball)]
        others: list[ConvexSet] = [one for one in sets if not isinstance(one, (Ball, Free))]
        if len(balls) > MAX_BALLS:
            raise InputError(
                f"Intersection: {len(balls)} balls are given; the exact projection takes at most {MAX_BALLS}. Pass the "
                "others as constraints (‖x − center‖² − radius² ≤ 0)."
            )
        if not others:
            others = [balls.pop() if balls else sets[0]]
        self.ball = balls.pop() if balls else None
        self.rest = Intersection([*others, *balls]) if balls else _merged(others)
        if self.ball is not None:
            _check_touch(self.rest, self.ball)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.rest.shape

    @point_method
    def project(self, x: PyTree) -> PyTree:
        """(1); with J the derivative of P_R at its point w and g = J(y − m), v ↦ τ(Jv − g⟨g, v⟩/⟨g, y − m⟩)."""
        return self.rest.project(x) if self.ball is None else _project(x, self.rest, self.ball)

    def support(self, c: PyTree) -> tuple[Any, PyTree]:
        """The rest's own where its point lies in the ball, else P_R(m + s c) with s chosen on the sphere (to 1e-9 r)."""
        value, y = self.rest.support(c)
        return (value, y) if self.ball is None else _support(self.rest, self.ball, c, value, y)

    def diameter(self) -> float:
        """The smallest diameter among the ball and the rest: an upper bound."""
        return self.rest.diameter() if self.ball is None else min(self.rest.diameter(), self.ball.diameter())

    def width(self) -> np.ndarray:
        """The smaller width of ball and rest for every coordinate: an upper bound where there is a ball."""
        return self.rest.width() if self.ball is None else np.minimum(self.rest.width(), self.ball.width())

    @sample_method
    def sample(self, key: Array) -> PyTree:
        """The projection of a uniform point of the ball (without a ball, the rest's own sample)."""
        return self.rest.sample(key) if self.ball is None else self.project(self.ball.sample(key))

    def interior_point(self) -> np.ndarray:
        """From the rest's point nearest to the centre towards its relative interior, half-way to the sphere."""
        inside = self.rest.interior_point()
        if self.ball is None:
            return inside
        nearest = self.rest.project(self.ball.interior_point())
        room = float(self.ball.radius) - float(np.linalg.norm(nearest - self.ball.center))
        length = float(np.linalg.norm(inside - nearest))
        return nearest + min(1.0, 0.5 * max(room, 0.0) / length if length > 0.0 else 1.0) * (inside - nearest)


@jax.custom_jvp
def _project(x, rest: ConvexSet, ball: Ball):
    return rest.project(_shrunk(x, _tau(x, rest, ball), ball))


@_project.defjvp
def _project_jvp(primals, tangents):
    (x, rest, ball), (dx, _, _) = primals, tangents
    tau = jax.lax.stop_gradient(_tau(x, rest, ball))
    w = _shrunk(x, tau, ball)
    y, J_dx = jax.jvp(rest.project, (w,), (dx,))
    radial = y - ball.center
    _, g = jax.jvp(rest.project, (w,), (radial,))
    radial_sq = jnp.sum(g * radial)
    # J(y − m) = 0 where the rest alone fixes y: the sphere then removes nothing more.
    bent = numerics.safe_divide(1.0, jnp.where(radial_sq > FIXED * ball.radius**2, radial_sq, 0.0), 0.0)
    on_sphere = jnp.where(_distance(rest.project(x), ball) >= ball.radius, 1.0, 0.0)
    return y, tau * (J_dx - (on_sphere * bent * jnp.sum(g * dx)) * g)


@jax.jit
def _tau(x, rest: ConvexSet, ball: Ball):
    """The largest τ ∈ [0, 1] with ‖P_R(m + τ(x − m)) − m‖ ≤ r."""

    def fits(tau):
        return _distance(rest.project(_shrunk(x, tau, ball)), ball) <= ball.radius

    return jnp.where(fits(jnp.ones(())), 1.0, _largest(fits, 1.0))


def _support(rest: ConvexSet, ball: Ball, c, value, y):
    if lives_in_jax((rest, ball, c)):
        return _support_on_sphere(rest, ball, c, value, y)
    with precision.double():
        return to_numpy(_support_on_sphere(rest, ball, np.asarray(c, dtype=np.float64), value, y))


@jax.jit
def _support_on_sphere(rest: ConvexSet, ball: Ball, c, value, y):
    direction = numerics.safe_divide(c, numerics.tree_norm(c), 0.0) * ball.radius

    def at(s):
        return rest.project(ball.center + s * direction)

    s = _largest(lambda s: _distance(at(s), ball) <= ball.radius, LONGEST_STRIDE)
    inside = jnp.isfinite(value) & (_distance(y, ball) <= ball.radius * (1.0 + TOUCHING))
    y = jnp.where(inside, y, at(s))
    return jnp.sum(c * y), y


def _largest(fits, high: float):
    """The end of the interval [0, t] on which `fits` holds, by halving [0, high]."""

    def halve(_, bracket):
        low, high = bracket
        middle = 0.5 * (low + high)
        ok = fits(middle)
        return jnp.where(ok, middle, low), jnp.where(ok, high, middle)

    return jax.lax.fori_loop(0, N_HALVINGS, halve, (jnp.zeros(()), jnp.asarray(high, dtype=float)))[0]


def _shrunk(x, tau, ball: Ball):
    return ball.center + tau * (x - ball.center)


def _distance(y, ball: Ball):
    return numerics.tree_norm(y - ball.center)


def _check_touch(rest: ConvexSet, ball: Ball) -> None:
    nearest = rest.project(ball.interior_point())
    distance, radius = float(np.linalg.norm(nearest - ball.center)), float(ball.radius)
    if distance > radius * (1.0 + TOUCHING):
        raise InputError(
            f"Intersection: the ball of radius {radius:.6g} ends before the other sets begin ({distance:.6g} from its "
            "centre), so the intersection is empty. Enlarge the radius or move the centre."
        )


def _flattened(sets: Any) -> list[ConvexSet]:
    """The members, those of nested intersections included, all with arrays of one shape as points."""
    if not isinstance(sets, (list, tuple)) or not sets:
        raise InputError(
            f"Intersection: sets is {type(sets).__name__} of nothing usable; give a list of sets."
        )
    members: list[ConvexSet] = []
    for i, one in enumerate(sets):
        if not isinstance(one, ConvexSet):
            raise InputError(
                f"Intersection: sets[{i}] is a {type(one).__name__}; a set such as Box is needed."
            )
        if not is_shape(one.shape):
            raise InputError(
                f"Intersection: sets[{i}] has points that are trees {one.shape}. Intersect the parts, then take the "
                "Product of the intersections."
            )
        if one.shape != sets[0].shape:
            raise InputError(
                f"Intersection: sets[{i}] has points of shape {one.shape} and sets[0] of shape {sets[0].shape}. "
                "Give sets of one shape."
            )
        if isinstance(one, Intersection):
            members += _flattened([one.rest] if one.ball is None else [one.rest, one.ball])
        else:
            members.append(one)
    return members


def _merged(sets: list[ConvexSet]) -> ConvexSet:
    """One set equal to the intersection of sets made of linear rows."""
    if len(sets) == 1:
        return sets[0]
    parts = [describe(one) for one in sets]
    A, b, C, d = (np.concatenate([part[k] for part in parts]) for k in range(4))
    lower = np.max([part.lower for part in parts], axis=0)
    upper = np.min([part.upper for part in parts], axis=0)
    shape = sets[0].shape
    try:
        if not len(b) and not len(d):
            return Box(lower.reshape(shape), upper.reshape(shape))
        if not len(b) and np.all(lower == -np.inf) and np.all(upper == np.inf):
            return Affine(C, d, shape=shape)
        return Polyhedron(A, b, C, d, shape=shape, lower=lower.reshape(shape), upper=upper.reshape(shape))
    except InputError as error:
        names = ", ".join(type(one).__name__ for one in sets)
        raise InputError(f"Intersection of {names}, merged into one set: {error}") from None


def describe(one: ConvexSet) -> Description:
    """A set as linear rows and bounds over the ravelled point, or a sentence."""
    n = int(np.prod(one.shape))
    none, nothing = np.zeros((0, n)), np.zeros(0)
    everything = np.full(n, np.inf)
    match one:
        case Box():
            return Description(none, nothing, none, nothing, one.lower.ravel(), one.upper.ravel())
        case NonNegative():
            return Description(none, nothing, none, nothing, np.zeros(n), everything)
        case Free():
            return Description(none, nothing, none, nothing, -everything, everything)
        case Halfspace():
            return Description(
                one.normal.reshape(1, n), one.offset.reshape(1), none, nothing, -everything, everything
            )
        case Affine():
            return Description(none, nothing, one.basis, one.level, -everything, everything)
        case Polyhedron():
            return one.description()
        case Simplex():
            n_rows = n // max(one.shape[-1], 1)
            _check_size(n_rows, n)
            C = np.kron(np.eye(n_rows), np.ones(one.shape[-1]))
            total = np.broadcast_to(one.total, one.shape[:-1]).ravel()
            allowed = np.broadcast_to(True if one.mask is None else one.mask, one.shape)
            upper = np.where(allowed, np.expand_dims(one.total, -1), 0.0).ravel()
            return Description(none, nothing, C, total, np.zeros(n), upper)
        case Product():
            parts = [describe(block) for block in one.blocks]
            _check_size(sum(len(part.b) + len(part.d) for part in parts), n)
            A, C = _block_diagonal([part.A for part in parts]), _block_diagonal([part.C for part in parts])
            b, d, lower, upper = (np.concatenate([part[k] for part in parts]) for k in (1, 3, 4, 5))
            return Description(A, b, C, d, lower, upper)
    raise InputError(
        f"Intersection: a {type(one).__name__} inside another set has no exact projection together with the rest. "
        "Intersect the blocks it belongs to first, or pass one of the sets as constraints."
    )


def _check_size(n_rows: int, n: int) -> None:
    if n_rows > 1 and n > MAX_COORDINATES:
        raise InputError(
            f"Intersection: {n_rows} rows over {n} coordinates cannot be projected on exactly inside an iteration (the "
            f"limit is {MAX_COORDINATES} coordinates, or one row at any size). Pass one of the sets as constraints."
        )


def _block_diagonal(matrices: list[np.ndarray]) -> np.ndarray:
    whole = np.zeros((sum(len(M) for M in matrices), sum(M.shape[1] for M in matrices)))
    row = column = 0
    for M in matrices:
        whole[row : row + M.shape[0], column : column + M.shape[1]] = M
        row, column = row + M.shape[0], column + M.shape[1]
    return whole
