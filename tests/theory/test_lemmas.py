"""The inequalities behind the theorem, on random instances: Lemma 1 on all of X, the exact Lemma 2, Lemma 3 with tight
constants, and the one-step inequality. A slack may be negative only by rounding."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import viceversa as vv

SEEDS = st.integers(0, 2**32 - 1)
ROUNDING = 1e-12


class Instance:
    """F(x, θ) = Mx + Bθ + q with M monotone, f_j(x, θ) = ½xᵀQ_j x + (c_j + E_jθ)ᵀx − d_j − e_jᵀθ, X a box."""

    def __init__(self, rng, n, J, m=2):
        root = rng.normal(size=(n, n))
        self.M = root @ root.T * rng.choice([0.0, 0.3]) + 2.0 * (root - root.T)
        self.B, self.q = rng.normal(size=(n, m)), rng.normal(size=n)
        halves = rng.normal(size=(J, n, n)) * rng.choice([0.0, 0.7])
        self.Q = np.einsum("jab,jcb->jac", halves, halves)
        self.c, self.E = rng.normal(size=(J, n)), 0.5 * rng.normal(size=(J, n, m))
        self.d, self.e = rng.normal(size=J), rng.normal(size=(J, m))
        self.lower, self.upper = -rng.uniform(0.5, 2.0, n), rng.uniform(0.5, 2.0, n)
        self.n, self.J, self.m = n, J, m

    def F(self, x, theta):
        return self.M @ x + self.B @ theta + self.q

    def f(self, x, theta):
        linear = (self.c + self.E @ theta) @ x
        return 0.5 * np.einsum("a,jab,b->j", x, self.Q, x) + linear - self.d - self.e @ theta

    def jacobian(self, x, theta):
        return self.Q @ x + self.c + self.E @ theta

    def project(self, x):
        return np.clip(x, self.lower, self.upper)

    def sample(self, rng):
        return rng.uniform(self.lower, self.upper)

    @property
    def gradient_lipschitz(self):
        return max(np.linalg.norm(Q, 2) for Q in self.Q)


def draw(seed, J):
    rng = np.random.default_rng(seed)
    return rng, Instance(rng, int(rng.integers(1, 5)), J)


def Phi(values, lam, rho):
    return float(np.sum(vv.phi(values, lam, rho)))


@given(seed=SEEDS, J=st.integers(1, 4))
@settings(max_examples=200)
def test_lemma_1_holds_on_all_of_X(seed, J):
    """A KKT point is planted; the inequality needs x in X only, not f(x) ≤ 0."""
    rng, p = draw(seed, J)
    x_star, theta = p.sample(rng), rng.normal(size=p.m)
    lam = rng.exponential(size=J) * rng.choice([0.0, 1.0], size=J)
    sides = rng.choice([-1, 0, 1], size=p.n)
    x_star = np.where(sides == 1, p.upper, np.where(sides == -1, p.lower, x_star))
    p.d += p.f(x_star, theta) + np.where(lam > 0, 0.0, rng.exponential(size=J))  # complementarity
    normal = sides * rng.exponential(size=p.n)
    F_star = -p.jacobian(x_star, theta).T @ lam - normal
    for _ in range(5):
        x = p.sample(rng)
        slack = (x - x_star) @ F_star + lam @ p.f(x, theta)
        assert slack >= -ROUNDING * (np.abs(F_star).sum() + np.abs(lam * p.f(x, theta)).sum() + 1)


LENGTHS = st.integers(1, 6)


@given(seed=SEEDS, J=LENGTHS, rho=st.floats(1e-3, 1e3))
@settings(max_examples=150)
def test_lemma_2_exactly(seed, J, rho):
    rng = np.random.default_rng(seed)
    u, u_true = rng.normal(size=(2, J)) * rng.choice([0.1, 1.0, 10.0])
    lam_k = rng.exponential(size=J) * rng.choice([0.0, 1.0], size=J)
    lam = rng.exponential(size=J) * rng.choice([0.0, 1.0], size=J)
    lam_next = np.maximum(lam_k + rho * u, 0.0)
    left = -Phi(u_true, lam_k, rho) + lam @ u_true
    telescoping = (np.sum((lam_k - lam) ** 2) - np.sum((lam_next - lam) ** 2)) / (2 * rho)
    right = telescoping + (lam_next - lam) @ (u - u_true)
    scale = (np.sum(lam_k**2) + np.sum(lam_next**2) + lam @ lam) / rho + rho * np.sum(u_true**2) + 1
    assert right - left >= -ROUNDING * scale
    # At the same θ it is the telescoping term alone.
    assert telescoping - (-Phi(u, lam_k, rho) + lam @ u) >= -ROUNDING * (scale + rho * np.sum(u**2))


def test_the_papers_intermediate_step_of_lemma_2_does_not_hold():
    """(b + c)² ≥ b²/2 − c² loses a factor 2: ρ = 1, λ_k = 0, f(θ_k) = 1, f(θ*) = 2 breaks it, not the lemma."""
    rho, lam_k, u, u_true, lam = 1.0, 0.0, 1.0, 2.0, 0.0
    lam_next = max(lam_k + rho * u, 0.0)
    left = -(rho / 2) * u_true**2  # J_k⁺ = {1}
    right = -(((lam_next - lam_k) ** 2) / (2 * rho) + rho / 2 * (u - u_true) ** 2)
    assert (left, right) == (-2.0, -1.0)
    assert not left >= right
    exact = ((lam_k - lam) ** 2 - (lam_next - lam) ** 2) / (2 * rho) + (lam_next - lam) * (u - u_true)
    assert -float(vv.phi(u_true, lam_k, rho)) + lam * u_true <= exact


def lemma_3_constant(p, points, theta, lam, rho):
    """ρC₁ + ‖λ‖C₂ with C₁ = √J L_∇f D_f + M², C₂ = √J L_∇f; D_f and M are attained at the ends of a segment."""
    D = max(np.linalg.norm(np.maximum(p.f(x, theta), 0.0)) for x in points)
    M = max(np.linalg.norm(p.jacobian(x, theta), 2) for x in points)
    curvature = np.sqrt(p.J) * p.gradient_lipschitz
    return rho * (curvature * D + M**2) + np.linalg.norm(lam) * curvature


@given(seed=SEEDS, J=LENGTHS, rho=st.floats(1e-2, 1e2))
@settings(max_examples=200)
def test_lemma_3_with_tight_constants(seed, J, rho):
    rng, p = draw(seed, J)
    x, y, theta = p.sample(rng), p.sample(rng), rng.normal(size=p.m)
    lam = rng.exponential(size=J) * rng.choice([0.0, 1.0], size=J)

    def gradient(z):
        return p.jacobian(z, theta).T @ np.maximum(rho * p.f(z, theta) + lam, 0.0)

    left = np.linalg.norm(gradient(x) - gradient(y))
    right = lemma_3_constant(p, (x, y), theta, lam, rho) * np.linalg.norm(x - y)
    assert right - left >= -ROUNDING * (right + np.linalg.norm(gradient(x)))


def test_lemma_3_is_attained():
    """One affine constraint that is violated throughout: ∇Φ is linear with slope ρM²."""
    problem = vv.MisspecifiedVI(
        lambda x, t: x,
        set=vv.Box([1.0, 1.0], [2.0, 2.0]),
        constraints=lambda x, t: 3.0 * x[0] + 4.0 * x[1],
        learning=vv.Known(0.0),
    )
    rho, lam, theta = 2.0, np.zeros(1), np.array(0.0)
    step = np.array([0.3, 0.4])
    a, b = (vv.grad_x_Phi(problem, np.array([1.0, 1.0]) + t * step, lam, theta, rho) for t in (0.0, 1.0))
    assert np.linalg.norm(b - a) == pytest.approx(rho * 25.0 * np.linalg.norm(step))


@given(seed=SEEDS, J=LENGTHS, rho=st.floats(1e-2, 1e1), gamma=st.floats(1e-3, 0.5))
@settings(max_examples=150)
def test_one_step_inequality(seed, J, rho, gamma):
    """THEORY B.3, for any γ and ρ, any x in X and λ ≥ 0, along a run with a learner."""
    rng, p = draw(seed, J)
    theta_true, theta = rng.normal(size=(2, p.m))
    x = x_prev = p.sample(rng)
    theta_prev, lam = theta, np.zeros(J)
    for _ in range(4):
        r = p.F(x, theta) - p.F(x_prev, theta_prev)
        weights = np.maximum(rho * p.f(x, theta) + lam, 0.0)
        x_next = p.project(x - gamma * (p.F(x, theta) + r + p.jacobian(x, theta).T @ weights))
        lam_next = np.maximum(lam + rho * p.f(x_next, theta), 0.0)
        theta_next = theta_true + 0.7 * (theta - theta_true)
        r_next = p.F(x_next, theta_next) - p.F(x, theta)
        delta, L = x_next - x, lemma_3_constant(p, (x, x_next), theta, lam, rho)
        y, nu = p.sample(rng), rng.exponential(size=J) * rng.choice([0.0, 1.0], size=J)
        sq = lambda v: float(v @ v)
        left = (x_next - y) @ p.F(y, theta_true) + nu @ p.f(x_next, theta_true) - Phi(p.f(y, theta), lam, rho)
        terms = np.array(
            [
                (sq(x - y) - sq(x_next - y)) / (2 * gamma),
                (sq(lam - nu) - sq(lam_next - nu)) / (2 * rho),
                r_next @ (x_next - y),
                -r @ (x - y),
                -r @ delta,
                -0.5 * (1 / gamma - L) * sq(delta),
                np.linalg.norm(p.B, 2) * np.linalg.norm(theta_next - theta_true) * np.linalg.norm(x_next - y),
                np.linalg.norm(nu)
                * np.linalg.norm(p.E.transpose(0, 2, 1) @ x_next - p.e, 2)
                * np.linalg.norm(theta - theta_true),
            ]
        )
        assert terms.sum() - left >= -ROUNDING * (
            np.abs(terms).sum() + abs(left) + (sq(lam) + sq(nu)) / rho + 1
        )
        x_prev, theta_prev, x, lam, theta = x, theta, x_next, lam_next, theta_next
