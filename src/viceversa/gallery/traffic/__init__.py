"""Traffic on a road network: user equilibrium, BPR coefficients learned from observed times, tolls for capacities."""

from viceversa.gallery.traffic.answer import Equilibrium, Path
from viceversa.gallery.traffic.costs import BPR
from viceversa.gallery.traffic.equilibrium import user_equilibrium
from viceversa.gallery.traffic.generated import braess, grid
from viceversa.gallery.traffic.network import Demand, Network, replace
from viceversa.gallery.traffic.tntp import load, read_network, read_trips

__all__ = [
    "BPR",
    "Demand",
    "Equilibrium",
    "Network",
    "Path",
    "braess",
    "grid",
    "load",
    "read_network",
    "read_trips",
    "replace",
    "user_equilibrium",
]
