"""A daemon that is killed: what no block has yet is taken from the ring, once, by the daemon that comes next."""

from __future__ import annotations

import os
import random
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import pairwise
from math import isclose, isnan
from pathlib import Path
from threading import current_thread

import pytest

from gpumon.common.procfs import boot_id
from gpumon.model.frame import Frame, Tick
from gpumon.storage.history.block import stored_blocks
from gpumon.storage.history.cell import HistoryCell
from gpumon.storage.history.query import HOST
from gpumon.storage.history.recorder import BATCH, HistoryRecorder
from gpumon.storage.history.schema import HISTORY_FILE
from gpumon.storage.history.tiers import GPU_COLUMNS, SHAPES, TierShape, columns_of
from gpumon.storage.history.write import written_until
from gpumon.storage.sqlite.write import open_to_write
from tests.builders import SECOND, TIME, device, frame_of, sample, tick
from tests.programs import PATIENCE, until

UID = os.getuid()
RING = "/somewhere/gpumon"
ENERGY = GPU_COLUMNS.names.index("gpu.energy")
T1, T2, T3 = SHAPES
GPUS = [device(0).uuid, device(1).uuid]


Reference = Callable[[list[Tick], list[int]], Path]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "history.sqlite"


class KilledHistory(HistoryRecorder):
    """One whose thread can be waited for."""

    is_idle = False

    def _is_due(self) -> bool:
        due = super()._is_due()
        if current_thread() is self._thread:  # who adds a tick asks too, also while it writes
            self.is_idle = not due
        return due

    def wait(self) -> None:
        """Wait until it has done all that it does without a further tick."""
        until(lambda: self.is_idle and not HistoryRecorder._is_due(self))


class Daemons:
    """Daemons that follow each other, and the ring that outlives them all."""

    def __init__(self, path: Path, directory: str = RING) -> None:
        self.path = path
        self.ring: list[Frame] = []
        self.history: KilledHistory | None = None
        self._directory = directory

    def earlier(self, since_ns: int) -> Iterator[Frame]:
        first = next((n for n, frame in enumerate(self.ring) if frame.monotonic_ns >= since_ns), len(self.ring))
        return iter(self.ring[max(0, first - 40) :])

    def feed(self, ticks: list[Tick]) -> None:
        """Take ticks, in a new daemon if there is none."""
        if self.history is None:
            self.history = KilledHistory(
                str(self.path), UID, pytest.fail, directory=self._directory, earlier=self.earlier
            )
            self.history.start()
        history = self.history
        for one in ticks:
            self.ring.append(frame_of(one, len(self.ring) + 1))
            history.add(one)
            if len(history._ticks) > 200:
                until(lambda: len(history._ticks) < BATCH)

    def kill(self) -> None:
        """Leave the daemon as it is: it hears of no more ticks, and writes nothing more."""
        assert self.history is not None
        self.history.wait()
        self.history = None

    def stop(self) -> None:
        assert self.history is not None
        self.history.close(PATIENCE)
        self.history = None


def second(number: float, interval: float = 1.0) -> Tick:
    found = tick(
        samples=(
            sample(0, utilization=number % 10 / 10, energy=1000 + 400 * number, power=400.0),
            sample(1, utilization=0.25, energy=5 * number),
        )
    )
    return found._replace(
        time_ns=found.time_ns + round(number * 1e9),
        monotonic_ns=found.monotonic_ns + round(number * 1e9),
        interval_ns=round(interval * 1e9),
    )


def cells(path: Path, shape: TierShape, subject: str) -> dict[int, HistoryCell]:
    """The cells of a tier, by number; asserts that none is there twice."""
    found: dict[int, HistoryCell] = {}
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        blocks = list(stored_blocks(connection, shape, 0, 1 << 60, subject))
        of_tier = "SELECT count(*) FROM block WHERE tier = ? AND subject = ?"
        assert connection.execute(of_tier, (shape.number, subject)).fetchone() == (len(blocks),), "none is damaged"
    for block in blocks:
        there = block.cells(columns_of(subject).names)
        assert not found.keys() & there.keys()
        found |= there
    return found


def grown(path: Path, shape: TierShape, subject: str) -> float:
    """Joules over all cells of a tier."""
    found = cells(path, shape, subject).values()
    return sum(cell.mean[ENERGY] * cell.seconds[ENERGY] for cell in found if not isnan(cell.mean[ENERGY]))


def assert_same(one: Path, other: Path, cuts: list[int]) -> None:
    """Both files have the same cells, but for the digits that gauges lose in a ring.

    The second between the last tick before each of `cuts` and the first one after it may be known or not.
    """
    for shape in SHAPES:
        for subject in (HOST, *GPUS):
            expected, found = cells(one, shape, subject), cells(other, shape, subject)
            assert set(found) == set(expected), (shape, subject)
            for number, cell in expected.items():
                begin = number * shape.step - TIME // SECOND
                near = sum(begin - 1 <= cut <= begin + shape.step for cut in cuts)
                for column in ("low", "mean", "high", "last", "seconds"):
                    off = 1.1 * near if column == "seconds" else 1e-3
                    values = zip(getattr(found[number], column), getattr(cell, column), strict=True)
                    assert all(
                        isclose(value, wanted, rel_tol=1e-6, abs_tol=max(off, 1e-3)) or (isnan(value) and isnan(wanted))
                        for value, wanted in values
                    ), (shape, subject, number, column)


