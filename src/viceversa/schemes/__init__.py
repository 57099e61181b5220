"""Schemes: one step of (x, λ, θ), which is all the driver knows."""

from viceversa.schemes.base import Point, Scheme, as_scheme
from viceversa.schemes.simultaneous import Simultaneous

__all__ = ["Point", "Scheme", "Simultaneous", "as_scheme"]
