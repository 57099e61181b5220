"""Games: the pseudo-gradient is the published operator, the answer is published, and best replies judge independently."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import viceversa as vv
from unchecked import refused
from viceversa import precision

HARKER = [lambda x, t: x[0] ** 2 + 8 / 3 * x[0] * x[1] - 34 * x[0], lambda x, t: x[1] ** 2 + 1.25 * x[0] * x[1] - 24.25 * x[1]]  # fmt: skip


@pytest.mark.parametrize("name", vv.gallery.game_names())
def test_the_pseudo_gradient_of_the_costs_is_the_published_operator(name):
    game, instance = vv.gallery.game(name)
    rng = np.random.default_rng(0)
    with precision.double():
        theta = jax.tree.map(jnp.asarray, instance.theta_true)
        for _ in range(3):
            x = instance.problem.set.project(instance.x_true + rng.uniform(0.1, 1.0, instance.x_true.shape))
            ours, published = (
                np.asarray(p.operator(jnp.asarray(x), theta)) for p in (game.problem, instance.problem)
            )
            np.testing.assert_allclose(ours, published, atol=1e-12 * np.abs(published).max())


@pytest.mark.parametrize("name", ["harker", "river_basin", "murphy_price_cap", "rock_paper_scissors"])
def test_nobody_gains_at_the_published_answer_and_somebody_does_beside_it(name):
    game, instance = vv.gallery.game(name)
    at_answer = game.best_responses(instance.x_true, instance.theta_true)
    assert at_answer.holds, at_answer
    assert at_answer.relative.max() <= 1e-9
    inside = instance.problem.set.interior_point()
    beside = game.best_responses(
        0.9 * instance.x_true + 0.1 * inside + 0.03 * (np.arange(inside.size) == 0), instance.theta_true
    )
    assert not beside.holds, beside
    assert (beside.best_cost <= beside.cost + 1e-12 * np.abs(beside.cost)).all()


def test_best_replies_are_those_of_a_fine_grid():
    game = vv.Game(HARKER, set=vv.Box(0.0, 10.0, shape=2), constraints=lambda x, t: x.sum() - 12.0)
    x = np.array([4.0, 3.0])
    found = game.best_responses(x)
    grid = np.linspace(0.0, 10.0, 200_001)
    for i, cost in enumerate(HARKER):
        own = grid[grid <= 12.0 - x[1 - i]]
        values = cost((own, x[1]) if i == 0 else (x[0], own), 0.0)
        best = own[np.argmin(values)]
        np.testing.assert_allclose(found.x[i], best, atol=1e-4)
        np.testing.assert_allclose(found.gain[i], cost(x, 0.0) - values.min(), rtol=1e-7)


def test_harkers_game_is_solved_while_the_cap_is_learned_and_other_equilibria_pass_the_best_reply_test():
    game, instance = vv.gallery.game("harker", cap=12, misspecified=True)
    solution = game.solve(theta0=instance.theta0)
    np.testing.assert_allclose(solution.x, [10.0, 2.0], atol=1e-6)
    np.testing.assert_allclose(solution.multiplier, [7.75], rtol=1e-6)
    assert game.check(solution).holds
    assert "No player gains by deviating" in str(game.check(solution))
    # A generalised equilibrium that is no variational one: (9.5, 5.5) of the game with cap 15.
    published, _ = vv.gallery.game("harker")
    assert published.best_responses([9.5, 5.5]).holds
    assert not vv.certify(published.problem, [9.5, 5.5]).holds


def test_players_with_strategies_of_different_shapes_are_blocks_of_a_list():
    """A seller's quantity against a buyer's mix: blocks in their own shapes, in costs and shared constraints alike."""
    game = vv.Game(
        [lambda x, t: (x[0] - t) ** 2 + x[0] * x[1][0], lambda x, t: ((x[1] - np.array([0.2, 0.3, 0.5])) ** 2).sum() - x[0] * x[1][2]],
        sets=[vv.Box(0.0, 5.0, shape=()), vv.Simplex(3)],
        constraints=lambda x, t: x[0] + x[1][2] - 1.5,
        learning=vv.Known(2.0),
    )  # fmt: skip
    solution = game.solve(vv.AdaptiveAugmentedLagrangian())
    assert solution.success
    q, mix = game.strategies(solution.x)
    assert q.shape == ()
    np.testing.assert_allclose([mix.sum(), q + mix[2]], [1.0, 1.5], atol=1e-7)
    assert game.check(solution).holds
    assert not game.best_responses(np.array([0.3, 0.4, 0.3, 0.3])).holds


def test_rounding_in_a_fair_game_is_no_gain():
    """At uniform play every cost of rock, paper, scissors is zero; what is left there is rounding."""
    game, instance = vv.gallery.game("rock_paper_scissors")
    nearly = instance.x_true + 1e-16 * np.array([1, -1, 0, 0, 1, -1])
    assert game.best_responses(nearly, instance.theta_true).relative.max() <= 1e-12
    mixed = game.best_responses(instance.x_true + 0.01 * np.array([1, -1, 0, 0, 0, 0]), instance.theta_true)
    assert mixed.relative[1] > 0.01
    assert "Player 1 gains by deviating" in str(mixed)


def test_a_point_that_breaks_a_shared_constraint_is_no_equilibrium():
    game, instance = vv.gallery.game("river_basin")
    above = game.best_responses(1.2 * instance.x_true, instance.theta_true)
    assert above.violation > 0.05
    assert not above.holds


def test_odd_arguments_are_answered_in_sentences():
    box = vv.Box(0.0, 1.0, shape=2)
    with refused("costs is function; a list with one function"):
        vv.Game(HARKER[0], set=box)
    with refused("costs[1] is int"):
        vv.Game([HARKER[0], 3], set=box)
    with refused("points of shape (3,) for 2 costs"):
        vv.Game(HARKER, set=vv.Box(0.0, 1.0, shape=3))
    with refused("give either set"):
        vv.Game(HARKER)
    with refused("1 sets for 2 costs"):
        vv.Game(HARKER, sets=[vv.Box(0.0, 1.0, shape=())])
    with refused("costs[0]: returns shape (2,)", vv.UserFunctionError):
        vv.Game([lambda x, t: x, HARKER[1]], set=box)
    with refused("theta is missing"):
        vv.gallery.game("harker", misspecified=True)[0].best_responses([5.0, 9.0])
    with refused("there is no game 'chess'"):
        vv.gallery.game("chess")


AIMS = np.array([1.0, 2.0, 3.0])
OWN_SETS = [vv.Box(0.0, 9.0, shape=())] * 3


@pytest.mark.parametrize(
    "sets", [{"set": vv.Box(0.0, 9.0, shape=3)}, {"sets": OWN_SETS}], ids=["set", "sets"]
)
def test_costs_made_in_a_loop_that_all_read_the_last_player_are_noticed(sets):
    with pytest.warns(
        UserWarning, match=r"costs\[\d\] does not depend on x\[\d\].*lambda x, theta, i=i"
    ) as seen:
        vv.Game([lambda x, t: (x[i] - AIMS[i]) ** 2 for i in range(3)], **sets)  # noqa: B023
    assert [str(warning.message)[:13] for warning in seen] == ["Game: costs[0", "Game: costs[1"]
    vv.Game([lambda x, t, i=i: (x[i] - AIMS[i]) ** 2 for i in range(3)], **sets)  # in silence


def test_a_cost_that_is_shared_is_no_mistake_and_a_constant_one_only_a_warning():
    box = vv.Box(0.0, 9.0, shape=3)
    assert vv.Game([lambda x, t: ((x - AIMS) ** 2).sum() for _ in range(3)], set=box).solve().success
    with pytest.warns(UserWarning, match=r"costs\[2\] does not depend"):
        game = vv.Game([lambda x, t: (x[0] - 1.0) ** 2, lambda x, t: x[1] ** 2, lambda x, t: 4.0], set=box)
    np.testing.assert_allclose(game.solve().x[:2], [1.0, 0.0], atol=1e-6)


@pytest.mark.parametrize("left", [1e-8, 2e-13])
def test_a_player_who_all_but_stays_out_still_has_a_best_reply(left):
    """The other player uses up the shared total but for this: no reason to find no reply, or a gain by rounding."""
    game, instance = vv.gallery.game("rosen", misspecified=True)
    assert game.best_responses([1.0 - left, left], instance.theta_true).holds
    assert not game.best_responses([0.9, left], instance.theta_true).holds
    assert game.check(game.solve(theta0=instance.theta0)).holds
