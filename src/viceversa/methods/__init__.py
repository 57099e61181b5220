"""Methods: how (x, λ) moves at a given θ. One file each; no file imports another's.

Every method acts on z = (x, λ) and the Lagrangian's operator; without constraints that is the plain VI method, so one class
serves both. Three therefore have a second name: `Extragradient` and `MisspecifiedExtragradient` are
`ExtragradientLagrangian`, and `MisspecifiedTikhonov` is `TikhonovLagrangian`.
"""

from viceversa.methods.accelerated_augmented_lagrangian import AcceleratedAugmentedLagrangian
from viceversa.methods.adaptive_augmented_lagrangian import AdaptiveAugmentedLagrangian
from viceversa.methods.adaptive_golden_ratio import AdaptiveGoldenRatio
from viceversa.methods.anchored_extragradient import AnchoredExtragradient
from viceversa.methods.augmented_lagrangian import AugmentedLagrangian
from viceversa.methods.averaged import Averaged
from viceversa.methods.base import Method, OracleCounts
from viceversa.methods.extragradient_lagrangian import ExtragradientLagrangian
from viceversa.methods.forward_reflected_backward import ForwardReflectedBackward
from viceversa.methods.golden_ratio import GoldenRatio
from viceversa.methods.ipalm import IPALM
from viceversa.methods.learning_aware_primal_dual import LearningAwarePrimalDual
from viceversa.methods.mirror_prox import MirrorProx
from viceversa.methods.misspecified_subgradient import MisspecifiedSubgradient
from viceversa.methods.popov import Popov
from viceversa.methods.projection import ProjectionMethod
from viceversa.methods.randomized_lagrangian import RandomizedLagrangian
from viceversa.methods.restarted import Restarted
from viceversa.methods.solodov_projection import SolodovProjection
from viceversa.methods.stochastic_approximation import StochasticApproximation
from viceversa.methods.tikhonov_lagrangian import TikhonovLagrangian
from viceversa.methods.tseng import TsengForwardBackwardForward

Extragradient = ExtragradientLagrangian
MisspecifiedExtragradient = ExtragradientLagrangian
MisspecifiedTikhonov = TikhonovLagrangian

__all__ = [
    "IPALM",
    "AcceleratedAugmentedLagrangian",
    "AdaptiveAugmentedLagrangian",
    "AdaptiveGoldenRatio",
    "AnchoredExtragradient",
    "AugmentedLagrangian",
    "Averaged",
    "Extragradient",
    "ExtragradientLagrangian",
    "ForwardReflectedBackward",
    "GoldenRatio",
    "LearningAwarePrimalDual",
    "Method",
    "MirrorProx",
    "MisspecifiedExtragradient",
    "MisspecifiedSubgradient",
    "MisspecifiedTikhonov",
    "OracleCounts",
    "Popov",
    "ProjectionMethod",
    "RandomizedLagrangian",
    "Restarted",
    "SolodovProjection",
    "StochasticApproximation",
    "TikhonovLagrangian",
    "TsengForwardBackwardForward",
]
