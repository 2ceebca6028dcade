"""`gpumon top`: each picture reads the frames since the one before, and no other."""

from __future__ import annotations

from typing import cast

from gpumon.cli.sampling import RecentFrames
from gpumon.diagnosis.live_findings import LOOK_BACK
from gpumon.live import Live
from gpumon.model.frame import Boundary, Frame
from tests.builders import boundary, frame_of, run, sample, tick


class Ring:
    """A ring, and how many frames were read of it by each question."""

    def __init__(self, frames: int) -> None:
        self.frames = [frame_of(tick(number, [sample(0)]), number) for number in range(1, frames + 1)]
        self.read: list[int] = []

    def since(self, number: int) -> list[Frame]:
        found = self.frames[0 if number > len(self.frames) else number :]
        self.read.append(len(found))
        return found

    def boundaries(self) -> list[Boundary]:
        return [one for frame in self.frames for one in frame.boundaries]

    def sampled(self, frames: int) -> Frame:
        for number in range(len(self.frames) + 1, len(self.frames) + frames + 1):
            self.frames.append(frame_of(tick(number, [sample(0)]), number))
        return self.frames[-1]


def test_a_picture_reads_only_the_frames_since_the_one_before() -> None:
    ring = Ring(900)
    followed = RecentFrames(cast("Live", ring))
    for new in (0, 1, 1, 10, 0):
        followed.until(ring.sampled(new))
    assert ring.read == [LOOK_BACK, 1, 1, 10]


def test_a_picture_knows_as_many_earlier_frames_as_status_in_their_order() -> None:
    ring = Ring(900)
    followed = RecentFrames(cast("Live", ring))
    for new in (0, 1, 7):
        newest = ring.sampled(new)
        assert followed.until(newest) == ring.frames[-LOOK_BACK:]


def test_a_frame_that_came_after_the_newest_was_read_is_not_read_twice() -> None:
    ring = Ring(5)
    followed = RecentFrames(cast("Live", ring))
    newest = ring.frames[-1]
    ring.sampled(1)
    followed.until(newest)
    assert [frame.number for frame in followed.until(ring.sampled(1))] == [1, 2, 3, 4, 5, 6, 7]
    assert ring.read == [6, 1]


def test_nothing_is_known_of_a_ring_before_the_present_one() -> None:
    ring = Ring(50)
    followed = RecentFrames(cast("Live", ring))
    followed.until(ring.frames[-1])
    ring.frames = ring.frames[:3]
    assert followed.until(ring.frames[-1]) == ring.frames


def test_epochs_are_known_from_before_the_frames_that_are_read_and_from_each_new_one() -> None:
    ring = Ring(900)
    for number, second in enumerate((1, 100, 200, 890)):
        told = (boundary(number + 1, number),)
        ring.frames[second] = frame_of(tick(second, [sample(0)], (), [run()], told), second + 1)
    followed = RecentFrames(cast("Live", ring))
    followed.until(ring.frames[-1])
    assert [mark.epoch for mark in followed.epochs.marks([run().key])] == [0, 1, 2, 3]
    ring.frames.append(frame_of(tick(901, [sample(0)], (), [run()], (boundary(5, 4),)), 901))
    followed.until(ring.frames[-1])
    assert [mark.epoch for mark in followed.epochs.marks([run().key])][-1] == 4
