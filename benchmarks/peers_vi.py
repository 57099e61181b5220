"""Peers on problems without a potential: affine monotone VIs with quadratic constraints, and the gallery's affine games.

A problem here is M x + q on a box with f_k = ½‖B_k x‖² + c_kᵀx − d_k ≤ 0, θ* put in. QP solvers do not apply; what is left
are complementarity, root-finding and game packages. Each gets a start of 0 (or the middle of a finite box), exact
derivatives where it takes them, and its answer is judged by `vv.certify`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import viceversa as vv
from benchmarks import corpus
from benchmarks.peers import NotRun

GAMES = ("harker", "shared_budget", "cournot_duopoly", "river_basin", "rosen", "electricity")
SIZES = ((20, 5), (50, 5), (200, 20))  # n, J

Answer = tuple[np.ndarray, np.ndarray]


@dataclass(frozen=True)
class AffineVI:
    """The data of one problem at θ*, the misspecified problem it comes from, and where that one starts."""

    name: str
    problem: Any
    theta: Any
    theta0: Any
    M: np.ndarray
    q: np.ndarray
    B: np.ndarray
    c: np.ndarray
    d: np.ndarray
    low: np.ndarray
    high: np.ndarray

    @property
    def start(self) -> np.ndarray:
        middle = 0.5 * (self.low + self.high)
        return np.where(np.isfinite(middle), middle, np.maximum(self.low, 0.0))

    def answer(self, x: np.ndarray, multiplier: np.ndarray) -> Answer:
        """The point in the problem's own shape, within its bounds."""
        shape = self.problem.shape
        return np.clip(x, self.low, self.high).reshape(shape), np.maximum(multiplier, 0.0)


