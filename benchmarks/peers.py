"""The default solver beside the solvers a user would otherwise pick, in one run.

Every peer is *given* θ*; `vv.solve` starts with θ three times too large and learns it. Cournot with a price cap has a
potential, so QP solvers apply, in two forms: `totals`, sparse, with one extra variable for each market's total, a
reformulation by hand that is the best we know for them; and `direct`, the potential as written, whose Hessian couples
all firms of a market. Problems without a potential are in `peers_vi`. The answer of every solver is judged by
`vv.certify`. Columns: set-up and solve on new data (ours builds the learning problem from its observations, too); a repeated solve after a small change of the costs, another one every
time (OSQP, PIQP, ProxQP, SCS and PATH go on from what they keep, BoxOSQP and SciPy's root are given their last solution, the
other peers start where they started before; ours is `update` and `solve` of a `vv.Solver`); both the median of
repeats; and the worst relative certificate of the first answer and of the last repeated one. A failure is a row.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import Any

import equinox as eqx
import numpy as np
from scipy import sparse

import viceversa as vv
from benchmarks import machine

SIZES = ((50, 5), (50, 10), (100, 10), (1000, 10), (10_000, 10))
TARGET = 1e-6
REPEATS = 15  # at least, and for as long as it takes to be sure of a short call
SECONDS_SURE = 0.3
SECONDS_ENOUGH = 3.0  # for three repeats of a long one
SHORT_MS = 20.0
CHANGE = 1e-3  # the standard deviation of what every repeated solve adds to the costs (marginal costs at 0 are 5 to 20 in the markets)
SECONDS_EACH = 60.0  # a peer that needs longer for one solve is reported as such


@dataclass(frozen=True)
class Market:
    """A Cournot market with its data in the form a QP solver wants: variables (x, totals)."""

    instance: Any
    r: np.ndarray
    g: np.ndarray
    b: float
    a: float
    capacity: float
    need: float  # totals must be at least this for the price to stay below the cap

    @property
    def shape(self) -> tuple[int, int]:
        return self.r.shape

    def qp(self) -> tuple[sparse.csc_matrix, np.ndarray, sparse.csc_matrix, np.ndarray, np.ndarray]:
        """P, q, A, l, u of ½zᵀPz + qᵀz, l ≤ Az ≤ u: totals defined by equations, then bounds on every variable."""
        n_firms, n_products = self.shape
        n = n_firms * n_products
        P = sparse.diags(np.concatenate([(self.r + self.b).ravel(), np.full(n_products, self.b)]))
        q = np.concatenate([self.g.ravel(), np.full(n_products, -self.a)])
        sums = sparse.kron(np.ones((1, n_firms)), sparse.eye(n_products))
        define = sparse.hstack([sums, -sparse.eye(n_products)])
        A = sparse.vstack([define, sparse.eye(n + n_products)]).tocsc()
        low = np.concatenate([np.zeros(n_products), np.zeros(n), np.full(n_products, self.need)])
        high = np.concatenate([np.zeros(n_products), np.full(n, self.capacity), np.full(n_products, np.inf)])
        return P.tocsc(), q, A, low, high

    def direct_qp(self) -> tuple[sparse.csc_matrix, np.ndarray, sparse.csc_matrix, np.ndarray, np.ndarray]:
        """The same without totals: P couples every firm of a market; rows are the markets' needs, then the bounds."""
        n_firms, n_products = self.shape
        n = n_firms * n_products
        coupled = sparse.kron(np.full((n_firms, n_firms), self.b), sparse.eye(n_products))
        P = sparse.diags((self.r + self.b).ravel()) + coupled
        sums = sparse.kron(np.ones((1, n_firms)), sparse.eye(n_products))
        A = sparse.vstack([sums, sparse.eye(n)]).tocsc()
        low = np.concatenate([np.full(n_products, self.need), np.zeros(n)])
        high = np.concatenate([np.full(n_products, np.inf), np.full(n, self.capacity)])
        return P.tocsc(), (self.g - self.a).ravel(), A, low, high

    def answer(self, z: np.ndarray, dual_totals: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """x and the multipliers of the price caps from a QP solver's z and its dual of the totals' lower bounds."""
        n = self.r.size
        return np.clip(z[:n].reshape(self.shape), 0.0, self.capacity), np.maximum(dual_totals, 0.0) / self.b


def market(n_firms: int, n_products: int, seed: int) -> Market:
    """The paper's instance (b* = 1) of one size."""
    instance = vv.gallery.cournot(n_firms, n_products, seed)
    operator, cap = instance.problem.operator, instance.problem.constraints
    costs = operator.costs
    a, price_cap = (
        float(instance.problem.operator.demand.intercept),
        float(np.asarray(cap.price_cap).ravel()[0]),
    )
    b = float(instance.theta_true)
    return Market(
        instance,
        np.asarray(costs.r),
        np.asarray(costs.g),
        b,
        a,
        float(instance.problem.set.upper.flat[0]),
        (a - price_cap) / b,
    )


# -- peers: each gives (solve on new data, solve again with another q) -----------------------------
Answer = tuple[np.ndarray, np.ndarray]
Peer = Callable[[Market], tuple[Callable[[], Answer], Callable[[np.ndarray], Answer]]]


def _osqp(m: Market):
    import osqp

    P, q, A, low, high = m.qp()
    D = m.shape[1]
    settings = {"eps_abs": 1e-8, "eps_rel": 1e-8, "max_iter": 200_000, "verbose": False, "polishing": True}
    kept: dict[str, Any] = {}

    def read(result) -> Answer:
        return m.answer(result.x, -result.y[-D:])

    def new() -> Answer:
        kept["solver"] = osqp.OSQP()
        kept["solver"].setup(P, q, A, low, high, **settings)
        return read(kept["solver"].solve())

    def again(q_new: np.ndarray) -> Answer:
        kept["solver"].update(q=q_new)
        return read(kept["solver"].solve())

    return new, again


def _piqp(m: Market):
    import piqp

    P, q, A, low, high = m.qp()
    D, n = m.shape[1], m.r.size
    equations, x_low, x_high = A[:D], low[D:], high[D:]
    none = sparse.csc_matrix((0, n + D))
    kept: dict[str, Any] = {}

    def read(solver) -> Answer:
        return m.answer(solver.result.x, solver.result.z_bl[-D:])

    def new() -> Answer:
        solver = kept["solver"] = piqp.SparseSolver()
        solver.settings.eps_abs = solver.settings.eps_rel = 1e-12
        solver.setup(P, q, equations, np.zeros(D), none, np.zeros(0), np.zeros(0), x_low, x_high)
        solver.solve()
        return read(solver)

    def again(q_new: np.ndarray) -> Answer:
        kept["solver"].update(c=q_new)
        kept["solver"].solve()
        return read(kept["solver"])

    return new, again


class NotRun(Exception):
    """A peer that is left out, and why."""


def _small(m: Market, most: int, why: str) -> None:
    if m.r.size > most:
        raise NotRun(f"{why}: left out above {most} variables")


def _osqp_direct(m: Market):
    import osqp

    _small(m, 2000, "dense Hessian")
    P, q, A, low, high = m.direct_qp()
    D = m.shape[1]
    settings = {"eps_abs": 1e-8, "eps_rel": 1e-8, "max_iter": 200_000, "verbose": False, "polishing": True}
    kept: dict[str, Any] = {}

    def new() -> Answer:
        kept["solver"] = osqp.OSQP()
        kept["solver"].setup(sparse.triu(P).tocsc(), q, A, low, high, **settings)
        return solve()

    def solve() -> Answer:
        result = kept["solver"].solve()
        return m.answer(result.x, -result.y[:D])

    def again(q_new: np.ndarray) -> Answer:
        kept["solver"].update(q=q_new[: q.size] - m.a)
        return solve()

    return new, again


def _piqp_direct(m: Market):
    import piqp

    _small(m, 2000, "dense Hessian")
    P, q, A, low, high = m.direct_qp()
    D, n = m.shape[1], q.size
    dense, none = P.toarray(), np.zeros((0, n))
    rows = A[:D].toarray()
    kept: dict[str, Any] = {}

    def new() -> Answer:
        solver = kept["solver"] = piqp.DenseSolver()
        solver.settings.eps_abs = solver.settings.eps_rel = 1e-12
        solver.setup(dense, q, none, np.zeros(0), rows, low[:D], high[:D], low[D:], high[D:])
        return solve()

    def solve() -> Answer:
        kept["solver"].solve()
        return m.answer(kept["solver"].result.x, np.asarray(kept["solver"].result.z_l))

    def again(q_new: np.ndarray) -> Answer:
        kept["solver"].update(c=q_new[:n] - m.a)
        return solve()

    return new, again


def _daqp_direct(m: Market):
    from ctypes import c_int

    import daqp

    _small(m, 2000, "dense solver")
    P, q, A, low, high = m.direct_qp()
    D = m.shape[1]
    dense, rows = P.toarray(), A[:D].toarray()
    upper = np.concatenate([high[D:], np.full(D, 1e30)])
    lower = np.concatenate([low[D:], low[:D]])
    sense = np.zeros(q.size + D, dtype=c_int)

    def solve(q_now: np.ndarray) -> Answer:
        z, _, _, info = daqp.solve(dense, q_now, rows, upper, lower, sense)
        return m.answer(np.asarray(z), -np.asarray(info["lam"])[q.size :])

    return lambda: solve(q), lambda q_new: solve(q_new[: q.size] - m.a)


def _box_osqp(m: Market):
    """JAXopt's matrix-free ADMM on the totals form, compiled by its own jit."""
    import jax
    import jax.numpy as jnp
    from jaxopt import BoxOSQP

    n_firms, D = m.shape
    n = m.r.size
    P, q, _, low, high = m.qp()
    with jax.enable_x64(True):
        diagonal = jnp.asarray(P.diagonal())
        bounds = (jnp.asarray(low), jnp.asarray(high))
        solver = BoxOSQP(
            matvec_Q=lambda diag, z: diag * z,
            matvec_A=lambda _, z: jnp.concatenate([z[:n].reshape(n_firms, D).sum(0) - z[n:], z]),
            tol=1e-7,
            maxiter=20_000,
        )
        run = jax.jit(lambda start, cost: solver.run(start, (diagonal, cost), None, bounds).params)
    kept: dict[str, Any] = {}

    def solve(q_now: np.ndarray, start: Any) -> Answer:
        with jax.enable_x64(True):
            kept["params"] = found = run(start, jnp.asarray(q_now))
            return m.answer(np.asarray(found.primal[0]), np.asarray(found.dual_ineq[1])[-D:])

    return lambda: solve(q, None), lambda q_now: solve(q_now, kept["params"])


def _nashopt(m: Market):
    """The linear-quadratic game itself, a variational equilibrium, by its Douglas–Rachford/active-set solver."""
    from nashopt import GNEP_LQ

    _small(m, 300, "a dense matrix for every player")
    n_firms, D = m.shape
    n = m.r.size
    sums = np.kron(np.ones((1, n_firms)), np.eye(D))

    def game(g: np.ndarray) -> Any:
        Q, c = [], []
        for i in range(n_firms):
            own = slice(i * D, (i + 1) * D)
            matrix = np.zeros((n, n))
            matrix[own, :] = m.b * sums
            matrix[:, own] = m.b * sums.T
            matrix[own, own] = np.diag(m.r[i] + 2 * m.b)
            Q.append(matrix)
            linear = np.zeros(n)
            linear[own] = g[i] - m.a
            c.append(linear)
        return GNEP_LQ(
            [D] * n_firms, Q, c, lb=np.zeros(n), ub=np.full(n, m.capacity), A=-sums, b=np.full(D, -m.need),
            variational=True, solver="dr_daqp",
        )  # fmt: skip

    def solve(made: Any) -> Answer:
        found = made.solve(verbose=0)
        found = found[0] if isinstance(found, list) else found
        return m.answer(np.asarray(found.x), np.asarray(found.lam)[:D])

    return lambda: solve(game(m.g)), lambda q_new: solve(game(q_new[:n].reshape(m.shape)))


def _path(m: Market):
    """PATH through GAMSPy on the variational inequality, n + D complementarity conditions."""
    from benchmarks import peers_vi

    n_firms, D = m.shape
    n = m.r.size
    _small(m, 1500, "n² coefficients in the model")
    M = np.kron(np.full((n_firms, n_firms), m.b), np.eye(D)) + np.diag((m.r + m.b).ravel())
    sums = np.kron(np.ones((1, n_firms)), np.eye(D))
    vi = peers_vi.AffineVI(
        "market", m.instance.problem, m.b, m.b, M, (m.g - m.a).ravel(), np.zeros((D, 0, n)), -m.b * sums,
        np.full(D, -m.b * m.need), np.zeros(n), np.full(n, m.capacity),
    )  # fmt: skip
    new, again = peers_vi.PEERS["PATH (GAMSPy)"](vi)
    return new, lambda q_new: again(q_new[:n] - m.a)


def _monviso(m: Market):
    from benchmarks import peers_monviso

    return peers_monviso.market(m)


def _proxqp(m: Market):
    from proxsuite import proxqp

    P, q, A, low, high = m.qp()
    D = m.shape[1]
    equations, bounds = A[:D], A[D:].tocsc()
    finite_high = np.where(np.isfinite(high[D:]), high[D:], 1e20)
    kept: dict[str, Any] = {}

    def read(qp) -> Answer:
        return m.answer(qp.results.x, -qp.results.z[-D:])

    def new() -> Answer:
        qp = kept["solver"] = proxqp.sparse.QP(q.size, D, bounds.shape[0])
        qp.settings.eps_abs, qp.settings.eps_rel = 1e-8, 0.0
        qp.init(P, q, equations.tocsc(), np.zeros(D), bounds, low[D:], finite_high)
        qp.solve()
        return read(qp)

    def again(q_new: np.ndarray) -> Answer:
        kept["solver"].update(g=q_new)
        kept["solver"].solve()
        return read(kept["solver"])

    return new, again


def _conic(m: Market) -> tuple[sparse.csc_matrix, np.ndarray, int, int]:
    """Rows Gz + s = h with s in zeros × nonnegatives: equations, upper bounds on x, lower bounds on everything."""
    _, _, A, low, high = m.qp()
    D, n = m.shape[1], m.r.size
    eye = sparse.eye(n + D).tocsc()
    G = sparse.vstack([A[:D], eye[:n], -eye]).tocsc()
    return G, np.concatenate([np.zeros(D), high[D : D + n], -low[D:]]), D, n + n + D


def _clarabel(m: Market):
    import clarabel

    P, q, _, _, _ = m.qp()
    G, h, n_zero, n_nonnegative = _conic(m)
    cones = [clarabel.ZeroConeT(n_zero), clarabel.NonnegativeConeT(n_nonnegative)]
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = 1e-11

    def solve(q_now: np.ndarray) -> Answer:
        result = clarabel.DefaultSolver(sparse.triu(P).tocsc(), q_now, G, h, cones, settings).solve()
        return m.answer(np.array(result.x), np.array(result.z)[-m.shape[1] :])

    return lambda: solve(q), solve


def _scs(m: Market):
    import scs

    P, q, _, _, _ = m.qp()
    G, h, n_zero, n_nonnegative = _conic(m)
    kept: dict[str, Any] = {}

    def read(result) -> Answer:
        return m.answer(result["x"], result["y"][-m.shape[1] :])

    def new() -> Answer:
        data = {"P": sparse.triu(P).tocsc(), "A": G, "b": h, "c": q}
        cone = {"z": n_zero, "l": n_nonnegative}
        kept["solver"] = scs.SCS(data, cone, verbose=False, eps_abs=1e-8, eps_rel=1e-8, max_iters=200_000)
        return read(kept["solver"].solve())

    def again(q_new: np.ndarray) -> Answer:
        kept["solver"].update(c=q_new)
        return read(kept["solver"].solve())

    return new, again


def _daqp(m: Market):
    from ctypes import c_int

    import daqp

    _small(m, 2000, "dense solver")
    P, q, A, low, high = m.qp()
    D = m.shape[1]
    dense, rows = P.toarray(), A[:D].toarray()
    upper = np.concatenate([np.where(np.isfinite(high[D:]), high[D:], 1e30), np.zeros(D)])
    lower = np.concatenate([low[D:], np.zeros(D)])
    sense = np.concatenate([np.zeros(q.size), np.full(D, 5)]).astype(c_int)

    def solve(q_now: np.ndarray) -> Answer:
        z, _, _, info = daqp.solve(dense, q_now, rows, upper, lower, sense)
        return m.answer(np.asarray(z), -np.asarray(info["lam"])[m.r.size : m.r.size + D])

    return lambda: solve(q), solve


def _highs(m: Market):
    import highspy

    _small(m, 2000, "active-set QP")
    P, q, A, low, high = m.qp()
    D = m.shape[1]
    rows = A[:D].tocsr()

    def solve(q_now: np.ndarray) -> Answer:
        solver = highspy.Highs()
        solver.setOptionValue("output_flag", False)
        solver.setOptionValue("time_limit", SECONDS_EACH)
        model = highspy.HighsModel()
        lp, size = model.lp_, q_now.size
        lp.num_col_, lp.num_row_, lp.col_cost_ = size, D, q_now
        lp.col_lower_, lp.col_upper_ = low[D:], np.where(np.isfinite(high[D:]), high[D:], highspy.kHighsInf)
        lp.row_lower_ = lp.row_upper_ = np.zeros(D)
        lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
        lp.a_matrix_.start_, lp.a_matrix_.index_, lp.a_matrix_.value_ = rows.indptr, rows.indices, rows.data
        model.hessian_.dim_, model.hessian_.format_ = size, highspy.HessianFormat.kTriangular
        lower = sparse.tril(P).tocsc()
        model.hessian_.start_, model.hessian_.index_, model.hessian_.value_ = (
            lower.indptr,
            lower.indices,
            lower.data,
        )
        solver.passModel(model)
        solver.run()
        found = solver.getSolution()
        return m.answer(np.array(found.col_value), np.array(found.col_dual)[-D:])

    return lambda: solve(q), solve


def _ipopt(m: Market):
    import casadi as ca

    P, q, A, low, high = m.qp()
    D = m.shape[1]
    z, cost = ca.MX.sym("z", q.size), ca.MX.sym("q", q.size)
    rows = ca.DM(A[:D].tocsc())
    program = {
        "x": z,
        "p": cost,
        "f": 0.5 * ca.dot(ca.DM(P.diagonal()) * z, z) + ca.dot(cost, z),
        "g": rows @ z,
    }
    options = {"ipopt.print_level": 0, "print_time": False, "ipopt.tol": 1e-10, "ipopt.sb": "yes"}
    kept: dict[str, Any] = {}

    def call(q_now: np.ndarray) -> Answer:
        found = kept["solver"](x0=np.ones(q.size), p=q_now, lbx=low[D:], ubx=high[D:], lbg=0, ubg=0)
        return m.answer(np.asarray(found["x"]).ravel(), -np.asarray(found["lam_x"]).ravel()[-D:])

    def new() -> Answer:
        kept["solver"] = ca.nlpsol("solver", "ipopt", program, options)
        return call(q)

    return new, call


def _scipy_root(m: Market):
    from scipy.optimize import root

    _small(m, 1000, "dense Jacobian")
    n, D = m.r.size, m.shape[1]

    def fischer(u, v):
        """u + v − √(u² + v²) and its two slopes."""
        length = np.sqrt(u * u + v * v)
        safe = np.where(length > 0, length, 1.0)
        return u + v - length, 1.0 - u / safe, 1.0 - v / safe

    kept: dict[str, Any] = {}
    sums = np.kron(np.ones((1, m.shape[0])), np.eye(D))

    def solve(q_now: np.ndarray, start: np.ndarray) -> Answer:
        g, r = q_now[:n], m.r.ravel()

        def residual(z):
            x, lam = z[:n], z[n:]
            totals = sums @ x
            F = r * x + g + m.b * (sums.T @ (totals - lam) + x) - m.a
            inner, of_gap, of_F = fischer(m.capacity - x, -F)
            both, of_x, of_inner = fischer(x, -inner)
            caps, of_lam, of_slack = fischer(lam, m.b * (totals - m.need))
            dF = np.diag(r + m.b) + m.b * (sums.T @ sums)
            upper = np.diag(of_x + of_inner * of_gap) + (of_inner * of_F)[:, None] * dF
            jacobian = np.block(
                [
                    [upper, -(of_inner * of_F)[:, None] * m.b * sums.T],
                    [of_slack[:, None] * m.b * sums, np.diag(of_lam)],
                ]
            )
            return np.concatenate([both, caps]), jacobian

        kept["z"] = found = root(residual, start, jac=True, method="hybr", tol=1e-12).x
        return m.answer(found, found[n:] * m.b)

    q = m.qp()[1]
    return lambda: solve(q, np.ones(n + D)), lambda q_now: solve(q_now, kept["z"])


PEERS: dict[str, Peer] = {
    "PIQP (totals)": _piqp,
    "OSQP (totals)": _osqp,
    "ProxQP (totals)": _proxqp,
    "Clarabel (totals)": _clarabel,
    "SCS (totals)": _scs,
    "DAQP (totals)": _daqp,
    "HiGHS (totals)": _highs,
    "JAXopt BoxOSQP (totals)": _box_osqp,
    "CasADi + IPOPT (totals)": _ipopt,
    "PIQP (direct)": _piqp_direct,
    "OSQP (direct)": _osqp_direct,
    "DAQP (direct)": _daqp_direct,
    "SciPy root (Fischer–Burmeister)": _scipy_root,
    "nashopt": _nashopt,
    "PATH (GAMSPy)": _path,
    "monviso": _monviso,
}


# -- the run -------------------------------------------------------------------------------------
def run(output: Path, quick: bool = False) -> None:
    """Measure, write `peers.md` and print it."""
    from benchmarks import peers_monviso, peers_vi

    rows: list[list[str]] = []
    output.mkdir(parents=True, exist_ok=True)

    def add(instance: str, row: tuple[str, ...]) -> None:
        rows.append([instance, *row])
        print(" | ".join(rows[-1]), flush=True)
        (output / "peers.md").write_text(_page(rows))  # an interrupted run leaves what it has measured

    for n_firms, n_products in SIZES[:1] if quick else SIZES:
        m = market(n_firms, n_products, seed=0)
        name = f"Cournot ({n_firms}, {n_products})"
        add(name, _ours(*_market_to_learn(m)))
        for peer, make in PEERS.items():
            add(name, _theirs(peer, lambda make=make, m=m: make(m), m.instance.problem, m.b, m.qp()[1]))
    problems = [peers_vi.random_vi(*size) for size in peers_vi.SIZES[: 1 if quick else None]]
    problems += [peers_vi.affine_game(name) for name in peers_vi.GAMES[: 1 if quick else None]]
    for vi in problems:
        add(vi.name, _ours(vi.problem, vi.theta0))
        for peer, make in {**peers_vi.PEERS, "monviso": peers_monviso.affine_vi}.items():
            add(vi.name, _theirs(peer, lambda make=make, vi=vi: make(vi), vi.problem, vi.theta, vi.q))
    draw(rows, output / "peers.png")


def draw(rows: list[list[str]], path: Path) -> None:
    """Set-up and solve over the size of the market, for the solvers that reach the target; of ours also the solve alone."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    curves: dict[str, list[tuple[int, float]]] = {}
    for instance, solver, new, _, relative, alone, *_ in rows:
        reached = relative and not relative.endswith("!") and new.replace(".", "").isdigit()
        if instance.startswith("Cournot") and reached:
            n_firms, n_products = (int(word) for word in instance[9:-1].split(", "))
            size, name = n_firms * n_products, solver.replace("*", "")
            curves.setdefault(name, []).append((size, float(new)))
            if alone:
                curves.setdefault(f"{name}: vv.solve alone", []).append((size, float(alone)))
    figure, axes = plt.subplots(figsize=(7.2, 4.4))
    styles = ("-", "--", ":", "-.")
    for number, (solver, points) in enumerate(curves.items()):
        ours = solver.startswith("viceversa")
        style = (
            {"color": "black", "linewidth": 2.5, "linestyle": "--" if solver.endswith("alone") else "-"}
            if ours
            else {"linestyle": styles[number % 4], "linewidth": 1.2}
        )
        marker = "osD^v"[number % 5]
        axes.plot(*zip(*points, strict=True), marker=marker, markersize=3, label=solver, **style)
    axes.set(xscale="log", yscale="log", xlabel="unknowns", ylabel="set-up + solve on new data [ms]")
    axes.grid(alpha=0.3)
    axes.legend(frameon=False, fontsize=7, loc="center left", bbox_to_anchor=(1.0, 0.5))
    figure.tight_layout()
    figure.savefig(path, dpi=150)
    plt.close(figure)


def _page(rows: list[list[str]]) -> str:
    head = [
        "# Peers, side by side",
        "",
        machine.describe(),
        "",
        f"Peers are given θ*; viceversa learns it (in the markets from 300 observations, starting three times too large). "
        f"Milliseconds, medians (of calls up to {SHORT_MS:g} ms the least of three, for everybody). `relative` is the worst part of vv.certify at the answer ({TARGET:g} is the target; "
        "a peer above it is marked with !). Our set-up builds least squares from its observations and the problem; `vv.solve` is the "
        "wall time of that call alone, on a problem that was built before and never solved, `compiled` the compiled program in it; the first call includes compilation.",
        "",
        "| instance | solver | set-up + solve | repeated solve | relative | vv.solve | compiled | first call |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    return "\n".join(head + ["| " + " | ".join(row) + " |" for row in rows]) + "\n"


class Changed(eqx.Module):
    """F(x, θ) plus a change of the costs."""

    operator: Any
    change: np.ndarray

    def __call__(self, x, theta):
        return self.operator(x, theta) + self.change


def changed(problem: vv.MisspecifiedVI, change: np.ndarray, learning: Any = None) -> vv.MisspecifiedVI:
    """The same problem with other costs: data in a known structure, so nothing is compiled again."""
    operator, learning = Changed(problem.operator, change), problem.learning if learning is None else learning
    return vv.MisspecifiedVI(
        operator, problem.set, problem.constraints, learning, symmetric=problem.symmetric
    )


def learned_anew(learning: Any) -> Any:
    """Least squares from its observations again, since it finds its factor, and maybe θ, when it is built."""
    if not isinstance(learning, vv.LeastSquares):
        return learning
    return vv.LeastSquares(
        learning.A, learning.b, set=learning.set, weights=learning.weights, ridge=learning.ridge
    )


def _changes(shape: tuple[int, ...]) -> Iterator[np.ndarray]:
    """One change of the costs after another."""
    return cycle(CHANGE * np.random.default_rng(1).normal(size=(REPEATS, *shape)))


def _median_ms(call: Callable[[], Any], prepare: Callable[[], None] = lambda: None) -> float:
    """The median of repeats; of short calls the least of three such medians, since a slow spell of the machine outlasts one."""
    found = _one_median_ms(call, prepare)
    if found > SHORT_MS:
        return found
    return min(found, *(_one_median_ms(call, prepare) for _ in range(2)))


def _shown(ms: float) -> str:
    return f"{ms:.3f}" if ms < 1.0 else f"{ms:.2f}"


def _fresh_ms(call: Callable[[Any], Any], made: Callable[[], Any]) -> float:
    """`_median_ms` of calls with an argument that is made before, off the clock, and never used again."""
    stock: list[Any] = []

    def prepare() -> None:
        if not stock:
            stock.extend(made() for _ in range(REPEATS))

    return _median_ms(lambda: call(stock.pop()), prepare)


def _one_median_ms(call: Callable[[], Any], prepare: Callable[[], None]) -> float:
    times = []
    began = time.perf_counter()
    while True:
        prepare()
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
        n, spent = len(times), time.perf_counter() - began
        if (n >= REPEATS and spent > SECONDS_SURE) or (n >= 3 and spent > SECONDS_ENOUGH):
            break
    return 1e3 * float(np.median(times))


def _market_to_learn(m: Market) -> tuple[vv.MisspecifiedVI, float]:
    """The market with θ₀ = 3θ* and a Θ that contains it."""
    problem = m.instance.problem
    learning = vv.LeastSquares(
        problem.learning.A, problem.learning.b, set=vv.Box(0.5 * m.b, 4.0 * m.b, shape=())
    )
    rebuilt = vv.MisspecifiedVI(problem.operator, problem.set, problem.constraints, learning, symmetric=True)
    return rebuilt, 3.0 * m.b


def _ours(problem: vv.MisspecifiedVI, theta0: Any) -> tuple[str, ...]:
    def solve(made: vv.MisspecifiedVI) -> vv.Solution:
        return vv.solve(made, theta0=theta0, tol=TARGET)

    changes = _changes(problem.shape)

    def again() -> vv.Solution:
        return solver.update(operator={"change": next(changes)}).solve()

    def on_new_data() -> vv.Solution:
        return solve(changed(problem, next(changes), learned_anew(problem.learning)))

    start = time.perf_counter()
    solve(problem)
    first = time.perf_counter() - start
    solution = solve(problem)
    solver = vv.Solver(changed(problem, next(changes)), theta0=theta0, tol=TARGET)
    solver.solve()  # compiles what both columns use
    again()
    new, repeated = _median_ms(on_new_data), _median_ms(again)
    last = again()
    certificate = vv.certify(solver.problem, last.x, last.multiplier, last.theta, tol=TARGET)
    worst = max(*solution.certificate.relative.values(), *certificate.relative.values())
    alone = _fresh_ms(solve, lambda: changed(problem, next(changes), learned_anew(problem.learning)))
    compiled = _compiled_ms(lambda: solve(problem))
    return (
        "**viceversa** (θ learned)", _shown(new), _shown(repeated), f"{worst:.0e}", _shown(alone), _shown(compiled),
        f"{first:.1f} s",
    )  # fmt: skip


def _compiled_ms(call: Callable[[], Any]) -> float:
    """The part of a solve spent inside the compiled program, waited for."""
    import jax

    from viceversa.driver import loop

    original, times = loop.begin_compiled, []

    def timed(*args: Any) -> Any:
        start = time.perf_counter()
        outcome = jax.block_until_ready(original(*args))
        times.append(time.perf_counter() - start)
        return outcome

    loop.begin_compiled = timed
    try:
        for _ in range(9):
            call()
    finally:
        loop.begin_compiled = original
    return 1e3 * float(np.median(times))


def _theirs(name: str, make: Callable, problem: Any, theta: Any, q: np.ndarray) -> tuple[str, ...]:
    """`q` begins with the costs of x; what follows (the totals) has none of its own."""
    changes, kept = _changes(problem.shape), {}

    def repeat() -> None:
        kept["change"] = next(changes)
        costs = q.copy()
        costs[: kept["change"].size] += kept["change"].ravel()
        kept["answer"] = again(costs)

    try:
        new, again = make()
        began = time.perf_counter()
        x, multiplier = new()
        first = time.perf_counter() - began
        if first > SECONDS_EACH:
            return name, f"> {SECONDS_EACH:.0f} s", "", "", "", "", ""
        times = _shown(_median_ms(new)), _shown(_median_ms(repeat))
        certificates = [
            vv.certify(problem, x, multiplier, theta, tol=TARGET),
            vv.certify(changed(problem, kept["change"]), *kept["answer"], theta, tol=TARGET),
        ]
        worst = max(value for certificate in certificates for value in certificate.relative.values())
        mark = "" if worst <= TARGET else " !"
        return name, *times, f"{worst:.0e}{mark}", "", "", f"{first:.1f} s"
    except NotRun as reason:
        return name, "not run", "", str(reason), "", "", ""
    except Exception as error:  # a failure is a row
        return name, "failed", "", f"{type(error).__name__}: {' '.join(str(error).split())[:90]}", "", "", ""
