"""Random misspecified VIs with known answers, of one shape and one program, so that hundreds share a compilation."""

from __future__ import annotations

from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import viceversa as vv
from viceversa import precision


class Operator(eqx.Module):
    """F(x, θ) = (P + K₀ + Σ θ_i K_i) x + q₀ + q₁θ + a∘exp(x/2) + b∘atan(x) + c∘x³, with a, b, c ≥ 0: monotone."""

    M: np.ndarray
    K: np.ndarray
    q0: np.ndarray
    q1: np.ndarray
    curved: np.ndarray  # (3, n): a, b, c; zero for an affine F

    def __call__(self, x, theta):
        turned = jnp.tensordot(theta, jnp.asarray(self.K), 1)
        bent = self.curved[0] * jnp.exp(0.5 * x) + self.curved[1] * jnp.arctan(x) + self.curved[2] * x**3
        return (self.M + turned) @ x + self.q0 + jnp.asarray(self.q1) @ theta + bent


class Constraints(eqx.Module):
    """f_j(x, θ) = ½‖G_j x‖² + (c_j + C_j θ)ᵀx − d_j."""

    G: np.ndarray
    c: np.ndarray
    C: np.ndarray
    d: np.ndarray

    def __call__(self, x, theta):
        Gx = jnp.einsum("jrn,n->jr", jnp.asarray(self.G), x)
        return 0.5 * jnp.sum(Gx**2, axis=1) + (self.c + jnp.asarray(self.C) @ theta) @ x - self.d


@dataclass
class RandomInstance:
    """A problem, its answer and its start."""

    problem: vv.MisspecifiedVI
    x_true: np.ndarray
    multiplier_true: np.ndarray
    theta_true: np.ndarray
    x0: np.ndarray
    theta0: np.ndarray


def build(shape: tuple[int, int, int], seed: int, nonlinear: bool) -> RandomInstance:
    """(n, J, m): x* in [−1, 1]ⁿ with some bounds active, a third of the constraints active, Slater at the origin side."""
    n, J, m = shape
    rng = np.random.default_rng([seed, n, J, m])
    theta = rng.uniform(0.5, 1.5, m)
    x = rng.uniform(-0.6, 0.6, n)
    at_bound = rng.permutation(n)[: n // 3]
    x[at_bound] = np.sign(x[at_bound])
    pressure = np.zeros(n)
    pressure[at_bound] = np.sign(x[at_bound]) * rng.uniform(0.2, 1.0, at_bound.size)
    active = np.arange(J) < max(1, J // 3) if seed % 5 else np.zeros(J, dtype=bool)  # λ* = 0 now and then
    multiplier = np.where(active, rng.uniform(0.2, 1.5, J), 0.0)
    if seed % 7 == 3:
        multiplier[0] = 0.0  # degenerate: active with λ = 0
    B = rng.standard_normal((n, n if seed % 2 else max(n // 2, 1)))
    skew = [(S - S.T) / (2 * np.sqrt(n)) for S in rng.standard_normal((m + 1, n, n))]
    K = np.array(skew[1:]) / np.sqrt(m)
    M, q1 = B @ B.T / n + skew[0], rng.standard_normal((n, m)) / np.sqrt(m)
    G = rng.standard_normal((J, 2, n)) / np.sqrt(n)
    c, C = rng.standard_normal((J, n)), 0.3 * rng.standard_normal((J, n, m)) / np.sqrt(m)
    inward = -x / np.linalg.norm(x)
    gradients = np.einsum("jrn,jr->jn", G, G @ x) + c + C @ theta
    tilt = -np.maximum(gradients @ inward + 0.5, 0.0)[:, None] * inward  # a strict descent direction: Slater
    c, gradients = c + tilt, gradients + tilt
    d = (
        0.5 * np.sum((G @ x) ** 2, axis=1)
        + (c + C @ theta) @ x
        + np.where(active, 0.0, rng.uniform(0.3, 1.0, J))
    )
    curved = rng.uniform(0.0, 1.0, (3, n)) * nonlinear
    bent = curved[0] * np.exp(0.5 * x) + curved[1] * np.arctan(x) + curved[2] * x**3
    M_true = M + np.tensordot(theta, K, 1)
    q0 = -(M_true @ x + q1 @ theta + bent + gradients.T @ multiplier + pressure)
    A = np.linalg.qr(rng.standard_normal((m + 3, m)))[0] * np.sqrt(np.geomspace(1.0, 3.0, m))
    problem = vv.MisspecifiedVI(
        Operator(M, K, q0, q1, curved),
        vv.Box(-np.ones(n), np.ones(n)),
        Constraints(G, c, C, d),
        vv.LeastSquares(A, A @ theta, set=vv.Box(theta - 0.5, theta + 0.5)),
    )
    return RandomInstance(
        problem, x, multiplier, theta, rng.uniform(-1, 1, n), theta + rng.choice([-0.5, 0.5], m)
    )


def stack(trees):
    """Trees of one structure as one tree with a leading axis."""
    return jax.tree.map(lambda *leaves: np.stack(leaves), *trees)


@eqx.filter_jit
def _run_all(problem, gamma, rho, rate, x0, theta0, n_steps: int, flip: float):
    """Algorithm 1, written out from its equations; `flip` = −1 turns the reflection around."""

    def run(problem, gamma, rho, rate, x0, theta0):
        f = lambda x, t: problem.constraints(x, t)

        def step(carry, _):
            x, lam, theta, F_prev = carry
            F_x = problem.operator(x, theta)
            f_x, pullback = jax.vjp(lambda y: f(y, theta), x)
            (pulled,) = pullback(jnp.maximum(rho * f_x + lam, 0.0))
            x_next = problem.set.project(x - gamma * (F_x + flip * (F_x - F_prev) + pulled))
            lam_next = jnp.maximum(lam + rho * f(x_next, theta), 0.0)
            theta_next = problem.learning.set.project(theta - rate * problem.learning.operator(theta))
            return (x_next, lam_next, theta_next, F_x), (x_next, lam_next, theta_next)

        lam0 = jnp.zeros_like(f(x0, theta0))
        _, rows = jax.lax.scan(step, (x0, lam0, theta0, problem.operator(x0, theta0)), length=n_steps)
        return jax.tree.map(
            lambda first, rest: jnp.concatenate([first[None], rest]), (x0, lam0, theta0), rows
        )

    return jax.vmap(run)(problem, gamma, rho, rate, x0, theta0)


def run_all(problem, gamma, rho, rate, x0, theta0, n_steps: int, flip: float = 1.0):
    """All iterates (x_k, λ_k, θ_k), k = 0..n_steps, of a stack of problems, as NumPy."""
    with precision.double():
        problem, gamma, rho, rate, x0, theta0 = jax.tree.map(
            jnp.asarray, (problem, gamma, rho, rate, x0, theta0)
        )
        return [np.asarray(rows) for rows in _run_all(problem, gamma, rho, rate, x0, theta0, n_steps, flip)]
