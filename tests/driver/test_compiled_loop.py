"""Steps taken in pairs are the steps of `iterate`; results come back from the compiled program as they were made."""

import itertools
from dataclasses import replace

import jax.numpy as jnp
import numpy as np

import viceversa as vv
from viceversa import precision
from viceversa.driver import loop
from viceversa.driver.compiled import Compiled
from viceversa.driver.packing import Later, Packed
from viceversa.schemes.base import as_scheme


def test_every_recorded_iterate_is_that_of_iterate_for_odd_and_even_segments():
    def operator(x, theta):
        return np.array([[2.0, 1.0], [-1.0, 1.0]]) @ x - theta

    learning = vv.LeastSquares([1.0, 2.0], [1.0, 2.5], set=vv.Box(0.0, 3.0, shape=()))
    problem = vv.MisspecifiedVI(
        operator, vv.Box([0.0, 0.0], [1.0, 1.0]), lambda x, theta: x[0] - 0.3, learning
    )
    method = vv.AugmentedLagrangian(step_size=0.1, penalty=0.5, learning_rate=0.05)
    at = [1, 2, 3, 6, 7, 11]
    record = vv.Record(at=at, points=True)
    solution = vv.solve(problem, method, x0=[0.9, 0.1], theta0=2.5, tol=0.0, max_iter=11, record=record)
    points = list(itertools.islice(vv.iterate(problem, method, x0=[0.9, 0.1], theta0=2.5), 12))
    assert solution.trace.k.tolist() == [0, *at]
    for row, k in enumerate([0, *at]):
        for name in ("x", "lam", "theta", "x_average"):
            recorded = getattr(solution.trace.points, name)[row]
            np.testing.assert_allclose(
                recorded, getattr(points[k], name), rtol=0.0, atol=1e-13, err_msg=f"{name} {k}"
            )
    mean = np.mean([point.x for point in points[1:]], axis=0)
    np.testing.assert_allclose(solution.x_average, mean, rtol=0.0, atol=1e-13)


def test_an_array_that_appears_twice_is_written_once():
    def twice(x, y):
        x, y = x.whole(), y.whole()
        z = x + y
        return Packed.of({"first": z, "second": (z, x * y), "given": x})

    with precision.double():
        given = np.arange(5000.0)
        out = Compiled(twice)(given, np.ones(5000))
    assert out["first"] is out["second"][0]
    np.testing.assert_array_equal(out["first"], given + 1.0)
    np.testing.assert_array_equal(out["second"][1], given)
    np.testing.assert_array_equal(out["given"], given)


def test_small_results_come_back_as_they_were():
    def many(x, y):
        x, y = x.whole(), y.whole()
        kept = {
            "flags": x > 1.0,
            "numbers": x + y,
            "counts": jnp.arange(4),
            "single": (2.0 * x).astype("float32"),
        }
        later = Later({"matrix": jnp.outer(x, y), "largest": jnp.asarray(np.iinfo(np.int64).max)})
        return Packed.of((kept, later))

    x, y = np.arange(3.0), np.array([1.0, 1e300, -0.5])
    with precision.double():
        kept, later = Compiled(many)(x, y)
    np.testing.assert_array_equal(kept["flags"], [False, False, True], strict=True)
    np.testing.assert_array_equal(kept["numbers"], x + y, strict=True)
    np.testing.assert_array_equal(kept["counts"], np.arange(4), strict=True)
    np.testing.assert_array_equal(kept["single"], (2.0 * x).astype("float32"), strict=True)
    rest = later.whole()
    np.testing.assert_array_equal(rest["matrix"], np.outer(x, y), strict=True)
    assert rest["largest"] == np.iinfo(np.int64).max


def test_a_large_run_goes_on_from_where_it_stands():
    n = 2000
    problem = vv.MisspecifiedVI(
        lambda x, theta: x - theta, vv.Box(np.zeros(n), np.ones(n)), learning=vv.Known(0.5)
    )
    scheme = as_scheme(vv.AugmentedLagrangian(step_size=0.1, penalty=1.0))
    with precision.double():
        starts = loop.Starts(np.zeros(n), np.asarray(0.5), np.zeros(0))
        settings = loop.Settings(np.array([0, 5]), np.float64(0.0), None, False, np.int64(0))
        outcome = loop.begin_compiled(problem, scheme, settings, starts)
        further = replace(settings, grid=np.array([0, 9]))
        later = loop.go_on_compiled(problem, scheme, further, outcome.standing.whole())
    whole = vv.solve(problem, scheme, tol=0.0, max_iter=9)
    np.testing.assert_allclose(later.point.x, whole.x, rtol=0, atol=1e-15)
