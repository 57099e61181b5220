"""Constants: closed forms where they are known, bounds that no sample exceeds, and no bound from a sample."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import viceversa as vv
from viceversa import precision

N, D, CAP, INTERCEPT, B_MIN, B_MAX = 7, 3, 5.0, 100.0, 0.1, 2.0


def _market(pooled: bool):
    rng = np.random.default_rng(0)
    r, g, quantity = rng.uniform(1, 10, (N, D)), rng.uniform(5, 20, (N, D)), rng.uniform(2, 20, 30)
    axis = None if pooled else 0

    def own(x):
        return x.sum(axis=1, keepdims=True) if pooled else x

    return r, vv.MisspecifiedVI(
        lambda x, b: r * x + g + b * (x.sum(axis=axis) + own(x)) - INTERCEPT,
        set=vv.Box(0.0, CAP, shape=(N, D)),
        constraints=lambda x, b: 80.0 - b * x.sum(axis=axis),
        learning=vv.LeastSquares(quantity, quantity, set=vv.Box(B_MIN, B_MAX, shape=())),
    )


@pytest.mark.parametrize("pooled", [False, True])
def test_the_closed_forms_of_the_cournot_market(pooled):
    r, problem = _market(pooled)
    found = vv.constants(problem)
    n, J = N * D, 1 if pooled else D
    per_market = n if pooled else N
    root_n = np.sqrt(per_market)
    expected = {
        "L_F_theta": (D if pooled else 1) * (N + 1) * CAP * np.sqrt(n),
        "mu_F": _smallest_eigenvalue(r, pooled),
        "L_f_x": B_MAX * root_n,
        "M_grad_f": B_MAX * root_n,
        "L_f_theta": per_market * CAP,
        "ell": np.sqrt(J) * per_market * CAP,
        "L_grad_f_x": 0.0,
        "L_grad_f_theta": root_n,
        "D_f": np.sqrt(J) * 80.0,
        "D_X": CAP * np.sqrt(n),
        "D_Theta": B_MAX - B_MIN,
        "C1": B_MAX**2 * per_market,
        "C1_paper": np.sqrt(J) * B_MAX**2 * per_market,
        "C2": 0.0,
        "C3": np.sqrt(J) * (root_n * np.sqrt(J) * 80.0 + per_market * CAP * B_MAX * root_n),
        "C4": np.sqrt(J) * root_n,
        "L_Phi_lambda_theta": np.sqrt(J) * per_market * CAP,
    }
    for name, value in expected.items():
        constant = getattr(found, name)
        assert constant.value == pytest.approx(value, rel=1e-9), name
        assert constant.provenance == "exact", name
    limit = r.max() + B_MAX * (D if pooled else 1) * (N + 1)
    assert B_MAX * per_market <= found.L_F_x.value <= limit
    assert found.L_F_x.provenance == "exact"


def _smallest_eigenvalue(r: np.ndarray, pooled: bool) -> float:
    """μ_F at b_min by hand: at least r_min + b (separable) or r_min (pooled), and a little above."""
    if pooled:
        ones = np.ones((N * D, N * D)) + np.kron(np.eye(N), np.ones((D, D)))
        return float(np.linalg.eigvalsh(np.diag(r.ravel()) + B_MIN * ones)[0])
    markets = [np.diag(r[:, d]) + B_MIN * (np.eye(N) + np.ones((N, N))) for d in range(D)]
    return float(min(np.linalg.eigvalsh(market)[0] for market in markets))


@pytest.mark.parametrize("market", ["separable", "pooled"])
def test_nothing_is_estimated_on_the_papers_market(market):
    instance = vv.gallery.cournot(8, 3, market=market)
    found = vv.constants(instance.problem)
    assert found.estimated == ()
    for name, value in (instance.constants or {}).items():
        if not hasattr(found, name) or name == "D_Theta":  # theirs knows θ*; the diameter does not
            continue
        mine = getattr(found, name).value
        assert (mine >= value * (1 - 1e-9)) if name == "mu_F" else (mine <= value * (1 + 1e-9)), name


def test_nothing_is_estimated_on_planted_problems_and_on_fukushimas():
    for learning in ("vi", "least_squares"):
        instance = vv.gallery.planted(n=12, n_constraints=5, n_theta=4, mu=0.5, learning=learning)
        found = vv.constants(instance.problem)
        assert found.estimated == ()
        # Every K_i is skew, so the symmetric part is constant: μ_F is exact however large Θ is.
        assert found.mu_F.value == pytest.approx(np.linalg.eigvalsh(_symmetric_part(instance))[0], rel=1e-9)
    fukushima = vv.constants(vv.gallery.fukushima(misspecified=True).problem)
    assert fukushima.estimated == ()
    assert fukushima.mu_F.value == pytest.approx(0.7924510, abs=1e-6)


def _symmetric_part(instance) -> np.ndarray:
    with precision.double():
        J = jax.jacfwd(lambda x: instance.problem.operator(x, jnp.asarray(instance.theta_true)))(
            jnp.asarray(instance.x_true)
        )
    return np.asarray(J + J.T) / 2


def _curved_problem():
    W = np.random.default_rng(3).normal(size=(4, 4))

    def F(x, t):
        return x + np.exp(0.5 * x) * t["scale"] + 0.3 * np.arctan(x) + (W - W.T) @ x + t["level"][0] * x**3

    def f(x, t):
        return np.stack([np.sum(np.exp(x * t["level"])) - 9.0, x @ x - t["scale"]])

    theta = vv.Product({"scale": vv.Box(0.5, 2.0, shape=()), "level": vv.Box(np.zeros(4), np.ones(4))})
    learning = vv.SecondaryVI(
        lambda t: {"scale": t["scale"] - 1.0, "level": 2.0 * (t["level"] - 0.5)}, set=theta
    )
    return vv.MisspecifiedVI(F, vv.Box(-np.ones(4), np.ones(4)), f, learning)


def test_no_sample_exceeds_a_certified_constant():
    problem = _curved_problem()
    found = vv.constants(problem)
    assert found.estimated == ()
    shown = _largest_sampled(problem)
    for name in ("L_F_x", "L_F_theta", "L_f_x", "L_f_theta", "ell", "M_grad_f", "L_grad_f_x", "D_f"):
        assert shown[name] <= getattr(found, name).value * (1 + 1e-9), name
        assert getattr(found, name).value <= 4.0 * shown[name], f"{name} is uselessly loose"
    assert found.mu_F.value <= shown["mu_F"]
    assert found.mu_F.value > 0.0


def _largest_sampled(problem) -> dict[str, float]:
    """A naive twin: Jacobians at random points, in NumPy."""
    rng = np.random.default_rng(0)

    def at(x, scale, level):
        theta = {"scale": scale, "level": level}
        join = lambda t: jnp.concatenate([t["level"], t["scale"][None]])
        split = lambda v: {"level": v[:4], "scale": v[4]}
        F_t = jax.jacfwd(lambda v: problem.operator(x, split(v)))(join(theta))
        f_t = jax.jacfwd(lambda v: problem.constraints(x, split(v)))(join(theta))
        f_x = jax.jacfwd(lambda y: problem.constraints(y, theta))
        return (
            jax.jacfwd(lambda y: problem.operator(y, theta))(x),
            F_t,
            f_x(x),
            f_t,
            jax.jacfwd(f_x)(x),
            problem.constraints(x, theta),
        )

    with precision.double():
        xs, levels = rng.uniform(-1, 1, (300, 4)), rng.uniform(0, 1, (300, 4))
        xs[:8], levels[:8] = np.sign(xs[:8]), np.round(levels[:8])
        parts = jax.jit(jax.vmap(at))(xs, rng.uniform(0.5, 2.0, 300), levels)
        F_x, F_t, f_x, f_t, f_xx, f = (np.asarray(part) for part in parts)
    top = lambda stack: float(np.linalg.norm(stack, 2, axis=(-2, -1)).max())
    return {
        "L_F_x": top(F_x),
        "L_F_theta": top(F_t),
        "M_grad_f": top(f_x),
        "ell": top(f_t),
        "L_f_x": float(np.linalg.norm(f_x, axis=-1).max()),
        "L_f_theta": float(np.linalg.norm(f_t, axis=-1).max()),
        "L_grad_f_x": top(f_xx),
        "D_f": float(np.linalg.norm(np.maximum(f, 0.0), axis=-1).max()),
        "mu_F": float(np.linalg.eigvalsh((F_x + F_x.transpose(0, 2, 1)) / 2).min()),
    }


# -- declared and estimated --------------------------------------------------------------------------
def test_a_declared_constant_that_a_pair_refutes_is_an_error_naming_it():
    problem = _curved_problem()
    with pytest.raises(vv.InputError, match=r"L_F_x = 0.5 is refuted: the points x = .* and x = .* at least"):
        vv.constants(problem, declared={"L_F_x": 0.5})
    with pytest.raises(vv.InputError, match=r"mu_F = 50 is refuted: the points x = .* and x = .* at most"):
        vv.constants(problem, declared={"mu_F": 50.0})
    with pytest.raises(vv.InputError, match=r"D_f = 0 is refuted: the points x = "):
        vv.constants(problem, declared={"D_f": 0.0})
    # Only a pair along the steepest direction tells this value from the truth.
    tight = vv.constants(vv.gallery.cournot(8, 3).problem).L_F_x.value
    with pytest.raises(vv.InputError, match="L_F_x"):
        vv.constants(vv.gallery.cournot(8, 3).problem, declared={"L_F_x": 0.999 * tight})


def test_a_declared_constant_that_holds_is_used_and_says_so():
    found = vv.constants(_curved_problem(), declared={"L_F_x": 60.0})
    assert (found.L_F_x.value, found.L_F_x.provenance) == (60.0, "declared")
    with pytest.raises(vv.InputError, match="C1 cannot be declared"):
        vv.constants(_curved_problem(), declared={"C1": 1.0})
    with pytest.raises(vv.InputError, match="one finite number"):
        vv.constants(_curved_problem(), declared={"L_F_x": np.inf})


def _uncertifiable(x, t):
    return 2.0 * x + 0.1 * jax.scipy.special.digamma(x + 2.0) - t


def test_what_has_no_rule_is_estimated_and_never_a_bound():
    problem = vv.MisspecifiedVI(
        _uncertifiable, vv.Box([0.0], [1.0]), lambda x, t: x - 0.5, vv.Known(np.array([1.0]))
    )
    found = vv.constants(problem)
    assert found.L_F_x.provenance == "estimated"
    assert found.L_F_x.n_samples > 10
    assert "≈" in str(found)
    assert "not certified: the primitive polygamma" in found.L_F_x.how
    with pytest.raises(vv.InputError, match="L_F_x is only estimated, and nothing can be proved"):
        vv.bounds(problem, 100)
    with pytest.raises(vv.InputError, match="L_F_x is only estimated"):
        vv.AugmentedLagrangian.from_theory(problem)
    proved = vv.bounds(problem, 100, declared={"L_F_x": 2.1})  # digamma' ≤ digamma'(2) = 0.645 on the box
    assert proved.infeasibility > 0


def test_a_callback_is_sampled_by_pairs():
    operator = vv.callback_operator(lambda x, t: np.array([3.0 * x[0], x[1]]) - t)
    problem = vv.MisspecifiedVI(operator, vv.Box([0.0, 0.0], [1.0, 1.0]), learning=vv.Known(0.5))
    found = vv.constants(problem)
    assert found.L_F_x.provenance == "estimated"
    assert 2.5 < found.L_F_x.value <= 3.0 + 1e-9
    assert 1.0 - 1e-9 <= found.mu_F.value < 1.5


def test_sets_that_are_no_box_give_certified_constants_and_unbounded_ones_no_theorem():
    M = np.array([[2.0, 1.0], [-1.0, 2.0]])
    simplex = vv.MisspecifiedVI(
        lambda x, t: t * (M @ x) + x**3,
        vv.Simplex(2),
        learning=vv.SecondaryVI(lambda t: t - 1.0, set=vv.Box([0.5], [2.0])),
    )
    found = vv.constants(simplex)
    assert found.L_F_x.provenance == "certified"
    assert 2.0 * np.sqrt(5) <= found.L_F_x.value <= 2.0 * np.linalg.norm(np.abs(M), 2) + 3.0 + 1e-9
    unbounded = vv.MisspecifiedVI(
        lambda x, t: M @ x - t, vv.NonNegative(2), lambda x, t: x[0] - 1.0, vv.Known(1.0)
    )
    assert vv.constants(unbounded).L_F_x.provenance == "exact"
    with pytest.raises(vv.InputError, match="D_X is not finite"):
        vv.bounds(unbounded, 10)
