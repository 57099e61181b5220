"""Extragradient on the secondary VI, the replacement for line 7 that the paper's closing remark names."""

from __future__ import annotations

from typing import Any, ClassVar

from jaxtyping import Array

from viceversa.learners.base import Learner, LearnerState
from viceversa.learning.base import Learning
from viceversa.numerics import tree_add_scaled
from viceversa.steps import as_steps


class ExtragradientLearner(Learner):
    """ϑ = P_Θ[θ_k − η_k H(θ_k)],   θ_{k+1} = P_Θ[θ_k − η_k H(ϑ)]                                   (1), (2)

    Linear for strongly monotone H and 0 < η < 1/L; far better than one projected step when H is nearly
    skew (μ ≪ L). Left out, η is 1/(2L).

    Example:
        >>> import viceversa as vv
        >>> vv.ExtragradientLearner().step_counts
        2
    """

    reference: ClassVar[str] = "korpelevich1976extragradient"
    step_counts: ClassVar[int] = 2

    rate: Any

    def __init__(self, rate=None):
        self.rate = None if rate is None else as_steps("ExtragradientLearner: rate", rate)

    def step(self, learning: Learning, state: LearnerState, x: Array | None = None, key=None) -> LearnerState:
        eta = 0.5 / learning.lipschitz if self.rate is None else self.rate(state.k)
        H = learning.operator(state.theta, x)
        midpoint = learning.set.project(tree_add_scaled(state.theta, -eta, H))  # (1)
        H_mid = learning.operator(midpoint, x)
        theta_next = learning.set.project(tree_add_scaled(state.theta, -eta, H_mid))  # (2)
        return LearnerState(k=state.k + 1, theta=theta_next)
