"""The default solver beside the solvers a user would otherwise pick, in one run.

Every peer is *given* θ*; `vv.solve` starts with θ three times too large and learns it. Cournot with a price cap has a
potential, so QP solvers apply: each gets the sparse form with one extra variable per market (the total), which is the
best form we know for them. The answer of every solver is judged by `vv.certify`. Columns: set-up and solve on new
data, a repeated solve with updated data (`update()` where a peer has one), both the median of repeats, and the relative
certificate reached. A failure is a row.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

import viceversa as vv
from benchmarks import machine

SIZES = ((50, 5), (50, 10), (100, 10), (1000, 10), (10_000, 10))
TARGET = 1e-6
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
        solver.settings.eps_abs = solver.settings.eps_rel = 1e-9
        solver.setup(P, q, equations, np.zeros(D), none, np.zeros(0), np.zeros(0), x_low, x_high)
        solver.solve()
        return read(solver)

    def again(q_new: np.ndarray) -> Answer:
        kept["solver"].update(c=q_new)
        kept["solver"].solve()
        return read(kept["solver"])

    return new, again


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

    if m.r.size > 2000:
        raise RuntimeError("dense solver: not run above 2000 variables")
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

    P, q, A, low, high = m.qp()
    D = m.shape[1]
    rows = A[:D].tocsr()

    def solve(q_now: np.ndarray) -> Answer:
        solver = highspy.Highs()
        solver.setOptionValue("output_flag", False)
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

    if m.r.size > 300:
        raise RuntimeError("dense finite-difference Jacobian: not run above 300 variables")
    n, D = m.r.size, m.shape[1]

    def fischer(u, v):
        return u + v - np.sqrt(u * u + v * v)

    def solve(q_now: np.ndarray) -> Answer:
        g = q_now[:n].reshape(m.shape)

        def residual(z):
            x, lam = z[:n].reshape(m.shape), z[n:]
            totals = x.sum(0)
            F = m.r * x + g + m.b * (totals + x) - m.a - m.b * lam
            both = fischer(x, -fischer(m.capacity - x, -F))
            return np.concatenate([both.ravel(), fischer(lam, m.b * totals - m.b * m.need)])

        found = root(residual, np.concatenate([np.ones(n), np.ones(D)]), method="hybr", tol=1e-12)
        return m.answer(found.x, found.x[n:] * m.b)

    q = m.qp()[1]
    return lambda: solve(q), solve


PEERS: dict[str, Peer] = {
    "PIQP": _piqp,
    "OSQP": _osqp,
    "ProxQP": _proxqp,
    "Clarabel": _clarabel,
    "SCS": _scs,
    "DAQP": _daqp,
    "HiGHS": _highs,
    "CasADi + IPOPT": _ipopt,
    "SciPy root (Fischer–Burmeister)": _scipy_root,
}


# -- the run -------------------------------------------------------------------------------------
def run(output: Path, quick: bool = False) -> None:
    """Measure, write `peers.md` and print it."""
    lines = [
        "# Peers, side by side",
        "",
        machine.describe(),
        "",
        "Peers are given θ*; viceversa learns it from 300 observations, starting three times too large. Milliseconds, "
        "medians. `relative` is the worst part of vv.certify at the answer (1e-6 is the target).",
        "",
        "| instance | solver | set-up + solve | repeated solve | relative | first call (compilation) |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for n_firms, n_products in SIZES[:1] if quick else SIZES:
        m = market(n_firms, n_products, seed=0)
        name = f"({n_firms}, {n_products})"
        rows = [_ours(m)] + [_theirs(peer, make, m) for peer, make in PEERS.items()]
        for row in rows:
            lines.append(f"| {name} | " + " | ".join(row) + " |")
            print(lines[-1], flush=True)
    output.mkdir(parents=True, exist_ok=True)
    (output / "peers.md").write_text("\n".join(lines) + "\n")


def _median_ms(call: Callable[[], Any], repeats: int = 15) -> float:
    times = []
    began = time.perf_counter()
    while len(times) < repeats and (len(times) < 3 or time.perf_counter() - began < SECONDS_EACH / 4):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return 1e3 * float(np.median(times))


def _ours(m: Market) -> tuple[str, ...]:
    problem, theta0 = m.instance.problem, 3.0 * m.b
    wide = vv.Box(0.5 * m.b, 4.0 * m.b, shape=())
    learning = vv.LeastSquares(problem.learning.A, problem.learning.b, set=wide)
    rebuilt = vv.MisspecifiedVI(problem.operator, problem.set, problem.constraints, learning, symmetric=True)
    start = time.perf_counter()
    vv.solve(rebuilt, theta0=theta0, tol=TARGET)
    first = time.perf_counter() - start
    solution = vv.solve(rebuilt, theta0=theta0, tol=TARGET)

    def on_new_data():
        fresh = vv.MisspecifiedVI(
            problem.operator, problem.set, problem.constraints, learning, symmetric=True
        )
        return vv.solve(fresh, theta0=theta0, tol=TARGET)

    new = _median_ms(on_new_data)
    again = _median_ms(lambda: vv.solve(rebuilt, theta0=theta0, tol=TARGET))
    worst = max(solution.certificate.relative.values())
    return ("**viceversa** (θ learned)", f"{new:.2f}", f"{again:.2f}", f"{worst:.0e}", f"{first:.1f} s")


def _theirs(name: str, make: Peer, m: Market) -> tuple[str, ...]:
    try:
        new, again = make(m)
        began = time.perf_counter()
        x, multiplier = new()
        if time.perf_counter() - began > SECONDS_EACH:
            return name, f"> {SECONDS_EACH:.0f} s", "", "", ""
        certificate = vv.certify(m.instance.problem, x, multiplier, m.b, tol=TARGET)
        worst = max(certificate.relative.values())
        q = m.qp()[1]
        shifted = q + 1e-3 * np.random.default_rng(1).normal(size=q.size) * (np.arange(q.size) < m.r.size)
        return name, f"{_median_ms(new):.2f}", f"{_median_ms(lambda: again(shifted)):.2f}", f"{worst:.0e}", ""
    except Exception as error:  # a failure is a row
        return name, "failed", "", f"{type(error).__name__}: {str(error)[:80]}", ""
