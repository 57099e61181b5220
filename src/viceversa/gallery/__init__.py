"""Problems with known truth: the paper's market, published equilibria, and planted ones of any size."""

from viceversa.gallery.cournot import cournot, cournot_constants
from viceversa.gallery.instance import Instance

__all__ = ["Instance", "cournot", "cournot_constants"]