def random_vi(n: int, n_constraints: int, seed: int = 0) -> AffineVI:
    """A merely monotone, non-symmetric affine VI with quadratic constraints."""
    family = corpus.Family(f"peers-{n}", n=n, n_constraints=n_constraints, rank=n // 2, mu=0.0)
    planted = corpus.plant(family, seed)
    op, f, theta = planted.problem.operator.function, planted.problem.constraints.function, planted.theta_true
    M = np.asarray(op.M) + np.einsum("i,ijk->jk", theta[: op.K.shape[0]], op.K)
    return AffineVI(
        f"VI n={n}, J={n_constraints}", planted.problem, theta, planted.theta0, M,
        np.asarray(op.q1 @ theta + op.q0), np.asarray(f.B), np.asarray(f.c + f.C @ theta), np.asarray(f.d),
        np.asarray(planted.problem.set.lower), np.asarray(planted.problem.set.upper),
    )  # fmt: skip


def affine_game(name: str) -> AffineVI:
    """A gallery game whose operator and constraints are affine; θ is learned by viceversa and given to the others."""
    instance = getattr(vv.gallery, name)(misspecified=True)
    problem, theta = instance.problem, instance.theta_true
    shape, n = problem.shape, int(np.prod(problem.shape))
    at_zero = np.zeros(n)

    def F(v):
        return jnp.ravel(problem.operator(v.reshape(shape), theta))

    def f(v):
        return (
            jnp.zeros(0)
            if problem.constraints is None
            else jnp.ravel(problem.constraints(v.reshape(shape), theta))
        )

    with jax.enable_x64(True):
        M, q = np.asarray(jax.jacfwd(F)(at_zero)), np.asarray(F(at_zero))
        c, d = np.asarray(jax.jacfwd(f)(at_zero)).reshape(-1, n), -np.asarray(f(at_zero))
    X = problem.set
    low, high = (X.lower, X.upper) if isinstance(X, vv.Box) else (np.zeros(n), np.full(n, np.inf))
    return AffineVI(
        f"game {name}", problem, theta, instance.theta0, M, q, np.zeros((d.size, 0, n)), c, d,
        np.broadcast_to(low, shape).ravel(), np.broadcast_to(high, shape).ravel(),
    )  # fmt: skip


# -- peers: each gives (solve on new data, solve again with another q) -----------------------------
def _scipy_root(vi: AffineVI) -> tuple[Callable, Callable]:
    """Powell's hybrid method on the Fischer–Burmeister equations, exact Jacobian by JAX."""
    from scipy.optimize import root

    n = vi.q.size

    def fischer(u, v):
        return u + v - jnp.sqrt(u * u + v * v + 1e-30)

    def residual(z, q):
        x, lam = z[:n], z[n:]
        rows = vi.B @ x
        f = 0.5 * jnp.sum(rows * rows, axis=1) + vi.c @ x - vi.d
        G = vi.M @ x + q + jnp.einsum("k,kr,kri->i", lam, rows, vi.B) + lam @ vi.c
        below = jnp.where(np.isfinite(vi.low), x - np.where(np.isfinite(vi.low), vi.low, 0.0), 1e10)
        above = jnp.where(np.isfinite(vi.high), np.where(np.isfinite(vi.high), vi.high, 0.0) - x, 1e10)
        return jnp.concatenate([fischer(below, -fischer(above, -G)), fischer(lam, -f)])

    value, jacobian = jax.jit(residual), jax.jit(jax.jacfwd(residual))

    kept: dict[str, np.ndarray] = {}

    def solve(q: np.ndarray, start: np.ndarray) -> Answer:
        with jax.enable_x64(True):
            found = root(
                lambda z: np.asarray(value(z, q)), start, jac=lambda z: np.asarray(jacobian(z, q)), tol=1e-12
            )
        kept["z"] = found.x
        return vi.answer(found.x[:n], found.x[n:])

    cold = np.concatenate([vi.start, np.ones(vi.d.size)])
    return lambda: solve(vi.q, cold), lambda q: solve(q, kept["z"])


def _ipopt(vi: AffineVI) -> tuple[Callable, Callable]:
    """The KKT conditions as a program: products of complementary pairs minimised, everything else a constraint."""
    import casadi as ca

    n, J = vi.q.size, vi.d.size
    x, lam, below, above = ca.MX.sym("x", n), ca.MX.sym("l", J), ca.MX.sym("b", n), ca.MX.sym("a", n)
    q = ca.MX.sym("q", n)
    f, pulled = [], ca.MX.zeros(n)
    for k in range(J):
        rows = ca.DM(vi.B[k]) @ x if vi.B.shape[1] else ca.MX.zeros(0)
        f.append(0.5 * ca.dot(rows, rows) + ca.dot(ca.DM(vi.c[k]), x) - vi.d[k])
        gradient = ca.DM(vi.c[k]) + (ca.DM(vi.B[k].T) @ rows if vi.B.shape[1] else 0)
        pulled = pulled + lam[k] * gradient
    f = ca.vertcat(*f)
    has_low, has_high = np.isfinite(vi.low), np.isfinite(vi.high)
    low, high = np.where(has_low, vi.low, 0.0), np.where(has_high, vi.high, 0.0)
    products = ca.dot(below, x - low) + ca.dot(above, high - x) - (ca.dot(lam, f) if J else 0)
    program = {
        "x": ca.vertcat(x, lam, below, above),
        "p": q,
        "f": products,
        "g": ca.vertcat(ca.DM(vi.M) @ x + q + pulled - below + above, f),
    }
    options = {"ipopt.print_level": 0, "print_time": False, "ipopt.tol": 1e-10, "ipopt.sb": "yes"}
    kept: dict[str, Any] = {}
    inf = np.inf
    lower = np.concatenate([vi.low, np.zeros(J + 2 * n)])
    upper = np.concatenate(
        [vi.high, np.full(J, inf), np.where(has_low, inf, 0.0), np.where(has_high, inf, 0.0)]
    )

    def call(q_now: np.ndarray) -> Answer:
        start = np.concatenate([vi.start, np.ones(J + 2 * n)])
        found = kept["solver"](
            x0=start, p=q_now, lbx=lower, ubx=upper,
            lbg=np.concatenate([np.zeros(n), np.full(J, -inf)]), ubg=np.zeros(n + J),
        )  # fmt: skip
        z = np.asarray(found["x"]).ravel()
        return vi.answer(z[:n], z[n : n + J])

    def new() -> Answer:
        kept["solver"] = ca.nlpsol("solver", "ipopt", program, options)
        return call(vi.q)

    return new, call


def _nashopt(vi: AffineVI) -> tuple[Callable, Callable]:
    """One player for each coordinate, a variational equilibrium of their shared constraints."""
    from nashopt import GNEP

    n, J = vi.q.size, vi.d.size
    if n > 20:
        raise NotRun("a compiled cost for every player: left out above 20")

    def cost(i: int, q: np.ndarray) -> Callable:
        row = vi.M[i].copy()
        row[i] *= 0.5
        return lambda x: x[i] * (row @ x + q[i])

    def g(x):
        rows = vi.B @ x
        return 0.5 * jnp.sum(rows * rows, axis=1) + vi.c @ x - vi.d

    def solve(q: np.ndarray) -> Answer:
        with jax.enable_x64(True):
            game = GNEP(
                [1] * n, [cost(i, q) for i in range(n)], g if J else None, J or None,
                lb=vi.low, ub=vi.high, variational=True,
            )  # fmt: skip
            found = game.solve(vi.start, tol=1e-10, verbose=0)
        multiplier = np.asarray(found.lam[0])[:J] if J else np.zeros(0)
        return vi.answer(np.asarray(found.x), multiplier)

    return lambda: solve(vi.q), solve


def _path(vi: AffineVI) -> tuple[Callable, Callable]:
    """PATH through GAMSPy, the model in its algebra."""
    import gamspy as gp

    n, J, R = vi.q.size, vi.d.size, vi.B.shape[1]
    kept: dict[str, Any] = {}

    def new() -> Answer:
        m = gp.Container()
        i = gp.Set(m, "i", records=[f"i{k}" for k in range(n)])
        j = gp.Alias(m, "j", i)
        M = gp.Parameter(m, "M", domain=[i, j], records=vi.M)
        q = kept["q"] = gp.Parameter(m, "q", domain=i, records=vi.q)
        x = kept["x"] = gp.Variable(m, "x", domain=i)
        x.lo[i] = gp.Parameter(m, "low", domain=i, records=np.maximum(vi.low, -1e20))[i]
        x.up[i] = gp.Parameter(m, "high", domain=i, records=np.minimum(vi.high, 1e20))[i]
        F = gp.Equation(m, "F", domain=i, type="nonbinding")
        force = gp.Sum(j, M[i, j] * x[j]) + q[i]
        matches = {F: x}
        if J:
            k = gp.Set(m, "k", records=[f"k{a}" for a in range(J)])
            c = gp.Parameter(m, "c", domain=[k, i], records=vi.c)
            d = gp.Parameter(m, "d", domain=k, records=vi.d)
            lam = kept["lam"] = gp.Variable(m, "lam", domain=k, type="positive")
            slack = gp.Equation(m, "slack", domain=k)
            value, gradient = gp.Sum(j, c[k, j] * x[j]) - d[k], c[k, i]
            if R:
                r = gp.Set(m, "r", records=[f"r{a}" for a in range(R)])
                B = gp.Parameter(m, "B", domain=[k, r, i], records=vi.B)
                row = gp.Sum(j, B[k, r, j] * x[j])
                value = value + 0.5 * gp.Sum(r, gp.math.sqr(row))
                gradient = gradient + gp.Sum(r, B[k, r, i] * row)
            slack[k] = gp.Number(0) >= value
            force = force + gp.Sum(k, lam[k] * gradient)
            matches[slack] = lam
        F[i] = force >= gp.Number(0)
        kept["model"] = gp.Model(m, "kkt", problem="MCP", matches=matches)
        return solve()

    def solve() -> Answer:
        kept["model"].solve(solver="path")
        multiplier = np.asarray(kept["lam"].toDense()) if J else np.zeros(0)
        return vi.answer(np.asarray(kept["x"].toDense()), np.abs(multiplier))

    def again(q: np.ndarray) -> Answer:
        kept["q"].setRecords(q)
        return solve()

    return new, again


PEERS: dict[str, Callable[[AffineVI], tuple[Callable, Callable]]] = {
    "PATH (GAMSPy)": _path,
    "SciPy root (Fischer–Burmeister)": _scipy_root,
    "CasADi + IPOPT (complementarity)": _ipopt,
    "nashopt": _nashopt,
}
