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
from gpumon_web.cluster.data import percent
from gpumon_web.components.page import Cells

_RACK = 20
"""Nodes per column if racks cannot be derived from the names."""
_COLUMNS = (3, 120)
"""Minimum and maximum number of racks for which racks are derived from the names."""
_DIGITS = 9
"""Digits of a node's number that are used."""
_LAST_NUMBER = re.compile(r"^(.*?)(\d+)(\D*)$", re.ASCII | re.DOTALL)
_HOST = re.compile(r"^[\w-]+(\.[\w-]+)*(:\d+)?$", re.ASCII)
"""Host name, optionally with a port. Other names are not shortened, as any letter may be significant."""
_STATES = ("busy", "held_idle", "unknown", "lost", "free")
"""States in the order of their cells in a node."""


def node_map(nodes: Sequence[Node], answers: Answers) -> Cells | None:
    """Return the data of the map: `tiles`, or `racks` for many nodes. None if there are no nodes."""
    if not nodes:
        return None
    if len(nodes) <= SMALL:
        return {"tiles": tiles(nodes, answers)}
    racks = _racks([node.name for node in nodes])
    cells = {node.name: _cells(node) for node in nodes}
    return {"racks": [{"name": name, "nodes": [*map(cells.get, members)]} for name, members in racks.items()]}


def labels(names: Sequence[str]) -> Mapping[str, str]:
    """Return names without port and domain, unless they become ambiguous or bare numbers."""
    shortened = {name: name for name in names}
    for mark in (":", "."):
        shorter = {name: label.partition(mark)[0] if _HOST.match(label) else label for name, label in shortened.items()}
        if len(set(shorter.values())) == len(names) and not any(map(str.isdigit, shorter.values())):
            shortened = shorter
    return shortened


def _cells(node: Node) -> list[object]:
    """Return a node as a list: name, GPUs by state, utilization (percent), seconds silent, and number of GPUs.

    A node that may have been silent for longer has a 1 at the end of the list.
    """
    counts = [node.count(state) for state in _STATES]
    utilization = round(100 * node.busy) if is_known(node.busy) else None
    return [node.name, *counts, utilization, round(node.silent), node.total, *([1] if node.is_undated else ())]


def _racks(names: Sequence[str]) -> Mapping[str, Sequence[str]]:
    """Group nodes by rack, if the names imply a plausible number of racks, else in columns of equal length.

    In a rack the position of a node is its number; a missing node leaves its slot empty.
    """
    racks: dict[str, list[str]] = {}
    slots: dict[str, int] = {}
    short = labels(names)
    for name in sorted(names, key=natural_key):
        parts = _LAST_NUMBER.match(short[name])
        racks.setdefault(parts[1] if parts else name, []).append(name)
        slots[name] = int(parts[2][-_DIGITS:]) if parts else 0
    if _COLUMNS[0] <= len(racks) <= _COLUMNS[1] and 2 * len(racks) <= len(names):
        first = min(slots.values())
        return {name.rstrip("-_. n"): _fill_slots(members, slots, first) for name, members in racks.items()}
    ordered = sorted(names, key=natural_key)
    return {short[ordered[index]]: ordered[index : index + _RACK] for index in range(0, len(ordered), _RACK)}


def _fill_slots(members: Sequence[str], slots: Mapping[str, int], first: int) -> Sequence[str]:
    """Return the nodes of a rack, with empty names for missing slots.

    The list is unchanged if the numbers in the names are not plausible as positions.
    """
    positions = [slots[name] - first for name in members]
    if len(set(positions)) < len(members) or max(positions) >= 2 * len(members):
        return members
    by_position = dict(zip(positions, members, strict=True))
    return [by_position.get(position, "") for position in range(max(positions) + 1)]


def tiles(nodes: Sequence[Node], answers: Answers) -> list[Cells]:
    """Return a tile for each node with the state, user and utilization of each GPU."""
    slots = gpu_slots(answers)
    short = labels([node.name for node in nodes])
    return [_tile(node, slots.get(node.name, {})) | {"label": short[node.name]} for node in nodes]


def gpu_slots(answers: Answers, prefix: str = "gpu_", suffix: str = "") -> dict[str, dict[str, Cells]]:
    """Return the data of each GPU by node name and GPU number, from the queries about single GPUs."""
    nodes: dict[str, dict[str, Cells]] = {}

    def slot(labels: Mapping[str, str]) -> Cells:
        node = nodes.setdefault(labels.get("instance", ""), {})
        empty = {"is_listed": False, "model": "", "users": [], "used": None, "idle": None, "why": ""}
        return node.setdefault(labels.get("gpu", ""), empty)

    for row in answers.get(f"{prefix}info{suffix}", ()):
        slot(row.labels).update(is_listed=True, model=row.labels.get("model", ""))
    for row in answers.get(f"{prefix}users{suffix}", ()):
        slot(row.labels)["users"].append(row.labels.get("user", ""))
    for row in answers.get(f"{prefix}used{suffix}", ()):
        gpu = slot(row.labels)
        gpu["used"] = row.value if gpu["is_listed"] else None  # a mean over minutes remains after the GPU is gone
    for row in answers.get(f"{prefix}idle{suffix}", ()):
        slot(row.labels)["idle"] = row.value
    for row in answers.get(f"{prefix}silent{suffix}", ()):
        slot(row.labels)["why"] = row.labels.get("reason", "") or "unknown"
    return nodes


def states(node: Node, slots: Mapping[str, Cells]) -> dict[str, str]:
    """Return the state of each GPU of a node by its number.

    The exporter reports only how many GPUs of a node are free, not which. Idle GPUs without a known holder are the free
    ones if there are not more of them; otherwise any of them may have a holder that the node cannot see.
    """
    gpu_states = {number: _state(slot) for number, slot in slots.items()}
    if list(gpu_states.values()).count("free") > node.count("free"):
        gpu_states = {number: "unknown" if state == "free" else state for number, state in gpu_states.items()}
    return gpu_states


def _state(slot: Cells) -> str:
    """Return the state of a GPU (one of `_STATES`) from its own data, without the counts of its node."""
    if slot["why"]:
        return "lost"
    if not slot["is_listed"]:
        return "unknown"
    if not slot["users"]:
        return "free" if slot["idle"] is not None else "unknown"
    return "held_idle" if slot["idle"] is not None and slot["idle"] > PAUSE else "busy"


def _tile(node: Node, slots: Mapping[str, Cells]) -> Cells:
    """Return the tile of a node; without data of single GPUs, from the number of GPUs in each state."""
    if node.silent:
        prefix = "≥ " if node.is_undated else ""
        return {
            "name": node.name,
            "word": f"silent {prefix}{units.long_duration(node.silent)}",
            "level": "silent",
            "gpus": [],
        }
    if slots:
        by_number = states(node, slots)
        gpus = [_bar(number, slots[number], by_number[number]) for number in sorted(slots, key=natural_key)]
    else:
        utilization = round(node.busy, 2) if is_known(node.busy) else None
        gpus = [
            ["", state, "", utilization if state == "busy" else None]
            for state in _STATES
            for _ in range(node.count(state))
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
    utilization = slot["used"]
    return [number, state, (slot["users"] or [""])[0], None if utilization is None else round(min(1.0, utilization), 2)]
