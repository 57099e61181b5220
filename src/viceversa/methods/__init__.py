"""Methods: how (x, λ) moves at a given θ. One file each; no file imports another's.

Every method acts on z = (x, λ) and the Lagrangian's operator; without constraints that is the plain VI method, so one class
serves both. Three therefore have a second name: `Extragradient` and `MisspecifiedExtragradient` are
`ExtragradientLagrangian`, and `MisspecifiedTikhonov` is `TikhonovLagrangian`.
"""

# ruff: noqa: F401 (type checkers read the imports; at run time `MODULES` says where a name lives)

from typing import TYPE_CHECKING

from viceversa.lazy import homes, names_later

if TYPE_CHECKING:
    from viceversa.methods.accelerated_augmented_lagrangian import AcceleratedAugmentedLagrangian
    from viceversa.methods.adaptive_augmented_lagrangian import AdaptiveAugmentedLagrangian
    from viceversa.methods.adaptive_golden_ratio import AdaptiveGoldenRatio
    from viceversa.methods.anchored_extragradient import AnchoredExtragradient
    from viceversa.methods.augmented_lagrangian import AugmentedLagrangian
    from viceversa.methods.averaged import Averaged
    from viceversa.methods.base import Method, OracleCounts
    from viceversa.methods.extragradient_lagrangian import (
        Extragradient,
        ExtragradientLagrangian,
        MisspecifiedExtragradient,
    )
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
    from viceversa.methods.tikhonov_lagrangian import MisspecifiedTikhonov, TikhonovLagrangian
    from viceversa.methods.tseng import TsengForwardBackwardForward

# A file is read when its method is first asked for: the default solver takes one of them.
MODULES = {
    "accelerated_augmented_lagrangian": ("AcceleratedAugmentedLagrangian",),
    "adaptive_augmented_lagrangian": ("AdaptiveAugmentedLagrangian",),
    "adaptive_golden_ratio": ("AdaptiveGoldenRatio",),
    "anchored_extragradient": ("AnchoredExtragradient",),
    "augmented_lagrangian": ("AugmentedLagrangian",),
    "averaged": ("Averaged",),
    "base": ("Method", "OracleCounts"),
    "extragradient_lagrangian": ("Extragradient", "ExtragradientLagrangian", "MisspecifiedExtragradient"),
    "forward_reflected_backward": ("ForwardReflectedBackward",),
    "golden_ratio": ("GoldenRatio",),
    "ipalm": ("IPALM",),
    "learning_aware_primal_dual": ("LearningAwarePrimalDual",),
    "mirror_prox": ("MirrorProx",),
    "misspecified_subgradient": ("MisspecifiedSubgradient",),
    "popov": ("Popov",),
    "projection": ("ProjectionMethod",),
    "randomized_lagrangian": ("RandomizedLagrangian",),
    "restarted": ("Restarted",),
    "solodov_projection": ("SolodovProjection",),
    "stochastic_approximation": ("StochasticApproximation",),
    "tikhonov_lagrangian": ("MisspecifiedTikhonov", "TikhonovLagrangian"),
    "tseng": ("TsengForwardBackwardForward",),
}
__getattr__, __dir__ = names_later(__name__, MODULES)
__all__ = sorted(homes(MODULES))  # pyright: ignore[reportUnsupportedDunderAll]
