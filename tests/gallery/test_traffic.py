"""Traffic: closed forms, Wardrop's condition over every simple path, SciPy's own minimum, tolls, learning, the reader."""

from __future__ import annotations

import io
import sys
import warnings

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import minimize

import viceversa as vv
from viceversa.errors import InputError, MissingExtra
from viceversa.gallery import traffic
from viceversa.gallery.traffic import capacities, costs, paths
from viceversa.gallery.traffic.costs import BPR

TRIP = traffic.Demand([1], [2], [10.0])


def parallel(free=(1.0, 2.0, 4.0), slope=(0.5, 0.25, 0.125), power=1.0, **more):
    """Links from 1 to 2 side by side, with times free + slope·v^power."""
    free, slope = np.array(free), np.array(slope)
    ones = np.ones(free.size)
    return traffic.Network(ones, 2 * ones, free, b=slope / free, power=power, **more)


# -- an independent judge: every simple path, found by walking ------------------------------------------------
def simple_paths(network, origin, destination):
    found = []

    def walk(node, links, seen):
        if node == destination:
            found.append(links)
            return
        if node != origin and node < network.first_thru_node:
            return
        for link in np.flatnonzero(network.init_node == node):
            ahead = int(network.term_node[link])
            if ahead not in seen and not network.closed[link]:
                walk(ahead, [*links, int(link)], seen | {ahead})

    walk(origin, [], {origin})
    return found


def generalised_cost(network, flow, b=None):
    b = network.b if b is None else b
    cost = np.empty(network.n_links)
    for e in range(network.n_links):
        ratio = 0.0 if network.capacity[e] == 0 else flow[e] / network.capacity[e]
        time = network.free_flow_time[e] * (1 + b[e] * ratio ** network.power[e])
        cost[e] = time + network.toll_weight * network.toll[e] + network.distance_weight * network.length[e]
    return cost


def judged_gap(answer, toll=0.0):
    """(TSTT − SPTT)/TSTT with shortest paths by enumeration."""
    network, demand = answer.network, answer.demand
    cost = generalised_cost(network, answer.link_flow, answer.b) + toll
    shortest = sum(
        volume * min(cost[links].sum() for links in simple_paths(network, int(o), int(d)))
        for o, d, volume in zip(demand.origin, demand.destination, demand.volume, strict=True)
    )
    total = answer.link_flow @ cost
    return (total - shortest) / total


def assert_flows_are_trips(answer):
    """Path flows are nonnegative, lead from origin to destination and add up to the trips and the link flows."""
    network, demand = answer.network, answer.demand
    assert (answer.path_flow >= 0).all()
    sums = np.bincount(answer.path_pair, weights=answer.path_flow)
    np.testing.assert_allclose(sums, demand.volume, rtol=1e-9)
    flow = np.zeros(network.n_links)
    for o, d in zip(demand.origin, demand.destination, strict=True):
        for path in answer.paths(int(o), int(d)):
            assert path.nodes[0] == o
            assert path.nodes[-1] == d
            assert list(path.nodes[1:-1]) == [network.init_node[link] for link in path.links[1:]]
            assert all(node >= network.first_thru_node for node in path.nodes[1:-1])
            flow[list(path.links)] += path.flow
    np.testing.assert_allclose(flow, answer.link_flow, rtol=1e-9, atol=1e-9)


# -- known answers ---------------------------------------------------------------------------------------
def test_braess():
    answer = traffic.user_equilibrium(*traffic.braess(), relative_gap=1e-12)
    assert sorted(path.nodes for path in answer.paths(1, 2)) == [(1, 3, 2), (1, 3, 4, 2), (1, 4, 2)]
    for path in answer.paths(1, 2):
        assert path.flow == pytest.approx(2.0, abs=1e-9)
        assert path.cost == pytest.approx(92.0, abs=1e-9)
    assert answer.total_travel_time == pytest.approx(6 * 92.0, abs=1e-8)
    # Σ ∫: 2·(10·4²/2) + 2·(50·2 + 2²/2) + 10·2 + 2²/2
    assert answer.objective == pytest.approx(160 + 204 + 22, abs=1e-8)
    assert answer.success
    assert answer.theta is None
    assert answer.multiplier is None
    without = traffic.user_equilibrium(*traffic.braess(bridge=False), relative_gap=1e-12)
    np.testing.assert_allclose(without.link_flow, 3.0, atol=1e-9)
    assert without.total_travel_time / 6 == pytest.approx(83.0, abs=1e-9)


