"""The contract of a method: how (x, λ) moves at a given θ."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from viceversa.errors import InputError
from viceversa.precision import as_float64
from viceversa.problem import MisspecifiedVI
from viceversa.steps import as_steps


class OracleCounts(NamedTuple):
    """How often each oracle is asked: F, f (values), Jfᵀ· (pullbacks), H; numbers, or traced inside the loop."""

    F: Any = 0
    f: Any = 0
    pullback: Any = 0
    H: Any = 0

    def __add__(self, other):  # type: ignore[override]
        return OracleCounts(*(a + b for a, b in zip(self, other, strict=True)))

    def times(self, n: Any) -> OracleCounts:
        """These counts n times over."""
        return OracleCounts(*(n * count for count in self))


class Info(NamedTuple):
    """What a step used, only for looking: γ_k and ρ_k."""

    step_size: Float[Array, ""]
    penalty: Float[Array, ""]


class Method(eqx.Module):
    """A frozen rule for (x, λ) at a given θ. Subclasses are final.

    `learner` and `learning_rate` say how θ moves when the method is passed to `solve` by itself;
    the method never looks at them (methods and learners meet only in a scheme).
    """

    reference: ClassVar[str]
    init_counts: ClassVar[OracleCounts]
    step_counts: ClassVar[OracleCounts]
    stochastic: ClassVar[bool] = False  # whether `step` draws random numbers and so needs a key

    learner: eqx.AbstractVar[Any]
    learning_rate: eqx.AbstractVar[Any]

    @abstractmethod
    def init(self, problem: MisspecifiedVI, theta: PyTree, x0: Array, lam0: Array) -> Any:
        """The state before the first step."""

    @abstractmethod
    def step(
        self, problem: MisspecifiedVI, theta: PyTree, state: Any, key: Array | None = None
    ) -> tuple[Any, Info]:
        """One iteration at θ_k."""

    @abstractmethod
    def output(self, state: Any) -> tuple[Array, Array]:
        """(x_k, λ_k), the last iterate."""

    @abstractmethod
    def ergodic(self, state: Any) -> tuple[Array, Float[Array, ""]]:
        """The point and the weight with which this iterate enters the average of the method's theorem."""

    def check(self, problem: MisspecifiedVI) -> None:
        """Refuse, in a sentence, a problem this method is not for; called once by the host before a run."""

    def counts(self, state: Any, n_steps: Any) -> OracleCounts:
        """Oracle calls after `n_steps` steps; a method with a line search reads them off its state."""
        return self.init_counts + self.step_counts.times(n_steps)


def check_learning(name: str, learner: Any, learning_rate: Any) -> tuple[Any, Any]:
    """`learner` or `learning_rate`, not both; a rate becomes a step rule."""
    if learner is not None and not hasattr(type(learner), "step_counts"):
        raise InputError(
            f"{name}: learner is {learner!r}; a learner such as vv.ProjectedGradient(rate) is needed."
        )
    if learner is not None and learning_rate is not None:
        raise InputError(f"{name}: both learner and learning_rate were given. Put the rate into the learner.")
    return learner, None if learning_rate is None else as_steps(f"{name}: learning_rate", learning_rate)


def one_of(name: str, value: str, allowed: tuple[str, ...]) -> str:
    """`value` if it is one of the allowed words."""
    if value not in allowed:
        raise InputError(f"{name} is {value!r}; one of {', '.join(map(repr, allowed))} is needed.")
    return value


def dual_start(name: str, multipliers: str, x0: Array, lam0: Array) -> Array:
    """λ_0, or one copy of it for each player (the first axis of x)."""
    if multipliers == "shared":
        return lam0
    if x0.ndim == 0:
        raise InputError(
            f"{name}: multipliers='per_player' needs players along the first axis of x, but x is a scalar."
        )
    return jnp.tile(lam0, (x0.shape[0], 1))


def fraction(name: str, value: Any, low: float, high: float) -> np.ndarray:
    """A number strictly between `low` and `high`."""
    array = as_float64(name, value)
    if array.shape != () or not low < array < high:
        raise InputError(f"{name} is {value}; a number between {low:g} and {high:g} is needed.")
    return array
