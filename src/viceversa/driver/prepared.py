"""A problem to be solved again and again: the same functions and sets with other numbers, each time from the last answer."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np

from viceversa import precision
from viceversa.driver.compiled import remember_packed
from viceversa.driver.inputs import (
    check_seed,
    checked_limits,
    chosen_scheme,
    require_problem,
    starts_of,
    usual_settings,
)
from viceversa.driver.loop import Starts
from viceversa.driver.own_device import in_this_thread
from viceversa.driver.packing import Layout, kinds_of, layout_of
from viceversa.driver.run import Run
from viceversa.driver.solution import Solution
from viceversa.driver.solve import MAX_ITER, solve
from viceversa.driver.status import Status
from viceversa.errors import InputError, SolveError
from viceversa.functions import Callback, Program
from viceversa.known_modules import own_leaves
from viceversa.problem import MisspecifiedVI

_WIDTHS = ("x_width", "theta_width")
_PARTS = (
    "operator",
    "set",
    "constraints",
    "learning",
    *_WIDTHS,
)  # of a problem, as its fields follow one another
_BROKEN = (Status.stalled, Status.nonfinite, Status.diverged)


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
        tol, max_iter = checked_limits(tol, max_iter, None)
        check_seed(seed)
        starts_of(problem, x0, theta0, multiplier0, init)
        self._settings = usual_settings(tol, max_iter, seed)
        self._asked = {"method": method, "tol": tol, "max_iter": max_iter, "seed": seed}
        self._starts = {"x0": x0, "theta0": theta0, "multiplier0": multiplier0, "init": init}
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
        new one. A part of another structure is taken too, and checked as in a new problem.
        """
        given = {"operator": operator, "set": set, "constraints": constraints, "learning": learning}
        parts = {name: part for name, part in given.items() if part is not None}
        for name, part in parts.items():
            if isinstance(part, Mapping):
                parts[name] = _with_fields(name, getattr(self.problem, name), part)
        ready = self._ready.with_parts(parts)
        if ready is None:
            ready = _Ready.of(self.problem.rebuilt(**parts))
            self._scheme.check(ready.problem)
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
        if solution is None or solution.status in _BROKEN:
            solution = solve(self.problem, **self._starts, **self._asked)
        self._last = None if solution.status in _BROKEN else solution
        if throw and not solution.success:
            raise SolveError(f"{solution.status}: {solution.message}")
        return solution

    def _from(self, last: Solution) -> Solution:
        if self.problem.runs_on_host:
            return solve(self.problem, init=last, **self._asked)
        starts = Starts(last.x, last.theta, last.multiplier)
        with precision.double(), in_this_thread():
            return Run(self.problem, self._scheme, starts, self._settings, time.perf_counter).fused()


class _Part(NamedTuple):
    """A part of a problem, flattened."""

    leaves: list
    tree: Any
    kinds: tuple

    @classmethod
    def of(cls, value: Any) -> _Part:
        leaves, tree = jax.tree.flatten(value)
        return cls(leaves, tree, kinds_of(leaves))

    def is_like(self, other: _Part) -> bool:
        return self.kinds == other.kinds and self.tree == other.tree


class _Ready(NamedTuple):
    """A problem, its parts flattened in the order of its fields, and how their leaves are packed."""

    problem: MisspecifiedVI
    parts: dict[str, _Part]
    layout: Layout

    @classmethod
    def of(cls, problem: MisspecifiedVI) -> _Ready:
        leaves, tree = jax.tree.flatten(problem)
        parts = {name: _Part.of(getattr(problem, name)) for name in _PARTS}
        ready = cls(problem, parts, layout_of(problem, leaves, tree))
        assert all(a is b for a, b in zip(ready.leaves, leaves, strict=True))
        return ready

    def with_parts(self, values: dict[str, Any]) -> _Ready | None:
        """The problem with other values in some parts; None where one has another structure."""
        parts, owned = {}, {}
        for name, value in values.items():
            leaves, tree = jax.tree.flatten(value)
            part = parts[name] = _Part(own_leaves(value, leaves), tree, kinds_of(leaves))
            if not part.is_like(self.parts[name]):
                return None
            owned[name] = value if part.leaves is leaves else jax.tree.unflatten(tree, part.leaves)
        problem = self.problem.with_parts(**owned)
        for name in _WIDTHS:  # of X and Θ, whichever were replaced
            width = getattr(problem, name)
            if width is not getattr(self.problem, name):
                parts[name] = _Part.of(width)
                if not parts[name].is_like(self.parts[name]):
                    return None
        ready = _Ready(problem, self.parts | parts, self.layout)
        remember_packed(problem, self.layout.packed(ready.leaves))
        return ready

    @property
    def leaves(self) -> list:
        """All leaves of the problem, in its order."""
        return [leaf for part in self.parts.values() for leaf in part.leaves]


def _with_fields(name: str, module: Any, fields: Mapping[str, Any]) -> Any:
    """A module with other values in some fields, set as they are."""
    if name not in ("operator", "constraints"):
        raise InputError(
            f"update: {name} is a dict; only operator and constraints are changed by field. Pass a new {name}."
        )
    if not isinstance(module, eqx.Module) or isinstance(module, (Program, Callback)):
        why = (
            "there is none"
            if module is None
            else "it is no Equinox module in JAX style, so that its data have no names"
        )
        raise InputError(
            f"update: {name} is a dict, which gives new values to fields of the problem's {name}, but {why}. Pass a whole {name}, "
            "or write it as an Equinox module with jax.numpy and its data as fields."
        )
    known = vars(module)
    for field in fields:
        if field not in known:
            raise InputError(
                f"update: {name} has no field {field!r}; {type(module).__name__} has {', '.join(known)}."
            )
    new = object.__new__(type(module))
    vars(new).update(
        known
        | {field: _like(f"update: {name} {field}", value, known[field]) for field, value in fields.items()}
    )
    return new


def _like(name: str, value: Any, old: Any) -> Any:
    """A value for a field; numbers become an array of the old one's type."""
    if not isinstance(old, (np.ndarray, jax.Array)):
        return value
    return precision.as_float64(name, value).astype(old.dtype, copy=False)


def _fits(last: Solution, problem: MisspecifiedVI) -> bool:
    """Whether an answer has the form of this problem's."""
    try:
        starts_of(problem, None, None, None, last)
    except InputError:
        return False
    return True
