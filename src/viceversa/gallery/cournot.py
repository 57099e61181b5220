"""The paper's experiment: Cournot firms with drawn costs, an unknown demand slope and a price cap, with the truth."""

from __future__ import annotations

from typing import Any

import numpy as np

from viceversa.errors import InputError
from viceversa.gallery.instance import Instance, Real
from viceversa.gallery.piecewise_market import equilibrium, increasing_root
from viceversa.markets import cournot as build_market

CAPACITY = 5.0  # Cap_i of the paper
INTERCEPT = 100.0  # a*
N_OBSERVATIONS = 300  # T
CAP_FRACTION = 0.6  # of the smallest unconstrained price: the cap binds in every market, clearly
THETA_FACTOR = 2.0  # Θ = [θ*/2, 2θ*], θ₀ = 2θ*


def cournot(
    n_firms: int = 50,
    n_products: int = 5,
    seed: int = 0,
    slope: Real = 1.0,
    price_cap: Real | None = None,
    learn: str = "slope",
    noise: Real = 0.0,
    market: str = "separable",
    *,
    draws: str = "firm_product",
    delta: Real | None = None,
    capacity: Real = CAPACITY,
    intercept: Real = INTERCEPT,
    n_observations: int = N_OBSERVATIONS,
) -> Instance:
    """The paper's Cournot instance and its exact answer.

    Drawn by `numpy.random.default_rng(seed)` in this order: r ~ U[1, 10], g ~ U[5, 20], X_t ~ U[2, 20] for
    t = 1..300, then the noise of the prices p_t = a* − b* X_t. What the paper says is kept (capacity 5, a* = 100,
    costs ½ r x² + g x); what it leaves open is chosen as follows.

    slope: b*. Not given in the paper; with 1 some firms end at capacity at all of its sizes, and some idle at (100, 10).
    price_cap: p ≤ price_cap. Not given; the default is 0.6 × the smallest price without a cap, so that the cap binds
        in every market and a method that ignores it is seen to fail. Where few firms cannot reach that even at
        capacity, it lies halfway between the lowest price they can reach and the free one. np.inf leaves it out.
    delta: the cap as the paper's motivating example writes it, p ≤ a* − δ; the experiment section writes p ≤ δ, which
        is `price_cap`. The two are one family, δ ↔ a* − δ, so give one of them.
    learn: "slope" (θ = b, the paper's) or "both" (θ = {"intercept": a, "slope": b}). With the slope alone H has one
        eigenvalue and η = 1/L_H learns it in one step: a comparison must slow learning down on purpose (see
        `learning.rate_for`). "both" is slow by itself: its condition number is about 820.
    noise: the standard deviation of the prices. The truth is then the equilibrium at the least-squares θ, which is
        what can be learned, and not at the θ that made the data.
    market: "separable" (every product its own market, J = n_products; "X = Σ x_i" with x_i ∈ R^D is a vector) or
        "pooled" ("homogeneous products", "the coupling constraint": one market, J = 1, firm term b (X + s_i)).
    draws: "firm_product" draws r and g for every firm and product; "firm" for every firm, as the paper's index i says,
        which makes all products of a separable market copies of one.

    Θ = [θ*/2, 2θ*] and θ₀ = 2θ*, in every component: compact as the theorem asks, the start at its far corner.
    The answer comes from one-dimensional root finding (`gallery.piecewise_market`), not from any solver here.

    Example:
        >>> import viceversa as vv
        >>> instance = vv.gallery.cournot(n_firms=50, n_products=5, seed=0, price_cap=12.2)
        >>> print(instance.multiplier_true.round(3)[:3])
        [11.899  9.323 11.309]
    """
    _check(n_firms, n_products, slope, noise, market, draws, learn, capacity, intercept, n_observations)
    capacity = float(capacity)
    rng = np.random.default_rng(seed)
    drawn = (n_firms, n_products if draws == "firm_product" else 1)
    r = np.broadcast_to(rng.uniform(1.0, 10.0, drawn), (n_firms, n_products)).copy()
    g = np.broadcast_to(rng.uniform(5.0, 20.0, drawn), (n_firms, n_products)).copy()
    quantity = rng.uniform(2.0, 20.0, n_observations)
    price = intercept - slope * quantity
    if noise > 0:
        price = price + noise * rng.standard_normal(n_observations)
    a, b = (
        _least_squares(quantity, price, intercept, learn) if noise > 0 else (float(intercept), float(slope))
    )
    cap = _cap(price_cap, delta, intercept)
    truth = equilibrium(r, g, np.asarray(capacity), a, b, cap, market == "pooled")
    if price_cap is None and delta is None:
        outputs = n_firms * (n_products if market == "pooled" else 1)
        cap = _default_cap(float(truth.price_unconstrained.min()), a - b * outputs * capacity)
        truth = equilibrium(r, g, np.asarray(capacity), a, b, cap, market == "pooled")
    both = learn == "both"
    problem = build_market(
        (r, g),
        capacity,
        (price, quantity),
        cap,
        intercept=None if both else intercept,
        market=market,
        n_firms=n_firms,
        n_products=n_products,
        slope_bounds=(b / THETA_FACTOR, b * THETA_FACTOR),
        intercept_bounds=(a / THETA_FACTOR, a * THETA_FACTOR) if both else None,
    )
    return Instance(
        name=f"cournot({n_firms},{n_products},seed={seed})",
        problem=problem,
        theta_true={"intercept": np.asarray(a), "slope": np.asarray(b)} if both else np.asarray(b),
        x_true=truth.x,
        multiplier_true=truth.multiplier,
        theta0=(
            {"intercept": np.asarray(THETA_FACTOR * a), "slope": np.asarray(THETA_FACTOR * b)}
            if both
            else np.asarray(THETA_FACTOR * b)
        ),
        constants=cournot_constants(
            r,
            quantity,
            capacity,
            a,
            b,
            cap,
            b_bounds=(b / THETA_FACTOR, b * THETA_FACTOR),
            learn=learn,
            market=market,
        ),
        source="dey2026misspecified, Section 5",
        units="x: quantity; multiplier: money per unit of price; theta: money per unit of quantity",
        details={"price_unconstrained": truth.price_unconstrained, "price": truth.price, "price_cap": cap},
    )


