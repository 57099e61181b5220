"""A user's functions as the solver sees them: traced once, checked once, their data held as arrays.

Three kinds of function are accepted for F(x, θ) and f(x, θ):
* an Equinox module with `__call__` (its arrays are arguments of the compiled program already);
* a plain function in JAX or NumPy style: traced to a program whose captured arrays become arguments;
* a `Callback`: Python that JAX cannot trace (a simulator), which runs in a host loop.

The arrays are copied: what happens to the user's own afterwards changes no problem that is built (a callback excepted, which
is the user's Python itself). A function is traced anew for every problem, so that a new problem has new numbers.
"""

from __future__ import annotations

import random
import types
import warnings
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import equinox as eqx
import jax
import jax.core
import jax.numpy as jnp
import numpy as np
from jax.extend import core as jax_core
from jax.interpreters import partial_eval
from jaxtyping import Array, PyTree

from viceversa import derivative_check, index_check, known_modules, precision, written_out
from viceversa.errors import InputError, PrecisionWarning, UserFunctionError
from viceversa.known_modules import Traced, own
from viceversa.numpy_style import NumpyStyle, attributes_in, captured, in_numpy_style
from viceversa.once import once_for_each
from viceversa.quick_module import QuickModule
from viceversa.same_program import known_program, literals_of

_NUMPY_NEEDED = (jax.errors.TracerArrayConversionError,)
_NUMPY_SIGNS = (
    "JAX arrays are immutable",
    "non-tuple sequence for multidimensional indexing",
    "setting an array element with a sequence",
)
_LIST_SIGNS = ("'list'", "'tuple'")
_CONTROL_FLOW = (
    jax.errors.TracerBoolConversionError,
    jax.errors.TracerIntegerConversionError,
    jax.errors.ConcretizationTypeError,
)
_JITTED = type(jax.jit(lambda: 0))


class Program(QuickModule):
    """A user's function as a traced program: `jaxpr` is its text, `data` the arrays it closed over."""

    data: list[np.ndarray]
    jaxpr: Any = eqx.field(static=True)
    out_tree: Any = eqx.field(static=True)
    name: str = eqx.field(static=True)

    def __call__(self, *args: PyTree) -> PyTree:
        flat = jax.tree.leaves(args)
        results = jax.core.eval_jaxpr(self.jaxpr, self.data, *flat)
        # A function that returns a Python number leaves one here.
        return jax.tree.unflatten(self.out_tree, [jnp.asarray(result) for result in results])

    def takes(self, args: PyTree) -> bool:
        """Whether it was traced for arguments of these shapes and types."""
        leaves = jax.tree.leaves(args)
        given = [(leaf.shape, leaf.dtype) for leaf in leaves]
        return given == [(var.aval.shape, var.aval.dtype) for var in self.jaxpr.invars]

    def output_like(self) -> PyTree:
        """Shapes and types of what it returns."""
        avals = [jax.ShapeDtypeStruct(out.aval.shape, out.aval.dtype) for out in self.jaxpr.outvars]
        return jax.tree.unflatten(self.out_tree, avals)


class Callback(eqx.Module):
    """Python that JAX cannot trace, as F(x, θ) or f(x, θ); called with NumPy arrays, on the host only."""

    function: Callable = eqx.field(static=True)
    pullback: Callable | None = eqx.field(static=True, default=None)
    name: str = eqx.field(static=True, default="callback")

    def __call__(self, x: Array, theta: PyTree) -> Array:
        return jnp.asarray(self._call("", self.function, x, theta))

    def vjp(self, x: Array, theta: PyTree) -> tuple[Array, Callable[[Array], Array]]:
        """(f(x, θ), w ↦ Jf(x, θ)ᵀ w), the second from the user's `vjp`."""
        assert self.pullback is not None
        pullback = self.pullback

        def pull(w: Array) -> Array:
            gradient = self._call(" vjp", pullback, x, theta, w)
            if gradient.size != x.size:
                raise UserFunctionError(
                    f"{self.name} vjp: returns shape {gradient.shape}; Jfᵀw of x's shape {x.shape} is needed."
                )
            return jnp.asarray(gradient).reshape(x.shape)

        return self(x, theta), pull

    def _call(self, part: str, function: Callable, *args: PyTree) -> np.ndarray:
        if any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(args)):
            raise UserFunctionError(
                f"{self.name}{part}: a callback cannot run inside a compiled program. "
                "Use solve or iterate (they run callbacks in a host loop), or write it with numpy or jax.numpy."
            )
        host = jax.tree.map(np.array, args)  # copies, so that the user may work in place
        try:
            result = function(*host)
            if result is None:
                raise TypeError("it returned None; an array is needed")
            return np.asarray(result, dtype=np.float64)
        except Exception as error:
            raise _raised(f"{self.name}{part}", function, host, error) from error


