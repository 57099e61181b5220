"""The default solver: right on problems that discriminate, indifferent to units, honest when it cannot help."""

from __future__ import annotations

import equinox as eqx
import jax
import numpy as np
import pytest

import scaled_problem as scaled
import viceversa as vv
from viceversa.driver import loop
from viceversa.schemes.interior_point import interior_point_compiled, lift


@pytest.fixture(scope="module")
def reference() -> vv.Solution:
    solution = vv.solve(scaled.problem())
    assert solution.status is vv.Status.solved
    return solution


@pytest.mark.parametrize(
    "units",
    [
        {"scale_x": 1e6},
        {"scale_x": 1e-6},
        {"scale_F": 1e6},
        {"scale_F": 1e-6},
        {"scale_f": (1e6, 1e-6, 1.0)},
        {"scale_theta": 1e6},
        {"scale_theta": 1e-6},
        {"scale_x": 1e-6, "scale_F": 1e6, "scale_f": (1e6, 1.0, 1e-6), "scale_theta": 1e6},
    ],
)
def test_units_change_nothing(reference, units):
    """x, F, every f_j and θ in other units: the same iterations, the same answer in those units."""
    solution = vv.solve(scaled.problem(**units))
    assert solution.status is vv.Status.solved
    assert solution.nit == reference.nit
    np.testing.assert_allclose(solution.x / units.get("scale_x", 1.0), reference.x, rtol=0, atol=1e-12)
    np.testing.assert_allclose(
        solution.theta / units.get("scale_theta", 1.0), reference.theta, rtol=0, atol=1e-12
    )
    in_units = solution.multiplier * np.array(units.get("scale_f", (1.0, 1.0, 1.0)))
    in_units = in_units / (units.get("scale_F", 1.0) * units.get("scale_x", 1.0))
    np.testing.assert_allclose(in_units, reference.multiplier, rtol=0, atol=1e-10)


def test_agrees_with_algorithm_1(reference):
    """The last iterate of Algorithm 1, run long, is the same point."""
    method = vv.AugmentedLagrangian(step_size=0.03, penalty=0.3)
    slow = vv.solve(scaled.problem(), method, tol=1e-10, max_iter=50_000)
    assert slow.status is vv.Status.solved
    np.testing.assert_allclose(reference.x, slow.x, rtol=0, atol=1e-7)
    np.testing.assert_allclose(reference.multiplier, slow.multiplier, rtol=0, atol=1e-6)


def test_joint_and_known_parameter_agree(reference):
    """Learning θ on the way or being given it leads to the same point."""
    given = vv.solve(scaled.problem().with_known(scaled.THETA))
    np.testing.assert_allclose(given.x, reference.x, rtol=0, atol=1e-7)


@pytest.mark.slow
def test_the_way_a_function_is_written_changes_nothing():
    """A market whose firms lie in columns, or in two blocks, takes the steps of one written plainly."""
    rng = np.random.default_rng(0)
    r, g = rng.uniform(1.0, 10.0, (400, 2)), rng.uniform(5.0, 20.0, (400, 2))

    def plain(x, b):
        return r * x + g + b * (x.sum(axis=0) + x) - 100.0

    def in_columns(x, b):
        y = x.T
        return (r.T * y + g.T + b * (y.sum(axis=1, keepdims=True) + y) - 100.0).T

    def in_blocks(x, b):
        blocks = [x[:150], x[150:]]
        total = blocks[0].sum(axis=0) + blocks[1].sum(axis=0)
        costs = [r[:150] * blocks[0] + g[:150], r[150:] * blocks[1] + g[150:]]
        return np.concatenate([c + b * (total + y) - 100.0 for c, y in zip(costs, blocks, strict=True)])

    X = vv.Box(np.zeros((400, 2)), 5.0)
    solutions = [
        vv.solve(
            vv.MisspecifiedVI(F, X, lambda x, b: 88.0 - b * x.sum(axis=0), vv.Known(0.1), symmetric=True),
            vv.SemismoothNewton(),
        )
        for F in (plain, in_columns, in_blocks)
    ]
    assert [solution.status for solution in solutions] == [vv.Status.solved] * 3
    assert len({solution.nit for solution in solutions}) == 1
    for other in solutions[1:]:
        np.testing.assert_allclose(other.x, solutions[0].x, rtol=0, atol=1e-9)


