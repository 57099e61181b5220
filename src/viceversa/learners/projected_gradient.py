"""One projected step on the secondary VI: line 7 of Algorithm 1."""

from __future__ import annotations

from typing import Any, ClassVar

from jaxtyping import Array

from viceversa.learners.base import Learner, LearnerState
from viceversa.learning.base import Learning
from viceversa.numerics import tree_add_scaled
from viceversa.steps import as_steps


class ProjectedGradient(Learner):
    """θ_{k+1} = P_Θ[θ_k − η_k H(θ_k)]                                                              (1)

    H strongly monotone (μ) and Lipschitz (L): linear for 0 < η < 2μ/L², and for 0 < η < 2/L if H is a
    gradient. Left out, η is the best proved one: 2/(μ + L) for gradients, μ/L² otherwise.

    Example:
        >>> import viceversa as vv
        >>> vv.ProjectedGradient(0.1).step_counts
        1
    """

    reference: ClassVar[str] = "bauschke2011convex, Prop. 26.16"
    step_counts: ClassVar[int] = 1

    rate: Any

    def __init__(self, rate=None):
        self.rate = None if rate is None else as_steps("ProjectedGradient: rate", rate)

    def step(self, learning: Learning, state: LearnerState, x: Array | None = None, key=None) -> LearnerState:
        eta = learning.default_rate() if self.rate is None else self.rate(state.k)
        H = learning.operator(state.theta, x)
        theta_next = learning.set.project(tree_add_scaled(state.theta, -eta, H))  # (1)
        return LearnerState(k=state.k + 1, theta=theta_next)
