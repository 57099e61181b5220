"""The largest value of a concave function on X_ε, between two bounds that need no trust in the method.

Maximise g(y) over y ∈ X with 1ᵀ[f(y)]₊ ≤ ε. For *any* ŷ ∈ X and μ ≥ 0, with h_μ = g − μᵀf concave,

    max g  ≤  U(ŷ, μ) = ε‖μ‖∞ + h_μ(ŷ) + max_{y∈X} ∇h_μ(ŷ)ᵀ(y − ŷ)                               (1)
    max g  ≥  g(y)   for any y ∈ X_ε                                                              (2)

The points come from the proximal method of multipliers. Its k-th problem has no constraint left, only distances,

    min_y  φ(y) = −g(y) + (σ/2) dist²(f(y) + μ/σ, K_ε) + (s/2) dist²(y + ν/s, X) + (δ/2)‖y − y_k‖²  (3)
    μ ← σ(u − P_K(u)),  u = f(y) + μ/σ;      ν ← s(v − P_X(v)),  v = y + ν/s                        (4)

and is solved by a semismooth Newton method whose linear systems need products alone (conjugate gradients).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from viceversa.metrics.descent import (
    alternating_signs,
    conjugate_gradients,
    largest_eigenvalue,
    step_length,
)
from viceversa.metrics.enlargement import distance_vector, total_violation
from viceversa.numerics import safe_divide, tree_norm
from viceversa.problem import Constraints
from viceversa.sets.base import ConvexSet

# Newton steps over all outer iterations; a handful is usual.
MAX_NEWTON = 200
# A step that changes this little, relative to the terms of ∇φ, is idle; after so many of them nothing is left to gain.
ROUNDING = 1e-11
MAX_IDLE = 6
# A gradient this small relative to its terms that a step does not halve: change φ instead of insisting.
SMALL = 1e-8
# How much stiffer the two penalties are than the function itself: each outer iteration gains about this factor.
STIFFER = 100.0
# How far the penalty of f may grow beyond that when it gains less.
STIFFEST = 1e4
# The proximal term, relative to the curvature of g; it keeps the systems definite where g is flat.
PROXIMAL = 1e-5
LEAST_PROXIMAL = 1e-8
# Curvature below this multiple of ‖∇g‖ over the size of X counts as none: a linear program.
FLAT = 1e-9
# A step that leaves any bounded X: how far X reaches is measured by projecting its end.
FAR = 1e6
# A sum of terms is clearly negative beyond this multiple of their sizes.
CLEARLY = 1e-10
# The longest Newton step, as a multiple of what X reaches.
FARTHEST = 10.0


class Scales(NamedTuple):
    """Sizes the method needs once: ‖∇²g‖, diag(−∇²g) and its mean, ‖Jf‖², and how far X reaches along ∇g.

    `least` is the least curvature vᵀ(−∇²g)v/‖v‖² found along directions v within X: negative, it proves g not concave.
    """

    curvature: Float[Array, ""]
    diagonal: Float[Array, "..."]
    typical: Float[Array, ""]
    slope_sq: Float[Array, ""]
    reach: Float[Array, ""]
    least: Float[Array, ""]


class Guess(NamedTuple):
    """Where to start: a point, multipliers of f and of X."""

    y: Float[Array, "..."]
    mu: Float[Array, " J"]
    nu: Float[Array, "..."]


class Task(NamedTuple):
    """Which program: g is multiplied by `weight` and `margin` is added to f, so that weight 0 asks for a Slater point.

    `slack` is what a point may exceed ε by and still count for (2): zero, unless X_ε has no interior to retreat to.
    """

    epsilon: Float[Array | np.ndarray, ""]
    weight: Float[Array | np.ndarray, ""]
    margin: Float[Array | np.ndarray, ""]
    slack: Float[Array | np.ndarray, ""]

    def contains(self, f_y: Array) -> Array:
        """Whether 1ᵀ[f(y) + margin]₊ ≤ ε + slack, as computed."""
        return total_violation(f_y + self.margin) <= self.epsilon + self.slack


class Bounds(NamedTuple):
    """(1) and (2): the best of each, the point and multipliers that prove it, and how much work it was.

    `empty`: a weightless task has U < 0 beyond rounding, so nothing is in X_ε.
    """

    lower: Float[Array, ""]
    upper: Float[Array, ""]
    y_lower: Float[Array, "..."]
    y_upper: Float[Array, "..."]
    mu: Float[Array, " J"]
    empty: Bool[Array, ""]
    n_outer: Int[Array, ""]
    n_newton: Int[Array, ""]
    n_products: Int[Array, ""]


class Program(NamedTuple):
    """max g over { y ∈ X : 1ᵀ[f(y) + margin]₊ ≤ ε }."""

    g: Callable
    f: Constraints
    X: ConvexSet
    task: Task
    scales: Scales


class _Penalised(NamedTuple):
    """φ of (3) at one outer iteration."""

    center: Float[Array, "..."]
    mu: Float[Array, " J"]
    nu: Float[Array, "..."]
    sigma: Float[Array, ""]
    stiffness: Float[Array, ""]
    delta: Float[Array, ""]
    delta_least: Float[Array, ""]

    def gradient(self, program: Program, y: Array) -> tuple[Array, Array, Array]:
        """(∇φ(y), μ, ν) with the multipliers of (4) at y."""
        f_y, pullback = program.f.vjp(y)
        u, v = f_y + program.task.margin + self.mu / self.sigma, y + self.nu / self.stiffness
        mu = self.sigma * distance_vector(u, program.task.epsilon)
        nu = self.stiffness * (v - program.X.project(v))
        slope = program.task.weight * jax.grad(program.g)(y)
        return pullback(mu) + nu + self.delta * (y - self.center) - slope, mu, nu


class _State(NamedTuple):
    """y, φ, the least ‖∇φ(y)‖ since φ last changed, by how much (4) last changed μ/σ, and what is proved so far."""

    y: Float[Array, "..."]
    phi: _Penalised
    size: Float[Array, ""]
    change: Float[Array, ""]
    n_idle: Int[Array, ""]
    bounds: Bounds
    done: Bool[Array, ""]


def scales_at(g: Callable, f: Constraints, X: ConvexSet, y: Array, diagonal: Array) -> Scales:
    """The sizes, by power iterations on products, at an interior point y and across X along ±∇g(y)."""
    gradient, hessian = jax.linearize(jax.grad(g), y)
    start = jnp.reshape(jnp.cos(jnp.arange(y.size, dtype=y.dtype)), y.shape) + 1.0
    curvature = largest_eigenvalue(hessian, start)
    _, within = jax.linearize(X.project, y)  # y is interior: the projection on the directions of X
    shifted = lambda v: within(curvature * v + hessian(v))
    across = safe_divide(FAR, tree_norm(gradient), 0.0) * gradient
    ends = jax.lax.map(X.project, jnp.stack([y + across, y - across]))
    reach = jnp.max(jax.vmap(lambda end: tree_norm(end - y))(ends))

    def slope_sq(at):
        _, slope = jax.linearize(f, at)
        _, pullback = f.vjp(at)
        return largest_eigenvalue(lambda v: pullback(slope(v)), start)

    # Jf may vanish at one point or explode at the edge: the middle one of three.
    half = jnp.where(reach < 0.5 * FAR, 0.5, 0.0)
    points = jnp.stack([y, *(y + half * (ends - y))])
    slopes = jax.lax.map(slope_sq, points) if f(y).size else jnp.ones(1)
    return Scales(
        curvature=curvature,
        diagonal=diagonal,
        typical=jnp.mean(diagonal),
        slope_sq=jnp.median(slopes),
        reach=jnp.where(reach > 0.0, reach, 1.0),
        # ‖Π(L I − (−∇²g))Πv‖ ≤ L − λ_min for unit v, so this is at least λ_min.
        least=curvature - largest_eigenvalue(shifted, within(start), n_steps=40),
    )


def maximise(program: Program, start: Guess, slater: Array, tol, excess: Callable) -> tuple[Bounds, Guess]:
    """Bounds (1) and (2) on max g over X_ε, within tol·(1 + |U|) of each other unless the caps are met.

    `excess(X, c, y)` bounds max_{z∈X} cᵀ(z − y) + (what curvature is proved). A weightless task stops when U < 0
    proves X_ε empty. Also returned: where it stopped, for the next program of its kind.
    """
    infinity = jnp.asarray(jnp.inf)
    first = _first_penalty(program, start)
    state = _State(start.y, first, infinity, infinity, jnp.asarray(0), _no_bounds(start), jnp.asarray(False))

    def body(state: _State) -> _State:
        phi = state.phi
        step = _newton_step(program, phi, state.y)
        bounds = _improved(program, state.bounds, step, slater, excess)
        mu_change = tree_norm(step.mu - phi.mu)
        moved = tree_norm(step.nu - phi.nu) + phi.delta * tree_norm(step.y - phi.center)
        moved = moved + jnp.sqrt(program.scales.slope_sq) * mu_change
        stuck = (step.size > 0.5 * state.size) & (step.size <= SMALL * step.scale)
        solved = (step.size <= 0.1 * moved) | stuck
        idle = jnp.maximum(moved, step.size) <= ROUNDING * step.scale
        slow = solved & (mu_change / phi.sigma > 0.1 * state.change)
        harder = phi._replace(
            center=step.y,
            mu=step.mu,
            nu=step.nu,
            sigma=jnp.where(slow, jnp.minimum(5.0 * phi.sigma, STIFFEST * first.sigma), phi.sigma),
            delta=jnp.maximum(0.1 * phi.delta, phi.delta_least),
        )
        return _State(
            y=step.y,
            phi=jax.tree.map(lambda a, b: jnp.where(solved, a, b), harder, phi),
            size=jnp.where(solved, jnp.inf, step.size),
            change=jnp.where(solved, mu_change / phi.sigma, state.change),
            n_idle=state.n_idle + idle,
            bounds=bounds._replace(n_outer=bounds.n_outer + solved),
            done=is_tight(bounds, tol) | bounds.empty | (state.n_idle >= MAX_IDLE),
        )

    end = jax.lax.while_loop(lambda s: ~s.done & (s.bounds.n_newton < MAX_NEWTON), body, state)
    return end.bounds, Guess(end.y, end.phi.mu, end.phi.nu)


def is_tight(bounds: Bounds, tol) -> Any:
    """Whether U is finite and U − L ≤ tol·(1 + |U|)."""
    return (bounds.upper < jnp.inf) & (bounds.upper - bounds.lower <= tol * (1.0 + abs(bounds.upper)))


def _first_penalty(program: Program, start: Guess) -> _Penalised:
    """The first φ: penalties stiffer than g by `STIFFER`, a proximal term that is slight where g curves."""
    scales = program.scales
    # What carries y across X in one step where g has no curvature.
    drift = safe_divide(tree_norm(jax.grad(program.g)(start.y)), scales.reach, 1.0)
    drift = jnp.where(drift > 0.0, drift, 1.0)
    curved = (scales.curvature > FLAT * drift) & (program.task.weight > 0.0)
    curvature, typical = jnp.where(curved, scales.curvature, 0.0), jnp.where(curved, scales.typical, 0.0)
    return _Penalised(
        center=start.y,
        mu=start.mu,
        nu=start.nu,
        sigma=STIFFER * safe_divide(jnp.maximum(curvature, drift), scales.slope_sq, 1.0),
        stiffness=STIFFER * jnp.maximum(typical, drift),
        delta=jnp.where(curved, PROXIMAL * scales.curvature, drift),
        delta_least=LEAST_PROXIMAL * jnp.where(curved, scales.curvature, 1e3 * drift),
    )


class _Step(NamedTuple):
    """The new point, its multipliers, ‖∇φ‖ there, the size of the terms ∇φ is made of, and the products it took."""

    y: Float[Array, "..."]
    mu: Float[Array, " J"]
    nu: Float[Array, "..."]
    size: Float[Array, ""]
    scale: Float[Array, ""]
    n_products: Int[Array, ""]


def _newton_step(program: Program, phi: _Penalised, y: Array) -> _Step:
    """One Newton step on (3).

    The multipliers are those the step predicts: (4) at the new point magnifies the rounding of f by σ.
    """
    (G, mu, nu), linear = jax.linearize(lambda y: phi.gradient(program, y), y)
    d, n_products = conjugate_gradients(lambda v: linear(v)[0], -G, _diagonal(program, phi, linear, y))
    # Where g is flat the step may leave X by far: no further than a few times what X reaches.
    d = d * jnp.minimum(1.0, safe_divide(FARTHEST * program.scales.reach, tree_norm(d), 1.0))
    alpha, G_new = step_length(lambda y: phi.gradient(program, y)[0], y, d, G)
    _, dmu, dnu = linear(alpha * d)
    scales, stiffness = program.scales, program.task.weight * program.scales.curvature + phi.delta
    length = tree_norm(y) + jnp.minimum(scales.reach, 1.0 + tree_norm(y))
    return _Step(
        y=y + alpha * d,
        mu=jnp.maximum(mu + dmu, 0.0),
        nu=nu + dnu,
        size=tree_norm(G_new),
        scale=tree_norm(G) + tree_norm(nu) + jnp.sqrt(scales.slope_sq) * tree_norm(mu) + stiffness * length,
        n_products=n_products,
    )


def _diagonal(program: Program, phi: _Penalised, linear: Callable, y: Array) -> Array:
    """About the diagonal of ∇²φ without the part of f, by one probe of ν's derivative: exact for a box."""
    signs = alternating_signs(y)
    _, _, dnu = linear(signs)
    outside = jnp.clip(signs * dnu, 0.0, phi.stiffness)
    return jnp.maximum(program.scales.diagonal, 0.0) * program.task.weight + phi.delta + outside