def test_warm_start_needs_almost_nothing(reference):
    assert vv.solve(scaled.problem(), init=reference).nit <= 1


@pytest.mark.parametrize("method", [None, vv.SemismoothNewton()], ids=["default", "Newton"])
def test_a_little_change_takes_a_few_steps_from_the_last_solution(method):
    """Costs that move by a thousandth: the answer of a cold start, in fewer evaluations and without compiling."""
    rng = np.random.default_rng(3)
    market = vv.gallery.cournot(100, 5, seed=1).problem
    last = vv.solve(market, method)
    n_programs = len(loop.begin_compiled._programs)
    for _ in range(3):
        g = market.operator.costs.g + 1e-3 * rng.normal(size=market.shape)
        changed = eqx.tree_at(lambda p: p.operator.costs.g, market, g)
        last, cold = vv.solve(changed, method, init=last), vv.solve(changed, method)
        assert last.success
        assert last.nit <= 4
        assert last.counts.F < cold.counts.F
        np.testing.assert_allclose(last.x, cold.x, rtol=0, atol=1e-9)
    assert len(loop.begin_compiled._programs) == n_programs


def test_from_a_solution_nearby_newton_is_tried_at_once(reference):
    """Multipliers that are a percent off: one first-order step for its length, instead of a batch, and Newton."""
    other = scaled.problem(scale_f=(1.0, 1.0, 1.01))  # the third multiplier becomes smaller by as much
    cold = vv.solve(other)
    start = vv.solve(scaled.problem(scale_F=1.001))  # forces a thousandth larger: x is the same, λ is not
    warm = vv.solve(other, init=start)
    assert warm.success
    assert [phase.startswith("first order") for phase in warm.trace.phase[1:]].count(True) == 1
    assert warm.nit < cold.nit
    np.testing.assert_allclose(warm.x, cold.x, rtol=0, atol=1e-8)


class Changed(eqx.Module):
    """F and a change of the costs."""

    operator: eqx.Module
    change: np.ndarray

    def __call__(self, x, theta):
        return self.operator(x, theta) + self.change


def test_a_solution_nearby_that_is_on_other_bounds_goes_inside_at_once():
    """Who supplies whom is not unique in this market, and a thousandth of the costs decides anew: no batch of first order helps."""
    given, rng = vv.gallery.electricity().problem, np.random.default_rng(1)

    def changed(change: np.ndarray) -> vv.MisspecifiedVI:
        operator = Changed(given.operator, change)
        return vv.MisspecifiedVI(operator, given.set, given.constraints, given.learning)

    solution = vv.solve(changed(np.zeros(given.shape)))
    for _ in range(3):
        other = changed(1e-3 * rng.normal(size=given.shape))
        warm, cold = vv.solve(other, init=solution), vv.solve(other)
        assert warm.success
        kinds = [phase.split(":")[0] for phase in warm.trace.phase]
        assert kinds[: kinds.index("interior point")].count("first order") == 1
        np.testing.assert_allclose(warm.multiplier, cold.multiplier, rtol=0, atol=1e-3)


def test_chunked_and_fused_take_the_same_path(reference):
    seen = []
    chunked = vv.solve(scaled.problem(), callback=lambda now: seen.append(now["k"]))
    assert chunked.nit == reference.nit
    np.testing.assert_allclose(chunked.x, reference.x, rtol=0, atol=1e-12)
    assert seen[-1] == reference.nit


def test_new_data_do_not_recompile(reference):
    """Other arrays of the same shapes run the same program."""
    n_programs = len(loop.begin_compiled._programs)
    vv.solve(
        scaled.problem(scale_x=2.0, scale_F=3.0),
        theta0=np.ones(2),
        x0=np.ones(scaled.N),
        tol=1e-6,
        max_iter=50,
    )
    assert len(loop.begin_compiled._programs) == n_programs


