"""Generalized Nash games from the players' costs: the pseudo-gradient by autodiff, best replies by another solver."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.interpreters import partial_eval
from jaxtyping import Array, PyTree

from viceversa import functions, precision
from viceversa.best_reply import Reply, best_reply
from viceversa.driver import Solution, solve
from viceversa.errors import InputError, UserFunctionError
from viceversa.learning import Known
from viceversa.learning.base import Learning
from viceversa.problem import MisspecifiedVI
from viceversa.schemes.interior_point import Lifted, lift
from viceversa.sets import Product
from viceversa.sets.base import ConvexSet

_N_AROUND = 3  # points within half of x at which costs are looked at, for their size


class Players(eqx.Module):
    """How the players' strategies lie in the joint x: x[i] is player i's, a row of one array or a block of a list."""

    shapes: tuple[tuple[int, ...], ...] = eqx.field(static=True)
    joined: bool = eqx.field(static=True)

    def view(self, x: Any) -> Any:
        """x as the costs see it: the array itself, or the list of blocks in their shapes."""
        if not self.joined:
            return x
        ends = np.cumsum([math.prod(shape) for shape in self.shapes]).tolist()
        starts = [0, *ends[:-1]]
        return [x[a:b].reshape(s) for a, b, s in zip(starts, ends, self.shapes, strict=True)]

    def join(self, blocks: Sequence[Any]) -> Any:
        """The joint x of the players' blocks."""
        xp: Any = jnp if any(isinstance(block, jax.Array) for block in blocks) else np
        return xp.concatenate([xp.ravel(block) for block in blocks]) if self.joined else xp.stack(blocks)


class PseudoGradient(eqx.Module):
    """F(x, θ) = (∇_{x_i} cost_i(x, θ))_i: every player's own marginal cost."""

    costs: list[Any]
    players: Players

    def __call__(self, x: Array, theta: PyTree) -> Array:
        at = self.players.view(x)
        return self.players.join([jax.grad(cost)(at, theta)[i] for i, cost in enumerate(self.costs)])


class OnBlocks(eqx.Module):
    """Shared constraints of the list of blocks, as a function of the flat x."""

    function: Any
    players: Players

    def __call__(self, x: Array, theta: PyTree) -> Array:
        return self.function(self.players.view(x), theta)


@dataclass(frozen=True)
class BestReplies:
    """What each player could gain by deviating alone: `gain[i]` = cost_i(x) − cost_i(best reply to the others).

    `relative[i]` is the gain over the largest of |cost_i| at x, around it, and what it changes by over a strategy of the
    player's size (taken as at least 10⁻³ of the largest); `violation` is the largest shared constraint at x over what it
    changes by across x, max_j f_j/Σ_i |∂_i f_j||x_i| (a reply may use as much of a constraint as x does, so rounding in x
    makes no reply impossible). Other generalised equilibria than the variational one pass too.
    """

    x: np.ndarray
    cost: np.ndarray
    best_cost: np.ndarray
    gain: np.ndarray
    relative: np.ndarray
    violation: float
    tol: float

    @property
    def holds(self) -> bool:
        """Whether no player gains more than `tol`, relatively, every reply was found, and x obeys the shared constraints."""
        return bool(np.all(self.relative <= self.tol)) and self.violation <= self.tol  # a NaN does not hold

    def __str__(self) -> str:
        failed = np.flatnonzero(np.isnan(self.gain))
        if failed.size:
            return f"No best reply was found for player {failed[0]}: the others' strategies may leave it no choice."
        i = int(np.argmax(self.relative))
        gains = self.relative[i] > self.tol
        verdict = f"Player {i} gains by deviating" if gains else "No player gains by deviating"
        return (
            f"{verdict}: the largest gain is {self.gain[i]:.3g}, {self.relative[i]:.1e} of player {i}'s cost {self.cost[i]:.6g} "
            f"(tolerance {self.tol:.0e}); shared constraints are exceeded by at most {max(self.violation, 0.0):.1e} of their size."
        )


