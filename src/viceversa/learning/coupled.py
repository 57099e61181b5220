"""Learning that depends on what is played: H(θ, x), outside the theory of the paper."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from viceversa import functions
from viceversa.errors import InputError, UserFunctionError
from viceversa.learning.base import Learning, Provenance
from viceversa.precision import as_finite_float64
from viceversa.sets.base import ConvexSet, is_shape


class CoupledLearningWarning(UserWarning):
    """Learning depends on the decisions, which the convergence theorem does not cover."""


class CoupledLearning(Learning):
    """θ* in Θ with H(θ*, x*)ᵀ(ϑ − θ*) ≥ 0 for all ϑ in Θ: beliefs corrected from what is observed while playing.

    For example firms that see the price but not the slope θ of demand, H(θ, x) = X̃(θX̃ − (a − p_observed(x))) (Jiang,
    Shanbhag & Meyn 2011). The joint map of (x, θ) is in general **not** monotone: there can be several fixed points, and
    convergence depends on the start. No theorem of this package covers it, which a warning says once.

    `mu` and `lipschitz` are the moduli of H(·, x) in θ, taken on trust: they set the default learning rate of named methods
    and enter the reported learning error, which is an estimate at the current x. Left out, they count as 1 for that rate and
    not at all for the error, which is then told by a Newton step on H; the default solver needs neither.

    Example:
        >>> import warnings, viceversa as vv
        >>> with warnings.catch_warnings():
        ...     warnings.simplefilter("ignore", vv.CoupledLearningWarning)
        ...     learning = vv.CoupledLearning(lambda theta, x: theta - x.sum(), set=vv.Box(0.0, 9.0, shape=()))
        >>> learning.provenance
        'estimated'
    """

    depends_on_x: ClassVar[bool] = True

    function: Any
    set: ConvexSet
    mu: np.ndarray
    lipschitz: np.ndarray
    provenance: Provenance = eqx.field(static=True)
    is_gradient: bool = eqx.field(static=True)
    declared: bool = eqx.field(static=True)

    def __init__(
        self, operator: Callable, set: ConvexSet, mu: float | None = None, lipschitz: float | None = None
    ):
        if not isinstance(set, ConvexSet):
            raise InputError(
                f"CoupledLearning: set is {type(set).__name__}; a viceversa set (the Θ of θ) is needed."
            )
        if not callable(operator):
            raise InputError(
                f"CoupledLearning: operator is {type(operator).__name__}; a function H(theta, x) is needed."
            )
        self.function, self.set = operator, set
        self.declared = mu is not None
        self.mu = _as_modulus("mu", 1.0 if mu is None else mu)
        self.lipschitz = _as_modulus(
            "lipschitz", np.maximum(self.mu, 1.0) if lipschitz is None else lipschitz
        )
        if self.mu > self.lipschitz:
            raise InputError(
                f"CoupledLearning: mu = {float(self.mu):g} and lipschitz = {float(self.lipschitz):g} were given; "
                "0 < mu <= lipschitz is needed."
            )
        self.provenance, self.is_gradient = "estimated", False
        warnings.warn(
            "CoupledLearning: H depends on x. The convergence theorem assumes learning that does not, so neither convergence "
            "nor the reported learning error is guaranteed; there may be several fixed points. Check the answer from "
            "more than one start.",
            CoupledLearningWarning,
            stacklevel=2,
        )

    @property
    def has_moduli(self) -> bool:
        return self.declared

    def operator(self, theta: PyTree, x: Array | None = None) -> PyTree:
        if x is None:
            raise InputError("CoupledLearning: H depends on x; call operator(theta, x).")
        # x's shape is not known before there is a problem, so the function is traced where it is used.
        value = functions.trace("CoupledLearning: operator", self.function, theta, x)(theta, x)
        _check_same_structure(value, theta)
        return value


def _as_modulus(name: str, value: Any) -> np.ndarray:
    modulus = as_finite_float64(f"CoupledLearning: {name}", value)
    if modulus.shape != () or modulus <= 0:
        raise InputError(f"CoupledLearning: {name} is {value}; one positive number is needed.")
    return modulus


def _check_same_structure(value: PyTree, theta: PyTree) -> None:
    returned, needed = (jax.tree.map(np.shape, tree) for tree in (value, theta))
    if returned != needed:
        given, wanted = (f"shape {each}" if is_shape(each) else each for each in (returned, needed))
        raise UserFunctionError(
            f"CoupledLearning: operator returns {given}; θ has {wanted} (from `set`), and H(θ, x) must match "
            "it."
        )
    for leaf in jax.tree.leaves(value):
        kind = jnp.result_type(leaf)
        if not np.issubdtype(kind, np.floating):
            raise UserFunctionError(
                f"CoupledLearning: operator returns {kind} numbers; floating point is needed (multiply by 1.0)."
            )
