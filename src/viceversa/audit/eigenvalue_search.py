"""Looking for a place where a map is not monotone, with derivatives, and the pair of points that shows it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from viceversa import precision
from viceversa.audit.fields import flat, project, ravel, tangent, unit_lengths
from viceversa.numerics import safe_divide
from viceversa.sets.base import ConvexSet

_DENSE = 64  # unknowns up to which the Jacobian is written out; beyond, Lanczos
_N_LANCZOS = 24
_N_EXPLORE, _N_REFINE = 70, 50  # steps of a search: of falling length first, then only downhill
_FIRST, _SHRINK = 0.2, 0.93  # of the set's diagonal: together the first steps can cross it twice
_REACHES = (1.0, 10.0, 100.0)  # lengths tried in directions without a bound
_SIGNIFICANT = 1e-12  # a violation counts beyond this share of the numbers it is computed from
_N_ON_HOST = 32  # pairs for functions that run on the host, one call at a time
_N_RANDOM = 128  # random pairs, which see jumps that derivatives do not


@dataclass(frozen=True)
class Lowest:
    """The smallest eigenvalue met, where, and its eigenvector; flat vectors."""

    value: float
    x: np.ndarray
    t: np.ndarray
    direction: np.ndarray
    n_starts: int


@dataclass(frozen=True)
class ViolatingPair:
    """x and y of the set with ⟨g(x, θ) − g(y, θ), x − y⟩ = ratio·‖x − y‖², checked in floating point; flat vectors."""

    x: np.ndarray
    y: np.ndarray
    t: np.ndarray
    product: float
    ratio: float


class _Look(NamedTuple):
    """λ_min at a point, its gradient in (x, θ) with the eigenvector held, and that eigenvector."""

    value: Array
    x_gradient: Array
    t_gradient: Array
    vector: Array


class _Search(NamedTuple):
    """Where the search is, the lowest place it has seen with what it looks like there, and the length of its last step."""

    x: Array
    t: Array
    best_x: Array
    best_t: Array
    at: _Look
    length: Array


def lowest_eigenvalue(field: Any, moving: ConvexSet, parameter: ConvexSet) -> Lowest | None:
    """The smallest λ_min of (J + Jᵀ)/2, J = ∂g/∂x on the directions of `moving`, that descent finds over both sets.

    From each of many starts, steps of a prescribed, falling length go along the gradient of λ_min whatever its size, so
    that a gradient of 1e-40 still leads; then only steps downhill are kept. None if `moving` is one point.
    """
    with precision.double():
        inside = flat(moving.interior_point())
        n = inside.size
        frame = _frame(moving, inside) if n <= _DENSE else np.zeros((0, 0))
        if n == 0 or (n <= _DENSE and frame.shape[1] == 0):
            return None
        n_starts = 48 if n <= 16 else 16 if n <= _DENSE else 6
        starts = _starts(moving, parameter, n_starts)
        values, xs, ts, vectors = map(np.asarray, _descend(field, moving, parameter, inside, frame, *starts))
    best = int(np.argmin(values))
    return Lowest(float(values[best]), xs[best], ts[best], vectors[best], len(values))


def violating_pair(
    field: Any, moving: ConvexSet, parameter: ConvexSet, lowest: Lowest | None, modulus: float = 0.0
) -> ViolatingPair | None:
    """The clearest pair with ⟨g(x) − g(y), x − y⟩ < modulus·‖x − y‖²: along the eigenvector found, and at random."""
    with precision.double():
        pairs = [] if lowest is None else [_along(moving, lowest)]
        pairs.append(_random_pairs(moving, parameter))
        xs, ys, ts = (np.concatenate(part) for part in zip(*pairs, strict=True))
        at_x, at_y = (np.asarray(_evaluate(field, points, ts)) for points in (xs, ys))
    return _clearest(xs, ys, ts, at_x, at_y, modulus)


def random_violating_pair(
    field: Any, moving: ConvexSet, parameter: ConvexSet, modulus: float = 0.0
) -> ViolatingPair | None:
    """The same from random pairs only, for functions that cannot be traced."""
    with precision.double():
        xs, ys, ts = (part[:_N_ON_HOST] for part in _random_pairs(moving, parameter))
        at_x, at_y = (
            np.stack(
                [np.asarray(field(jnp.asarray(p), jnp.asarray(t))) for p, t in zip(points, ts, strict=True)]
            )
            for points in (xs, ys)
        )
    return _clearest(xs, ys, ts, at_x, at_y, modulus)


def _clearest(xs, ys, ts, at_x, at_y, modulus: float) -> ViolatingPair | None:
    steps = xs - ys
    lengths = np.linalg.norm(steps, axis=1)
    products = np.sum((at_x - at_y) * steps, axis=1)
    rounding = _SIGNIFICANT * (np.linalg.norm(at_x, axis=1) + np.linalg.norm(at_y, axis=1)) * lengths
    excess = products - modulus * lengths**2
    with np.errstate(divide="ignore", invalid="ignore"):
        clarity = np.where(
            (lengths > 0) & np.isfinite(excess), -excess / np.maximum(rounding, 1e-300), -np.inf
        )
    best = int(np.argmax(clarity))
    if not clarity[best] > 1.0:
        return None
    ratio = float(products[best] / lengths[best] ** 2)
    return ViolatingPair(xs[best], ys[best], ts[best], float(products[best]), ratio)


# -- the search ----------------------------------------------------------------------------------------
@eqx.filter_jit
def _descend(field, moving, parameter, inside, frame, xs, ts, x_units, t_units):
    inside, frame, xs, ts, x_units, t_units = map(jnp.asarray, (inside, frame, xs, ts, x_units, t_units))
    look = lambda x, t: _look(field, moving, inside, frame, x, t)

    def move(at: _Look, x, t, length, units):
        """One step of `length` (in units of the sets) against the gradient, turned into the sets."""
        x_unit, t_unit = units
        gradient = jnp.concatenate([at.x_gradient * x_unit, at.t_gradient * t_unit])
        gradient = safe_divide(gradient, jnp.max(jnp.abs(gradient), initial=0.0), 0.0)
        down = -length * safe_divide(gradient, jnp.sqrt(jnp.sum(gradient**2)), 0.0)
        dx, dt = down[: x.size] * x_unit, down[x.size :] * t_unit
        within_x, within_t = project(moving, x + dx) - x, project(parameter, t + dt) - t
        kept = jnp.sqrt(
            jnp.sum(safe_divide(within_x, x_unit, 0.0) ** 2)
            + jnp.sum(safe_divide(within_t, t_unit, 0.0) ** 2)
        )
        again = safe_divide(length, kept, 0.0)  # what the boundary took away is walked along it
        return project(moving, x + again * within_x), project(parameter, t + again * within_t)

    def from_start(x, t, x_unit, t_unit):
        units = (x_unit, t_unit)
        longest = _FIRST * jnp.sqrt(1.0 * (jnp.sum(x_unit > 0) + jnp.sum(t_unit > 0)))

        def step(k, carry: _Search) -> _Search:
            at = look(carry.x, carry.t)
            better = at.value < carry.at.value
            choose = lambda this, that: jax.tree.map(lambda a, b: jnp.where(better, a, b), this, that)
            best_x, best_t, best = choose((carry.x, carry.t, at), (carry.best_x, carry.best_t, carry.at))
            exploring = k < _N_EXPLORE
            length = jnp.where(
                exploring,
                longest * _SHRINK**k,
                jnp.minimum(carry.length * jnp.where(better, 1.5, 0.4), longest),
            )
            length = jnp.where(k == _N_EXPLORE, 4.0 * carry.length, length)
            from_x, from_t, slope = jax.tree.map(
                lambda now, lowest: jnp.where(exploring, now, lowest),
                (carry.x, carry.t, at),
                (best_x, best_t, best),
            )
            x, t = move(slope, from_x, from_t, length, units)
            return _Search(x, t, best_x, best_t, best, length)

        nowhere = _Look(jnp.asarray(jnp.inf), jnp.zeros_like(x), jnp.zeros_like(t), jnp.zeros_like(x))
        end = jax.lax.fori_loop(
            0, _N_EXPLORE + _N_REFINE, step, _Search(x, t, x, t, nowhere, jnp.asarray(longest))
        )
        return end.at.value, end.best_x, end.best_t, end.at.vector

    return jax.vmap(from_start)(xs, ts, x_units, t_units)


def _look(field, moving, inside, frame, x, t) -> _Look:
    if x.size <= _DENSE:
        J = jax.jacfwd(field)(x, t)
        values, vectors = jnp.linalg.eigh(frame.T @ (0.5 * (J + J.T)) @ frame)
        value, v = values[0], frame @ vectors[:, 0]
    else:
        value, v = _lanczos(field, moving, inside, x, t)
    form = lambda x, t: jnp.sum(v * jax.jvp(lambda y: field(y, t), (x,), (v,))[1])
    slope_x, slope_t = jax.grad(form, argnums=(0, 1))(x, t)
    sane = lambda slope: jnp.where(jnp.isfinite(slope), slope, 0.0)
    return _Look(jnp.where(jnp.isnan(value), jnp.inf, value), sane(slope_x), sane(slope_t), v)


def _lanczos(field, moving, inside, x, t) -> tuple[Array, Array]:
    """(λ_min, v) of the symmetrised Jacobian on the tangent directions, by Lanczos with full reorthogonalisation."""
    along = lambda y: field(y, t)
    _, pullback = jax.vjp(along, x)
    into = lambda v: tangent(moving, inside, v)
    apply = lambda v: into(0.5 * (jax.jvp(along, (x,), (v,))[1] + pullback(v)[0]))
    unit = lambda v: safe_divide(v, jnp.sqrt(jnp.sum(v * v)), 0.0)
    first = unit(into(jnp.cos(jnp.arange(x.size) * 1.7 + 0.3)))

    def step(carry, k):
        basis, v = carry
        basis = basis.at[k].set(v)
        w = apply(v)
        alpha = jnp.sum(v * w)
        for _ in range(2):
            w = w - basis.T @ (basis @ w)
        beta = jnp.sqrt(jnp.sum(w * w))
        alive = beta > 1e-10 * (jnp.abs(alpha) + beta)
        return (basis, jnp.where(alive, unit(w), 0.0)), (
            alpha,
            jnp.where(alive, beta, 0.0),
            jnp.sum(v * v) > 0.5,
        )

    empty = jnp.zeros((_N_LANCZOS, x.size))
    (basis, _), (alphas, betas, used) = jax.lax.scan(step, (empty, first), jnp.arange(_N_LANCZOS))
    # Rows after an invariant subspace was found must not win.
    diagonal = jnp.where(used, alphas, 1.0 + jnp.sum(jnp.abs(alphas)) + jnp.sum(betas))
    T = jnp.diag(diagonal) + jnp.diag(betas[:-1], 1) + jnp.diag(betas[:-1], -1)
    values, vectors = jnp.linalg.eigh(T)
    return values[0], vectors[:, 0] @ basis


def _frame(moving: ConvexSet, inside: np.ndarray) -> np.ndarray:
    """An orthonormal basis, as columns, of the directions in which a point of the set can move."""
    T = np.asarray(_tangents(moving, inside))
    values, vectors = np.linalg.eigh(0.5 * (T + T.T))
    full = (values > 0.5).all()
    return np.eye(len(T)) if full else vectors[:, values > 0.5]


@eqx.filter_jit
def _tangents(moving: ConvexSet, inside: Any) -> Array:
    inside = jnp.asarray(inside)
    return jax.vmap(lambda v: tangent(moving, inside, v))(jnp.eye(inside.size))


# -- points --------------------------------------------------------------------------------------------
def _starts(moving: ConvexSet, parameter: ConvexSet, n: int):
    """(xs, θs, units of x, units of θ): random points, at several scales where there is no bound, and both corners."""
    reaches = np.resize(_REACHES, n)[:, None]
    starts, units = [], []
    for S in (moving, parameter):
        points = _random_points(S)[:n]
        width = unit_lengths(S)
        free = ~np.isfinite(width)
        points[:, free] *= reaches
        units.append(np.where(free, 2.0 * reaches, width))
        if not free.any() and len(width):
            middle = flat(S.interior_point())
            points[0], points[1], points[2] = middle, middle - 0.5 * width, middle + 0.5 * width
        starts.append(_project_all(S, points))
    return *starts, *units


def _along(moving: ConvexSet, lowest: Lowest) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Pairs along the eigenvector, from wide to close, centred at the point and to either side of it."""
    width = unit_lengths(moving)
    size = float(np.where(np.isfinite(width), width, np.maximum(1.0, np.abs(lowest.x))).max(initial=0.0))
    lengths = size * 10.0 ** -np.arange(0.0, 8.0, 0.5)[:, None]
    up, down, still = (lowest.x + s * lengths * lowest.direction for s in (1.0, -1.0, 0.0))
    firsts, seconds = np.concatenate([up, up, still]), np.concatenate([down, still, down])
    xs, ys = (np.asarray(_project_all(moving, points)) for points in (firsts, seconds))
    return xs, ys, np.broadcast_to(lowest.t, (len(xs), lowest.t.size))


def _random_pairs(moving: ConvexSet, parameter: ConvexSet) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    points = _random_points(moving)
    return points[::2], points[1::2], _random_points(parameter)[::2]


def _random_points(convex_set: ConvexSet) -> np.ndarray:
    """The same random points of the set for every purpose, as the rows of a matrix of our own."""
    return np.array(_samples(convex_set))


@eqx.filter_jit
def _samples(convex_set: ConvexSet) -> Array:
    keys = jax.random.split(jax.random.key(0), 2 * _N_RANDOM)
    return jax.vmap(lambda key: ravel(convex_set.sample(key)))(keys)


@eqx.filter_jit
def _project_all(convex_set: ConvexSet, points: Any) -> Array:
    return jax.vmap(lambda point: project(convex_set, point))(jnp.asarray(points))


@eqx.filter_jit
def _evaluate(field: Any, xs: Any, ts: Any) -> Array:
    return jax.vmap(field)(jnp.asarray(xs), jnp.asarray(ts))