def callback_operator(fn: Any) -> Callback:
    """F(x, θ) computed by Python that JAX cannot trace; it receives and returns NumPy arrays."""
    _require_callable("callback_operator: fn", fn)
    return Callback(function=fn, name="operator")


def callback_constraints(fn: Any, vjp: Any) -> Callback:
    """f(x, θ) computed by Python that JAX cannot trace, with `vjp(x, theta, w)` = Jf(x, θ)ᵀ w, of x's shape."""
    _require_callable("callback_constraints: fn", fn)
    _require_callable("callback_constraints: vjp", vjp)
    return Callback(function=fn, pullback=vjp, name="constraints")


def runs_on_host(*functions: Any) -> bool:
    """Whether any of these is a callback, so that the whole solve must run in a host loop."""
    return Callback in map(type, functions)


def trace(name: str, function: Any, *likes: PyTree) -> Any:
    """The user's `function` in the form the solver calls, checked to run on arrays shaped like `likes`.

    An Equinox module or a callback is kept as it is; anything else becomes a `Program`.
    """
    if isinstance(function, Callback):
        return _named(name, function)
    return trace_with_output(name, function, *likes).function


def trace_with_output(name: str, function: Any, *likes: PyTree) -> Traced:
    """`trace`, and what comes out; a callback is called once, at `likes`."""
    _require_callable(name, function)
    if isinstance(function, Callback):
        with precision.double():
            function = _named(name, function)
            value = function(*jax.tree.map(jnp.asarray, likes))
            return Traced(function, jax.ShapeDtypeStruct(value.shape, value.dtype))
    avals = _avals(likes)
    if isinstance(function, Program) and function.takes(avals):
        return Traced(function, function.output_like())
    known = known_modules.known(function, avals)
    if known is not None:
        return known
    with precision.double():
        closed, out_tree, is_jax_style = _trace_either_style(name, function, avals)
        output = jax.tree.unflatten(out_tree, closed.out_avals)
        primitives = index_check.primitives_of(closed.jaxpr)
        _refuse_wrong_indices(name, function, avals, closed, primitives)
        mode = _derivative_needed(name, likes)
        if mode is not None and _are_floating(closed.out_avals):
            _refuse_without_derivative(name, function, avals, closed, primitives, mode)
        if is_jax_style and isinstance(function, (eqx.Module, jax.tree_util.Partial)):
            return known_modules.kept(function, avals, output)
        data = [own(const) for const in closed.consts]
    _warn_about_single_precision(name, data)
    program = Program(data=data, jaxpr=known_program(function, closed.jaxpr), out_tree=out_tree, name=name)
    if len(closed.jaxpr.eqns) > written_out.LONG:
        program = _in_arrays(program, avals) or program
    return Traced(program, output)


def _in_arrays(program: Program, avals: tuple) -> Program | None:
    """A long program of (x, θ) in few operations, where it is affine in both."""
    is_one_array = len(avals) == 2 and isinstance(program.output_like(), jax.ShapeDtypeStruct)
    if not is_one_array or not (is_affine_in(program, 0, *avals) and is_affine_in(program, 1, *avals)):
        return None
    with precision.double():
        short = written_out.in_arrays(program, *avals)
        if short is None:
            return None
        closed, out_tree = _make_jaxpr(short, avals)
        data = [own(const) for const in closed.consts]
        return Program(
            data=data, jaxpr=known_program(short, closed.jaxpr), out_tree=out_tree, name=program.name
        )


def _named(name: str, callback: Callback) -> Callback:
    return Callback(function=callback.function, pullback=callback.pullback, name=name)


