"""The reading end of a recording: its blocks, and its frames up to the first damage."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from gpumon.common.clock import SECOND
from gpumon.common.errors import SourceError
from gpumon.common.paths import open_regular, read_regular
from gpumon.common.text import clean
from gpumon.model.units import clock, counted
from gpumon.recording.codec import Schema, decode, nanoseconds
from gpumon.recording.content import Recorded
from gpumon.recording.format import (
    BLOCK_SIZE,
    END,
    FRAMES,
    HEAD,
    MAGIC,
    MOST_JSON,
    BlockHead,
    Damaged,
    check_body,
    unpack_block_head,
    unpack_body,
    unpack_header,
)

_MOST_BLOCKS = 1 << 19
"""In a file: two years of them."""


def is_recording(path: str) -> bool:
    """Whether a file begins as a recording does; whatever cannot be read is none."""
    try:
        return read_regular(path, len(MAGIC), follow=True) == MAGIC
    except (OSError, ValueError):
        return False


class _Place(NamedTuple):
    offset: int
    head: BlockHead


class RecordingReader:
    """The recording at a path. Blocks are found when it is opened, and read when their frames are asked for.

    Raises SourceError where it cannot be read, or has no whole frame.
    """

    def __init__(self, path: str) -> None:
        self.name = clean(os.path.basename(path) or path, 120)
        self.damage = ""
        """Place of the damage and how far it plays, in a sentence; empty while none was found."""
        self._is_complete = False
        try:
            self._fd = open_regular(path, follow=True)
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) else "the name holds a NUL"
            raise SourceError(f"cannot open {clean(path)}: {why}: check the path") from None
        try:
            self._size = os.fstat(self._fd).st_size
            start = self._read_header()
            self._places = self._find_blocks(start)
        except BaseException:
            os.close(self._fd)
            self._fd = -1
            raise

    @property
    def problem(self) -> str:
        """Reason why it ends too early and how far it plays, in a sentence; empty as long as nothing is wrong."""
        if self.damage or self._is_complete:
            return self.damage
        return f"{self.name}: no end is written, so it was cut, or its recorder was killed: {_plays(self._places)}"

    @property
    def first_ns(self) -> int:
        """ns since 1970, of the first frame."""
        return self._places[0].head.first_ns

    @property
    def last_ns(self) -> int:
        """ns since 1970, of the last frame of the last whole block."""
        return self._places[-1].head.last_ns

    @property
    def interval(self) -> float:
        """Seconds between frames, over all blocks without the gaps between them; 1 for a single frame."""
        apart = [(head.last_ns - head.first_ns, head.frames - 1) for _, head in self._places if head.frames > 1]
        return sum(length for length, _ in apart) / SECOND / sum(count for _, count in apart) if apart else 1.0

    def frames(self, begin_ns: int = 0, end_ns: int = 1 << 62) -> Iterator[Recorded]:
        """Frames from the first at or after `begin_ns` to the first after `end_ns` (ns since 1970), up to any damage.

        They come in the order of the file, in which times go back where a clock was set.
        """
        has_begun = False
        for i, (_, head) in enumerate(self._places):
            if head.last_ns < begin_ns and not has_begun:
                continue
            try:
                found = self.block(i)
            except (Damaged, SourceError):
                return
            for one in found:
                time_ns = nanoseconds(one.frame.time)
                has_begun = has_begun or time_ns >= begin_ns
                if has_begun and time_ns > end_ns:
                    return
                if has_begun:
                    yield one

    @property
    def heads(self) -> Sequence[BlockHead]:
        """The heads of all blocks up to any damage, in the order of the file."""
        return [head for _, head in self._places]

    def block(self, place: int) -> list[Recorded]:
        """The frames of one of these blocks.

        Raises Damaged, or SourceError where nothing is before it; the recording then ends before the block.
        """
        offset, head = self._places[place]
        try:
            return self._decode(offset, head)
        except Damaged as damaged:
            self._end_before(place, damaged)
            raise

    def check(self) -> None:
        """Find damage that bytes show, without decoding: the recording ends before it.

        Raises SourceError where nothing is before it.
        """
        for i, (offset, head) in enumerate(self._places):
            try:
                check_body(head, self._stored(offset, head))
            except Damaged as damaged:
                self._end_before(i, damaged)
                return

    def close(self) -> None:
        """Let go of the file; more than once does no harm."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _read_header(self) -> int:
        """The bytes until the first block."""
        raw = os.pread(self._fd, HEAD.size + MOST_JSON, 0)
        try:
            header = unpack_header(raw)
            self._schema = Schema(header.schema)
        except SourceError as error:
            raise SourceError(f"{self.name} cannot be played: {error}") from None
        except Damaged as damaged:
            raise SourceError(f"{self.name} cannot be played: {damaged}: copy the file again") from None
        self.is_anonymized = header.schema.get("anonymized") is True
        return header.size

    def _find_blocks(self, offset: int) -> list[_Place]:
        found: list[_Place] = []
        while offset < self._size:
            try:
                if len(found) == _MOST_BLOCKS:
                    raise Damaged("not written by gpumon")  # noqa: TRY301
                head = self._head(offset)
            except Damaged as damaged:
                self._note(len(found) + 1, offset, str(damaged), found)
                break
            if head.kind == END:
                self._is_complete = True
                break
            if head.kind == FRAMES:
                found.append(_Place(offset, head))
            offset += BLOCK_SIZE + head.stored
        if not found:
            raise SourceError(self.damage or f"{self.name} holds no frame")
        return found

    def _head(self, offset: int) -> BlockHead:
        """The head of the block at `offset` whose body is complete. Raises Damaged."""
        head = unpack_block_head(os.pread(self._fd, BLOCK_SIZE, offset))
        if offset + BLOCK_SIZE + head.stored > self._size:
            raise Damaged("cut short")
        if head.kind == FRAMES and not head.frames:
            raise Damaged("not written by gpumon")
        return head

    def _decode(self, offset: int, head: BlockHead) -> list[Recorded]:
        """The frames of a block. Raises Damaged, whatever is wrong with it."""
        try:
            return decode(unpack_body(head, self._stored(offset, head)), self._schema, head.frames)
        except Damaged:
            raise
        except (ArithmeticError, LookupError, TypeError, ValueError, struct.error) as error:
            raise Damaged("not written by gpumon") from error  # its CRC is right, and its contents make no sense

    def _end_before(self, place: int, damaged: Damaged) -> None:
        """Raises SourceError where nothing is before it."""
        self._note(place + 1, self._places[place].offset, str(damaged), self._places[:place])
        del self._places[max(place, 1) :]
        if not place:
            raise SourceError(self.damage) from damaged

    def _stored(self, offset: int, head: BlockHead) -> bytes:
        """The body of a block as it is stored. Raises Damaged."""
        try:
            return os.pread(self._fd, head.stored, offset + BLOCK_SIZE)
        except OSError as error:
            raise Damaged(f"unreadable ({error.strerror})") from error

    def _note(self, block: int, offset: int, why: str, before: list[_Place]) -> None:
        self.damage = (
            f"{self.name}: block {block}, at byte {offset} of {self._size}, is {why}: "
            f"{_plays(before) if before else 'nothing of it plays'}"
        )


def _plays(places: list[_Place]) -> str:
    frames = sum(head.frames for _, head in places)
    return f"it plays up to {clock(places[-1].head.last_ns / SECOND)} ({counted(frames, 'frame')})"
