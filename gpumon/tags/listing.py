"""The files of a board directory, a portion at a time: a user who fills it delays others, and hides no one."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from time import time_ns

from gpumon.common.clock import SECOND
from gpumon.tags.wire import NAME

AT_ONCE = 4096
"""Files that one poll looks at: more than honest users of one machine have."""
_SETTLED = 3 * SECOND
_LOOK_ANYWAY = 10 * SECOND
"""ns after which a directory is looked at though its times are the same: a file may have changed its owner."""
_Stamp = tuple[int, int, int, int]
"""Of a directory: device, inode, and its times (ns since 1970, by the kernel's own clock)."""


class Listing:
    """One pass through a directory, in portions. Raises OSError when it cannot be read."""

    def __init__(self, directory: str) -> None:
        self.fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            self._entries = os.scandir(self.fd)
        except OSError:
            os.close(self.fd)
            raise
        self.is_done = False
        self.seen: set[str] = set()
        """Names that the reader noted in this pass."""

    def portion(self) -> Iterator[os.DirEntry[str]]:
        """The next files with a board's name; `is_done` when these were the last."""
        self.is_done = True  # also where the directory can be read no further
        with suppress(OSError):
            found = list(islice(self._entries, AT_ONCE))
            self.is_done = len(found) < AT_ONCE
            yield from (entry for entry in found if NAME.fullmatch(entry.name))

    def close(self) -> None:
        self._entries.close()
        os.close(self.fd)


class Unchanged:
    """Directories that need no look, because all that lay in them is known and their times are the same since."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[_Stamp, int]] = {}
        self._before: dict[str, _Stamp | None] = {}

    def __call__(self, directory: str, now: int) -> bool:
        """Whether nothing has come to `directory` since `settle`; `now` in monotonic ns."""
        stamp = self._before[directory] = _stamp(directory)
        known = self._known.get(directory)
        return known is not None and known[0] == stamp and now < known[1]

    def settle(self, directory: str, now: int) -> None:
        """All that lay in `directory` after the last question is known."""
        stamp = self._before.get(directory)
        # What comes within one tick of the kernel's clock, or the second of some file systems, leaves the same time.
        if stamp is not None and time_ns() - stamp[-1] > _SETTLED:
            self._known[directory] = stamp, now + _LOOK_ANYWAY

    def forget(self, directory: str) -> None:
        """Look at `directory` again, whatever its times say."""
        self._known.pop(directory, None)


def _stamp(directory: str) -> _Stamp | None:
    try:
        found = os.stat(directory)
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_mtime_ns, found.st_ctime_ns


def name_uid(name: str) -> int:
    """The user in a board's name."""
    return int(name.split(".", 2)[1])


def is_of_its_user(entry: os.DirEntry[str], uid: int) -> bool:
    """Whether the file belongs to `uid`, whom its name names: else it is a stranger's, and nothing of it counts."""
    try:
        found = entry.stat(follow_symlinks=False)
    except OSError:
        return False
    return stat.S_ISREG(found.st_mode) and found.st_uid == uid
