"""An event, and what goes on since one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from gpumon.common.numbers import NAN
from gpumon.events.kinds import BY_NAME


class EventSubject(NamedTuple):
    """The thing that an event is about; parts that it does not have are empty."""

    device: str = ""
    """UUID."""
    user: str = ""
    run: str = ""
    """Id."""
    cause: str = ""
    """Of a throttling, the name of its metric; of an XID error, its code."""


class Occurrence(NamedTuple):
    """Something that happened."""

    time_ns: int
    """ns since 1970."""
    kind: str
    """Name in `EVENT_KINDS`."""
    of: EventSubject = EventSubject()
    details: Mapping[str, Any] = {}
    """JSON."""
    lasted: float = NAN
    """Seconds that what ended here had lasted; NaN where that is not known, or it ended nothing."""


TAKEN_BACK = "taken_back"
"""In the details of an event that no log keeps."""
Key = tuple[str, EventSubject]
"""Kind and subject of what goes on."""


def unseen(time_ns: int, kind: str, of: EventSubject) -> Occurrence:
    """Return the event that closes what began with one of `kind`, and whose end nobody saw."""
    return Occurrence(time_ns, BY_NAME[kind].unseen, of, {"of": kind, "unseen": True})


def taken_back(time_ns: int, kind: str, of: EventSubject) -> Occurrence:
    """Return the event for which a log forgets what began with one of `kind`: it was not what it seemed to be."""
    closing = unseen(time_ns, kind, of)
    return closing._replace(details={**closing.details, TAKEN_BACK: True})


def details_of(text: str) -> dict[str, Any]:
    """Return the details of an event that the file has as JSON; none where they are damaged."""
    try:
        found = json.loads(text)
    except (ValueError, TypeError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
