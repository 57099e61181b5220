"""monviso beside us: its extragradient method on the Lagrangian's operator, with a projection written by hand.

monviso is published as a repository only (the package index has another project under its name), so it is measured where it has
been installed by hand. Of its methods extragradient takes the least time on these problems; its own projection, a cone program by
CVXPY at every step, takes minutes, so it is replaced by the clip that a user of a box would write. The Lipschitz constant, taken
at the solution, is given for free.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.peers import SECONDS_EACH, TARGET, Market, NotRun
from benchmarks.peers_vi import AffineVI, Answer

HOW_TO_GET_IT = "published as a repository only: .venv-peers/bin/python -m pip install git+https://github.com/nicomignoni/monviso cvxpy"
SHARE_OF_LIMIT = 0.9  # of 1/L, below which extragradient converges
STEPS_BETWEEN_LOOKS = 50
# Its own residual is absolute, the certificate relative: there it comes to between a tenth and a thousandth of this.
RESIDUAL = TARGET


def market(m: Market) -> tuple[Callable[[], Answer], Callable[[np.ndarray], Answer]]:
    """A market: totals instead of a matrix."""
    n, shape = m.r.size, m.shape

    def operator(costs: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
        g = costs[:n].reshape(shape)

        def of(z: np.ndarray) -> np.ndarray:
            x, lam = z[:n].reshape(shape), z[n:]
            totals = x.sum(axis=0)
            force = m.r * x + g + m.b * (totals - lam + x) - m.a
            return np.concatenate([force.ravel(), m.b * (totals - m.need)])

        return of

    def transposed(z: np.ndarray) -> np.ndarray:
        x, lam = z[:n].reshape(shape), z[n:]
        totals = x.sum(axis=0)
        return np.concatenate([((m.r + m.b) * x + m.b * (totals + lam)).ravel(), -m.b * totals])

    low = np.zeros(n + shape[1])
    high = np.concatenate([np.full(n, m.capacity), np.full(shape[1], np.inf)])
    return _peer(
        operator, m.g.ravel(), low, high, _norm(operator(m.g.ravel()), transposed, low.size), low,
        lambda z: m.answer(z[:n], m.b * z[n:]),
    )  # fmt: skip


def affine_vi(vi: AffineVI) -> tuple[Callable[[], Answer], Callable[[np.ndarray], Answer]]:
    """M x + q with quadratic constraints."""
    import viceversa as vv

    n, J = vi.q.size, vi.d.size

    def operator(q: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
        def of(z: np.ndarray) -> np.ndarray:
            x, lam = z[:n], z[n:]
            rows = vi.B @ x
            f = 0.5 * np.sum(rows * rows, axis=1) + vi.c @ x - vi.d
            pulled = np.einsum("k,kr,kri->i", lam, rows, vi.B) + lam @ vi.c
            return np.concatenate([vi.M @ x + q + pulled, -f])

        return of

    known = vv.solve(vi.problem.with_known(vi.theta))
    x = known.x.ravel()
    slopes = np.einsum("kr,kri->ki", vi.B @ x, vi.B) + vi.c
    curved = vi.M + np.einsum("k,kri,krj->ij", known.multiplier, vi.B, vi.B)
    L = np.linalg.norm(np.block([[curved, slopes.T], [-slopes, np.zeros((J, J))]]), 2)
    low, high = np.concatenate([vi.low, np.zeros(J)]), np.concatenate([vi.high, np.full(J, np.inf)])
    start = np.concatenate([vi.start, np.zeros(J)])
    return _peer(operator, vi.q, low, high, L, start, lambda z: vi.answer(z[:n], z[n:]))


def _peer(
    operator: Callable,
    q: np.ndarray,
    low: np.ndarray,
    high: np.ndarray,
    L: float,
    start: np.ndarray,
    answer: Callable[[np.ndarray], Answer],
) -> tuple[Callable[[], Answer], Callable[[np.ndarray], Answer]]:
    try:
        from monviso import VI
    except ImportError:
        raise NotRun(HOW_TO_GET_IT) from None
    kept: dict[str, Any] = {}

    def solve(q_now: np.ndarray, z: np.ndarray) -> Answer:
        F = operator(q_now)
        kept["vi"] = vi = kept.get("vi") or VI(start.size, F)
        vi.F = F
        vi.prox = lambda point: np.clip(point, low, high)
        began = time.perf_counter()
        for k, point in enumerate(vi.eg(z, SHARE_OF_LIMIT / L), start=1):
            if k % STEPS_BETWEEN_LOOKS == 0:
                z = point
                if np.abs(z - np.clip(z - F(z), low, high)).max() <= RESIDUAL:
                    break
                if not time.perf_counter() - began <= SECONDS_EACH:
                    raise TimeoutError(f"more than {SECONDS_EACH:.0f} s")
        kept["z"] = z
        return answer(z)

    def new() -> Answer:
        kept.clear()
        return solve(q, start)

    return new, lambda q_now: solve(q_now, kept["z"])


def _norm(F: Callable, transposed: Callable, size: int) -> float:
    """The operator norm of an affine F's linear part, by power iteration."""
    at_zero, z = F(np.zeros(size)), np.random.default_rng(0).normal(size=size)
    for _ in range(100):
        z /= np.linalg.norm(z)
        z = transposed(F(z) - at_zero)
    return float(np.sqrt(np.linalg.norm(z)))
