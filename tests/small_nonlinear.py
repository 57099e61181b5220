"""A small nonlinear problem with everything in it, and naive versions of the methods on it.

F is monotone and not symmetric, both F and the two quadratic constraints depend on θ, H is not symmetric. The twins use
NumPy, explicit loops and explicit Jacobians, and share no function with the package.
"""

from __future__ import annotations

import functools

import equinox as eqx
import jax.numpy as jnp
import numpy as np

import viceversa as vv

N, J = 4, 2
_rng = np.random.default_rng(7)
_B = _rng.normal(size=(N, N))
M = 0.3 * _B @ _B.T / N + 2.0 * (_B - _B.T)
Q_VECTOR = _rng.normal(size=N)
_C = _rng.normal(size=(J, N, N))
Q = np.einsum("jab,jcb->jac", _C, _C) / N
C = _rng.normal(size=(J, N))
D = np.array([0.4, 0.6])
LOWER, UPPER = np.full(N, -2.0), np.full(N, 1.5)
W, THETA_TRUE = np.array([[2.0, 1.0], [-1.0, 2.0]]), np.array([0.9, 1.4])
THETA_LOWER, THETA_UPPER = np.full(2, 0.2), np.full(2, 3.0)
X0, THETA0, LAM0 = np.array([1.2, -0.7, 0.5, -1.9]), np.array([2.5, 0.3]), np.array([0.0, 0.2])


class Operator(eqx.Module):
    """F(x, θ) = Mx + θ₀ exp(0.3x) + θ₁ q."""

    M: np.ndarray
    q: np.ndarray

    def __call__(self, x, theta):
        return self.M @ x + theta[0] * jnp.exp(0.3 * x) + theta[1] * self.q


class Quadratics(eqx.Module):
    """f_j(x, θ) = ½xᵀQ_j x + θ₁ c_jᵀx − θ₀ d_j."""

    Q: np.ndarray
    C: np.ndarray
    d: np.ndarray

    def __call__(self, x, theta):
        return 0.5 * jnp.einsum("a,jab,b->j", x, self.Q, x) + theta[1] * self.C @ x - theta[0] * self.d


@functools.cache
def problem():
    """The problem as the package sees it; one object, so that tests share its compiled programs."""
    return vv.MisspecifiedVI(
        Operator(M, Q_VECTOR),
        set=vv.Box(LOWER, UPPER),
        constraints=Quadratics(Q, C, D),
        learning=vv.SecondaryVI(lambda theta: W @ (theta - THETA_TRUE), set=vv.Box(THETA_LOWER, THETA_UPPER)),
    )


# -- the naive side -------------------------------------------------------------------------------------
class Oracles:
    """F, f, Jf and H by loops, counting how often each is asked."""

    def __init__(self):
        self.F_calls = self.f_calls = self.pullback_calls = self.H_calls = 0

    def F(self, x, theta):
        self.F_calls += 1
        out = np.zeros(N)
        for i in range(N):
            for k in range(N):
                out[i] += M[i, k] * x[k]
            out[i] += theta[0] * np.exp(0.3 * x[i]) + theta[1] * Q_VECTOR[i]
        return out

    def f(self, x, theta):
        self.f_calls += 1
        out = np.zeros(J)
        for j in range(J):
            for a in range(N):
                out[j] += theta[1] * C[j, a] * x[a]
                for b in range(N):
                    out[j] += 0.5 * x[a] * Q[j, a, b] * x[b]
            out[j] -= theta[0] * D[j]
        return out

    def jacobian(self, x, theta):
        out = np.zeros((J, N))
        for j in range(J):
            for a in range(N):
                out[j, a] = theta[1] * C[j, a]
                for b in range(N):
                    out[j, a] += 0.5 * (Q[j, a, b] + Q[j, b, a]) * x[b]
        return out

    def pullback(self, x, theta, w):
        self.pullback_calls += 1
        jacobian = self.jacobian(x, theta)
        return np.array([sum(jacobian[j, a] * w[j] for j in range(J)) for a in range(N)])

    def H(self, theta):
        self.H_calls += 1
        return np.array([sum(W[i, k] * (theta[k] - THETA_TRUE[k]) for k in range(2)) for i in range(2)])


def callback_problem(oracles):
    """The same problem with F and f as Python that JAX cannot trace."""
    return vv.MisspecifiedVI(
        vv.callback_operator(oracles.F),
        set=vv.Box(LOWER, UPPER),
        constraints=vv.callback_constraints(oracles.f, oracles.pullback),
        learning=problem().learning,
    )


def clip_x(x):
    return np.array([min(max(x[i], LOWER[i]), UPPER[i]) for i in range(N)])


def learn(o, theta, eta):
    step = theta - eta * o.H(theta)
    return np.array([min(max(step[i], THETA_LOWER[i]), THETA_UPPER[i]) for i in range(2)])


def plus(u):
    return np.array([max(v, 0.0) for v in u])


