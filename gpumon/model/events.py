"""Events of the event log, and the table of event kinds."""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, get_args

from gpumon.common.numbers import NAN

EventGroup = Literal["runs", "throttling", "gpus", "idle", "daemon"]
"""Groups of kinds, from which the filters of both views derive. `daemon`: the daemon itself, and what it records."""
EVENT_GROUPS: tuple[EventGroup, ...] = get_args(EventGroup)


class EventKind(NamedTuple):
    """A kind of event, which is a row of `EVENT_KINDS`."""

    name: str
    """Name of the kind in files and JSON."""
    group: EventGroup
    label: str
    """Name of the kind in text for people."""
    severity: str
    """`info`, `warning` or `critical`, as for findings."""
    help: str
    """Sentence that says what the time of the event means."""
    ends: str = ""
    """Name of the kind of event that ends when an event of this kind happens; empty if there is none."""
    unseen: str = ""
    """For events that last: the kind of event that closes such an event if its end was not seen. Otherwise empty."""
    states: Mapping[str, tuple[str, str]] = MappingProxyType({})
    """Label and severity that replace the usual ones. The key is the state in the details of the event."""

    def for_details(self, details: Mapping[str, Any]) -> EventKind:
        """Return the kind with the label and severity for these details. The name stays the same."""
        state = details.get("state")
        label, severity = self.states.get(state if isinstance(state, str) else "", (self.label, self.severity))
        return self._replace(label=label, severity=severity)


NOT_SEEN = "not_seen"
XID = "xid"
LEFT_OUT = "processes_left_out"
CLOCK_SET = "clock_set"
EVENT_KINDS: tuple[EventKind, ...] = (
    EventKind("daemon_started", "daemon", "daemon started", "info", "First sample of the daemon.",
              unseen="daemon_stopped"),
    EventKind("daemon_stopped", "daemon", "daemon stopped", "info",
              "When the daemon was stopped. If it was killed: when it last wrote.", ends="daemon_started"),
    EventKind("run_began", "runs", "run began", "info",
              "When the run's first process on this machine began to report. It started some time before.",
              unseen=NOT_SEEN),
    EventKind("run_ended", "runs", "run ended", "info",
              "When the run's last process on this machine reported its end. A failed run is `critical` and has the "
              "label \"run failed\".",
              ends="run_began", states=MappingProxyType({"failed": ("run failed", "critical")})),
    EventKind("run_died", "runs", "run died", "critical",
              "When the run was last seen alive. It did not report its end.",
              ends="run_began", states=MappingProxyType({"died": ("run died", "critical")})),
    EventKind("out_of_memory", "runs", "out of memory", "critical",
              "When the allocation failed, by the training's clock."),
    EventKind("stall_began", "runs", "run stalled", "critical", "When the run last made progress.", unseen=NOT_SEEN),
    EventKind("stall_ended", "runs", "no longer stalled", "info",
              "First sample in which the run made progress again, or the end of the run.", ends="stall_began"),
    EventKind("throttling_began", "throttling", "throttling began", "warning",
              "First sample with clocks lowered for this cause.", unseen=NOT_SEEN),
    EventKind("throttling_ended", "throttling", "throttling ended", "info",
              "Last sample with clocks lowered for this cause.", ends="throttling_began"),
    EventKind("idle_began", "idle", "allocated but idle", "warning",
              "When the GPU was last busy. If it never was: when it was first seen.", unseen=NOT_SEEN),
    EventKind("idle_ended", "idle", "no longer idle", "info",
              "First sample in which the GPU was busy or no longer held.", ends="idle_began"),
    EventKind("gpu_lost", "gpus", "GPU lost", "critical", "First sample in which the GPU was lost.", unseen=NOT_SEEN),
    EventKind("gpu_back", "gpus", "GPU back", "info", "First sample in which the GPU answered again.", ends="gpu_lost"),
    EventKind("driver_lost", "gpus", "driver lost", "critical", "First sample without the driver.", unseen=NOT_SEEN),
    EventKind("driver_reloaded", "gpus", "driver reloaded", "warning",
              "First sample in which the driver answered again.", ends="driver_lost"),
    EventKind(XID, "gpus", "XID error", "warning",
              "When the driver reported the error. The severity depends on the code."),
    EventKind(LEFT_OUT, "daemon", "processes left out", "warning",
              "First sample with more processes than gpumon records."),
    EventKind(CLOCK_SET, "daemon", "clock set", "info",
              "First sample after the machine's clock was set, in the new time."),
    EventKind(NOT_SEEN, "daemon", "end not seen", "info",
              "When a lasting event was last observed. Its end was not observed."),
)  # fmt: skip
BY_NAME = {kind.name: kind for kind in EVENT_KINDS}
"""Kinds of events by name."""
LASTING = tuple(kind.name for kind in EVENT_KINDS if kind.unseen)
"""Names of the kinds of events that last until another event ends them."""


class EventSubject(NamedTuple):
    """The GPU, user, run and cause of an event. Fields that do not apply are empty."""

    device: str = ""
    """UUID of the GPU."""
    user: str = ""
    run: str = ""
    """Id of the run."""
    cause: str = ""
    """For throttling, the name of the metric. For an XID error, its code."""


class Event(NamedTuple):
    """An entry of the event log."""

    time_ns: int
    """Time of the event, in ns since 1970."""
    kind: str
    """Name of the kind in `EVENT_KINDS`."""
    subject: EventSubject = EventSubject()
    details: Mapping[str, Any] = {}
    """Further data of types that JSON can express."""
    lasted: float = NAN
    """If this event ends another event, the seconds between the two. Otherwise, or if not measured, NaN."""


TAKEN_BACK = "taken_back"
"""Key in the details that marks an event as a retraction. Event logs do not store retractions."""
Key = tuple[str, EventSubject]
"""Kind and subject of an event that lasts. Until it ends, they identify the event."""


def unseen_end(time_ns: int, kind: str, subject: EventSubject) -> Event:
    """Return the event that closes an event of `kind` whose end was not seen."""
    return Event(time_ns, BY_NAME[kind].unseen, subject, {"of": kind, "unseen": True})


def retraction(time_ns: int, kind: str, subject: EventSubject) -> Event:
    """Return an event that makes a log drop an event of `kind` that turned out to be wrong."""
    closing = unseen_end(time_ns, kind, subject)
    return closing._replace(details={**closing.details, TAKEN_BACK: True})


def parse_details(text: str) -> dict[str, Any]:
    """Return the details of an event from their JSON; empty if they are damaged."""
    try:
        details = json.loads(text)
    except (ValueError, TypeError, RecursionError):
        return {}
    return details if isinstance(details, dict) else {}