def _avals(likes: tuple) -> tuple:
    if all(type(like) is jax.ShapeDtypeStruct for like in jax.tree.leaves(likes)):
        return likes
    return jax.tree.map(lambda like: float64_of(np.shape(like)), likes)


@lru_cache(maxsize=1024)
def float64_of(shape: tuple[int, ...]) -> jax.ShapeDtypeStruct:
    """Stands for an array of this shape where only that is asked."""
    return jax.ShapeDtypeStruct(shape, np.float64)


def output_like(function: Any, *likes: PyTree) -> Any:
    """Shapes and types of what a traced function returns (a callback is called once, at these points)."""
    with precision.double():
        if isinstance(function, Callback):
            value = function(*jax.tree.map(jnp.asarray, likes))
            return jax.ShapeDtypeStruct(value.shape, value.dtype)
        avals = _avals(likes)
        if isinstance(function, Program) and function.takes(avals):
            return function.output_like()
        known = known_modules.known(function, avals)
        return jax.eval_shape(function, *avals) if known is None else known.output


def is_affine_in(function: Callable, argument: int, *likes: PyTree) -> bool:
    """Whether the Jacobian in one argument provably does not depend on that argument.

    The proof is the program of the Jacobian itself: after dead code is removed it no longer reads
    the argument. `False` means "not proved".
    """
    with precision.double():
        avals = _avals(likes)

        def derivative(direction, *args):
            def along(value):
                return function(*args[:argument], value, *args[argument + 1 :])

            return jax.jvp(along, (args[argument],), (direction,))[1]

        closed = jax.make_jaxpr(derivative)(avals[argument], *avals)
        _, used = partial_eval.dce_jaxpr(closed.jaxpr, [True] * len(closed.jaxpr.outvars))
        n_leaves = [len(jax.tree.leaves(aval)) for aval in avals]
        start = n_leaves[argument] + sum(n_leaves[:argument])
        return not any(used[start : start + n_leaves[argument]])


def _trace_either_style(
    name: str, function: Callable, avals: tuple
) -> tuple[jax_core.ClosedJaxpr, Any, bool]:
    """Trace as JAX first; if that fails, trace with stand-ins that answer to NumPy."""
    try:
        traced = *_make_jaxpr(function, avals), True
    except Exception as error:
        as_jax = error
    else:
        _refuse_random_numbers(name, function, avals, function, traced[0])
        return traced
    try:
        styled = in_numpy_style(function)
        traced = *_make_jaxpr(styled, avals), False
    except Exception as error:
        # Where it calls jax.numpy too, the list is what stands in its way.
        in_both = NumpyStyle.__name__ in str(error)
        about_numpy = _is_about_numpy(as_jax) or (_is_about_a_list(as_jax) and not in_both)
        cause = error if about_numpy else as_jax
        raise _raised(name, function, avals, cause) from cause
    _refuse_random_numbers(name, function, avals, styled, traced[0])
    return traced


def _refuse_random_numbers(
    name: str, function: Callable, avals: tuple, traceable: Callable, closed: jax_core.ClosedJaxpr
) -> None:
    """A function that can draw random numbers is traced a second time: other numbers would be fixed by then."""
    if not _may_draw(function):
        return
    again, _ = _make_jaxpr(traceable, avals)
    first, second = (
        [np.asarray(number).tobytes() for number in (*each.consts, *(v.val for v in literals_of(each.jaxpr)))]
        for each in (closed, again)
    )
    if first != second:
        raise UserFunctionError(
            f"{name}: your function {_called(function, avals)} draws random numbers, and would go on with those of its "
            "first call. Draw them before the problem is built, or pass vv.NoisyOperator(operator, draw) with the mean "
            "and a function draw(x, theta, key) that takes its randomness from a JAX key."
        )


_GENERATORS = (np.random.Generator, np.random.RandomState, random.Random)
_RANDOM_MODULES = (np.random, random)


def _may_draw(function: Callable) -> bool:
    """Whether a source of random numbers is in sight of a Python function."""
    if "random" in attributes_in(function):
        return True
    for value in captured(function).values():
        owner = value.__self__ if isinstance(value, (types.BuiltinMethodType, types.MethodType)) else value
        if isinstance(owner, _GENERATORS) or any(owner is module for module in _RANDOM_MODULES):
            return True
    return False


