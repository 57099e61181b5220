"""The misspecified variational inequality: an operator, a set, constraints, and what θ is learned from."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from viceversa import functions, precision, totals
from viceversa.errors import InputError, UserFunctionError
from viceversa.flattened import NOTHING, Flat, flat
from viceversa.learning.base import Learning
from viceversa.once import once_for_each
from viceversa.quick_module import QuickModule
from viceversa.sets.base import ConvexSet, is_shape

SMALL_JACOBIAN = 1 << 16  # numbers in a Jacobian up to which its rows are taken all at once


# What to make of every entry of a gradient, and how to make one number of those: `jnp.sum` or `jnp.max`.
Measure = tuple[Callable[[Array], Array], Callable]


class Constraints(QuickModule):
    """f(·, θ) at a fixed θ: call it for the values, `vjp` for the values and their pullback."""

    function: Any
    theta: PyTree

    def __call__(self, x: Float[Array, "..."]) -> Float[Array, " J"]:
        if self.function is None:
            return jnp.zeros((0,), x.dtype)
        return jnp.reshape(self.function(x, self.theta), (-1,))

    def vjp(self, x: Float[Array, "..."]) -> tuple[Float[Array, " J"], Callable[[Array], Array]]:
        """(f(x), w ↦ Jf(x)ᵀ w): one evaluation of f and one pullback."""
        if self.function is None:
            return jnp.zeros((0,), x.dtype), lambda w: jnp.zeros_like(x)
        value, pullback = functions.vjp(self.function, x, self.theta)
        return jnp.reshape(value, (-1,)), lambda w: pullback(jnp.reshape(w, value.shape))

    def of_gradients(
        self, x: Float[Array, "..."], *measures: Measure
    ) -> tuple[Float[Array, " J"], list[Float[Array, " J"]]]:
        """f(x), and every measure of ∇f_j(x) for every j; large Jacobians are never formed."""
        value, pullback = self.vjp(x)
        on_host = functions.runs_on_host(self.function)
        owners = None if on_host or value.size <= 1 else totals.owners(self, x, value.size)
        if (
            owners is not None
        ):  # no two f_j share a coordinate, so that one pullback has all gradients side by side
            gradients = pullback(jnp.ones_like(value))
            return value, [owners.reduced(entries(gradients), total) for entries, total in measures]

        def row(w: Array) -> Array:
            gradient = pullback(w)
            return jnp.stack([total(entries(gradient)) for entries, total in measures])

        if on_host:
            found = jnp.stack([row(w) for w in jnp.eye(value.size)]) if value.size else None
        elif value.size * x.size <= SMALL_JACOBIAN:
            found = jax.vmap(row)(jnp.eye(value.size, dtype=value.dtype))
        else:
            js = jnp.arange(value.size)
            found = jax.lax.map(lambda j: row((js == j).astype(value.dtype)), js)
        return value, [value if found is None else found[:, i] for i in range(len(measures))]


@once_for_each  # a new problem at every re-solve has the same sets
def _x_width(X: ConvexSet) -> np.ndarray:
    width = np.asarray(X.width())
    uniform = width.size > 0 and (width == width.flat[0]).all()
    return np.asarray(width.flat[0]) if uniform else width


@once_for_each
def _theta_width(Theta: ConvexSet) -> np.ndarray:
    widths = map(np.asarray, jax.tree.leaves(Theta.width()))
    return np.asarray(max((w[np.isfinite(w)].max(initial=0.0) for w in widths), default=0.0))


class ThetaForm(NamedTuple):
    """The shapes of θ's arrays and the tree they make."""

    shapes: tuple[tuple[int, ...], ...]
    tree: Any
    is_number: bool


@once_for_each
def _theta_form(Theta: ConvexSet) -> ThetaForm:
    shapes, tree = jax.tree.flatten(Theta.shape, is_leaf=is_shape)
    return ThetaForm(tuple(shapes), tree, is_number=Theta.shape == ())


class AtTheta(NamedTuple):
    """The plain VI at one θ: F, f and X as a method's equations name them."""

    F: Callable[[Array], Array]
    f: Constraints
    X: ConvexSet


