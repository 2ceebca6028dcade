"""Sentences about problems in a cluster; the same problem on several nodes is one sentence."""

from __future__ import annotations

from collections.abc import Sequence

from gpumon.cluster.model import IdleHolder
from gpumon.cluster.problems import Problem
from gpumon.common.numbers import is_known
from gpumon.model import units
from gpumon.reports.text_table import distinct
from gpumon_web.cluster.data import node_address, user_address
from gpumon_web.components.page import Cells

_TOGETHER = 3
"""Number of nodes with one problem from which they share a sentence; maximum number of users listed with idle GPUs."""
_NAMED = 5
_MOST = 20
"""Maximum number of sentences."""
_LONG = 3600.0
"""Seconds for which a GPU must be held idle to count as a problem."""


_LONGEST = 40
"""Longest user name in terminal cells."""


def problems(cluster_problems: Sequence[Problem], idle: Sequence[IdleHolder]) -> list[Cells]:
    """Return sentences, severe problems first and idle holders last, each with a link to the node or the user."""
    kinds: dict[tuple[bool, str], list[Problem]] = {}
    for problem in cluster_problems:
        kinds.setdefault((problem.is_severe, problem.kind), []).append(problem)
    sentences: list[Cells] = []
    for (severe, kind), members in kinds.items():
        level, about = ("bad", "broken") if severe else ("warn", "look")
        nodes = list(dict.fromkeys(problem.node for problem in members))
        if len(nodes) >= _TOGETHER:
            more = f" and {len(nodes) - _NAMED:,} more" if len(nodes) > _NAMED else ""
            text = f"{units.counted(len(nodes), 'node')} {kind}: {', '.join(nodes[:_NAMED])}{more}"
            sentences.append({"about": about, "level": level, "text": text, "link": node_address(nodes[0])})
            continue
        sentences += [
            {"about": about, "level": level, "text": f"{problem.node}: {problem.text}",
             "link": node_address(problem.node), **({"time": problem.at} if is_known(problem.at) else {})}
            for problem in members
        ]  # fmt: skip
    sentences += _idle_sentences(idle)
    if len(sentences) > _MOST:
        sentences = [*sentences[:_MOST], {"text": f"and {len(sentences) - _MOST:,} more"}]
    return sentences


def _idle_sentences(idle: Sequence[IdleHolder]) -> list[Cells]:
    """Return sentences about the users with the most GPUs held idle for long."""
    users: dict[str, list[IdleHolder]] = {}
    for holder in idle:
        if holder.seconds >= _LONG:
            users.setdefault(holder.user, []).append(holder)
    largest = sorted(users.items(), key=lambda entry: -len(entry[1]))[:_TOGETHER]
    names = distinct([user or "unknown" for user, _ in largest], _LONGEST)
    return [
        {
            "about": "idle", "level": "warn", "link": user_address(user),
            "text": f"{name} holds {units.counted(len(holders), 'GPU')} idle for "
            f"{units.long_duration(min(holder.seconds for holder in holders))} or longer",
        }
        for (user, holders), name in zip(largest, names, strict=True)
    ]  # fmt: skip
