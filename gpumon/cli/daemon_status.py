"""Print `gpumon daemon status`: the running daemon, what it samples, and its problems."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator

from gpumon.analysis.gpu_status import ANSWERS
from gpumon.cli.daemon_lookup import RunningDaemon, find_daemon
from gpumon.common.clock import SECOND
from gpumon.common.errors import EXIT_NO_GPU, EXIT_OK
from gpumon.common.numbers import is_known
from gpumon.common.paths import Places
from gpumon.common.procfs import start_timestamp
from gpumon.common.text import clean
from gpumon.live import WAITING, LiveState
from gpumon.model.frame import Frame
from gpumon.model.origin import Capability
from gpumon.model.units import duration, long_duration, moment
from gpumon.storage.ledger.change import user_name

_STARTING = f"starting, {WAITING}"


def show(places: Places) -> int:
    """Print the status of the daemon and return the exit code. It is 3 if the daemon cannot read any GPU at present.

    Raises GpumonError if no daemon is running.
    """
    daemon = find_daemon(places)
    live = daemon.live.state()  # read once, because the state may change meanwhile
    state, frame = _state(daemon, live)
    for name, text in _facts(daemon, state, frame):
        print(f"{name:<10} {clean(text, 1024)}")
    sys.stdout.flush()
    if frame is None or not (live.live or daemon.live.origin().ended):
        return EXIT_NO_GPU
    return EXIT_OK if any(sample.state in ANSWERS for sample in frame.samples) else EXIT_NO_GPU


def _state(daemon: RunningDaemon, live: LiveState) -> tuple[str, Frame | None]:
    """Return the state in words, and the newest frame of this daemon.

    The frame is None if the daemon has written none.
    """
    unreadable = daemon.live.unreadable()
    if unreadable:
        return unreadable, None
    if not daemon.has_sampled():
        return _STARTING, None
    return live.text, daemon.live.latest()


def _facts(daemon: RunningDaemon, state: str, frame: Frame | None) -> Iterator[tuple[str, str]]:
    yield "daemon", f"pid {daemon.pid or '?'}, {state}"
    if daemon.holder.for_command:
        yield "ends", "with its command: 'gpumon run' samples because no daemon was running"
    yield "directory", daemon.directory
    yield "user", user_name(daemon.holder.uid)
    if daemon.is_visible():
        since = start_timestamp(daemon.holder.started)
        yield "since", f"{moment(since)}, for {long_duration(max(0.0, time.time() - since))}"
    else:
        yield "since", "unknown: its process is not visible from here, possibly because of a container"
    if frame is None:
        return
    live, origin, driver = daemon.live, daemon.live.origin(), daemon.live.driver()
    yield "version", live.version() or "unknown"
    source = (origin.source, origin.label, f"driver {driver.version}" if driver.version else "")
    yield "source", ", ".join(part for part in source if part)
    yield "interval", f"{frame.interval if is_known(frame.interval) else live.interval():g} s"
    yield "newest", f"frame {frame.number}, {_age(frame, origin.capabilities)}"
    for problem in _problems(daemon, frame):
        yield "lacks", problem


def _age(frame: Frame, capabilities: Capability) -> str:
    if Capability.NOW not in capabilities:
        return f"of {moment(frame.time)} in the recording"
    return f"{duration(max(0.0, (time.monotonic_ns() - frame.monotonic_ns) / SECOND))} ago"


def _problems(daemon: RunningDaemon, frame: Frame) -> Iterator[str]:
    origin = daemon.live.origin()
    if origin.problem:
        yield origin.problem
    for part in origin.parts:
        if part.origin.problem and part.origin.problem != origin.problem:
            yield f"{part.origin.source}: {part.origin.problem}"
    for sample in frame.samples:
        if sample.state not in ANSWERS:
            yield f"GPU {sample.device.label}: {sample.state.reason}"
    for text in (*daemon.live.not_kept(), origin.notice):
        if text:
            yield text