@pytest.fixture
def reference(tmp_path: Path) -> Reference:
    def make(ticks: list[Tick], cuts: list[int]) -> Path:
        path = tmp_path / "reference" / "history.sqlite"
        daemons = Daemons(path)
        for first, last in pairwise(cuts):
            daemons.feed(ticks[first:last])
            daemons.stop()
        return path

    return make


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_daemons_that_are_killed_leave_the_same_history_as_those_that_are_stopped(
    path: Path, reference: Reference, seed: int
) -> None:
    ticks = [second(number + 0.4) for number in range(1800)]
    dice = random.Random(seed)
    cuts = [0, *sorted(dice.sample(range(1, 1800), 5)), 1800]
    daemons = Daemons(path)
    for first, last in pairwise(cuts):
        daemons.feed(ticks[first:last])
        if last < 1800:
            daemons.kill()
    daemons.stop()
    assert_same(reference(ticks, cuts), path, cuts)


def test_a_gap_between_the_kill_and_the_next_daemon_stays_a_gap(path: Path) -> None:
    daemons = Daemons(path)
    daemons.feed([second(number) for number in range(450)])
    daemons.kill()
    daemons.feed([second(number) for number in range(500, 700)])
    daemons.kill()
    daemons.feed([second(number) for number in range(710, 800)])
    daemons.stop()
    fine = cells(path, T1, GPUS[0])
    begin = min(fine)
    assert [number - begin for number in fine] == [*range(450), *range(500, 700), *range(710, 800)]
    for shape in SHAPES:
        assert grown(path, shape, GPUS[0]) == pytest.approx(400 * (449 + 199 + 89), rel=1e-6), shape


def test_a_daemon_that_was_stopped_leaves_nothing_to_be_taken_twice(path: Path) -> None:
    daemons = Daemons(path)
    daemons.feed([second(number / 10, 0.1) for number in range(1005)])
    daemons.stop()  # within a second
    daemons.feed([second(100.7 + number / 10, 0.1) for number in range(1000)])
    daemons.kill()
    daemons.feed([second(300)])
    daemons.stop()
    for shape in SHAPES:
        assert grown(path, shape, GPUS[0]) == pytest.approx(400 * (100.4 + 99.9 + 0.3), rel=1e-4), shape
    seconds = [cell.seconds[0] for cell in cells(path, T3, GPUS[0]).values()]
    assert sum(seconds) == pytest.approx(100.5 + 100.0 + 1.0, rel=1e-3)


def test_a_daemon_that_is_killed_soon_after_its_first_tick_loses_nothing(path: Path) -> None:
    daemons = Daemons(path)
    for first in range(0, 60, 6):  # fewer than the thread waits for, but for the first one
        daemons.feed([second(number) for number in range(first, first + 6)])
        daemons.kill()
    daemons.feed([second(60)])
    daemons.stop()
    assert len(cells(path, T1, GPUS[0])) == 61


def test_a_file_that_could_not_be_written_gets_all_that_the_ring_has_once_it_can(path: Path) -> None:
    said: list[str] = []
    path.parent.mkdir(mode=0o700)
    path.mkdir()
    daemons = Daemons(path)
    daemons.history = KilledHistory(str(path), UID, said.append, directory=RING, earlier=daemons.earlier)
    daemons.history.start()
    daemons.feed([second(number) for number in range(1000)])
    until(lambda: said)
    daemons.kill()
    path.rmdir()
    daemons.feed([second(number) for number in range(1000, 1100)])
    daemons.stop()
    assert len(cells(path, T1, GPUS[0])) == 1100
    assert grown(path, T3, GPUS[0]) == pytest.approx(400 * (999 + 99), rel=1e-6)


def test_each_directory_has_a_daemon_of_its_own(path: Path) -> None:
    one, other = Daemons(path), Daemons(path, "/elsewhere")
    one.feed([second(number) for number in range(400)])
    one.kill()
    other.feed([second(number) for number in range(1000, 1400)])
    other.stop()
    one.feed([second(410)])
    one.stop()
    begin = min(cells(path, T1, GPUS[0]))
    assert [n - begin for n in sorted(cells(path, T1, GPUS[0]))] == [*range(400), 410, *range(1000, 1400)]


def test_how_far_the_ticks_of_a_directory_are_written_is_known_by_boot(path: Path) -> None:
    connection = open_to_write(str(path), HISTORY_FILE, shared=False, uid=UID, log=pytest.fail)
    boot = boot_id().hex()
    assert written_until(connection, RING, boot) == 0
    connection.execute("INSERT INTO taken VALUES (?, ?, ?)", (RING, boot, 7))
    assert written_until(connection, RING, boot) == 7
    assert written_until(connection, RING, "another boot") == 0
    assert written_until(connection, "/elsewhere", boot) == 0
    connection.close()
