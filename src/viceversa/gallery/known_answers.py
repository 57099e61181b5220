"""Small published problems, solvable by hand: two or three unknowns, a coupling constraint, a known multiplier."""

from __future__ import annotations

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from viceversa.errors import InputError
from viceversa.gallery.instance import Instance, Real
from viceversa.gallery.learned import build
from viceversa.sets import Box, Free, NonNegative, Product, Simplex


class AffineForces(eqx.Module):
    """F(x, θ) = M x − θ_load: the intercepts of the players' marginal losses are what may be unknown."""

    M: np.ndarray

    def __call__(self, x: Float[Array, " n"], theta: dict[str, Array]) -> Array:
        return jnp.asarray(self.M) @ x - theta["load"]


class TotalAtMost(eqx.Module):
    """f(x, θ) = Σ x − θ_cap ≤ 0."""

    def __call__(self, x: Array, theta: dict[str, Array]) -> Array:
        return jnp.sum(x) - theta["cap"]


def harker(cap: Real = 15.0, misspecified: bool = False) -> Instance:
    """Harker's duopoly: F = (2x₁ + 8x₂/3 − 34, 2x₂ + 5x₁/4 − 24.25) on [0, 10]², x₁ + x₂ ≤ cap.

    With the published cap of 15 the answer is (5, 9) and the cap is inactive; with 12 it is (10, 2), λ = 7.75. The game
    has other generalised Nash equilibria on x₁ + x₂ = 15; they solve no VI with one shared multiplier.
    """
    if not cap > 0:
        raise InputError(f"gallery.harker: cap is {cap}; a number > 0 is needed.")
    x, multiplier = _harker_answer(float(cap))
    return build(
        "harker" if cap == 15 else f"harker(cap={cap:g})",
        operator=AffineForces(np.array([[2.0, 8.0 / 3.0], [1.25, 2.0]])),
        set=Box(0.0, 10.0, shape=2),
        constraints=TotalAtMost(),
        constraint_names=("total",),
        theta={"cap": cap, "load": [34.0, 24.25]},
        spread=0.1,
        x=x,
        multiplier=multiplier,
        misspecified=misspecified,
        symmetric=False,
        source="harker1991generalized",
        published={"x": [5.0, 9.0], "multiplier": [0.0]} if cap == 15 else {},
    )


def _harker_answer(c: float) -> tuple[list[float], list[float]]:
    """Closed form: the KKT system on each piece of the cap."""
    if c >= 14:  # the cap is inactive
        return [5.0, 9.0], [0.0]
    if c >= 13.375:  # active, both inside: F₁ = F₂ = −λ
        x = [117.0 - 8.0 * c, 9.0 * c - 117.0]
        return x, [24.25 - 2.0 * x[1] - 1.25 * x[0]]
    if c > 10:  # x₁ at its bound
        return [10.0, c - 10.0], [24.25 - 2.0 * (c - 10.0) - 12.5]
    return [c, 0.0], [34.0 - 2.0 * c]  # x₂ at zero


def shared_budget(misspecified: bool = False) -> Instance:
    """Two players and one budget: F = (2(x₁ − 1), 2(x₂ − ½)), x₁ + x₂ ≤ 1. x* = (¾, ¼), λ* = ½."""
    return build(
        "shared_budget",
        operator=AffineForces(np.array([[2.0, 0.0], [0.0, 2.0]])),
        set=Free(2),
        constraints=TotalAtMost(),
        constraint_names=("budget",),
        theta={"cap": 1.0, "load": [2.0, 1.0]},
        x=[0.75, 0.25],
        multiplier=[0.5],
        misspecified=misspecified,
        symmetric=True,
        source="facchinei2009penalty, A.11",
        published={"x": [0.75, 0.25], "multiplier": [0.5]},
    )


class Duopoly(eqx.Module):
    """F = (2x₁ + x₂ − θ, x₁ + 2x₂ − θ)."""

    def __call__(self, x: Float[Array, "2"], theta: Array) -> Array:
        return x + jnp.sum(x) - theta


def cournot_duopoly(misspecified: bool = False) -> Instance:
    """Two equal firms: F = (2x₁ + x₂ − 16, x₁ + 2x₂ − 16) on [−10, 10]². x* = (16/3, 16/3); θ = 16, one number."""
    return build(
        "cournot_duopoly",
        operator=Duopoly(),
        set=Box(-10.0, 10.0, shape=2),
        theta=16.0,
        x=[16.0 / 3.0, 16.0 / 3.0],
        misspecified=misspecified,
        symmetric=True,
        source="facchinei2009penalty, A.12",
        published={"x": [5.33333, 5.33333]},
    )


