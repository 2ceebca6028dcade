"""File systems of other machines."""

from __future__ import annotations

import os

_NETWORK = frozenset(
    ("9p", "afs", "beegfs", "ceph", "cifs", "fuse.glusterfs", "fuse.sshfs", "gpfs", "lustre", "nfs", "nfs4", "smb3")
)
"""File systems whose memory is not shared between machines, so that SQLite's WAL is not safe on them."""


def on_network(path: str, mounts: str = "/proc/self/mountinfo") -> bool:
    """Whether `path` lies on a file system of another machine."""
    try:
        with open(mounts, encoding="utf-8", errors="replace") as file:
            lines = [line.split() for line in file]
    except OSError:
        return False
    place = os.path.realpath(path) + "/"
    best, kind = -1, ""
    for fields in lines:
        if "-" in fields[5:-1]:
            point = fields[4].replace("\\040", " ").rstrip("/") + "/"
            if place.startswith(point) and len(point) >= best:
                best, kind = len(point), fields[fields.index("-", 5) + 1]
    return kind in _NETWORK