class Game(eqx.Module):
    """Players who each minimise cost_i(x, θ) over their own x_i, with shared constraints f(x, θ) ≤ 0.

        x_i ∈ argmin { cost_i(y, x_{−i}, θ) : y ∈ X_i, f(y, x_{−i}, θ) ≤ 0 }   for every player i             (1)
        F(x, θ) = (∇_{x_i} cost_i(x, θ))_i                                                          (2)

    `problem` is the misspecified VI of (2) with one multiplier per shared constraint: its solution is the variational
    equilibrium, a solution of (1). Each cost_i is convex in x_i, and F monotone. x[i] is player i's strategy in every
    function: with `set` (one set of N rows) x is one array; with `sets` (one set per player) x is a list of blocks, and
    the solution's flat x is taken apart by `strategies`.

    Example:
        >>> import viceversa as vv
        >>> price = lambda x, theta: theta - x[0] - x[1]
        >>> game = vv.Game([lambda x, t: (1.0 - price(x, t)) * x[0], lambda x, t: (4.0 - price(x, t)) * x[1]],
        ...                set=vv.Box(0.0, 100.0, shape=2), learning=vv.Known(16.0))
        >>> solution = game.solve()
        >>> print(solution.x.round(6), game.check(solution).holds)
        [6. 3.] True
    """

    problem: MisspecifiedVI
    players: Players

    def __init__(
        self,
        costs: Sequence[Callable],
        set: ConvexSet | None = None,
        sets: Sequence[ConvexSet] | None = None,
        constraints: Callable | None = None,
        learning: Learning | None = None,
        constraint_names: Sequence[str] | None = None,
        symmetric: bool | None = None,
    ):
        costs = _checked_costs(costs)
        joint, self.players = _joint_set(len(costs), set, sets)
        learning = Known(0.0) if learning is None else learning
        if not isinstance(learning, Learning):
            raise InputError(
                f"Game: learning is {type(learning).__name__}; vv.LeastSquares, vv.SecondaryVI or vv.Known is needed."
            )
        x_like, theta_like = self.players.view(joint.interior_point()), learning.set.interior_point()
        traced = [functions.trace(f"costs[{i}]", cost, x_like, theta_like) for i, cost in enumerate(costs)]
        for i, cost in enumerate(traced):
            _check_scalar(i, functions.output_like(cost, x_like, theta_like))
        for i in _idle(traced, self.players, joint, theta_like):
            warnings.warn(
                f"Game: costs[{i}] does not depend on x[{i}], player {i}'s own strategy, so that any x[{i}] is a best reply. "
                "Functions made in a loop all read the last i: write `lambda x, theta, i=i: ...`.",
                stacklevel=4,  # past the calls by which Equinox makes an object
            )
        if constraints is not None and self.players.joined:
            constraints = OnBlocks(
                functions.trace("constraints", constraints, x_like, theta_like), self.players
            )
        self.problem = MisspecifiedVI(
            operator=PseudoGradient(traced, self.players),
            set=joint,
            constraints=constraints,
            learning=learning,
            constraint_names=constraint_names,
            symmetric=symmetric,
        )

    @property
    def n_players(self) -> int:
        """How many players there are."""
        return len(self.players.shapes)

    def strategies(self, x: Any) -> list[np.ndarray]:
        """The players' strategies in a joint x, each in its own shape."""
        view = self.players.view(self.problem.check_x("Game.strategies: x", x))
        return [np.asarray(view[i]) for i in range(self.n_players)]

    def solve(self, method: Any = None, **options: Any) -> Solution:
        """The variational equilibrium, by `vv.solve` with these options."""
        return solve(self.problem, method, **options)

    def best_responses(self, x: Any, theta: Any = None, tol: float = 1e-6) -> BestReplies:
        """Every player's best reply to the others in x, found anew by SciPy from the costs alone.

        `theta` may be left out when it is known. The solver's F, multipliers and state play no part: each player's
        problem (1) is solved from the middle of the player's set, and from the player's own x_i.
        """
        x = self.problem.check_x("Game.best_responses: x", x)
        if theta is None:
            if not self.problem.learning.is_known:
                raise InputError(
                    "Game.best_responses: theta is missing; this game learns it. Pass solution.theta."
                )
            theta = self.problem.learning.set.interior_point()
        theta = self.problem.check_theta("Game.best_responses: theta", theta)
        described = self._described()
        middle = self.problem.set.interior_point()
        around = [x * factor for factor in np.random.default_rng(0).uniform(0.5, 1.5, (_N_AROUND, *x.shape))]
        replies, near = [], []
        with precision.double():
            theta = jax.tree.map(jnp.asarray, theta)
            for i in range(self.n_players):
                look = _Glance(self, i, x, theta)
                replies.append(best_reply(look, self._own(i), x.ravel(), middle.ravel(), described))
                # In a fair game every cost is zero at the equilibrium: its size is that of costs around it.
                near.append(
                    max(abs(_Glance(self, i, at, theta)(at.ravel()[self._own(i)])[0]) for at in around)
                )
            values = np.asarray(self.problem.at(theta).f(jnp.asarray(x)))
        return _collect(self, x, replies, np.array(near), values, tol)

    def check(self, solution: Any, tol: float = 1e-6) -> BestReplies:
        """Whether a solution is an equilibrium, by the players' own best replies; print it for the sentence."""
        if not isinstance(solution, Solution):
            raise InputError(
                f"Game.check: solution is {type(solution).__name__}; a Solution of solve is needed."
            )
        return self.best_responses(solution.x, solution.theta, tol)

    def _described(self) -> Lifted:
        """The joint set as bounds, rows and balls."""
        try:
            described = lift(self.problem.set)
        except InputError:
            described = None
        if described is None or described.embedding is not None:
            raise InputError(
                f"Game.best_responses: a {type(self.problem.set).__name__} cannot be written as bounds, rows and balls, which the "
                "replies are found with. Build the players' sets from vv.Box, vv.Simplex, vv.Polyhedron, vv.Ball."
            )
        return described

    def _own(self, i: int) -> np.ndarray:
        """Where player i's strategy is in the ravelled x."""
        everything = np.arange(math.prod(self.problem.shape)).reshape(self.problem.shape)
        return self.players.view(everything)[i].ravel()


