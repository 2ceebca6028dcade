"""The map of a cluster: a tile per node with its GPUs and users, or for many nodes, racks of nodes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from gpumon.analysis.thresholds import PAUSE
from gpumon.cluster.client import Answers
from gpumon.cluster.model import Node, natural_key
from gpumon.cluster.queries import SMALL
from gpumon.common.numbers import is_known
from gpumon.model import units
from gpumon_web.cluster.words import percent
from gpumon_web.components.page import Cells

_RACK = 20
"""Nodes per column if racks cannot be derived from the names."""
_COLUMNS = (3, 120)
"""Least and most racks for which racks are derived from the names."""
_DIGITS = 9
"""Digits of a node's number that are used."""
_LAST_NUMBER = re.compile(r"^(.*?)(\d+)(\D*)$", re.ASCII | re.DOTALL)
_HOST = re.compile(r"^[\w-]+(\.[\w-]+)*(:\d+)?$", re.ASCII)
"""Host name, optionally with a port. Other names are not shortened, as any letter may be significant."""
_STATES = ("busy", "held_idle", "unknown", "lost", "free")
"""States in the order of their cells in a node."""


def node_map(nodes: Sequence[Node], answers: Answers) -> Cells | None:
    """Return the data that the script draws; None if no node is known."""
    if not nodes:
        return None
    if len(nodes) <= SMALL:
        return {"tiles": tiles(nodes, answers)}
    racks = _racks([node.name for node in nodes])
    cells = {node.name: _cells(node) for node in nodes}
    return {"racks": [{"name": name, "nodes": [cells.get(one) for one in members]} for name, members in racks.items()]}


def labels(names: Sequence[str]) -> Mapping[str, str]:
    """Return names without port and domain, unless they become ambiguous or bare numbers."""
    found = {name: name for name in names}
    for mark in (":", "."):
        shorter = {name: label.partition(mark)[0] if _HOST.match(label) else label for name, label in found.items()}
        if len(set(shorter.values())) == len(names) and not any(map(str.isdigit, shorter.values())):
            found = shorter
    return found


def _cells(node: Node) -> list[object]:
    """Return a node as a list: name, GPUs by state, utilization (percent), seconds silent, and number of GPUs.

    Followed by 1 if it may have been silent for longer.
    """
    counts = [node.count(state) for state in _STATES]
    used = round(100 * node.busy) if is_known(node.busy) else None
    return [node.name, *counts, used, round(node.silent), node.total, *([1] if node.is_undated else ())]


def _racks(names: Sequence[str]) -> Mapping[str, Sequence[str]]:
    """Group nodes by rack, if the names imply a plausible number of racks, else in columns of equal length.

    In a rack the position of a node is its number; a missing node leaves its slot empty.
    """
    found: dict[str, list[str]] = {}
    slots: dict[str, int] = {}
    short = labels(names)
    for name in sorted(names, key=natural_key):
        parts = _LAST_NUMBER.match(short[name])
        found.setdefault(parts[1] if parts else name, []).append(name)
        slots[name] = int(parts[2][-_DIGITS:]) if parts else 0
    if _COLUMNS[0] <= len(found) <= _COLUMNS[1] and 2 * len(found) <= len(names):
        first = min(slots.values())
        return {name.rstrip("-_. n"): _placed(members, slots, first) for name, members in found.items()}
    every = sorted(names, key=natural_key)
    return {short[every[at]]: every[at : at + _RACK] for at in range(0, len(every), _RACK)}


def _placed(members: Sequence[str], slots: Mapping[str, int], first: int) -> Sequence[str]:
    """Return the nodes of a rack with empty names for missing slots; unchanged if numbers are no positions."""
    places = [slots[name] - first for name in members]
    if len(set(places)) < len(members) or max(places) >= 2 * len(members):
        return members
    by_place = dict(zip(places, members, strict=True))
    return [by_place.get(place, "") for place in range(max(places) + 1)]


