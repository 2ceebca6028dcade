"""The daemon that runs for the directories of a command: its lock, and its ring."""

from __future__ import annotations

import os
from itertools import takewhile
from typing import NamedTuple

from gpumon.common.errors import GpumonError, quoted
from gpumon.common.paths import LOCK, Places, closed_rings, live_dirs, refused_rings, why_closed
from gpumon.common.procfs import is_alive
from gpumon.live import Live, follow, no_daemon
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
    refused = [os.path.dirname(path) for path in refused_rings(where)]
    if refused:
        raise GpumonError(
            f"no daemon is running, but {refused[0]} was not looked at: it belongs to another user or is writable by "
            f"others; '--dir {quoted(refused[0])}' looks at it anyway"
        )
    for path in closed_rings(where):
        raise GpumonError(why_closed(path))
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
