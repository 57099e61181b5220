"""The methods once more, slowly: NumPy, explicit Jacobians, explicit loops, written from the formulas alone.

Each twin is a generator of (x_k, λ_k) that moves θ itself. `mutant` changes one thing on purpose; a test that
cannot tell the mutant from the method is no test.
"""

from __future__ import annotations

import numpy as np

from methods_zoo import small_problems as P


class Numbers:
    """One problem as plain functions: F, f, its Jacobian, the projection onto X, and the learning step."""

    def __init__(self, F, f, jacobian, project_x, omega):
        self.F, self.f, self.jacobian, self.project_x, self.omega = F, f, jacobian, project_x, omega
        self.n = 3

    def G(self, z, theta):
        x, lam = z[: self.n], z[self.n :]
        J = self.jacobian(x, theta)
        top = np.array(self.F(x, theta), dtype=float)
        for i in range(self.n):
            for j in range(len(lam)):
                top[i] += J[j, i] * lam[j]
        return np.concatenate([top, -self.omega * np.asarray(self.f(x, theta))])

    def project(self, z):
        return np.concatenate([self.project_x(z[: self.n]), np.maximum(z[self.n :], 0.0)])

    def dot(self, u, v):
        return sum(u[i] * v[i] if i < self.n else u[i] * v[i] / self.omega for i in range(len(u)))

    def norm(self, u):
        return np.sqrt(self.dot(u, u))

    def learn(self, theta):
        H = np.zeros(2)
        for i in range(2):
            for j in range(2):
                H[i] += P.W[i, j] * (theta[j] - P.THETA_TRUE[j])
        return np.clip(theta - P.RATE * H, P.THETA_LOWER, P.THETA_UPPER)


def box(x):
    return np.array([min(max(x[i], P.LOWER[i]), P.UPPER[i]) for i in range(3)])


def nonlinear(omega=2.0):
    return Numbers(P.F, P.f, P.jacobian_f, box, omega)


def start():
    return np.concatenate([P.X0, P.LAM0]), P.THETA0.copy()


def _split(z):
    return z[:3].copy(), z[3:].copy()


def projection(p, tau, mutant=None):
    z, theta = start()
    sign = 1.0 if mutant == "sign" else -1.0
    while True:
        yield _split(z)
        used = p.learn(theta) if mutant == "new theta" else theta
        z = p.project(z + sign * tau * p.G(z, used))
        theta = p.learn(theta)


def extragradient(p, tau, mutant=None):
    z, theta = start()
    while True:
        yield _split(z)
        y = p.project(z - tau * p.G(z, theta))
        base = y if mutant == "from y" else z
        z = p.project(base - tau * p.G(y, p.learn(theta) if mutant == "new theta" else theta))
        theta = p.learn(theta)


def popov(p, tau, mutant=None):
    z, theta = start()
    y, theta_prev = z, theta
    while True:
        yield _split(z)
        y = p.project(z - tau * p.G(y, theta if mutant == "new theta" else theta_prev))
        z = p.project((y if mutant == "from y" else z) - tau * p.G(y, theta))
        theta_prev, theta = theta, p.learn(theta)


def tseng(p, tau, mutant=None):
    z, theta = start()
    y = z
    while True:
        yield _split(y)
        G_z = p.G(z, theta)
        y = p.project(z - tau * G_z)
        difference = p.G(y, theta) - G_z
        z = y + tau * difference if mutant == "sign" else y - tau * difference
        theta = p.learn(theta)


def forward_reflected_backward(p, taus, mutant=None):
    z, theta = start()
    G_prev, tau_prev = p.G(z, theta), taus(0)
    k = 0
    while True:
        yield _split(z)
        G, tau = p.G(z, theta), taus(k)
        reflected = G + G_prev if mutant == "sign" else G - G_prev
        z = p.project(z - tau * G - (tau if mutant == "new step" else tau_prev) * reflected)
        G_prev, tau_prev, theta, k = G, tau, p.learn(theta), k + 1


def golden_ratio(p, tau, mutant=None):
    z, theta = start()
    phi = (1.0 + np.sqrt(5.0)) / 2.0
    z_bar = z
    while True:
        yield _split(z)
        z_bar = ((phi - 1.0) * z + z_bar) / phi
        z = p.project((z if mutant == "from z" else z_bar) - tau * p.G(z, theta))
        theta = p.learn(theta)


def adaptive_golden_ratio(p, tau, mutant=None):
    z, theta = start()
    phi, ratio, tau_max = 1.5, 1.0, 1e6 * tau
    growth = 1.0 / phi + 1.0 / phi**2
    z_bar = z
    while True:
        yield _split(z)
        G = p.G(z, theta)
        z_bar = ((phi - 1.0) * z + z_bar) / phi
        z_next = p.project(z_bar - tau * G)
        theta_next = p.learn(theta)
        G_next = p.G(z_next, theta_next if mutant == "mixed theta" else theta)
        power = 1.0 if mutant == "unsquared" else 2.0
        slope = (p.norm(z_next - z) / p.norm(G_next - G)) ** power
        tau_next = min(growth * tau, phi * ratio / (4.0 * tau) * slope, tau_max)
        ratio, tau, z, theta = phi * tau_next / tau, tau_next, z_next, theta_next


def solodov(p, mu, sigma=0.3, mutant=None):
    z, theta = start()
    while True:
        yield _split(z)
        r = z - p.project(z - mu * p.G(z, theta))
        length = 1.0
        while p.dot(p.G(z - length * r, theta), r) < sigma / mu * p.dot(r, r):
            length *= 0.5
        y = z - length * r
        G = p.G(z if mutant == "old point" else y, theta)
        z = p.project(z - p.dot(G, z - y) / p.dot(G, G) * G)
        theta = p.learn(theta)