class FukushimaOperator(eqx.Module):
    """F = (2x₁ + 0.2x₁³ − 0.5x₂ + 0.1x₃, −0.5x₁ + x₂ + 0.1x₂³, 0.5x₁ − 0.2x₂ + 2x₃) − θ_load."""

    M: np.ndarray
    cubic: np.ndarray

    def __call__(self, x: Float[Array, "3"], theta: dict[str, Array]) -> Array:
        return jnp.asarray(self.M) @ x + self.cubic * x**3 - theta["load"]


class Ellipsoid(eqx.Module):
    """f = x₁² + θ₁ x₂² + θ₂ x₃² − 1 ≤ 0, with θ = θ_ellipsoid."""

    def __call__(self, x: Float[Array, "3"], theta: dict[str, Array]) -> Array:
        return x[0] ** 2 + jnp.sum(theta["ellipsoid"] * x[1:] ** 2) - 1.0


def fukushima(misspecified: bool = False) -> Instance:
    """Fukushima's nonlinear F on an ellipsoid: x* = (1, 0, 0), λ* = 0.9. Nonlinear and not symmetric, F and f alike.

    X = [−2, 2]³ holds the ellipsoid; F is strongly monotone there (μ about 0.796).
    """
    return build(
        "fukushima",
        operator=FukushimaOperator(
            np.array([[2.0, -0.5, 0.1], [-0.5, 1.0, 0.0], [0.5, -0.2, 2.0]]), np.array([0.2, 0.1, 0.0])
        ),
        set=Box(-2.0, 2.0, shape=3),
        constraints=Ellipsoid(),
        constraint_names=("ellipsoid",),
        theta={"ellipsoid": [0.4, 0.6], "load": [4.0, -0.5, 0.5]},
        x=[1.0, 0.0, 0.0],
        multiplier=[0.9],
        misspecified=misspecified,
        symmetric=False,
        source="fukushima1986relaxed",
        published={"x": [1.0, 0.0, 0.0], "multiplier": [0.9]},
    )


class BallAtMost(eqx.Module):
    """f = ‖x‖² − θ_radius_sq ≤ 0."""

    def __call__(self, x: Array, theta: dict[str, Array]) -> Array:
        return jnp.sum(x**2) - theta["radius_sq"]


def ball_2d(misspecified: bool = False) -> Instance:
    """An affine, non-symmetric F = (3x₁ + x₂ − 5, 2x₁ + 5x₂ − 3) on the unit disc, its boundary active.

    The answer is the root of F + 2λx = 0, ‖x‖ = 1, found by Newton's method to the last digit.
    """
    return build(
        "ball_2d",
        operator=AffineForces(np.array([[3.0, 1.0], [2.0, 5.0]])),
        set=Box(-2.0, 2.0, shape=2),
        constraints=BallAtMost(),
        constraint_names=("disc",),
        theta={"load": [5.0, 3.0], "radius_sq": 1.0},
        x=[0.9889888856516016, 0.1479898106546639],
        multiplier=[0.9530155291626755],
        misspecified=misspecified,
        symmetric=False,
        source="closed form",
        published={"x": [0.98898889, 0.14798981], "multiplier": [0.95301553]},
    )


class RosenOperator(eqx.Module):
    """F = (x₁ − x₂, θ_curvature x₂ + x₁)."""

    def __call__(self, x: Float[Array, "2"], theta: dict[str, Array]) -> Array:
        return jnp.stack([x[0] - x[1], theta["curvature"] * x[1] + x[0]])


class TotalAtLeast(eqx.Module):
    """f = θ_total − Σ x ≤ 0."""

    def __call__(self, x: Array, theta: dict[str, Array]) -> Array:
        return theta["total"] - jnp.sum(x)


def rosen(misspecified: bool = False) -> Instance:
    """Rosen's concave game: F = (x₁ − x₂, 2x₂ + x₁), x ≥ 0, x₁ + x₂ ≥ 1. x* = (1, 0), λ* = 1.

    Degenerate: x₂ is at its bound and its reduced force is zero, so methods must not rely on strict complementarity.
    """
    return build(
        "rosen",
        operator=RosenOperator(),
        set=NonNegative(2),
        constraints=TotalAtLeast(),
        constraint_names=("total",),
        theta={"curvature": 2.0, "total": 1.0},
        x=[1.0, 0.0],
        multiplier=[1.0],
        misspecified=misspecified,
        symmetric=False,
        source="rosen1965existence",
        published={"x": [1.0, 0.0]},
    )


