"""A recording as a source: the frames of a ring, recorded and replayed into another ring, are the same."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import pytest

from gpumon.common.clock import SECOND
from gpumon.common.errors import SourceError, UsageError
from gpumon.common.paths import Places
from gpumon.daemon.recorder import Recorder
from gpumon.daemon.sampler import make_sampler
from gpumon.live import Live
from gpumon.model.frame import Frame
from gpumon.model.metrics import Availability
from gpumon.model.origin import Capability
from gpumon.recording.content import Context, RecordedFrame
from gpumon.recording.playback import Playback, Portion
from gpumon.ring.writer import RingWriter
from gpumon.sources.replay.recording import RecordingSource
from tests import builders
from tests.fakes import FakeClock
from tests.recorded import bits, simulated, write


@pytest.fixture(scope="module")
def recorded() -> list[RecordedFrame]:
    """Two minutes of a simulation of one GPU."""
    return simulated(120, "sim:one")


@pytest.fixture
def path(tmp_path: Path, recorded: list[RecordedFrame]) -> Path:
    write(tmp_path / "a.gpumon", recorded)
    return tmp_path / "a.gpumon"


class Player:
    """A recording that plays into a private ring, by a clock of the test's."""

    def __init__(self, path: Path, speed: float = 1.0, **portion: str) -> None:
        self.clock = FakeClock()
        self.playback = Playback(Portion(**portion))
        sampler = make_sampler(f"replay:{path}", Places(), self.clock, 1.0, speed, playback=self.playback)
        self.recorder = Recorder(sampler, self.clock)
        self.playback.on_seek = self.recorder.restart
        self.live = Live(self.recorder.open_ring, generation=lambda: self.recorder.generation)

    def after(self, seconds: float) -> list[Frame]:
        """All frames of the ring so many seconds later."""
        self.clock.advance(seconds)
        self.recorder.sample_once()
        return self.live.since(0)

    def numbers(self, seconds: float, recorded: list[RecordedFrame]) -> list[int]:
        """Places in the recording of all frames of the ring so many seconds later."""
        places = {one.frame.time: i for i, one in enumerate(recorded)}
        return [places[frame.time] for frame in self.after(seconds)]


def test_frames_that_were_recorded_and_replayed_are_the_same_bit_for_bit(
    path: Path, recorded: list[RecordedFrame]
) -> None:
    player = Player(path, speed=10)
    found = player.after(20)
    assert [bits(frame, number=False) for frame in found] == [bits(one.frame, number=False) for one in recorded]
    assert player.live.driver() == recorded[0].context.driver
    assert player.live.hostname() == "simulated"
    assert player.live.origin().speed == 10


def test_what_a_ring_had_no_room_for_is_still_told(tmp_path: Path) -> None:
    tick = builders.tick(
        3, [builders.sample(0, Availability.STALE, power=312.5)._replace(age=1.001, monotonic_ns=17)],
        [builders.process(pid) for pid in range(1, 2000)], [builders.run()], unread=3, skipped_ticks=7,
        sample_duration_ns=4_321_000, interval_ns=250_000_000,
    )  # fmt: skip
    ring = RingWriter.private(1, SECOND, 4)
    ring.append(tick)
    (frame,) = Live(lambda: ring_fd(ring)).since(0)
    assert frame.dropped > 0
    write(tmp_path / "a.gpumon", [RecordedFrame(frame, Context())])
    (found,) = Player(tmp_path / "a.gpumon").after(0)
    assert bits(found, number=False) == bits(frame, number=False)
    ring.close()


def ring_fd(ring: RingWriter) -> int:
    import os

    return os.dup(ring.fd)


def test_frames_become_due_at_the_speed_that_was_asked_for(path: Path, recorded: list[RecordedFrame]) -> None:
    player = Player(path, speed=10)
    assert player.numbers(0, recorded) == [0]
    assert player.numbers(1.05, recorded) == list(range(11))
    assert player.live.origin().label == "REPLAY a.gpumon ×10 (SIMULATED)"
    assert not player.live.origin().ended
    player.after(20)
    player.after(0)
    assert player.live.origin().label == "REPLAY a.gpumon ended (SIMULATED)"
    assert player.live.origin().ended
    assert Capability.PROCESSES in player.live.origin().capabilities
    assert Capability.NOW not in player.live.origin().capabilities


def test_a_pause_holds_it_and_what_follows_is_not_skipped(path: Path, recorded: list[RecordedFrame]) -> None:
    player = Player(path)
    assert len(player.after(5.5)) == 6
    player.playback.is_paused = True
    assert len(player.after(50)) == 6
    player.playback.is_paused = False
    assert player.numbers(1, recorded)[-2:] == [5, 6]


def test_another_place_comes_with_the_minutes_before_it(path: Path, recorded: list[RecordedFrame]) -> None:
    player = Player(path)
    player.after(5.5)
    player.playback.seek(60.5)
    assert player.numbers(0, recorded) == list(range(66))
    player.playback.seek(-30)
    player.playback.seek(-9.5)
    assert player.numbers(0, recorded) == list(range(26))
    assert player.numbers(2, recorded)[-1] in (27, 28)
    player.playback.seek(1e9)
    assert player.numbers(0, recorded) == list(range(120))
    player.playback.seek(-1e9)
    assert player.numbers(0, recorded) == [0]
    assert player.recorder.generation == 4


