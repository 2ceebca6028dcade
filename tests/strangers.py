"""Other users of the machine, as a test sees them: one who has no rights, and a place that he may enter."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def foreign_directory() -> Iterator[Path]:
    """A directory that everybody may enter: pytest's own are closed to others."""
    with tempfile.TemporaryDirectory(prefix="gpumon-test-") as directory:
        os.chmod(directory, 0o755)
        yield Path(directory)


@contextmanager
def as_nobody() -> Iterator[None]:
    """Look as somebody who has no rights: root has all of them everywhere."""
    me = os.geteuid()
    if me == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(me)
