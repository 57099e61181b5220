"""Problems the methods are tested on: the package's form of each, and the numbers the NumPy twins use."""

from __future__ import annotations

import numpy as np

import viceversa as vv

# A nonlinear VI in R³ with two coupling constraints and two parameters in F and f; H is not a gradient.
A = np.array([[1.0, 2.0, 0.0], [-2.0, 1.0, 0.5], [0.0, -0.5, 0.3]])
q = np.array([-2.0, 1.0, -1.5])
LOWER, UPPER = np.array([-1.0, -0.25, -1.0]), np.full(3, 2.0)
W = np.array([[2.0, 1.0], [-1.0, 2.0]])
THETA_TRUE = np.array([1.0, 1.4])
THETA_LOWER, THETA_UPPER = np.full(2, 0.2), np.full(2, 3.0)
RATE = 0.1
X0 = np.array([0.5, -0.2, 0.8])
THETA0 = np.array([2.5, 0.4])
LAM0 = np.array([0.3, 0.1])


def F(x, theta):
    return A @ x + theta[0] * x**3 + theta[1] * q


def f(x, theta):
    return np.stack([0.5 * theta[0] * (x**2).sum() - 1.0, np.exp(0.5 * x[0]) + theta[1] * x[1] + x[2] - 1.6])


def jacobian_f(x, theta):
    """∂f_j/∂x_i, row j, written out."""
    return np.array(
        [[theta[0] * x[0], theta[0] * x[1], theta[0] * x[2]], [0.5 * np.exp(0.5 * x[0]), theta[1], 1.0]]
    )


def learning():
    return vv.SecondaryVI(lambda theta: W @ (theta - THETA_TRUE), set=vv.Box(THETA_LOWER, THETA_UPPER))


def nonlinear():
    return vv.MisspecifiedVI(F, set=vv.Box(LOWER, UPPER), constraints=f, learning=learning())


SIMPLEX_X0 = np.array([0.9, 0.6, 0.8])  # shares of a total of 1.5, and one coordinate of a box


def on_simplex():
    blocks = [vv.Simplex(2, total=1.5), vv.Box([-1.0], [2.0])]
    return vv.MisspecifiedVI(F, set=vv.Product(blocks), constraints=f, learning=learning())


# The saddle point of (x₁ − θ)(x₂ − θ) over the disc ‖x‖ ≤ 1, which couples the players: merely monotone, and
# x* = (1, 0), λ* = 1 at θ* = 1 by hand: (x₂ − 1, 1 − x₁) + λx = 0 and ‖x‖ = 1.
DISC_X, DISC_LAM = np.array([1.0, 0.0]), np.array([1.0])


def disc():
    return vv.MisspecifiedVI(
        lambda x, theta: np.stack([x[1] - theta, theta - x[0]]),
        set=vv.Box([-3.0, -3.0], [3.0, 3.0]),
        constraints=lambda x, theta: 0.5 * (x[0] ** 2 + x[1] ** 2 - 1.0),
        learning=vv.SecondaryVI(lambda theta: 2.0 * (theta - 1.0), set=vv.Box(0.5, 3.0, shape=())),
    )


def rotation():
    """A quarter turn about θ* = (1, 1): every step of the projection method moves away."""
    return vv.MisspecifiedVI(
        lambda x, theta: np.stack([x[1] - theta, theta - x[0]]),
        set=vv.Box([-9.0, -9.0], [9.0, 9.0]),
        learning=vv.SecondaryVI(lambda theta: 2.0 * (theta - 1.0), set=vv.Box(0.5, 3.0, shape=())),
    )


# A symmetric, nonlinear F (the gradient of a convex function) and affine coupling constraints, for optimization methods.
B = np.array([[2.0, 0.5, 0.0], [0.5, 1.0, 0.2], [0.0, 0.2, 0.6]])
C = np.array([[1.0, 1.0, 0.5], [-0.5, 1.0, 1.0]])
d = np.array([0.7, 0.4])


def gradient(x, theta):
    return B @ x + theta[0] * x**3 + theta[1] * q


def affine(x, theta):
    return C @ x * theta[0] - d * theta[1]


def optimization():
    return vv.MisspecifiedVI(gradient, set=vv.Box(LOWER, UPPER), constraints=affine, learning=learning())
