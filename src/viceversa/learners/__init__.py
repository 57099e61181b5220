"""Learners: how θ moves. The paper's line 7 is `ProjectedGradient`; any linearly convergent one will do."""

from viceversa.learners.base import Learner
from viceversa.learners.extragradient import ExtragradientLearner
from viceversa.learners.newton import NewtonLearner
from viceversa.learners.primal_dual import PrimalDualLearner
from viceversa.learners.projected_gradient import ProjectedGradient
from viceversa.learners.stochastic_gradient import StochasticGradient

__all__ = [
    "ExtragradientLearner",
    "Learner",
    "NewtonLearner",
    "PrimalDualLearner",
    "ProjectedGradient",
    "StochasticGradient",
]
