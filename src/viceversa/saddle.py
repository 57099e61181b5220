"""Saddle points min_x max_y φ(x, y, θ) as misspecified VIs, and learning problems that are saddle points themselves."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from viceversa import functions
from viceversa.errors import InputError, UserFunctionError
from viceversa.learning import Known, SecondaryVI
from viceversa.learning.base import Learning
from viceversa.problem import MisspecifiedVI, as_learning
from viceversa.sets import Product
from viceversa.sets.base import ConvexSet


class SaddleOperator(eqx.Module):
    """F(z, θ) = (∇ₓφ, −∇_yφ) on z = (x, y), one flat vector, with the parts a primal–dual method needs."""

    phi: Any
    x_shape: tuple[int, ...] = eqx.field(static=True)
    y_shape: tuple[int, ...] = eqx.field(static=True)

    def __call__(self, z: Array, theta: PyTree) -> Array:
        x, y = self.split(z)
        return jnp.concatenate([jnp.ravel(self.grad_x(x, y, theta)), -jnp.ravel(self.grad_y(x, y, theta))])

    def grad_x(self, x: Array, y: Array, theta: PyTree) -> Array:
        """∇ₓφ(x, y, θ)."""
        return jax.grad(lambda at: self.phi(at, y, theta))(x)

    def grad_y(self, x: Array, y: Array, theta: PyTree) -> Array:
        """∇_yφ(x, y, θ)."""
        return jax.grad(lambda at: self.phi(x, at, theta))(y)

    def split(self, z: Any) -> tuple[Any, Any]:
        """(x, y) of the flat z, in their own shapes; NumPy arrays stay NumPy arrays."""
        n = math.prod(self.x_shape)
        return z[:n].reshape(self.x_shape), z[n:].reshape(self.y_shape)

    def join(self, x: Any, y: Any) -> Any:
        """z = (x, y), flat."""
        return jnp.concatenate([jnp.ravel(x), jnp.ravel(y)])


def SaddlePoint(
    phi: Callable, set_x: ConvexSet, set_y: ConvexSet, learning: Learning, constraints: Callable | None = None
) -> MisspecifiedVI:
    """The problem min_{x ∈ X} max_{y ∈ Y} φ(x, y, θ*), φ convex in x and concave in y, θ* from `learning`.

    It is a `MisspecifiedVI` whose x is the flat z = (x, y): every method solves it, `LearningAwarePrimalDual` with φ's
    own structure. `problem.operator.split(solution.x)` gives (x, y). `constraints(z, theta)` couple the two, if given.

    Example:
        >>> import numpy as np, viceversa as vv
        >>> interval = vv.Box([-1.0], [1.0])
        >>> problem = vv.SaddlePoint(lambda x, y, t: (x * y).sum() + t * x.sum(), interval, interval, vv.Known(0.5))
        >>> x, y = problem.operator.split(vv.solve(problem).x)
        >>> print(x.round(6) + 0.0, y.round(6))
        [0.] [-0.5]
    """
    _check_sets("SaddlePoint", set_x=set_x, set_y=set_y)
    learning = as_learning("SaddlePoint", learning)
    likes = set_x.interior_point(), set_y.interior_point(), learning.set.interior_point()
    program = functions.trace("SaddlePoint: phi", phi, *likes)
    _check_scalar("SaddlePoint: phi", functions.output_like(program, *likes))
    operator = SaddleOperator(program, set_x.shape, set_y.shape)
    return MisspecifiedVI(operator, set=Product([set_x, set_y]), constraints=constraints, learning=learning)


def SaddleLearning(
    phi: Callable,
    set_theta: ConvexSet,
    set_w: ConvexSet,
    mu: float | None = None,
    lipschitz: float | None = None,
) -> SecondaryVI:
    """Learning by a saddle point: θ* from min_{θ ∈ Θ} max_{w ∈ W} φ(θ, w), for example a fit robust to w.

    The parameter that F and f receive is the tree {"theta": θ, "w": w}: read `theta["theta"]`. H = (∇_θφ, −∇_wφ) must be
    strongly monotone (φ strongly convex in θ and strongly concave in w). `vv.PrimalDualLearner` makes one primal–dual step at
    a time on it; every other learner works as well.

    Example:
        >>> import numpy as np, viceversa as vv
        >>> box = vv.Box(-3.0, 3.0, shape=())
        >>> learning = vv.SaddleLearning(lambda t, w: (t - 1.0) ** 2 + t * w - w**2, box, box)
        >>> learning.provenance
        'exact'
    """
    for name, part in (("set_theta", set_theta), ("set_w", set_w)):
        if not isinstance(part, ConvexSet):
            raise InputError(f"SaddleLearning: {name} is {type(part).__name__}; a viceversa set is needed.")
    likes = set_theta.interior_point(), set_w.interior_point()
    program = functions.trace("SaddleLearning: phi", phi, *likes)
    _check_scalar("SaddleLearning: phi", functions.output_like(program, *likes))

    def H(parameter):
        theta, w = parameter["theta"], parameter["w"]
        return {
            "theta": jax.grad(lambda at: program(at, w))(theta),
            "w": -jax.grad(lambda at: program(theta, at))(w),
        }

    return SecondaryVI(H, set=Product({"theta": set_theta, "w": set_w}), mu=mu, lipschitz=lipschitz)


def PessimisticSaddlePoint(
    phi: Callable, set_x: ConvexSet, set_y: ConvexSet, g: Callable, set_theta: ConvexSet, horizon: int
) -> MisspecifiedVI:
    """A saddle point whose θ is only known to minimise g, not uniquely: the worst minimiser is played against x.

        min_{x ∈ X} max_{y ∈ Y, θ ∈ Θ} φ(x, y, θ) − g(θ)/η,   η = horizon^−½                        (1)

    in the style of Ahmadi & Yazdandoost Hamedani's iteratively regularised update θ₊ = P_Θ[θ + τ(∇_θφ − ∇g(θ)/η)], which is
    one ascent step on (1). φ concave in (y, θ) jointly and g convex: after K = `horizon` iterations the saddle gap and
    g(θ) − min g are O(K^−½). The parameter is part of the answer: the max side is y followed by θ,
    `x, y_theta = problem.operator.split(solution.x)`.

    Example:
        >>> import viceversa as vv
        >>> unit, one = vv.Box([0.0, 0.0], [1.0, 1.0]), vv.Box([0.0], [3.0])
        >>> problem = vv.PessimisticSaddlePoint(lambda x, y, t: 0.5 * ((x - 2.0) ** 2).sum() + x[0] * (t[0] - t[1]), one,
        ...                                     one, lambda t: 0.5 * (t.sum() - 1.0) ** 2, unit, horizon=400)
        >>> problem.shape
        (4,)
    """
    _check_sets("PessimisticSaddlePoint", set_x=set_x, set_y=set_y, set_theta=set_theta)
    if not isinstance(horizon, (int, float, np.number)) or horizon % 1 != 0 or horizon < 1:
        raise InputError(f"PessimisticSaddlePoint: horizon is {horizon}; a whole number >= 1 is needed.")
    points = set_x.interior_point(), set_y.interior_point(), set_theta.interior_point()
    value = functions.trace("PessimisticSaddlePoint: phi", phi, *points)
    penalty = functions.trace("PessimisticSaddlePoint: g", g, points[2])
    _check_scalar("PessimisticSaddlePoint: phi", functions.output_like(value, *points))
    _check_scalar("PessimisticSaddlePoint: g", functions.output_like(penalty, points[2]))
    both, weight = Product([set_y, set_theta]), np.sqrt(float(horizon))

    def regularised(x, y_theta, _):
        y, theta = both.split(y_theta)
        return value(x, y, theta) - weight * penalty(theta)  # (1)

    return SaddlePoint(regularised, set_x, both, Known(0.0))


def _check_sets(owner: str, **sets: Any) -> None:
    for name, part in sets.items():
        if not isinstance(part, ConvexSet) or not isinstance(part.shape, tuple):
            raise InputError(f"{owner}: {name} is {type(part).__name__}; a set of arrays is needed.")


def _check_scalar(name: str, output: Any) -> None:
    if not hasattr(output, "shape") or output.shape != ():
        shape = getattr(output, "shape", type(output).__name__)
        raise UserFunctionError(f"{name} returns {shape}; one number is needed (sum it).")