@pytest.mark.parametrize("volume", [1.0, 4.0, 10.0])
def test_three_parallel_routes(volume):
    """Equal costs w on the used links: v_i = (w − a_i)/s_i, and the sum is the trips; links fill one after another."""
    free, slope = np.array([1.0, 2.0, 4.0]), np.array([0.5, 0.25, 0.125])
    for n_used in (1, 2, 3):
        w = (volume + (free / slope)[:n_used].sum()) / (1 / slope)[:n_used].sum()
        if n_used == 3 or w <= free[n_used]:
            break
    expected = np.maximum((w - free) / slope, 0.0)
    network = parallel()
    answer = traffic.user_equilibrium(network, traffic.Demand([1], [2], [volume]), relative_gap=1e-12)
    np.testing.assert_allclose(answer.link_flow, expected, atol=1e-9)
    assert answer.link_time[expected > 0] == pytest.approx(w, abs=1e-9)
    assert answer.objective == pytest.approx((free * expected + slope * expected**2 / 2).sum(), abs=1e-9)


def test_toll_and_distance_count_in_the_choice_and_not_in_the_time():
    """Two links of time 1 + v and 10 trips; tolls worth 2 on the first: v₁ + 2 = v₂, so 4 and 6."""
    network = traffic.Network(
        [1, 1],
        [2, 2],
        [1.0, 1.0],
        b=1.0,
        toll=[50.0, 0.0],
        length=[1.0, 0.0],
        toll_weight=0.03,
        distance_weight=0.5,
    )
    answer = traffic.user_equilibrium(network, TRIP, relative_gap=1e-12)
    np.testing.assert_allclose(answer.link_flow, [4.0, 6.0], atol=1e-9)
    assert answer.total_travel_time == pytest.approx(4 * 5 + 6 * 7)
    assert answer.objective == pytest.approx(4 + 8 + 6 + 18 + 2 * 4)
    np.testing.assert_allclose(answer.link_cost, 7.0, atol=1e-9)


def test_zero_times_constant_links_and_odd_powers():
    """A free link, a link of constant time, powers 0 and 1/2: Wardrop holds on all."""
    network = traffic.Network(
        init_node=[1, 1, 3, 3, 4, 1],
        term_node=[3, 4, 4, 2, 2, 2],
        free_flow_time=[0.0, 3.0, 0.0, 2.0, 1.0, 9.0],
        capacity=[0.0, 2.0, 1.0, 3.0, 2.0, 0.0],
        b=[0.15, 0.2, 0.0, 0.5, 1.0, 0.0],
        power=[4.0, 0.5, 1.0, 0.0, 2.0, 4.0],
    )
    answer = traffic.user_equilibrium(network, TRIP, relative_gap=1e-10)
    assert answer.success
    assert judged_gap(answer) < 1e-9
    assert_flows_are_trips(answer)


# -- random networks -------------------------------------------------------------------------------------
def random_network(seed, first_thru_node=1):
    rng = np.random.default_rng(seed)
    network, demand = traffic.grid(2, 4, n_pairs=20, congestion=1.5, seed=seed)
    return (
        traffic.replace(
            network,
            b=rng.uniform(0.1, 2.0, network.n_links),
            power=rng.integers(1, 6, network.n_links),
            first_thru_node=first_thru_node,
        ),
        demand,
    )


@pytest.mark.parametrize("seed", range(4))
def test_no_trip_has_a_cheaper_path(seed):
    answer = traffic.user_equilibrium(*random_network(seed), relative_gap=1e-9)
    assert judged_gap(answer) == pytest.approx(answer.relative_gap, abs=1e-12)
    assert judged_gap(answer) <= 1e-9
    assert_flows_are_trips(answer)


