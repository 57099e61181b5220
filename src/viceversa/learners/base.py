"""The contract of a learner: how θ moves on the secondary VI."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Int, PyTree

from viceversa.learning.base import Learning


class LearnerState(eqx.Module):
    """k and θ_k."""

    k: Int[Array, ""]
    theta: PyTree


class Learner(eqx.Module):
    """A frozen rule for θ. Subclasses are final."""

    reference: ClassVar[str]
    step_counts: ClassVar[int]  # evaluations of H in one step
    stochastic: ClassVar[bool] = False  # whether `step` draws random numbers and so needs a key

    def init(self, learning: Learning, theta0: PyTree) -> LearnerState:
        """The state before the first step."""
        return LearnerState(k=jnp.asarray(0), theta=theta0)

    @abstractmethod
    def step(self, learning: Learning, state: Any, x: Array | None = None, key: Array | None = None) -> Any:
        """One learning step; `x` is only for learning that depends on what is played."""

    def theta(self, state: Any) -> PyTree:
        """θ_k."""
        return state.theta
