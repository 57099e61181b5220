"""Read road networks and trip tables in the TNTP text format, as published for real cities.

A file begins with `<TAG> value` lines and `<END OF METADATA>`; `~` begins a comment; a network has one link per line, ended
by `;`; a trip table has `Origin n` lines, each followed by `destination : trips;` entries. (Format: Transportation Networks
for Research, github.com/bstabler/TransportationNetworks.)
"""

from __future__ import annotations

import re
import warnings
from os import PathLike, fspath
from typing import Any, NamedTuple

import numpy as np

from viceversa.errors import InputError
from viceversa.gallery.traffic.network import Demand, Network, check_zones, replace

FIELDS = "init_node term_node capacity length free_flow_time b power speed toll link_type".split()
_NEEDED = 7  # up to the power; speed, toll and type are missing in some files
_TAG = re.compile(r"<([^>]+)>(.*)")
_ENTRY = re.compile(r"^(\S+?)\s*[:,]\s*(\S+)$")
# Words that a header of the standard order has, in this order.
_IN_ORDER = ("capacity", "length", "free", "power", "toll")
_TOTAL_AGREES = 1e-3  # published totals are rounded


class Line(NamedTuple):
    """One line that says something: its number in the file, and its text without comment and blanks."""

    number: int
    text: str


class Source(NamedTuple):
    """The lines of one file after its metadata."""

    name: str
    tags: dict[str, tuple[int, str]]
    lines: list[Line]

    def wrong(self, number: int, expected: str, found: str) -> InputError:
        """The sentence for a line that is not what it should be."""
        return InputError(f"{self.name}, line {number}: expected {expected}, found {found!r}.")

    def tag(self, tag: str, kind: type, default: Any) -> Any:
        """The value of a metadata tag, of type `kind`."""
        if tag not in self.tags:
            return default
        number, text = self.tags[tag]
        try:
            return kind(text)
        except ValueError:
            what = "a whole number" if kind is int else "a number"
            raise self.wrong(number, f"{what} after <{tag}>", text) from None


def load(
    net: Any,
    trips: Any,
    *,
    toll_weight: float | None = None,
    distance_weight: float | None = None,
    zero_capacity: str = "closed",
) -> tuple[Network, Demand]:
    """A network and its trips from TNTP files: paths, open files, or the text itself.

    The weights of toll and distance in a link's cost are published beside the files; give them here, or as `<TOLL FACTOR>`
    and `<DISTANCE FACTOR>` in the file. A link of capacity 0 whose time depends on it is `"closed"`, or `"uncongested"`
    where 0 means that no capacity was counted.

    Example:
        >>> import viceversa as vv
        >>> net = "~ one link, 5 minutes when empty\\n1 2 100 1 5 0.15 4 0 0 1 ;\\n"
        >>> vv.gallery.traffic.load(net, "Origin 1\\n 2 : 80.0;\\n")
        (Network(text: 2 nodes, 1 links), Demand(1 pairs, 80 trips))
    """
    if zero_capacity not in ("closed", "uncongested"):
        raise InputError(f"load: zero_capacity is {zero_capacity!r}; 'closed' or 'uncongested' is needed.")
    network = read_network(net, toll_weight, distance_weight)
    if zero_capacity == "uncongested":
        network = replace(network, b=np.where(network.capacity == 0, 0.0, network.b))
    demand = read_trips(trips)
    check_zones(network, demand)
    return network, demand


def read_network(net: Any, toll_weight: float | None = None, distance_weight: float | None = None) -> Network:
    """The network file alone."""
    source = _read("net", net)
    rows = [_link(source, line) for line in source.lines]
    if not rows:
        raise InputError(f"{source.name}: there is no link line. Each has {', '.join(FIELDS)}, ended by `;`.")
    n_links = source.tag("NUMBER OF LINKS", int, len(rows))
    if n_links != len(rows):
        raise InputError(
            f"{source.name}: <NUMBER OF LINKS> says {n_links}, but {len(rows)} link lines follow. "
            "The file is cut off or the number is wrong."
        )
    table = np.array(rows)
    columns = {field: table[:, at] for at, field in enumerate(FIELDS)}
    n_nodes = source.tag("NUMBER OF NODES", int, int(table[:, :2].max()))
    for at, line in enumerate(source.lines):
        for node in table[at, :2]:
            if not 1 <= node <= n_nodes:
                raise source.wrong(line.number, f"nodes from 1 to {n_nodes}", f"{node:.0f}")
    file_toll, file_distance = (
        source.tag("TOLL FACTOR", float, 0.0),
        source.tag("DISTANCE FACTOR", float, 0.0),
    )
    return Network(
        **columns,
        n_nodes=n_nodes,
        first_thru_node=source.tag("FIRST THRU NODE", int, 1),
        toll_weight=float(file_toll if toll_weight is None else toll_weight),
        distance_weight=float(file_distance if distance_weight is None else distance_weight),
        name=source.name,
    )


