"""Runs of a recording after a seek: the ledger tells of what has been played up to the place, and of nothing else."""

from __future__ import annotations

import os
import time
from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gpumon.cli.sampling import ledger_of_generation, private_sampler
from gpumon.common.paths import places
from gpumon.live import Live
from gpumon.sources.replay.recording import PAST
from gpumon.storage.ledger.reader import Ledger
from gpumon.storage.ledger.records import Record
from gpumon.storage.ledger.row_keys import WHOLE_EPOCH
from tests.recorded import simulated, write

PATIENCE = 60.0
LENGTH = 1500
SLACK = 3.0
"""Seconds by which a begin may lie before the first frame that tells of it."""


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twenty-five minutes of a GPU with a training."""
    file = tmp_path_factory.mktemp("recorded") / "a.gpumon"
    write(file, simulated(LENGTH, "sim:one"))
    return file


@contextmanager
def played(path: Path, ledger: str, **portion: str) -> Iterator[Live]:
    """A recording that has been played to its end, paused there."""
    source = Namespace(source=f"replay:{path}", interval=1.0, speed=100_000.0, gpm=True, **portion)
    with private_sampler(places(), source, ledger) as live:
        playback = live.playback
        assert playback is not None
        until(lambda: live.origin().ended and is_at(live, playback.end))
        playback.is_paused = True
        yield live


def is_at(live: Live, moment: float) -> bool:
    """Whether the newest frame is of a moment (s since 1970)."""
    newest = live.latest()
    return newest is not None and abs(newest.time - moment) < 0.5


def until(is_so: Callable[[], bool]) -> None:
    """Wait for something that happens in another thread."""
    deadline = time.monotonic() + PATIENCE
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def went(live: Live, seconds: float) -> tuple[float, float]:
    """The first and the last moment that is shown once the recording has gone elsewhere."""
    before, playback = live.generation, live.playback
    assert playback is not None
    newest = live.latest()
    assert newest is not None
    place = min(max(newest.time + seconds, playback.begin), playback.end)
    playback.seek(seconds)
    # All that lies before the place comes at once; no frame may stand just there.
    until(lambda: live.generation > before and (now := live.latest()) is not None and 0 <= place - now.time < 1.5)
    return live.since(0)[0].time, place


def kept(ledger: str, live: Live) -> list[Record]:
    """All runs of the ledger of the frames that are shown now."""
    path = ledger_of_generation(ledger, live.generation)
    until(lambda: os.path.exists(path))
    time.sleep(0.5)  # its thread writes
    with Ledger(path) as found:
        return [found.record(one.run.id) for one in found.runs()]


@pytest.mark.parametrize(("first", "then"), [(-300.0, 0.0), (-1400.0, 900.0)], ids=["back", "back and forward"])
def test_after_a_seek_runs_are_told_of_as_the_frames_up_to_there_know_them(
    path: Path, tmp_path: Path, first: float, then: float
) -> None:
    ledger = str(tmp_path / "ledger")
    with played(path, ledger) as live:
        whole = kept(ledger, live)
        begin, end = went(live, first)
        if then:
            begin, end = went(live, then)
        assert end - begin == pytest.approx(PAST, abs=5)
        found = kept(ledger, live)
        files = sorted(one.name for one in tmp_path.iterdir() if not one.name.endswith(("-wal", "-shm")))
    assert whole
    assert found, "the run that goes on there"
    assert max(one.run.updated for one in whole) > end + 100
    for record in found:
        assert record.run.updated <= end
        assert all(epoch.begun <= end for epoch in record.epochs), "yet to come"
        assert all(epoch.ended <= end for epoch in record.epochs if epoch.ended == epoch.ended)
        assert all(mark.time <= end for mark in record.marks)
    rows = [row for record in found for row in record.usage if row.ordinal >= 0 and row.phase == WHOLE_EPOCH]
    assert 0 < sum(row.value("sampled") for row in rows) <= end - begin + SLACK, "what was skipped was not seen"
    assert files == [f"ledger.{1 + bool(then)}"], "those of other places are gone"


def test_before_the_place_to_which_a_recording_goes_nothing_was_seen(path: Path, tmp_path: Path) -> None:
    ledger = str(tmp_path / "ledger")
    with played(path, ledger) as live:
        begin, _ = went(live, -100.0)
        found = kept(ledger, live)
    ended = [epoch for record in found for epoch in record.epochs if epoch.ended == epoch.ended]
    assert ended
    assert all(epoch.ended >= begin - SLACK for epoch in ended), "epochs of the time that was skipped"
