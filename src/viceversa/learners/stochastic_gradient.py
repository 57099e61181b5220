"""One projected step on a sample of H: learning from a stream of mini-batches."""

from __future__ import annotations

from typing import Any, ClassVar

import equinox as eqx
from jaxtyping import Array

from viceversa.errors import InputError
from viceversa.learners.base import Learner, LearnerState
from viceversa.learning.base import Learning
from viceversa.learning.sampled import SampledLearning
from viceversa.numerics import tree_add_scaled
from viceversa.steps import as_steps


class StochasticGradient(Learner):
    """θ_{k+1} = P_Θ[θ_k − η_k Ĥ(θ_k)],  Ĥ the mean of `batch` samples of H                        (1)

    H μ-strongly monotone, noise of bounded variance, η_k = η_0/(k + 1) with η_0 > 1/(2μ): E‖θ_k − θ*‖² = O(1/k).
    Needs `vv.SampledLearning`.

    Example:
        >>> import viceversa as vv
        >>> vv.StochasticGradient(vv.steps.Power(0.5, 1.0), batch=8).batch
        8
    """

    reference: ClassVar[str] = "jiang2016solution"
    step_counts: ClassVar[int] = 1
    stochastic: ClassVar[bool] = True

    rate: Any
    batch: int = eqx.field(static=True)

    def __init__(self, rate, batch: int = 1):
        self.rate = as_steps("StochasticGradient: rate", rate)
        if int(batch) != batch or batch < 1:
            raise InputError(f"StochasticGradient: batch is {batch}; a whole number >= 1 is needed.")
        self.batch = int(batch)

    def step(
        self, learning: Learning, state: LearnerState, x: Array | None = None, key: Array | None = None
    ) -> LearnerState:
        if not isinstance(learning, SampledLearning):
            raise InputError(
                f"StochasticGradient: the learning problem is {type(learning).__name__}, which gives no samples. Wrap it in "
                "vv.SampledLearning(...), or use vv.ProjectedGradient."
            )
        assert key is not None
        H = learning.sample_operator(state.theta, key, self.batch)
        theta_next = learning.set.project(tree_add_scaled(state.theta, -self.rate(state.k), H))  # (1)
        return LearnerState(k=state.k + 1, theta=theta_next)
