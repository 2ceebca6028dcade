"""`gpumon history events`: the log of events of GPUs, runs, the driver and the daemon."""

from __future__ import annotations

import argparse
import time
from contextlib import closing

from gpumon.cli.daemon_lookup import why_no_history
from gpumon.cli.streams import output_width, print_json, print_lines
from gpumon.common.errors import GpumonError
from gpumon.common.paths import Places, history_paths
from gpumon.live import follow
from gpumon.model.events import EVENT_KINDS
from gpumon.reports import events
from gpumon.storage.events.query import EventFilter, devices_with_events, read_events
from gpumon.storage.history.buckets import resolve_window

_KINDS = [kind.name for kind in EVENT_KINDS]


def add_event_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `gpumon history events`."""
    parser.add_argument(
        "--since", metavar="TIME", default="24h",
        help="start of the window: 7d for 7 days ago, or 2026-01-31T14:00 (default: 24h)",
    )  # fmt: skip
    parser.add_argument("--until", metavar="TIME", default=None, help="end of the window (default: now)")
    parser.add_argument(
        "--kind", metavar="KIND", choices=_KINDS, action="append", default=[],
        help=f"only events of this kind; repeatable: {', '.join(_KINDS)}",
    )  # fmt: skip
    parser.add_argument("--gpu", metavar="GPU", default=None, help="only this GPU, by index or UUID")
    parser.add_argument("--user", metavar="USER", default="", help="only events of this user")
    parser.add_argument("--run", metavar="RUN", default="", help="only events of the run with this id")
    parser.add_argument("--json", action="store_true", default=False, help="print one JSON object for programs")


def print_events(places: Places, arguments: argparse.Namespace) -> None:
    """Print the events. Raises GpumonError."""
    now = time.time()
    span = resolve_window(None, arguments.since, arguments.until, now)
    paths = history_paths(places)
    if not paths:
        raise GpumonError(why_no_history(places, "events"))
    # Without --until, the window ends one second in the future, so that it includes the newest events.
    end = span.end if arguments.until is not None else now + 1
    if arguments.gpu is not None:
        arguments.gpu = _resolve_gpu(places, paths[0], arguments.gpu)
    selection = EventFilter(arguments.kind, arguments.gpu or "", arguments.user, arguments.run)
    rows = read_events(paths[0], span.begin, end, selection)
    if arguments.json:
        print_json(events.as_json(rows, span.begin, span.end))
    elif not rows:
        print("no events recorded in this window; a running daemon records events within a minute")
    else:
        print_lines(events.lines(rows, output_width()))


def _resolve_gpu(places: Places, path: str, name: str) -> str:
    """Return the value of `--gpu` for `EventFilter`: the UUID of a present MIG instance, or `name` unchanged.

    `name`: index or UUID. Raises UsageError for a GPU that is neither in the history file `path` nor in the ring,
    because "no events" would look like a statement about an existing GPU.
    """
    from gpumon.storage.history.devices import unknown_gpu
    from gpumon.storage.history.open import stored_devices

    with closing(follow(places)) as live:
        devices = stored_devices(path, live.since(0)) or {}
    labels = {uuid: device.label for uuid, device in devices.items() if device.label}
    uuids = list(dict.fromkeys([*devices, *devices_with_events(path)]))
    if not name or (name not in uuids and name not in labels.values()):
        raise unknown_gpu(name, [f"{labels[uuid]} ({uuid})" if uuid in labels else uuid for uuid in uuids])
    return next((uuid for uuid, device in devices.items() if device.is_instance and device.label == name), name)
