"""Functions written in NumPy, traced by JAX: `np.exp(x)` on an array that NumPy cannot look inside.

A JAX tracer refuses NumPy's functions, because NumPy wants numbers and a tracer has none yet.
`NumpyStyle` stands in for the tracer: NumPy hands every call on it back to us (the
`__array_ufunc__` and `__array_function__` protocols), and we pass the call on to `jax.numpy`.
A plain `np.zeros(n)` cannot take a traced entry, so inside the user's function the name `np` stands for
a namespace whose new arrays can.
"""

from __future__ import annotations

import functools
import operator
import types
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
# Functions whose first argument is a sequence of arrays.
_JOINING = frozenset("concatenate stack hstack vstack column_stack dstack".split())
# Functions that make an array to be filled in later.
_CREATING = "zeros ones empty full".split()
# Functions whose `at` changes an array in place, and what JAX calls that.
_AT = {
    "add": "add",
    "multiply": "multiply",
    "divide": "divide",
    "power": "power",
    "maximum": "max",
    "minimum": "min",
}
# Functions that turn a list into an array.
_CONVERTING = "array asarray asanyarray ascontiguousarray".split()


class NumpyStyle:
    """A traced array that answers to NumPy: arithmetic, indexing, in-place assignment, `np.` functions.

    What basic indexing returns is a view, as in NumPy: assigning to it assigns to what it was taken from.
    """

    __array_priority__ = 1000

    def __init__(self, value: Any, base: NumpyStyle | None = None, index: Any = None):
        self._value, self._base, self._index = value, base, index

    @property
    def value(self) -> Any:
        return self._value if self._base is None else self._base.value[self._index]

    @value.setter
    def value(self, new: Any) -> None:
        if self._base is None:
            self._value = new
        else:
            self._base.value = jnp.asarray(self._base.value).at[self._index].set(new)

    # A traced value has no truth and no number yet; JAX's own error says so.
    def __bool__(self) -> bool:
        return bool(self.value)

    def __float__(self) -> float:
        return float(self.value)

    def __int__(self) -> int:
        return int(self.value)

    def __index__(self) -> int:
        return operator.index(self.value)

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
        return (self[i] for i in range(len(self)))

    def __getitem__(self, index):
        index = _as_index(index)
        return NumpyStyle(None, self, index) if _is_basic(index) else NumpyStyle(self.value[index])

    def __setitem__(self, index, new):
        index, new, value = _as_index(index), plain(new), jnp.asarray(self.value)
        is_mask = jnp.issubdtype(getattr(index, "dtype", int), jnp.bool_)
        if is_mask and index.shape == value.shape and jnp.ndim(new) == 0:
            self.value = jnp.where(index, new, value)  # a mask may be traced
        else:
            self.value = value.at[index].set(new)

    def __repr__(self) -> str:
        return f"NumpyStyle({self.value!r})"

    # -- what NumPy asks of it ----------------------------------------------------------------
    def __array_ufunc__(self, ufunc, method, *inputs, out=None, **kwargs):
        if method == "at":
            return _change_at(ufunc.__name__, *inputs)
        function = getattr(jnp, ufunc.__name__, None) or _special(ufunc.__name__)
        if method != "__call__":  # np.add.reduce, np.subtract.outer, ...
            function = getattr(function, method, None)
        if function is None:
            return NotImplemented
        result = styled(function(*map(_operand, inputs), **{k: plain(v) for k, v in kwargs.items()}))
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
        if function.__name__ in _JOINING:
            args = ([_operand(part) for part in args[0]], *args[1:])
        else:
            args = tuple([np.asarray(arg) if _is_data(arg) else arg for arg in args])
        args, kwargs = jax.tree.map(plain, (args, kwargs), is_leaf=_is_styled)
        return styled(twin(*args, **kwargs))


def _change_at(name: str, target: Any, index: Any, *values: Any) -> None:
    """np.add.at(target, index, values): entries that are named twice are changed twice."""
    if not isinstance(target, NumpyStyle) or name not in (*_AT, "subtract"):
        raise TypeError(
            f"np.{name}.at cannot change this array in place. Write out = out.at[index].add(values) with jax.numpy, or make "
            "the array with np.zeros inside the function"
        )
    new = map(_operand, values)
    if name == "subtract":
        name, new = "add", map(operator.neg, new)
    target.value = getattr(jnp.asarray(target.value).at[_as_index(index)], _AT[name])(*new)