def algorithm_1(n_steps, gamma, rho, eta, mutant=None):
    """THEORY A.9, line by line; `mutant` names a slip."""
    o = Oracles()
    x, theta, lam = X0.copy(), THETA0.copy(), LAM0.copy()
    x_prev, theta_prev = x.copy(), theta.copy()
    points = [(x, lam, theta)]
    for k in range(n_steps):
        g, p, e = gamma(k), rho(k), eta(k)
        theta_of_previous = theta if mutant == "difference not joint" else theta_prev
        r = o.F(x, theta) - o.F(x_prev, theta_of_previous)
        if mutant == "plus in the reflection":
            r = o.F(x, theta) + o.F(x_prev, theta_prev)
        weights = plus(p * o.f(x, theta) + lam)
        pulled = o.pullback(x, theta, weights)
        if mutant == "no transpose":
            pulled = np.resize(o.jacobian(x, theta)[:, :J] @ weights, N)
        x_next = clip_x(x - g * (o.F(x, theta) + r + pulled))
        theta_next = learn(o, theta, e)
        seen_x = x if mutant == "multiplier at the old x" else x_next
        seen_theta = theta_next if mutant == "multiplier at the new theta" else theta
        lam = plus(lam + p * o.f(seen_x, seen_theta))
        x_prev, theta_prev, x, theta = x, theta, x_next, theta_next
        points.append((x, lam, theta))
    return points


def extragradient(n_steps, tau, omega, eta, mutant=None):
    """THEORY A.1 on the Lagrangian's operator in (x, λ)."""
    o = Oracles()
    x, theta, lam = X0.copy(), THETA0.copy(), LAM0.copy()
    points = [(x, lam, theta)]
    for _ in range(n_steps):
        y = clip_x(x - tau * (o.F(x, theta) + o.pullback(x, theta, lam)))
        nu = plus(lam + omega * tau * o.f(x, theta))
        base, base_lam = (y, nu) if mutant == "from the midpoint" else (x, lam)
        seen = lam if mutant == "old multiplier" else nu
        x = clip_x(base - tau * (o.F(y, theta) + o.pullback(y, theta, seen)))
        lam = plus(base_lam + omega * tau * o.f(y, theta))
        theta = learn(o, theta, eta)
        points.append((x, lam, theta))
    return points


def tikhonov(n_steps, gamma, eps, omega, eta, mutant=None):
    """THEORY A.1, the regularised step on the Lagrangian's operator in (x, λ)."""
    o = Oracles()
    x, theta, lam = X0.copy(), THETA0.copy(), LAM0.copy()
    points = [(x, lam, theta)]
    for k in range(n_steps):
        e = 0.0 if mutant == "no regularisation" else eps(k)
        sign = -1.0 if mutant == "wrong sign on the multiplier" else 1.0
        x_next = clip_x(x - gamma(k) * (o.F(x, theta) + o.pullback(x, theta, lam) + e * x))
        seen = x_next if mutant == "multiplier at the new x" else x
        lam = plus(lam + omega * gamma(k) * (o.f(seen, theta) - sign * e * lam))
        x, theta = x_next, learn(o, theta, eta)
        points.append((x, lam, theta))
    return points


def adaptive(n_steps, eta, weight=1.0, nu=0.25, mutant=None):
    """THEORY B.4, with the first step found by halving and one primal weight per constraint."""
    o = Oracles()
    x, theta, lam = X0.copy(), THETA0.copy(), LAM0.copy()
    F_prev = o.F(x, theta)
    reach = np.sqrt(sum((UPPER[i] - LOWER[i]) ** 2 for i in range(N)))
    gamma = reach / np.linalg.norm(F_prev)
    while True:
        trial = clip_x(x - gamma * F_prev)
        if gamma * np.linalg.norm(o.F(trial, theta) - F_prev) <= nu * np.linalg.norm(trial - x):
            break
        gamma *= 0.5
    jacobian, f_0 = o.jacobian(x, theta), o.f(x, theta)
    s = np.zeros(J)
    for j in range(J):
        size_sq = max(sum(jacobian[j, a] ** 2 for a in range(N)), (f_0[j] / reach) ** 2)
        s[j] = weight * 0.2 / (gamma**2 * size_sq)
    points, gammas = [(x, lam, theta)], []
    for _ in range(n_steps):
        F_x, f_x = o.F(x, theta), o.f(x, theta)
        gamma_prev, gamma = gamma, 1.2 * gamma
        while True:
            rho = s * gamma
            gradient = o.pullback(x, theta, plus(rho * f_x + lam))
            reflect = gamma if mutant == "reflection with the new step" else gamma_prev
            x_next = clip_x(x - gamma * (F_x + gradient) - reflect * (F_x - F_prev))
            delta = x_next - x
            gradient_next = o.pullback(x_next, theta, plus(rho * o.f(x_next, theta) + lam))
            smooth = gamma * np.linalg.norm(o.F(x_next, theta) - F_x) <= nu * np.linalg.norm(delta)
            convex = gamma * (gradient_next - gradient) @ delta <= (0.5 - nu) * delta @ delta
            if smooth and (convex or mutant == "one test only"):
                break
            gamma *= 0.7
        lam = plus(lam + rho * o.f(x_next, theta))
        x, F_prev, theta = x_next, F_x, learn(o, theta, eta)
        points.append((x, lam, theta))
        gammas.append(gamma)
    return points, gammas


def distance(points, others):
    """The largest difference between two runs, over iterations and over x, λ and θ."""
    return max(
        np.abs(np.asarray(a) - np.asarray(b)).max()
        for point, other in zip(points, others, strict=True)
        for a, b in zip(point, other, strict=True)
    )
