"""Access to a recording by time, for several viewers at different positions.

A position is a time. In file order, the frame shown at a position is the frame just before the first frame with a later
time. So a later position never shows an earlier frame, even if the clock was set during the recording.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate

from gpumon.common.clock import SECOND
from gpumon.recording.content import RecordedFrame
from gpumon.recording.format import DamagedRecording
from gpumon.recording.playback import WHOLE, Portion, time_ns
from gpumon.recording.reader import RecordingReader

PAST_SECONDS = 600
"""Seconds of history that are returned with a position."""
MAX_PAST_FRAMES = 1200
"""Maximum number of frames of history. If there are more frames in this time, the newest are returned."""
_MAX_BLOCKS = 8
"""Maximum number of decoded blocks in the cache. They are sufficient for the history of a position, and for a few steps
back."""


@dataclass(frozen=True, slots=True)
class Excerpt:
    """The frames up to a position. The last frame is the one that is shown."""

    frames: Sequence[RecordedFrame]
    """The frames, oldest first, numbered from 1 in file order."""
    following: RecordedFrame | None
    """The frame after these frames; None at the end of the recording."""

    @property
    def number(self) -> int:
        """Number of the frame that is shown."""
        return self.frames[-1].frame.number


class Positions:
    """A recording that is read by time. Must not be used from several threads at once.

    Raises SourceError if the recording cannot be read, and UsageError if the portion to play is invalid.
    """

    def __init__(self, path: str, portion: Portion = WHOLE) -> None:
        self.reader = RecordingReader(path)
        try:
            self._first = max(portion.begin_ns(self.reader.first_ns), self.reader.first_ns)
            self._last = portion.end_ns(self.reader.first_ns)
        except BaseException:
            self.reader.close()
            raise
        self._is_checked = False
        self._blocks: OrderedDict[int, Sequence[RecordedFrame]] = OrderedDict()
        self._index()

    @property
    def begin_ns(self) -> int:
        """First position, in ns since 1970."""
        return self._first

    @property
    def end_ns(self) -> int:
        """Last position, in ns since 1970. It becomes earlier if damage is found."""
        return max(min(self._last, self._peak), self._first)

    def at(self, position_ns: int, after: int = 0, max_frames: int = MAX_PAST_FRAMES) -> Excerpt:
        """Return the frames up to a position in ns since 1970.

        A position outside the recording is moved to its start or end. `after`: number of the last frame that the caller
        already has, 0 for none. If at most `max_frames` frames follow this frame, only they are returned. Otherwise, as
        many frames are returned as views need for their history. Raises SourceError if no frame is left because of
        damage.
        """
        if not self._is_checked:
            # The whole file is checked first, so that no viewer sees frames after damage.
            self._is_checked = True
            self.reader.check()
            self._index()
        while True:
            try:
                return self._at(min(max(position_ns, self.begin_ns), self.end_ns), after, max_frames)
            except DamagedRecording:
                self._index()

    def close(self) -> None:
        """Close the file."""
        self.reader.close()

    def _index(self) -> None:
        heads = self.reader.heads
        self._starts = [0, *accumulate(head.frames for head in heads)]
        self._begins = list(accumulate((head.first_ns for head in heads), max))
        self._peak = max(head.last_ns for head in heads)

    def _at(self, position_ns: int, after: int, max_frames: int) -> Excerpt:
        block = max(bisect_right(self._begins, position_ns) - 1, 0)
        frames = self._block_frames(block)
        count = next((i for i, frame in enumerate(frames) if time_ns(frame) > position_ns), len(frames)) or 1
        number = self._starts[block] + count
        if 0 < after <= number <= after + max_frames:
            frames = self._frames_until(number, lambda recorded: recorded.frame.number > after)
        else:
            oldest = max(position_ns - PAST_SECONDS * SECOND, self._first)
            frames = self._frames_until(
                number, lambda recorded: number - recorded.frame.number < max_frames and time_ns(recorded) >= oldest
            )
        following = self._frame(number + 1)
        if following is not None and time_ns(following) > self._last:
            following = None
        return Excerpt(frames, following)

    def _frames_until(self, number: int, belongs: Callable[[RecordedFrame], bool]) -> Sequence[RecordedFrame]:
        """Return frame `number` and the frames before it for which `belongs` returns True, oldest first.

        The search stops at the first frame for which `belongs` returns False.
        """
        frames: list[RecordedFrame] = []
        while (frame := self._frame(number - len(frames))) is not None and (not frames or belongs(frame)):
            frames.append(frame)
        return frames[::-1]

    def _frame(self, number: int) -> RecordedFrame | None:
        """Return the frame with this number in the file, or None if there is none. Raises DamagedRecording."""
        if not 0 < number <= self._starts[-1]:
            return None
        block = bisect_right(self._starts, number - 1) - 1
        return self._block_frames(block)[number - 1 - self._starts[block]]

    def _block_frames(self, block: int) -> Sequence[RecordedFrame]:
        """Return the frames of a block, from the cache if possible. Raises DamagedRecording."""
        frames = self._blocks.get(block)
        if frames is None:
            frames = self.reader.block(block)
            for i, recorded in enumerate(frames):
                recorded.frame.number = self._starts[block] + i + 1  # replaces the frame's number in the ring
            self._blocks[block] = frames
            if len(self._blocks) > _MAX_BLOCKS:
                self._blocks.popitem(last=False)
        self._blocks.move_to_end(block)
        return frames
