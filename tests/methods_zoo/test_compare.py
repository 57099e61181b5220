"""Learn-then-solve, the oracle, and the comparison of schemes at equal evaluations."""

from __future__ import annotations

import sys

import numpy as np
import pytest

import viceversa as vv
from methods_zoo import small_problems as P
from methods_zoo import twins
from methods_zoo.running import count_oracles, run
from unchecked import refused
from viceversa.report import plot_comparison

NONLINEAR = P.nonlinear()
METHOD = vv.ForwardReflectedBackward(0.07, dual_ratio=2.0, learning_rate=P.RATE)
LEARNER = vv.ProjectedGradient(P.RATE)
STARTS = (P.X0, P.THETA0, P.LAM0)


def frozen(p, theta, n, x, lam):
    """Forward–reflected–backward at one θ, from the formula."""
    z = np.concatenate([x, lam])
    G_prev = p.G(z, theta)
    for _ in range(n):
        G = p.G(z, theta)
        z, G_prev = p.project(z - 0.07 * G - 0.07 * (G - G_prev)), G
    return z


def test_sequential_learns_first_with_x_at_rest_and_then_solves_at_the_learned_parameter():
    learn_tol, n = 1e-3, 80
    points, state = run(NONLINEAR, vv.Sequential(LEARNER, METHOD, learn_tol), n, *STARTS)
    n_learning = int(state.n_learning)
    p, theta = twins.nonlinear(2.0), P.THETA0.copy()
    size = lambda t: max(np.linalg.norm(t), 2.8)  # the width of Θ
    mu, L = 2.0, np.sqrt(5.0)  # of H: W = 2I + skew

    def bound(t):
        H = P.W @ (t - P.THETA_TRUE)
        projected = np.clip(t - H / L, P.THETA_LOWER, P.THETA_UPPER)
        return min(2.0 * L / mu * np.linalg.norm(t - projected), np.linalg.norm(H) / mu)

    steps = 0
    while bound(theta) > learn_tol * size(theta):
        theta, steps = p.learn(theta), steps + 1
    assert n_learning == steps > 10
    np.testing.assert_array_equal(points.x[: n_learning + 1], np.broadcast_to(P.X0, (n_learning + 1, 3)))
    np.testing.assert_allclose(points.theta[-1], theta, rtol=1e-12)
    np.testing.assert_array_equal(points.theta[n_learning], points.theta[-1])
    z = frozen(p, theta, n - n_learning, P.X0, P.LAM0)
    np.testing.assert_allclose(points.x[-1], z[:3], rtol=1e-10)
    assert np.linalg.norm(theta - P.THETA_TRUE) <= learn_tol * size(theta)


def test_the_oracle_solves_at_the_true_parameter_whatever_the_start():
    points, _ = run(NONLINEAR, vv.Oracle(METHOD, P.THETA_TRUE), 12, *STARTS)
    z = frozen(twins.nonlinear(2.0), P.THETA_TRUE, 12, P.X0, P.LAM0)
    np.testing.assert_allclose(np.concatenate([points.x[-1], points.lam[-1]]), z, rtol=1e-10)
    np.testing.assert_array_equal(points.theta, np.broadcast_to(P.THETA_TRUE, points.theta.shape))


@pytest.mark.parametrize(
    "scheme",
    [vv.Sequential(LEARNER, METHOD, 0.5), vv.Oracle(METHOD, P.THETA_TRUE)],
    ids=lambda s: type(s).__name__,
)
def test_declared_oracle_counts_are_the_counted_ones(scheme):
    counted, declared = count_oracles(scheme, 12)
    assert (declared.F, declared.f, declared.pullback) == counted


