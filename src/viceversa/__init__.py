"""Equilibria you do not fully know: variational inequalities whose parameter is learned while they are solved."""

from viceversa import gallery, lagrangian, steps
from viceversa.audit import Audit, Explanation, audit, explain
from viceversa.bounds import Bounds, RuntimeCertificate, bounds, runtime_certificate
from viceversa.catalogue import methods_table
from viceversa.certificates import Certificate, certify
from viceversa.compare import Comparison, compare
from viceversa.constants import Constant, Constants, TheorySteps, constants, theory_steps
from viceversa.driver import Record, Solution, Status, Trace, iterate, solve
from viceversa.errors import InputError, SolveError, UserFunctionError
from viceversa.expectation import constrained_minimax, fair_classifier
from viceversa.functions import callback_constraints, callback_operator
from viceversa.game import BestReplies, Game
from viceversa.imputation import imputed_equilibrium
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
from viceversa.problem import MisspecifiedVI
from viceversa.saddle import PessimisticSaddlePoint, SaddleLearning, SaddlePoint
from viceversa.sampling import FiniteSum, IndexedConstraints, NoisyOperator
from viceversa.schemes import Oracle, SemismoothNewton, Sequential, Simultaneous
from viceversa.sets import *

__version__ = "0.1.0"