def read_trips(trips: Any) -> Demand:
    """The trip table alone."""
    source = _read("trips", trips)
    n_zones = source.tag("NUMBER OF ZONES", int, None)
    seen: dict[tuple[int, int], int] = {}
    volumes: list[float] = []
    origin = None
    for line in source.lines:
        text = line.text
        words = text.split(None, 2)
        if words[0].lower() == "origin":
            if len(words) == 1:
                raise source.wrong(line.number, "`Origin` and the number of its zone", text)
            origin = _zone(source, line, words[1], n_zones)
            text = words[2] if len(words) == 3 else ""
        for entry in filter(None, (part.strip() for part in text.split(";"))):
            match = _ENTRY.match(entry)
            if match is None:
                raise source.wrong(line.number, "entries `destination : trips;`", entry)
            if origin is None:
                raise source.wrong(line.number, "a line `Origin n` before the first destination", entry)
            pair = (origin, _zone(source, line, match[1], n_zones))
            volume = _number(source, line, match[2], "a number of trips")
            if volume < 0:
                raise source.wrong(line.number, "a number of trips that is at least 0", match[2])
            if pair in seen:
                raise InputError(
                    f"{source.name}, line {line.number}: expected each pair once, found {pair[0]}→{pair[1]} again "
                    f"(first on line {seen[pair]})."
                )
            seen[pair] = line.number
            volumes.append(volume)
    if not seen:
        raise InputError(f"{source.name}: there are no trips. After `Origin n` come `destination : trips;`.")
    total = source.tag("TOTAL OD FLOW", float, None)
    if total is not None and abs(total - sum(volumes)) > _TOTAL_AGREES * max(abs(total), sum(volumes)):
        warnings.warn(
            f"{source.name}: <TOTAL OD FLOW> says {total:g}, but the trips add up to {sum(volumes):g}. "
            "The file may be cut off.",
            stacklevel=3,
        )
    pairs = np.array(list(seen))
    return Demand(pairs[:, 0], pairs[:, 1], np.array(volumes))


def _read(argument: str, given: Any) -> Source:
    """Metadata and lines of a path, an open file, or a text (anything with a line break)."""
    if hasattr(given, "read"):
        name, text = str(getattr(given, "name", argument)), given.read()
    elif isinstance(given, str) and ("\n" in given or not given.strip()):
        name, text = "text", given
    elif isinstance(given, (str, PathLike)):
        name = str(fspath(given))
        try:
            with open(name, "rb") as file:
                text = file.read()
        except OSError as error:
            raise InputError(f"{argument}: {name} cannot be read ({error.strerror}).") from None
    else:
        raise InputError(
            f"{argument} is {type(given).__name__}; a path, an open file or the text of a TNTP file is needed."
        )
    if isinstance(text, bytes):
        text = text.decode("utf-8-sig", errors="replace")
    return _split(name, text)


def _split(name: str, text: str) -> Source:
    source = Source(name, {}, [])
    for number, raw in enumerate(re.split(r"\r\n|\r|\n", text), start=1):
        _check_header(source, number, raw)
        said = raw.split("~", 1)[0].strip()
        match = _TAG.match(said)
        if match:
            source.tags[" ".join(match[1].upper().split())] = (number, match[2].strip().rstrip(";").strip())
        elif said.strip("; \t"):
            source.lines.append(Line(number, said))
    return source


def _check_header(source: Source, number: int, raw: str) -> None:
    """A `~` line that names the fields in another order than the standard one would be misread silently."""
    where = [raw.lower().find(word) for word in _IN_ORDER]
    if raw.lstrip().startswith("~") and min(where) >= 0 and where != sorted(where):
        raise source.wrong(number, f"the fields in the order {', '.join(FIELDS)}", raw.strip())


def _link(source: Source, line: Line) -> list[float]:
    words = line.text.rstrip("; \t").replace(",", " ").split()
    if not _NEEDED <= len(words) <= len(FIELDS):
        needed = f"{_NEEDED} to {len(FIELDS)} numbers ({', '.join(FIELDS)})"
        raise source.wrong(line.number, needed, f"{len(words)}: {line.text}")
    numbers = [_number(source, line, word, f"a number for {FIELDS[at]}") for at, word in enumerate(words)]
    for at in (0, 1):
        if numbers[at] != int(numbers[at]):
            raise source.wrong(line.number, f"a whole number for {FIELDS[at]}", words[at])
    for at in range(2, _NEEDED):
        if numbers[at] < 0:
            raise source.wrong(line.number, f"{FIELDS[at]} of at least 0", words[at])
    return numbers + [0.0, 0.0, 1.0][len(words) - _NEEDED :]


def _number(source: Source, line: Line, word: str, expected: str) -> float:
    try:
        number = float(word)
    except ValueError:
        raise source.wrong(line.number, expected, word) from None
    if not np.isfinite(number):
        raise source.wrong(line.number, expected, word)
    return number


def _zone(source: Source, line: Line, word: str, n_zones: int | None) -> int:
    expected = "the number of a zone" + ("" if n_zones is None else f", 1 to {n_zones}")
    if not word.isdigit() or int(word) < 1 or (n_zones is not None and int(word) > n_zones):
        raise source.wrong(line.number, expected, word)
    return int(word)