def test_bilinear_game_with_a_coupling_constraint():
    """A skew operator (no curvature anywhere) with a shared constraint, where plain projection circles."""
    A = np.array([[1.0, -2.0], [3.0, 0.5]])

    def F(z, t):
        return np.concatenate([A @ z[2:] - 0.3, -(A.T @ z[:2]) + t])

    problem = vv.MisspecifiedVI(F, vv.Box(-np.ones(4), np.ones(4)), lambda z, t: z.sum() - 0.1, vv.Known(0.2))
    solution = vv.solve(problem)
    assert solution.status is vv.Status.solved
    force = np.concatenate([A @ solution.x[2:] - 0.3, -(A.T @ solution.x[:2]) + 0.2]) + solution.multiplier
    assert np.abs(solution.x - np.clip(solution.x - force, -1, 1)).max() < 1e-7
    assert solution.x.sum() <= 0.1 + 1e-8


@pytest.mark.slow
def test_curved_and_flat_sets_against_the_interior_point_method():
    """Newton through the projection's derivative and the interior-point method share no step, and agree."""
    set_ = vv.Product([vv.Ball([0.0], 1.0), vv.Simplex((2,))])
    M = np.array([[2.0, 1.0, 0.0], [-1.0, 1.0, 0.5], [0.3, -0.5, 1.5]])
    q = np.array([-3.0, 0.2, -1.0])
    problem = vv.MisspecifiedVI(lambda x, t: M @ x + t * q, set_, lambda x, t: x[0] - 0.6, vv.Known(1.0))
    solution = vv.solve(problem)
    assert solution.status is vv.Status.solved
    with jax.enable_x64(True):
        other = interior_point_compiled(problem, lift(set_), set_.interior_point(), np.asarray(1.0))
        x = np.asarray(other.x)
    assert vv.certify(problem, x, np.asarray(other.lam), 1.0).holds
    np.testing.assert_allclose(solution.x, x, rtol=0, atol=1e-7)


@pytest.mark.slow
def test_ill_conditioned_problem_is_rescued():
    """Condition 1e8 on a product: first-order steps and Newton give up, the interior-point method does not.

    On the simplex that it is a product of, Newton on the smoothed map needs no rescue.
    """
    rng = np.random.default_rng(5)
    n = 30
    Q, S = np.linalg.qr(rng.normal(size=(n, n)))[0], rng.normal(size=(n, n))
    M = (Q * np.geomspace(1e-4, 1e4, n)) @ Q.T + S - S.T
    x_true = np.abs(rng.normal(size=n))
    x_true[::3] = 0.0
    x_true /= x_true.sum()
    q = np.where(x_true > 0, 0.0, rng.uniform(0.1, 1.0, n)) - M @ x_true
    for X, n_rescues in ((vv.Simplex((n,)), 0), (vv.Product([vv.Simplex((n,))]), 1)):
        problem = vv.MisspecifiedVI(lambda x, t: M @ x + t * q, X, learning=vv.Known(1.0))
        solution = vv.solve(problem, max_iter=20_000)
        assert solution.status is vv.Status.solved
        np.testing.assert_allclose(solution.x, x_true, rtol=0, atol=1e-8)
        assert solution.trace.phase is not None
        assert solution.trace.phase.count("interior point: x") == n_rescues
    # A rescued point takes a Newton step before it is looked at: its last digits, and a row of its own in the trace.
    assert solution.trace.to_frame()["relative"].iloc[-1] <= 1e-8


def test_ill_conditioned_box_is_solved():
    """Condition 1e8 with bounds active."""
    rng = np.random.default_rng(3)
    Q = np.linalg.qr(rng.normal(size=(12, 12)))[0]
    S = rng.normal(size=(12, 12))
    M = (Q * np.geomspace(1e-4, 1e4, 12)) @ Q.T + 0.3 * (S - S.T)
    x_true = np.where(rng.uniform(size=12) < 0.4, 1.0, rng.uniform(-0.5, 0.5, 12))
    push = np.where(x_true == 1.0, rng.uniform(0.1, 1.0, 12), 0.0)
    q = -(M @ x_true) - push
    problem = vv.MisspecifiedVI(
        lambda x, t: M @ x + t * q, vv.Box(-np.ones(12), np.ones(12)), learning=vv.Known(1.0)
    )
    solution = vv.solve(problem, max_iter=20_000)
    assert solution.status is vv.Status.solved
    np.testing.assert_allclose(solution.x, x_true, rtol=0, atol=1e-8)


