"""Accounts and events of ticks that a test has made, without a daemon and without the thread of its history."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from pathlib import Path

import pytest

from gpumon.common.clock import SECOND
from gpumon.daemon.followers import ActivityRecorder
from gpumon.model.frame import Tick
from gpumon.storage.history.schema import HISTORY_FILE
from gpumon.storage.sqlite.write import open_to_write

WRITTEN_EVERY = 60 * SECOND


def keep(
    path: Path, ticks: Iterable[Tick], *, stopped: Callable[[], int] = lambda: 0, kill: bool = False,
    earlier: Sequence[Tick] = (),
) -> None:  # fmt: skip
    """Write what a daemon would of these ticks, every minute and at its end; `kill`: it wrote, and then it was gone.

    `stopped`: when it was told to, ns since 1970; `earlier`: what the ring has of the daemon before.
    """
    part = ActivityRecorder(stopped, earlier=lambda _: earlier)
    with closing(open_to_write(str(path), HISTORY_FILE, shared=False, uid=os.getuid(), log=pytest.fail)) as connection:
        written, is_opened = 0, False
        for tick in ticks:
            part.add(tick)
            if not is_opened:
                part.on_open(connection)
                is_opened = True
            if tick.monotonic_ns - written >= WRITTEN_EVERY:
                written = tick.monotonic_ns
                part.write(connection)
        if not kill:
            part.finish()
        part.write(connection)
