"""Closed convex sets: projection, linear oracle, size, and a derivative that is right at ties."""

from viceversa.sets.ball import Ball
from viceversa.sets.base import ConvexSet
from viceversa.sets.box import Box, Free, NonNegative
from viceversa.sets.product import Product
from viceversa.sets.simplex import Simplex

__all__ = ["Ball", "Box", "ConvexSet", "Free", "NonNegative", "Product", "Simplex"]
