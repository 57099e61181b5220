"""Applications with their truth: a planted portfolio, a fair classifier in closed form, a network learned from its flows."""

from __future__ import annotations

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from viceversa.errors import InputError
from viceversa.expectation import fair_classifier as build_classifier
from viceversa.gallery.instance import Instance
from viceversa.imputation import imputed_equilibrium
from viceversa.portfolio import markowitz as build_portfolio
from viceversa.sets import Box, Simplex


def markowitz(n_assets: int = 20, n_periods: int = 60, seed: int = 0) -> Instance:
    """A portfolio planted in a table of returns: the sample's own mean and covariance make x* the answer.

    x* holds half of the assets, the risk limit and the cap of the first group bind. Returns are standardised draws Z
    with sample covariance I, times a factor of S, plus the mean that the optimality conditions prescribe:
        m = 2 λ_r S x*/limit² + λ_g 1_group + ν 1 − w,   w ≥ 0 and zero where x* > 0.
    """
    if n_assets < 4 or n_periods <= n_assets:
        raise InputError(
            f"gallery.markowitz: {n_assets} assets and {n_periods} periods; at least 4 assets and more periods than assets "
            "are needed."
        )
    rng = np.random.default_rng(seed)
    factors = 0.01 * rng.standard_normal((n_assets, 3))
    S = factors @ factors.T + np.diag(rng.uniform(0.005, 0.02, n_assets) ** 2)
    held = np.arange(n_assets) % 2 == 0
    x = np.where(held, rng.uniform(0.5, 1.5, n_assets), 0.0)
    x /= x.sum()
    group = np.arange(n_assets) < n_assets // 2
    limit, cap = np.sqrt(x @ S @ x), x[group].sum()
    risk_multiplier, group_multiplier, level = 4e-4, 1e-4, 2e-4
    w = np.where(held, 0.0, rng.uniform(1e-5, 2e-4, n_assets))
    mean = 2 * risk_multiplier * S @ x / limit**2 + group_multiplier * group + level - w
    draws = rng.standard_normal((n_periods, n_assets))
    draws -= draws.mean(axis=0)
    draws = np.linalg.qr(draws)[0] * np.sqrt(n_periods - 1)
    returns = draws @ np.linalg.cholesky(S).T + mean
    problem = build_portfolio(returns, risk_limit=limit, groups={"first": (range(n_assets // 2), cap)})
    return Instance(
        name="markowitz",
        problem=problem,
        theta_true={"mean": mean, "covariance": S},
        x_true=x,
        multiplier_true=np.array([risk_multiplier, group_multiplier]),
        theta0={"mean": 2.0 * mean, "covariance": 0.5 * S + 0.5 * np.diag(np.diag(S))},
        source="markowitz1952portfolio; planted answer",
        units="x: weights; theta: return per period and its square; multiplier: return per period",
        details={"returns": returns, "risk_limit": float(limit), "cap": float(cap)},
    )


def fair_classifier() -> Instance:
    """Two groups, each with one feature ±1 of its own: worst-group logistic regression under score parity, by hand.

    Group g's loss is L_g(w_g) = log(1 + e^{−w_g}) + (1 − q_g) w_g with q_g the share of rows whose label has the sign of
    the feature. w* is chosen, q₁ such that both groups are equally badly off, and the feature means m_g such that
        p_g (σ(w_g) − q_g) + ridge·w_g ± λ m_g = 0,   parity = w₀m₀ − w₁m₁,
    so w*, p* and λ* are the answer; the weights of eight rows carry q and m.
    """
    ridge, p, w, q0, m0 = 0.05, np.array([0.6, 0.4]), np.array([0.9, 1.2]), 0.90, 0.5
    sigmoid = 1.0 / (1.0 + np.exp(-w))
    loss = np.log1p(np.exp(-w[0])) + (1 - q0) * w[0]
    q = np.array([q0, 1.0 - (loss - np.log1p(np.exp(-w[1]))) / w[1]])
    force = p * (sigmoid - q) + ridge * w
    multiplier = -force[0] / m0
    m = np.array([m0, force[1] / multiplier])
    features, labels, groups, weights = [], [], [], []
    for g in range(2):
        for z in (1.0, -1.0):
            for agrees in (True, False):
                features.append(np.eye(2)[g] * z)
                labels.append(1 if (z > 0) == agrees else 0)
                groups.append(g)
                weights.append(0.5 * (1 + z * m[g]) / 2 * (q[g] if agrees else 1 - q[g]))
    parity = w[0] * m[0] - w[1] * m[1]
    problem = build_classifier(features, labels, groups, parity, ridge=ridge, weights=weights)
    return Instance(
        name="fair_classifier",
        problem=problem,
        theta_true=np.diag(m),
        x_true=np.concatenate([w, p]),
        multiplier_true=np.array([multiplier, 0.0]),
        theta0=np.zeros((2, 2)),
        source="yang2022data; closed form",
        units="x: classifier weights, then the weights of the groups; multiplier: loss per unit of score",
        details={"loss": float(loss), "parity": float(parity)},
    )


class LinkTimes(eqx.Module):
    """F(v, θ) = t⁰ + θ v: the travel time of every link, free-flow times known and congestion slopes θ learned."""

    free: np.ndarray

    def __call__(self, v: Array, theta: Array) -> Array:
        return jnp.asarray(self.free) + theta * v


class LinkCap(eqx.Module):
    """f = v_link − cap ≤ 0 on one link; its multiplier is the toll that enforces it."""

    cap: np.ndarray
    link: tuple[int, int] = eqx.field(static=True)

    def __call__(self, v: Array, theta: Array) -> Array:
        return v[self.link] - self.cap


def imputed_network(n_sections: int = 3, n_links: int = 7, n_observed: int = 6, seed: int = 0) -> Instance:
    """Parallel roads in sections: slopes of all link times learned from observed flows, then a closure and a cap.

    θ has one slope per link (21 by default). The flows were observed at several demands; the prediction is for another
    demand, with the first link of the first section closed and a cap on the busiest link of the last section. Every flow is
    Wardrop's equilibrium in closed form: the used links of a section share one travel time τ, Σ (τ − t⁰)/θ = demand.
    """
    rng = np.random.default_rng(seed)
    shape = (n_sections, n_links)
    free, slope = rng.uniform(4.0, 8.0, shape), rng.uniform(0.5, 2.0, shape)
    demands = np.linspace(20.0, 60.0, n_observed)[:, None] * rng.uniform(0.8, 1.2, (n_observed, n_sections))
    open_links = np.ones(shape, dtype=bool)
    observed = [(wardrop(free, slope, d, open_links), Simplex(shape, total=d)) for d in demands]
    mask = open_links.copy()
    mask[0, 0] = False
    demand = np.full(n_sections, 50.0)
    uncapped = wardrop(free, slope, demand, mask)
    link = (n_sections - 1, int(np.argmax(uncapped[-1])))
    cap = 0.6 * uncapped[link]
    rest = mask.copy()
    rest[link] = False
    x = wardrop(free, slope, demand - cap * (np.arange(n_sections) == link[0]), rest)
    x[link] = cap
    times = free + slope * x
    toll = times[link[0]][rest[link[0]] & (x[link[0]] > 0)].min() - times[link]
    problem = imputed_equilibrium(
        LinkTimes(free),
        observed,
        Box(0.1, 5.0, shape=shape),
        Simplex(shape, total=demand, mask=mask),
        constraints=LinkCap(np.asarray(cap), link),
        constraint_names=("link_cap",),
        symmetric=True,
    )
    return Instance(
        name="imputed_network",
        problem=problem,
        theta_true=slope,
        x_true=x,
        multiplier_true=np.array([toll]),
        theta0=np.full(shape, 1.0),
        source="thai2018imputing; closed form",
        units="x: flow on each link; theta: minutes per unit of flow; multiplier: toll in minutes",
        details={"demands": demands, "free": free, "link": link, "cap": float(cap), "uncapped": uncapped},
    )


def wardrop(free: np.ndarray, slope: np.ndarray, demand: np.ndarray, allowed: np.ndarray) -> np.ndarray:
    """The equilibrium of parallel links with times free + slope·v, section by section: fill the fastest first."""
    flow = np.zeros(free.shape)
    for s in range(free.shape[0]):
        links = np.flatnonzero(allowed[s])
        links = links[np.argsort(free[s, links])]
        used, tau = links, 0.0
        for n_used in range(1, len(links) + 1):
            used = links[:n_used]
            tau = (demand[s] + (free[s, used] / slope[s, used]).sum()) / (1 / slope[s, used]).sum()
            if n_used == len(links) or tau <= free[s, links[n_used]]:
                break
        flow[s, used] = (tau - free[s, used]) / slope[s, used]
    return flow
