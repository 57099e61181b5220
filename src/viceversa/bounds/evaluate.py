"""`bounds`: the theorem's constants for one problem and one choice of steps."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import numpy as np

from viceversa.bounds.theorem import Bounds, Weights
from viceversa.constants import Constants, theory_steps
from viceversa.constants import constants as compute_constants
from viceversa.constants.ingredients import (
    Ingredients,
    drift,
    dual_radius,
    ingredients,
    printed_dual_radius,
)
from viceversa.constants.theory_steps import check_version
from viceversa.errors import InputError
from viceversa.methods import AcceleratedAugmentedLagrangian, AugmentedLagrangian
from viceversa.problem import MisspecifiedVI
from viceversa.steps import Constant as ConstantStep

_NEEDED = ("L_F_x", "L_F_theta", "ell", "C1", "C2", "D_X", "L_H", "mu_H")
_NEEDED_PRINTED = (*_NEEDED, "C1_paper", "C3", "C4", "D_f", "L_f_theta", "D_Theta")
_SMALL_START = 1e-2  # the accelerated variant's ρ₀ as a fraction of the balanced one: it grows by itself


def bounds(
    problem: MisspecifiedVI,
    K: int,
    version: str = "corrected",
    *,
    method: Any = None,
    x0: Any = None,
    theta0: Any = None,
    x_true: Any = None,
    theta_true: Any = None,
    multiplier_norm: float | None = None,
    declared: Mapping[str, float] | None = None,
    constants: Constants | None = None,
) -> Bounds:
    """What is proved about K iterations of Algorithm 1 on this problem, before running it.

    `method` is an `AugmentedLagrangian` with constant steps (default: `from_theory`), an
    `AcceleratedAugmentedLagrangian`, or "accelerated" (its parameters from theory). Unknown x*, θ* and λ* are replaced
    by bounds, and the printed table says by which. No bound is computed from an estimated constant.

    Example:
        >>> import viceversa as vv
        >>> problem = vv.MisspecifiedVI(lambda x, t: x - t, set=vv.Box([0.0], [4.0]), learning=vv.Known(2.0),
        ...                             constraints=lambda x, t: x - 1.0)
        >>> proved = vv.bounds(problem, K=1000)
        >>> proved.title, proved.infeasibility < 1.0, proved.iterations(0.1) > 1000
        ('proved (corrected analysis)', True, True)
    """
    check_version(version)
    if int(K) != K or K < 1:
        raise InputError(f"K is {K}; a whole number >= 1 is needed.")
    c = compute_constants(problem, declared) if constants is None else constants
    c.require_bounds("bounds", *(_NEEDED if version == "corrected" else _NEEDED_PRINTED))
    accelerated = isinstance(method, AcceleratedAugmentedLagrangian) or method == "accelerated"
    if accelerated and version == "paper":
        raise InputError("version='paper': the paper has no accelerated variant. Use version='corrected'.")
    if not accelerated and method is not None and not isinstance(method, AugmentedLagrangian):
        raise InputError(
            f"method is {type(method).__name__}; the theorem is about AugmentedLagrangian with constant steps, "
            "AcceleratedAugmentedLagrangian, or 'accelerated'."
        )
    given = ingredients(
        problem,
        c,
        x0=x0,
        theta0=theta0,
        learning_rate=learning_rate_of(problem, None if method == "accelerated" else method),
        multiplier_norm=multiplier_norm,
        x_true=x_true,
        theta_true=theta_true,
    )
    J = problem.n_constraints
    if accelerated:
        return _accelerated(c, given, int(K), J, method)
    if version == "paper":
        return _printed(problem, c, given, int(K), method)
    return _corrected(problem, c, given, int(K), method)


def learning_rate_of(problem: MisspecifiedVI, method: Any) -> float:
    """η of a method whose learner is the projected step with a constant rate; the theorem knows no other."""
    if method is None or (method.learner is None and method.learning_rate is None):
        return float(problem.learning.default_rate())
    if method.learner is not None or not isinstance(method.learning_rate, ConstantStep):
        raise InputError("the theorem is about the projected learning step with a constant learning_rate.")
    return float(method.learning_rate.value)


def constant_steps(method: AugmentedLagrangian) -> tuple[float, float]:
    """(γ, ρ) of a method with constant steps."""
    if not (isinstance(method.step_size, ConstantStep) and isinstance(method.penalty, ConstantStep)):
        raise InputError("the theorem needs a constant step_size and a constant penalty.")
    return float(method.step_size.value), float(method.penalty.value)


def feasibility_constant(
    c: Constants,
    given: Ingredients,
    J: int,
    gamma: float,
    rho: float,
    multiplier_size: float,
    lam0: float = 0.0,
) -> float:
    """C_feas = ‖x₀−x*‖²/(2γ) + (‖λ₀‖+√J+‖λ*‖)²/(2ρ) + 3L_{F,θ}D S₁ + ℓ(√J + ‖λ*‖ + sup‖λ_k‖)S₁ + ρℓ²S₂/2."""
    size, ell, sums = given.multiplier.value, float(c.ell), given.sums
    reach = float(np.sqrt(J)) + size
    return (
        given.x_reach**2 / (2.0 * gamma)
        + ((lam0 + reach) ** 2 / (2.0 * rho) if J else 0.0)
        + 3.0 * drift(c, given) * sums.S1
        + ell * (reach + multiplier_size) * sums.S1
        + 0.5 * rho * ell**2 * sums.S2
    )


def gap_constant(
    c: Constants, given: Ingredients, gamma: float, rho: float, multiplier_size: float, lam0: float = 0.0
) -> float:
    """C_gap = D²/(2γ) + ‖λ₀‖²/(2ρ) + 3L_{F,θ}D S₁ + sup‖λ_k‖ ℓ S₁ + ρℓ²S₂/2."""
    ell, sums = float(c.ell), given.sums
    return (
        given.D**2 / (2.0 * gamma)
        + lam0**2 / (2.0 * rho)
        + 3.0 * drift(c, given) * sums.S1
        + multiplier_size * ell * sums.S1
        + 0.5 * rho * ell**2 * sums.S2
    )


def _corrected(problem: MisspecifiedVI, c: Constants, given: Ingredients, K: int, method: Any) -> Bounds:
    size, J = given.multiplier.value, problem.n_constraints
    if method is None:
        rho = theory_steps(problem, constants=c, multiplier_norm=size).penalty
        radius = dual_radius(c, given, rho)
        needed = rho * float(c.C1) + float(c.C2) * (size + radius) + 2.0 * float(c.L_F_x)
        gamma = 1.0 / needed if needed > 0.0 else 1.0
    else:
        gamma, rho = constant_steps(method)
        radius = dual_radius(c, given, rho, inverse_step=1.0 / gamma)
        needed = rho * float(c.C1) + float(c.C2) * (size + radius) + 2.0 * float(c.L_F_x)
        if 1.0 / gamma < needed * (1.0 - 1e-12):
            raise InputError(
                f"method: step_size = {gamma:.6g} is above the proved range, 1/(ρC₁ + C₂(‖λ*‖ + D_Λ) + 2L_F,x) = {1 / needed:.6g}. "
                "Nothing is proved in advance; check the run itself with runtime_certificate, or take a smaller step."
            )
    mu = float(c.mu_F) if c.mu_F.is_bound else 0.0
    C_0 = _distance_constant(c, given, gamma, rho, radius)
    return Bounds(
        version="corrected",
        method="Algorithm 1",
        K=K,
        step_size=gamma,
        penalty=rho,
        learning_rate=given.learning_rate,
        D_Lambda=radius,
        C_feas=feasibility_constant(c, given, J, gamma, rho, size + radius),
        C_gap=gap_constant(c, given, gamma, rho, size + radius),
        multiplier_size=size + radius,
        drift=rho * float(c.ell) * given.sums.S1,
        distance_constant=C_0 / mu if mu > 0.0 else None,
        given=given,
        constants=c,
    )


def _distance_constant(c: Constants, given: Ingredients, gamma: float, rho: float, radius: float) -> float:
    """C_0 with (1/K) Σ‖x_k − x*‖² ≤ C_0/(μK)."""
    size, ell, sums = given.multiplier.value, float(c.ell), given.sums
    return (
        given.x_reach**2 / (2.0 * gamma)
        + size**2 / (2.0 * rho)
        + 3.0 * drift(c, given) * sums.S1
        + ell * (2.0 * size + radius) * sums.S1
        + 0.5 * rho * ell**2 * sums.S2
    )


def _printed(problem: MisspecifiedVI, c: Constants, given: Ingredients, K: int, method: Any) -> Bounds:
    """Theorem 1 as printed (with D_X = diam X), whether or not its proof is right."""
    J, size, sums, D = problem.n_constraints, given.multiplier.value, given.sums, given.D
    if method is None:
        steps = theory_steps(problem, "paper", constants=c, multiplier_norm=size)
        gamma, rho = steps.step_size, steps.penalty
    else:
        gamma, rho = constant_steps(method)
    D_Theta, L_Ft, L_ft = float(c.D_Theta), float(c.L_F_theta), float(c.L_f_theta)
    radius = printed_dual_radius(c, given, D_Theta, rho, J)
    if method is None:
        parts = rho * float(c.C1_paper) + float(c.C2) * (size + radius) + 2.0 * float(c.L_F_x) + L_Ft
        gamma = 1.0 / parts
    L_xt = rho * float(c.C3) + (radius + size) * float(c.C4)
    C_T = D**2 / (2.0 * gamma) + 2.0 * L_Ft * D * D_Theta
    C_R = (
        L_Ft * D
        + 2.0 * L_xt * D
        + 2.0 * float(c.L_Phi_lambda_theta) * radius
        + 2.0 * L_ft * (J * rho * float(c.D_f) + np.sqrt(J) * (radius + size))
    ) * sums.S1 + (L_Ft + 0.5 * J * rho * L_ft**2) * sums.S2
    return Bounds(
        version="paper",
        method="Algorithm 1",
        K=K,
        step_size=gamma,
        penalty=rho,
        learning_rate=given.learning_rate,
        D_Lambda=radius,
        C_feas=float(C_T + C_R + (J + size**2) / rho),
        C_gap=float(C_T + C_R),
        multiplier_size=radius,  # the printed statement has D_Λ where D_Λ + ‖λ*‖ is proved
        drift=0.0,
        distance_constant=None,
        given=given,
        constants=c,
    )


def _accelerated(c: Constants, given: Ingredients, K: int, J: int, method: Any) -> Bounds:
    """The accelerated variant: B.3 with weights t_k ≤ 1 + κk, κ = μ/(C₁ρ₀) (THEORY.md B.5)."""
    c.require_bounds("bounds of the accelerated variant", "mu_F")
    size, C1, L = given.multiplier.value, float(c.C1), float(c.L_F_x)
    if not (float(c.mu_F) > 0.0 and C1 > 0.0):
        raise InputError(
            f"method: the accelerated variant needs constraints (C₁ > 0; here {C1:.4g}) and a proved μ_F > 0 (here "
            f"{float(c.mu_F):.4g}, {c.mu_F.provenance}). Use plain Algorithm 1."
        )
    if method == "accelerated":
        mu, curvature = float(c.mu_F), C1
        rho = _SMALL_START * 0.4 * L / C1
        radius = dual_radius(c, given, rho, kappa=mu / (C1 * rho))
        c0 = 2.0 * L + float(c.C2) * (size + radius)
    else:
        mu, curvature, rho, c0 = (
            float(v) for v in (method.mu, method.curvature, method.penalty, method.inverse_step)
        )
        radius = dual_radius(c, given, rho, inverse_step=c0 + curvature * rho, kappa=mu / (curvature * rho))
        needed = 2.0 * L + float(c.C2) * (size + radius)
        for name, value, least in (("inverse_step", c0, needed), ("curvature", curvature, C1)):
            if value < least * (1.0 - 1e-12):
                raise InputError(f"method: {name} = {value:.6g}; at least {least:.6g} is needed for a proof.")
        if mu > float(c.mu_F) * (1.0 + 1e-12):
            raise InputError(f"method: mu = {mu:.6g} is above the proved modulus μ_F = {float(c.mu_F):.6g}.")
    kappa = mu / (curvature * rho)
    S_t, S_tt, S_2t = given.sums.growing(kappa)
    ell, gamma0, reach = float(c.ell), 1.0 / (c0 + curvature * rho), float(np.sqrt(J)) + size
    common = 3.0 * drift(c, given) * S_t + 0.5 * rho * ell**2 * S_2t
    at_solution = given.x_reach**2 / (2.0 * gamma0) + common
    return Bounds(
        version="corrected",
        method="accelerated Algorithm 1",
        K=K,
        step_size=gamma0,
        penalty=rho,
        learning_rate=given.learning_rate,
        D_Lambda=radius,
        C_feas=at_solution + reach**2 / (2.0 * rho) + ell * (reach + size + radius) * S_t,
        C_gap=given.D**2 / (2.0 * gamma0) + common + (size + radius) * ell * S_t,
        multiplier_size=size + radius,
        drift=rho * ell * S_tt,
        distance_constant=None,
        given=given,
        constants=c,
        weights=_growing_weights(mu, curvature, rho, c0),
    )


def _growing_weights(mu: float, C1: float, rho0: float, c0: float) -> Weights:
    """T_K and Q_K of t_k = ρ_k/ρ₀ with the recursion of the accelerated variant, counted once as far as asked."""
    totals, squares, state = [0.0], [0.0], [rho0]

    def extend(K: int) -> None:
        rho = state[0]
        while len(totals) <= K:
            t = rho / rho0
            totals.append(totals[-1] + t)
            squares.append(squares[-1] + t * t)
            b = 2.0 * C1 * rho + c0
            rho += 4.0 * mu * rho / (b + (b * b + 8.0 * C1 * mu * rho) ** 0.5)
        state[0] = rho

    def look(values: list[float], K: int) -> float:
        extend(K)
        return values[K]

    return Weights(functools.partial(look, totals), functools.partial(look, squares), equal=False)
