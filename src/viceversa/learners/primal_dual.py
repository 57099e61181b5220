"""One accelerated primal–dual step on a learning problem that is a saddle point."""

from __future__ import annotations

from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, PyTree

from viceversa.errors import InputError
from viceversa.learners.base import Learner
from viceversa.learning.base import Learning
from viceversa.numerics import tree_add_scaled, tree_subtract
from viceversa.precision import as_float64
from viceversa.sets import Product


class PrimalDualLearnerState(eqx.Module):
    """k, (θ_k, w_k) and ∇_wφ(θ_{k−1}, w_{k−1})."""

    k: Int[Array, ""]
    theta: PyTree
    slope_prev: PyTree


class PrimalDualLearner(Learner):
    """One primal–dual step on min_θ max_w φ(θ, w), for `vv.SaddleLearning`:

        w_{k+1} = P_W[w_k + σ(2∇_wφ(θ_k, w_k) − ∇_wφ(θ_{k−1}, w_{k−1}))]                            (1)
        θ_{k+1} = P_Θ[θ_k − τ∇_θφ(θ_k, w_{k+1})]                                                    (2)

    Linear for φ strongly convex–strongly concave and τ, σ of the order 1/L. Left out, τ = σ = 1/(2L).

    Example:
        >>> import viceversa as vv
        >>> vv.PrimalDualLearner(0.1).step_counts
        2
    """

    reference: ClassVar[str] = "ahmadi2025learning; hamedani2021primal"
    step_counts: ClassVar[int] = 2

    tau: Any
    ratio: np.ndarray

    def __init__(self, rate=None, ratio=1.0):
        self.tau = None if rate is None else as_float64("PrimalDualLearner: rate", rate)
        self.ratio = as_float64("PrimalDualLearner: ratio", ratio)
        for name, value in (("rate", self.tau), ("ratio", self.ratio)):
            if value is not None and (value.shape != () or not value > 0):
                raise InputError(f"PrimalDualLearner: {name} is {value}; one positive number is needed.")

    def init(self, learning: Learning, theta0: PyTree) -> Any:
        _parts(learning)
        return PrimalDualLearnerState(jnp.asarray(0), theta0, jax.tree.map(jnp.zeros_like, theta0["w"]))

    def step(
        self, learning: Learning, state: PrimalDualLearnerState, x: Array | None = None, key=None
    ) -> PrimalDualLearnerState:
        sets = _parts(learning)
        tau = 0.5 / learning.lipschitz if self.tau is None else self.tau
        sigma = self.ratio * tau
        theta, w = state.theta["theta"], state.theta["w"]
        slope = jax.tree.map(jnp.negative, learning.operator(state.theta, x)["w"])  # H's part is −∇_wφ
        # The first step has no older gradient: θ_{−1} = θ_0.
        change = tree_subtract(slope, state.slope_prev)
        momentum = jnp.where(state.k == 0, 0.0, 1.0)
        w_next = sets["w"].project(
            tree_add_scaled(tree_add_scaled(w, sigma, slope), sigma * momentum, change)
        )  # (1)
        H = learning.operator({"theta": theta, "w": w_next}, x)
        theta_next = sets["theta"].project(tree_add_scaled(theta, -tau, H["theta"]))  # (2)
        return PrimalDualLearnerState(state.k + 1, {"theta": theta_next, "w": w_next}, slope)


def _parts(learning: Learning) -> dict:
    if not (isinstance(learning.set, Product) and isinstance(learning.set.blocks, dict)) or set(
        learning.set.blocks
    ) != {"theta", "w"}:
        raise InputError(
            "PrimalDualLearner: the learning problem is not a saddle point in {'theta', 'w'}. Build it with "
            "vv.SaddleLearning(phi, set_theta, set_w)."
        )
    return learning.set.blocks
