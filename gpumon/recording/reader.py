"""Reads the blocks and frames of a recording, up to the first damage."""

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
from gpumon.recording.codec import RecordingSchema, decode, nanoseconds
from gpumon.recording.content import RecordedFrame
from gpumon.recording.format import (
    BLOCK_SIZE,
    END,
    FRAMES,
    HEAD,
    MAGIC,
    MAX_JSON,
    BlockHead,
    DamagedRecording,
    check_body,
    unpack_block_head,
    unpack_body,
    unpack_header,
)

_MAX_BLOCKS = 1 << 19
"""Maximum number of blocks in a file. This is sufficient for two years."""


def is_recording(path: str) -> bool:
    """Return whether a file starts like a recording. False if the file cannot be read."""
    try:
        return read_regular(path, len(MAGIC), follow=True) == MAGIC
    except (OSError, ValueError):
        return False


class _Block(NamedTuple):
    """The head of a block and its offset in the file."""

    offset: int
    head: BlockHead


class RecordingReader:
    """A recording in a file. The constructor finds all blocks. A block is read when its frames are requested.

    Raises SourceError if the file cannot be read or has no complete block of frames.
    """

    def __init__(self, path: str) -> None:
        self.name = clean(os.path.basename(path) or path, 120)
        self.damage = ""
        """Sentence that says where the file is damaged and up to which time it can be played. Empty if no damage was
        found."""
        self._is_complete = False
        try:
            self._fd = open_regular(path, follow=True)
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) else "the name contains a NUL character"
            raise SourceError(f"cannot open {clean(path)}: {why}: check the path") from None
        try:
            self._size = os.fstat(self._fd).st_size
            start = self._read_header()
            self._blocks = self._find_blocks(start)
        except BaseException as error:
            os.close(self._fd)
            self._fd = -1
            if isinstance(error, OSError):
                raise SourceError(f"cannot read {clean(path)}: {error.strerror}") from None
            raise

    @property
    def problem(self) -> str:
        """Sentence that says why the recording ends early and up to which time it can be played.

        Empty if it is complete.
        """
        if self.damage or self._is_complete:
            return self.damage
        return (
            f"{self.name} has no end marker: the file was truncated or the recorder was killed; {_plays(self._blocks)}"
        )

    @property
    def first_ns(self) -> int:
        """Time of the first frame, in ns since 1970."""
        return self._blocks[0].head.first_ns

    @property
    def last_ns(self) -> int:
        """Time of the last frame in the last complete block, in ns since 1970."""
        return self._blocks[-1].head.last_ns

    @property
    def interval(self) -> float:
        """Mean seconds between two frames in a block; 1 if no block has more than one frame."""
        lengths = [(head.last_ns - head.first_ns, head.frames - 1) for _, head in self._blocks if head.frames > 1]
        return sum(ns for ns, _ in lengths) / SECOND / sum(count for _, count in lengths) if lengths else 1.0

    def frames(self, begin_ns: int = 0, end_ns: int = 1 << 62) -> Iterator[RecordedFrame]:
        """Yield the frames from `begin_ns` to `end_ns` (ns since 1970), in the order of the file.

        Iteration ends at the first frame after `end_ns`, or at damage. If the clock was set, a frame may have an
        earlier time than the previous frame.
        """
        has_begun = False
        for i, (_, head) in enumerate(self._blocks):
            if head.last_ns < begin_ns and not has_begun:
                continue
            try:
                frames = self.block(i)
            except (DamagedRecording, SourceError):
                return
            for recorded in frames:
                time_ns = nanoseconds(recorded.frame.time)
                has_begun = has_begun or time_ns >= begin_ns
                if has_begun and time_ns > end_ns:
                    return
                if has_begun:
                    yield recorded

    @property
    def heads(self) -> Sequence[BlockHead]:
        """Heads of all blocks up to the first damage, in the order of the file."""
        return [head for _, head in self._blocks]

    def block(self, index: int) -> list[RecordedFrame]:
        """Return the frames of the block with this index in `heads`.

        If the block is damaged, DamagedRecording is raised, or SourceError if it is the first block. Afterward, the
        recording ends before this block.
        """
        offset, head = self._blocks[index]
        try:
            return self._decode(offset, head)
        except DamagedRecording as damaged:
            self._end_before(index, damaged)
            raise

    def check(self) -> None:
        """Verify the checksums of all blocks.

        If the checksum of a block is wrong, the recording ends before this block afterward. Raises SourceError if no
        block is left.
        """
        for i, (offset, head) in enumerate(self._blocks):
            try:
                check_body(head, self._read_body(offset, head))
            except DamagedRecording as damaged:
                self._end_before(i, damaged)
                return

    def close(self) -> None:
        """Close the file. Does nothing if it is already closed."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _read_header(self) -> int:
        """Read the header, and return the offset of the first block."""
        raw = os.pread(self._fd, HEAD.size + MAX_JSON, 0)
        try:
            header = unpack_header(raw)
            self._schema = RecordingSchema(header.schema)
        except SourceError as error:
            raise SourceError(f"{self.name} cannot be played: {error}") from None
        except DamagedRecording as damaged:
            raise SourceError(f"{self.name} cannot be played: {damaged}: copy the file again") from None
        self.is_anonymized = header.schema.get("anonymized") is True
        return header.size

    def _find_blocks(self, offset: int) -> list[_Block]:
        blocks: list[_Block] = []
        while offset < self._size:
            try:
                if len(blocks) == _MAX_BLOCKS:
                    raise DamagedRecording("not written by gpumon")  # noqa: TRY301
                head = self._read_head(offset)
            except DamagedRecording as damaged:
                self._report_damage(len(blocks) + 1, offset, str(damaged), blocks)
                break
            if head.kind == END:
                self._is_complete = True
                break
            if head.kind == FRAMES:
                blocks.append(_Block(offset, head))
            offset += BLOCK_SIZE + head.stored
        if not blocks:
            raise SourceError(self.damage or f"{self.name} contains no frames")
        return blocks

    def _read_head(self, offset: int) -> BlockHead:
        """Return the head of the block at `offset`.

        Raises DamagedRecording if the head is invalid or unreadable, or the body is truncated.
        """
        head = unpack_block_head(self._read(BLOCK_SIZE, offset))
        if offset + BLOCK_SIZE + head.stored > self._size:
            raise DamagedRecording("truncated")
        if head.kind == FRAMES and not head.frames:
            raise DamagedRecording("not written by gpumon")
        return head

    def _decode(self, offset: int, head: BlockHead) -> list[RecordedFrame]:
        """Return the frames of a block. Raises DamagedRecording for any error in the block."""
        try:
            return decode(unpack_body(head, self._read_body(offset, head)), self._schema, head.frames)
        except DamagedRecording:
            raise
        except (ArithmeticError, LookupError, TypeError, ValueError, struct.error) as error:
            raise DamagedRecording(
                "not written by gpumon"
            ) from error  # the checksum is correct, but the content is invalid

    def _end_before(self, index: int, damaged: DamagedRecording) -> None:
        """Set the end of the recording to the block before a damaged one. Raises SourceError for the first block."""
        self._report_damage(index + 1, self._blocks[index].offset, str(damaged), self._blocks[:index])
        del self._blocks[max(index, 1) :]
        if not index:
            raise SourceError(self.damage) from damaged

    def _read_body(self, offset: int, head: BlockHead) -> bytes:
        """Return the compressed body of a block. Raises DamagedRecording."""
        return self._read(head.stored, offset + BLOCK_SIZE)

    def _read(self, length: int, offset: int) -> bytes:
        """Return bytes of the file. Raises DamagedRecording if they cannot be read."""
        try:
            return os.pread(self._fd, length, offset)
        except OSError as error:
            raise DamagedRecording(f"unreadable ({error.strerror})") from error

    def _report_damage(self, block: int, offset: int, why: str, intact: list[_Block]) -> None:
        self.damage = (
            f"{self.name}: block {block}, at byte {offset} of {self._size}, is {why}: "
            f"{_plays(intact) if intact else 'no part of it can be played'}"
        )


def _plays(blocks: list[_Block]) -> str:
    frames = sum(head.frames for _, head in blocks)
    return f"it plays up to {clock(blocks[-1].head.last_ns / SECOND)} ({counted(frames, 'frame')})"