class MisspecifiedVI(QuickModule):
    """Find x* and θ* with F(x*, θ*)ᵀ(y − x*) ≥ 0 for all y in X with f(y, θ*) ≤ 0, θ* from `learning`.

    `operator(x, theta)` returns an array of x's shape; `constraints(x, theta)` an array of J numbers,
    meaning f ≤ 0 (a scalar is accepted for J = 1). Write them with numpy or jax.numpy. x is one array
    of the shape of `set`; θ has the structure of `learning.set`. Arrays that the functions use are copied: to solve with
    others, make another problem.

    Example:
        >>> import numpy as np, viceversa as vv
        >>> problem = vv.MisspecifiedVI(lambda x, theta: x - theta, set=vv.Box([0.0, 0.0], [1.0, 1.0]),
        ...                             constraints=lambda x, theta: x.sum() - 1.0, learning=vv.Known(2.0))
        >>> problem.n_constraints
        1
    """

    sets_fields_at_once: ClassVar[bool] = True

    operator: Any
    set: ConvexSet
    constraints: Any
    learning: Learning
    constraint_names: tuple[str, ...] = eqx.field(static=True)
    n_constraints: int = eqx.field(static=True)
    symmetric: bool | None = eqx.field(static=True)
    x_width: np.ndarray  # of X in each coordinate; one number where they are all equal
    theta_width: np.ndarray  # the largest finite width of Θ, 0 if it has none

    def __init__(
        self,
        operator: Callable,
        set: ConvexSet,
        constraints: Callable | None = None,
        learning: Learning | None = None,
        constraint_names: Sequence[str] | None = None,
        symmetric: bool | None = None,
    ):
        _require(ConvexSet, "set", set, "a viceversa set such as vv.Box(lower, upper)")
        learning = as_learning("MisspecifiedVI", learning)
        if not isinstance(set.shape, tuple):
            raise InputError(
                "MisspecifiedVI: set is a tree of arrays, but x is one array. Pass vv.Product with a list of blocks."
            )
        if 0 in set.shape:
            raise InputError(
                f"MisspecifiedVI: set has points of shape {set.shape}, which have no coordinates, so there is "
                "nothing to solve for. Give a set with at least one coordinate."
            )
        if not (symmetric is None or isinstance(symmetric, (bool, np.bool_))):
            given = f"has shape {np.shape(symmetric)}" if np.ndim(symmetric) else f"is {symmetric!r}"
            raise InputError(
                f"MisspecifiedVI: symmetric {given}; True (F is a gradient), False (it is not) or None (not known) "
                "is needed."
            )
        likes = _likes(set, learning.set, functions.runs_on_host(operator, constraints))
        traced, output = functions.trace_with_output("operator", operator, *likes)
        _check_operator_output(output, set.shape)
        traced_f, n_constraints = None, 0
        if constraints is not None:
            if isinstance(constraints, functions.Callback) and constraints.pullback is None:
                raise InputError(
                    "constraints: a callback needs its pullback. Use vv.callback_constraints(fn, vjp)."
                )
            traced_f, output = functions.trace_with_output("constraints", constraints, *likes)
            n_constraints = _check_constraints_output(output)
        self.set_fields(
            operator=traced,
            set=set,
            constraints=traced_f,
            learning=learning,
            constraint_names=_names(constraint_names, n_constraints),
            n_constraints=n_constraints,
            symmetric=None if symmetric is None else bool(symmetric),
            x_width=_x_width(set),
            theta_width=_theta_width(learning.set),
        )

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of x."""
        return self.set.shape

    @property
    def theta_form(self) -> ThetaForm:
        """Of which arrays θ consists."""
        return _theta_form(self.learning.set)

    def parts(self) -> dict[str, Flat]:
        """Its parts that hold data, flattened, in the order of its leaves."""
        return {
            "operator": flat(self.operator),
            "set": flat(self.set),
            "constraints": NOTHING if self.constraints is None else flat(self.constraints),
            "learning": flat(self.learning),
            "x_width": flat(self.x_width),
            "theta_width": flat(self.theta_width),
        }

    @property
    def runs_on_host(self) -> bool:
        """Whether F or f is a callback, so that methods run in a host loop."""
        return functions.Callback in (type(self.operator), type(self.constraints))

    def at(self, theta: PyTree) -> AtTheta:
        """F(·, θ), f(·, θ) and X, named as in the equations."""
        return AtTheta(lambda x: self.operator(x, theta), Constraints(self.constraints, theta), self.set)

    def with_known(self, theta: PyTree) -> MisspecifiedVI:
        """The plain VI at a given θ: the same F, f and X with nothing left to learn."""
        from viceversa.learning import Known

        return self.with_parts(learning=Known(self.check_theta("theta", theta)))

    def with_parts(self, **parts: Any) -> MisspecifiedVI:
        """The same with other parts, which are known to fit: nothing is traced or checked."""
        other = object.__new__(MisspecifiedVI)
        other.set_fields(**vars(self) | parts)
        if "set" in parts:
            other.set_fields(x_width=_x_width(other.set))
        if "learning" in parts:
            other.set_fields(theta_width=_theta_width(other.learning.set))
        return other

    def rebuilt(self, **parts: Any) -> MisspecifiedVI:
        """The same with other parts of any kind, built and checked anew; names stay those given, and so does `symmetric`."""
        were_given = self.constraint_names != _names(None, self.n_constraints)
        kept: dict[str, Any] = {"constraint_names": self.constraint_names if were_given else None}
        for name in ("operator", "set", "constraints", "learning", "symmetric"):
            kept[name] = getattr(self, name)
        return MisspecifiedVI(**kept | parts)

    def check_x(self, name: str, x: Any) -> np.ndarray:
        """`x` as a float64 array of the problem's shape, or a sentence."""
        array = precision.as_finite_float64(name, x)
        if array.shape != self.shape:
            raise InputError(f"{name} has shape {array.shape}; x has shape {self.shape}.")
        return array

    def check_theta(self, name: str, theta: Any) -> PyTree:
        """`theta` as float64 arrays of the learning set's structure, or a sentence."""
        shapes, tree, is_number = self.theta_form
        if is_number and type(theta) is float:  # the usual one, in no time
            return precision.as_finite_float64(name, theta)
        try:
            leaves = tree.flatten_up_to(theta)
        except ValueError:
            raise InputError(
                f"{name} has another structure than θ, which is {self.learning.set.shape}."
            ) from None
        given = [precision.as_finite_float64(name, leaf) for leaf in leaves]
        found = tree.unflatten(given)
        if tuple([array.shape for array in given]) != shapes:
            raise InputError(
                f"{name} has shape {_shapes(found)}; θ has {self.learning.set.shape} (from learning.set)."
            )
        return found

    def theta_or_known(self, theta: Any) -> PyTree:
        """`theta` checked, or the parameter itself where the problem knows it."""
        if theta is None:
            if not self.learning.is_known:
                raise InputError(
                    "theta is missing. This problem learns its parameter, so say at which θ to measure: that of a solution, "
                    "the θ_k of a run, or the truth θ*."
                )
            theta = self.learning.set.interior_point()
        return self.check_theta("theta", theta)

    def check_multiplier(self, name: str, multiplier: Any) -> np.ndarray:
        """`multiplier` as J nonnegative numbers, or a sentence."""
        array = precision.as_finite_float64(name, multiplier).reshape(-1)
        if array.shape != (self.n_constraints,):
            raise InputError(f"{name} has {array.size} entries; there are {self.n_constraints} constraints.")
        if (array < 0).any():
            raise InputError(f"{name} has {int((array < 0).sum())} negative entries; multipliers are >= 0.")
        return array


