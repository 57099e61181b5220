"""Published equilibria as games: the players' own costs, whose pseudo-gradient is the operator of the instance."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp

from viceversa.errors import InputError
from viceversa.gallery.instance import Instance
from viceversa.gallery.known_answers import (
    cournot_duopoly,
    harker,
    internet_switching,
    rock_paper_scissors,
    rosen,
    shared_budget,
)
from viceversa.gallery.oligopolies import (
    constant_elasticity_price,
    electricity,
    murphy,
    murphy_price_cap,
    nodal_prices,
    river_basin,
)
from viceversa.game import Game


def _harker_costs() -> list[Callable]:
    return [
        lambda x, t: x[0] ** 2 + 8.0 / 3.0 * x[0] * x[1] - t["load"][0] * x[0],
        lambda x, t: x[1] ** 2 + 5.0 / 4.0 * x[0] * x[1] - t["load"][1] * x[1],
    ]


def _shared_budget_costs() -> list[Callable]:
    return [lambda x, t, i=i: x[i] ** 2 - t["load"][i] * x[i] for i in range(2)]


def _duopoly_costs() -> list[Callable]:
    return [lambda x, t, i=i: x[i] * (x[0] + x[1] - t) for i in range(2)]


def _river_basin_costs() -> list[Callable]:
    c1, c2 = (0.10, 0.12, 0.15), (0.01, 0.05, 0.01)

    def loss(i: int) -> Callable:
        return lambda x, t: (c1[i] + c2[i] * x[i]) * x[i] - (t["d1"] - t["d2"] * jnp.sum(x)) * x[i]

    return [loss(i) for i in range(3)]


def _murphy_costs() -> list[Callable]:
    c, beta = (10.0, 8.0, 6.0, 4.0, 2.0), (1.2, 1.1, 1.0, 0.9, 0.8)

    def loss(i: int) -> Callable:
        def cost(q: Any, t: Any) -> Any:
            power = 1.0 + 1.0 / beta[i]
            production = c[i] * q[i] + 5.0 / power * (q[i] / 5.0) ** power
            return production - constant_elasticity_price(jnp.sum(q), t) * q[i]

        return cost

    return [loss(i) for i in range(5)]


def _switching_costs() -> list[Callable]:
    return [lambda x, t, i=i: x[i] / t - x[i] / jnp.sum(x) for i in range(10)]


def _electricity_costs() -> list[Callable]:
    def loss(i: int) -> Callable:
        return lambda x, t: 15.0 * jnp.sum(x[i]) - nodal_prices(x, t) @ jnp.sum(x[i], axis=0)

    return [loss(i) for i in range(2)]


def _rosen_costs() -> list[Callable]:
    return [
        lambda x, t: x[0] ** 2 / 2 - x[0] * x[1],
        lambda x, t: t["curvature"] * x[1] ** 2 / 2 + x[0] * x[1],
    ]


def _scissors_costs() -> list[Callable]:
    def loss(x: Any, t: Any) -> Any:
        (u, v), (a, b, c) = x, t
        return (
            a * (u[0] * v[1] - u[1] * v[0])
            + b * (u[2] * v[0] - u[0] * v[2])
            + c * (u[1] * v[2] - u[2] * v[1])
        )

    return [loss, lambda x, t: -loss(x, t)]


_GAMES: dict[str, tuple[Callable[..., Instance], Callable[[], list[Callable]]]] = {
    "harker": (harker, _harker_costs),
    "shared_budget": (shared_budget, _shared_budget_costs),
    "cournot_duopoly": (cournot_duopoly, _duopoly_costs),
    "river_basin": (river_basin, _river_basin_costs),
    "murphy": (murphy, _murphy_costs),
    "murphy_price_cap": (murphy_price_cap, _murphy_costs),
    "internet_switching": (internet_switching, _switching_costs),
    "electricity": (electricity, _electricity_costs),
    "rosen": (rosen, _rosen_costs),
    "rock_paper_scissors": (rock_paper_scissors, _scissors_costs),
}


def game(name: str, **options: Any) -> tuple[Game, Instance]:
    """A published equilibrium problem as a game of the players' own costs, and the instance with its answer.

    `options` go to the instance (`misspecified=True`, or harker's `cap`). Names: `game_names()`.

    Example:
        >>> import viceversa as vv
        >>> game, instance = vv.gallery.game("river_basin")
        >>> print(game.solve().x.round(5), instance.published["x"])
        [21.1448  16.02785  2.72596] [21.144796, 16.027853, 2.725963]
    """
    if name not in _GAMES:
        raise InputError(f"gallery.game: there is no game {name!r}; there are {', '.join(_GAMES)}.")
    function, costs = _GAMES[name]
    instance = function(**options)
    problem, players = instance.problem, costs()
    where: dict[str, Any] = {"set": problem.set}
    if name == "rock_paper_scissors":
        blocks: Any = problem.set
        where = {"sets": blocks.blocks}
    built = Game(
        players,
        **where,
        constraints=problem.constraints,
        learning=problem.learning,
        constraint_names=problem.constraint_names if problem.n_constraints else None,
        symmetric=problem.symmetric,
    )
    return built, instance


def game_names() -> list[str]:
    """The published problems that are games of a finite number of players.

    Example:
        >>> import viceversa as vv
        >>> "harker" in vv.gallery.game_names()
        True
    """
    return list(_GAMES)


__all__ = ["game", "game_names"]
