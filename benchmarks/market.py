"""The paper's Cournot market at any size, and its numbers for loops that know nothing of viceversa."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

import viceversa as vv

INTERCEPT, SLOPE, CAPACITY, SLOPE_START = 100.0, 1.0, 5.0, 2.0
PRICE_CAP, PENALTY, LEARNING_RATE = 12.0, 0.1, 1e-6


class Numbers(NamedTuple):
    """What one iteration needs: costs, price cap, Θ, H(b) = h b − c, and the steps γ, ρ, η."""

    r: np.ndarray
    g: np.ndarray
    a: float
    cap: float
    capacity: float
    b_low: float
    b_high: float
    h: float
    c: float
    gamma: float
    rho: float
    eta: float
    b0: float


def market(n_firms: int, n_products: int, seed: int = 0) -> tuple[vv.MisspecifiedVI, Numbers]:
    """r ~ U[1, 10], g ~ U[5, 20], 300 observed prices a − b X with X ~ U[2, 20]; the slope is learned.

    Without a cap the price would be about 20 at every size, so the cap binds.
    """
    rng = np.random.default_rng(seed)
    shape = (n_firms, n_products)
    r, g = rng.uniform(1.0, 10.0, shape), rng.uniform(5.0, 20.0, shape)
    quantity = rng.uniform(2.0, 20.0, 300)
    # Demand per firm stays the same as the market grows, so that the iteration does the same work at every size.
    slope, start = SLOPE * 50 / n_firms, SLOPE_START * 50 / n_firms
    price = INTERCEPT - slope * quantity
    problem = vv.cournot(
        (r, g), CAPACITY, (price, quantity), price_cap=PRICE_CAP, intercept=INTERCEPT,
        slope_bounds=(slope / 2.0, 2.0 * slope),
    )  # fmt: skip
    h = float(problem.learning.lipschitz)
    numbers = Numbers(
        r=problem.operator.costs.r, g=problem.operator.costs.g, a=INTERCEPT, cap=PRICE_CAP, capacity=CAPACITY,
        b_low=slope / 2.0, b_high=2.0 * slope, h=h, c=h * slope,
        gamma=1e-3, rho=PENALTY, eta=LEARNING_RATE, b0=start,
    )  # fmt: skip
    return problem, numbers


def method(numbers: Numbers) -> vv.AugmentedLagrangian:
    """Algorithm 1 with the steps of `numbers`."""
    return vv.AugmentedLagrangian(step_size=numbers.gamma, penalty=numbers.rho, learning_rate=numbers.eta)