def tiles(nodes: Sequence[Node], answers: Answers) -> list[Cells]:
    """Return a tile for each node with the state, user and utilization of each GPU."""
    slots = gpu_slots(answers)
    short = labels([node.name for node in nodes])
    return [_tile(node, slots.get(node.name, {})) | {"label": short[node.name]} for node in nodes]


def gpu_slots(answers: Answers, prefix: str = "gpu_", suffix: str = "") -> dict[str, dict[str, Cells]]:
    """Return the GPUs by node and number, from the queries about single GPUs."""
    found: dict[str, dict[str, Cells]] = {}

    def slot(labels: Mapping[str, str]) -> Cells:
        here = found.setdefault(labels.get("instance", ""), {})
        nothing = {"is_told": False, "model": "", "users": [], "used": None, "idle": None, "why": ""}
        return here.setdefault(labels.get("gpu", ""), nothing)

    for row in answers.get(f"{prefix}info{suffix}", ()):
        slot(row.labels).update(is_told=True, model=row.labels.get("model", ""))
    for row in answers.get(f"{prefix}users{suffix}", ()):
        slot(row.labels)["users"].append(row.labels.get("user", ""))
    for row in answers.get(f"{prefix}used{suffix}", ()):
        one = slot(row.labels)
        one["used"] = row.value if one["is_told"] else None  # a mean over minutes remains after the GPU is gone
    for row in answers.get(f"{prefix}idle{suffix}", ()):
        slot(row.labels)["idle"] = row.value
    for row in answers.get(f"{prefix}silent{suffix}", ()):
        slot(row.labels)["why"] = row.labels.get("reason", "") or "unknown"
    return found


def states(node: Node, slots: Mapping[str, Cells]) -> dict[str, str]:
    """Return the state of each GPU of a node by its number.

    The exporter reports only how many GPUs of a node are free, not which. Idle GPUs without a known holder are the free
    ones if there are not more of them; otherwise any of them may have a holder that the node cannot see.
    """
    found = {number: _state(slot) for number, slot in slots.items()}
    if list(found.values()).count("free") > node.count("free"):
        found = {number: "unknown" if state == "free" else state for number, state in found.items()}
    return found


def _state(slot: Cells) -> str:
    """Return the state of a GPU from its own data alone."""
    if slot["why"]:
        return "lost"
    if not slot["is_told"]:
        return "unknown"
    if not slot["users"]:
        return "free" if slot["idle"] is not None else "unknown"
    return "held_idle" if slot["idle"] is not None and slot["idle"] > PAUSE else "busy"


def _tile(node: Node, slots: Mapping[str, Cells]) -> Cells:
    """Return the tile of a node; without data of single GPUs, from the number of GPUs in each state."""
    if node.silent:
        least = "≥ " if node.is_undated else ""
        return {
            "name": node.name,
            "word": f"silent {least}{units.long_duration(node.silent)}",
            "level": "silent",
            "gpus": [],
        }
    if slots:
        by_number = states(node, slots)
        gpus = [_bar(number, slots[number], by_number[number]) for number in sorted(slots, key=natural_key)]
    else:
        used = round(node.busy, 2) if is_known(node.busy) else None
        gpus = [
            ["", state, "", used if state == "busy" else None] for state in _STATES for _ in range(node.count(state))
        ]
    lost, free, unknown = (node.count(state) for state in ("lost", "free", "unknown"))
    if lost:
        return {"name": node.name, "word": f"{lost} lost", "level": "lost", "gpus": gpus}
    if unknown or not node.total:
        return {"name": node.name, "word": f"{unknown or ''} unknown".strip(), "level": "", "gpus": gpus}
    if free:
        word = f"all {free} free" if free == node.total else f"{free} free"
        return {"name": node.name, "word": word, "level": "free" if free == node.total else "some", "gpus": gpus}
    return {"name": node.name, "word": percent(node.busy), "level": "", "gpus": gpus}


def _bar(number: str, slot: Cells, state: str) -> list[object]:
    used = slot["used"]
    return [number, state, (slot["users"] or [""])[0], None if used is None else round(min(1.0, used), 2)]
