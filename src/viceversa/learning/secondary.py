"""Learning by any strongly monotone operator H, a gradient or not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.flatten_util
import numpy as np
from jaxtyping import Array, PyTree

from viceversa import functions, precision
from viceversa.errors import InputError, UserFunctionError
from viceversa.learning.base import Learning, Provenance
from viceversa.sets.base import ConvexSet

_N_SAMPLES = 32  # Jacobians sampled over Θ when μ_H and L_H are neither given nor provable


class SecondaryVI(Learning):
    """θ* in Θ with H(θ*)ᵀ(ϑ − θ*) ≥ 0 for all ϑ in Θ, for a strongly monotone H given as a function.

    `mu` and `lipschitz` declare μ_H and L_H. If they are left out and H is provably affine they are computed
    exactly from its matrix; otherwise they are estimated from sampled Jacobians and everything derived from
    them says so.

    Example:
        >>> import numpy as np, viceversa as vv
        >>> W = np.array([[2.0, 1.0], [-1.0, 2.0]])
        >>> learning = vv.SecondaryVI(lambda theta: W @ (theta - 1.0), set=vv.Box([0.0, 0.0], [3.0, 3.0]))
        >>> learning.provenance, round(float(learning.mu), 6)
        ('exact', 2.0)
    """

    function: Any
    set: ConvexSet
    mu: np.ndarray
    lipschitz: np.ndarray
    provenance: Provenance = eqx.field(static=True)
    is_gradient: bool = eqx.field(static=True)

    def __init__(
        self, operator: Callable, set: ConvexSet, mu: float | None = None, lipschitz: float | None = None
    ):
        if not isinstance(set, ConvexSet):
            raise InputError(
                f"SecondaryVI: set is {type(set).__name__}; a viceversa set (the Θ of θ) is needed."
            )
        if isinstance(operator, functions.Callback):
            raise InputError(
                "SecondaryVI: operator is a callback; H is differentiated to find its constants, so it must be written "
                "with numpy or jax.numpy. If its data fit a linear model, use vv.LeastSquares."
            )
        like = set.zeros()
        if not sum(np.size(leaf) for leaf in jax.tree.leaves(like)):
            raise InputError(
                f"SecondaryVI: set has points of shape {set.shape}, which have no coordinates, so there is nothing to learn. "
                "Pass vv.Known(theta) instead."
            )
        self.function = functions.trace("SecondaryVI: operator", operator, like)
        _check_same_structure(functions.output_like(self.function, like), like)
        self.set = set
        given_mu, given_lipschitz = _as_modulus("mu", mu), _as_modulus("lipschitz", lipschitz)
        declared = mu is not None and lipschitz is not None
        is_affine = functions.is_affine_in(self.function, 0, like)
        matrices = self._jacobians(1 if is_affine else _N_SAMPLES)
        symmetric = all(
            np.allclose(M, M.T, rtol=1e-12, atol=1e-12 * np.abs(M).max(initial=1e-300)) for M in matrices
        )
        found_mu = min(float(np.linalg.eigvalsh((M + M.T) / 2)[0]) for M in matrices)
        found_lipschitz = max(float(np.linalg.norm(M, 2)) for M in matrices)
        self.mu = np.asarray(found_mu if given_mu is None else given_mu, dtype=np.float64)
        self.lipschitz = np.asarray(
            found_lipschitz if given_lipschitz is None else given_lipschitz, dtype=np.float64
        )
        self.provenance = "exact" if is_affine else "declared" if declared else "estimated"
        self.is_gradient = is_affine and symmetric
        _check_moduli(self.mu, self.lipschitz, found_mu, found_lipschitz, is_affine)

    def operator(self, theta: PyTree, x: Array | None = None) -> PyTree:
        return self.function(theta)

    def _jacobians(self, n_samples: int) -> list[np.ndarray]:
        """H's Jacobian, as matrices over the raveled θ, at points of Θ."""
        with precision.double():
            like = self.set.zeros()
            _, unravel = jax.flatten_util.ravel_pytree(jax.tree.map(jax.numpy.asarray, like))
            jacobian = jax.jit(
                jax.jacfwd(lambda v: jax.flatten_util.ravel_pytree(self.function(unravel(v)))[0])
            )
            points = [self.set.interior_point()]
            points += [self.set.sample(key) for key in jax.random.split(jax.random.key(0), n_samples - 1)]
            return [np.asarray(jacobian(jax.flatten_util.ravel_pytree(p)[0])) for p in points]


def _as_modulus(name: str, value: Any) -> np.ndarray | None:
    if value is None:
        return None
    modulus = precision.as_finite_float64(f"SecondaryVI: {name}", value)
    if modulus.shape != () or modulus <= 0:
        raise InputError(f"SecondaryVI: {name} is {value}; one positive number is needed.")
    return modulus


def _check_same_structure(output: PyTree, like: PyTree) -> None:
    shapes = [jax.tree.map(lambda leaf: tuple(leaf.shape), tree) for tree in (output, like)]
    if shapes[0] != shapes[1]:
        raise UserFunctionError(
            f"SecondaryVI: operator returns {shapes[0]}; θ has {shapes[1]} (from `set`), and H(θ) must match it."
        )
    for leaf in jax.tree.leaves(output):
        if not np.issubdtype(leaf.dtype, np.floating):
            raise UserFunctionError(
                f"SecondaryVI: operator returns {leaf.dtype} numbers; floating point is needed."
            )


def _check_moduli(mu, lipschitz, found_mu: float, found_lipschitz: float, is_affine: bool) -> None:
    tolerance = 1e-9 * max(found_lipschitz, 1e-300)
    if not mu > 0:
        raise InputError(
            f"SecondaryVI: mu is {float(mu):.6g}, so H is not strongly monotone and θ* may not be unique. "
            "Add a regularisation such as ridge·θ to H, or declare mu if you can prove a positive one."
        )
    if found_mu < float(mu) - tolerance or found_lipschitz > float(lipschitz) + tolerance:
        where = "its matrix" if is_affine else "a sampled Jacobian"
        raise InputError(
            f"SecondaryVI: mu = {float(mu):.6g}, lipschitz = {float(lipschitz):.6g} were declared, but {where} has "
            f"smallest symmetric eigenvalue {found_mu:.6g} and norm {found_lipschitz:.6g}. Correct the declaration."
        )
