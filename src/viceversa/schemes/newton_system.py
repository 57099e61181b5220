"""The semismooth Newton system of the natural map in (x, λ), given by products and solved by a Krylov method."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.flatten_util
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PyTree

from viceversa import krylov
from viceversa.functions import float64_of
from viceversa.linear_matrix import matrix_of
from viceversa.local_derivative import local_derivative
from viceversa.numerics import irregular_signs, positive_part, safe_divide, solve_dense
from viceversa.problem import MisspecifiedVI
from viceversa.schemes.smoothed_projection import has_row_sums
from viceversa.sets import Ball, Intersection, Product
from viceversa.sets.base import ConvexSet
from viceversa.sets.intervals import is_box

MAX_PRODUCTS_SYMMETRIC = 200  # MINRES keeps five vectors, so it may take its time
LEAST_CURVATURE = 0.05  # local derivatives below this share of a typical other in their row say nothing
_FAINT = 1e-12  # of 1/γ or of the largest: a local derivative that may be rounding
SMALL = 5000  # unknowns up to which (x, λ) is joined into one vector for the Krylov method
MAX_PRODUCTS = 60  # GMRES keeps them all
# Unknowns up to which the matrix of the system is formed and factored: symmetric systems, and others.
DENSE_SYMMETRIC = 64
DENSE = 300
# Added to the diagonal of a formed matrix in its units, so that a singular one can be factored.
_ROUNDING = 1e-13


class Metric(NamedTuple):
    """The scales of the natural map: γ for x (one number, or one for each coordinate of a box), ρ_j for λ_j."""

    gamma: Float[Array, "..."]
    rho: Float[Array, " J"]


class Probed(NamedTuple):
    """What one product each has told about H = ∂(F + Jfᵀλ)/∂x; NaN: not asked yet.

    `row` is the norm of a typical row of H in the units of its diagonal, `along` how much stiffer H is along the
    constraints' gradients than its diagonal says.
    """

    row: Float[Array, ""]
    along: Float[Array, ""]

    @classmethod
    def nothing(cls) -> Probed:
        """To be asked."""
        return cls(jnp.asarray(jnp.nan), jnp.asarray(jnp.nan))

    def n_products_since(self, before: Probed) -> Int[Array, ""]:
        """How many have been asked since."""
        return sum(
            (jnp.isnan(old) & ~jnp.isnan(new) for old, new in zip(before, self, strict=True)), jnp.asarray(0)
        )


class KKT(NamedTuple):
    """G = F + Jfᵀλ and f at (x, λ), and `product`: (dx, dλ) ↦ (H dx + Jfᵀdλ, Jf dx), their derivative, H = ∂G/∂x."""

    G: Float[Array, "..."]
    f: Float[Array, " J"]
    product: Callable


def kkt_at(problem: MisspecifiedVI, x: Array, lam: Array, theta: PyTree) -> KKT:
    """The map and its derivative, in one evaluation."""
    (G, f_x), product = jax.linearize(kkt_map(problem, theta), x, lam)
    return KKT(G, f_x, product)


def local_metric(
    problem: MisspecifiedVI,
    x: Array,
    lam: Array,
    theta: PyTree,
    product: Callable,
    gamma,
    gradient_sq: Array,
    probed: Probed,
) -> tuple[Metric, Probed]:
    """γ_i = 1/h_i with h the local derivative of F + Jfᵀλ where X is a box, else `gamma`; ρ_j = 1/(mean γ ‖∇f_j‖²).

    Where the local derivative says nothing (a skew operator), `gamma`, the step the first-order method found, is used.
    """
    if is_box(problem.set) or has_row_sums(problem.set):
        F, f, _ = problem.at(theta)
        h = local_derivative(lambda at: F(at) + f.vjp(at)[1](lam), x)
        says_something, row = _says_something(
            lambda d: product(d, jnp.zeros_like(lam))[0], h, gamma, probed.row
        )
        gamma = jnp.where(says_something, safe_divide(1.0, h, 1.0), gamma)
        probed = probed._replace(row=row)
    return Metric(gamma=gamma, rho=safe_divide(1.0, jnp.mean(gamma) * gradient_sq, 1.0)), probed


def _says_something(
    H: Callable[[Array], Array], h: Array, gamma, row
) -> tuple[Bool[Array, "..."], Float[Array, ""]]:
    """Which local derivatives h of G are large enough beside the others in their rows of H to scale their coordinates.

    Where n coordinates are coupled alike, 1/γ, the norm of the whole, is √n times the norm of a row: that settles most
    cases. The others (coordinates in very different units, a penalty that made γ small) are settled together, by one
    product in the units √(1/h) along irregular signs, in which every diagonal entry is 1: the norm of a typical `row`.
    """
    root_n = math.sqrt(max(h.size, 1))
    # γ may be of a start where F was far steeper than here.
    clear = h * gamma > LEAST_CURVATURE / root_n
    possible = (h > 0) & (h > _FAINT * jnp.minimum(1.0 / gamma, jnp.max(h)))

    def measured() -> Array:
        unit = jnp.sqrt(jnp.where(possible, safe_divide(1.0, h, 1.0), gamma))
        rows = unit * H(unit * irregular_signs(h.shape))
        return jnp.sqrt(jnp.mean(rows * rows))

    row = jax.lax.cond(jnp.isnan(row) & jnp.any(possible & ~clear), measured, lambda: row)
    return clear | (possible & (LEAST_CURVATURE * row <= root_n)), row


def stiffened(product: Callable, metric: Metric, probed: Probed, like: Array) -> tuple[Metric, Probed]:
    """ρ multiplied by how much stiffer H is along the constraints' gradients than its diagonal says.

    ρ_j = 1/(mean γ ‖∇f_j‖²) takes H for 1/γ; a direction in which H couples many coordinates (a market's total) is far
    stiffer. Measured along one irregular combination of the gradients, an array `like` x, by one product.
    """
    if not metric.rho.size:
        return metric, probed

    def measured() -> Array:
        mixed = jnp.sqrt(metric.rho) * jnp.cos(1.0 + jnp.arange(metric.rho.size))
        w = metric.gamma * product(jnp.zeros_like(like), mixed)[0]
        Hw = product(w, jnp.zeros_like(metric.rho))[0]
        stiffness = safe_divide(jnp.sum(w * Hw), jnp.sum(w * w / metric.gamma), 1.0)
        return jnp.maximum(1.0, stiffness)

    along = jax.lax.cond(jnp.isnan(probed.along), measured, lambda: probed.along)
    return metric._replace(rho=along * metric.rho), probed._replace(along=along)


def kkt_map(problem: MisspecifiedVI, theta: PyTree) -> Callable[[Array, Array], tuple[Array, Array]]:
    """(x, λ) ↦ (F + Jfᵀλ, f)."""
    F, f, _ = problem.at(theta)

    def kkt(x: Array, lam: Array) -> tuple[Array, Array]:
        f_x, pullback = f.vjp(x)
        return F(x) + pullback(lam), f_x

    return kkt


def read_off(problem: MisspecifiedVI, question: Callable[[Callable, Array, Array], bool]) -> bool:
    """What the program of the map's derivative tells without being run: question(product, x, λ)."""
    found = []

    def asked(x: Array, lam: Array, theta: PyTree) -> None:
        found.append(question(jax.linearize(kkt_map(problem, theta), x, lam)[1], x, lam))

    x, lam = (float64_of(shape) for shape in (problem.shape, (problem.n_constraints,)))
    jax.eval_shape(asked, x, lam, problem.learning.set.zeros())
    return found[-1]


class Direction(NamedTuple):
    """The Newton step and the number of products it took."""

    x: Float[Array, "..."]
    lam: Float[Array, " J"]
    n_products: Int[Array, ""]


class Linearised(NamedTuple):
    """The natural map at (x, λ): its residuals and merit, and its derivative as products."""

    G: Float[Array, "..."]
    f: Float[Array, " J"]
    r_x: Float[Array, "..."]
    r_lam: Float[Array, " J"]
    active: Bool[Array, " J"]
    merit: Float[Array, ""]
    product: Callable
    derivative: Callable


def natural_merit(
    problem: MisspecifiedVI, x: Array, lam: Array, theta: PyTree, metric: Metric
) -> Float[Array, ""]:
    """The merit of r_x = x − P_X(x − γG) and r_λ = λ − [λ + ρf]₊, G = F + Jfᵀλ: zero exactly at a solution."""
    F, f, X = problem.at(theta)
    f_x, pullback = f.vjp(x)
    r_x = x - X.project(x - metric.gamma * (F(x) + pullback(lam)))
    return merit_of(r_x, lam - positive_part(lam + metric.rho * f_x), metric)


def merit_of(r_x: Array, r_lam: Array, metric: Metric) -> Float[Array, ""]:
    """‖r_x‖²/γ + Σ r_λ²/ρ, an energy."""
    return jnp.sum(r_x * r_x / metric.gamma) + jnp.sum(r_lam * r_lam / metric.rho)


def linearise(problem: MisspecifiedVI, x: Array, lam: Array, kkt: KKT, metric: Metric) -> Linearised:
    """The natural map and its derivative at (x, λ)."""
    G, f_x, product = kkt
    projected, derivative = jax.linearize(problem.set.project, x - metric.gamma * G)
    r_x = x - projected
    r_lam = lam - positive_part(lam + metric.rho * f_x)
    active = lam + metric.rho * f_x > 0
    return Linearised(G, f_x, r_x, r_lam, active, merit_of(r_x, r_lam, metric), product, derivative)


def newton_direction(
    problem: MisspecifiedVI, here: Linearised, metric: Metric, rtol, regularization
) -> Direction:
    """A Newton step for the natural map.

    With Π an element of ∂P_X at x − γG, A the active constraints (λ + ρf > 0), and the parts that the map itself
    determines, dx_N = −(I − Π)r_x and dλ_j = −r_λj off A, what is left is

        Π(H + νI)Π u + Π J_Aᵀ y = −Π(G + H dx_N + Jᵀ dλ_N)                                         (1)
              J_A Π u −  δ y    = −f_A − J_A dx_N                                                  (2)

    where H is the Jacobian of G in x. (1)-(2) is exact for sets whose Π is an orthogonal projector (polyhedra);
    elsewhere the full system of the map is solved. ν and δ (`regularization`, relative) keep it nonsingular for
    merely monotone F and dependent constraints.
    """
    solve = _solve_on_faces if _has_flat_faces(problem.set) else _solve_in_full
    return solve(problem, here, metric, rtol, regularization)


def _solve_on_faces(
    problem: MisspecifiedVI, here: Linearised, metric: Metric, rtol, regularization
) -> Direction:
    product, derivative, active = here.product, here.derivative, here.active
    fixed_x = derivative(here.r_x) - here.r_x
    fixed_lam = jnp.where(active, 0.0, -here.r_lam)
    H_fixed, J_fixed = product(fixed_x, fixed_lam)
    nu, delta = regularization / metric.gamma, regularization / metric.rho
    rhs = (-derivative(here.G + H_fixed), jnp.where(active, -here.f - J_fixed, 0.0))
    flip = sign_of_constraints(problem)

    def matvec(step: PyTree) -> PyTree:
        u, y = step
        face = derivative(u)
        Hu, Ju = product(face, jnp.where(active, y, 0.0))
        along = derivative(Hu + nu * face) + (u - face) / metric.gamma
        return along, flip * jnp.where(active, Ju - delta * y, y / metric.rho)

    rhs = (rhs[0], flip * rhs[1])
    rtol = relative_to(here.merit, rhs, metric, rtol)
    found = solve_in_units(problem, matvec, rhs, metric, rtol)
    u, y = found.solution
    return Direction(fixed_x + derivative(u), fixed_lam + jnp.where(active, y, 0.0), found.n_products + 1)


def _solve_in_full(
    problem: MisspecifiedVI, here: Linearised, metric: Metric, rtol, regularization
) -> Direction:
    """dx − Π(dx − γ(H dx + νdx/γ + Jᵀ dλ)) = −r_x and its λ-part, for sets with curved boundaries."""

    def matvec(step: PyTree) -> PyTree:
        dx, dlam = step
        Hd, Jd = here.product(dx, dlam)
        x_part = dx - here.derivative(dx - metric.gamma * Hd - regularization * dx)
        lam_part = jnp.where(here.active, regularization * dlam - metric.rho * Jd, dlam)
        return x_part, lam_part

    back = Metric(gamma=1.0 / metric.gamma, rho=1.0 / metric.rho)
    found = _general(problem, matvec, (-here.r_x, -here.r_lam), metric, back, rtol)
    dx, dlam = found.solution
    return Direction(dx, dlam, found.n_products)


def relative_to(merit: Array, rhs: PyTree, units: Metric, rtol):
    """The relative residual at which what the linear system leaves is the share `rtol` of the merit's root.

    Moving coordinates onto their bounds may change the right-hand side by far more than the map's own residual.
    """
    size = jnp.sum(units.gamma * rhs[0] ** 2) + jnp.sum(units.rho * rhs[1] ** 2)
    return rtol * jnp.minimum(1.0, jnp.sqrt(safe_divide(merit, size, 1.0)))


def uses_minres(problem: MisspecifiedVI) -> bool:
    """Whether the system is to be given in its symmetric form."""
    return bool(problem.symmetric) and n_unknowns(problem) > DENSE_SYMMETRIC


def sign_of_constraints(problem: MisspecifiedVI) -> float:
    """Of the rows that belong to λ: MINRES needs the symmetric sign, the others like the monotone one."""
    return 1.0 if uses_minres(problem) else -1.0


def solve_in_units(
    problem: MisspecifiedVI, matvec: Callable, rhs: PyTree, units: Metric, rtol
) -> krylov.KrylovResult:
    """A system whose unknowns and equations have the roots of the metric for units: by MINRES, GMRES or elimination."""
    if uses_minres(problem):
        return _minres(matvec, rhs, units, rtol)
    return _general(problem, matvec, rhs, units, units, rtol)


def _minres(matvec: Callable, rhs: PyTree, units: Metric, rtol) -> krylov.KrylovResult:
    """MINRES, on one vector where x is small: a product then costs less than the operations on its two parts."""

    root: PyTree = (jnp.broadcast_to(jnp.sqrt(units.gamma), rhs[0].shape), jnp.sqrt(units.rho))
    join, split = (lambda step: step), (lambda step: step)
    if rhs[0].size <= SMALL:
        root, split = jax.flatten_util.ravel_pytree(root)
        join = lambda step: jax.flatten_util.ravel_pytree(step)[0]

    def scaled(step: PyTree) -> PyTree:
        return jax.tree.map(jnp.multiply, root, step)

    found = krylov.minres(
        lambda step: scaled(join(matvec(split(scaled(step))))),
        scaled(join(rhs)),
        rtol,
        MAX_PRODUCTS_SYMMETRIC,
    )
    return krylov.KrylovResult(split(scaled(found.solution)), found.n_products)


def _general(
    problem: MisspecifiedVI, matvec: Callable, rhs: PyTree, unknowns: Metric, equations: Metric, rtol
) -> krylov.KrylovResult:
    """The system with unknowns and equations multiplied by the roots of their metrics, so that norms and pivots have no
    units and the answer does not depend on them."""

    def scaled(step: PyTree, metric: Metric) -> PyTree:
        return jnp.sqrt(metric.gamma) * step[0], jnp.sqrt(metric.rho) * step[1]

    def in_units(step: PyTree) -> PyTree:
        return scaled(matvec(scaled(step, unknowns)), equations)

    rhs, n = scaled(rhs, equations), n_unknowns(problem)
    if n <= (DENSE_SYMMETRIC if problem.symmetric else DENSE):
        found = _eliminate(in_units, rhs)
    else:
        found = krylov.gmres(in_units, rhs, rtol, min(MAX_PRODUCTS, n))
    return krylov.KrylovResult(scaled(found.solution, unknowns), found.n_products)


def _eliminate(matvec: Callable, rhs: PyTree) -> krylov.KrylovResult:
    """Gaussian elimination on the matrix, read off the program of the products."""
    vector, split = jax.flatten_util.ravel_pytree(rhs)
    matrix = matrix_of(lambda v: jax.flatten_util.ravel_pytree(matvec(split(v)))[0], vector.size)
    solution = solve_dense(matrix + _ROUNDING * jnp.eye(vector.size, dtype=vector.dtype), vector)
    return krylov.KrylovResult(split(solution), jnp.asarray(vector.size))


def _has_flat_faces(X: ConvexSet) -> bool:
    """Whether X is a polyhedron, so that the derivative of its projection is an orthogonal projector."""
    if isinstance(X, Product):
        return all(
            _has_flat_faces(block)
            for block in jax.tree.leaves(X.blocks, is_leaf=lambda b: isinstance(b, ConvexSet))
        )
    return not (isinstance(X, Ball) or (isinstance(X, Intersection) and X.ball is not None))


def n_unknowns(problem: MisspecifiedVI) -> int:
    """The number of unknowns in (x, λ)."""
    return math.prod(problem.shape) + problem.n_constraints