def test_another_place_is_shown_while_paused(path: Path, recorded: list[RecordedFrame]) -> None:
    player = Player(path)
    player.playback.is_paused = True
    player.playback.seek(10.5)
    assert player.numbers(5, recorded) == list(range(11))


def test_only_the_portion_that_was_named_is_played(path: Path, recorded: list[RecordedFrame]) -> None:
    player = Player(path, begin="30s", end="60s")
    assert player.numbers(0, recorded)[0] in (30, 31)
    assert player.numbers(500, recorded)[-1] in (59, 60)
    player.playback.seek(-1e9)
    assert player.numbers(0, recorded)[0] in (30, 31)


def test_a_moment_may_be_a_time_of_day_or_a_date(recorded: list[RecordedFrame]) -> None:
    first = datetime(2026, 11, 22, 23, 50, 30)
    first_ns = round(first.timestamp()) * SECOND

    def since(text: str) -> float:
        return (Portion(text).begin_ns(first_ns) - first_ns) / SECOND

    assert since("23:51") == 30
    assert since("23:50:30") == 0
    assert since("00:10") == 1170
    assert since("2026-11-22 23:50:40") == 10
    assert since("2026-11-22T23:50") == -30
    assert since("2m") == 120


@pytest.mark.parametrize("text", ["noon", "-5m", "nans", "infs", "25:00", "1e99d", "10"])
def test_what_is_no_moment_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="is not a time in a recording: write a time of day"):
        Portion(text).checked()


def test_an_end_before_the_beginning_is_refused(path: Path) -> None:
    with pytest.raises(UsageError, match="--to 10s is not after --from 20s"):
        Player(path, begin="20s", end="10s")
    with pytest.raises(SourceError, match=r"a.gpumon ends at \S+: start earlier than that"):
        Player(path, begin="1h")
    with pytest.raises(UsageError, match="invalid speed 0"):
        RecordingSource(str(path), speed=0.0, clock=FakeClock())


def test_a_clock_that_was_set_makes_nobody_wait(tmp_path: Path) -> None:
    ticks = [builders.tick(i + 1) for i in range(6)]
    jumps = (0, 0, 3600, 3600, -3600, -3600)  # seconds by which the time of day was set
    ticks = [tick._replace(time_ns=tick.time_ns + by * SECOND) for tick, by in zip(ticks, jumps, strict=True)]
    ticks[5] = ticks[5]._replace(monotonic_ns=SECOND)  # another boot
    write(
        tmp_path / "a.gpumon",
        [RecordedFrame(builders.frame_of(tick, i + 1), Context()) for i, tick in enumerate(ticks)],
    )
    player = Player(tmp_path / "a.gpumon")
    assert [len(player.after(1)) for _ in range(5)] == [2, 3, 4, 5, 6]


def test_a_damaged_recording_plays_up_to_the_damage_and_says_so(path: Path) -> None:
    whole = bytearray(path.read_bytes())
    whole[whole.index(b"GPMB") + 100] ^= 1
    path.write_bytes(whole)
    with pytest.raises(
        SourceError, match=r"^a.gpumon: block 1, at byte \d+ of \d+, is damaged: no part of it can be played$"
    ):
        Player(path)


def test_a_recording_that_was_cut_says_so_and_plays(tmp_path: Path) -> None:
    path = tmp_path / "a.gpumon"
    whole = write(path, simulated(240, "sim:one"))
    path.write_bytes(whole[: len(whole) - 500])
    player = Player(path, speed=1000)
    assert len(player.after(1)) == 150
    player.after(0)
    assert "damaged after " in player.live.origin().label
    assert player.playback.problem.startswith("a.gpumon: block 5, at byte ")
    assert player.playback.problem.endswith("(150 frames)")


def test_a_recording_that_stands_still_shows_its_first_frame_where_it_is_taken_to_its_begin(
    tmp_path: Path, recorded: list[RecordedFrame]
) -> None:
    for first in range(1, 9):  # times of day in ns do not all fit into a float
        path = tmp_path / f"{first}.gpumon"
        write(path, recorded[first:])
        player = Player(path)
        player.after(20)
        player.playback.is_paused = True
        player.playback.seek(-600)
        assert player.numbers(1, recorded) == [first]
        assert player.playback.completed_seek == (1, recorded[first].frame.time)


def test_a_recording_tells_where_it_goes_and_once_all_up_to_there_has_been_read(
    path: Path, recorded: list[RecordedFrame], monkeypatch: pytest.MonkeyPatch
) -> None:
    player = Player(path, speed=10)
    player.after(20)
    monkeypatch.setattr("gpumon.sources.replay.recording.BURST", 50)
    player.playback.seek(-40)
    assert (player.playback.seeks, player.playback.completed_seek[0]) == (0, 0)
    player.playback.is_paused = True
    player.after(1)
    assert player.playback.seek_target == pytest.approx(recorded[-1].frame.time - 40)
    assert (player.playback.seeks, player.playback.completed_seek[0]) == (1, 0)
    player.after(1)
    turn, last = player.playback.completed_seek
    assert turn == 1
    assert 0 <= player.playback.seek_target - last < 1.1
