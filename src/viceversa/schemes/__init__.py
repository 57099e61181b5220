"""Schemes: one step of (x, λ, θ), which is all the driver knows."""

from viceversa.schemes.base import Point, Scheme, as_scheme
from viceversa.schemes.oracle import Oracle
from viceversa.schemes.semismooth_newton import SemismoothNewton
from viceversa.schemes.sequential import Sequential
from viceversa.schemes.simultaneous import Simultaneous

__all__ = ["Oracle", "Point", "Scheme", "SemismoothNewton", "Sequential", "Simultaneous", "as_scheme"]
