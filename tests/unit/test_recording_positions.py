"""Any moment of a recording: the frames up to it, in the order of the file, and none from after it."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest

from gpumon.common.clock import SECOND
from gpumon.common.errors import SourceError, UsageError
from gpumon.recording.content import Context, RecordedFrame
from gpumon.recording.playback import Portion, time_ns
from gpumon.recording.positions import MAX_PAST_FRAMES, PAST_SECONDS, Positions
from tests import builders
from tests.recorded import bits, read, simulated, write

SHORT = 300


@pytest.fixture(scope="module")
def recorded() -> list[RecordedFrame]:
    """Five minutes of a simulation of one GPU."""
    return simulated(SHORT, "sim:one")


@contextmanager
def opened(path: Path, recorded: list[RecordedFrame], portion: Portion | None = None) -> Iterator[Positions]:
    write(path, recorded)
    with closing(Positions(str(path), portion or Portion())) as positions:
        yield positions


def alike(frames: Sequence[RecordedFrame]) -> list[Any]:
    """Frames to compare, whatever their numbers."""
    return [bits(one.frame, number=False) for one in frames]


def placed(times: list[float], boots: list[int] | None = None) -> list[RecordedFrame]:
    """Frames at these times (s since 1970), their monotonic clocks a second apart."""
    found = []
    for number, time in enumerate(times, 1):
        tick = builders.tick(number, time_ns=round(time * SECOND))
        found.append(RecordedFrame(builders.frame_of(tick, number), Context()))
    return found


def test_a_position_has_the_frames_up_to_it_bit_for_bit(tmp_path: Path, recorded: list[RecordedFrame]) -> None:
    chance = Random(1)
    with opened(tmp_path / "a", recorded) as positions:
        for _ in range(40):
            place = chance.randrange(SHORT)
            between = chance.randrange(SECOND)
            found = positions.at(time_ns(recorded[place]) + between)
            assert found.number == place + 1
            oldest = time_ns(recorded[place]) + between - PAST_SECONDS * SECOND
            expected = [one for one in recorded[: place + 1] if time_ns(one) >= oldest]
            assert alike(found.frames) == alike(expected)
            assert [one.frame.number for one in found.frames] == [recorded.index(one) + 1 for one in expected]


def test_it_says_which_frame_follows_and_that_none_does(tmp_path: Path, recorded: list[RecordedFrame]) -> None:
    with opened(tmp_path / "a", recorded) as positions:
        following = positions.at(time_ns(recorded[120])).following
        assert following is not None
        assert alike([following]) == alike([recorded[121]])
        assert positions.at(time_ns(recorded[-1])).following is None


def test_what_was_seen_is_not_given_again(tmp_path: Path, recorded: list[RecordedFrame]) -> None:
    with opened(tmp_path / "a", recorded) as positions:
        at = time_ns(recorded[200])
        assert [one.frame.number for one in positions.at(at, 198).frames] == [199, 200, 201]
        assert positions.at(at, 201).number == 201
        assert len(positions.at(at, 202).frames) == 201, "who has seen more than there is begins anew"
        assert len(positions.at(at, 10, max_frames=50).frames) == 50, "and who has seen too little"


@pytest.mark.parametrize("position", [0, -1, -(1 << 70), 1 << 70, 1 << 62])
def test_a_position_outside_is_the_nearest_one_inside(
    tmp_path: Path, recorded: list[RecordedFrame], position: int
) -> None:
    with opened(tmp_path / "a", recorded) as positions:
        assert positions.at(position).number == (1 if position <= 0 else SHORT)


def test_a_portion_has_no_position_outside(tmp_path: Path, recorded: list[RecordedFrame]) -> None:
    with opened(tmp_path / "a", recorded, Portion("1m", "2m")) as positions:
        assert positions.begin_ns == time_ns(recorded[0]) + 60 * SECOND
        assert time_ns(positions.at(1 << 62).frames[-1]) <= time_ns(recorded[0]) + 120 * SECOND
        assert positions.at(1 << 62).following is None
        assert time_ns(positions.at(1 << 62).frames[0]) >= positions.begin_ns
    with pytest.raises(UsageError, match="--to 1m is not after --from 2m"):
        Positions(str(tmp_path / "a"), Portion("2m", "1m"))


def test_positions_that_grow_never_lead_back_where_a_clock_was_set(tmp_path: Path) -> None:
    begin = 1_790_000_000.0
    times = [begin + at for at in (*range(400), *range(100, 500))]
    with opened(tmp_path / "a", placed(times)) as positions:
        numbers = [positions.at(round((begin + at) * SECOND)).number for at in range(-5, 505, 3)]
        assert numbers == sorted(numbers)
        assert (numbers[0], numbers[-1]) == (1, 800)


def test_of_a_fast_recording_the_newest_frames_come(tmp_path: Path) -> None:
    begin = 1_790_000_000.0
    with opened(tmp_path / "a", placed([begin + at / 10 for at in range(MAX_PAST_FRAMES + 300)])) as positions:
        assert len(positions.at(1 << 62).frames) == MAX_PAST_FRAMES


def test_nothing_behind_damage_is_shown_whoever_comes_to_it_first(
    tmp_path: Path, recorded: list[RecordedFrame]
) -> None:
    raw = bytearray(write(tmp_path / "a", recorded))
    raw[len(raw) * 3 // 4] ^= 1
    (tmp_path / "a").write_bytes(raw)
    whole, problem = read(tmp_path / "a")
    assert 0 < len(whole) < SHORT
    with closing(Positions(str(tmp_path / "a"))) as positions:
        assert positions.at(time_ns(recorded[-1])).number == len(whole)
        assert positions.end_ns == time_ns(whole[-1])
        assert positions.reader.problem == problem
        assert "is damaged: it plays up to" in problem


def test_what_has_no_whole_frame_is_one_sentence(tmp_path: Path, recorded: list[RecordedFrame]) -> None:
    raw = bytearray(write(tmp_path / "a", recorded[:3]))
    raw[-90] ^= 1
    (tmp_path / "a").write_bytes(raw)
    with (
        closing(Positions(str(tmp_path / "a"))) as positions,
        pytest.raises(SourceError, match="no part of it can be played"),
    ):
        positions.at(0)


def test_a_walk_through_a_recording_keeps_little_of_it(tmp_path: Path, recorded: list[RecordedFrame]) -> None:
    begin = 1_790_000_000.0
    with opened(tmp_path / "a", placed([begin + at for at in range(6000)])) as positions:
        tracemalloc.start()
        for at in range(0, 6000, 50):
            positions.at(round((begin + at) * SECOND))
        kept, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert kept < 20e6
