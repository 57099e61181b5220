"""`Solver`: a problem to be solved again and again, the same functions and sets with other numbers, each time from the last answer."""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np
from jax.tree_util import tree_leaves

from viceversa import precision
from viceversa.driver.inputs import (
    StartForm,
    chosen_scheme,
    require_problem,
    starts_of,
    usual_settings,
)
from viceversa.driver.own_device import in_this_thread
from viceversa.driver.packing import Layout, Packed, leaves_and_layout
from viceversa.driver.run import Run
from viceversa.driver.solution import Solution
from viceversa.driver.solve import MAX_ITER, found_nearby, solve
from viceversa.errors import InputError, SolveError
from viceversa.flattened import Flat, Form
from viceversa.functions import Callback, Program
from viceversa.known_modules import own_leaves
from viceversa.problem import MisspecifiedVI

_WIDTHS = ("x_width", "theta_width")
_ARRAYS = (np.ndarray, jax.Array)


class Solver:
    """A problem made ready to be solved many times, with other data each time.

    The arguments are those of `vv.solve`. `update` replaces parts of the problem, or arrays in them; `solve` begins at the last
    answer. As long as data have the same shapes, nothing is checked, laid out or compiled again but the data themselves.

    Example:
        >>> import equinox as eqx, numpy as np, viceversa as vv
        >>> class Shifted(eqx.Module):
        ...     shift: np.ndarray
        ...     def __call__(self, x, theta):
        ...         return x - theta - self.shift
        >>> problem = vv.MisspecifiedVI(Shifted(np.array([1.0])), set=vv.Box([0.0], [9.0]), learning=vv.Known(2.0))
        >>> solver = vv.Solver(problem)
        >>> [float(solver.update(operator={"shift": [shift]}).solve().x[0].round(6)) for shift in (1.0, 4.0, 8.0)]
        [3.0, 6.0, 9.0]
    """

    def __init__(
        self,
        problem: MisspecifiedVI,
        method: Any = None,
        *,
        x0: Any = None,
        theta0: Any = None,
        multiplier0: Any = None,
        init: Solution | None = None,
        tol: float = 1e-8,
        max_iter: int = MAX_ITER,
        seed: int = 0,
    ):
        require_problem(problem)
        self._scheme = chosen_scheme(problem, method)
        self._settings = usual_settings(tol, max_iter, seed)
        starts = starts_of(problem, x0, theta0, multiplier0, init)
        # The scheme itself stands for a method that was named, so that it is made once.
        named = None if method is None else self._scheme
        self._asked = {"method": named, "tol": tol, "max_iter": max_iter, "seed": seed}
        given = starts.whole() if isinstance(starts, Packed) else starts
        self._starts = {
            "x0": None if x0 is None else given.x,
            "theta0": None if theta0 is None else given.theta,
            "multiplier0": None if multiplier0 is None else given.lam,
            "init": init,
        }
        self._ready = _Ready.of(problem)
        self._last: Solution | None = None

    @property
    def problem(self) -> MisspecifiedVI:
        """The problem as it is now."""
        return self._ready.problem

    def update(
        self, *, operator: Any = None, set: Any = None, constraints: Any = None, learning: Any = None
    ) -> Solver:
        """Replace parts of the problem; what is left out stays as it is. Returns the solver itself.

        `operator` and `constraints` may be a dict of some fields of the module that is there, such as {"costs": new_costs};
        its `__init__` is not called. What was said of the problem (`symmetric`, names of constraints) is taken to hold of the
        new one. A part of another structure is taken too, and checked as in a new problem. To have no constraints any
        more, make a new solver.
        """
        given = {"operator": operator, "set": set, "constraints": constraints, "learning": learning}
        ready = self._ready.updated({name: part for name, part in given.items() if part is not None})
        is_new = ready.layout is not self._ready.layout
        if is_new or self._asked["method"] is not None:
            # A method may refuse new data, such as bounds that are infinite; the default looks at functions only.
            chosen_scheme(ready.problem, self._asked["method"])
        if is_new:
            try:
                starts_of(ready.problem, **self._starts)
            except InputError as error:
                raise InputError(
                    f"update: where this solver was told to start does not fit the new problem: {error} Make a new vv.Solver."
                ) from None
            if self._last is not None and not _fits(self._last, ready.problem):
                self._last = None
        self._ready = ready
        return self

    def solve(self, *, warm: bool = True, throw: bool = False) -> Solution:
        """Solve the problem as it is now, from the last answer; `warm=False`: from the starts the solver was made with.

        Where a run from the last answer breaks down, it is begun again from those starts. `throw=True` raises when the point is
        not solved.
        """
        solution = self._from(self._last) if warm and self._last is not None else None
        if solution is None or solution.status.broke_down:
            solution = solve(self.problem, **self._starts, **self._asked)
        self._last = None if solution.status.broke_down else solution
        if throw and not solution.success:
            raise SolveError(f"{solution.status}: {solution.message}")
        return solution

    def _from(self, last: Solution) -> Solution:
        if self.problem.runs_on_host:
            return solve(self.problem, init=last, **self._asked)
        starts = self._ready.starts.packed([last.x, *tree_leaves(last.theta), last.multiplier])
        with precision.double(), in_this_thread():
            run = Run(self.problem, self._scheme, starts, self._settings, time.perf_counter)
            solution = run.fused(self._ready.packed)
        if self._asked["method"] is not None:
            return solution
        return found_nearby(self.problem, solution, run, _fused_in_this_thread)


