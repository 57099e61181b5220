"""How the parameter θ is determined: the secondary VI, H(θ*)ᵀ(ϑ − θ*) ≥ 0 for all ϑ in Θ."""

from viceversa.learning.base import Learning, Modulus
from viceversa.learning.coupled import CoupledLearning, CoupledLearningWarning
from viceversa.learning.known import Known
from viceversa.learning.least_squares import LeastSquares
from viceversa.learning.sampled import SampledLearning
from viceversa.learning.secondary import SecondaryVI

__all__ = [
    "CoupledLearning",
    "CoupledLearningWarning",
    "Known",
    "Learning",
    "LeastSquares",
    "Modulus",
    "SampledLearning",
    "SecondaryVI",
]
