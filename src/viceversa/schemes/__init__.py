"""Schemes: one step of (x, λ, θ), which is all the driver knows."""

from viceversa.schemes.base import Point, Scheme, as_scheme
from viceversa.schemes.oracle import Oracle
from viceversa.schemes.sequential import Sequential
from viceversa.schemes.simultaneous import Simultaneous

__all__ = ["Oracle", "Point", "Scheme", "Sequential", "Simultaneous", "as_scheme"]