def test_beckmann_minimum_by_scipy():
    network, demand = random_network(0)
    chosen = np.arange(0, demand.n_pairs, 4)
    demand = traffic.Demand(demand.origin[chosen], demand.destination[chosen], 3 * demand.volume[chosen])
    routes = [
        (w, links)
        for w in range(demand.n_pairs)
        for links in simple_paths(network, int(demand.origin[w]), int(demand.destination[w]))
    ]
    incidence = np.zeros((len(routes), network.n_links))
    of_pair = np.zeros((demand.n_pairs, len(routes)))
    for p, (w, links) in enumerate(routes):
        incidence[p, links], of_pair[w, p] = 1.0, 1.0
    unit = demand.volume.mean()

    def beckmann(h):
        v = unit * incidence.T @ h
        t0, c, p = network.free_flow_time, network.capacity, network.power
        return float((t0 * v * (1 + network.b / (p + 1) * (v / c) ** p)).sum() / unit)

    found = minimize(
        beckmann,
        of_pair.T @ (demand.volume / unit / of_pair.sum(1)),
        jac=lambda h: incidence @ generalised_cost(network, unit * incidence.T @ h),
        bounds=[(0, None)] * len(routes),
        constraints={
            "type": "eq",
            "fun": lambda h: of_pair @ h - demand.volume / unit,
            "jac": lambda h: of_pair,
        },
        method="SLSQP",
        options={"ftol": 1e-15, "maxiter": 500},
    )
    answer = traffic.user_equilibrium(network, demand, relative_gap=1e-12)
    assert answer.objective == pytest.approx(unit * found.fun, rel=1e-9)
    np.testing.assert_allclose(
        answer.link_flow, unit * incidence.T @ found.x, atol=1e-3 * demand.volume.sum()
    )


def test_nobody_passes_through_a_zone():
    """In a 2×4 grid nodes 1 to 3 may not be passed: the same trips cost more, and no path goes through them."""
    free, closed = random_network(5), random_network(5, first_thru_node=4)
    kept = traffic.user_equilibrium(*closed, relative_gap=1e-9)
    assert judged_gap(kept) <= 1e-9
    assert_flows_are_trips(kept)
    assert kept.objective > traffic.user_equilibrium(*free).objective * 1.001


def test_warm_start_and_stopping_early():
    network, demand = traffic.grid(4, 4, n_pairs=100, seed=1)
    answer = traffic.user_equilibrium(network, demand, relative_gap=1e-10)
    again = traffic.user_equilibrium(network, demand, relative_gap=1e-9, init=answer)
    assert again.iterations == 0
    more = traffic.Demand(demand.origin, demand.destination, 1.02 * demand.volume)
    warm = traffic.user_equilibrium(network, more, relative_gap=1e-10, init=answer)
    cold = traffic.user_equilibrium(network, more, relative_gap=1e-10)
    np.testing.assert_allclose(warm.link_flow, cold.link_flow, rtol=1e-4)
    early = traffic.user_equilibrium(network, demand, relative_gap=1e-10, max_rounds=1)
    assert not early.success
    assert "Stopped after 1 rounds" in early.message
    assert early.relative_gap > 1e-10
    with pytest.raises(InputError, match="init is an answer for other links or pairs"):
        traffic.user_equilibrium(*traffic.braess(), init=answer)


# -- capacities and learning, through MisspecifiedVI and solve ------------------------------------------------
def test_bridge_with_a_capacity(monkeypatch):
    """At most u = 1 over the bridge: the others share 5, everyone pays 83 + 4.5u, and the toll is 13 − 6.5u."""
    traced, link_flows = [], costs.link_flows
    monkeypatch.setattr(costs, "link_flows", lambda *given: traced.append(1) or link_flows(*given))
    network, trips = traffic.braess()
    answer = traffic.user_equilibrium(network, trips, relative_gap=1e-9, link_capacities={(3, 4): 1.0})
    np.testing.assert_allclose(answer.link_flow, [3.5, 2.5, 2.5, 1.0, 3.5], atol=1e-6)
    np.testing.assert_allclose(answer.multiplier, [0, 0, 0, 6.5, 0], atol=1e-5)
    assert [path.cost for path in answer.paths(1, 2)] == pytest.approx([87.5] * 3, abs=1e-5)
    assert judged_gap(answer, answer.multiplier) < 1e-8
    assert answer.solution.status is vv.Status.solved
    assert answer.problem.constraint_names == ("capacity[3→4]",)
    # The toll is a price: charged as a toll, it brings the same flows about without the capacity.
    tolled = traffic.replace(network, toll=answer.multiplier, toll_weight=1.0)
    free = traffic.user_equilibrium(tolled, trips, relative_gap=1e-12)
    np.testing.assert_allclose(free.link_flow, answer.link_flow, atol=1e-5)
    assert traced
    traced.clear()
    loose = traffic.user_equilibrium(
        network, trips, relative_gap=1e-9, link_capacities={(3, 4): 3.0}, init=answer
    )
    np.testing.assert_allclose(loose.link_flow, [4, 2, 2, 2, 4], atol=1e-5)
    np.testing.assert_allclose(loose.multiplier, 0.0, atol=1e-6)
    assert not traced  # another capacity and other flows of the same padded size: nothing is compiled again


