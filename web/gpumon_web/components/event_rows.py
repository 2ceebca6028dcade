"""Groups of similar events within a minute, as one expandable row, so that a burst does not hide other events."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gpumon.common.clock import SECOND
from gpumon.diagnosis.finding import ranges
from gpumon.model import units
from gpumon.reports.events import LastedEvent
from gpumon_web.components.page import Cells, Rows
from gpumon_web.components.tokens import line, text

MAX_GROUP_SECONDS = 60.0
"""Longest time in seconds from the first to the last event of a group."""
MIN_EVENTS = 3
"""Fewest events in a group."""
MAX_TEXTS = 4
"""Most different texts shown in a group's row."""


def group_rows(events: Sequence[LastedEvent], rows: Sequence[Cells], numbers: Mapping[str, Sequence[str]]) -> Rows:
    """Return a row for each group of events, the newest first.

    `rows` are the rows of the single events; `numbers` are the GPU numbers of each, by the key of its row.
    """
    open_groups: dict[str, list[tuple[LastedEvent, Cells]]] = {}
    groups = []
    for event, row in zip(events, rows, strict=True):
        members = open_groups.get(row["kind"])  # the label: runs that ended have one kind, but several labels
        if members is None or (members[0][0].event.time_ns - event.event.time_ns) / SECOND > MAX_GROUP_SECONDS:
            members = open_groups[row["kind"]] = []
            groups.append(members)
        members.append((event, row))
    return Rows(_group_row([row for _, row in members], numbers) for members in groups if len(members) >= MIN_EVENTS)


def _group_row(rows: Sequence[Cells], numbers: Mapping[str, Sequence[str]]) -> Cells:
    first = rows[0]
    key = f"bundle {rows[-1]['key']}"
    indexes = {int(number) for row in rows for number in numbers[row["key"]]}
    gpu = f"GPU {ranges(indexes)}" if indexes else ""
    users = {row["user"] for row in rows}
    texts = [*dict.fromkeys(row["words"] for row in rows if row["words"])]
    more = [f"and {len(texts) - MAX_TEXTS} more"] if len(texts) > MAX_TEXTS else []
    details = "; ".join([*texts[:MAX_TEXTS], *more])
    shape = first["event"][0]["line"][0]
    opener = {"opens": key, "text": f"{first['kind']}, {units.counted(len(rows), 'event')}"}
    return {
        "key": key,
        "members": [row["key"] for row in rows],
        "time": first["time"],
        "event": [line(shape, opener, css=first["event"][0]["css"])],
        "kind": first["kind"],
        "subject": [line(text(gpu))] if gpu else [],
        "gpu": gpu or None,
        "user": users.pop() if len(users) == 1 else None,
        "words": details,
        "took": "",
        "seconds": max((row["seconds"] for row in rows if row["seconds"] is not None), default=None),
        "search": " ".join(row["search"] for row in rows),
    }
