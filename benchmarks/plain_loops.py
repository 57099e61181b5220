"""Algorithm 1 on the Cournot market as a person would write it without viceversa: NumPy, numba and C."""

from __future__ import annotations

import ctypes
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

from benchmarks.machine import c_compiler
from benchmarks.market import Numbers

Loop = Callable[[Numbers, int], tuple[np.ndarray, np.ndarray, float, np.ndarray]]
_FLAGS = ["-O3", "-march=native", "-shared", "-fPIC"]  # and no -ffast-math: the same numbers are wanted


def numpy_loop(at: Numbers, n_steps: int):
    """(x, λ, b, average) after `n_steps` iterations from x = 0, λ = 0, each oracle a NumPy expression."""
    x, lam, b = np.zeros_like(at.r), np.zeros(at.r.shape[1]), at.b0
    F_prev = _operator(x, b, at)
    average = np.zeros_like(x)
    for k in range(n_steps):
        F = _operator(x, b, at)
        pulled = -b * np.maximum(at.rho * _constraints(x, b, at) + lam, 0.0)
        x = np.clip(x - at.gamma * (F + (F - F_prev) + pulled), 0.0, at.capacity)
        lam = np.maximum(lam + at.rho * _constraints(x, b, at), 0.0)
        b = min(max(b - at.eta * (at.h * b - at.c), at.b_low), at.b_high)
        average += (x - average) / (k + 1.0)
        F_prev = F
    return x, lam, b, average


def _operator(x, b, at: Numbers):
    return at.r * x + at.g + (b * (x.sum(axis=0) + x) - at.a)


def _constraints(x, b, at: Numbers):
    return at.a - b * x.sum(axis=0) - at.cap


def numba_loop() -> Loop | None:
    """The loop of `cournot_loop.c: as_declared` compiled by numba, if it is installed."""
    try:
        import numba
    except ImportError:
        return None

    @numba.njit
    def totals(x):
        X = np.zeros(x.shape[1])
        for i in range(x.shape[0]):
            for d in range(x.shape[1]):
                X[d] += x[i, d]
        return X

    @numba.njit
    def clip(v, low, high):
        return low if v <= low else (high if v >= high else v)

    @numba.njit
    def run(r, g, s, n_steps, x, F, F_prev, mean, lam):
        a, cap, capacity, b_low, b_high, h, c, gamma, rho, eta, b = s
        N, D = x.shape
        for k in range(n_steps):
            X = totals(x)
            for i in range(N):
                for d in range(D):
                    F[i, d] = r[i, d] * x[i, d] + g[i, d] + (b * (X[d] + x[i, d]) - a)
            X = totals(x)
            w = -b * np.maximum(rho * (a - b * X - cap) + lam, 0.0)
            for i in range(N):
                for d in range(D):
                    v = x[i, d] - gamma * (F[i, d] + (F[i, d] - F_prev[i, d]) + w[d])
                    x[i, d] = clip(v, 0.0, capacity)
            lam = np.maximum(lam + rho * (a - b * totals(x) - cap), 0.0)
            share = 1.0 / (k + 1.0)
            for i in range(N):
                for d in range(D):
                    mean[i, d] += share * (x[i, d] - mean[i, d])
            F, F_prev = F_prev, F
            b = clip(b - eta * (h * b - c), b_low, b_high)
        return lam, b

    def loop(at: Numbers, n_steps: int):
        x, F, mean = (np.zeros_like(at.r) for _ in range(3))
        F_prev = _operator(x, at.b0, at)
        lam, b = run(at.r, at.g, tuple(_settings(at)), n_steps, x, F, F_prev, mean, np.zeros(at.r.shape[1]))
        return x, lam, b, mean

    return loop


def c_loops() -> dict[str, Loop]:
    """`as_declared` and `fused` of cournot_loop.c, compiled now; empty where there is no compiler."""
    compiler = c_compiler()
    if compiler is None:
        return {}
    library = Path(tempfile.mkdtemp()) / "cournot_loop.so"
    source = Path(__file__).with_name("cournot_loop.c")
    subprocess.run([compiler, *_FLAGS, "-o", str(library), str(source)], check=True)
    loaded = ctypes.CDLL(str(library))
    return {name: _c_loop(getattr(loaded, name)) for name in ("as_declared", "fused")}


def _c_loop(function) -> Loop:
    array = np.ctypeslib.ndpointer(np.float64, flags="C")
    function.argtypes = [ctypes.c_long] * 3 + [array] * 8
    function.restype = ctypes.c_double

    def loop(at: Numbers, n_steps: int):
        x, mean = np.zeros_like(at.r), np.zeros_like(at.r)
        F_prev, lam = _operator(x, at.b0, at), np.zeros(at.r.shape[1])
        work = np.zeros(x.size + 2 * lam.size)
        b = function(*x.shape, n_steps, at.r, at.g, np.array(_settings(at)), x, F_prev, mean, lam, work)
        return x, lam, b, mean

    return loop


def _settings(at: Numbers) -> list[float]:
    return [float(number) for number in at[2:]]
