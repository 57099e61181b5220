"""Functions written in NumPy, traced by JAX: `np.exp(x)` on an array that NumPy cannot look inside.

A JAX tracer refuses NumPy's functions, because NumPy wants numbers and a tracer has none yet.
`NumpyStyle` stands in for the tracer: NumPy hands every call on it back to us (the
`__array_ufunc__` and `__array_function__` protocols), and we pass the call on to `jax.numpy`.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

# Methods that NumPy calls on the entries of an object array, e.g. np.exp(np.array([x[0], x[1]])).
_ELEMENTWISE = (
    "exp log log1p expm1 sqrt sin cos tan tanh sinh cosh arctan arcsin arccos square conjugate rint".split()
)
# Array methods and attributes that mean the same in NumPy and in JAX.
_SHARED_METHODS = (
    "sum prod mean var std min max argmin argmax cumsum cumprod dot reshape ravel flatten transpose "
    "swapaxes squeeze clip round trace diagonal repeat take astype copy all any"
).split()


class NumpyStyle:
    """A traced array that answers to NumPy: arithmetic, indexing, in-place assignment, `np.` functions."""

    __array_priority__ = 1000

    def __init__(self, value: Any):
        self.value = value

    # -- what it is ---------------------------------------------------------------------------
    @property
    def shape(self):
        return self.value.shape

    @property
    def dtype(self):
        return self.value.dtype

    @property
    def ndim(self) -> int:
        return self.value.ndim

    @property
    def size(self) -> int:
        return self.value.size

    @property
    def T(self) -> NumpyStyle:
        return NumpyStyle(self.value.T)

    @property
    def at(self):
        return self.value.at

    def __len__(self) -> int:
        if self.value.ndim == 0:
            raise TypeError("len() of a scalar")
        return self.value.shape[0]

    def __iter__(self):
        return (NumpyStyle(row) for row in self.value)

    def __getitem__(self, index):
        return NumpyStyle(self.value[jax.tree.map(plain, index)])

    def __setitem__(self, index, new):
        self.value = self.value.at[jax.tree.map(plain, index)].set(plain(new))

    def __repr__(self) -> str:
        return f"NumpyStyle({self.value!r})"

    # -- what NumPy asks of it ----------------------------------------------------------------
    def __array_ufunc__(self, ufunc, method, *inputs, out=None, **kwargs):
        function = getattr(jnp, ufunc.__name__, None)
        if function is None or method not in ("__call__", "reduce"):
            return NotImplemented
        if method == "reduce":
            function = getattr(function, "reduce", None)
            if function is None:
                return NotImplemented
        result = styled(function(*map(plain, inputs), **{k: plain(v) for k, v in kwargs.items()}))
        if out is not None:  # x += y on an ndarray cannot hold a traced value; on a NumpyStyle it can
            (target,) = out
            if not isinstance(target, NumpyStyle):
                return NotImplemented
            target.value = plain(result)
            return target
        return result

    def __array_function__(self, function, types, args, kwargs):
        module = function.__module__ or ""
        namespace = jnp.linalg if module.startswith("numpy.linalg") else jnp
        twin = getattr(namespace, function.__name__, None)
        if twin is None:
            return NotImplemented
        args, kwargs = jax.tree.map(plain, (args, kwargs), is_leaf=_is_styled)
        return styled(twin(*args, **kwargs))


def _forward(name: str, function: Callable, reflected: bool = False) -> None:
    def method(self, *others):
        values = [plain(other) for other in others]
        return styled(function(values[0], self.value) if reflected else function(self.value, *values))

    method.__name__ = name
    setattr(NumpyStyle, name, method)


for _name in "add sub mul truediv floordiv mod pow matmul".split():
    _function = getattr(operator, _name)
    _forward(f"__{_name}__", _function)
    _forward(f"__r{_name}__", _function, reflected=True)
for _name in "lt le gt ge eq ne neg pos abs and or invert".split():
    _forward(f"__{_name}__", getattr(operator, f"__{_name}__"))
for _name in _ELEMENTWISE:
    _forward(_name, getattr(jnp, _name))


def _forward_method(name: str) -> None:
    def method(self, *args, **kwargs):
        args, kwargs = jax.tree.map(plain, (args, kwargs), is_leaf=_is_styled)
        return styled(getattr(self.value, name)(*args, **kwargs))

    method.__name__ = name
    setattr(NumpyStyle, name, method)


for _name in _SHARED_METHODS:
    _forward_method(_name)


def _is_styled(node: Any) -> bool:
    return isinstance(node, NumpyStyle) or (isinstance(node, np.ndarray) and node.dtype == object)


def plain(value: Any) -> Any:
    """The JAX array behind `value`: a stand-in is opened, an object array of stand-ins is stacked."""
    if isinstance(value, NumpyStyle):
        return value.value
    if isinstance(value, np.ndarray) and value.dtype == object:
        return jnp.stack([jnp.asarray(plain(v)) for v in value.ravel()]).reshape(value.shape)
    if isinstance(value, (list, tuple)) and any(_is_styled(v) for v in value):
        return jnp.stack([jnp.asarray(plain(v)) for v in value])
    return value


def styled(value: Any) -> Any:
    """`value` with every JAX array in it wrapped for NumPy's use."""
    return jax.tree.map(lambda leaf: NumpyStyle(leaf) if isinstance(leaf, jax.Array) else leaf, value)


def in_numpy_style(function: Callable) -> Callable:
    """`function`, written with NumPy, as a function of JAX arrays."""

    def traced(*args):
        result = function(*(styled(arg) for arg in args))
        return jax.tree.map(plain, result, is_leaf=_is_styled)

    return traced