class _Glance:
    """Player i's cost and the shared constraints with their derivatives in the player's own strategy, as NumPy."""

    def __init__(self, game: Game, i: int, x: np.ndarray, theta: PyTree):
        self.game, self.i, self.x, self.theta = game, i, x, theta
        self._seen: tuple[bytes, Any] | None = None

    def __call__(self, own: np.ndarray) -> tuple[float, np.ndarray, np.ndarray, np.ndarray]:
        key = own.tobytes()
        if self._seen is None or self._seen[0] != key:
            problem = self.game.problem
            found = _look(
                problem.operator.costs[self.i],
                problem.constraints,
                self.game.players,
                self.i,
                self.x,
                self.theta,
                own,
            )
            value, gradient, f, jacobian = map(np.asarray, found)
            self._seen = (key, (float(value), gradient, f, jacobian))
        return self._seen[1]


@eqx.filter_jit
def _look(cost: Any, constraints: Any, players: Players, i: int, x: Any, theta: PyTree, own: Any) -> Any:
    view = players.view(jnp.asarray(x))

    def joint(at: Array) -> Array:
        strategy = at.reshape(players.shapes[i])
        return players.join([strategy if j == i else view[j] for j in range(len(players.shapes))])

    value, gradient = jax.value_and_grad(lambda at: cost(players.view(joint(at)), theta))(own)
    if constraints is None:
        return value, gradient, jnp.zeros(0), jnp.zeros((0, own.size))

    def shared(at: Array) -> Array:
        return jnp.reshape(constraints(joint(at), theta), (-1,))

    return value, gradient, shared(own), jax.jacrev(shared)(own)


def _collect(
    game: Game, x: np.ndarray, replies: list[Reply], near: np.ndarray, values: np.ndarray, tol: float
) -> BestReplies:
    cost, best = np.array([r.cost for r in replies]), np.array([r.best_cost for r in replies])
    joint = x.ravel().copy()
    for i, reply in enumerate(replies):
        joint[game._own(i)] = reply.own
    reach = np.maximum(sum(reply.reach for reply in replies), 1e-300)
    violation = float(np.max(values / reach, initial=0.0))
    gain = np.maximum(cost - best, 0.0)
    scale = np.maximum(np.maximum(np.abs(cost), near), np.array([r.slope for r in replies]))
    relative = np.where(gain > 0, gain / np.where(scale > 0, scale, 1.0), gain)
    return BestReplies(joint.reshape(x.shape), cost, best, gain, relative, violation, tol)