OBSERVED = np.random.default_rng(3)
LINKS = OBSERVED.integers(0, 3, 30)
FLOWS = OBSERVED.uniform(1.0, 8.0, 30)
TIMES = (
    parallel().free_flow_time[LINKS]
    + np.array([0.5, 0.25, 0.125])[LINKS] * FLOWS
    + OBSERVED.normal(0, 0.1, 30)
)
KINDS = np.array(["street", "street", "road"])


def fitted(labels):
    """Least squares of time − t0 on t0·v, one B per label, by NumPy."""
    names = np.unique(labels)
    A = (labels[LINKS][:, None] == names) * (parallel().free_flow_time[LINKS] * FLOWS)[:, None]
    return np.linalg.lstsq(A, TIMES - parallel().free_flow_time[LINKS], rcond=None)[0], names


def test_learned_coefficients_and_tolls():
    """θ is the least-squares fit, and the equilibrium is that of the fitted times under the capacity."""
    network = traffic.replace(parallel(), b=1.0)  # a first guess that is wrong
    theta, names = fitted(KINDS)
    cap = {0: 3.0, 1: 3.0, 2: 9.0}
    answer = traffic.user_equilibrium(
        network,
        TRIP,
        relative_gap=1e-9,
        link_times=(LINKS, FLOWS, TIMES),
        b_classes=KINDS,
        link_capacities=cap,
    )
    np.testing.assert_allclose(answer.theta, theta, rtol=1e-7)
    b = theta[np.searchsorted(names, KINDS)]
    np.testing.assert_allclose(answer.b, b, rtol=1e-7)
    # Free costs 1, 2, 4: both streets are at their capacity and the third takes 4 at the highest price.
    np.testing.assert_allclose(answer.link_flow, [3.0, 3.0, 4.0], atol=1e-6)
    time = network.free_flow_time * (1 + b * np.array([3.0, 3.0, 4.0]))
    np.testing.assert_allclose(answer.link_time, time, atol=1e-5)
    np.testing.assert_allclose(answer.multiplier, time[2] - time, atol=1e-5)
    assert (answer.multiplier[:2] > 0).all()
    assert answer.certify(tol=1e-7).holds


def test_one_common_coefficient_from_a_table():
    network = traffic.replace(parallel(), b=1.0)
    theta, _ = fitted(np.array(["all", "all", "all"]))
    table = {"link": LINKS, "flow": FLOWS, "time": TIMES}
    answer = traffic.user_equilibrium(network, TRIP, relative_gap=1e-10, link_times=table)
    np.testing.assert_allclose(answer.theta, theta, rtol=1e-7)
    known = traffic.user_equilibrium(traffic.replace(network, b=theta[0]), TRIP, relative_gap=1e-12)
    np.testing.assert_allclose(answer.link_flow, known.link_flow, atol=1e-5)
    assert answer.solution.success
    array = traffic.user_equilibrium(
        network, TRIP, relative_gap=1e-10, link_times=np.column_stack([LINKS, FLOWS, TIMES]), init=answer
    )
    np.testing.assert_allclose(array.theta, theta, rtol=1e-7)