def _refuse_wrong_indices(
    name: str, function: Callable, avals: tuple, closed: jax_core.ClosedJaxpr, primitives: set[Any]
) -> None:
    wrong = index_check.first_beyond(closed, primitives)
    if wrong is None:
        return
    n = wrong.shape[wrong.axis]
    valid = f"0 to {n - 1} are valid, or {-n} to -1 from the end" if n else "it has none"
    raise UserFunctionError(
        f"{name}: your function {_called(function, avals)} uses index {wrong.number} on axis {wrong.axis} of an array of "
        f"shape {wrong.shape}, {wrong.place}. Its entries are numbered from 0: {valid}. Correct the index; if the nearest entry "
        'is meant, or that nothing happens, say so with a.at[i].get(mode="clip") or a.at[i].add(b, mode="drop").'
    )


def _derivative_needed(name: str, likes: tuple) -> derivative_check.Mode | None:
    """The derivative in the first argument that every method needs of a function with this name."""
    if name == "operator":
        # Points are given in place of shapes where a callback stands beside it: then nobody differentiates F.
        return "forward" if likes is _avals(likes) else None
    if name == "SecondaryVI: operator":
        return "forward"
    return "reverse" if name == "constraints" or name.startswith("costs[") else None


def _are_floating(avals: Any) -> bool:
    return all(jnp.issubdtype(aval.dtype, jnp.floating) for aval in avals)


def _refuse_without_derivative(
    name: str,
    function: Callable,
    avals: tuple,
    closed: jax_core.ClosedJaxpr,
    primitives: set[Any],
    mode: derivative_check.Mode,
) -> None:
    if not derivative_check.is_doubtful(primitives, mode):
        return

    def program(*args):
        return jax.core.eval_jaxpr(closed.jaxpr, closed.consts, *jax.tree.leaves(args))

    why = derivative_check.why_not(program, avals, mode)
    if why is not None:
        raise UserFunctionError(f"{name}: your function {_called(function, avals)} {why}.")


def is_doubtful(function: Any, mode: derivative_check.Mode) -> bool:
    """Whether a traced function may be without a derivative of this mode, by a look at its operations."""
    return type(function) is Program and _doubts(function.jaxpr)[mode]


@once_for_each
def _doubts(jaxpr: Any) -> dict[derivative_check.Mode, bool]:
    primitives = index_check.primitives_of(jaxpr)
    return {mode: derivative_check.is_doubtful(primitives, mode) for mode in ("forward", "reverse")}


def require_derivative(function: Any, likes: tuple, mode: derivative_check.Mode) -> None:
    """Refuse a traced function of (x, θ) without a derivative in x of this mode; `likes` are points or shapes.

    Building a problem asks for the forward derivative of F and the reverse one of f; a method that needs the forward one of f
    asks here.
    """
    if not is_doubtful(function, mode):
        return
    with precision.double():
        why = derivative_check.why_not(function, _avals(likes), mode)
    if why is not None:
        raise UserFunctionError(
            f"{function.name}: your function {why}; or name a method of first order, such as "
            "vv.AdaptiveAugmentedLagrangian(), which does without."
        )


def _is_about_numpy(error: Exception) -> bool:
    """Whether JAX refused NumPy's way of writing, so that the user's own mistake is in the other error."""
    return isinstance(error, _NUMPY_NEEDED) or any(sign in str(error) for sign in _NUMPY_SIGNS)


def _is_about_a_list(error: Exception) -> bool:
    """Whether JAX refused a Python list, which NumPy takes for an array."""
    return isinstance(error, TypeError) and any(sign in str(error) for sign in _LIST_SIGNS)


def _make_jaxpr(function: Callable, avals: tuple) -> tuple[jax_core.ClosedJaxpr, Any]:
    # JAX remembers what it traced: a new function makes it look at the numbers of today, and a jitted one is looked into.
    inner: Any = getattr(function, "__wrapped__") if isinstance(function, _JITTED) else function  # noqa: B009
    closed, shape = jax.make_jaxpr(lambda *args: inner(*args), return_shape=True)(*avals)
    return closed, jax.tree.structure(shape)


