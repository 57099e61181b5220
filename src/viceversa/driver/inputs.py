"""What `solve`, `iterate` and `Solver` are given, checked and in the form a run takes it; what cannot be used gets a sentence."""

from __future__ import annotations

import inspect
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax.tree_util import tree_leaves

from viceversa import precision
from viceversa.driver.loop import Settings, Starts
from viceversa.driver.packing import Layout, Packed, leaves_and_layout
from viceversa.driver.recording import Record, Truth
from viceversa.driver.solution import Solution
from viceversa.errors import InputError
from viceversa.problem import MisspecifiedVI, ThetaForm
from viceversa.schemes.base import Scheme, as_scheme
from viceversa.schemes.search_then_newton import SearchThenNewton

_LARGEST_COUNT = 2**53  # every whole number up to it is a float64
_LARGEST_SEED = 2**63 - 1
_DEFAULT = SearchThenNewton()
_OFF_CENTRE = 0.01  # of the width of X
_ROUNDING_OF_A_START = 1e-9
_SMALL_THETA = 64  # numbers in a θ₀ up to which starts are known by it


def chosen_scheme(problem: MisspecifiedVI, method: Any) -> Scheme:
    """The scheme of a method, which may refuse the problem; the default is first order alone where nothing can be traced."""
    scheme = _DEFAULT if method is None else as_scheme(method)
    if method is not None or not problem.runs_on_host:
        scheme.check(problem)
    return scheme


def usual_settings(tol: Any, max_iter: Any, seed: Any) -> Settings:
    """The settings of a solve that says nothing of what to record: the same object every time, so they are checked and packed once."""
    try:
        return _usual_settings(tol, max_iter, seed)
    except TypeError:  # it has no hash, so it is no number either
        _check_numbers(tol, max_iter, seed)
        raise


@lru_cache(maxsize=64, typed=True)  # True is not 1 here
def _usual_settings(tol: Any, max_iter: Any, seed: Any) -> Settings:
    _check_numbers(tol, max_iter, seed)
    record = Record()
    return Settings(record.grid(int(max_iter)), np.float64(tol), None, record.points, np.int64(seed))


def settings_of(problem: MisspecifiedVI, record: Record, tol: Any, max_iter: Any, seed: Any) -> Settings:
    """The settings of a solve with a wish what to record."""
    usual = usual_settings(tol, max_iter, seed)
    _require(Record, "record", record, "vv.Record(...)")
    truth = _truth(problem, record)
    return replace(usual, grid=record.grid(int(max_iter)), truth=truth, keep_points=record.points)


def _truth(problem: MisspecifiedVI, record: Record) -> Truth | None:
    if record.theta_true is None:
        if record.x_true is not None:
            raise InputError("Record: x_true was given without theta_true. Give both, or theta_true alone.")
        return None
    x = None if record.x_true is None else problem.check_x("Record: x_true", record.x_true)
    return Truth(theta=problem.check_theta("Record: theta_true", record.theta_true), x=x)


class StartForm(NamedTuple):
    """How the starts of a problem are packed, and those of one who says nothing: x = 0, θ = 0 and λ = 0."""

    layout: Layout
    usual: Starts
    packed: Packed

    @classmethod
    def of(cls, problem: MisspecifiedVI) -> StartForm:
        """Found once for all problems whose starts have these shapes."""
        return _start_form(problem.shape, problem.theta_form, problem.n_constraints)


@lru_cache(maxsize=64)
def _start_form(shape: tuple[int, ...], theta: ThetaForm, n_constraints: int) -> StartForm:
    usual = Starts(
        precision.zeros(shape), theta.tree.unflatten(map(np.zeros, theta.shapes)), np.zeros(n_constraints)
    )
    leaves, layout = leaves_and_layout(usual)
    return StartForm(layout, usual, layout.packed(leaves))


@lru_cache(maxsize=64)
def _starts_at(shape: tuple[int, ...], theta: ThetaForm, n_constraints: int, numbers: bytes) -> Starts:
    """The usual ones but for θ, which is often the same in many solves: then it is packed once."""
    sizes = [math.prod(each) for each in theta.shapes]
    parts = np.split(np.frombuffer(numbers), np.cumsum(sizes)[:-1])
    leaves = [part.reshape(each) for part, each in zip(parts, theta.shapes, strict=True)]
    return replace(_start_form(shape, theta, n_constraints).usual, theta=theta.tree.unflatten(leaves))


def starts_of(problem: MisspecifiedVI, x0, theta0, multiplier0, init: Solution | None) -> Starts | Packed:
    """Where to begin, as copies: what is given, else the point of `init`, else zeros."""
    form = problem.shape, problem.theta_form, problem.n_constraints
    if x0 is None and multiplier0 is None and init is None and theta0 is not None:
        given = problem.check_theta("theta0", theta0)
        parts: list[Any] = [given] if type(given) is np.ndarray else tree_leaves(given)
        if sum([part.size for part in parts]) <= _SMALL_THETA:
            return _starts_at(*form, b"".join(parts))
    layout, usual, packed = _start_form(*form)
    if x0 is None and theta0 is None and multiplier0 is None and init is None:
        return usual
    names = ("x0", "theta0", "multiplier0")
    if init is not None:  # what was not given itself is taken from there, and called so
        _require(Solution, "init", init, "a Solution of vv.solve")
        given = (x0, theta0, multiplier0)
        names = tuple(
            f"init.{name[:-1]}" if each is None else name for name, each in zip(names, given, strict=True)
        )
        x0 = init.x if x0 is None else x0
        theta0 = init.theta if theta0 is None else theta0
        multiplier0 = init.multiplier if multiplier0 is None else multiplier0
    # As the leaves of Starts follow one another.
    leaves: list[Any] = [None if x0 is None else problem.check_x(names[0], x0)]
    if theta0 is None:
        leaves += [None] * len(problem.theta_form.shapes)
    else:
        leaves += tree_leaves(problem.check_theta(names[1], theta0))
    leaves.append(None if multiplier0 is None else problem.check_multiplier(names[2], multiplier0))
    return layout.repacked(packed, {i: leaf for i, leaf in enumerate(leaves) if leaf is not None})


