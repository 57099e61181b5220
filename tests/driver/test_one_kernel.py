"""A function compiled to one kernel computes what it computes anyway; what a kernel cannot contain stays outside."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import viceversa as vv
from viceversa import precision
from viceversa.one_kernel import _IS_AVAILABLE, COMPILER_OPTIONS, LARGEST, Kernel, through_the_queue


def knows_the_options() -> bool:
    try:
        jax.jit(lambda x: x, compiler_options=COMPILER_OPTIONS)(1.0)
    except jax.errors.JaxRuntimeError:
        return False
    return True


pytestmark = pytest.mark.skipif(
    not (_IS_AVAILABLE and knows_the_options()), reason="this release of XLA is not asked for it"
)


def run(function, *args):
    """Values, and whether the compiled program has a call of its own for them."""
    became_one = []

    def program(*args):
        kernel = Kernel(function, *args)
        became_one.append(kernel.is_one)
        return kernel(*args)

    with precision.double():
        compiled = jax.jit(program, compiler_options=COMPILER_OPTIONS).lower(*args).compile()
        found = compiled(*args)
    assert ('inlineable="false"' in compiled.as_text()) == became_one[0]
    return jax.tree.map(np.asarray, found), became_one[0]


def newton_root(x, target):
    """Square roots by a loop with a branch, an exchange of entries, a reduction and a count."""

    def step(state):
        y, n, _ = state
        better = jax.lax.cond(
            n % 2 == 0, lambda y: 0.5 * (y + target / y), lambda y: 0.5 * (target / y + y), y
        )
        return better, n + 1, jnp.max(jnp.abs(better * better - target))

    y, n, worst = jax.lax.while_loop(lambda s: s[2] > 1e-12, step, (x, 0, jnp.asarray(jnp.inf)))
    return {"root": y[::-1], "n": n, "done": worst <= 1e-12, "first": jnp.where(y > 1.5, y, -y)[0]}


def test_loops_branches_and_counts_are_what_they_are_in_the_queue():
    target = np.array([2.0, 9.0, 0.25])
    found, is_one = run(newton_root, np.ones(3), target)
    assert is_one
    np.testing.assert_allclose(found["root"], np.sqrt(target)[::-1], rtol=1e-14)
    assert found["done"]
    assert found["first"] == pytest.approx(-np.sqrt(2.0), rel=1e-15)
    with through_the_queue():
        in_queue, is_one = run(newton_root, np.ones(3), target)
    assert not is_one
    for name, value in in_queue.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-15, err_msg=name)


def test_arguments_that_nothing_uses_and_constants_do_no_harm():
    """Each of these ended the process when the call was handed to XLA as it is."""

    def f(x, unused, empty, flag, count, constant):
        def step(state):
            i, y, dead = state
            return i + 1, y + constant, dead

        _, y, _ = jax.lax.while_loop(lambda s: s[0] < count, step, (0, x, unused))
        return y + jnp.arange(3.0), empty, jnp.where(flag, 1, 0), x

    def with_constants(x, unused, empty, flag, count):
        return f(x, unused, empty, flag, count, jnp.asarray(2.0))

    args = (np.ones(3), np.full(7, np.nan), np.zeros((0, 2)), np.asarray(True), np.asarray(4))
    (y, empty, one, x), is_one = run(with_constants, *args)
    assert is_one
    assert empty.shape == (0, 2)
    assert one == 1
    np.testing.assert_array_equal(y, np.arange(3.0) + 9.0)
    np.testing.assert_array_equal(x, np.ones(3))


def test_an_array_that_is_captured_keeps_a_function_in_the_queue():
    def program(x, y):
        kernel = Kernel(lambda x: x * y, x)
        assert not kernel.is_one
        return kernel(x)

    with precision.double():
        assert jax.jit(program)(2.0, 3.0) == 6.0


def test_what_was_a_constant_when_it_was_traced_cannot_vary_later():
    def program(x):
        kernel = Kernel(lambda x, n: x + n, x, 1.0)
        return kernel(x, x)

    with precision.double(), pytest.raises(TypeError, match="as a constant was called with"):
        jax.jit(program)(2.0)


def test_what_is_always_the_same_does_no_harm():
    """The smallest result, through which a call is marked, is zero whatever is given."""
    (zero, y), is_one = run(lambda x, y: (jnp.zeros(()) * 1.0, x + 1.0), np.ones(3), np.ones(4))
    assert is_one
    assert zero == 0.0
    np.testing.assert_array_equal(y, np.full(3, 2.0))


@pytest.mark.parametrize("worst", [np.inf, -np.inf, np.nan])
def test_what_is_not_finite_goes_through(worst):
    (a, b), is_one = run(lambda x, y: (x + y, jnp.sum(x)), np.array([worst, 1.0]), np.array([1.0, worst]))
    assert is_one
    np.testing.assert_array_equal(a, np.array([worst, worst]) + 1.0)
    np.testing.assert_array_equal(b, worst)


def test_a_random_key_may_be_made_within():
    def draw(seed, x):
        return jax.random.key_data(jax.random.key(seed)), 2.0 * x

    (key, x), is_one = run(draw, np.int64(5), np.ones(2))
    assert is_one
    assert np.array_equal(x, [2.0, 2.0])
    assert np.array_equal(key, np.asarray(jax.random.key_data(jax.random.key(5))))


@pytest.mark.parametrize(
    "function",
    [
        jnp.sort,
        lambda x: jnp.linalg.cholesky(jnp.outer(x, x) + jnp.eye(x.size)),
        lambda x: jnp.zeros(4).at[jnp.argsort(x)].add(x),
        lambda x: jnp.sum(jnp.broadcast_to(x, (LARGEST, x.size)) ** 2, axis=0),
        lambda x: jax.pure_callback(lambda v: v, jax.ShapeDtypeStruct(x.shape, x.dtype), x),
    ],
)
def test_what_calls_a_library_or_is_large_stays_in_the_queue(function):
    _, is_one = run(function, np.array([3.0, 1.0, 2.0, 5.0]))
    assert not is_one


def test_products_of_small_matrices_are_the_products():
    rng = np.random.default_rng(0)
    A, B, x = rng.normal(size=(7, 5)), rng.normal(size=(5, 7)), rng.normal(size=7)
    (AB, ABx, xA), is_one = run(lambda A, B, x: (A @ B, A @ (B @ x), x @ A), A, B, x)
    assert is_one
    for found, expected in ((AB, A @ B), (ABx, A @ (B @ x)), (xA, x @ A)):
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-13)


def test_a_small_market_is_solved_by_kernels_and_the_answer_is_that_of_the_queue():
    market = vv.gallery.cournot(n_firms=30, n_products=2, seed=3)
    fast = vv.solve(market.problem, theta0=market.theta0)
    with through_the_queue():
        slow = vv.solve(
            vv.MisspecifiedVI(
                market.problem.operator,
                market.problem.set,
                market.problem.constraints,
                market.problem.learning,
            ),
            theta0=market.theta0,
        )
    assert fast.success
    assert slow.success
    np.testing.assert_allclose(fast.x, slow.x, atol=1e-9)
    np.testing.assert_allclose(fast.multiplier, slow.multiplier, atol=1e-8)
    assert fast.nit == slow.nit
