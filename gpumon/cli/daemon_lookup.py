"""Find the running daemon for the directories of a command, and explain why no runs or no history are recorded."""

from __future__ import annotations

import os
from contextlib import closing, suppress
from dataclasses import dataclass
from itertools import takewhile

from gpumon.common.errors import GpumonError, RingError, quoted
from gpumon.common.paths import (
    LOCK,
    PLAYED,
    Places,
    history_path,
    ledger_path,
    live_dirs,
    ring_paths,
    unreadable_reason,
    unreadable_rings,
    untrusted_rings,
)
from gpumon.common.procfs import is_alive
from gpumon.live import Live, follow, no_daemon
from gpumon.model.origin import Capability
from gpumon.ring.lock import Holder, holder_of


@dataclass(frozen=True, slots=True)
class RunningDaemon:
    """A running daemon: its directory, the holder of its lock, and its ring."""

    directory: str
    holder: Holder
    """The daemon's process, read from the lock, or from the ring if another user owns the lock."""
    live: Live
    """Ring of the daemon. Before the daemon's first sample, the ring may be the one of an earlier daemon, or may not
    exist."""

    @property
    def pid(self) -> int:
        return self.holder.pid

    @property
    def lock(self) -> str:
        """Path of the lock file."""
        return f"{self.directory}/{LOCK}"

    def is_visible(self) -> bool:
        """Whether the daemon's process is visible to this process. It is not if it is in another pid namespace."""
        return is_alive(self.holder.pid, self.holder.started)

    def has_sampled(self) -> bool:
        """Whether the ring was written by this daemon, not by an earlier daemon."""
        self.live.heartbeat()
        writer = self.live.writer()
        return writer is not None and (writer.pid, writer.started) == (self.holder.pid, self.holder.started)


def find_daemon(places: Places) -> RunningDaemon:
    """Return the daemon that commands read. It may still be starting. Raises GpumonError if no daemon is running."""
    daemons = [daemon for directory in live_dirs(places) if (daemon := _daemon_in(directory, places)) is not None]
    if daemons:
        return max(daemons, key=lambda daemon: daemon.live.is_alive())  # the first one if none or several are alive
    refused = [os.path.dirname(path) for path in untrusted_rings(places)]
    if refused:
        raise GpumonError(
            f"no daemon is running, but {refused[0]} was not read: it belongs to another user or is writable by "
            f"others; '--dir {quoted(refused[0])}' reads it anyway"
        )
    for path in unreadable_rings(places):
        raise GpumonError(unreadable_reason(path))
    raise GpumonError(f"{no_daemon(places)} (looked in {', '.join(places.candidates())})")


def preferred_daemon(places: Places, directory: str) -> RunningDaemon | None:
    """Return the daemon that views of this user read instead of the daemon in `directory`; None if there is none."""
    earlier = takewhile(lambda candidate: candidate != directory, live_dirs(places))
    daemons = (_daemon_in(candidate, places) for candidate in earlier)
    return next((daemon for daemon in daemons if daemon is not None and daemon.live.is_alive()), None)


def _daemon_in(directory: str, places: Places) -> RunningDaemon | None:
    live = follow(places._replace(explicit=directory))
    try:
        holder = holder_of(f"{directory}/{LOCK}")
    except OSError:  # another user's lock. The ring shows some seconds later that a daemon was killed
        writer = live.writer() if live.has_writer() else None
        holder = Holder(writer.pid, writer.started, writer.uid) if writer is not None else None
    return None if holder is None else RunningDaemon(directory, holder, live)


_REMEDY = "the daemon records it within a minute of its start; if it does not, see the daemon's log"


def why_no_runs(places: Places) -> str:
    """Return the reason why no run was recorded, as one line of text."""
    from gpumon.storage.ledger.reader import NOTHING  # not needed to find a daemon
    from gpumon.storage.sqlite.read import explain_absence

    return explain_absence(places, ledger_path(places), NOTHING, "runs are not recorded")


def why_no_history(places: Places, what: str = "history") -> str:
    """Return the reason why there is no history, as one line of text. `what`: the kind of data, such as "events"."""
    with closing(follow(places)) as live:
        played, is_alive = why_not_recording(live), live.is_alive()
    if played:
        return f"history is not being recorded: {played}"
    remedy = _REMEDY if is_alive else "start 'gpumon daemon'"
    nothing = f"no {what} recorded yet: {remedy}"
    from gpumon.storage.sqlite.read import explain_absence

    return explain_absence(places, history_path(places), nothing, "history is not recorded")


def why_not_recording(live: Live) -> str:
    """Return why the running daemon stores no runs and no history: it plays a recording or a simulation.

    Empty if the daemon samples this machine, or if no daemon is running.
    """
    origin = live.origin()
    if live.is_alive() and Capability.LIVE not in origin.capabilities:
        return f"the daemon plays {origin.label or origin.source} instead of sampling this machine"
    return ""


def is_local(live: Live) -> bool:
    """Whether the frames are of this machine. Its runs must not be mixed with the runs of a simulation."""
    return Capability.LIVE in live.origin().capabilities


def played_ledger(live: Live, places: Places) -> str:
    """Return the path of the ledger for the simulation or recording that this daemon plays.

    Empty if the daemon plays neither. The file is created with the first run.
    """
    from gpumon.ring.reader import RingReader

    writer = live.writer()
    if writer is None or is_local(live):
        return ""
    for path in ring_paths(places):
        with suppress(OSError, RingError), closing(RingReader.open(path)) as ring:
            if ring.written_by == writer:
                return f"{os.path.dirname(path)}/{PLAYED}"
    return ""
