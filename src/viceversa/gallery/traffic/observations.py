"""Observed link times, and the least-squares problem that their unknown BPR coefficients solve.

BPR is linear in B: time − t0 = t0 (v/c)^p · B. One row of a regression per observation, one component of θ per class of links.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from viceversa.errors import InputError
from viceversa.gallery.traffic.network import Network
from viceversa.learning import LeastSquares
from viceversa.precision import as_finite_float64
from viceversa.sets import Box

# Θ = [0, 4 times the larger of the fit and the file's B]: wide, and compact as the theory asks.
THETA_FACTOR = 4.0


class Classes(NamedTuple):
    """Which component of θ a link's B is; links that do not congest have the number after the last."""

    of_link: np.ndarray
    labels: tuple[str, ...]

    @property
    def n(self) -> int:
        """How many components θ has."""
        return len(self.labels)


def link_classes(network: Network, classes: Any) -> Classes:
    """ "common" (one B), "link_type" (one per type of the file), or one label per link."""
    if isinstance(classes, str) and classes in ("common", "link_type"):
        given = np.zeros(network.n_links, int) if classes == "common" else network.link_type
    elif isinstance(classes, str):
        raise InputError(f"b_classes is {classes!r}; 'common', 'link_type' or one label per link is needed.")
    else:
        given = np.asarray(classes)
        if given.shape != (network.n_links,):
            raise InputError(
                f"b_classes has shape {given.shape}; one label per link, ({network.n_links},), is needed."
            )
    learned = network.congestible & ~network.closed
    if not learned.any():
        raise InputError(
            f"{network.name}: no link has a time that depends on its flow (free_flow_time, b and power above 0), so "
            "there is no B to learn. Give a first guess of b."
        )
    names, index = np.unique(given[learned], return_inverse=True)
    of_link = np.full(network.n_links, names.size)
    of_link[learned] = index
    return Classes(of_link, tuple(str(name) for name in names))


def read_link_times(network: Network, table: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(link, flow, time) columns from a DataFrame, a dict, a tuple of three, or an array (T, 3).

    A link is its row in the network, from 0; a table may name it by `init_node` and `term_node` instead.
    """
    if hasattr(table, "columns") or isinstance(table, Mapping):
        has = set(table)  # a DataFrame iterates over its columns, too
        if not {"flow", "time"} <= has or not ({"link"} <= has or {"init_node", "term_node"} <= has):
            raise InputError(
                f"link_times has the columns {sorted(map(str, has))}; flow, time and either link or init_node and "
                "term_node are needed."
            )
        if "link" in has:
            link = table["link"]
        else:
            ends = zip(np.asarray(table["init_node"]), np.asarray(table["term_node"]), strict=True)
            link = [network.find_link(int(init), int(term)) for init, term in ends]
        columns = (link, table["flow"], table["time"])
    elif isinstance(table, tuple) and len(table) == 3:
        columns = table
    else:
        array = as_finite_float64("link_times", table)
        if array.ndim != 2 or array.shape[1] != 3:
            raise InputError(
                f"link_times has shape {array.shape}; rows (link, flow, time), shape (T, 3), are needed."
            )
        columns = tuple(array.T)
    names = ("link", "flow", "time")
    link, flow, time = (
        as_finite_float64(f"link_times: {n}", c).ravel() for n, c in zip(names, columns, strict=True)
    )
    if not link.size == flow.size == time.size > 0:
        raise InputError(
            f"link_times: {link.size} links, {flow.size} flows and {time.size} times; as many of each, and at least "
            "one, are needed."
        )
    wrong = (link != np.round(link)) | (link < 0) | (link >= network.n_links)
    if wrong.any():
        raise InputError(
            f"link_times: link {link[np.argmax(wrong)]:g} (row {int(np.argmax(wrong))}) is not a link of {network.name}; "
            f"links are rows 0 to {network.n_links - 1}."
        )
    for name, values in (("flow", flow), ("time", time)):
        if (values < 0).any():
            raise InputError(
                f"link_times: {name} is {values[np.argmax(values < 0)]:g} in row {int(np.argmax(values < 0))}; "
                "it must be at least 0."
            )
    return link.astype(np.int64), flow, time


def learning_from(network: Network, classes: Classes, table: Any) -> LeastSquares:
    """θ = argmin over Θ of ½ Σ_t (t0 (v_t/c)^p B − (time_t − t0))², B = θ[class of the link]."""
    link, flow, time = read_link_times(network, table)
    kept = classes.of_link[link] < classes.n
    link, flow, time = link[kept], flow[kept], time[kept]
    t0, c, p = (values[link] for values in (network.free_flow_time, network.capacity, network.power))
    regressor = t0 * (flow / np.where(c > 0, c, 1.0)) ** p
    of_row = classes.of_link[link]
    squares = np.bincount(of_row, weights=regressor**2, minlength=classes.n)
    if (squares == 0).any():
        silent = classes.labels[int(np.argmax(squares == 0))]
        whose = "" if classes.n == 1 else f" of class {silent}"
        raise InputError(
            f"link_times: no congestible link{whose} was observed with flow on it, so its B cannot be learned. Add "
            "observations or use coarser b_classes."
        )
    A = np.zeros((link.size, classes.n))
    A[np.arange(link.size), of_row] = regressor
    fit = np.bincount(of_row, weights=regressor * (time - t0), minlength=classes.n) / squares
    upper = THETA_FACTOR * np.maximum(fit, first_guess(network, classes))
    return LeastSquares(A, time - t0, set=Box(np.zeros(classes.n), upper))


def first_guess(network: Network, classes: Classes) -> np.ndarray:
    """The mean B of the file in every class."""
    learned = classes.of_link < classes.n
    of_link = classes.of_link[learned]
    return np.bincount(of_link, weights=network.b[learned]) / np.bincount(of_link)
