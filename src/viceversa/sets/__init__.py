"""Closed convex sets: projection, linear oracle, size, and a derivative that is right at ties."""

from viceversa.sets.affine import Affine, Halfspace
from viceversa.sets.ball import Ball
from viceversa.sets.base import ConvexSet
from viceversa.sets.box import Box, Free, NonNegative
from viceversa.sets.intersection import Intersection
from viceversa.sets.polyhedron import Polyhedron
from viceversa.sets.product import Product
from viceversa.sets.simplex import Simplex

__all__ = [
    "Affine",
    "Ball",
    "Box",
    "ConvexSet",
    "Free",
    "Halfspace",
    "Intersection",
    "NonNegative",
    "Polyhedron",
    "Product",
    "Simplex",
]
