"""Portfolios whose mean and covariance are learned from a table of returns."""

from viceversa.portfolio.covariances import Covariances
from viceversa.portfolio.markowitz import markowitz
from viceversa.portfolio.rebalancing import Rebalancing
from viceversa.portfolio.returns import read_returns

__all__ = ["Covariances", "Rebalancing", "markowitz", "read_returns"]
