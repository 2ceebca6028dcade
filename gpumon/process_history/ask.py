"""Questions about processes as people put them: the window by its length or its ends, GPUs by index or UUID."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from gpumon.history.device_table import devices_in
from gpumon.history.devices import Wanted, chosen, devices_of, named
from gpumon.history.open import kept_devices
from gpumon.history.query import Query
from gpumon.history.span import span_of
from gpumon.model.frame import Frame
from gpumon.model.process import Process
from gpumon.process_history.kept import KnownProcess
from gpumon.process_history.lines import ProcessLines, key_of, process_lines
from gpumon.process_history.measures import NAMES
from gpumon.process_history.query import ProcessFilter, ProcessWindow, read_processes

if TYPE_CHECKING:
    from gpumon.history.span import Moment

    Asked = tuple[str | float | None, Moment | None, Moment | None, float]
    """Length, begin, end, and now, of `span_of`."""


def processes_of(
    path: str, frames: Sequence[Frame], asked: Asked, devices: Wanted | Iterable[Wanted] | None, user: str, pid: int
) -> ProcessWindow:
    """Return the processes of a window. Raises UsageError."""
    span, newest = span_of(*asked), devices_of(frames[-1:])
    wanted = chosen(devices, newest, lambda: kept_devices(path, frames))
    found = read_processes(path, frames, span, ProcessFilter(wanted, user, pid))
    uuids = [use.process.device for use in found.processes]
    return found._replace(gpus=named(uuids, newest, lambda: {**devices_in(path), **devices_of(frames)}))


def lines_of(
    path: str, frames: Sequence[Frame], asked: Asked, process: Process | KnownProcess, points: int
) -> ProcessLines:
    """Return the lines of a process. Raises UsageError."""
    key = key_of(process)
    return process_lines(path, frames, key, Query(key.device, NAMES, *span_of(*asked), points))