def test_compare_spends_the_same_on_every_scheme_and_prices_learning(tmp_path):
    start = {"x0": P.X0, "theta0": P.THETA0, "multiplier0": P.LAM0}
    result = vv.compare(
        NONLINEAR,
        ["joint", "sequential", "oracle"],
        method=METHOD,
        learn_tol=1e-3,
        learning_cost=3.0,
        evaluations=6000,
        **start,
    )
    final = {row["scheme"]: row for row in result.final}
    for row in final.values():
        assert 6000 - 4 <= row["evaluations"] <= 6000  # within one step of the budget, never over it
        assert row["evaluations"] == row["n_F"] + 3.0 * row["n_H"]
    np.testing.assert_allclose(result.theta_true, P.THETA_TRUE, atol=1e-12)  # learned, as it was not given
    assert final["oracle"]["n_H"] == 0
    assert final["joint"]["n_H"] == final["joint"]["n_F"] - 1  # forward–reflected–backward begins with one F
    # Learning first leaves the error it stopped with; learning on does not.
    assert final["sequential"]["residual_true"] > 1e-5
    assert final["joint"]["residual_true"] < 1e-3 * final["sequential"]["residual_true"]
    assert final["oracle"]["residual_true"] <= final["joint"]["residual_true"] * 1.01 + 1e-14
    # The sequential scheme pays for learning before x moves at all.
    evaluations, residual = result.curve("sequential", "residual_true")
    assert residual[1] == residual[0]
    assert evaluations[1] > 0
    assert "joint" in str(result)
    written = plot_comparison(result, tmp_path / "figure.png")
    assert written.read_bytes()[:4] == b"\x89PNG"
    check_figure(result)


def check_figure(result):
    """The lines of the figure are the curves: residual above, error of θ below (the oracle has none)."""
    upper, lower = result.figure().axes
    assert len(upper.lines) == 3
    for line, name in zip(upper.lines, result.schemes, strict=True):
        evaluations, residual = result.curve(name, "residual_true")
        assert line.get_label().startswith(name)
        np.testing.assert_array_equal(line.get_xdata(), np.maximum(evaluations, 1.0))
        np.testing.assert_array_equal(line.get_ydata(), residual)
    assert np.isnan(lower.lines[2].get_ydata()).all()
    assert len(result.figure("theta_error").axes) == 1
    with pytest.raises(vv.InputError, match="there is no column 'gap'; there are residual_true"):
        result.figure("gap")


def test_the_figure_says_which_extra_it_needs(monkeypatch):
    row = {"scheme": "joint", "evaluations": 1.0, "residual_true": 1.0, "theta_error": 1.0}
    result = vv.Comparison(rows=[row], learning_cost=1.0, theta_true=0.0)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ImportError, match=r"needs matplotlib.*pip install 'viceversa\[plot\]'"):
        result.figure()


def test_compare_and_sequential_say_what_they_need():
    with pytest.raises(vv.InputError, match="'both' is not a scheme; use 'joint', 'sequential', 'oracle'"):
        vv.compare(NONLINEAR, ["both"], theta_true=P.THETA_TRUE)
    with pytest.raises(vv.InputError, match="learning_cost is -1"):
        vv.compare(NONLINEAR, learning_cost=-1)
    with refused("compare: problem is Instance; a vv.MisspecifiedVI is needed. Pass instance.problem"):
        vv.compare(vv.gallery.harker())
    with refused("compare: problem is float; a vv.MisspecifiedVI is needed"):
        vv.compare(1.0)
    with refused(
        "compare: method is list; one method such as vv.Extragradient(step_size=...) is needed. Call"
    ):
        vv.compare(NONLINEAR, method=[METHOD])
    with refused("compare: method is the class Popov; one method"):
        vv.compare(NONLINEAR, method=vv.Popov)
    with refused("compare: method is Simultaneous; one method such as"):
        vv.compare(NONLINEAR, method=vv.Simultaneous(METHOD, LEARNER))
    with refused("compare: learner is ForwardReflectedBackward; one learner"):
        vv.compare(NONLINEAR, learner=METHOD)
    with refused("compare: schemes is 'joint'; a list is needed"):
        vv.compare(NONLINEAR, "joint")
    with pytest.raises(vv.InputError, match="learn_tol is 0"):
        vv.Sequential(LEARNER, METHOD, 0.0)
    with refused(
        "Sequential: learner is ProjectedGradient and method is SemismoothNewton; a learner such as"
    ):
        vv.Sequential(vv.ProjectedGradient(), vv.SemismoothNewton())
