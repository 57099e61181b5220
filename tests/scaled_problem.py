"""One small nonlinear problem in any units: x, F, f_j and θ multiplied by factors, with one compiled program."""

from __future__ import annotations

import equinox as eqx
import jax.numpy as jnp
import numpy as np

import viceversa as vv

N, J, M = 6, 3, 2
_rng = np.random.default_rng(7)
_A = _rng.normal(size=(N, N))
P = _A @ _A.T / N + 0.2 * np.eye(N)
_S = _rng.normal(size=(N, N))
SKEW = _S - _S.T
B = _rng.normal(size=(J, N))
Q = _rng.normal(size=(N, M))
W = np.array([[2.0, 0.5], [-0.5, 1.5]])
THETA = np.array([1.0, -0.5])


class Operator(eqx.Module):
    """F in units: `scale_F`·F(x / `scale_x`, θ / `scale_theta`)."""

    scale_x: np.ndarray
    scale_F: np.ndarray
    scale_theta: np.ndarray

    def __call__(self, x, theta):
        u, t = x / self.scale_x, theta / self.scale_theta
        return self.scale_F * (jnp.asarray(P + SKEW) @ u + 0.3 * jnp.exp(u) + jnp.asarray(Q) @ t - 2.0)


class Constraints(eqx.Module):
    """f_j in units, each with its own."""

    scale_x: np.ndarray
    scale_f: np.ndarray
    scale_theta: np.ndarray

    def __call__(self, x, theta):
        u, t = x / self.scale_x, theta / self.scale_theta
        return self.scale_f * (0.5 * jnp.sum(u**2) + jnp.asarray(B) @ u + t[0] - 2.5)


class Learning(eqx.Module):
    """H in units."""

    scale_theta: np.ndarray

    def __call__(self, theta):
        return jnp.asarray(W) @ (theta / self.scale_theta - THETA)


def problem(scale_x=1.0, scale_F=1.0, scale_f=(1.0, 1.0, 1.0), scale_theta=1.0) -> vv.MisspecifiedVI:
    """The problem in the given units."""
    sx, sF, sf, st = (np.asarray(value, dtype=float) for value in (scale_x, scale_F, scale_f, scale_theta))
    return vv.MisspecifiedVI(
        Operator(sx, sF, st),
        vv.Box(-1.0 * sx * np.ones(N), 2.0 * sx * np.ones(N)),
        Constraints(sx, sf, st),
        vv.SecondaryVI(Learning(st), set=vv.Box(-3.0 * st * np.ones(M), 3.0 * st * np.ones(M))),
    )
