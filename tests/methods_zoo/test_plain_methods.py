"""Plain VI methods against their twins, on problems that discriminate, and their oracle counts."""

from __future__ import annotations

import numpy as np
import pytest

import viceversa as vv
from methods_zoo import small_problems as P
from methods_zoo import twins
from methods_zoo.running import count_oracles, run

OMEGA, TAU = 2.0, 0.07
STEPS = vv.steps.Power(0.1, 0.3)
NONLINEAR, ON_SIMPLEX, DISC = P.nonlinear(), P.on_simplex(), P.disc()
ROTATION = P.rotation()
P_SWITCH = vv.SecondaryVI(lambda theta: theta + 1.0, set=vv.Box(-1.0, 1.0, shape=()))  # θ: 1 → −1
N_TWIN = 15
LEARN = {"learning_rate": P.RATE, "dual_ratio": OMEGA}

# name: (method, twin of the same parameters with a mutant, its mutants)
CASES = {
    "ProjectionMethod": (
        vv.ProjectionMethod(TAU, **LEARN),
        lambda m: twins.projection(twins.nonlinear(OMEGA), TAU, m),
        ["sign", "new theta"],
    ),
    "Extragradient": (
        vv.Extragradient(TAU, **LEARN),
        lambda m: twins.extragradient(twins.nonlinear(OMEGA), TAU, m),
        ["from y", "new theta"],
    ),
    "Popov": (
        vv.Popov(TAU, **LEARN),
        lambda m: twins.popov(twins.nonlinear(OMEGA), TAU, m),
        ["from y", "new theta"],
    ),
    "TsengForwardBackwardForward": (
        vv.TsengForwardBackwardForward(TAU, **LEARN),
        lambda m: twins.tseng(twins.nonlinear(OMEGA), TAU, m),
        ["sign"],
    ),
    "ForwardReflectedBackward": (
        vv.ForwardReflectedBackward(STEPS, **LEARN),
        lambda m: twins.forward_reflected_backward(
            twins.nonlinear(OMEGA), lambda k: 0.1 * (k + 1.0) ** -0.3, m
        ),
        ["sign", "new step"],
    ),
    "GoldenRatio": (
        vv.GoldenRatio(TAU, **LEARN),
        lambda m: twins.golden_ratio(twins.nonlinear(OMEGA), TAU, m),
        ["from z"],
    ),
    "AdaptiveGoldenRatio": (
        vv.AdaptiveGoldenRatio(TAU, **LEARN),
        lambda m: twins.adaptive_golden_ratio(twins.nonlinear(OMEGA), TAU, m),
        ["mixed theta", "unsquared"],
    ),
    "SolodovProjection": (
        vv.SolodovProjection(1.0, **LEARN),
        lambda m: twins.solodov(twins.nonlinear(OMEGA), 1.0, mutant=m),
        ["old point"],
    ),
    "AnchoredExtragradient": (
        vv.AnchoredExtragradient(TAU, **LEARN),
        lambda m: twins.anchored(twins.nonlinear(OMEGA), TAU, m),
        ["old anchor", "no normal"],
    ),
    "MirrorProx": (
        vv.MirrorProx(TAU, **LEARN),
        lambda m: twins.mirror_prox(TAU, OMEGA, m),
        ["sign", "from y"],
    ),
}


def assert_twin(name, points, twin, mutants):
    """Every iterate equals the twin's, and each mutant leaves it."""
    for k, (x, lam) in zip(range(len(points.x)), twin(None), strict=False):
        np.testing.assert_allclose(points.x[k], x, rtol=1e-11, atol=1e-12)
        np.testing.assert_allclose(points.lam[k], lam, rtol=1e-11, atol=1e-12)
    for mutant in mutants:
        apart = [
            max(np.abs(points.x[k] - x).max(), np.abs(points.lam[k] - lam).max())
            for k, (x, lam) in zip(range(len(points.x)), twin(mutant), strict=False)
        ]
        assert max(apart) > 1e-4, f"{name}: {len(apart)} iterates do not tell it from the mutant {mutant!r}"


@pytest.mark.parametrize("name", CASES)
def test_the_method_is_its_twin_and_not_a_mutant(name):
    method, twin, mutants = CASES[name]
    problem, x0 = (ON_SIMPLEX, P.SIMPLEX_X0) if name == "MirrorProx" else (NONLINEAR, P.X0)
    points, _ = run(problem, method, N_TWIN, x0, P.THETA0, P.LAM0)
    assert_twin(name, points, twin, mutants)


# Step sizes in the proved range for the disc (L ≈ 3.5 where the iterates are), and the iterations that suffice.
ON_DISC = {
    "Extragradient": (vv.Extragradient(0.2), 600),
    "Popov": (vv.Popov(0.1), 1000),
    "TsengForwardBackwardForward": (vv.TsengForwardBackwardForward(0.2), 600),
    "ForwardReflectedBackward": (vv.ForwardReflectedBackward(0.12), 1000),
    "GoldenRatio": (vv.GoldenRatio(0.2), 1000),
    "AdaptiveGoldenRatio": (vv.AdaptiveGoldenRatio(), 1000),
    "SolodovProjection": (vv.SolodovProjection(), 1000),
    "MirrorProx": (vv.MirrorProx(0.2), 600),
    "Restarted": (vv.Restarted(vv.AnchoredExtragradient(0.15)), 1500),
    "Averaged": (vv.Averaged(vv.Extragradient(0.2), over="recent"), 1500),
}


