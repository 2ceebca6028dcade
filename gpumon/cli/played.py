"""The ledger of what a daemon plays, beside its ring: a simulation or a recording, whose runs are no hardware's."""

from __future__ import annotations

import os
from contextlib import closing, suppress

from gpumon.common.errors import RingError
from gpumon.common.paths import PLAYED, Places, ring_paths
from gpumon.live import Live
from gpumon.model.origin import Capability


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
