"""A market from a user's own data: every form of the table, any convex cost, and sentences for what is wrong."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

import viceversa as vv
from viceversa import precision

QUANTITY = np.array([4.0, 9.0, 13.0, 18.0])
PRICE = 60.0 - 1.5 * QUANTITY
TABLE = {"price": PRICE, "quantity": QUANTITY}
R, G, CAP = np.array([1.0, 2.0, 4.0]), np.array([5.0, 3.0, 8.0]), np.array([10.0, 6.0, 12.0])


class CubicCosts(eqx.Module):
    """g x + k x³ per firm and product."""

    g: np.ndarray
    k: np.ndarray

    def __call__(self, x):
        return self.g * x + self.k * x**3


@pytest.mark.parametrize(
    "observations",
    [
        TABLE,
        pd.DataFrame(TABLE)[["quantity", "price"]],
        np.column_stack([PRICE, QUANTITY]),
        (list(PRICE), list(QUANTITY)),
    ],
    ids=["dict", "frame", "array", "tuple"],
)
def test_every_form_of_the_table_gives_the_same_fit(observations):
    problem = vv.cournot((R, G), CAP, observations)
    fitted = problem.learning.unconstrained_minimum()
    assert float(fitted["intercept"]) == pytest.approx(60.0, rel=1e-12)
    assert float(fitted["slope"]) == pytest.approx(1.5, rel=1e-12)
    assert problem.shape == (3, 1)
    assert problem.n_constraints == 0
    assert float(problem.learning.set.blocks["slope"].upper) == pytest.approx(6.0)


def test_products_have_demand_of_their_own():
    rng = np.random.default_rng(0)
    quantity = rng.uniform(1, 20, (30, 2))
    price = np.array([80.0, 50.0]) - np.array([2.0, 0.5]) * quantity
    as_columns = vv.cournot((R, G), CAP, {"price": price, "quantity": quantity}, price_cap=[30.0, 40.0])
    rows = rng.permutation(60)
    frame = pd.DataFrame(
        {
            "price": price.ravel()[rows],
            "quantity": quantity.ravel()[rows],
            "product": np.tile(["gas", "power"], 30)[rows],
        }
    )
    as_rows = vv.cournot((R, G), CAP, frame, price_cap=[30.0, 40.0])
    assert as_rows.constraint_names == ("price_cap[gas]", "price_cap[power]")
    assert as_columns.constraint_names == ("price_cap[0]", "price_cap[1]")
    for problem in (as_columns, as_rows):
        theta = problem.learning.unconstrained_minimum()
        np.testing.assert_allclose(theta["intercept"], [80.0, 50.0], rtol=1e-12)
        np.testing.assert_allclose(theta["slope"], [2.0, 0.5], rtol=1e-12)
        assert problem.shape == (3, 2)
        x = np.random.default_rng(1).uniform(0, 6, (3, 2))
        with precision.double():
            f = np.asarray(problem.at(theta).f(jnp.asarray(x)))
        np.testing.assert_allclose(
            f, [80 - 2 * x[:, 0].sum() - 30, 50 - 0.5 * x[:, 1].sum() - 40], rtol=1e-10
        )
    known = vv.cournot((R, G), CAP, frame, intercept=[80.0, 50.0])
    np.testing.assert_allclose(known.learning.unconstrained_minimum(), [2.0, 0.5], rtol=1e-12)


def test_quadratic_costs_agree_with_the_same_costs_as_a_function():
    column = lambda v: v[:, None]
    x = np.array([[3.0], [1.0], [2.5]])
    pair = vv.cournot((R, G), CAP, TABLE, price_cap=40.0)
    for costs in (
        lambda x: np.exp(np.log(0.5 * column(R))) * x**2 + column(G) * x,  # NumPy style
        lambda x: jnp.sum(0.5 * column(R) * x**2 + column(G) * x, axis=1),  # one cost per firm
    ):
        problem = vv.cournot(costs, CAP, TABLE, price_cap=40.0)
        theta = {"intercept": np.asarray(60.0), "slope": np.asarray(1.5)}
        with precision.double():
            expected = np.asarray(pair.at(theta).F(jnp.asarray(x)))
            np.testing.assert_allclose(np.asarray(problem.at(theta).F(jnp.asarray(x))), expected, rtol=1e-12)


def test_no_firm_gains_by_deviating_from_the_equilibrium_of_any_convex_costs():
    costs = CubicCosts(G[:, None], np.array([[0.2], [0.1], [0.05]]))
    problem = vv.cournot(costs, CAP, TABLE, intercept=60.0, price_cap=30.0)
    solution = vv.solve(problem, vv.AdaptiveAugmentedLagrangian(), tol=1e-9)
    assert solution.success, solution
    x, lam = solution.x[:, 0], float(solution.multiplier[0])
    assert lam > 0.1
    assert 60 - 1.5 * x.sum() == pytest.approx(30.0, abs=1e-6)
    for i in range(3):
        own = np.linspace(0.0, CAP[i], 20001)
        # The regulator pays λ for every unit by which the price falls: that is what the shadow price means.
        profit = (60 - 1.5 * (x.sum() - x[i] + own)) * own - costs.g[i, 0] * own - costs.k[i, 0] * own**3
        profit = profit + lam * 1.5 * own
        assert abs(own[np.argmax(profit)] - x[i]) < 2e-3


def test_a_market_without_capacities_or_with_a_shared_number_needs_n_firms():
    problem = vv.cournot((1.0, 5.0), np.inf, TABLE, n_firms=4, n_products=2, market="pooled", price_cap=30.0)
    assert problem.shape == (4, 2)
    assert problem.constraint_names == ("price_cap[0]",)
    assert not problem.set.bounded


def frame_with(**changes: Any) -> dict:
    return {**TABLE, **changes}


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"costs": "cheap"}, r"costs is str; a pair \(r, g\)"),
        ({"costs": (R, G, G)}, r"costs is tuple; a pair \(r, g\)"),
        ({"costs": ([1.0, 2.0], G)}, r"the number of firms is not clear: .*costs \(r\) says 2"),
        ({"costs": (-R, G)}, "r is -1 for firm 0, product 0"),
        ({"costs": (1.0, 2.0), "capacities": 5.0}, "Pass n_firms="),
        ({"costs": lambda x: x.sum()}, r"returns shape \(\) for x of shape \(3, 1\)"),
        ({"costs": lambda x: x * x.sum()}, "another firm's cost changes with the output of firm 0"),
        (
            {"costs": lambda x: x - jnp.array([0.0, 1.0, 0.0])[:, None] * x**2},
            "firm 1 has a cost that is not convex",
        ),
        ({"costs": lambda x: jnp.sin(x)}, "not convex"),
        ({"costs": lambda x: x * jnp.log(x)}, "marginal cost of firm 0, product 0 at output 0 is"),
        ({"costs": lambda x: undefined(x)}, "your function"),
        ({"capacities": [5.0, -1.0, 5.0]}, "capacities is negative at 1 of 3 entries"),
        ({"capacities": [5.0, np.nan, 5.0]}, "capacities has NaN"),
        ({"observations": None}, "observations is missing"),
        ({"observations": {"price": PRICE}}, "quantity is missing"),
        ({"observations": frame_with(price=[np.nan, 1, 2, 3])}, "price has NaN at 1 of 4"),
        ({"observations": frame_with(price=PRICE[:3])}, "must agree, row by row"),
        ({"observations": frame_with(quantity=-QUANTITY)}, "quantity is negative at 4 of 4"),
        ({"observations": frame_with(quantity=np.full(4, 7.0))}, "at least two different quantities"),
        ({"observations": {"price": [3.0], "quantity": [1.0]}}, r"1 row\(s\) with quantities all equal"),
        ({"observations": {"price": [], "quantity": []}}, "at least one row"),
        ({"observations": np.ones((4, 3))}, r"so \(T, 2\)"),
        ({"observations": (QUANTITY, PRICE, PRICE)}, "tuple of 3"),
        ({"observations": frame_with(price=QUANTITY)}, "price does not fall with quantity"),
        (
            {"observations": frame_with(quantity=np.zeros(4)), "intercept": 60.0},
            "says nothing about the slope",
        ),
        ({"learn": "slope"}, "needs the known intercept"),
        ({"learn": "both", "intercept": 60.0}, "Drop one of them"),
        ({"learn": "all"}, "'slope' or 'both'"),
        ({"intercept": 10.0}, "intercept = 10 is above the prices"),
        ({"intercept": [60.0, 60.0]}, "intercept has shape"),
        ({"price_cap": 60.0}, "never binds"),
        ({"price_cap": 0.0}, "a cap > 0 is needed"),
        ({"price_cap": [30.0, 30.0]}, r"price_cap has shape \(2,\)"),
        ({"price_cap": 10.0, "capacities": 3.0}, "even with every firm at capacity it sells at 46.5"),
        ({"market": "auction"}, "'separable' or 'pooled'"),
        ({"slope_bounds": (0.0, 3.0)}, "0 < lower"),
        ({"slope_bounds": 3.0}, r"a pair \(lower, upper\)"),
        (
            {"market": "pooled", "observations": frame_with(product=["a", "a", "b", "b"])},
            "a pooled market has one price",
        ),
    ],
    ids=lambda value: value[:30] if isinstance(value, str) else "",
)
def test_what_is_wrong_is_said_in_a_sentence(arguments, sentence):
    given = {"costs": (R, G), "capacities": CAP, "observations": TABLE} | arguments
    with pytest.raises(vv.InputError, match=sentence):
        vv.cournot(**given)
