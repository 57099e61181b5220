"""Portfolios: the sets are exact, the planted answer is found, Clarabel agrees, and bad tables are named line by line."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from benchmarks.apps import generated_returns, markowitz_by_clarabel

import viceversa as vv
from unchecked import refused
from viceversa import precision
from viceversa.portfolio import Covariances, Rebalancing
from viceversa.schemes.interior_point import lift
from viceversa.sets import linear_program

HELD = np.array([0.4, 0.0, 0.3, 0.2, 0.1])
SETS = [
    Rebalancing(HELD, 0.5),
    Covariances(3, radius=2.0),
    Covariances(3, radius=2.0, lower=np.diag([0.5, 0.2, 0.0]) + 0.1),
]


@pytest.mark.parametrize("S", SETS, ids=lambda S: type(S).__name__)
def test_a_projection_is_in_the_set_and_makes_no_acute_angle(S):
    rng = np.random.default_rng(0)
    members = [S.sample(jax.random.key(k)) for k in range(20)] + [
        S.support(rng.standard_normal(S.shape))[1] for _ in range(5)
    ]
    assert max(S.violation(member) for member in members) <= 1e-12
    for scale in (0.01, 0.3, 3.0):
        x = S.interior_point() + scale * rng.standard_normal(S.shape)
        y = S.project(x)
        np.testing.assert_allclose(S.project(y), y, atol=1e-12)
        assert max(((x - y) * (member - y)).sum() for member in members) <= 1e-12
    c = rng.standard_normal(S.shape)
    assert max((c * member).sum() for member in members) <= S.support(c)[0] + 1e-12
    pairs = [np.linalg.norm(a - b) for a in members for b in members]
    assert max(pairs) <= S.diameter() * (1 + 1e-12)
    assert (np.ptp(np.array(members), axis=0) <= S.width() + 1e-12).all()


def test_rebalancing_is_the_projection_by_clarabel():
    S, rng = SETS[0], np.random.default_rng(1)
    for scale in (0.05, 0.5, 2.0):
        x = HELD + scale * rng.standard_normal(5)
        np.testing.assert_allclose(S.project(x), _by_clarabel(x), atol=1e-7)
    assert (np.abs(S.project(x) - HELD).sum() - 0.5) <= 1e-12


def _by_clarabel(x):
    """min ½‖y − x‖² over y = held + b − s, b, s ≥ 0, y ≥ 0, Σy = 1, Σ(b + s) ≤ ½, in (y, b, s)."""
    import clarabel
    from scipy import sparse

    n, one, none = 5, np.ones((1, 5)), np.zeros((1, 5))
    rows = np.vstack([np.hstack([one, none, none]), np.hstack([np.eye(n), -np.eye(n), np.eye(n)]), -np.eye(3 * n), np.hstack([none, one, one])])  # fmt: skip
    sides = np.concatenate([[1.0], HELD, np.zeros(3 * n), [0.5]])
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = 1e-13
    P = sparse.csc_matrix(np.diag(np.append(np.ones(n), np.zeros(2 * n))))
    cones = [clarabel.ZeroConeT(1 + n), clarabel.NonnegativeConeT(3 * n + 1)]
    return np.asarray(clarabel.DefaultSolver(P, np.append(-x, np.zeros(2 * n)), sparse.csc_matrix(rows), sides, cones, settings).solve().x)[:n]  # fmt: skip


def test_purchases_and_sales_describe_the_rebalancing_set():
    """The interior-point method works on (b, s): its polyhedron maps into the set, and onto it."""
    S, rng = SETS[0], np.random.default_rng(3)
    rows, portfolio = S.affine_image()
    trades = [S.project(HELD + 3.0 * rng.standard_normal(5)) - HELD for _ in range(20)]
    for d in trades:
        u = np.concatenate([np.maximum(d, 0.0), np.maximum(-d, 0.0)])
        assert (rows.A @ u <= rows.b + 1e-12).all()
        np.testing.assert_allclose(rows.C @ u, rows.d, atol=1e-12)
        assert (u >= rows.lower).all()
        assert (u <= rows.upper + 1e-12).all()
        with precision.double():
            np.testing.assert_allclose(portfolio(jax.numpy.asarray(u)), HELD + d, atol=1e-15)
    corner = linear_program.maximise(rng.standard_normal(10), rows)
    assert corner is not None
    assert S.violation(HELD + corner[:5] - corner[5:]) <= 1e-12
    assert lift(S).lower.size == 10


@pytest.mark.parametrize("S", SETS, ids=lambda S: type(S).__name__)
def test_the_derivative_of_the_projection_is_that_of_differences(S):
    rng = np.random.default_rng(2)
    x, v = S.interior_point() + 0.8 * rng.standard_normal(S.shape), rng.standard_normal(S.shape)
    step = 1e-6
    differences = (S.project(x + step * v) - S.project(x - step * v)) / (2 * step)
    with precision.double():
        derivative = jax.jvp(S.project, (jax.numpy.asarray(x),), (jax.numpy.asarray(v),))[1]
    np.testing.assert_allclose(derivative, differences, atol=1e-7)


def test_the_planted_portfolio_is_certified_and_covariances_stay_semidefinite_on_the_way():
    instance = vv.gallery.markowitz(n_assets=6, n_periods=30)
    assert instance.certify(tol=1e-10).holds
    learning, returns = instance.problem.learning, instance.details["returns"]
    np.testing.assert_allclose(learning.moments["mean"], returns.mean(axis=0), atol=1e-15)
    np.testing.assert_allclose(learning.moments["covariance"], np.cov(returns.T), atol=1e-15)
    x, theta = instance.x_true, instance.theta_true
    assert not vv.certify(instance.problem, x, [4e-4, 0.0], theta, tol=1e-3).holds
    method = vv.AdaptiveAugmentedLagrangian(learning_rate=0.2)
    steps = vv.iterate(instance.problem, method, theta0=instance.theta0)
    smallest = [np.linalg.eigvalsh(next(steps).theta["covariance"])[0] for _ in range(12)]
    assert min(smallest) > 0
    assert len(set(smallest)) == 12


@pytest.mark.slow
def test_turnover_risk_and_groups_together_agree_with_clarabel():
    returns, held = generated_returns(10, 60), np.full(10, 0.1)
    groups = {"even": (range(0, 10, 2), 0.38)}
    problem = vv.markowitz(returns, risk_limit=0.009, groups=groups, turnover=0.6, current=held)
    solution = vv.solve(problem, vv.AdaptiveAugmentedLagrangian())
    assert solution.success
    outside = markowitz_by_clarabel(returns, 0.009, groups, 0.6, held)
    np.testing.assert_allclose(solution.x, outside, atol=1e-6)
    assert (solution.multiplier > 1e-6).all()  # the risk limit and the group bind, and the turnover:
    np.testing.assert_allclose([np.abs(outside - held).sum(), outside[::2].sum()], [0.6, 0.38], atol=1e-6)


def test_csv_parquet_frame_dict_and_array_are_one_table(tmp_path):
    pd = pytest.importorskip("pandas")
    values = generated_returns(3, 8)
    frame = pd.DataFrame(values, columns=["a", "b", "c"])
    dated = frame.copy()
    dated.insert(0, "date", [f"2024-01-{day:02d}" for day in range(1, 9)])
    dated.to_csv(tmp_path / "r.csv", index=False)
    dated.to_parquet(tmp_path / "r.parquet")
    tables = [tmp_path / "r.csv", str(tmp_path / "r.parquet"), frame, dated, frame.to_dict("list")]
    for table in tables:
        read = vv.read_returns(table)
        assert read.assets == ("a", "b", "c")
        np.testing.assert_allclose(read.values, values, rtol=1e-12)  # pandas' reader of text rounds
    np.testing.assert_array_equal(vv.read_returns(values).values, values)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("date,a,b\n1 Jan,0.01,0.02\n2 Jan,0.01\n3 Jan,0.0,0.1\n", "line 3: 2 fields; 3, as in the header"),
        ("date,a,b\n1 Jan,0.01,0.02\n2 Jan,0.01,0.02,0.03\n", "line 3: 4 fields; 3, as in the header"),
        ("a,b\n0.01,0.02\n0.01,oops\n", "line 3: 'oops' for b; a return, a finite number such as 0.01"),
        ("a,b\n0.01,0.02\n0.03,\n", "line 3: '' for b; a return"),
        ("", "line 1: empty; a header with one name per asset"),
        ("a,b\n0.01,0.02\n", "1 row(s); a covariance needs at least 2"),
    ],
    ids=["short", "long", "word", "missing", "empty", "one"],
)
def test_a_malformed_line_is_named_with_its_file_and_number(tmp_path, text, words):
    path = tmp_path / "returns.csv"
    path.write_text(text)
    with refused(words) as caught:
        vv.markowitz(path, risk_limit=0.1)
    assert "line" not in words or str(path) in str(caught.value)


def test_odd_arguments_are_answered_in_sentences(tmp_path):
    table = {"a": [0.1, 0.0, 0.2], "b": [0.0, 0.1, 0.1]}
    with refused("NaN at 1 of 6"):
        vv.markowitz(np.array([[0.1, np.nan], [0.1, 0.2], [0.0, 0.1]]), risk_limit=0.1)
    with refused("does not exist"):
        vv.markowitz(tmp_path / "nothing.csv", risk_limit=0.1)
    with refused("different lengths"):
        vv.markowitz({"a": [0.1, 0.2], "b": [0.1]}, risk_limit=0.1)
    with refused("neither risk_limit nor risk_aversion"):
        vv.markowitz(table)
    with refused("no portfolio of these 2 assets has a standard deviation below"):
        vv.markowitz(table, risk_limit=1e-6)
    with refused("names 'gold', which is no column"):
        vv.markowitz(table, risk_limit=0.1, groups={"metal": (["gold"], 0.1)})
    with refused("turnover was given without current"):
        vv.markowitz(table, risk_limit=0.1, turnover=0.1)
    with refused("2 weights >= 0 that sum to 1"):
        vv.markowitz(table, risk_limit=0.1, turnover=0.1, current=[0.7, 0.7])
    with refused("no return in the table ever changes"):
        vv.markowitz(np.ones((4, 2)), risk_limit=0.1)
    with refused("lower has the eigenvalue -1"):
        Covariances(2, 1.0, lower=np.diag([1.0, -1.0]))
    with refused("turnover is 3.0; a number in (0, 2)"):
        Rebalancing(HELD, 3.0)
