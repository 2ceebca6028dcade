"""Any moment of a recording, for viewers that each have a position of their own.

A position is a time. Its frame is the last one, in the order of the file, before the first later one: positions that
grow never lead back, also where a clock was set.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import NamedTuple

from gpumon.common.clock import SECOND
from gpumon.recording.content import Recorded
from gpumon.recording.format import Damaged
from gpumon.recording.playback import WHOLE, Portion, time_ns
from gpumon.recording.reader import RecordingReader

PAST = 600
"""Seconds before a position that come with it."""
MOST_PAST = 1200
"""Frames of them at most: of a fast recording the newest."""
_BLOCKS = 8
"""Decoded blocks that are kept, so that a step back decodes nothing: the past of a position, and a few."""


class Excerpt(NamedTuple):
    """The frames up to a position."""

    frames: Sequence[Recorded]
    """Oldest first, numbered from 1 by their places in the file; the last one is what is shown."""
    following: Recorded | None
    """The frame that comes next; None at the end."""

    @property
    def number(self) -> int:
        """The number of the frame that is shown."""
        return self.frames[-1].frame.number


class Positions:
    """A recording by position. Not safe to use from several threads.

    Raises SourceError where the recording cannot be read, UsageError for a portion that makes no sense.
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
        self._blocks: OrderedDict[int, Sequence[Recorded]] = OrderedDict()
        self._index()

    @property
    def begin_ns(self) -> int:
        """The first position, in ns since 1970."""
        return self._first

    @property
    def end_ns(self) -> int:
        """The last position, in ns since 1970: earlier once damage was found."""
        return max(min(self._last, self._peak), self._first)

    def at(self, position_ns: int, after: int = 0, most: int = MOST_PAST) -> Excerpt:
        """Return what is known at a position, which is moved into the recording where it is outside.

        The frames are those after number `after`, if that is at most `most` before; else the past of the position.
        Raises SourceError where damage leaves nothing.
        """
        if not self._is_checked:
            # Nothing behind damage is ever shown, whichever reader comes to it first.
            self._is_checked = True
            self.reader.check()
            self._index()
        while True:
            try:
                return self._at(min(max(position_ns, self.begin_ns), self.end_ns), after, most)
            except Damaged:
                self._index()

    def close(self) -> None:
        """Let go of the file."""
        self.reader.close()

    def _index(self) -> None:
        heads = self.reader.heads
        self._starts = [0, *accumulate(head.frames for head in heads)]
        self._begins = list(accumulate((head.first_ns for head in heads), max))
        self._peak = max(head.last_ns for head in heads)

    def _at(self, position_ns: int, after: int, most: int) -> Excerpt:
        block = max(bisect_right(self._begins, position_ns) - 1, 0)
        inside = self._decoded(block)
        count = next((i for i, one in enumerate(inside) if time_ns(one) > position_ns), len(inside)) or 1
        number = self._starts[block] + count
        if 0 < after <= number <= after + most:
            frames = self._back(number, lambda one: one.frame.number > after)
        else:
            oldest = max(position_ns - PAST * SECOND, self._first)
            frames = self._back(number, lambda one: number - one.frame.number < most and time_ns(one) >= oldest)
        following = self._numbered(number + 1)
        if following is not None and time_ns(following) > self._last:
            following = None
        return Excerpt(frames, following)

    def _back(self, number: int, belongs: Callable[[Recorded], bool]) -> Sequence[Recorded]:
        """The frame `number`, and those before it as long as each one `belongs`; oldest first."""
        found: list[Recorded] = []
        while (one := self._numbered(number - len(found))) is not None and (not found or belongs(one)):
            found.append(one)
        return found[::-1]

    def _numbered(self, number: int) -> Recorded | None:
        if not 0 < number <= self._starts[-1]:
            return None
        block = bisect_right(self._starts, number - 1) - 1
        return self._decoded(block)[number - 1 - self._starts[block]]

    def _decoded(self, block: int) -> Sequence[Recorded]:
        """Raises Damaged."""
        found = self._blocks.get(block)
        if found is None:
            found = self.reader.block(block)
            for i, one in enumerate(found):
                one.frame.number = self._starts[block] + i + 1  # that of its ring means nothing here
            self._blocks[block] = found
            if len(self._blocks) > _BLOCKS:
                self._blocks.popitem(last=False)
        self._blocks.move_to_end(block)
        return found
