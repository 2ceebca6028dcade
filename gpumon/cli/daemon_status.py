"""Text of `gpumon daemon status`: the daemon that runs, what it samples, what it lacks."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator

from gpumon.analysis.gpu_status import ANSWERS
from gpumon.cli.daemon_lookup import FoundDaemon, find_daemon
from gpumon.common.clock import SECOND
from gpumon.common.errors import EXIT_NO_GPU, EXIT_OK
from gpumon.common.numbers import is_known
from gpumon.common.paths import Places
from gpumon.common.procfs import start_timestamp
from gpumon.common.text import clean
from gpumon.live import WAITING
from gpumon.model.frame import Frame
from gpumon.model.origin import Capability
from gpumon.model.units import duration, moment, words
from gpumon.storage.ledger.change import user_name

_STARTING = f"starting, {WAITING}"


def show(where: Places) -> int:
    """Print the daemon; the exit code is 3 where it reads no GPU now. Raises GpumonError where none runs."""
    found = find_daemon(where)
    state, frame = _state(found)
    for name, text in _facts(found, state, frame):
        print(f"{name:<10} {clean(text, 1024)}")
    sys.stdout.flush()
    if frame is None or not (found.live.state().live or found.live.origin().ended):
        return EXIT_NO_GPU
    return EXIT_OK if any(sample.state in ANSWERS for sample in frame.samples) else EXIT_NO_GPU


def _state(found: FoundDaemon) -> tuple[str, Frame | None]:
    """The state in words, and the newest frame; none where the ring is an earlier daemon's."""
    unreadable = found.live.unreadable()
    if unreadable:
        return unreadable, None
    if not found.has_sampled():
        return _STARTING, None
    return found.live.state().text, found.live.latest()


def _facts(found: FoundDaemon, state: str, frame: Frame | None) -> Iterator[tuple[str, str]]:
    yield "daemon", f"pid {found.pid or '?'}, {state}"
    if found.holder.for_command:
        yield "ends", "with its command: it is 'gpumon run', which samples while no daemon does"
    yield "directory", found.directory
    yield "user", user_name(found.holder.uid)
    if found.is_seen():
        since = start_timestamp(found.holder.started)
        yield "since", f"{moment(since)}, for {words(max(0.0, time.time() - since))}"
    else:
        yield "since", "unknown: its process cannot be seen from here, as from a container"
    if frame is None:
        return
    live, origin, driver = found.live, found.live.origin(), found.live.driver()
    yield "version", live.version() or "unknown"
    about = (origin.source, origin.label, f"driver {driver.version}" if driver.version else "")
    yield "source", ", ".join(part for part in about if part)
    yield "interval", f"{frame.interval if is_known(frame.interval) else live.interval():g} s"
    yield "newest", f"frame {frame.number}, {_when(frame, origin.capabilities)}"
    for problem in _lacking(found, frame):
        yield "lacks", problem


def _when(frame: Frame, capabilities: Capability) -> str:
    if Capability.NOW not in capabilities:
        return f"of {moment(frame.time)} in the recording"
    return f"{duration(max(0.0, (time.monotonic_ns() - frame.monotonic_ns) / SECOND))} ago"


def _lacking(found: FoundDaemon, frame: Frame) -> Iterator[str]:
    origin = found.live.origin()
    if origin.problem:
        yield origin.problem
    for part in origin.parts:
        if part.origin.problem and part.origin.problem != origin.problem:
            yield f"{part.origin.source}: {part.origin.problem}"
    for sample in frame.samples:
        if sample.state not in ANSWERS:
            yield f"GPU {sample.device.label}: {sample.state.reason}"
    for text in (*found.live.not_kept(), origin.notice):
        if text:
            yield text
