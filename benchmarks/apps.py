"""The applications at their stated sizes, each answer checked once by a solver or formula outside the package.

`python -m benchmarks.apps` runs them all; names choose some. Seconds are of the processor, compilation included.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
from collections.abc import Callable
from pathlib import Path
from time import process_time
from typing import NamedTuple

import numpy as np

import viceversa as vv
from benchmarks import machine


class Row(NamedTuple):
    """One application: its size, what `solve` said, how long it took, and how far the outside answer is."""

    application: str
    size: str
    status: str
    seconds: float
    outside: str
    difference: float
    allowed: float


def run(output: Path, quick: bool = False, names: list[str] | None = None) -> None:
    """The table apps."""
    rows = []
    for name in names or list(APPLICATIONS):
        for row in APPLICATIONS[name](quick):
            print("  " + ", ".join(str(part) for part in row), flush=True)
            rows.append(row)
    machine.write(
        output,
        "apps",
        "Applications at their stated sizes",
        list(Row._fields),
        [list(row) for row in rows],
        _NOTES,
    )
    wrong = [row.application for row in rows if not row.difference <= row.allowed]
    if wrong:
        raise SystemExit(f"apps: {', '.join(wrong)} differ from the outside answer by more than allowed.")


_NOTES = (
    "`difference` is the largest difference in x to the answer found outside (relative to the largest entry), except where the "
    "row names another quantity; `allowed` is what it may be."
)


def markowitz(quick: bool) -> list[Row]:
    """500 assets × 2500 days: risk limit, ten sector caps and a turnover limit, against Clarabel."""
    n, days = (40, 200) if quick else (500, 2500)
    returns = generated_returns(n, days)
    held, sectors = np.full(n, 1.0 / n), {f"sector {k}": (range(k, n, 10), 0.15) for k in range(10)}
    options = {"risk_limit": 0.0075, "groups": sectors, "turnover": 0.8, "current": held}
    began = process_time()
    solution = vv.solve(vv.markowitz(returns, **options))
    seconds = process_time() - began
    x = markowitz_by_clarabel(returns, options["risk_limit"], sectors, options["turnover"], held)
    return [
        _row(
            "markowitz", f"{n} assets, {days} days", solution, seconds, "Clarabel", _far(solution.x, x), 1e-6
        )
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
    began = process_time()
    problem = vv.fair_classifier(features, labels, groups, parity=0.1, ridge=0.01, radius=10.0)
    solution = vv.solve(problem)
    seconds = process_time() - began
    w, _ = problem.operator.split(solution.x)
    outside = classifier_by_scipy(features, labels, groups, 0.1, 0.01, 10.0)
    return [
        _row(
            "fair_classifier",
            f"{n_rows} rows, {d} features",
            solution,
            seconds,
            "SciPy SLSQP",
            _far(w, outside),
            1e-5,
        )
    ]


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
        began = process_time()
        solution = vv.solve(instance.problem, theta0=instance.theta0)
        seconds = process_time() - began
        size = f"{n_sections * n_links} parameters"
        rows.append(
            _row(
                "imputed_network",
                size,
                solution,
                seconds,
                "closed form",
                _far(solution.x, instance.x_true),
                1e-7,
            )
        )
        rows.append(
            _row(
                "imputed_network",
                size,
                solution,
                0.0,
                "true θ",
                _far(solution.theta, instance.theta_true),
                1e-7,
            )
        )
    return rows


def oligopoly(quick: bool) -> list[Row]:
    """Five firms, nonlinear demand and cap, demand learned by regression, against SciPy's root of the KKT system."""
    from scipy.optimize import root

    price = np.linspace(12.0, 25.0, 20)
    c, beta = np.array([10.0, 8.0, 6.0, 4.0, 2.0]), np.array([1.2, 1.1, 1.0, 0.9, 0.8])
    power = 1.0 + 1.0 / beta
    began = process_time()
    problem = vv.isoelastic_cournot(
        lambda q: c * q + 5.0 / power * (q / 5.0) ** power,
        (np.ones(5), np.full(5, 150.0)),
        {"price": price, "quantity": 5000.0 * price**-1.1},
        price_cap=16.0,
    )
    solution = vv.solve(problem)
    seconds = process_time() - began

    def kkt(z):
        q, lam, Q = z[:5], z[5], z[:5].sum()
        p = (5000.0 / Q) ** (1 / 1.1)
        slope = -p / (1.1 * Q)
        return np.append(c + (q / 5.0) ** (1.0 / beta) - p - q * slope + lam * slope, p - 16.0)

    outside = root(kkt, np.append(np.full(5, 47.0), 50.0), tol=1e-13).x
    return [
        _row(
            "isoelastic_cournot",
            "5 firms, m=2",
            solution,
            seconds,
            "SciPy root",
            _far(np.append(solution.x, solution.multiplier), outside),
            1e-8,
        )
    ]


def games(quick: bool) -> list[Row]:
    """Every published game from its players' costs: the answer, and each player's own best reply by SciPy."""
    rows = []
    for name in ["harker", "river_basin"] if quick else vv.gallery.game_names():
        game, instance = vv.gallery.game(name, misspecified=True)
        began = process_time()
        solution = game.solve(theta0=instance.theta0)
        seconds = process_time() - began
        check = game.check(solution)
        rows.append(
            _row(
                f"game {name}",
                f"{game.n_players} players",
                solution,
                seconds,
                "best replies (gain)",
                float(check.relative.max()),
                1e-6,
            )
        )
        if instance.x_unique:
            rows.append(
                _row(
                    f"game {name}",
                    f"{game.n_players} players",
                    solution,
                    0.0,
                    "published answer",
                    _far(solution.x, instance.x_true),
                    1e-6,
                )
            )
    return rows


def _far(x, answer) -> float:
    return float(np.abs(x - answer).max() / np.abs(answer).max())


def _row(
    name: str, size: str, solution, seconds: float, outside: str, difference: float, allowed: float
) -> Row:
    return Row(
        name, size, str(solution.status), round(seconds, 2), outside, float(f"{difference:.2g}"), allowed
    )


APPLICATIONS: dict[str, Callable[[bool], list[Row]]] = {
    "oligopoly": oligopoly,
    "games": games,
    "imputed_network": imputed_network,
    "fair_classifier": fair_classifier,
    "markowitz": markowitz,
}


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.apps", description=__doc__)
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"of {', '.join(APPLICATIONS)}; all by default"
    )
    parser.add_argument("--quick", action="store_true", help="small sizes: only to see that it runs")
    parser.add_argument(
        "--output", type=Path, default=Path(__file__).parent / "results", help="where the table goes"
    )
    given = parser.parse_args(arguments)
    unknown = [name for name in given.names if name not in APPLICATIONS]
    if unknown:
        parser.error(f"there is no application {unknown[0]!r}; there are {', '.join(APPLICATIONS)}")
    run(given.output, given.quick, given.names or None)
    if not given.names and importlib.util.find_spec("benchmarks.apps_traffic"):
        importlib.import_module("benchmarks.apps_traffic").run(given.output, quick=given.quick)


if __name__ == "__main__":
    main()