def test_too_little_capacity_is_proved():
    with pytest.raises(InputError, match=r"no flow within them carries all trips \(proved by tolls on 1→2"):
        traffic.user_equilibrium(parallel(), TRIP, link_capacities=3.0)
    graph = paths.Graph(parallel(), TRIP)
    assert capacities.prove_too_little(graph, np.full(3, 3.0), np.ones(3))
    assert not capacities.prove_too_little(graph, np.full(3, 4.0), np.ones(3))


def test_slope_and_primitive_belong_to_the_time():
    network, _ = random_network(2)
    bpr, v, step = BPR(network), network.capacity * 0.7, 1e-3
    b = network.b
    np.testing.assert_allclose(
        bpr.slope(v, b), (bpr.time(v + step, b) - bpr.time(v - step, b)) / (2 * step), rtol=1e-6
    )
    np.testing.assert_allclose(
        bpr.time(v, b), (bpr.primitive(v + step, b) - bpr.primitive(v - step, b)) / (2 * step), rtol=1e-6
    )


# -- the reader ------------------------------------------------------------------------------------------
NET = """<NUMBER OF ZONES> 2
<NUMBER OF NODES>   4
<FIRST THRU NODE> 3 ~ zones 1 and 2 are not passed
<number of links>\t5
<TOLL FACTOR> 0.02
<DISTANCE FACTOR> 0.04
<ORIGINAL HEADER>~ \tInit node ;
<END OF METADATA>

~ \tInit node \tTerm node \tCapacity \tLength \tFree Flow Time \tB\tPower\tSpeed limit \tToll \tType\t;
\t1\t3\t25900.20064\t6\t6.0\t0.15\t4\t0\t100\t1\t;

   3 2 4.9e3 5 0 .15 4 25 0 2;
~ a comment between links
3,4,0,1,2,0,4,0,0,3 ;
4 2 1000 1 1 0.15 4
\t1\t4\t0\t1\t7\t0.15\t4\t0\t0\t1\t;\t~ closed
"""
TRIPS = """<NUMBER OF ZONES> 2
<TOTAL OD FLOW>   106.5
<END OF METADATA>

Origin  1
    1 :      5.0;     2 :    100.0;

Origin 2
~ nothing comes back but this
1 , 1.5 ; 2 : 0
"""


