"""The daemon that runs for the directories of a command: its lock, and its ring."""

from __future__ import annotations

import os
from contextlib import closing, suppress
from itertools import takewhile
from typing import NamedTuple

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


class FoundDaemon(NamedTuple):
    """A daemon that runs."""

    directory: str
    holder: Holder
    """As the lock has it; as the ring has it where the lock is another user's."""
    live: Live
    """Its ring; perhaps an earlier daemon's, or none, until its first sample is there."""

    @property
    def pid(self) -> int:
        return self.holder.pid

    @property
    def lock(self) -> str:
        """Path of its lock."""
        return f"{self.directory}/{LOCK}"

    def is_seen(self) -> bool:
        """Whether its process can be seen from here: that of another pid namespace cannot."""
        return is_alive(self.holder.pid, self.holder.started)

    def has_sampled(self) -> bool:
        """Whether the ring is its own, and not an earlier daemon's."""
        self.live.heartbeat()
        writer = self.live.writer()
        return writer is not None and (writer.pid, writer.started) == (self.holder.pid, self.holder.started)


def find_daemon(where: Places) -> FoundDaemon:
    """Return the daemon that commands read, or the one that is starting. Raises GpumonError where none runs."""
    found = [one for directory in live_dirs(where) if (one := _look(directory, where)) is not None]
    if found:
        return max(found, key=lambda one: one.live.is_alive())  # of several alike the first
    refused = [os.path.dirname(path) for path in untrusted_rings(where)]
    if refused:
        raise GpumonError(
            f"no daemon is running, but {refused[0]} was not looked at: it belongs to another user or is writable by "
            f"others; '--dir {quoted(refused[0])}' looks at it anyway"
        )
    for path in unreadable_rings(where):
        raise GpumonError(unreadable_reason(path))
    raise GpumonError(f"{no_daemon(where)} (looked in {', '.join(where.candidates())})")


def read_instead(where: Places, directory: str) -> FoundDaemon | None:
    """Return the daemon that views of this user read although one samples into `directory`; None where it is that."""
    before = takewhile(lambda one: one != directory, live_dirs(where))
    looked = (_look(one, where) for one in before)
    return next((one for one in looked if one is not None and one.live.is_alive()), None)


def _look(directory: str, where: Places) -> FoundDaemon | None:
    live = follow(where._replace(explicit=directory))
    try:
        holder = holder_of(f"{directory}/{LOCK}")
    except OSError:  # another user's: its ring tells, which is silent some seconds after a kill
        holder = _writer_of(live)
    return None if holder is None else FoundDaemon(directory, holder, live)


def _writer_of(live: Live) -> Holder | None:
    if live.has_writer() and (writer := live.writer()) is not None:
        return Holder(writer.pid, writer.started, writer.uid)
    return None


_RUNNING = "the daemon writes within a minute of its start; after that, its log may say why"


def why_no_runs(where: Places) -> str:
    """One line for people: why no run was recorded."""
    from gpumon.storage.ledger.reader import NOTHING  # views find their daemon without SQLite
    from gpumon.storage.sqlite.read import explain_absence

    return explain_absence(where, ledger_path(where), NOTHING, "runs are not recorded")


def why_no_history(where: Places, what: str = "history") -> str:
    """One line for people: why no `what` is kept."""
    with closing(follow(where)) as live:
        played, is_alive = played_instead(live), live.is_alive()
    if played:
        return f"history is not being kept: {played}"
    to_do = _RUNNING if is_alive else "start 'gpumon daemon'"
    nothing = f"no {what} kept yet: {to_do}"
    from gpumon.storage.sqlite.read import explain_absence

    return explain_absence(where, history_path(where), nothing, "history is not kept")


def played_instead(live: Live) -> str:
    """Say what a daemon that runs plays, of which nothing is kept; empty where it samples this machine."""
    origin = live.origin()
    if live.is_alive() and Capability.LIVE not in origin.capabilities:
        return f"the daemon plays {origin.label or origin.source} instead of sampling this machine"
    return ""


def is_here(live: Live) -> bool:
    """Whether frames are of this machine: its runs beside those of a simulation would be taken for simulated ones."""
    return Capability.LIVE in live.origin().capabilities


def played_ledger(live: Live, where: Places) -> str:
    """The ledger of the simulation or the recording that the daemon of these frames plays; empty where it is none.

    It is there from its first run on.
    """
    from gpumon.ring.reader import RingReader

    writer = live.writer()
    if writer is None or is_here(live):
        return ""
    for path in ring_paths(where):
        with suppress(OSError, RingError), closing(RingReader.open(path)) as ring:
            if ring.written_by == writer:
                return f"{os.path.dirname(path)}/{PLAYED}"
    return ""