def _improved(program: Program, best: Bounds, step: _Step, slater: Array, excess: Callable) -> Bounds:
    """(1) and (2) at a new point, where better."""
    g, f, X, task, _ = program
    y, mu = X.project(step.y), step.mu
    f_y, pullback = f.vjp(y)
    f_y = f_y + task.margin
    g_y, slope = jax.value_and_grad(g)(y)
    ascent = task.weight * slope - pullback(mu)
    upper = support_of_enlargement(mu, task.epsilon) + task.weight * g_y - jnp.sum(mu * f_y)
    upper = upper + excess(X, ascent, y)
    y_lower = repaired(y, f, task, slater)
    lower = jnp.where(task.contains(f(y_lower)), task.weight * g(y_lower), -jnp.inf)
    higher, smaller = lower > best.lower, upper < best.upper
    terms = support_of_enlargement(mu, task.epsilon) + jnp.sum(mu) * (jnp.max(jnp.abs(f_y), initial=0.0))
    terms = terms + jnp.sum(jnp.abs(ascent * y)) + tree_norm(ascent) * program.scales.reach
    return Bounds(
        lower=jnp.where(higher, lower, best.lower),
        upper=jnp.where(smaller, upper, best.upper),
        y_lower=jnp.where(higher, y_lower, best.y_lower),
        y_upper=jnp.where(smaller, y, best.y_upper),
        mu=jnp.where(smaller, mu, best.mu),
        empty=best.empty | ((task.weight == 0.0) & (upper < -CLEARLY * terms)),
        n_outer=best.n_outer,
        n_newton=best.n_newton + 1,
        n_products=best.n_products + step.n_products,
    )