def _checked_costs(costs: Any) -> list[Callable]:
    if callable(costs) or not isinstance(costs, Sequence) or len(costs) == 0:
        raise InputError(
            f"Game: costs is {type(costs).__name__}; a list with one function cost_i(x, theta) per player is needed."
        )
    for i, cost in enumerate(costs):
        if isinstance(cost, functions.Callback) or not callable(cost):
            raise InputError(
                f"Game: costs[{i}] is {type(cost).__name__}; a function of (x, theta) written with numpy or jax.numpy is needed, "
                "because it is differentiated."
            )
    return list(costs)


def _joint_set(n_players: int, joint: Any, sets: Any) -> tuple[ConvexSet, Players]:
    if (joint is None) == (sets is None):
        raise InputError(
            "Game: give either set (one set whose first axis is the players) or sets (one per player)."
        )
    if sets is not None:
        if not isinstance(sets, (list, tuple)) or len(sets) != n_players:
            given = f"{len(sets)} sets" if isinstance(sets, (list, tuple)) else type(sets).__name__
            raise InputError(
                f"Game: sets is {given} for {n_players} costs; a list with one set per player is needed."
            )
        product = Product(list(sets))
        return product, Players(tuple(block.shape for block in product.blocks), True)
    if not isinstance(joint, ConvexSet) or not isinstance(joint.shape, tuple):
        raise InputError(
            f"Game: set is {type(joint).__name__}; a set of arrays such as vv.Box is needed (or sets=, one per player)."
        )
    if not joint.shape or joint.shape[0] != n_players:
        raise InputError(
            f"Game: set has points of shape {joint.shape} for {n_players} costs; the first axis must be the {n_players} players. "
            "Use sets=[...] where their strategies differ in shape."
        )
    return joint, Players((joint.shape[1:],) * n_players, False)


def _idle(costs: list[Any], players: Players, joint: ConvexSet, theta: PyTree) -> list[int]:
    """Players whose cost does not depend on their own strategy.

    That a program never reads x_i is seen from its text. Derivatives are taken only where players share a program and its
    numbers, as functions made in a loop do: to compile all of them takes as long as a solve.
    """
    found = [i for i, cost in enumerate(costs) if _never_reads(cost, i if players.joined else 0)]
    alike: dict[int, list[int]] = {}
    for i, cost in enumerate(costs):
        if isinstance(cost, functions.Program) and i not in found:
            alike.setdefault(id(cost.jaxpr), []).append(i)
    for group in alike.values():
        first = costs[group[0]]
        same = [i for i in group if all(map(np.array_equal, costs[i].data, first.data))]
        if len(same) > 1:
            gradient = players.view(_moved(first, players, joint, theta))
            found += [i for i in same if (np.asarray(gradient[i]) == 0).all()]
    return sorted(found)


def _never_reads(cost: Any, leaf: int) -> bool:
    """Whether an argument, the leaf of (x, θ) of this number, plays no part in a program."""
    if not isinstance(cost, functions.Program):
        return False
    _, used = partial_eval.dce_jaxpr(cost.jaxpr, [True] * len(cost.jaxpr.outvars))
    return not used[leaf]


def _moved(cost: Any, players: Players, joint: ConvexSet, theta: PyTree) -> np.ndarray:
    """The sum of |∇_x cost| over some irregular points of X."""
    middle = joint.interior_point()
    rng = np.random.default_rng(0)
    points = [
        np.asarray(joint.project(middle + size * (1.0 + np.abs(middle)) * rng.standard_normal(middle.shape)))
        for size in (0.01, 1.0)
    ]
    with precision.double():
        theta = jax.tree.map(jnp.asarray, theta)
        gradients = [np.asarray(_gradient(cost, players, jnp.asarray(x), theta)) for x in points]
    return np.sum(np.abs(gradients), axis=0)


@eqx.filter_jit
def _gradient(cost: Any, players: Players, x: Array, theta: PyTree) -> Array:
    return jax.grad(lambda at: cost(players.view(at), theta))(x)


def _check_scalar(i: int, output: Any) -> None:
    if not hasattr(output, "shape") or output.shape != () or not np.issubdtype(output.dtype, np.floating):
        given = (
            f"shape {output.shape} of {output.dtype}" if hasattr(output, "shape") else type(output).__name__
        )
        raise UserFunctionError(
            f"costs[{i}]: returns {given}; one floating-point number, player {i}'s cost, is needed."
        )
