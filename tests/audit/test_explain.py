"""`explain`: the gap line holds at θ*, learning error included, and every line names its assumptions."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

import viceversa as vv


@pytest.fixture(scope="module")
def problem():
    M = np.array([[2.0, 1.0], [-1.0, 2.0]])
    return vv.MisspecifiedVI(
        lambda x, t: M @ x - 3.0 * t[0],
        set=vv.Box([0.0, 0.0], [4.0, 4.0]),
        constraints=lambda x, t: jnp.sum(x) - t[0],
        learning=vv.SecondaryVI(lambda t: 2.0 * (t - 2.0), set=vv.Box([1.0], [3.0])),
    )


def test_the_gap_line_bounds_the_gap_at_the_truth(problem):
    """At θ = 2.05 instead of 2 the line still bounds a naive maximum over a grid of X_ε(θ*)."""
    x = np.array([1.2, 0.7])
    found = vv.explain(problem, x, [1.0], [2.05], gap=True)
    line = found["relaxed gap"]
    grid = np.stack(np.meshgrid(*[np.linspace(0, 4, 161)] * 2), -1).reshape(-1, 2)
    epsilon = found.certificate.infeasibility
    inside = grid[np.maximum(grid.sum(1) - 2.0, 0.0) <= epsilon]
    M = np.array([[2.0, 1.0], [-1.0, 2.0]])
    naive = np.max(np.sum((inside @ M.T - 6.0) * (x - inside), axis=1))
    assert line.value >= naive
    assert (
        line.value <= naive + 12.0
    )  # L_{F,θ} D â = 4.24·5.66·0.05 and the enlargement, not an arbitrary number
    assert "monotone" in " ".join(line.assumptions)


def test_a_solution_is_explained_as_a_whole(problem):
    solution = vv.solve(problem)
    text = str(vv.explain(problem, solution))
    for words in ("KKT residual", "‖θ − θ*‖ ≤", "‖x − x*‖ ≤", "Slater's condition: proved", "assuming"):
        assert words in text
    with pytest.raises(KeyError, match="‖x − x"):
        vv.explain(problem, solution)["no such line"]