def _as_index(index: Any) -> Any:
    if isinstance(index, tuple):
        return tuple(_as_index(part) for part in index)
    index = plain(index)
    return np.asarray(index) if isinstance(index, list) else index


def _is_basic(index: Any) -> bool:
    parts = index if isinstance(index, tuple) else (index,)
    return all(isinstance(part, (int, np.integer, slice, types.EllipsisType)) for part in parts)


def _forward(name: str, function: Callable, reflected: bool = False) -> None:
    def method(self, *others):
        values = [_operand(other) for other in others]
        return styled(function(values[0], self.value) if reflected else function(self.value, *values))

    method.__name__ = name
    setattr(NumpyStyle, name, method)


def _forward_in_place(name: str, function: Callable) -> None:
    def method(self, other):
        self.value = function(self.value, _operand(other))
        return self

    method.__name__ = name
    setattr(NumpyStyle, name, method)


for _name in "add sub mul truediv floordiv mod pow matmul".split():
    _function = getattr(operator, _name)
    _forward(f"__{_name}__", _function)
    _forward(f"__r{_name}__", _function, reflected=True)
    _forward_in_place(f"__i{_name}__", _function)
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
    if isinstance(value, (list, tuple)) and _holds_styled(value):
        return jnp.stack([jnp.asarray(plain(v)) for v in value])
    return value


def _operand(value: Any) -> Any:
    """`plain`, and a list of numbers as the array NumPy takes it for."""
    value = plain(value)
    return np.asarray(value) if isinstance(value, (list, tuple)) else value


def _is_data(value: Any) -> bool:
    """Whether a list is of numbers to compute with: whole ones may be axes or a shape."""
    is_list = isinstance(value, (list, tuple)) and not _holds_styled(value)
    return is_list and any(isinstance(leaf, float) for leaf in jax.tree.leaves(value))


def _holds_styled(value: Any) -> bool:
    return any(_is_styled(leaf) for leaf in jax.tree.leaves(value, is_leaf=_is_styled))


def styled(value: Any) -> Any:
    """`value` with every JAX array in it wrapped for NumPy's use."""
    return jax.tree.map(lambda leaf: NumpyStyle(leaf) if isinstance(leaf, jax.Array) else leaf, value)


def in_numpy_style(function: Callable) -> Callable:
    """`function`, written with NumPy, as a function of JAX arrays."""
    function = _with_namespace(function, {})

    def traced(*args):
        result = function(*(styled(arg) for arg in args))
        return jax.tree.map(plain, result, is_leaf=_is_styled)

    return traced


class _Namespace:
    """`numpy` as the user's function sees it while it is traced: the arrays it makes can take traced entries."""

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(np, name)
        if name in _CREATING:
            return lambda *args, **kwargs: NumpyStyle(_create(attribute, *args, **kwargs))
        return functools.partial(_convert, attribute) if name in _CONVERTING else attribute


def _create(function: Callable, *args, **kwargs) -> Any:
    if _holds_styled((args, kwargs)):  # np.full(n, x[0])
        args, kwargs = jax.tree.map(plain, (args, kwargs), is_leaf=_is_styled)
        return getattr(jnp, function.__name__)(*args, **kwargs)
    return function(*args, **kwargs)


def _convert(function: Callable, values: Any, *args, **kwargs) -> Any:
    if not _holds_styled(values):
        return function(values, *args, **kwargs)
    array = jnp.asarray(plain(values))
    dtype = args[0] if args else kwargs.get("dtype")
    return NumpyStyle(array if dtype is None else array.astype(dtype))


_NAMESPACE = _Namespace()
_REPLACED = {id(getattr(np, name)): getattr(_NAMESPACE, name) for name in (*_CREATING, *_CONVERTING)}