def projection_notes(moved: Sequence[float], *, x: bool, theta: bool) -> tuple[str, ...]:
    """A sentence for each start that was given and does not lie in its set."""
    if max(moved, default=0.0) <= _ROUNDING_OF_A_START:
        return ()
    parts = zip(("x", "θ"), ("X", "Θ"), (x, theta), moved, strict=True)
    return tuple(
        [
            f"The start of {name} lies outside {within}, so the run began at its projection ({far:.2g} of its largest "
            "component away)."
            for name, within, was_given, far in parts
            if was_given and far > _ROUNDING_OF_A_START
        ]
    )


def point_inside(problem: MisspecifiedVI) -> np.ndarray:
    """A point inside X, a little off its centre: a norm has no gradient where everything is zero."""
    centre, width = np.asarray(problem.set.interior_point()), np.asarray(problem.x_width)
    aside = np.cos(1.0 + np.arange(centre.size)).reshape(centre.shape)
    step = _OFF_CENTRE * np.where(np.isfinite(width), width, 1.0 + np.abs(centre)) * aside
    with precision.double():
        return np.asarray(problem.set.project(jnp.asarray(centre + step)))


def _check_numbers(tol: Any, max_iter: Any, seed: Any) -> None:
    if not (_is_number(tol) and tol >= 0):
        raise InputError(f"tol is {tol}; a number >= 0 is needed (0 runs exactly max_iter iterations).")
    if tol >= 1:
        raise InputError(
            f"tol is {tol}; it is relative, so a number below 1 is needed (from 1 on every point would pass)."
        )
    if not (_is_number(max_iter) and int(max_iter) == max_iter and max_iter >= 0):
        raise InputError(f"max_iter is {max_iter}; a whole number >= 0 is needed.")
    if max_iter > _LARGEST_COUNT:
        raise InputError(f"max_iter is {max_iter}; a whole number from 0 to 2**53 is needed.")
    check_seed(seed)


def check_time_limit(time_limit: Any) -> None:
    """Refuse what is neither None nor seconds."""
    if time_limit is not None and not (_is_number(time_limit) and time_limit > 0):
        raise InputError(f"time_limit is {time_limit}; seconds > 0 are needed.")


def _is_number(value: Any) -> bool:
    known = isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)
    return known and bool(abs(value) < math.inf)  # which takes whole numbers of any length


def _is_whole(value: Any) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


def check_verbose(verbose: Any) -> None:
    """Refuse what is neither a count nor a flag."""
    if not (isinstance(verbose, (bool, np.bool_)) or (_is_whole(verbose) and verbose >= 0)):
        raise InputError(
            f"verbose is {verbose!r}; a whole number >= 0, or True or False, is needed (0 prints nothing)."
        )


def check_seed(seed: Any) -> None:
    """Refuse what JAX's keys cannot be made from."""
    if not (_is_whole(seed) and 0 <= seed <= _LARGEST_SEED):
        raise InputError(f"seed is {seed!r}; a whole number from 0 to 2**63 - 1 is needed.")


def check_calls(callback: Any, clock: Any) -> None:
    """Functions that cannot be called as they will be; what was left out is not looked at."""
    if callback is not None:
        _require(Callable, "callback", callback, "a function of one dict")
        if not _takes(callback, {}):
            raise InputError(
                f"callback cannot be called with one dict (it is {_signature(callback)}). Give it one argument, "
                "the dict of what is seen at an iteration."
            )
    if clock is not time.perf_counter:
        _require(Callable, "clock", clock, "a function without arguments that returns seconds")
        if not _takes(clock):
            raise InputError(
                f"clock cannot be called without arguments (it is {_signature(clock)}). Give a function without "
                "arguments that returns seconds."
            )


def _takes(function: Callable, *args: Any) -> bool:
    """Whether a function can be called with these arguments; True where its signature cannot be seen."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return True
    try:
        signature.bind(*args)
    except TypeError:
        return False
    return True


def _signature(function: Callable) -> str:
    return f"{getattr(function, '__name__', type(function).__name__)}{inspect.signature(function)}"


def require_problem(problem: Any) -> None:
    """Refuse what is no problem, and say where one is: instances of the gallery and games have it."""
    if isinstance(problem, MisspecifiedVI):
        return
    has_one = isinstance(getattr(problem, "problem", None), MisspecifiedVI)
    needed = "a vv.MisspecifiedVI, its `.problem`," if has_one else "a vv.MisspecifiedVI"
    _require(MisspecifiedVI, "problem", problem, needed)


def _require(kind: Any, name: str, value: Any, needed: str) -> None:
    if not isinstance(value, kind):
        raise InputError(f"{name} is {type(value).__name__}; {needed} is needed.")
