"""The constants the theory is stated in, for one problem, each with where it comes from, and steps made of them."""

from viceversa.constants.compute import constants
from viceversa.constants.multiplier_bound import MultiplierBound, multiplier_bound
from viceversa.constants.table import Constant, Constants
from viceversa.constants.theory_steps import TheorySteps, theory_steps

__all__ = [
    "Constant",
    "Constants",
    "MultiplierBound",
    "TheorySteps",
    "constants",
    "multiplier_bound",
    "theory_steps",
]