def _raised(name: str, function: Callable, args: tuple, error: Exception) -> UserFunctionError:
    if isinstance(error, UserFunctionError):
        return error
    in_pandas = _from_pandas(function) if _may_be_about_pandas(error) else None
    if in_pandas is not None:
        why = f"uses {in_pandas}, and arrays are needed. Use .to_numpy() before the problem is built"
    elif _is_about_a_list(error):
        why = "computes with a Python list or tuple where an array is needed. Make it one with np.asarray"
    elif isinstance(error, _NUMPY_NEEDED):
        why = (
            "needs the numbers themselves, which do not exist while the function is being compiled. "
            "Use numpy or jax.numpy functions on whole arrays, or pass it through vv.callback_operator / "
            "vv.callback_constraints"
        )
    elif isinstance(error, _CONTROL_FLOW):
        why = (
            "needs a number (for `if`, float, int, a loop bound or a function of the math module) where there is none "
            "yet while the function is being compiled. Use np.where for `if` and np.exp for math.exp, or pass it "
            "through vv.callback_operator / vv.callback_constraints"
        )
    elif NumpyStyle.__name__ in str(error):
        why = "mixes numpy and jax.numpy on the same arrays. Write it with one of the two"
    else:
        first_line = str(error).splitlines()[0].rstrip(".") if str(error) else "no message"
        why = f"raised {type(error).__name__}: {first_line}"
    return UserFunctionError(f"{name}: your function {_called(function, args)} {why}.")


def _called(function: Callable, args: tuple) -> str:
    given = ", ".join(_describe(arg) for arg in args)
    return f"{getattr(function, '__name__', type(function).__name__)}({given})"


def _may_be_about_pandas(error: Exception) -> bool:
    """Whether an object of pandas could have been in the way: it is no operand for JAX, and NumPy cannot look inside."""
    return isinstance(error, TypeError) or _is_about_numpy(error) or _is_of_pandas(error)


def _from_pandas(function: Callable) -> str | None:
    """What of pandas a function uses, in words."""
    for name, value in captured(function).items():
        if _is_of_pandas(value):
            return f"the pandas {type(value).__name__} `{name}`"
        if isinstance(value, types.ModuleType) and value.__name__ == "pandas":
            return "pandas"
    return None


def _is_of_pandas(value: Any) -> bool:
    return type(value).__module__.split(".")[0] == "pandas"


def _describe(value: PyTree) -> str:
    leaves = jax.tree.leaves(value)
    if len(leaves) == 1 and value is leaves[0]:
        return f"array{list(np.shape(value))}"
    return str(jax.tree.map(lambda leaf: f"array{list(np.shape(leaf))}", value))


def _require_callable(name: str, function: Any) -> None:
    if not callable(function):
        raise InputError(f"{name} is {type(function).__name__}; a function of (x, theta) is needed.")


def _warn_about_single_precision(name: str, data: list[np.ndarray]) -> None:
    single = [array for array in data if array.dtype == np.float32]
    if single:
        shapes = ", ".join(str(array.shape) for array in single)
        warnings.warn(
            f"{name} closes over float32 arrays of shape {shapes}, so the answer has about 7 digits. "
            "Keep the data as NumPy float64 arrays (jnp arrays made outside a float64 scope are float32).",
            PrecisionWarning,
            stacklevel=4,
        )


def vjp(function: Any, x: Array, theta: PyTree) -> tuple[Array, Callable[[Array], Array]]:
    """(f(x, θ), w ↦ Jf(x, θ)ᵀ w) for a traced function or a callback: one evaluation and its pullback."""
    if isinstance(function, Callback):
        return function.vjp(x, theta)
    value, pullback = jax.vjp(lambda at: function(at, theta), x)
    return value, lambda w: pullback(w)[0]


__all__ = [
    "Callback",
    "Program",
    "callback_constraints",
    "callback_operator",
    "float64_of",
    "is_affine_in",
    "output_like",
    "require_derivative",
    "runs_on_host",
    "trace",
    "trace_with_output",
    "vjp",
]
