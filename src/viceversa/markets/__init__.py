"""Markets built from a user's own data: firms' costs and capacities, observed prices and quantities, a price cap."""

from viceversa.markets.cournot import CournotOperator, PriceCap, cournot
from viceversa.markets.demand import LinearDemand
from viceversa.markets.firms import CostFunction, QuadraticCosts
from viceversa.markets.isoelastic import isoelastic_cournot

__all__ = [
    "CostFunction",
    "CournotOperator",
    "LinearDemand",
    "PriceCap",
    "QuadraticCosts",
    "cournot",
    "isoelastic_cournot",
]
