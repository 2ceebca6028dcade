"""The boards of a command's trainings, read by this process itself.

A training may be over before a sampler took a frame of it. Its board stays for minutes, and holds its epochs
and who began it.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from gpumon.common.errors import BoardError
from gpumon.common.paths import Places, open_regular, tag_dirs
from gpumon.common.procfs import boot_id
from gpumon.model.frame import Run
from gpumon.tracking.reader import Poll, TagReader
from gpumon.tracking.wire import FRONT, BoardHeader, unpack_header


class Boards:
    """The boards under `where` that are those of the command `pid`, which began at `began` (ns, CLOCK_MONOTONIC).

    `holds` says whether a pid is, or was, one of the command's processes.
    """

    def __init__(self, where: Places, pid: int, began: int, holds: Callable[[int], bool]) -> None:
        self._where = where
        self._pid = pid
        self._began = began
        self._holds = holds
        self._ended: dict[str, bool] = {}
        """By key: of trainings whose process had ended when they were first seen, whether it was the command's."""

    def read(self) -> Poll:
        """The runs of all boards here, and their boundaries from the first on that is kept."""
        reader = TagReader(self._where)
        try:
            return reader.poll()
        finally:
            reader.close()

    def is_its(self, run: Run) -> bool:
        """Whether a process of the command publishes `run`, or did. Never ask for a board of this process."""
        if run.pid:
            return self._holds(run.pid)
        if run.key not in self._ended:
            # Nobody holds the board any more whom the kernel could name: it says itself who wrote it.
            self._ended[run.key] = self._began_it(run.key)
        return self._ended[run.key]

    def _began_it(self, key: str) -> bool:
        uid, pid = map(int, key.split(".")[1:3])
        if uid not in (0, os.getuid()):
            return False  # anybody can write our pid into a board of his own
        header = self._header(key, uid)
        if header is None:
            return pid == self._pid
        return (
            (header.boot_id, header.pid_namespace) == (boot_id(), _namespace())
            and header.monotonic_ns >= self._began
            and (header.pid == self._pid or self._holds(header.parent))
        )

    def _header(self, key: str, uid: int) -> BoardHeader | None:
        for directory in tag_dirs(self._where):
            try:
                fd = open_regular(f"{directory}/{key}")
            except OSError:
                continue
            try:
                if os.fstat(fd).st_uid == uid:
                    return unpack_header(os.pread(fd, FRONT, 0))
            except (BoardError, OSError):
                continue
            finally:
                os.close(fd)
        return None


def _namespace() -> int:
    try:
        return os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        return 0
