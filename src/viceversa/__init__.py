"""Equilibria you do not fully know: variational inequalities whose parameter is learned while they are solved."""

import importlib
from typing import TYPE_CHECKING, Any

from viceversa import lagrangian, steps
from viceversa.audit import Audit, Explanation, audit, explain
from viceversa.bounds import Bounds, RuntimeCertificate, bounds, runtime_certificate
from viceversa.catalogue import methods_table
from viceversa.certificates import Certificate, certify
from viceversa.compare import Comparison, compare
from viceversa.constants import Constant, Constants, TheorySteps, constants, theory_steps
from viceversa.driver import Record, Solution, Status, Trace, iterate, solve
from viceversa.errors import InputError, SolveError, UserFunctionError
from viceversa.functions import callback_constraints, callback_operator
from viceversa.lagrangian import Phi, augmented_lagrangian, grad_lambda_Phi, grad_x_Phi, phi
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
from viceversa.problem import MisspecifiedVI
from viceversa.saddle import PessimisticSaddlePoint, SaddleLearning, SaddlePoint
from viceversa.sampling import FiniteSum, IndexedConstraints, NoisyOperator
from viceversa.schemes import Oracle, SemismoothNewton, Sequential, Simultaneous
from viceversa.sets import *

if TYPE_CHECKING:
    from viceversa import gallery
    from viceversa.expectation import constrained_minimax, fair_classifier
    from viceversa.game import BestReplies, Game
    from viceversa.imputation import imputed_equilibrium
    from viceversa.markets import cournot, isoelastic_cournot
    from viceversa.portfolio import Covariances, Rebalancing, markowitz, read_returns

# Applications are imported when they are first asked for: a user's own problem needs none of them.
_APPLICATIONS = {
    "expectation": ("constrained_minimax", "fair_classifier"),
    "game": ("BestReplies", "Game"),
    "imputation": ("imputed_equilibrium",),
    "markets": ("cournot", "isoelastic_cournot"),
    "portfolio": ("Covariances", "Rebalancing", "markowitz", "read_returns"),
}
_HOME = {name: module for module, names in _APPLICATIONS.items() for name in names}


def __getattr__(name: str) -> Any:
    if name == "gallery":
        return importlib.import_module("viceversa.gallery")
    if name in _HOME:
        value = globals()[name] = getattr(importlib.import_module(f"viceversa.{_HOME[name]}"), name)
        return value
    raise AttributeError(f"module 'viceversa' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), "gallery", *_HOME})


__version__ = "0.1.0"
