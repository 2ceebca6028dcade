"""Limits of what can be seen of processes from where the daemon runs, and why, in a sentence.

A driver names processes by pids of the machine, or by those of the namespace that asks, as newer ones do; an older one
may name a process that is another one here. Windows tells its WSL machines of none.
"""

from __future__ import annotations

import os
from typing import NamedTuple

from gpumon.common.procfs import has_own_pids


class Surroundings(NamedTuple):
    """Limits of this place."""

    notice: str = ""
    """A sentence for people; empty where every process can be seen."""
    has_own_pids: bool = False
    """Whether pids here are not those of the machine, so that one from the driver may be another process's."""

    @property
    def lists_all(self) -> bool:
        """Whether a process that a driver does not list is not on the GPU. A name that is hidden is not a gap."""
        return self.notice in ("", HIDDEN) and not self.has_own_pids


WSL = "WSL: Windows does not report which processes use a GPU, nor the memory of each"
NO_PROC = "/proc cannot be read here: processes have no names"
CONTAINER = "container: without --pid=host, processes outside of it are not listed or have no names"
HIDDEN = "hidepid: /proc hides other users' processes, which have no names unless the daemon runs as root"


def surroundings(proc: str = "/proc", dxg: str = "/dev/dxg") -> Surroundings:
    """Look where this process runs. `dxg` is the device through which a WSL machine reaches its GPUs."""
    own_pids = has_own_pids(proc)
    if os.path.exists(dxg):
        return Surroundings(WSL, own_pids)
    if not os.path.exists(f"{proc}/self"):
        return Surroundings(NO_PROC, own_pids)
    if own_pids:
        return Surroundings(CONTAINER, own_pids)
    # The first process belongs to root: whoever cannot read it sees only processes of its own user.
    return Surroundings("" if os.access(f"{proc}/1/stat", os.R_OK) else HIDDEN)
