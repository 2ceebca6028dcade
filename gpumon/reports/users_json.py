"""Users who hold GPUs now, from the document of `status --json`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

SCHEMA = 1
HELD = ("busy", "allocated", "held")
"""States of a GPU that somebody holds."""
NOT_KNOWN = ("unknown", "stale", "lost", "unreadable", "asleep")
"""States of one of which nobody knows who holds it now."""


def users_json(status: Mapping[str, Any]) -> dict[str, Any]:
    """Return the users, those with the most GPUs first; a user whose name is not known is null, and last.

    A user holds a GPU while a process of theirs is on it, or a running run of theirs claims it.
    """
    found: dict[str | None, list[dict[str, Any]]] = {}
    unknown = []
    for gpu in status["gpus"]:
        processes: Sequence[Mapping[str, Any]] = gpu["processes"] or ()
        runs = [run for run in status["runs"] if run["state"] == "running" and gpu["uuid"] in run["gpus"]]
        users: list[str | None] = [process["user"] for process in processes] + [run["user"] for run in runs]
        if gpu["gpu_state"] in NOT_KNOWN or (gpu["processes"] is None and gpu["gpu_state"] != "divided"):
            unknown.append(gpu["uuid"])
        elif not users and gpu["gpu_state"] in HELD:
            users = [None]
        for user in dict.fromkeys(users):
            found.setdefault(user, []).append(_of(gpu, user, processes, runs))
    users_first = sorted(found.items(), key=lambda one: (one[0] is None, -len(one[1]), one[0] or ""))
    return {
        "schema": SCHEMA, "time": status["time"], "live": status["live"], "age": status["age"],
        "users": [
            {
                "user": user, "gpus": gpus, "memory_used": _sum(gpu["memory_used"] for gpu in gpus),
                "runs": list(dict.fromkeys(run for gpu in gpus for run in gpu["runs"])),
            }
            for user, gpus in users_first
        ],
        "unknown_gpus": unknown,
    }  # fmt: skip


def _of(
    gpu: Mapping[str, Any], user: str | None, processes: Sequence[Mapping[str, Any]], runs: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """The part of a user in a GPU."""
    own = [process for process in processes if process["user"] == user]
    claims = [process["run"] for process in own if process["run"]] + [run["id"] for run in runs if run["user"] == user]
    return {
        "uuid": gpu["uuid"], "label": gpu["label"], "gpu_state": gpu["gpu_state"], "processes": len(own),
        "memory_used": _sum(process["memory_used"] for process in own) if own else None,
        "runs": list(dict.fromkeys(claims)),
    }  # fmt: skip


def _sum(values: Any) -> float | None:
    """The sum; None where a part is not known."""
    parts = list(values)
    return None if None in parts else sum(parts)