def _with_namespace(function: Any, done: dict[int, Any]) -> Any:
    """A copy of a Python function, and of the functions of its own module it calls, that sees `_Namespace`."""
    if isinstance(function, functools.partial):
        rebuilt = _with_namespace(function.func, done)
        return functools.partial(rebuilt, *function.args, **function.keywords)
    if isinstance(function, types.MethodType):
        return types.MethodType(_with_namespace(function.__func__, done), function.__self__)
    if not isinstance(function, types.FunctionType):
        call: Any = type(function).__call__  # an object of the user's own class
        return _with_namespace(types.MethodType(call, function), done) if _is_function(call) else function
    if id(function) in done:
        return done[id(function)]
    names = dict(function.__globals__)
    cells = tuple(types.CellType() for _ in function.__closure__ or ())
    copy = types.FunctionType(
        function.__code__, names, function.__name__, function.__defaults__, cells if cells else None
    )
    copy.__kwdefaults__ = function.__kwdefaults__
    done[id(function)] = copy

    def seen(value: Any) -> Any:
        if value is np:
            return _NAMESPACE
        is_own = _is_function(value) and value.__globals__ is function.__globals__
        return _with_namespace(value, done) if is_own else _REPLACED.get(id(value), value)

    for name in _names_in(function.__code__) & names.keys():
        names[name] = seen(names[name])
    for cell, old in zip(cells, function.__closure__ or (), strict=True):
        try:
            cell.cell_contents = seen(old.cell_contents)
        except ValueError:  # a name not yet bound
            continue
    return copy


def _special(name: str) -> Any:
    """A function of scipy.special; few problems have one, and the module takes a while to import."""
    import jax.scipy.special

    return getattr(jax.scipy.special, name, None)


def _is_function(value: Any) -> bool:
    return isinstance(value, types.FunctionType)


def _names_in(code: types.CodeType) -> set[str]:
    inner = [_names_in(const) for const in code.co_consts if isinstance(const, types.CodeType)]
    return set(code.co_names).union(*inner)


def captured(function: Any) -> dict[str, Any]:
    """What a Python function reads by name from around it, and what the functions of its own module read that it calls."""
    values: dict[str, Any] = {}
    for own in _own_functions(function):
        if not _is_function(own):
            values.update(own)
            continue
        names = _names_in(own.__code__) & own.__globals__.keys()
        values.update((name, own.__globals__[name]) for name in names)
        values.update(_cells(own))
        defaults = own.__defaults__ or ()
        arguments = own.__code__.co_varnames[: own.__code__.co_argcount]
        values.update(zip(arguments[len(arguments) - len(defaults) :], defaults, strict=True))
    return values


def attributes_in(function: Any) -> set[str]:
    """The names and attributes that a Python function mentions, with those of its own module that it calls."""
    return set().union(*(_names_in(own.__code__) for own in _own_functions(function) if _is_function(own)))


def _own_functions(function: Any, done: dict[int, Any] | None = None) -> list[Any]:
    """A Python function and those of its module that it calls; data that goes with it stands there as a dict."""
    done = {} if done is None else done
    if isinstance(function, functools.partial):
        data = {f"argument {i}": value for i, value in enumerate(function.args)} | function.keywords
        return [data, *_own_functions(function.func, done)]
    if isinstance(function, types.MethodType):
        data = getattr(function.__self__, "__dict__", {})
        return [data, *_own_functions(function.__func__, done)]
    if not _is_function(function):
        if hasattr(function, "__wrapped__"):  # a jitted function
            return _own_functions(function.__wrapped__, done)
        call: Any = type(function).__call__
        return _own_functions(types.MethodType(call, function), done) if _is_function(call) else []
    if id(function) in done:
        return []
    done[id(function)] = function
    names = _names_in(function.__code__) & function.__globals__.keys()
    near = [*(function.__globals__[name] for name in names), *_cells(function).values()]
    decorated = getattr(function, "__wrapped__", None)
    found = [function]
    for value in near:
        if _is_function(value) and (value.__globals__ is function.__globals__ or value is decorated):
            found += _own_functions(value, done)
    return found


def _cells(function: types.FunctionType) -> dict[str, Any]:
    """The closure of a function by name, without names not yet bound."""
    found = {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            found[name] = cell.cell_contents
        except ValueError:
            continue
    return found
