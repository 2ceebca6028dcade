"""The parts of a cluster's picture by which people know a question: they are not told the names of questions."""

from __future__ import annotations

import re

_PARTS = (
    ("seen|seen_before|gpus|models|clocks|unreal", "nodes and their GPUs"),
    ("busy|busy_of_day", "utilization"),
    ("power|limit|energy_of_day", "power and energy"),
    ("down|without_daemon|xids|last_xid|throttled|dcgm_alone", "what is wrong"),
    ("idle_holders", "allocated, idle"),
    ("run.*|epochs|planned", "runs"),
)


def part(question: str) -> str:
    """Return the part that a question belongs to: all others are about users.

    >>> part("busy"), part("run_places"), part("busy_week")
    ('utilization', 'runs', 'users')
    """
    return next((words for pattern, words in _PARTS if re.fullmatch(pattern, question)), "users")