class _Part(NamedTuple):
    """A part of a problem, flattened; `first` is the number of its first leaf among the problem's."""

    value: Any
    leaves: list
    form: Form
    first: int

    def replaced(self, value: Any) -> tuple[_Part, dict[int, Any]] | None:
        """The part with another value, and its leaves by their numbers; None where it has another structure."""
        leaves, form = Flat.of(value)
        if form is not self.form:
            return None
        owned = own_leaves(value, leaves)
        value = value if owned is leaves else jax.tree.unflatten(form.tree, owned)
        new = {self.first + i: leaf for i, leaf in enumerate(owned)}
        return _Part(value, owned, form, self.first), new

    def with_arrays(self, module: Any, arrays: dict[str, Any]) -> tuple[_Part, dict[int, Any]] | None:
        """The same, of a module in which only these fields are new: arrays in place of arrays."""
        known, leaves, new = _fields_of(self.value), self.leaves.copy(), {}
        for field, array in arrays.items():
            old = known[field]
            numbers = [i for i, leaf in enumerate(self.leaves) if leaf is old]
            is_like_it = isinstance(old, _ARRAYS) and (array.shape, array.dtype) == (old.shape, old.dtype)
            if len(numbers) != 1 or not is_like_it:  # two fields may hold the same array
                return None
            leaves[numbers[0]] = new[self.first + numbers[0]] = array
        return _Part(module, leaves, self.form, self.first), new


class _Ready(NamedTuple):
    """A problem, its parts flattened in the order of its fields, all of it packed, and how its starts are."""

    problem: MisspecifiedVI
    parts: dict[str, _Part]
    layout: Layout
    packed: Packed
    starts: Layout

    @classmethod
    def of(cls, problem: MisspecifiedVI) -> _Ready:
        leaves, layout = leaves_and_layout(problem)
        parts, first = {}, 0
        for name, (own, form) in problem.parts().items():
            parts[name] = _Part(getattr(problem, name), own, form, first)
            first += len(own)
        return cls(problem, parts, layout, layout.packed(leaves), StartForm.of(problem).layout)

    def updated(self, values: dict[str, Any]) -> _Ready:
        """The problem with other parts, or other fields in them; built anew where one has another structure."""
        found = {}
        for name, value in values.items():
            part = self.parts[name]
            if isinstance(value, Mapping):
                values[name], arrays = _with_fields(name, part.value, value)
                found[name] = part.with_arrays(values[name], arrays) or part.replaced(values[name])
            else:
                found[name] = part.replaced(value)
        if None in found.values():
            return _Ready.of(self.problem.rebuilt(**values))
        problem = self.problem.with_parts(**{name: part.value for name, (part, _) in found.items()})
        if "set" in values or "learning" in values:
            found |= {name: self.parts[name].replaced(getattr(problem, name)) for name in _WIDTHS}
            if None in found.values():
                return _Ready.of(problem)
        leaves = {number: leaf for _, new in found.values() for number, leaf in new.items()}
        packed = self.layout.repacked(self.packed, leaves)
        parts = self.parts | {name: part for name, (part, _) in found.items()}
        return _Ready(problem, parts, self.layout, packed, self.starts)


def _with_fields(name: str, module: Any, fields: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
    """A module with other values in some fields, which are set as they are; and those values."""
    if name not in ("operator", "constraints"):
        raise InputError(
            f"update: {name} is a dict; only operator and constraints are changed by field. Pass a new {name}."
        )
    if not _has_named_data(type(module)):
        nameless = "it is no Equinox module in JAX style, so that its data have no names"
        why = "there is none" if module is None else nameless
        raise InputError(
            f"update: {name} is a dict, which gives new values to fields of the problem's {name}, but {why}. Pass a whole {name}, "
            "or write it as an Equinox module with jax.numpy and its data as fields."
        )
    known, new = _fields_of(module), {}
    for field, value in fields.items():
        if field not in known:
            raise InputError(
                f"update: {name} has no field {field!r}; {type(module).__name__} has {', '.join(known)}."
            )
        new[field] = _like(f"update: {name} {field}", value, known[field])
    other = object.__new__(type(module))
    _fields_of(other).update(known | new)
    return other, new


def _fields_of(module: Any) -> dict[str, Any]:
    """Of an Equinox module, which would look at what is read by its name."""
    return object.__getattribute__(module, "__dict__")


def _fused_in_this_thread(run: Run) -> Solution:
    with in_this_thread():
        return run.fused()


@lru_cache(maxsize=256)
def _has_named_data(kind: type) -> bool:
    return issubclass(kind, eqx.Module) and not issubclass(kind, (Program, Callback))


def _like(name: str, value: Any, old: Any) -> Any:
    """A value for a field; numbers become an array, and the solver's own, of the old one's type if that holds them."""
    if not isinstance(old, _ARRAYS):
        return value
    array = precision.as_float64(name, value)
    if old.dtype == np.float64:
        return array
    narrow = array.astype(old.dtype)
    return narrow if np.array_equal(narrow, array) else array


def _fits(last: Solution, problem: MisspecifiedVI) -> bool:
    """Whether an answer has the form of this problem's."""
    try:
        starts_of(problem, None, None, None, last)
    except InputError:
        return False
    return True
