"""The constants the theory is stated in, for one problem, each with where it comes from."""

from viceversa.constants.compute import constants
from viceversa.constants.table import Constant, Constants

__all__ = ["Constant", "Constants", "constants"]
