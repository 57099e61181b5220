"""Published equilibria: certified from the problem alone, equal to the printed digits, learnable when misspecified."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import jax
import numpy as np
import pytest

import viceversa as vv
from viceversa import gallery, precision

ENTRIES = {entry.name: entry for entry in gallery.instances()}
GROWING = (
    "cournot",
    "asymmetric_cournot",
    "planted",
    "markowitz",
    "fair_classifier",
    "imputed_network",
)  # families with tests of their own, no `misspecified` switch
PUBLISHED = [name for name in ENTRIES if name not in GROWING]
VARIANTS = [(ENTRIES[name].function, {}) for name in PUBLISHED] + [
    (gallery.harker, {"cap": 12}),
    (gallery.harker, {"cap": 13.7}),
    (gallery.harker, {"cap": 8.0}),
    (gallery.internet_switching, {"bounded_first_user": True}),
    (gallery.braess, {"bridge": False}),
]
# How many digits the source prints, where they are fewer than eight.
PRINTED = {
    "river_basin": 1e-6,
    "murphy": 3e-2,
    "murphy_price_cap": 1e-6,
    "electricity": 1e-5,
    "cournot_duopoly": 1e-5,
}


def identity(value):
    return value.__name__ if callable(value) else str(value)


@pytest.mark.parametrize(("function", "options"), VARIANTS, ids=identity)
def test_the_answer_is_certified_and_has_the_published_digits(function, options):
    instance = function(**options)
    certificate = instance.certify(tol=1e-10)
    assert certificate.holds, certificate
    assert certificate.kkt_residual <= 1e-11 * max(1.0, np.abs(instance.x_true).max())
    published, atol = instance.published, PRINTED.get(function.__name__, 1e-8)
    if "x" in published:
        np.testing.assert_allclose(instance.x_true, published["x"], atol=atol)
    if "multiplier" in published:
        np.testing.assert_allclose(instance.multiplier_true, published["multiplier"], atol=atol)
    if "x_recomputed" in published:
        np.testing.assert_allclose(instance.x_true, published["x_recomputed"], atol=1e-6)
    aggregates = instance.aggregates(instance.x_true) if instance.aggregates else {}
    for name, value in aggregates.items():
        np.testing.assert_allclose(value, published[name], atol=atol)


# Applications are learned from their own data and have no second, misspecified version.
WITH_VERSION = [
    name for name in PUBLISHED if "misspecified" in inspect.signature(ENTRIES[name].function).parameters
]


@pytest.mark.parametrize("name", WITH_VERSION)
def test_the_misspecified_version_has_the_same_answer_and_stays_monotone(name):
    instance = ENTRIES[name].function(misspecified=True)
    problem, learning = instance.problem, instance.problem.learning
    assert learning.provenance == "exact"
    assert learning.is_gradient
    A = learning.A
    np.testing.assert_allclose(
        [learning.mu, learning.lipschitz], np.linalg.eigvalsh(A.T @ A)[[0, -1]], rtol=1e-7
    )
    assert all(isinstance(leaf, np.ndarray) for leaf in jax.tree.leaves(instance.theta_true))
    assert jax.tree.structure(instance.theta_true) == jax.tree.structure(learning.set.zeros())
    start = np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(instance.theta0)])
    truth = np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(instance.theta_true)])
    assert (np.abs(start - truth) > 0.01 * np.abs(truth)).all()
    np.testing.assert_allclose(np.linalg.lstsq(A, learning.b, rcond=None)[0], truth, rtol=1e-9)
    curvatures = []
    rng, x_like = np.random.default_rng(0), problem.set.interior_point()
    width = np.where(np.isfinite(problem.set.width()), problem.set.width(), 1.0)
    with precision.double():
        jacobian = jax.jit(jax.jacfwd(problem.operator))
        for _ in range(30):
            x = x_like + rng.uniform(-0.5, 0.5, x_like.shape) * width
            theta = jax.tree.map(lambda t: t * rng.uniform(0.95, 1.05, t.shape), instance.theta_true)
            J = np.asarray(jacobian(x, theta)).reshape(x.size, x.size)
            curvatures.append(np.linalg.eigvalsh((J + J.T) / 2)[0] / np.abs(J).max(initial=1e-300))
    assert (min(curvatures) >= -1e-12) == instance.monotone


def test_kojima_shindo_has_its_other_solution_and_is_not_monotone():
    instance = gallery.kojima_shindo()
    assert not instance.monotone
    assert vv.certify(
        instance.problem, instance.published["x_other"], [], instance.theta_true, tol=1e-12
    ).holds


def test_a_generalised_nash_equilibrium_of_harkers_game_is_no_solution_of_the_vi():
    instance = gallery.harker()
    # Firm 2's best reply to 9.5 and firm 1's to 5.5 both end at x₁ + x₂ = 15, each with a multiplier of its own.
    for multiplier in np.linspace(0.0, 20.0, 9):
        assert not vv.certify(instance.problem, [9.5, 5.5], [multiplier], instance.theta_true).holds


def test_closed_form_of_harkers_duopoly_is_continuous_in_the_cap():
    from viceversa.gallery.known_answers import _harker_answer

    for c in (14.0, 13.375, 10.0):
        below, above = _harker_answer(c - 1e-9), _harker_answer(c + 1e-9)
        np.testing.assert_allclose(below[0], above[0], atol=1e-7)
    with pytest.raises(vv.InputError, match="cap is -1"):
        gallery.harker(cap=-1)


@pytest.mark.parametrize(
    ("function", "method"),
    [(gallery.murphy_price_cap, vv.AdaptiveAugmentedLagrangian()), (gallery.electricity, None)],
    ids=identity,
)
def test_solve_learns_and_finds_what_is_unique(function, method):
    instance = function(misspecified=True)
    solution = vv.solve(instance.problem, method, theta0=instance.theta0)
    assert solution.success, solution
    np.testing.assert_allclose(solution.multiplier, instance.multiplier_true, atol=1e-4)
    if instance.x_unique:
        np.testing.assert_allclose(solution.x, instance.x_true, rtol=1e-6)
    else:
        assert np.abs(solution.x - instance.x_true).max() > 1.0  # another point of the solution set
        for name, value in instance.aggregates(solution.x).items():
            np.testing.assert_allclose(value, instance.published[name], atol=1e-4, err_msg=name)


def test_the_table_is_true():
    bibliography = (Path(vv.__file__).parent / "references.bib").read_text(encoding="utf-8")
    keys = set(re.findall(r"@\w+\{([^,]+),", bibliography))
    for name, entry in ENTRIES.items():
        assert getattr(gallery, name) is entry.function
        instance = entry.function()
        sizes = re.search(r"n=\d+, J=\d+, m=\d+", repr(instance))
        assert sizes is not None
        assert sizes.group() == entry.size, name
        assert instance.source == entry.source, name
        for key in re.findall(r"[a-z]+[12][0-9]{3}[a-z]+", entry.source):
            assert key in keys, key
        assert ("not monotone" in entry.properties.lower()) == (not instance.monotone), name
        assert ("x not unique" in entry.properties or not instance.monotone) == (not instance.x_unique), name
        assert ("not symmetric" in entry.properties) <= (instance.problem.symmetric is False), name


def test_asymmetric_market_is_certified_and_has_no_potential():
    instance = gallery.asymmetric_cournot(40, 3)
    relative = instance.certify(1e-12).relative
    assert relative.pop("learning") <= 1e-11  # the bound has the rounding of 40 components in it
    assert max(relative.values()) <= 1e-12
    assert instance.multiplier_true[0] > 1.0
    b, r = instance.theta_true["perceived"], instance.problem.operator.r
    jacobian = np.diag(r + b) + np.outer(b, np.ones(40))
    assert np.abs(jacobian - jacobian.T).max() > 0.1
    upper = jax.tree.leaves(instance.problem.learning.set.interior_point())[0] * 1.2
    for slopes in (b, upper, np.where(np.arange(40) % 2, 0.8, 1.2) * b):  # corners of Θ are monotone too
        assert r.min() + slopes.min() >= (np.sqrt(40) * np.linalg.norm(slopes) - slopes.sum()) / 2
    with pytest.raises(vv.InputError, match="n_firms is 5"):
        gallery.asymmetric_cournot(5)