def test_reader_on_a_tricky_file(tmp_path):
    (tmp_path / "city_net.tntp").write_bytes(b"\xef\xbb\xbf" + NET.replace("\n", "\r\n").encode())
    (tmp_path / "city_trips.tntp").write_text(TRIPS)
    network, demand = traffic.load(tmp_path / "city_net.tntp", str(tmp_path / "city_trips.tntp"))
    assert (network.n_nodes, network.n_links, network.first_thru_node) == (4, 5, 3)
    assert network.capacity.tolist() == [25900.20064, 4900.0, 0.0, 1000.0, 0.0]
    assert network.free_flow_time.tolist() == [6.0, 0.0, 2.0, 1.0, 7.0]
    assert network.speed.tolist() == [0.0, 25.0, 0.0, 0.0, 0.0]
    assert network.link_type.tolist() == [1, 2, 3, 1, 1]
    assert network.closed.tolist() == [False, False, False, False, True]
    np.testing.assert_allclose(network.fixed_cost, [2.24, 0.2, 0.04, 0.04, 0.04])
    assert (demand.origin.tolist(), demand.destination.tolist(), demand.volume.tolist()) == (
        [1, 2],
        [2, 1],
        [100.0, 1.5],
    )
    assert demand.intrazonal == 5.0
    opened, _ = traffic.load(
        io.StringIO(NET), TRIPS, toll_weight=0.0, distance_weight=1.0, zero_capacity="uncongested"
    )
    assert not opened.closed.any()
    np.testing.assert_allclose(opened.fixed_cost, opened.length)
    one_way = TRIPS.replace("1 , 1.5", "1 , 0").replace("106.5", "105")
    answer = traffic.user_equilibrium(NET, one_way, relative_gap=1e-12)
    np.testing.assert_allclose(answer.link_flow, [100, 100, 0, 0, 0])


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("6.0\t0.15", "six\t0.15", r"text, line 11: expected a number for free_flow_time, found 'six'"),
        ("6.0\t0.15", "nan\t0.15", r"line 11: expected a number for free_flow_time, found 'nan'"),
        (
            "4 2 1000 1 1 0.15 4",
            "4 2 1000",
            r"line 16: expected 7 to 10 numbers \(init_node, .*\), found '3: 4 2 1000'",
        ),
        ("3,4,0", "3.5,4,0", r"line 15: expected a whole number for init_node, found '3.5'"),
        ("3,4,0", "3,9,0", r"line 15: expected nodes from 1 to 4, found '9'"),
        ("4.9e3", "-4.9e3", r"line 13: expected capacity of at least 0, found '-4.9e3'"),
        ("links>\t5", "links>\t6", r"<NUMBER OF LINKS> says 6, but 5 link lines follow"),
        (
            "links>\t5",
            "links>\tfive",
            r"line 4: expected a whole number after <NUMBER OF LINKS>, found 'five'",
        ),
        ("Capacity \tLength", "Length \tCapacity", r"line 10: expected the fields in the order init_node"),
    ],
)
def test_malformed_network_lines_are_named(old, new, sentence):
    assert old in NET
    with pytest.raises(InputError, match=sentence):
        traffic.read_network(NET.replace(old, new))


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("100.0;", "many;", r"text, line 6: expected a number of trips, found 'many'"),
        ("100.0;", "-100.0;", r"line 6: expected a number of trips that is at least 0, found '-100.0'"),
        (
            "2 :    100.0",
            "2    100.0",
            r"line 6: expected entries `destination : trips;`, found '2    100.0'",
        ),
        ("2 :    100.0", "3 :    100.0", r"line 6: expected the number of a zone, 1 to 2, found '3'"),
        (
            "2 :    100.0",
            "1 :    100.0",
            r"line 6: expected each pair once, found 1→1 again \(first on line 6\)",
        ),
        ("Origin  1\n", "\n", r"line 6: expected a line `Origin n` before the first destination"),
        ("Origin 2", "Origin", r"line 8: expected `Origin` and the number of its zone, found 'Origin'"),
        ("Origin 2", "Origin two", r"line 8: expected the number of a zone, 1 to 2, found 'two'"),
    ],
)
def test_malformed_trip_lines_are_named(old, new, sentence):
    assert old in TRIPS
    with pytest.raises(InputError, match=sentence):
        traffic.read_trips(TRIPS.replace(old, new))


def test_file_names_are_in_the_sentences(tmp_path):
    bad = tmp_path / "bad_net.tntp"
    bad.write_text("1 2 oops 1 1 1 1;\n")
    with pytest.raises(
        InputError, match=r"bad_net\.tntp, line 1: expected a number for capacity, found 'oops'"
    ):
        traffic.load(bad, TRIPS)
    with pytest.raises(InputError, match=r"no_such_net\.tntp cannot be read"):
        traffic.load(tmp_path / "no_such_net.tntp", TRIPS)
    with pytest.raises(InputError, match="there is no link line"):
        traffic.read_network("<NUMBER OF ZONES> 3\n<END OF METADATA>\n")
    with pytest.raises(InputError, match="there are no trips"):
        traffic.read_trips("<END OF METADATA>\n")
    with pytest.raises(InputError, match="net is int; a path, an open file or the text"):
        traffic.load(3, TRIPS)
    with pytest.raises(InputError, match="zero_capacity is 'open'"):
        traffic.load(NET, TRIPS, zero_capacity="open")
    with pytest.warns(UserWarning, match="<TOTAL OD FLOW> says 200, but the trips add up to 106.5"):
        traffic.read_trips(TRIPS.replace("  106.5", "  200"))


