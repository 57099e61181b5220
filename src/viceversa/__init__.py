"""Equilibria you do not fully know: variational inequalities whose parameter is learned while they are solved."""

import sys
import types
from typing import TYPE_CHECKING, Any

from viceversa import lagrangian, methods, steps
from viceversa.certificates import Certificate, certify
from viceversa.driver import Record, Solution, Solver, Status, Trace, iterate, solve
from viceversa.errors import InputError, SolveError, UserFunctionError
from viceversa.functions import callback_constraints, callback_operator
from viceversa.lagrangian import Phi, augmented_lagrangian, grad_lambda_Phi, grad_x_Phi, phi
from viceversa.lazy import homes, names_later
from viceversa.learners import (
    ExtragradientLearner,
    NewtonLearner,
    PrimalDualLearner,
    ProjectedGradient,
    StochasticGradient,
)
from viceversa.learning import (
    CoupledLearning,
    CoupledLearningWarning,
    Known,
    LeastSquares,
    SampledLearning,
    SecondaryVI,
)
from viceversa.problem import MisspecifiedVI
from viceversa.schemes import Oracle, SemismoothNewton, Sequential, Simultaneous
from viceversa.sets import *

if TYPE_CHECKING:
    from viceversa import gallery
    from viceversa.audit import Audit, Explanation, audit, explain
    from viceversa.bounds import Bounds, RuntimeCertificate, bounds, runtime_certificate
    from viceversa.catalogue import methods_table
    from viceversa.compare import Comparison, compare
    from viceversa.constants import Constant, Constants, TheorySteps, constants, theory_steps
    from viceversa.expectation import constrained_minimax, fair_classifier
    from viceversa.game import BestReplies, Game
    from viceversa.imputation import imputed_equilibrium
    from viceversa.markets import cournot, isoelastic_cournot
    from viceversa.methods import *
    from viceversa.metrics import (
        EpsilonInterval,
        GapInterval,
        GapIntervals,
        epsilon,
        infeasibility,
        kkt_residual,
        minty_gap,
        natural_residual,
        parameter_error,
        relaxed_gap,
        relaxed_gaps,
    )
    from viceversa.portfolio import Covariances, Rebalancing, markowitz, read_returns
    from viceversa.saddle import PessimisticSaddlePoint, SaddleLearning, SaddlePoint
    from viceversa.sampling import FiniteSum, IndexedConstraints, NoisyOperator

# Methods, theory and applications are imported when they are first asked for: to solve a user's own problem takes none.
_LATER = {
    "audit": ("Audit", "Explanation", "audit", "explain"),
    "bounds": ("Bounds", "RuntimeCertificate", "bounds", "runtime_certificate"),
    "catalogue": ("methods_table",),
    "compare": ("Comparison", "compare"),
    "constants": ("Constant", "Constants", "TheorySteps", "constants", "theory_steps"),
    "expectation": ("constrained_minimax", "fair_classifier"),
    "gallery": (),
    "game": ("BestReplies", "Game"),
    "imputation": ("imputed_equilibrium",),
    "markets": ("cournot", "isoelastic_cournot"),
    "methods": tuple(methods.__all__),
    "metrics": (
        "EpsilonInterval", "GapInterval", "GapIntervals", "epsilon", "infeasibility", "kkt_residual", "minty_gap",
        "natural_residual", "parameter_error", "relaxed_gap", "relaxed_gaps",
    ),
    "portfolio": ("Covariances", "Rebalancing", "markowitz", "read_returns"),
    "saddle": ("PessimisticSaddlePoint", "SaddleLearning", "SaddlePoint"),
    "sampling": ("FiniteSum", "IndexedConstraints", "NoisyOperator"),
}  # fmt: skip
_HOME = homes(_LATER)
__getattr__, __dir__ = names_later(__name__, _LATER)


class _Package(types.ModuleType):
    """`vv.audit` is the function, also once the package of the same name, in which it lives, has been imported."""

    def __setattr__(self, name: str, value: Any) -> None:
        is_home = isinstance(value, types.ModuleType) and _HOME.get(name) == name
        super().__setattr__(name, getattr(value, name) if is_home else value)


sys.modules[__name__].__class__ = _Package

__version__ = "0.1.0"