def cournot_constants(
    r: np.ndarray,
    quantity: np.ndarray,
    capacity: float,
    intercept: float,
    slope: float,
    price_cap: float | None,
    *,
    b_bounds: tuple[float, float],
    learn: str = "slope",
    market: str = "separable",
) -> dict[str, float]:
    """The constants of the analysis in closed form, proved for X = [0, Cap]^{N×D} and Θ = [θ*/2, 2θ*].

    L_F_x           of F in x, an upper bound for every θ in Θ: r_max + b_max (N + 1); pooled r_max + b_max D (N + 1)
    L_F_theta       of F in θ, attained at x = Cap
    L_f_x, L_f_theta  of each f_j in x and in θ;  ell  of the vector f in θ, √J L_f_theta
    L_grad_f_x, L_grad_f_theta  of each ∇f_j; the first is 0 because f is affine in x
    M_grad_f        sup ‖Jf‖: the rows have disjoint supports, so it does not grow with J
    C1, C1_paper    L^Φ = ρ C1 + ‖λ‖ C2: M² (tight), and √J L_f_x M as printed;  C2 = 0
    C3, C4          L^Φ_{xθ} = ρ C3 + ‖λ‖ C4
    D_f             sup ‖[f]₊‖ over X × Θ (at x = 0);  sup_abs_f  sup |f_j|
    D_X, D_Theta    the diameter of X, and sup ‖θ − θ*‖ over Θ
    mu_F            r_min + b_min (pooled: r_min), a lower bound for every θ in Θ
    mu_H, L_H       the extreme eigenvalues of the sum Σ_t; equal when only the slope is learned
    L_F_x_tight     (separable) the exact largest eigenvalue of the Jacobian at b_max, from its secular equation

    With both coefficients learned, ∂F/∂θ has the rows (−1, X_d + x_id) and ∂f/∂θ the rows (1, −X_d), which adds 1
    under the roots.
    """
    N, D = r.shape
    pooled, both = market == "pooled", learn == "both"
    b_min, b_max = b_bounds
    group = N * D if pooled else N  # how many outputs enter one price
    J = 0 if price_cap is None else 1 if pooled else D
    a_max = THETA_FACTOR * intercept if both else intercept
    one = 1.0 if both else 0.0
    own_and_total = (N + 1) * capacity * (D if pooled else 1)  # X + own at x = Cap
    L_f_theta = float(np.sqrt(one + (group * capacity) ** 2))
    M = b_max * np.sqrt(group)
    slack = 0.0 if price_cap is None else a_max - price_cap
    least = (intercept / THETA_FACTOR if both else intercept) - (price_cap or 0.0)
    D_f = np.sqrt(J) * max(slack, 0.0)
    design = np.column_stack([np.ones_like(quantity), -quantity]) if both else quantity[:, None]
    eigenvalues = np.linalg.svd(design, compute_uv=False) ** 2
    widths = [THETA_FACTOR - 1.0, 1.0 - 1.0 / THETA_FACTOR]
    deviations = [max(slope - b_min, b_max - slope)] + ([max(widths) * intercept] if both else [])
    constants = {
        "L_F_x": r.max() + b_max * (N + 1) * (D if pooled else 1),
        "L_F_theta": np.sqrt(N * D) * np.sqrt(one + own_and_total**2),
        "L_f_x": b_max * np.sqrt(group),
        "L_f_theta": L_f_theta,
        "ell": np.sqrt(J) * L_f_theta,
        "L_grad_f_x": 0.0,
        "L_grad_f_theta": np.sqrt(group),
        "M_grad_f": M,
        "C1": M**2,
        "C1_paper": np.sqrt(J) * b_max * np.sqrt(group) * M,
        "C2": 0.0,
        "C3": np.sqrt(J) * (np.sqrt(group) * D_f + L_f_theta * M),
        "C4": np.sqrt(J) * np.sqrt(group),
        "D_f": D_f,
        "sup_abs_f": max(slack, b_max * group * capacity - least),
        "D_X": capacity * np.sqrt(N * D),
        "D_Theta": np.sqrt(np.sum(np.square(deviations))),
        "mu_F": r.min() + (0.0 if pooled else b_min),
        "mu_H": eigenvalues[-1],
        "L_H": eigenvalues[0],
    }
    if not pooled:
        constants["L_F_x_tight"] = _largest_eigenvalue(r + b_max, b_max)
    return {name: float(value) for name, value in constants.items()}


