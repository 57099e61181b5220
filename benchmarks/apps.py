"""The applications at their stated sizes, each answer checked once by a solver or formula outside the package.

`python -m benchmarks apps` runs them all; `python -m benchmarks.apps NAME ...` some.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from time import perf_counter, process_time
from typing import Any, NamedTuple

import numpy as np

import viceversa as vv
from benchmarks import apps_traffic, machine


class Row(NamedTuple):
    """One check of one application: its size, what `solve` said, how long it took, and how far the outside answer is."""

    application: str
    size: str
    status: str
    seconds: float | str
    cpu: float | str
    again: float | str
    checked_by: str
    difference: float
    allowed: float


HEADER = ["application", "size", "status", "seconds", "CPU seconds", "CPU again", "checked by", "difference", "allowed"]  # fmt: skip
_NOTES = """\
`difference` is the largest difference between the package's x and the one found outside, relative to the largest entry, unless \
the check names another quantity; `allowed` is what it may be. `seconds` and `CPU seconds` are of the first solve, from the \
user's arrays to the answer, compilation included (the load of the machine is in the former only); `CPU again` is the second \
solve of the same problem. A second check of the same answer has no times. BLAS has one thread (OPENBLAS_NUM_THREADS=1). Traffic may take 30 s on 24 nodes and 600 s on 400."""


def run(output: Path, quick: bool = False, names: list[str] | None = None) -> None:
    """The table apps."""
    rows = []
    for name in names or list(APPLICATIONS):
        for row in APPLICATIONS[name](quick):
            print("  " + ", ".join(str(part) for part in row), flush=True)
            rows.append(row)
    title = "Applications at their stated sizes" if not quick else "Applications, shrunk"
    machine.write(output, "apps", title, HEADER, [list(row) for row in rows], _NOTES)
    unsolved = [row.application for row in rows if not row.status.startswith("solved")]
    wrong = [row.application for row in rows if not row.difference <= row.allowed]
    if unsolved or wrong:
        raise SystemExit(f"apps: not solved: {unsolved or 'none'}; further from the outside answer than allowed: {wrong or 'none'}.")  # fmt: skip


class Solved(NamedTuple):
    """An answer and what it took: seconds and processor seconds of the first solve, processor seconds of the second."""

    solution: Any
    seconds: float
    cpu: float
    again: float

    def row(self, name: str, size: str, checked_by: str, difference: float, allowed: float) -> Row:
        """A row with the times."""
        times = [round(t, 2) for t in (self.seconds, self.cpu, self.again)]
        return Row(name, size, self.status, *times, checked_by, _two_digits(difference), allowed)

    def more(self, name: str, size: str, checked_by: str, difference: float, allowed: float) -> Row:
        """A second check of the same answer."""
        return Row(name, size, self.status, "", "", "", checked_by, _two_digits(difference), allowed)

    @property
    def status(self) -> str:
        return str(self.solution.status)


def _timed(build: Callable[[], Any], solve: Callable[[Any], Any] = vv.solve) -> Solved:
    wall, cpu = perf_counter(), process_time()
    problem = build()
    solution = solve(problem)
    wall, cpu = perf_counter() - wall, process_time() - cpu
    began = process_time()
    solve(problem)
    return Solved(solution, wall, cpu, process_time() - began)


def _two_digits(value: float) -> float:
    return float(f"{value:.2g}")


def _far(x, answer) -> float:
    return float(np.abs(x - answer).max() / np.abs(answer).max())


def markowitz(quick: bool) -> list[Row]:
    """500 assets × 2500 days: risk limit, ten sector caps and a turnover limit, against Clarabel."""
    n, days = (40, 200) if quick else (500, 2500)
    returns = generated_returns(n, days)
    held, sectors = np.full(n, 1.0 / n), {f"sector {k}": (range(k, n, 10), 0.15) for k in range(10)}
    options = {"risk_limit": 0.0075, "groups": sectors, "turnover": 0.8, "current": held}
    solved = _timed(lambda: vv.markowitz(returns, **options))
    x = markowitz_by_clarabel(returns, options["risk_limit"], sectors, options["turnover"], held)
    size = f"{n} assets, {days} days, θ of {n + n * n} numbers"
    theta = solved.solution.theta
    apart = max(_far(theta["mean"], returns.mean(axis=0)), _far(theta["covariance"], np.cov(returns.T)))
    return [
        solved.row("Markowitz", size, "Clarabel", _far(solved.solution.x, x), 1e-6),
        solved.more("Markowitz", size, "NumPy's mean and covariance (θ)", apart, 1e-9),
    ]


def generated_returns(n: int, days: int, seed: int = 0) -> np.ndarray:
    """Daily returns with five common factors."""
    rng = np.random.default_rng(seed)
    loadings = 0.004 * rng.standard_normal((5, n)) + 0.006 * (np.arange(5) == 0)[:, None]
    noise = rng.uniform(0.008, 0.02, n) * rng.standard_normal((days, n))
    return rng.normal(5e-4, 3e-4, n) + rng.standard_normal((days, 5)) @ loadings + noise


def markowitz_by_clarabel(returns, risk_limit, groups, turnover, held) -> np.ndarray:
    """max m̂ᵀx over the same limits as one second-order cone program in (x, purchases, sales)."""
    import clarabel
    from scipy import sparse

    n = returns.shape[1]
    mean, factor = returns.mean(axis=0), np.linalg.cholesky(np.cov(returns.T))
    eye, ones = sparse.identity(n), sparse.csr_matrix(np.ones((1, n)))
    members = np.array([[i in assets for i in range(n)] for assets, _ in groups.values()], dtype=float)
    members = sparse.csr_matrix(members)
    blocks = [
        (sparse.hstack([ones, 0 * ones, 0 * ones]), [1.0], clarabel.ZeroConeT(1)),
        (sparse.hstack([eye, -eye, eye]), held, clarabel.ZeroConeT(n)),
        (-sparse.identity(3 * n), np.zeros(3 * n), clarabel.NonnegativeConeT(3 * n)),
        (sparse.hstack([0 * ones, ones, ones]), [turnover], clarabel.NonnegativeConeT(1)),
        (sparse.hstack([members, 0 * members, 0 * members]), [cap for _, cap in groups.values()], clarabel.NonnegativeConeT(len(groups))),
        (
            sparse.hstack([sparse.vstack([sparse.csr_matrix((1, n)), -sparse.csr_matrix(factor.T) / risk_limit]), sparse.csr_matrix((n + 1, 2 * n))]),
            np.append(1.0, np.zeros(n)),
            clarabel.SecondOrderConeT(n + 1),
        ),
    ]  # fmt: skip
    A = sparse.csc_matrix(sparse.vstack([block for block, _, _ in blocks]))
    b = np.concatenate([np.asarray(side, dtype=float) for _, side, _ in blocks])
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = 1e-11
    cost = np.concatenate([-mean / np.abs(mean).max(), np.zeros(2 * n)])
    answer = clarabel.DefaultSolver(
        sparse.csc_matrix((3 * n, 3 * n)), cost, A, b, [cone for _, _, cone in blocks], settings
    ).solve()
    return np.asarray(answer.x)[:n]


def fair_classifier(quick: bool) -> list[Row]:
    """10⁵ rows × 50 features, three groups, against SciPy's SLSQP on the epigraph form."""
    n_rows, d = (2000, 8) if quick else (100_000, 50)
    features, labels, groups = generated_people(n_rows, d)
    solved = _timed(lambda: vv.fair_classifier(features, labels, groups, parity=0.1, ridge=0.01, radius=10.0))
    outside = classifier_by_scipy(features, labels, groups, 0.1, 0.01, 10.0)
    size = f"{n_rows} rows, {d} features, 3 groups"
    return [solved.row("fair classifier", size, "SciPy SLSQP", _far(solved.solution.x[:d], outside), 1e-5)]


