"""Problems with known truth: the paper's market, published equilibria, and planted ones of any size."""

from viceversa.gallery import traffic
from viceversa.gallery.applications import fair_classifier, imputed_network, markowitz
from viceversa.gallery.asymmetric_market import asymmetric_cournot
from viceversa.gallery.cournot import cournot, cournot_constants
from viceversa.gallery.games import game, game_names
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
from viceversa.gallery.registry import Entry, instances

__all__ = [
    "Entry",
    "Instance",
    "asymmetric_cournot",
    "ball_2d",
    "braess",
    "cournot",
    "cournot_constants",
    "cournot_duopoly",
    "electricity",
    "fair_classifier",
    "fukushima",
    "game",
    "game_names",
    "harker",
    "harker_pang",
    "imputed_network",
    "instances",
    "internet_switching",
    "kojima_shindo",
    "markowitz",
    "murphy",
    "murphy_price_cap",
    "planted",
    "river_basin",
    "rock_paper_scissors",
    "rosen",
    "shared_budget",
    "traffic",
    "transport",
]
