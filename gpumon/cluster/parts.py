"""The parts of a cluster's picture by which people know a question: they are not told the names of questions."""

from __future__ import annotations

import re

_PARTS = (
    ("seen|seen_before|gpus|models|clocks|clocks_before|unreal", "nodes and their GPUs"),
    ("busy|busy_of_day", "utilization"),
    ("power|limit|energy_of_day", "power and energy"),
    ("down|without_daemon|xids|last_xid|throttled|dcgm_alone", "what is wrong"),
    ("idle_holders", "allocated, idle"),
    ("run.*|epochs|planned", "runs"),
)
_ANSWERS = (
    ("seen|seen_before|clocks|clocks_before", "silent nodes"),
    ("gpus", "GPUs by state"),
    ("models", "models"),
    ("unreal", "simulated nodes"),
    ("busy", "utilization"),
    ("busy_of_day", "utilization of the day"),
    ("power|limit", "power"),
    ("energy_of_day", "energy of the day"),
    ("down|without_daemon|dcgm_alone", "nodes that do not answer"),
    ("xids|last_xid", "XID errors"),
    ("throttled", "throttling"),
    ("idle_holders", "idle holders"),
    ("runs|run_nodes|run_places", "runs"),
    ("epochs|planned", "epochs"),
    ("held_now|idle_now", "GPUs now"),
    ("covered_.*|away_.*", "how much of the time is known"),
    ("held_by_model_.*", "cost"),
    ("idle_held_by_model_.*", "idle cost"),
    ("energy_at_.*|energy_lately_.*", "power cost"),
    ("held_.*", "GPU-hours"),
    ("judged_.*|busy_.*", "used"),
    ("idle_held_.*", "allocated, idle"),
    ("energy_.*", "energy"),
)
"""Words for the answer to a question, by the first pattern that fits."""


def answer_to(question: str) -> str:
    """Return what a question is about, as the tables call it.

    >>> answer_to("busy_of_day"), answer_to("held_by_model_week"), answer_to("busy_week")
    ('utilization of the day', 'cost', 'used')
    """
    return next((words for pattern, words in _ANSWERS if re.fullmatch(pattern, question)), "others")


def part(question: str) -> str:
    """Return the part that a question belongs to: all others are about users.

    >>> part("busy"), part("run_places"), part("busy_week")
    ('utilization', 'runs', 'users')
    """
    return next((words for pattern, words in _PARTS if re.fullmatch(pattern, question)), "users")