def test_infeasible_problem_ends_with_a_proof():
    """x₁ + x₂ ≥ 3 on the unit square: refused with the constraint's name and a margin that can be checked by hand."""
    problem = vv.MisspecifiedVI(
        lambda x, t: x - t,
        vv.Box([0.0, 0.0], [1.0, 1.0]),
        lambda x, t: np.array([3.0 * t - x[0] - x[1], x[0] - 4.0]),
        vv.LeastSquares([1.0, 2.0], [1.0, 2.0], set=vv.Box(0.1, 3.0, shape=())),
        constraint_names=("demand", "cap"),
    )
    solution = vv.solve(problem)
    assert solution.status is vv.Status.infeasible
    assert solution.infeasibility is not None
    assert solution.infeasibility.proved
    assert list(solution.infeasibility.weights) == ["demand"]
    assert solution.infeasibility.margin == pytest.approx(1.0, abs=1e-9)
    assert "demand" in str(solution.infeasibility)


def test_feasible_problem_is_never_proved_infeasible(reference):
    """The proof's inequality fails wherever a feasible point exists, whatever weights are tried."""
    from viceversa.certificates.infeasibility import prove_infeasible

    with jax.enable_x64(True):
        problem = scaled.problem()
        for x in (reference.x, -np.ones(scaled.N), 2.0 * np.ones(scaled.N)):
            assert prove_infeasible(problem, x, np.array([1.0, 50.0, 3.0]), reference.theta) is None


def test_touching_constraint_without_slater_is_still_solved():
    """x₁ + x₂ ≥ 2 on the unit square leaves one point; there is no strictly feasible one."""
    problem = vv.MisspecifiedVI(
        lambda x, t: x - t, vv.Box([0.0, 0.0], [1.0, 1.0]), lambda x, t: 2.0 - x[0] - x[1], vv.Known(0.5)
    )
    solution = vv.solve(problem)
    assert solution.status is vv.Status.solved
    np.testing.assert_allclose(solution.x, [1.0, 1.0], atol=1e-7)


def test_callback_problems_use_first_order_steps_only():
    problem = vv.MisspecifiedVI(
        vv.callback_operator(lambda x, t: 2.0 * x - t), vv.Box([0.0], [9.0]), learning=vv.Known(3.0)
    )
    solution = vv.solve(problem, max_iter=500)
    assert solution.status is vv.Status.solved
    assert int(solution.state.n_newton) == 0
    np.testing.assert_allclose(solution.x, [1.5], atol=1e-7)
    assert "needs derivatives" in str(solution)
    with pytest.raises(vv.InputError, match="second-order phase needs derivatives"):
        vv.solve(problem, vv.SemismoothNewton())


def _believed_slope(of_H: float = 1.0, of_theta: float = 1.0) -> vv.MisspecifiedVI:
    """Firms correct a believed slope t by the price they see: the true slope 2 is the fixed point; H and θ in other units."""
    costs = np.array([5.0, 7.0, 9.0])

    def observed(t, x):
        return of_H * x.sum() * (t / of_theta - 2.0) * x.sum() / 100.0

    with pytest.warns(vv.CoupledLearningWarning):
        learning = vv.CoupledLearning(observed, set=vv.Box(0.5 * of_theta, 8.0 * of_theta, shape=()))
    return vv.MisspecifiedVI(
        lambda x, t: costs * x + t / of_theta * (x.sum() + x) - 100.0,
        vv.Box(np.zeros(3), np.full(3, 20.0)),
        lambda x, t: 60.0 - t / of_theta * x.sum(),
        learning,
    )


