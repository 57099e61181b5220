"""The driver: the only outer loop, how it stops, what it records, and the answer it returns."""

from viceversa.driver.recording import Record, Trace
from viceversa.driver.solution import Solution
from viceversa.driver.solve import iterate, solve
from viceversa.driver.solver import Solver
from viceversa.driver.status import Status

__all__ = ["Record", "Solution", "Solver", "Status", "Trace", "iterate", "solve"]
