"""A way to keep a day of the month's values other than gpumon's, and a question that all of them answer."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import NamedTuple

from benchmarks.month_values import Hour

GPU = 0
"""The GPU that is asked about."""
METRIC = "gpu.utilization"


class Question(NamedTuple):
    """Low, mean and high of a GPU's metric in each `step` seconds from `begin` to `end` (s since 1970)."""

    begin: int
    end: int
    step: int


class Answer(NamedTuple):
    """The number of points, and seconds of CPU that they took."""

    points: int
    cpu: float


Ask = Callable[[Question], Answer]


class Peer(NamedTuple):
    """A way to keep values."""

    name: str
    missing: Callable[[], str]
    """The command that installs it; empty where it is there."""
    keep: Callable[[Path, float, Iterator[Hour]], None]
    """Write hours of the month that begins at a time (s since 1970) into an empty directory."""
    opened: Callable[[Path], AbstractContextManager[Ask]]


def prepared(peer: Peer, directory: Path, month: float, hours: Callable[[], Iterator[Hour]]) -> Path:
    """Return a peer's files in a directory, made first where they are not there yet."""
    found = directory / peer.name.replace(" ", "-").lower()
    if not found.exists():
        made = found.with_suffix(".new")
        shutil.rmtree(made, ignore_errors=True)
        made.mkdir()
        peer.keep(made, month, hours())
        made.rename(found)
    return found


def size(directory: Path) -> int:
    """Bytes of the files of a peer."""
    return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())
