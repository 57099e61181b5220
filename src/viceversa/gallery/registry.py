"""Every problem of the gallery in one table: what `viceversa list` shows."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from viceversa.gallery.applications import fair_classifier, imputed_network, markowitz
from viceversa.gallery.asymmetric_market import asymmetric_cournot
from viceversa.gallery.cournot import cournot
from viceversa.gallery.instance import Instance
from viceversa.gallery.known_answers import (
    ball_2d,
    cournot_duopoly,
    fukushima,
    harker,
    internet_switching,
    kojima_shindo,
    rock_paper_scissors,
    rosen,
    shared_budget,
)
from viceversa.gallery.networks import braess, transport
from viceversa.gallery.oligopolies import electricity, murphy, murphy_price_cap, river_basin
from viceversa.gallery.planted import harker_pang, planted


class Entry(NamedTuple):
    """One line of the table: `function()` builds the instance of this size."""

    name: str
    function: Callable[..., Instance]
    size: str
    properties: str
    source: str


_AFFINE, _NONLINEAR = "affine F", "nonlinear F"
_TABLE = [
    Entry("cournot", cournot, "n=250, J=5, m=1", f"{_AFFINE}, symmetric, strongly monotone; affine f; any size", "dey2026misspecified, Section 5"),
    Entry("asymmetric_cournot", asymmetric_cournot, "n=40, J=1, m=41", f"{_AFFINE}, not symmetric; affine f; any size", "dey2026misspecified, Section 5 (costs); firm-specific slopes"),
    Entry("planted", planted, "n=20, J=4, m=3", f"{_AFFINE}, not symmetric; quadratic f; any size", "planted: the data follow from the answer"),
    Entry("harker_pang", harker_pang, "n=50, J=1, m=2", f"{_AFFINE}, not symmetric; affine f; any size", "harker1990damped (matrices); planted answer"),
    Entry("harker", harker, "n=2, J=1, m=3", f"{_AFFINE}, not symmetric; affine f, inactive (active for cap < 14)", "harker1991generalized"),
    Entry("shared_budget", shared_budget, "n=2, J=1, m=3", f"{_AFFINE}, symmetric; affine f", "facchinei2009penalty, A.11"),
    Entry("cournot_duopoly", cournot_duopoly, "n=2, J=0, m=1", f"{_AFFINE}, symmetric", "facchinei2009penalty, A.12"),
    Entry("river_basin", river_basin, "n=3, J=2, m=5", f"{_AFFINE}, symmetric; affine f", "krawczyk2000relaxation; facchinei2009penalty, A.13"),
    Entry("murphy", murphy, "n=5, J=0, m=2", f"{_NONLINEAR}, not symmetric", "murphy1982mathematical"),
    Entry("murphy_price_cap", murphy_price_cap, "n=5, J=1, m=2", f"{_NONLINEAR}, not symmetric; nonlinear f", "murphy1982mathematical"),
    Entry("internet_switching", internet_switching, "n=10, J=1, m=1", f"{_NONLINEAR}, not symmetric; affine f, inactive", "kesselman2005game; facchinei2009penalty, A.14"),
    Entry("electricity", electricity, "n=12, J=10, m=6", f"{_AFFINE}, symmetric, merely monotone, x not unique; affine f", "facchinei2009penalty, A.18; hobbs2007nash"),
    Entry("fukushima", fukushima, "n=3, J=1, m=5", f"{_NONLINEAR}, not symmetric, strongly monotone; quadratic f", "fukushima1986relaxed"),
    Entry("ball_2d", ball_2d, "n=2, J=1, m=3", f"{_AFFINE}, not symmetric; quadratic f", "closed form"),
    Entry("rosen", rosen, "n=2, J=1, m=2", f"{_AFFINE}, not symmetric; affine f, degenerate", "rosen1965existence"),
    Entry("braess", braess, "n=3, J=0, m=3", f"{_AFFINE}, symmetric; simplex", "braess1968paradoxon"),
    Entry("transport", transport, "n=6, J=5, m=1", "constant F, merely monotone, x not unique; affine f", "dantzig1963linear"),
    Entry("rock_paper_scissors", rock_paper_scissors, "n=6, J=0, m=3", f"{_AFFINE}, skew, merely monotone; two simplices", "neumann1928theorie"),
    Entry("markowitz", markowitz, "n=20, J=2, m=420", "constant F, merely monotone; quadratic and affine f; simplex; any size", "markowitz1952portfolio; planted answer"),
    Entry("fair_classifier", fair_classifier, "n=4, J=2, m=4", f"{_NONLINEAR}, saddle point, not symmetric; affine f; ball and simplex", "yang2022data; closed form"),
    Entry("imputed_network", imputed_network, "n=21, J=1, m=21", f"{_AFFINE}, symmetric; affine f; simplices; any size", "thai2018imputing; closed form"),
    Entry("kojima_shindo", kojima_shindo, "n=4, J=0, m=4", f"{_NONLINEAR}, NOT monotone: outside the theory on purpose", "kojima1986extensions"),
]  # fmt: skip


def instances() -> list[Entry]:
    """All problems of the gallery: name, function, size, properties, source.

    Example:
        >>> import viceversa as vv
        >>> [entry.size for entry in vv.gallery.instances() if entry.name == "fukushima"]
        ['n=3, J=1, m=5']
    """
    return list(_TABLE)