def support_of_enlargement(mu: Array, epsilon: Array | np.ndarray) -> Array:
    """ε‖μ‖∞, which is 0 for μ = 0 even where ε = ∞."""
    largest = jnp.max(mu, initial=0.0)
    return jnp.where(largest > 0.0, epsilon * largest, 0.0)


def repaired(y: Array, f: Constraints, task: Task, slater: Array) -> Array:
    """y moved towards a Slater point z just far enough to lie in X_ε (y itself if it does).

    Convexity makes the share s of the way enough when W(s) = 1ᵀ[(1 − s)f(y) + s f(z)]₊ ≤ ε. W is convex and piecewise
    linear, so Newton's method from s = 0 finds the least such s from below, piece by piece.
    """
    f_y, f_z = f(y) + task.margin, f(slater) + task.margin
    limit = task.epsilon + task.slack
    if f_y.size == 0:
        return y

    def newton(carry):
        s, k = carry
        along = (1.0 - s) * f_y + s * f_z
        decrease = jnp.sum(jnp.where(along > 0.0, f_y - f_z, 0.0))
        step = safe_divide(total_violation(along) - limit, decrease, 1.0)
        return jnp.where(decrease > 0.0, jnp.minimum(s + step, 1.0), 1.0), k + 1

    def too_early(carry):
        s, k = carry
        return (total_violation((1.0 - s) * f_y + s * f_z) > limit) & (s < 1.0) & (k < 2 * f_y.size + 2)

    share, _ = jax.lax.while_loop(too_early, newton, (jnp.zeros(()), jnp.asarray(0)))

    def outside(s):
        return (s < 1.0) & ~task.contains(f(y + s * (slater - y)))

    # Rounding may leave the point a last digit outside: go a little further.
    share = jax.lax.while_loop(outside, lambda s: jnp.minimum(1.0, 1.5 * s + 1e-16), share)
    return y + share * (slater - y)


def _no_bounds(start: Guess) -> Bounds:
    zero = jnp.asarray(0)
    never = jnp.asarray(False)
    return Bounds(
        jnp.asarray(-jnp.inf), jnp.asarray(jnp.inf), start.y, start.y, start.mu, never, zero, zero, zero
    )