def _likes(X: ConvexSet, Theta: ConvexSet, on_host: bool) -> tuple[PyTree, PyTree]:
    """What x and θ look like; callbacks are called with them, so they get points that exist."""
    if on_host:
        return X.interior_point(), Theta.interior_point()
    theta = _theta_form(Theta)
    return functions.float64_of(X.shape), theta.tree.unflatten(map(functions.float64_of, theta.shapes))


def _shapes(tree: PyTree) -> Any:
    return jax.tree.map(lambda leaf: tuple(leaf.shape), tree)


def as_learning(owner: str, learning: Any) -> Learning:
    """`learning` itself if it is a learning problem, or a sentence."""
    if learning is None:
        raise InputError(
            f"{owner}: learning is missing. Pass vv.LeastSquares(A, b, set=...), vv.SecondaryVI(...), "
            "or vv.Known(theta) if the parameter is known."
        )
    if not isinstance(learning, Learning):
        raise InputError(
            f"{owner}: learning is {type(learning).__name__}; vv.LeastSquares, vv.SecondaryVI or vv.Known is "
            "needed."
        )
    return learning


def _require(kind: type, name: str, value: Any, needed: str) -> None:
    if not isinstance(value, kind):
        raise InputError(f"MisspecifiedVI: {name} is {type(value).__name__}; {needed} is needed.")


def _check_operator_output(output: Any, shape: tuple[int, ...]) -> None:
    if not hasattr(output, "shape"):
        advice = (
            " Join its parts with np.stack or np.concatenate." if isinstance(output, (list, tuple)) else ""
        )
        raise UserFunctionError(
            f"operator: returns {type(output).__name__}; one array of x's shape {shape} is needed.{advice}"
        )
    if tuple(output.shape) != tuple(shape):
        raise UserFunctionError(
            f"operator: returns shape {tuple(output.shape)}; x has shape {tuple(shape)}, and F(x) must match it."
        )
    if not np.issubdtype(output.dtype, np.floating):
        raise UserFunctionError(
            f"operator: returns {output.dtype} numbers; floating point is needed (multiply by 1.0)."
        )


def _check_constraints_output(output: Any) -> int:
    if not hasattr(output, "shape"):
        raise UserFunctionError(
            f"constraints: returns {type(output).__name__}; one array of shape (J,) is needed. "
            "Join several with np.concatenate or np.stack."
        )
    if len(output.shape) > 1:
        raise UserFunctionError(
            f"constraints: returns shape {tuple(output.shape)}; one dimension, (J,), is needed. Ravel it."
        )
    if not np.issubdtype(output.dtype, np.floating):
        raise UserFunctionError(f"constraints: returns {output.dtype} numbers; floating point is needed.")
    return math.prod(output.shape)


def _names(names: Sequence[str] | None, n_constraints: int) -> tuple[str, ...]:
    if names is None:
        return tuple(f"constraint[{j}]" for j in range(n_constraints))
    names = (names,) if isinstance(names, str) else tuple(str(name) for name in names)
    if len(names) != n_constraints:
        raise InputError(
            f"constraint_names has {len(names)} entries; constraints returns {n_constraints} numbers. Name each one."
        )
    return names
