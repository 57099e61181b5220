"""Compile a function of small arrays to one native function.

XLA runs a program on a processor as a queue of small functions that several threads serve. Where arrays have some hundreds
or thousands of numbers, the queue costs more than the arithmetic. A call marked as below becomes one function, loops and
all; what such a function cannot contain (factorizations, sorting, scattering, whatever calls a library) or should not (large
products of matrices) stays in the queue.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any

import jax
import jax.extend.core as jax_core
import jax.numpy as jnp
from jax.core import Tracer
from jaxlib.version import __version_info__

from viceversa.operations import inner_programs
from viceversa.plain_sums import with_plain_sums

try:
    from jax.experimental.xla_metadata import set_xla_metadata
except ImportError:  # an older release
    set_xla_metadata = None

# Where XLA's compiler is not ready for such a call it ends the process: only releases it was tried with are asked.
_TRIED = {(0, 8), (0, 9), (0, 10)}
_IS_AVAILABLE = set_xla_metadata is not None and __version_info__[:2] in _TRIED
_AS_ONE_FUNCTION = {"inlineable": "false", "xla_cpu_small_call": "true"}
_in_queue: ContextVar[bool] = ContextVar("_in_queue", default=False)
_in_a_kernel: ContextVar[bool] = ContextVar("_in_a_kernel", default=False)
LARGEST = 1 << 15  # numbers in an array; more are worth a second thread
_LARGEST_PRODUCT = 1 << 17  # multiplications of a matrix product; more are worth a library
# What calls a library by itself would have to be told from what does not.
COMPILER_OPTIONS = {"xla_cpu_experimental_ynn_fusion_type": ""}

_PLAIN = frozenset(
    # one number at a time
    "abs acos acosh add add_any and asin asinh atan atan2 atanh bitcast_convert_type cbrt ceil clamp convert_element_type copy copy_p cos cosh div "
    "eq erf erfc exp exp2 expm1 floor gather ge gt integer_pow is_finite le le_to log log1p logistic lt lt_to max min mul ne neg not or pow "
    "reduce_precision rem round rsqrt select_n shift_left shift_right_arithmetic shift_right_logical sign sin sinh sqrt square "
    "stop_gradient sub tan tanh xor "
    # the same numbers in another order, and fewer of them
    "broadcast_in_dim concatenate dynamic_slice dynamic_update_slice expand_dims iota pad reshape rev slice split squeeze "
    "stack transpose reduce_and reduce_max reduce_min reduce_or reduce_prod reduce_sum "
    # functions within, whose own operations are looked at
    "closed_call cond custom_jvp_call custom_vjp_call custom_vjp_call_jaxpr jit pjit remat scan while "
    "platform_index random_seed random_unwrap random_wrap".split()
)


class Kernel:
    """`function` of trees, traced once for arguments like `args`, to be called while a program is traced.

    It takes all it uses as arguments: whatever else it captured would be one that is not counted. Kernels that it calls are
    parts of it. `shapes` is the tree it returns, `n_operations` how many there are in it.
    """

    def __init__(self, function: Callable, *args: Any):
        self._leaves, tree = jax.tree.flatten(args)
        leaves = self._leaves
        self._direct, self._mark, self.n_operations = function, None, 0
        if not _is_wanted() or any(isinstance(leaf, Tracer) and leaf.size > LARGEST for leaf in leaves):
            self.shapes = jax.eval_shape(lambda: function(*args))  # as if it were not wrapped at all
            return
        self._direct = None
        self._varies = [isinstance(leaf, Tracer) and leaf.size > 0 for leaf in leaves]
        mark: list[int | None] = [None]

        def using_all(*given: Any) -> Any:
            rest = iter(given)
            whole = [
                next(rest) if varies else _copied(leaf)
                for leaf, varies in zip(leaves, self._varies, strict=True)
            ]
            found, form = jax.tree.flatten(function(*jax.tree.unflatten(tree, whole)))
            mark[0] = _least_computed(found, given)
            if mark[0] is not None:
                found[mark[0]] = _depending_on(given, found[mark[0]])
            return jax.tree.unflatten(form, found)

        given = [leaf for leaf, varies in zip(leaves, self._varies, strict=True) if varies]
        self._traceable = jax.jit(using_all)
        with _set(_in_a_kernel):
            traced = self._traceable.trace(*given)
        self.shapes = traced.out_info
        jaxpr = traced.jaxpr.jaxpr
        operations = list(_equations(jaxpr))
        self.n_operations = len(operations)
        captures_nothing = len(jaxpr.invars) == len(given) and not jaxpr.constvars
        fits = captures_nothing and all(map(_is_plain, operations))
        self._mark = mark[0] if fits else None
        if fits:
            form, plain = (
                jax.tree.structure(self.shapes),
                jax_core.jaxpr_as_fun(with_plain_sums(traced.jaxpr)),
            )
            self._traceable = jax.jit(lambda *given: form.unflatten(plain(*given)))

    @property
    def is_one(self) -> bool:
        """Whether it becomes one native function."""
        return self._mark is not None

    def __call__(self, *args: Any) -> Any:
        if self._direct is not None:
            return self._direct(*args)
        given = []
        for leaf, like, varies in zip(jax.tree.leaves(args), self._leaves, self._varies, strict=True):
            if varies:
                given.append(leaf)
            elif leaf is not like and not _is_empty(leaf):
                raise TypeError(f"a kernel traced with {like!r} as a constant was called with {leaf!r}")
        found, tree = jax.tree.flatten(self._traceable(*given))
        if self._mark is not None and not _in_a_kernel.get():
            assert set_xla_metadata is not None
            found[self._mark] = set_xla_metadata(found[self._mark], **_AS_ONE_FUNCTION)
        return jax.tree.unflatten(tree, found)


def _is_wanted() -> bool:
    return _IS_AVAILABLE and not _in_queue.get() and jax.default_backend() == "cpu"


def through_the_queue() -> contextlib.AbstractContextManager[None]:
    """Every function that is traced within stays in the queue."""
    return _set(_in_queue)


@contextlib.contextmanager
def _set(flag: ContextVar[bool]) -> Iterator[None]:
    token = flag.set(True)
    try:
        yield
    finally:
        flag.reset(token)


def _copied(constant: Any) -> Any:
    """What stays inside: a constant itself, or the empty array that a tracer stands for."""
    return jnp.zeros(constant.shape, constant.dtype) if isinstance(constant, Tracer) else constant


def _is_empty(leaf: Any) -> bool:
    return isinstance(leaf, Tracer) and leaf.size == 0


def _least_computed(found: list, given: tuple) -> int | None:
    """The number of the smallest output of numbers that is neither an argument handed through nor a constant."""
    handed = {id(each) for each in given}
    sizes = {
        i: leaf.size
        for i, leaf in enumerate(found)
        if isinstance(leaf, Tracer) and id(leaf) not in handed and leaf.size and not _is_key(leaf)
    }
    return min(sizes, key=sizes.__getitem__, default=None)


def _depending_on(given: tuple, value: Any) -> Any:
    """`value`, computed from all that is given.

    XLA's compiler takes for granted that a call uses every argument. A sum over one number of each decides here, in a way
    that never shows: a NaN is not positive.
    """
    total = sum(map(_first_number, given), jnp.zeros(()))
    other = ~value if value.dtype == bool else value + 1  # not the same, or there would be nothing to decide
    never = jax.lax.broadcast((total != total) & (total > 0), value.shape)
    return jax.lax.select(never, other, value)


def _first_number(array: Any) -> Any:
    array = jax.random.key_data(array) if _is_key(array) else array
    first = jax.lax.slice(array, [0] * array.ndim, [1] * array.ndim)
    return jax.lax.convert_element_type(jax.lax.reshape(first, ()), jnp.float64)


def _is_key(array: Any) -> bool:
    return jnp.issubdtype(array.dtype, jax.dtypes.extended)


def _equations(jaxpr: Any) -> Iterator[Any]:
    """The operations of a program and of the functions within it."""
    for equation in jaxpr.eqns:
        yield equation
        for inner in inner_programs(equation.params):
            yield from _equations(inner)


def _is_plain(equation: Any) -> bool:
    variables = [*equation.invars, *equation.outvars]
    if any(math.prod(variable.aval.shape) > LARGEST for variable in variables):
        return False
    if equation.primitive.name == "dot_general":
        return _n_multiplications(equation) <= _LARGEST_PRODUCT
    return equation.primitive.name in _PLAIN


def _n_multiplications(product: Any) -> int:
    (contracted, _), _ = product.params["dimension_numbers"]
    left, out = product.invars[0].aval.shape, product.outvars[0].aval.shape
    return math.prod(out) * math.prod(left[axis] for axis in contracted)
