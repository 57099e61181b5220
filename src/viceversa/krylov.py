"""Krylov solvers for Newton systems given by products: MINRES (symmetric) and GMRES, on trees of arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PyTree

from viceversa.numerics import safe_divide, tree_dot


class KrylovResult(NamedTuple):
    """The approximate solution and how many products it took."""

    solution: PyTree
    n_products: Int[Array, ""]


class _MinresState(eqx.Module):
    """One iteration of MINRES: Lanczos vectors v of lengths β, search directions w, rotations c and s."""

    x: PyTree
    v: PyTree
    v_prev: PyTree
    w: PyTree
    w_prev: PyTree
    beta: Float[Array, ""]
    beta_prev: Float[Array, ""]
    c: Float[Array, ""]
    c_prev: Float[Array, ""]
    s: Float[Array, ""]
    s_prev: Float[Array, ""]
    eta: Float[Array, ""]
    k: Int[Array, ""]


def _combine(a, u: PyTree, b, v: PyTree, c, w: PyTree) -> PyTree:
    """a·u + b·v + c·w, leaf by leaf."""
    return jax.tree.map(lambda p, q, r: a * p + b * q + c * r, u, v, w)


def minres(matvec: Callable[[PyTree], PyTree], rhs: PyTree, rtol, max_products: int) -> KrylovResult:
    """A symmetric (possibly indefinite) system to a relative residual, by Paige and Saunders' method.

    Five vectors whatever the number of products. Iterations come in pairs: in each, the vectors of this and of the last
    iteration change places, and after two of them they are where they were, so that the loop copies nothing.
    """
    zeros = jax.tree.map(jnp.zeros_like, rhs)
    beta = jnp.sqrt(tree_dot(rhs, rhs))
    one, zero = jnp.ones(()), jnp.zeros(())
    start = _MinresState(
        x=zeros, v=rhs, v_prev=zeros, w=zeros, w_prev=zeros, beta=beta, beta_prev=one,
        c=one, c_prev=one, s=zero, s_prev=zero, eta=beta, k=jnp.asarray(0),
    )  # fmt: skip

    def step(now: _MinresState) -> _MinresState:
        inverse = safe_divide(1.0, now.beta, 0.0)  # nothing is left: the second of a pair changes nothing
        z = jax.tree.map(lambda u: inverse * u, now.v)
        product = matvec(z)
        delta = inverse * tree_dot(product, now.v)
        v_next = _combine(1.0, product, -delta * inverse, now.v, -now.beta / now.beta_prev, now.v_prev)
        beta_next = jnp.sqrt(tree_dot(v_next, v_next))
        diagonal = now.c * delta - now.c_prev * now.s * now.beta
        radius = jnp.sqrt(diagonal**2 + beta_next**2)
        above = now.s * delta + now.c_prev * now.c * now.beta
        above_twice = now.s_prev * now.beta
        scale = safe_divide(1.0, radius, 0.0)
        c_next, s_next = safe_divide(diagonal, radius, 1.0), scale * beta_next
        w_next = _combine(scale, z, -above_twice * scale, now.w_prev, -above * scale, now.w)
        x = jax.tree.map(lambda u, w: u + c_next * now.eta * w, now.x, w_next)
        return _MinresState(
            x=x, v=v_next, v_prev=now.v, w=w_next, w_prev=now.w, beta=beta_next,
            beta_prev=jnp.where(now.beta > 0, now.beta, 1.0),
            c=c_next, c_prev=now.c, s=s_next, s_prev=now.s, eta=-s_next * now.eta, k=now.k + 1,
        )  # fmt: skip

    def unfinished(now: _MinresState) -> Array:
        return (jnp.abs(now.eta) > rtol * beta) & (now.k < max_products) & (now.beta > 0)

    end = jax.lax.while_loop(unfinished, lambda now: step(step(now)), start)
    return KrylovResult(end.x, end.k)


class _GmresState(eqx.Module):
    """The Arnoldi basis V, the triangle R of rotated Hessenberg columns, rotations, and the rotated right-hand side."""

    V: PyTree
    R: Float[Array, "m m"]
    cosines: Float[Array, " m"]
    sines: Float[Array, " m"]
    g: Float[Array, " m1"]
    k: Int[Array, ""]


def gmres(
    matvec: Callable[[PyTree], PyTree],
    rhs: PyTree,
    rtol,
    max_products: int,
) -> KrylovResult:
    """Any system to a relative residual, one cycle of at most `max_products` vectors."""
    beta = jnp.sqrt(tree_dot(rhs, rhs))
    m = max_products
    first = jax.tree.map(lambda u: u * safe_divide(1.0, beta, 0.0), rhs)
    V = jax.tree.map(lambda u: jnp.zeros((m + 1, *u.shape), u.dtype).at[0].set(u), first)
    start = _GmresState(
        V=V,
        R=jnp.eye(m, dtype=beta.dtype),
        cosines=jnp.ones(m),
        sines=jnp.zeros(m),
        g=jnp.zeros(m + 1).at[0].set(beta),
        k=jnp.asarray(0),
    )

    def row(V: PyTree, i) -> PyTree:
        return jax.tree.map(lambda u: u[i], V)

    def step(now: _GmresState) -> _GmresState:
        w = matvec(row(now.V, now.k))

        def orthogonalise(i, carry):
            w, h = carry
            v = row(now.V, i)
            h_i = tree_dot(v, w)
            return jax.tree.map(lambda a, b: a - h_i * b, w, v), h.at[i].add(h_i)

        w, h = jax.lax.fori_loop(0, now.k + 1, orthogonalise, (w, jnp.zeros(m + 1)))
        h_next = jnp.sqrt(tree_dot(w, w))
        V = jax.tree.map(lambda u, a: u.at[now.k + 1].set(a * safe_divide(1.0, h_next, 0.0)), now.V, w)

        def rotate(i, h):
            c, s = now.cosines[i], now.sines[i]
            return h.at[i].set(c * h[i] + s * h[i + 1]).at[i + 1].set(-s * h[i] + c * h[i + 1])

        h = jax.lax.fori_loop(0, now.k, rotate, h)
        radius = jnp.sqrt(h[now.k] ** 2 + h_next**2)
        c, s = safe_divide(h[now.k], radius, 1.0), safe_divide(h_next, radius, 0.0)
        g = now.g.at[now.k + 1].set(-s * now.g[now.k]).at[now.k].multiply(c)
        column = (
            jnp.where(jnp.arange(m) < now.k, h[:m], 0.0).at[now.k].set(jnp.where(radius > 0, radius, 1.0))
        )
        return _GmresState(
            V=V,
            R=now.R.at[:, now.k].set(column),
            cosines=now.cosines.at[now.k].set(c),
            sines=now.sines.at[now.k].set(s),
            g=g,
            k=now.k + 1,
        )

    def unfinished(now: _GmresState) -> Array:
        return (jnp.abs(now.g[now.k]) > rtol * beta) & (now.k < m)

    end = jax.lax.while_loop(unfinished, step, start)
    g = jnp.where(jnp.arange(m) < end.k, end.g[:m], 0.0)

    def back_substitute(j, y):
        i = m - 1 - j
        return y.at[i].set((g[i] - jnp.sum(end.R[i] * y)) / end.R[i, i])

    y = jax.lax.fori_loop(0, m, back_substitute, jnp.zeros(m))
    combination = jax.tree.map(lambda u: jnp.tensordot(y, u[:m], axes=1), end.V)
    return KrylovResult(combination, end.k)
