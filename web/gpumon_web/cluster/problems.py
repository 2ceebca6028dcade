"""Sentences about problems in a cluster; the same problem on several nodes is one sentence."""

from __future__ import annotations

from collections.abc import Sequence

from gpumon.cluster.model import IdleHolder
from gpumon.cluster.problems import Problem
from gpumon.common.numbers import is_known
from gpumon.model import units
from gpumon.reports.text_table import distinct
from gpumon_web.cluster.words import node_address, user_address
from gpumon_web.components.page import Cells

_TOGETHER = 3
"""Nodes with the same problem from which they share a sentence; also the most users with idle GPUs listed."""
_NAMED = 5
_MOST = 20
"""Most sentences."""
_LONG = 3600.0
"""Seconds of holding idle GPUs from which it is a problem."""


_LONGEST = 40
"""Longest user name in terminal cells."""


def problems(found: Sequence[Problem], idle: Sequence[IdleHolder]) -> list[Cells]:
    """Return sentences, severe problems first and idle holders last, each with a link to the node or the user."""
    kinds: dict[tuple[bool, str], list[Problem]] = {}
    for one in found:
        kinds.setdefault((one.is_severe, one.kind), []).append(one)
    told: list[Cells] = []
    for (severe, kind), members in kinds.items():
        level, about = ("bad", "broken") if severe else ("warn", "look")
        nodes = list(dict.fromkeys(one.node for one in members))
        if len(nodes) >= _TOGETHER:
            more = f" and {len(nodes) - _NAMED:,} more" if len(nodes) > _NAMED else ""
            text = f"{units.counted(len(nodes), 'node')} {kind}: {', '.join(nodes[:_NAMED])}{more}"
            told.append({"about": about, "level": level, "text": text, "link": node_address(nodes[0])})
            continue
        told += [
            {"about": about, "level": level, "text": f"{one.node}: {one.text}", "link": node_address(one.node),
             **({"time": one.at} if is_known(one.at) else {})}
            for one in members
        ]  # fmt: skip
    told += _wasted(idle)
    if len(told) > _MOST:
        told = [*told[:_MOST], {"text": f"and {len(told) - _MOST:,} more"}]
    return told


def _wasted(idle: Sequence[IdleHolder]) -> list[Cells]:
    """Return sentences about the users with the most GPUs held idle for long."""
    users: dict[str, list[IdleHolder]] = {}
    for one in idle:
        if one.seconds >= _LONG:
            users.setdefault(one.user, []).append(one)
    most = sorted(users.items(), key=lambda one: -len(one[1]))[:_TOGETHER]
    names = distinct([user or "unknown" for user, _ in most], _LONGEST)
    return [
        {
            "about": "idle", "level": "warn", "link": user_address(user),
            "text": f"{name} holds {units.counted(len(held), 'GPU')} idle for "
            f"{units.long_duration(min(one.seconds for one in held))} or longer",
        }
        for (user, held), name in zip(most, names, strict=True)
    ]  # fmt: skip