def _largest_eigenvalue(diagonal: np.ndarray, b: float) -> float:
    """The largest eigenvalue over the columns d of diag(diagonal_d) + b 11ᵀ: the last root of Σ b/(z − diagonal) = 1."""
    N = diagonal.shape[0]
    low, high = diagonal.max(axis=0), diagonal.max(axis=0) + b * N

    def secular(z):
        gaps = np.maximum(z - diagonal, 1e-300)
        return 1.0 - np.sum(b / gaps, axis=0), np.sum(b / gaps**2, axis=0)

    return float(increasing_root(secular, low + b, high).max())


def _least_squares(quantity, price, intercept, learn: str) -> tuple[float, float]:
    if learn == "slope":
        return float(intercept), float(quantity @ (intercept - price) / (quantity @ quantity))
    centred = quantity - quantity.mean()
    slope = -float(centred @ (price - price.mean()) / (centred @ centred))
    return float(price.mean() + slope * quantity.mean()), slope


def _default_cap(free: float, lowest: float) -> float:
    """A cap that binds and can be met: 0.6 × the free price, or halfway to the lowest price that output can reach."""
    if lowest >= free * (1 - 1e-9):
        raise InputError(
            f"gallery.cournot: without a cap every firm is at capacity and the price is {free:.6g}, so no cap can bind. "
            "Pass more firms, a larger slope or capacity, or price_cap=np.inf."
        )
    return CAP_FRACTION * free if lowest < CAP_FRACTION * free else 0.5 * (lowest + free)


def _cap(price_cap: Real | None, delta: Real | None, intercept: Real) -> float | None:
    if price_cap is not None and delta is not None:
        raise InputError(
            "gallery.cournot: price_cap and delta say the same thing (price_cap = intercept − delta). Give one of them."
        )
    if delta is not None:
        price_cap = intercept - delta
    return None if price_cap is None or np.isposinf(price_cap) else float(price_cap)


def _check(
    n_firms, n_products, slope, noise, market, draws, learn, capacity, intercept, n_observations
) -> None:
    for name, value, least in (
        ("n_firms", n_firms, 1),
        ("n_products", n_products, 1),
        ("n_observations", n_observations, 2),
    ):
        if int(value) != value or value < least:
            raise InputError(f"gallery.cournot: {name} is {value}; a whole number >= {least} is needed.")
    for name, value in (("slope", slope), ("capacity", capacity), ("intercept", intercept)):
        if not (np.isfinite(value) and value > 0):
            raise InputError(f"gallery.cournot: {name} is {value}; a finite number > 0 is needed.")
    if not (np.isfinite(noise) and noise >= 0):
        raise InputError(f"gallery.cournot: noise is {noise}; a standard deviation >= 0 is needed.")
    choices: tuple[tuple[str, Any, tuple[str, ...]], ...] = (
        ("market", market, ("separable", "pooled")),
        ("draws", draws, ("firm_product", "firm")),
        ("learn", learn, ("slope", "both")),
    )
    for name, value, allowed in choices:
        if value not in allowed:
            raise InputError(
                f"gallery.cournot: {name} is {value!r}; {' or '.join(map(repr, allowed))} is needed."
            )
