"""Methods: how (x, λ) moves at a given θ. One file each; no file imports another's."""

from viceversa.methods.adaptive_augmented_lagrangian import AdaptiveAugmentedLagrangian
from viceversa.methods.augmented_lagrangian import AugmentedLagrangian
from viceversa.methods.base import Method, OracleCounts
from viceversa.methods.extragradient_lagrangian import ExtragradientLagrangian
from viceversa.methods.tikhonov_lagrangian import TikhonovLagrangian

__all__ = [
    "AdaptiveAugmentedLagrangian",
    "AugmentedLagrangian",
    "ExtragradientLagrangian",
    "Method",
    "OracleCounts",
    "TikhonovLagrangian",
]