def test_learning_that_depends_on_play_goes_through_the_full_system():
    problem = _believed_slope()
    solution = vv.solve(problem, theta0=4.0)
    assert solution.success
    np.testing.assert_allclose(solution.theta, 2.0, atol=1e-7)
    known = vv.solve(vv.MisspecifiedVI(problem.operator, problem.set, problem.constraints, vv.Known(2.0)))
    np.testing.assert_allclose(solution.x, known.x, atol=1e-6)
    assert solution.trace.phase is not None
    assert "Newton: x, λ and θ together" in solution.trace.phase
    assert solution.counts.F < 300  # first order alone needs thousands


@pytest.mark.parametrize(
    ("of_H", "of_theta"),
    [
        (1e-10, 1.0),
        pytest.param(1e6, 1e-6, marks=pytest.mark.slow),
        pytest.param(1.0, 1e6, marks=pytest.mark.slow),
    ],
)
def test_units_of_learning_that_depends_on_play_change_nothing(of_H, of_theta):
    """Neither a modulus nor a Lipschitz constant is given; a small H is no small error."""
    solution = vv.solve(_believed_slope(of_H, of_theta), theta0=4.0 * of_theta)
    assert solution.success
    assert solution.nit == vv.solve(_believed_slope(), theta0=4.0).nit
    np.testing.assert_allclose(solution.theta, 2.0 * of_theta, rtol=1e-9)


def test_estimated_moduli_alone_do_not_pass_an_answer():
    """H = (θ − 0.3)³ is flat at its zero: sampled slopes say that 10⁻⁵ away is close enough, a Newton step does not."""
    learning = vv.SecondaryVI(lambda t: (t - 0.3) ** 3, set=vv.Box(0.0, 1.0, shape=()))
    problem = vv.MisspecifiedVI(lambda x, t: x - t, vv.Box(0.0, 9.0, shape=2), learning=learning)
    near = vv.certify(problem, [0.30001, 0.30001], theta=0.30001)
    assert near.learning_error >= 1e-5
    assert not near.holds


def test_learning_first_and_learning_on_the_way_lead_to_the_same_point(reference):
    first = vv.solve(
        scaled.problem(),
        vv.Sequential(vv.NewtonLearner(), vv.AdaptiveAugmentedLagrangian(), learn_tol=1e-12),
        tol=1e-9,
        max_iter=50_000,
    )
    assert first.success
    np.testing.assert_allclose(first.x, reference.x, rtol=0, atol=1e-6)
    np.testing.assert_allclose(first.theta, reference.theta, rtol=0, atol=1e-9)


def test_trace_names_the_blocks_of_every_phase(reference):
    phases = reference.trace.phase
    assert phases is not None
    assert phases[0] == "start"
    assert "first order: x and λ, then θ" in phases
    assert phases[-1] == "Newton: θ, then x and λ"


def test_every_point_of_a_line_search_and_every_learning_step_is_counted():
    """A step of length t has tried 1 − log₂ t points and linearised at one; each asks for one pullback."""
    market = vv.gallery.cournot(60, 4, 0).problem
    solution = vv.solve(market, vv.SemismoothNewton(), record=vv.Record(at=range(40)))
    trace, learner = solution.trace, vv.NewtonLearner()
    assert trace.phase is not None
    newton = [k for k, phase in enumerate(trace.phase) if phase.startswith("Newton")]
    t = trace.step_size[newton]
    assert t.min() < 1.0  # some were short
    pullbacks = np.diff([counts.pullback for counts in trace.counts], prepend=0)[newton]
    np.testing.assert_array_equal(pullbacks, 2 - np.log2(t))
    # The first-order step's: where least squares ends is known when it is built.
    assert solution.counts.H == 1
    planted = vv.solve(vv.gallery.planted().problem)
    assert planted.trace.phase is not None
    n_newton = sum(phase.startswith("Newton") for phase in planted.trace.phase)
    n_learned = planted.counts.H
    assert n_learned == learner.step_counts * (1 + n_newton) + planted.nit - n_newton
