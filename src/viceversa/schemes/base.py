"""The contract of a scheme: one step of (x, λ, θ)."""

from __future__ import annotations

import inspect
from abc import abstractmethod
from typing import Any, ClassVar, NamedTuple

from jaxtyping import Array, Float, PyTree

from viceversa.errors import InputError
from viceversa.methods.base import Info, Method, OracleCounts
from viceversa.problem import MisspecifiedVI
from viceversa.quick_module import QuickModule


class Point(NamedTuple):
    """Where a scheme stands: the last iterate (x, λ, θ) and the average its theorem is about."""

    x: Float[Array, "..."]
    lam: Float[Array, " J"]
    theta: PyTree
    x_average: Float[Array, "..."]


class Scheme(QuickModule):
    """How (x, λ, θ) moves. Subclasses are final."""

    few_steps: ClassVar[bool] = False  # whether a run takes so few of them that compiling it takes longer
    takes_any_axes: ClassVar[bool] = (
        False  # whether a box with its axes in another order is all the same to it
    )

    def check(self, problem: MisspecifiedVI) -> None:
        """Refuse, in a sentence, a problem this scheme is not for; called once by the host before a run."""

    @abstractmethod
    def init(self, problem: MisspecifiedVI, x0: Array, theta0: PyTree, lam0: Array, key: Array) -> Any:
        """The state before the first step."""

    @abstractmethod
    def step(self, problem: MisspecifiedVI, state: Any) -> tuple[Any, Info]:
        """One iteration."""

    @abstractmethod
    def output(self, state: Any) -> Point:
        """The point of a state."""

    def pauses(self, state: Any) -> Array | None:
        """Whether the driver should look at the point before going on; None: only on its recording grid."""
        return None

    def converging(self, state: Any) -> Array | None:
        """Whether the next step is likely to be far better than this point, so that a mere `tol` is worth bettering."""
        return None

    def settled(self, state: Any) -> Array | None:
        """Whether small parts of the point have come to rest too, beside large ones that `tol` is measured by; None: not said."""
        return None

    def resumed(self, state: Any) -> Any:
        """The state to go on from after the driver has looked."""
        return state

    def gives_up(self, state: Any) -> Array | None:
        """Whether the scheme asks the host for help (`rescued`); None: never."""
        return None

    def is_tentative(self, state: Any) -> bool:
        """Whether the points of a state are thrown away, and their iterations not counted, where it gives up."""
        return False

    def blames_constraints(self, state: Any) -> bool:
        """Whether a scheme that gives up may be facing constraints which cannot be satisfied."""
        return True

    def rescued(self, problem: MisspecifiedVI, state: Any, is_far: bool) -> Any:
        """The state to go on from after the host has helped; `is_far`: nothing would be lost by starting elsewhere."""
        return state

    def phase(self, state: Any) -> Array | None:
        """Which of `phases` the last step belonged to; None: a scheme with one kind of step."""
        return None

    def phases(self, problem: MisspecifiedVI) -> tuple[str, ...]:
        """The kinds of step, each with the blocks it moves, for the trace."""
        return ()

    @abstractmethod
    def counts(self, problem: MisspecifiedVI, state: Any, n_steps: Any) -> OracleCounts:
        """Oracle calls after `n_steps` steps."""


def as_scheme(method: Any) -> Scheme:
    """A scheme as it is; a method with its learner, moving at the same time (Algorithm 1's order)."""
    from viceversa.learners import ProjectedGradient
    from viceversa.schemes.simultaneous import Simultaneous

    if isinstance(method, Scheme):
        return method
    if isinstance(method, Method):
        return Simultaneous(method, method.learner or ProjectedGradient(method.learning_rate))
    if isinstance(method, type) and issubclass(method, (Method, Scheme)):
        parameters = inspect.signature(method).parameters.values()
        needed = ", ".join(f"{each.name}=..." for each in parameters if each.default is each.empty)
        raise InputError(
            f"method is the class {method.__name__}. Make an instance: vv.{method.__name__}({needed})."
        )
    raise InputError(
        f"method is {type(method).__name__}; a viceversa method such as vv.AugmentedLagrangian(...) or a scheme is needed."
    )
