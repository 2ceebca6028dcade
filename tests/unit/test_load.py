"""The word for a busy GPU holds still, and follows what lasts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby

import pytest

from gpumon.analysis.gpu_state import Activity, GpuState
from gpumon.analysis.gpu_status import busy_counts, gpu_statuses
from gpumon.model.frame import Frame
from tests.builders import frame_of, judged, process, sample, tick

GIB = 2.0**30


def frames(shares: Iterable[float], memory: float = 40 * GIB) -> list[Frame]:
    """A frame a second of a GPU with these utilizations."""
    kept = {"memory_used": memory, "memory_total": 80 * GIB, "memory_reserved": 0.5 * GIB}
    return [
        frame_of(tick(second, [sample(0, utilization=share, **kept)], [process()] if memory else ()), second)
        for second, share in enumerate(shares, start=1)
    ]


def words(of: Sequence[Frame]) -> list[str]:
    """The word of the GPU at each frame."""
    activity, found = Activity(), []
    for frame in of:
        activity.add(frame)
        found += [status.word() for status in gpu_statuses(frame, [], activity)]
    return found


def in_turn(of: Sequence[Frame]) -> list[tuple[str, int]]:
    """The words one after the other, each with its seconds."""
    return [(word, len(list(same))) for word, same in groupby(words(of))]


def test_samples_on_both_sides_of_a_threshold_change_no_word() -> None:
    about_idle = [0.04, 0.06, 0.04, 0.05, 0.06, 0.03] * 10
    assert in_turn(frames([0.0, 0.9, *about_idle]))[-2:] == [("busy", 3), ("pausing", 58)]
    assert in_turn(frames(about_idle[1:])) == [("light load", 59)]
    about_light = [0.19, 0.22, 0.18, 0.21] * 10
    assert in_turn(frames([0.9, *about_light])) == [("busy", 41)]


def test_a_sample_between_two_steps_is_no_pause() -> None:
    assert in_turn(frames([0.9, 0.9, 0.0, 0.9, 0.02, 0.0, 0.9])) == [("busy", 7)]


def test_busy_ends_after_seconds_at_0() -> None:
    assert in_turn(frames([0.9, *[0.0] * 20])) == [("busy", 3), ("pausing", 18)]
    assert in_turn(frames([0.9, *[0.1] * 20])) == [("busy", 3), ("light load", 18)]


def test_a_light_load_ends_after_seconds_at_0() -> None:
    assert in_turn(frames([0.1, 0.1, *[0.0] * 20])) == [("light load", 4), ("pausing", 18)]
    assert in_turn(frames([0.1, 0.1, *[0.04] * 20])) == [("light load", 11), ("pausing", 11)]


def test_a_gpu_that_begins_to_work_is_busy_at_once() -> None:
    assert words(frames([0.9, *[0.0] * 10, 0.9]))[-2:] == ["pausing", "busy"]


def test_a_lasting_light_load_and_a_later_pause_are_shown() -> None:
    told = in_turn(frames([0.9, *[0.0] * 10, *[0.1] * 20, *[0.0] * 20]))
    assert told == [("busy", 3), ("pausing", 17), ("light load", 13), ("pausing", 18)]


@pytest.mark.parametrize("before", [frames([0.0] * 61), frames([0.9, *[0.0] * 20], memory=0.0)], ids=["idle", "free"])
def test_earlier_idleness_does_not_make_a_light_load_a_pause(before: list[Frame]) -> None:
    at = len(before)
    kept = {"memory_used": 40 * GIB, "memory_total": 80 * GIB, "memory_reserved": 0.5 * GIB}
    begins = frame_of(tick(at + 1, [sample(0, utilization=0.07, **kept)], [process()]), at + 1)
    assert words([*before, begins])[-2:] in (["allocated, idle", "light load"], ["free", "light load"])


def test_one_frame_alone_has_the_word_of_its_sample() -> None:
    assert [words(frames([share]))[0] for share in (0.9, 0.1)] == ["busy", "light load"]


def test_busy_gpus_are_counted_by_load() -> None:
    shares = (0.9, 0.0, 0.1, 0.9)
    statuses = [judged(sample(at, utilization=share), GpuState.BUSY) for at, share in enumerate(shares)]
    assert busy_counts(statuses) == [(2, "busy"), (1, "light load"), (1, "pausing")]
    assert busy_counts(statuses, is_brief=True) == [(4, "in use")]
    assert busy_counts(statuses[:1], is_brief=True) == [(1, "busy")]
    assert busy_counts([]) == busy_counts([], is_brief=True) == [(0, "busy")]
