"""One compiled run of a scheme without metrics, so that a test of a method compiles one small program."""

from __future__ import annotations

import equinox as eqx
import jax
import numpy as np

import viceversa as vv
from methods_zoo import small_problems as P
from viceversa import precision
from viceversa.schemes import as_scheme


@eqx.filter_jit
def _run(problem, scheme, x0, theta0, lam0, n: int, key):
    x0, theta0, lam0 = jax.tree.map(jax.numpy.asarray, (x0, theta0, lam0))
    state = scheme.init(problem, x0, theta0, lam0, key)

    def step(state, _):
        state, _ = scheme.step(problem, state)
        return state, scheme.output(state)

    final, points = jax.lax.scan(step, state, None, length=n)
    return scheme.output(state), points, final


def run(problem, method, n, x0, theta0, lam0=None, seed=0):
    """(points of k = 0..n stacked as NumPy arrays, the final state)."""
    scheme = as_scheme(method)
    lam0 = np.zeros(problem.n_constraints) if lam0 is None else np.asarray(lam0, dtype=float)
    with precision.double():
        starts = np.asarray(x0, dtype=float), jax.tree.map(lambda t: np.asarray(t, dtype=float), theta0), lam0
        first, points, final = _run(problem, scheme, *starts, n, jax.random.key(seed))
        joined = jax.tree.map(
            lambda a, b: np.concatenate([np.asarray(a)[None], np.asarray(b)]), first, points
        )
    return joined, final


@eqx.filter_jit
def _many(problem, scheme, x0, theta0, keys, n: int):
    def one(key):
        state = scheme.init(problem, x0, theta0, jax.numpy.zeros(problem.n_constraints), key)

        def step(state, _):
            state, _ = scheme.step(problem, state)
            return state, scheme.output(state)

        return jax.lax.scan(step, state, None, length=n)[1]

    return jax.vmap(one)(keys)


def many_seeds(problem, method, n, x0, theta0, n_seeds=64):
    """Points of k = 1..n of runs with different seeds, shape (n_seeds, n, ...)."""
    with precision.double():
        keys = jax.random.split(jax.random.key(7), n_seeds)
        starts = jax.numpy.asarray(np.asarray(x0, float)), jax.numpy.asarray(np.asarray(theta0, float))
        return jax.tree.map(np.asarray, _many(problem, as_scheme(method), *starts, keys, n))


def count_oracles(method, n, problem=None):
    """((F, f, pullback) counted while `n` steps run on the host, their declared counts)."""
    calls = {"F": 0, "f": 0, "pullback": 0}

    def counted(name, function):
        def call(*args):
            calls[name] += 1
            return function(*args)

        return call

    F = vv.callback_operator(counted("F", P.F))
    pullback = counted("pullback", lambda x, theta, w: P.jacobian_f(x, theta).T @ w)
    f = vv.callback_constraints(counted("f", P.f), pullback)
    problem = vv.MisspecifiedVI(F, set=vv.Box(P.LOWER, P.UPPER), constraints=f, learning=P.learning())
    scheme = as_scheme(method)
    with precision.double():
        starts = [jax.numpy.asarray(a) for a in (P.X0, P.THETA0, P.LAM0)]
        for name in calls:
            calls[name] = 0
        state = scheme.init(problem, *starts, jax.random.key(0))
        for _ in range(n):
            state, _ = scheme.step(problem, state)
        counted = tuple(calls.values())
        declared = jax.tree.map(int, scheme.counts(problem, state, n))
    return counted, declared