def test_disconnected_pairs_are_named():
    with pytest.raises(
        InputError, match=r"no path leads from 2 to 1 \(1 of 2 pairs .*1 links of capacity 0 are closed"
    ):
        traffic.user_equilibrium(NET, TRIPS)
    with pytest.raises(InputError, match=r"destination 7 of the pair 1→7 is not a node"):
        traffic.user_equilibrium(parallel(), traffic.Demand([1], [7], [1.0]))


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"relative_gap": 0.0}, "relative_gap is 0.0"),
        ({"max_rounds": 0}, "max_rounds is 0"),
        ({"link_capacities": [1.0, 2.0]}, r"link_capacities has shape \(2,\)"),
        ({"link_capacities": {(2, 1): 1.0}}, "there is no link 2→1"),
        ({"link_capacities": {(1, 2): 1.0}}, "there are 3 links 1→2"),
        ({"link_capacities": {7: 1.0}}, "7 is not a link"),
        ({"link_capacities": -1.0}, "-1 on link 1→2"),
        ({"link_times": [[0, 1.0]]}, r"link_times has shape \(1, 2\)"),
        ({"link_times": ([0], [1.0], [])}, "1 links, 1 flows and 0 times"),
        ({"link_times": ([3], [1.0], [1.0])}, "link 3 .* is not a link"),
        ({"link_times": ([0], [-1.0], [1.0])}, "flow is -1 in row 0"),
        ({"link_times": ([0], [0.0], [1.0])}, "no congestible link was observed with flow"),
        ({"link_times": ([0], [1.0], [2.0]), "b_classes": [1, 1, 2]}, "no congestible link of class 2"),
        ({"link_times": ([0], [1.0], [2.0]), "b_classes": "kind"}, "b_classes is 'kind'"),
        ({"link_times": ([0], [1.0], [2.0]), "b_classes": [1]}, r"b_classes has shape \(1,\)"),
        ({"link_times": {"flow": [1.0], "time": [1.0]}}, "either link or init_node and term_node are needed"),
    ],
)
def test_arguments_are_refused_in_sentences(arguments, sentence):
    with pytest.raises(InputError, match=sentence):
        traffic.user_equilibrium(parallel(), TRIP, **arguments)


@pytest.mark.parametrize(
    ("build", "sentence"),
    [
        (lambda: traffic.Network([1], [2], [-1.0]), "free_flow_time is negative at 1 of 1 links"),
        (lambda: traffic.Network([1.5], [2], [1.0]), "init_node holds 1.5; whole numbers"),
        (lambda: traffic.Network([1], [2], [1.0], n_nodes=1), "term_node is 2 at link 0; nodes are 1 to 1"),
        (lambda: traffic.Network([1], [2], [1.0], toll=-5.0, toll_weight=1.0), "cost -5 on link 1→2"),
        (lambda: traffic.Network([1], [2], [1.0], capacity=[1.0, 2.0]), r"capacity has shape \(2,\)"),
        (lambda: traffic.Demand([1], [2], [-1.0]), "volume is -1 for the pair 1→2"),
        (lambda: traffic.Demand([1], [1], [1.0]), "no pair of different zones has trips"),
        (lambda: traffic.Demand([1, 1], [2, 2], [1.0, 1.0]), "the pair 1→2 is given more than once"),
        (lambda: traffic.grid(1, 5), "at least 2×2"),
    ],
)
def test_data_is_refused_in_sentences(build, sentence):
    with pytest.raises(InputError, match=sentence):
        build()


def test_scipy_is_asked_for_only_when_needed(monkeypatch):
    monkeypatch.setitem(sys.modules, "scipy", None)
    network, trips = traffic.braess()
    with pytest.raises(MissingExtra, match="needs scipy"):
        traffic.user_equilibrium(network, trips)


def test_growing_columns_keep_their_shapes():
    """Widths and lengths are powers of two, and padding carries nothing."""
    network, demand = traffic.grid(3, 3, n_pairs=12, congestion=2.0)
    answer = traffic.user_equilibrium(network, demand)
    links, mask, flow = answer.columns.padded()
    assert all(size & (size - 1) == 0 for size in links.shape[1:])
    assert (links[~mask] == network.n_links).all()
    assert (flow[~mask] == 0).all()
    np.testing.assert_allclose(flow.sum(1), demand.volume)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        problem = answer.problem
    with vv.precision.double():
        F = problem.at(jnp.asarray(problem.learning.set.interior_point())).F
        found = np.asarray(F(jnp.asarray(flow)))[mask]
    np.testing.assert_allclose(
        np.sort(found), np.sort(answer.columns.incidence @ answer.link_cost), rtol=1e-10
    )
