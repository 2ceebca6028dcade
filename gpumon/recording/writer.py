"""Writes recordings. A block has two minutes of frames. The open block is written every ten seconds.

Each write of the open block overwrites its previous version. So only the last seconds are lost if the recorder is
killed, and blocks are still long enough to compress well.
"""

from __future__ import annotations

import errno
import json
import os
import stat
from contextlib import suppress
from typing import Any

from gpumon.common.clock import SECOND
from gpumon.common.columnar import MAX_NUMBERS
from gpumon.common.errors import GpumonError, UsageError
from gpumon.common.numbers import NAN
from gpumon.common.text import clean
from gpumon.model.metrics import GPU_METRICS
from gpumon.model.units import clock
from gpumon.recording.codec import BlockEncoder, nanoseconds, schema_to_json
from gpumon.recording.content import RecordedFrame
from gpumon.recording.format import END, FRAMES, pack_block, pack_header

MAX_BLOCK_FRAMES = 128
MAX_BLOCK_SECONDS = 120
"""Maximum length of a block. The first blocks have 10, 20, 40 and 80 seconds, so that damage to a block destroys only a
small part of a short recording."""
FLUSH_INTERVAL = 10
"""Seconds between two writes. If the recorder is killed, no more than this is lost."""
_FULL_NUMBERS = MAX_NUMBERS // 2
"""A block is full if the estimated count of its values reaches this number."""
_DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class RecordingWriter:
    """Appends frames to a file.

    `add` and `close` raise GpumonError if the file cannot be written. The disk may be full. The file then ends with the
    last frames that were written completely, and can be played up to there.
    """

    def __init__(self, fd: int, name: str, facts: dict[str, Any]) -> None:
        """Start a recording in an empty file. The writer closes the file.

        `fd`: descriptor of the file. `name`: file name for messages. `facts`: stored in the header.
        """
        self.name = clean(name, 120)
        self.frames = 0
        """Number of frames written so far."""
        self._fd = fd
        self._encoder = BlockEncoder()
        self._open: list[RecordedFrame] = []
        self._numbers = 0
        self._written = 0
        """Number of frames in the open block that are on disk."""
        self._flushed = b""
        """The open block as last written to disk."""
        self._flushed_ns = 0
        self._last = NAN
        """Time of the last frame on disk, in seconds since 1970."""
        self._number = 0
        self._end = self._offset = 0
        """Size of the file, and offset of the open block, in bytes."""
        try:
            self._write(pack_header({"format": "gpumon recording", **facts, "tables": schema_to_json()}))
        except BaseException:
            self._close_file()
            raise
        self._offset = self._end

    @classmethod
    def create(cls, path: str, facts: dict[str, Any], *, force: bool = False) -> RecordingWriter:
        """Create a recording at `path` that only this user can read.

        `facts`: stored in the header. `force`: replace an existing file. Raises UsageError if the file exists and
        `force` is false, and GpumonError if the file cannot be created.
        """
        fd = _create(path, force)
        try:
            return cls(fd, os.path.basename(path), facts)
        except BaseException:
            os.unlink(path)
            raise

    @property
    def size(self) -> int:
        """Size of the file in bytes."""
        return self._end

    def add(self, recorded: RecordedFrame) -> None:
        """Append a frame. The frame is written to disk at most `FLUSH_INTERVAL` seconds later."""
        if self._open and self._is_full(recorded):
            self._flush(last=True)
        self._open.append(recorded)
        frame = recorded.frame
        self._numbers += 16 + len(frame.samples) * (len(GPU_METRICS) + 8) + 16 * len(frame.processes)
        self._numbers += 96 * len(frame.runs) + 16 * len(frame.boundaries)
        if frame.monotonic_ns - self._flushed_ns >= FLUSH_INTERVAL * SECOND or self._written == 0:
            self._flush(last=False)

    def close(self, facts: dict[str, Any] | None = None) -> None:
        """Write the open block and a final block with `facts`, and close the file.

        The file is closed even if writing fails.
        """
        try:
            if self._fd >= 0:
                self._flush(last=True)
                body = json.dumps({"frames": self.frames, **(facts or {})}).encode()
                self._write(pack_block(END, body, frames=0, number=self._number + 1, first_ns=0, last_ns=0))
        finally:
            self._close_file()

    def _is_full(self, recorded: RecordedFrame) -> bool:
        first = self._open[0].frame.monotonic_ns
        longest = min(MAX_BLOCK_SECONDS, FLUSH_INTERVAL << min(self._number, 4))
        return (
            len(self._open) >= MAX_BLOCK_FRAMES
            or self._numbers >= _FULL_NUMBERS
            or not 0 <= recorded.frame.monotonic_ns - first < longest * SECOND
        )

    def _flush(self, *, last: bool) -> None:
        """Write the open block over its previous version.

        `last`: whether the block is complete and gets no more frames.
        """
        if not self._open:
            return
        if self._written < len(self._open):
            times = [nanoseconds(recorded.frame.time) for recorded in self._open]
            block = pack_block(
                FRAMES, self._encoder.encode(self._open), frames=len(self._open), number=self._number + 1,
                first_ns=min(times), last_ns=max(times),
            )  # fmt: skip
            self._write(block)
            self.frames += len(self._open) - self._written
            self._written = len(self._open)
            self._flushed_ns = self._open[-1].frame.monotonic_ns
            self._last = self._open[-1].frame.time
        if last:
            self._open, self._numbers, self._written = [], 0, 0
            self._number += 1
            self._offset = self._end

    def _write(self, block: bytes) -> None:
        """Write `block` at the offset of the open block. If this fails, restore the previous version."""
        done = 0
        try:
            while done < len(block):
                done += os.pwrite(self._fd, block[done:], self._offset + done)
            if self._offset + done < self._end:
                os.ftruncate(self._fd, self._offset + done)
        except OSError as error:
            self._restore()
            why = "the disk is full" if error.errno in _DISK_FULL else error.strerror or str(error)
            ends = f"the recording ends at {clock(self._last)} and plays up to there"
            raise GpumonError(f"{self.name}: {why}: {ends if self.frames else 'nothing was recorded'}") from error
        self._end, self._flushed = self._offset + done, block

    def _restore(self) -> None:
        """Restore the previous version of the open block, and close the file.

        The disk certainly has space for this version.
        """
        block = self._flushed if self._written else b""
        try:
            with suppress(OSError):  # if this also fails, readers detect the damage and play the frames before it
                os.pwrite(self._fd, block, self._offset)
                os.ftruncate(self._fd, self._offset + len(block))
        finally:
            self._close_file()

    def _close_file(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def _create(path: str, force: bool) -> int:
    """Create an empty file that only this user may read, and return its descriptor."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        if force and stat.S_ISREG(os.lstat(path).st_mode):
            os.unlink(path)
    except FileNotFoundError:
        pass  # nothing to replace
    except OSError as error:
        raise GpumonError(f"cannot replace {clean(path)}: {error.strerror}") from error
    try:
        return os.open(path, flags, 0o600)
    except FileExistsError:
        to_do = "is not a regular file: choose another name" if force else "exists: choose another name, or add --force"
        raise UsageError(f"{clean(path)} {to_do}") from None
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "the name contains a NUL character"
        raise GpumonError(f"cannot write {clean(path)}: {why}") from error