@pytest.mark.parametrize("name", ON_DISC)
def test_it_solves_a_bilinear_saddle_point_with_a_coupling_constraint_while_learning(name):
    method, n = ON_DISC[name]
    points, _ = run(DISC, method, n, [-1.0, 2.0], 2.5)
    np.testing.assert_allclose(points.x[-1], P.DISC_X, atol=1e-6)
    np.testing.assert_allclose(points.lam[-1], P.DISC_LAM, atol=1e-6)


def test_on_a_rotation_the_projection_method_moves_away_and_the_others_do_not():
    start, n = [3.0, 1.0], 300
    distance = {}
    for method in (
        vv.ProjectionMethod(0.2),
        vv.ForwardReflectedBackward(0.3),
        vv.AnchoredExtragradient(0.5),
        vv.AugmentedLagrangian(0.3, 1.0),
    ):
        points, _ = run(ROTATION, method, n, start, 1.0)
        distance[type(method).__name__] = np.linalg.norm(points.x - 1.0, axis=1)
    assert (np.diff(distance["ProjectionMethod"][:60]) > 0).all()
    assert distance["ForwardReflectedBackward"][-1] < 1e-4
    # Without constraints Algorithm 1 is forward–reflected–backward.
    np.testing.assert_allclose(
        distance["AugmentedLagrangian"][:50], distance["ForwardReflectedBackward"][:50], rtol=1e-10
    )
    # (k + 1)·residual of the last anchored iterate is bounded, and its order is no better than 1/k.
    k = np.arange(n + 1)
    scaled = (k + 1) * distance["AnchoredExtragradient"]
    assert scaled.max() < 4.0 * scaled[100]
    assert scaled[-1] > 0.25 * scaled[100]


def test_the_reflected_difference_with_a_plus_diverges_on_a_rotation():
    """The mutant a stationarity test cannot see: its fixed points are right."""
    x, G_prev = np.array([3.0, 1.0]), np.array([0.0, -2.0])
    for _ in range(300):
        G = np.array([x[1] - 1.0, 1.0 - x[0]])
        x, G_prev = np.clip(x - 0.3 * (2.0 * G + G_prev), -9.0, 9.0), G
    assert np.linalg.norm(x - 1.0) > 2.0


def test_without_a_simplex_mirror_prox_is_extragradient():
    a, _ = run(DISC, vv.MirrorProx(0.2), 12, [-1.0, 2.0], 2.5)
    b, _ = run(DISC, vv.Extragradient(0.2), 12, [-1.0, 2.0], 2.5)
    np.testing.assert_allclose(a.x, b.x, rtol=1e-13)


def test_mirror_prox_brings_back_a_share_that_was_almost_zero():
    """Matching pennies after a detour: log x is kept, so exp(−1000) of a share is not lost."""
    problem = vv.MisspecifiedVI(
        lambda x, theta: np.stack([theta, -1.0 * theta]), set=vv.Simplex(2), learning=P_SWITCH
    )
    points, _ = run(problem, vv.MirrorProx(40.0, learning_rate=0.02), 160, [0.5, 0.5], 1.0)
    assert points.x[40, 0] == 0.0
    assert points.x[-1, 0] == 1.0


def test_averages_are_the_weighted_means_of_the_methods_own_points():
    n = 37
    points, _ = run(NONLINEAR, vv.GoldenRatio(TAU, **LEARN), n, P.X0, P.THETA0, P.LAM0)
    everything, _ = run(NONLINEAR, vv.Averaged(vv.GoldenRatio(TAU, **LEARN)), n, P.X0, P.THETA0, P.LAM0)
    np.testing.assert_allclose(everything.x[-1], points.x[1:].mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(everything.lam[-1], points.lam[1:].mean(axis=0), rtol=1e-12)
    recent, _ = run(
        NONLINEAR, vv.Averaged(vv.GoldenRatio(TAU, **LEARN), over="recent"), n, P.X0, P.THETA0, P.LAM0
    )
    np.testing.assert_allclose(recent.x[-1], points.x[16:].mean(axis=0), rtol=1e-12)  # 2^5 ≤ 37: from 2^4 on


def test_restarting_makes_the_anchored_method_linear_on_a_sharp_problem():
    plain, _ = run(DISC, vv.AnchoredExtragradient(0.15), 600, [-1.0, 2.0], 2.5)
    restarted, state = run(DISC, vv.Restarted(vv.AnchoredExtragradient(0.15)), 600, [-1.0, 2.0], 2.5)
    assert np.linalg.norm(plain.x[-1] - P.DISC_X) > 1e-3
    assert np.linalg.norm(restarted.x[-1] - P.DISC_X) < 1e-3 * np.linalg.norm(plain.x[-1] - P.DISC_X)
    assert 2 <= int(state.method.n_restarts) < 60


COUNTED = [
    *(case[0] for case in CASES.values()),
    vv.AdaptiveGoldenRatio(),
    vv.Averaged(vv.Extragradient(0.1)),
    vv.Restarted(vv.AdaptiveGoldenRatio(), every=2),
]


@pytest.mark.parametrize("method", COUNTED, ids=lambda m: type(m).__name__)
def test_declared_oracle_counts_are_the_counted_ones(method):
    counted, declared = count_oracles(method, 5)
    assert (declared.F, declared.f, declared.pullback) == counted