def generated_people(n_rows: int, d: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Features whose means and whose link to the label differ between three groups."""
    rng = np.random.default_rng(seed)
    groups = rng.choice(3, n_rows, p=[0.6, 0.3, 0.1])
    features = rng.standard_normal((n_rows, d)) + 0.3 * rng.standard_normal((3, d))[groups]
    features[:, 0] = 1.0
    weights = rng.standard_normal(d) / np.sqrt(d) + 0.5 * rng.standard_normal((3, d))[groups] / np.sqrt(d)
    labels = rng.uniform(size=n_rows) < 1.0 / (1.0 + np.exp(-(features * weights).sum(axis=1)))
    return features, labels, groups


def classifier_by_scipy(features, labels, groups, parity, ridge, radius) -> np.ndarray:
    """min t subject to L_g(w) + ½ ridge‖w‖² ≤ t, parity and ‖w‖ ≤ radius, with losses in plain NumPy."""
    from scipy.optimize import minimize

    signed, parts = np.where(labels, 1.0, -1.0)[:, None] * features, [groups == g for g in np.unique(groups)]
    means = np.array([features[part].mean(axis=0) for part in parts])
    pairs = [(g, h) for g in range(len(parts)) for h in range(len(parts)) if g != h]
    gaps = np.array([means[h] - means[g] for g, h in pairs])

    def losses(z):
        margin = signed @ z[:-1]
        value, share = np.logaddexp(0.0, -margin), 1.0 / (1.0 + np.exp(margin))
        ends = [value[part].mean() + 0.5 * ridge * z[:-1] @ z[:-1] for part in parts]
        slopes = [-(share[part] @ signed[part]) / part.sum() + ridge * z[:-1] for part in parts]
        return np.array(ends), np.array(slopes)

    def rows(jacobian):
        return np.column_stack([jacobian, np.zeros(len(jacobian))])

    rules = [
        {"type": "ineq", "fun": lambda z: z[-1] - losses(z)[0], "jac": lambda z: np.column_stack([-losses(z)[1], np.ones(len(parts))])},
        {"type": "ineq", "fun": lambda z: parity + gaps @ z[:-1], "jac": lambda z: rows(gaps)},
        {"type": "ineq", "fun": lambda z: [radius**2 - z[:-1] @ z[:-1]], "jac": lambda z: np.append(-2 * z[:-1], 0.0)[None]},
    ]  # fmt: skip
    last = np.append(np.zeros(features.shape[1]), 1.0)
    start = np.append(np.zeros(features.shape[1]), np.log(2.0))
    return minimize(lambda z: z[-1], start, jac=lambda z: last, constraints=rules, method="SLSQP", options={"ftol": 1e-14, "maxiter": 500}).x[:-1]  # fmt: skip


def imputed_network(quick: bool) -> list[Row]:
    """Slopes of 21 and of 400 links from observed flows, then a closure and a cap, against Wardrop's closed form."""
    rows = []
    for n_sections, n_links in [(3, 7)] if quick else [(3, 7), (20, 20)]:
        instance = vv.gallery.imputed_network(n_sections, n_links, n_observed=8)
        solved = _timed(lambda i=instance: i.problem, lambda p, i=instance: vv.solve(p, theta0=i.theta0))
        x, theta = solved.solution.x, solved.solution.theta
        size = f"{n_sections * n_links} parameters"
        rows.append(solved.row("imputed network", size, "closed form", _far(x, instance.x_true), 1e-7))
        rows.append(solved.more("imputed network", size, "true θ", _far(theta, instance.theta_true), 1e-7))
    return rows


def oligopoly(quick: bool) -> list[Row]:
    """Five firms, nonlinear demand and cap, demand learned by regression, against SciPy's root of the KKT system."""
    from scipy.optimize import root

    price = np.linspace(12.0, 25.0, 20)
    c, beta = np.array([10.0, 8.0, 6.0, 4.0, 2.0]), np.array([1.2, 1.1, 1.0, 0.9, 0.8])
    power = 1.0 + 1.0 / beta
    solved = _timed(
        lambda: vv.isoelastic_cournot(
            lambda q: c * q + 5.0 / power * (q / 5.0) ** power,
            (np.ones(5), np.full(5, 150.0)),
            {"price": price, "quantity": 5000.0 * price**-1.1},
            price_cap=16.0,
        )
    )

    def kkt(z):
        q, lam, Q = z[:5], z[5], z[:5].sum()
        p = (5000.0 / Q) ** (1 / 1.1)
        slope = -p / (1.1 * Q)
        return np.append(c + (q / 5.0) ** (1.0 / beta) - p - q * slope + lam * slope, p - 16.0)

    outside = root(kkt, np.append(np.full(5, 47.0), 50.0), tol=1e-13).x
    found = np.append(solved.solution.x, solved.solution.multiplier)
    printed = np.array([46.034520, 50.022582, 50.443833, 47.700586, 42.629192, 51.889142])
    size = "5 firms, 2 parameters"
    return [
        solved.row("nonlinear oligopoly", size, "SciPy root (x, λ)", _far(found, outside), 1e-8),
        solved.more("nonlinear oligopoly", size, "known digits (x, λ)", _far(found, printed), 1e-7),
    ]


def games(quick: bool) -> list[Row]:
    """Every published game from its players' costs: the answer, and each player's own best reply by SciPy."""
    rows = []
    for name in ["harker", "river_basin"] if quick else vv.gallery.game_names():
        game, instance = vv.gallery.game(name, misspecified=True)
        solved = _timed(lambda g=game: g, lambda g, i=instance: g.solve(theta0=i.theta0))
        size, title = f"{game.n_players} players", f"game {name}"
        gain = float(game.check(solved.solution).relative.max())
        rows.append(solved.row(title, size, "SciPy best replies (gain)", gain, 1e-6))
        if instance.x_unique:
            far = _far(solved.solution.x, instance.x_true)
            rows.append(solved.more(title, size, "known answer", far, 1e-6))
    return rows


def traffic(quick: bool) -> list[Row]:
    """User equilibria of a 24-node and a 400-node network, against Bellman-Ford distances and the true coefficients."""
    rows = []
    for case in apps_traffic.cases(quick):
        network, demand = case.answer.network, case.answer.demand
        size = f"{network.n_nodes} nodes, {demand.n_pairs} pairs, {case.answer.path_flow.size} paths"
        name = "traffic" + (f", {case.name}" if case.name else "")
        times = (round(case.seconds, 2), round(case.cpu, 2), "")
        judged = _two_digits(apps_traffic.judged_gap(case.answer))
        rows.append(Row(name, size, "solved" if case.answer.success else "not solved", *times, "Bellman–Ford (relative gap)", judged, apps_traffic.JUDGED_GAP))  # fmt: skip
        if case.answer.theta is not None:
            far = _two_digits(_far(case.answer.theta, np.array(apps_traffic.B_TRUE)))
            rows.append(Row(name, size, "solved", "", "", "", "true θ", far, 1e-6))
    return rows


APPLICATIONS: dict[str, Callable[[bool], list[Row]]] = {
    "oligopoly": oligopoly,
    "games": games,
    "markowitz": markowitz,
    "fair_classifier": fair_classifier,
    "imputed_network": imputed_network,
    "traffic": traffic,
}


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.apps", description=__doc__)
    parser.add_argument("names", nargs="*", choices=[[], *APPLICATIONS], metavar="NAME", help=f"of {', '.join(APPLICATIONS)}; all by default")  # fmt: skip
    parser.add_argument("--quick", action="store_true", help="small sizes: only to see that it runs")
    parser.add_argument(
        "--output", type=Path, default=Path(__file__).parent / "results", help="where the table goes"
    )
    given = parser.parse_args(arguments)
    run(given.output, given.quick, given.names or None)


if __name__ == "__main__":
    main()
