"""Trust in directories, by their owners and modes.

Anybody may make `/dev/shm/gpumon-1000` before user 1000 does. So a directory that nobody named counts by its owner,
which only root can change, and links are never followed: what they name may hang, or be somebody else's.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Collection

ROOT = 0
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


def is_directory_of(path: str, owners: Collection[int]) -> bool:
    """Whether `path` itself, no link, is a directory of one of `owners`."""
    found = _directory(path)
    return found is not None and found.st_uid in owners


def is_trusted(path: str, uid: int) -> bool:
    """Whether `uid` believes what lies in the directory `path`.

    True when nobody but its owner can write it, and that is `uid`, root, or whom root gave it to: a service
    manager makes `/run/gpumon` for the daemon's user, and nobody else could have made it there.
    """
    found = _directory(path)
    if found is None or found.st_mode & _OTHERS_WRITE:
        return False
    if found.st_uid in (ROOT, uid):
        return True
    parent = _directory(os.path.dirname(path.rstrip("/")))
    return parent is not None and parent.st_uid == ROOT and not parent.st_mode & _OTHERS_WRITE


def _directory(path: str) -> os.stat_result | None:
    try:
        found = os.lstat(path)
    except OSError:
        return None
    return found if stat.S_ISDIR(found.st_mode) else None
