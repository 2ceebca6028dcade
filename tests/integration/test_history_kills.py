"""Daemons killed at random moments: history has every moment that the ring has, once, and its file is never damaged.

The daemons are real and on the stub driver, but their blocks are short: seconds of each life cross many borders.
"""

from __future__ import annotations

import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from itertools import pairwise
from pathlib import Path

import pytest

from gpumon.common.clock import SECOND
from gpumon.model.frame import Frame
from gpumon.model.metrics import Availability
from gpumon.ring.reader import RingReader
from gpumon.storage.history.block import stored_blocks
from gpumon.storage.history.cell import HistoryCell
from gpumon.storage.history.counters import PAUSE, SHORTEST_INTERVAL, counted_at
from gpumon.storage.history.query import HOST
from gpumon.storage.history.tiers import GPU_COLUMNS, TierShape, columns_of
from tests.nvml import Stub
from tests.programs import PATIENCE, Child, environment

SHAPES = (TierShape(1, 1, 6, 3600), TierShape(2, 2, 9, 3600), TierShape(3, 6, 4, 3600))
"""As those of the product, but that blocks are 6, 18 and 24 s long."""
PROGRAM = f"""
import sys
from gpumon.storage.history import tiers
tiers.SHAPES = tuple(tiers.TierShape(*shape) for shape in {[tuple(shape) for shape in SHAPES]})
from gpumon.cli import main
sys.exit(main())
"""
INTERVAL = 0.05
ENERGY = GPU_COLUMNS.names.index("gpu.energy")


@contextmanager
def quick_daemon(env: Mapping[str, str]) -> Iterator[subprocess.Popen[str]]:
    """A daemon with short blocks that has its first frame; stopped at the end, where it was not killed."""
    arguments = [sys.executable, "-c", PROGRAM, "daemon", "--interval", str(INTERVAL)]
    with Child(arguments, env=dict(env), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline().startswith("gpumon daemon")
            yield process
        finally:
            process.terminate()
            _, errors = process.communicate(timeout=PATIENCE)
    assert errors == ""


def frames(live_dir: Path) -> list[Frame]:
    """All that the ring has."""
    with closing(RingReader.open(str(live_dir / "ring"))) as reader:
        return reader.since(0)


def cells(path: Path, shape: TierShape, subject: str) -> dict[int, HistoryCell]:
    """The cells of a tier, by number; no block has one that another has, too."""
    with closing(sqlite3.connect(path)) as connection:
        blocks = list(stored_blocks(connection, shape, 0, 1 << 60, subject))
        of_tier = "SELECT count(*) FROM block WHERE tier = ? AND subject = ?"
        assert connection.execute(of_tier, (shape.number, subject)).fetchone() == (len(blocks),), "none is damaged"
    found: dict[int, HistoryCell] = {}
    for block in blocks:
        found |= block.cells(columns_of(subject).names)
    return found


def grown(found: Mapping[int, HistoryCell]) -> float:
    """Joules over all cells."""
    pairs = ((cell.mean[ENERGY], cell.seconds[ENERGY]) for cell in found.values())
    return sum(rate * seconds for rate, seconds in pairs if seconds)


def measured(ring: list[Frame], uuid: str, strict: float, killed: Sequence[int] = ()) -> float:
    """Joules between frames that follow each other closely enough for a rate, by a limit that is `strict` times ours.

    Close to the limit a stretch may count or not: a device is read at another moment of a late tick than its counters
    were, and a busy machine lets time pass between the readings of a tick's two clocks. Stretches in which a daemon was
    `killed` (ns, CLOCK_MONOTONIC) are left out: one that starts anew within the limit does not know what was between.
    """
    longest = strict * PAUSE * max(INTERVAL, SHORTEST_INTERVAL)
    total = 0.0
    for before, after in pairwise(ring):
        old, new = ({one.device.uuid: one for one in frame.samples} for frame in (before, after))
        if uuid in old and uuid in new and new[uuid].state is Availability.OK is old[uuid].state:
            read = counted_at(new[uuid], after) - counted_at(old[uuid], before)
            is_cut = any(before.monotonic_ns <= kill <= after.monotonic_ns for kill in killed)
            if not is_cut and max(read, after.monotonic_ns - before.monotonic_ns) <= longest * SECOND:
                total += new[uuid].value("gpu.energy") - old[uuid].value("gpu.energy")
    return total


@pytest.mark.parametrize("kills", [4, pytest.param(20, marks=pytest.mark.slow)])
def test_kills_lose_nothing_that_the_ring_has(stub: Stub, live_dir: Path, kills: int) -> None:
    env, path = environment(live_dir, stub.env()), live_dir / "state" / "history.sqlite"
    dice, killed = random.Random(kills), []
    for _ in range(kills):
        with quick_daemon(env) as process:
            time.sleep(dice.uniform(0.0, 3.0))
            process.send_signal(signal.SIGKILL)
            killed.append(time.monotonic_ns())
        if path.exists():
            with closing(sqlite3.connect(path)) as connection:
                assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    with quick_daemon(env):
        time.sleep(1.0)
    ring = frames(live_dir)
    assert ring[0].number == 1, "the ring was too short for this machine"
    uuids = [sample.device.uuid for sample in ring[-1].samples]
    for shape in SHAPES:
        seen = {int(frame.time // shape.step) for frame in ring}
        for subject in (HOST, *uuids):
            assert set(cells(path, shape, subject)) == seen, (shape, subject)
        for uuid in uuids:
            joules = grown(cells(path, shape, uuid))
            assert measured(ring, uuid, 0.5, killed) * 0.998 <= joules <= measured(ring, uuid, 1.25) * 1.002, (
                shape,
                uuid,
            )
    assert not list(path.parent.glob("*.damaged-*"))