class InternetSwitching(eqx.Module):
    """F_i = 1/θ − (S − x_i)/S², S = Σ x: users of a switch with buffer θ = B lose what does not fit."""

    def __call__(self, x: Float[Array, " n"], theta: Array) -> Array:
        S = jnp.sum(x)
        return 1.0 / theta - (S - x) / S**2


class BufferCapacity(eqx.Module):
    """f = Σ x − θ ≤ 0."""

    def __call__(self, x: Array, theta: Array) -> Array:
        return jnp.sum(x) - theta


def internet_switching(bounded_first_user: bool = False, misspecified: bool = False) -> Instance:
    """Ten users of one switch, B = 1: x_i ≥ 0.01, Σ x ≤ B. x_i = 0.09, with the buffer not full.

    With `bounded_first_user` the first sends between 0.3 and 0.5: x₁ = 0.3 and the others
    (2.6 + √74.8)/162 ≈ 0.0694. F is monotone for every x > 0: with y = x/S its form is at least
    (1 − ‖y‖²)‖v‖²/S².
    """
    lower, upper = np.full(10, 0.01), np.ones(10)
    x = np.full(10, 0.09)
    if bounded_first_user:
        lower[0], upper[0] = 0.3, 0.5
        x = np.array([0.3] + [(2.6 + np.sqrt(74.8)) / 162.0] * 9)
    return build(
        "internet_switching" + ("(bounded_first_user)" if bounded_first_user else ""),
        operator=InternetSwitching(),
        set=Box(lower, upper),
        constraints=BufferCapacity(),
        constraint_names=("buffer",),
        theta=1.0,
        x=x,
        multiplier=[0.0],
        misspecified=misspecified,
        symmetric=False,
        source=f"kesselman2005game; facchinei2009penalty, A.{1 if bounded_first_user else 14}",
        published={"x": [0.3] + [0.06943642] * 9 if bounded_first_user else [0.09] * 10},
    )


class SkewGame(eqx.Module):
    """The forces (A y, −Aᵀ x) of a symmetric zero-sum game whose three losses are θ = (a, b, c)."""

    def __call__(self, z: Float[Array, "6"], theta: Float[Array, "3"]) -> Array:
        a, b, c = theta[0], theta[1], theta[2]
        zero = jnp.zeros_like(a)
        A = jnp.stack([jnp.stack([zero, a, -b]), jnp.stack([-a, zero, c]), jnp.stack([b, -c, zero])])
        return jnp.concatenate([A @ z[3:], -A.T @ z[:3]])


def rock_paper_scissors(misspecified: bool = False) -> Instance:
    """The bilinear saddle point on two simplices: uniform play, value 0. Merely monotone: F is a rotation.

    With losses (a, b, c) the equilibrium is (c, b, a)/(a + b + c) for both players.
    """
    return build(
        "rock_paper_scissors",
        operator=SkewGame(),
        set=Product([Simplex(3), Simplex(3)]),
        theta=[1.0, 1.0, 1.0],
        x=np.full(6, 1.0 / 3.0),
        misspecified=misspecified,
        symmetric=False,
        source="neumann1928theorie",
        published={"x": [1.0 / 3.0] * 6, "value": 0.0},
    )


class KojimaShindo(eqx.Module):
    """The four quadratics of Kojima and Shindo, their constants θ = (6, 2, 9, 3)."""

    def __call__(self, x: Float[Array, "4"], theta: Float[Array, "4"]) -> Array:
        x1, x2, x3, x4 = x[0], x[1], x[2], x[3]
        return (
            jnp.stack(
                [
                    3 * x1**2 + 2 * x1 * x2 + 2 * x2**2 + x3 + 3 * x4,
                    2 * x1**2 + x1 + x2**2 + 10 * x3 + 2 * x4,
                    3 * x1**2 + x1 * x2 + 2 * x2**2 + 2 * x3 + 9 * x4,
                    x1**2 + 3 * x2**2 + 2 * x3 + 3 * x4,
                ]
            )
            - theta
        )


def kojima_shindo(misspecified: bool = False) -> Instance:
    """A complementarity problem that is NOT monotone: a test of the checks, not of the solvers.

    Two solutions: (√6/2, 0, 0, ½), which is degenerate, and (1, 0, 3, 0), which is stored.
    """
    return build(
        "kojima_shindo",
        operator=KojimaShindo(),
        set=NonNegative(4),
        theta=[6.0, 2.0, 9.0, 3.0],
        x=[1.0, 0.0, 3.0, 0.0],
        misspecified=misspecified,
        symmetric=False,
        monotone=False,
        x_unique=False,
        source="kojima1986extensions",
        published={"x": [1.0, 0.0, 3.0, 0.0], "x_other": [np.sqrt(6.0) / 2.0, 0.0, 0.0, 0.5]},
    )
