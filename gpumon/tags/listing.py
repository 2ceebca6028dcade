"""The files of a board directory, a portion at a time: a user who fills it delays others, and hides no one."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice

from gpumon.tags.wire import NAME

AT_ONCE = 4096
"""Files that one poll looks at: more than honest users of one machine have."""


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


def name_uid(name: str) -> int:
    """The user in a board's name."""
    return int(name.split(".", 2)[1])


def is_of_its_user(entry: os.DirEntry[str]) -> bool:
    """Whether the file belongs to the user in its name: else it is a stranger's, and nothing of it counts."""
    try:
        found = entry.stat(follow_symlinks=False)
    except OSError:
        return False
    return stat.S_ISREG(found.st_mode) and found.st_uid == name_uid(entry.name)
