"""The paper's market: its exact answer, its operator against loops, its constants against matrices."""

from __future__ import annotations

import jax
import numpy as np
import pytest

import viceversa as vv
from viceversa import precision
from viceversa.gallery.piecewise_market import equilibrium, increasing_root

READINGS = [
    {},
    {"learn": "both"},
    {"market": "pooled"},
    {"market": "pooled", "learn": "both", "noise": 1.0},
    {"noise": 0.5, "draws": "firm"},
    {"price_cap": np.inf},
    {"delta": 50.0},
]


def operator_by_loops(r, g, x, a, b, pooled):
    """F and the prices, written out firm by firm and product by product."""
    N, D = x.shape
    F, prices = np.zeros((N, D)), np.zeros(1 if pooled else D)
    for i in range(N):
        for d in range(D):
            total = (
                sum(x[j, e] for j in range(N) for e in range(D)) if pooled else sum(x[j, d] for j in range(N))
            )
            own = sum(x[i, e] for e in range(D)) if pooled else x[i, d]
            F[i, d] = r[i, d] * x[i, d] + g[i, d] + b * (total + own) - a
            prices[0 if pooled else d] = a - b * total
    return F, prices


@pytest.mark.parametrize("pooled", [False, True])
@pytest.mark.parametrize("learn", ["slope", "both"])
def test_operator_and_constraints_equal_explicit_loops(pooled, learn):
    instance = vv.gallery.cournot(
        4, 3, 7, slope=12.0, learn=learn, market="pooled" if pooled else "separable"
    )
    costs = instance.problem.operator.costs
    x = np.random.default_rng(1).uniform(0, 5, (4, 3))
    theta = (
        {"intercept": np.float64(90.0), "slope": np.float64(11.0)} if learn == "both" else np.float64(11.0)
    )
    F, prices = operator_by_loops(costs.r, costs.g, x, 90.0 if learn == "both" else 100.0, 11.0, pooled)
    with precision.double():
        at = instance.problem.at(theta)
        np.testing.assert_allclose(np.asarray(at.F(jax.numpy.asarray(x))), F, rtol=1e-14, atol=1e-12)
        f = np.asarray(at.f(jax.numpy.asarray(x)))
    np.testing.assert_allclose(f, prices - instance.details["price_cap"], rtol=1e-13)


@pytest.mark.parametrize(
    ("sizes", "price_cap", "multiplier", "norm", "n_idle", "n_full"),
    [
        ((50, 5), 12.2, [11.899, 9.323, 11.309], 23.70, None, None),
        ((100, 10), 9.2, [7.569, 6.578, 7.705], None, 196, 3),
    ],
)
def test_reference_numbers_of_the_analysis(sizes, price_cap, multiplier, norm, n_idle, n_full):
    instance = vv.gallery.cournot(*sizes, seed=0, price_cap=price_cap)
    np.testing.assert_allclose(instance.multiplier_true[:3], multiplier, atol=5e-4)
    if norm:
        assert abs(np.linalg.norm(instance.multiplier_true) - norm) < 5e-3
        np.testing.assert_allclose(
            instance.details["price_unconstrained"][:3], [22.80, 20.61, 22.23], atol=6e-3
        )
    else:
        assert (instance.x_true == 0).sum() == n_idle
        assert (instance.x_true == 5).sum() == n_full
    constants = instance.constants
    assert constants is not None
    expected = {(50, 5): (108.3, 4031.9, 559.0), (100, 10): (208.0, 15969.5, 1581.1)}[sizes]
    found = constants["L_F_x_tight"], constants["L_F_theta"], constants["ell"]
    np.testing.assert_allclose(found, expected, atol=0.06)
    assert constants["L_F_x_tight"] <= constants["L_F_x"]


@pytest.mark.parametrize("options", READINGS, ids=str)
def test_the_truth_is_certified(options):
    instance = vv.gallery.cournot(20, 4, 3, **options)
    certificate = instance.certify(tol=1e-10)
    assert certificate.holds, certificate
    assert certificate.kkt_residual <= 1e-11
    # The learned part too: the gradient of the fit vanishes at theta_true, and not at theta0.
    assert (
        vv.certify(
            instance.problem, instance.x_true, instance.multiplier_true, instance.theta0
        ).learning_error
        > 0.1
    )