def anchored(p, tau, mutant=None):
    z, theta = start()
    z_0, c, k = z, np.zeros(5), 0
    previous = z
    while True:
        yield _split(z)
        a = ((z_0 - previous) if mutant == "old anchor" else (z_0 - z)) / (k + 1)
        z_hat = z - tau * p.G(z, theta) - (0.0 if mutant == "no normal" else tau) * c + a
        v = z - tau * p.G(z_hat, theta) + a
        previous = z
        z = p.project(v)
        c = (v - z) / tau
        theta, k = p.learn(theta), k + 1


def mirror_prox(tau, omega, mutant=None):
    p = Numbers(P.F, P.f, P.jacobian_f, None, omega)
    x, lam, theta = P.SIMPLEX_X0.copy(), P.LAM0.copy(), P.THETA0.copy()

    def prox(x, g):
        total, weight = 0.0, np.zeros(3)
        for i in range(2):
            weight[i] = x[i] * np.exp(g[i] if mutant == "sign" else -g[i])
            total += weight[i]
        return np.array([1.5 * weight[0] / total, 1.5 * weight[1] / total, min(max(x[2] - g[2], -1.0), 2.0)])

    while True:
        yield x.copy(), lam.copy()
        G = p.G(np.concatenate([x, lam]), theta)
        y, nu = prox(x, tau * G[:3]), np.maximum(lam - tau * G[3:], 0.0)
        G = p.G(np.concatenate([y, nu]), theta)
        x = prox(y if mutant == "from y" else x, tau * G[:3])
        lam = np.maximum(lam - tau * G[3:], 0.0)
        theta = p.learn(theta)


def optimization(omega=1.0):
    """The symmetric problem with affine constraints, θ₁ C x − θ₂ d ≤ 0."""
    return Numbers(P.gradient, P.affine, lambda x, theta: theta[0] * P.C, box, omega)


def subgradient(p, gamma0, mutant=None):
    """Yields the weighted average of x_0..x_{k−1} as its third entry."""
    z, theta = start()
    total, weight, k = np.zeros(3), 0.0, 0
    while True:
        x, lam = _split(z)
        yield x, lam, (x if weight == 0.0 else total / weight)
        gamma = gamma0 / np.sqrt(k + 1.0)
        z_next = p.project(z - gamma * p.G(z, theta))
        total = total + gamma * (z_next if mutant == "new point" else z)[:3]
        weight += 0.0 if mutant == "new point" and k == 0 else gamma
        z, theta, k = z_next, p.learn(theta), k + 1


def accelerated(p, mu, c0, C1, rho0, mutant=None):
    """Yields the t-weighted average of x_1..x_k as its third entry."""
    x, lam, theta = P.X0.copy(), P.LAM0.copy(), P.THETA0.copy()
    rho = rho_prev = rho0
    F_prev = p.F(x, theta)
    total, weight = np.zeros(3), 0.0
    while True:
        yield x, lam, (x if weight == 0.0 else total / weight)
        gamma = 1.0 / (c0 + C1 * rho)
        F, f, J = p.F(x, theta), p.f(x, theta), p.jacobian(x, theta)
        ratio = rho / rho_prev if mutant == "inverted weight" else rho_prev / rho
        direction = F + ratio * (F - F_prev)
        for j in range(len(lam)):
            direction = direction + J[j] * max(rho * f[j] + lam[j], 0.0)
        x_old, x = x, p.project_x(x - gamma * direction)
        theta_next = p.learn(theta)
        at = x_old if mutant == "old x" else x
        f = p.f(at, theta_next if mutant == "new theta" else theta)
        lam = np.array([max(lam[j] + rho * f[j], 0.0) for j in range(len(lam))])
        total, weight = total + rho / rho0 * x, weight + rho / rho0
        b = 2.0 * C1 * rho + c0
        delta = (-b + np.sqrt(b * b + 8.0 * C1 * mu * rho)) / (2.0 * C1)
        rho_prev, rho = rho, rho + delta
        F_prev, theta = F, theta_next


def ipalm(p, L_phi, norm, rho0, growth, alpha0, c, mutant=None):
    """Yields (x, λ, inner iterations so far)."""
    x, lam, theta = P.X0.copy(), P.LAM0.copy(), P.THETA0.copy()
    diameter, k, n_inner = np.linalg.norm(P.UPPER - P.LOWER), 0, 0
    while True:
        yield x, lam, n_inner
        rho = rho0 * growth**k
        alpha = alpha0 / ((k + 1.0) ** (2.0 * (1.0 + c)) * growth**k)
        L = L_phi + rho * norm**2

        def gradient(v, rho=rho, lam=lam, theta=theta):
            f, J = p.f(v, theta), p.jacobian(v, theta)
            total = p.F(v, theta)
            for j in range(2):
                total = total + J[j] * max(lam[j] + rho * f[j], 0.0)
            return total

        y, t, x_old, length = x, 1.0, x, 0
        while length < diameter * np.sqrt(2.0 * L / alpha):
            x = box(y - gradient(y) / L)
            t_next = 0.5 * (1.0 + np.sqrt(1.0 + 4.0 * t * t))
            momentum = 0.0 if mutant == "no momentum" else (t - 1.0) / t_next
            y, t, x_old, length = x + momentum * (x - x_old), t_next, x, length + 1
            g = gradient(x)
            best = sum(max(-g[i] * P.LOWER[i], -g[i] * P.UPPER[i]) for i in range(3))
            if float(np.dot(g, x)) + best <= alpha:
                break
        n_inner += length
        theta_next = p.learn(theta)
        f = p.f(x, theta_next if mutant == "new theta" else theta)
        lam = np.array([max(lam[j] + rho * f[j], 0.0) for j in range(2)])
        theta, k = theta_next, k + 1