def test_a_cap_binds_only_where_the_free_price_exceeds_it():
    free = vv.gallery.cournot(30, 6, 2, price_cap=np.inf)
    cap = float(np.median(free.details["price_unconstrained"]))
    instance = vv.gallery.cournot(30, 6, 2, price_cap=cap)
    binds = free.details["price_unconstrained"] > cap
    assert binds.sum() == 3
    assert (instance.multiplier_true[binds] > 0).all()
    assert (instance.multiplier_true[~binds] == 0).all()
    np.testing.assert_array_equal(instance.x_true[:, ~binds], free.x_true[:, ~binds])
    assert instance.certify(1e-10).holds


def test_solve_finds_the_truth():
    instance = vv.gallery.cournot(10, 3, 5, slope=4.0, market="pooled", learn="both", noise=0.3)
    solution = vv.solve(instance.problem, vv.AdaptiveAugmentedLagrangian(), theta0=instance.theta0, tol=1e-9)
    assert solution.success, solution
    np.testing.assert_allclose(solution.x, instance.x_true, atol=1e-6)
    np.testing.assert_allclose(solution.multiplier, instance.multiplier_true, rtol=1e-6)


def test_noise_moves_the_truth_to_the_least_squares_fit():
    rng = np.random.default_rng(4)
    rng.uniform(1, 10, (6, 2)), rng.uniform(5, 20, (6, 2))
    quantity = rng.uniform(2, 20, 300)
    price = 100 - 1.0 * quantity + 2.0 * rng.standard_normal(300)
    both = vv.gallery.cournot(6, 2, 4, price_cap=85.0, learn="both", noise=2.0)
    a, b = np.linalg.lstsq(np.column_stack([np.ones(300), -quantity]), price, rcond=None)[0]
    assert both.theta_true["intercept"] == pytest.approx(a, rel=1e-12)
    assert both.theta_true["slope"] == pytest.approx(b, rel=1e-12)
    assert abs(b - 1.0) > 1e-3
    slope_only = vv.gallery.cournot(6, 2, 4, price_cap=85.0, noise=2.0)
    alone = np.linalg.lstsq(quantity[:, None], 100 - price, rcond=None)[0][0]
    assert float(slope_only.theta_true) == pytest.approx(alone, rel=1e-12)


def test_draws_per_firm_make_identical_markets():
    instance = vv.gallery.cournot(30, 3, 1, draws="firm")
    assert np.ptp(instance.x_true, axis=1).max() == 0
    assert np.ptp(vv.gallery.cournot(30, 3, 1).x_true, axis=1).min() > 0


def test_delta_is_the_other_way_to_write_the_cap():
    one, other = vv.gallery.cournot(30, 2, 3, delta=80.0), vv.gallery.cournot(30, 2, 3, price_cap=20.0)
    np.testing.assert_array_equal(one.x_true, other.x_true)


@pytest.mark.parametrize("market", ["separable", "pooled"])
@pytest.mark.parametrize("learn", ["slope", "both"])
def test_constants_hold_for_matrices_and_are_attained(market, learn):
    instance = vv.gallery.cournot(6, 3, 9, slope=5.0, market=market, learn=learn, price_cap=20.0)
    c, problem = instance.constants, instance.problem
    assert c is not None
    rng = np.random.default_rng(0)
    thetas = [instance.theta0, jax.tree.map(lambda t: 0.25 * t, instance.theta0), instance.theta_true]
    points = [np.full((6, 3), 5.0), np.zeros((6, 3)), *rng.uniform(0, 5, (4, 6, 3))]

    def both_matrices(x, theta):
        flat = lambda t: jax.numpy.stack(jax.tree.leaves(t))
        unflat = lambda v: jax.tree.unflatten(jax.tree.structure(theta), list(v))
        at = lambda x, v: problem.at(unflat(v))
        v = flat(theta)
        x = jax.numpy.asarray(x)
        F_x = jax.jacobian(lambda x: at(x, v).F(x).ravel())(x).reshape(18, 18)
        F_t = jax.jacobian(lambda v: at(x, v).F(x).ravel())(v)
        f_x = jax.jacobian(lambda x: at(x, v).f(x))(x).reshape(-1, 18)
        f_t = jax.jacobian(lambda v: at(x, v).f(x))(v)
        grad_f_t = jax.jacobian(jax.jacobian(lambda x, v: at(x, v).f(x), 0), 1)(x, v).reshape(
            f_x.shape[0], 18, -1
        )
        return F_x, F_t, f_x, f_t, grad_f_t, at(x, v).f(x)

    sup: dict[str, list[float]] = {name: [] for name in (*c, "sym_min")}
    with precision.double():
        compiled = jax.jit(both_matrices)
        for theta in thetas:
            for x in points:
                F_x, F_t, f_x, f_t, grad_f_t, f = map(np.asarray, compiled(x, theta))
                sup["L_F_x"].append(np.linalg.norm(F_x, 2))
                sup["L_F_theta"].append(np.linalg.norm(F_t, 2))
                sup["L_f_x"].append(np.linalg.norm(f_x, axis=1).max())
                sup["M_grad_f"].append(np.linalg.norm(f_x, 2))
                sup["L_f_theta"].append(np.linalg.norm(f_t, axis=1).max())
                sup["ell"].append(np.linalg.norm(f_t, 2))
                sup["L_grad_f_theta"].append(max(np.linalg.norm(G, 2) for G in grad_f_t))
                sup["D_f"].append(np.linalg.norm(np.maximum(f, 0)))
                sup["sup_abs_f"].append(np.abs(f).max())
                sup["sym_min"].append(np.linalg.eigvalsh((F_x + F_x.T) / 2)[0])
    attained = ["L_F_theta", "L_f_x", "M_grad_f", "L_f_theta", "ell", "L_grad_f_theta", "D_f"]
    for name in attained:
        assert max(sup[name]) == pytest.approx(c[name], rel=1e-12), name
    assert max(sup["sup_abs_f"]) <= c["sup_abs_f"] * (1 + 1e-12)
    assert max(sup["L_F_x"]) <= c["L_F_x"]
    if market == "separable":
        assert max(sup["L_F_x"]) == pytest.approx(c["L_F_x_tight"], rel=1e-12)
    assert min(sup["sym_min"]) >= c["mu_F"] - 1e-12
    assert c["mu_H"] == pytest.approx(float(problem.learning.mu), rel=1e-10)
    assert c["L_H"] == pytest.approx(float(problem.learning.lipschitz), rel=1e-12)
    assert c["D_X"] == pytest.approx(problem.set.diameter())
    assert c["C1"] == pytest.approx(c["M_grad_f"] ** 2)
    assert c["C1_paper"] == pytest.approx(np.sqrt(problem.n_constraints) * c["L_f_x"] * c["M_grad_f"])
    widest = np.sqrt(sum(float(t) ** 2 for t in jax.tree.leaves(instance.theta_true)))
    assert c["D_Theta"] == pytest.approx(widest)


def test_roots_of_piecewise_linear_functions_are_exact():
    knots = np.array([0.0, 1.0, 1.0 + 1e-9, 5.0, 9.0])
    values = np.array([-1.0, -0.9, 100.0, 100.5, 101.0])

    def function(w):
        piece = np.clip(np.searchsorted(knots, w, side="right") - 1, 0, 3)
        rise = np.diff(values)[piece] / np.diff(knots)[piece]
        return values[piece] + rise * (w - knots[piece]) - shift, rise

    for shift in (-0.95, 0.0, 99.0, 100.2):
        root = increasing_root(function, np.array([0.0]), np.array([9.0]))
        assert np.interp(root[0], knots, values) == pytest.approx(shift, abs=1e-5)


def test_equilibrium_refuses_a_cap_that_capacities_cannot_reach():
    r = np.ones((2, 1))
    with pytest.raises(vv.InputError, match=r"needs a total output of 90.*sum to 10"):
        equilibrium(r, r, np.asarray(5.0), 100.0, 1.0, 10.0, pooled=False)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"n_firms": 0}, "n_firms is 0"),
        ({"slope": -1.0}, "slope is -1.0"),
        ({"noise": np.nan}, "noise is nan"),
        ({"market": "monopoly"}, "'separable' or 'pooled'"),
        ({"price_cap": 5.0, "delta": 95.0}, "say the same thing"),
        ({"n_firms": 2, "price_cap": 10.0}, "Raise the cap"),
        ({"price_cap": 200.0}, "never binds"),
        ({"n_firms": 3}, "no cap can bind"),
    ],
    ids=str,
)
def test_bad_requests_are_refused_in_sentences(options, sentence):
    with pytest.raises(vv.InputError, match=sentence):
        vv.gallery.cournot(**options)
