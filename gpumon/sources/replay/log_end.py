"""The last moment of a log, found beside its playing: nothing but its last lines tells."""

from __future__ import annotations

import gzip
import os
import zlib
from threading import Thread
from typing import BinaryIO

from gpumon.common.clock import SECOND
from gpumon.common.paths import open_regular
from gpumon.recording.playback import Playback
from gpumon.sources.replay.form import Form
from gpumon.sources.replay.parse_value import BadLine
from gpumon.sources.replay.query import QueryForm

_TAIL = 64 * 1024
"""Bytes at the end in which a line is looked for."""
_MOST_PACKED = 256 * 2**20
"""Bytes that are unpacked for it at most."""
_GZIP = b"\x1f\x8b"


def tell_end(path: str, form: Form, until_ns: int, playback: Playback) -> None:
    """Set the end of `playback`, at most `until_ns`, some time later; never where the log does not tell."""

    def work() -> None:
        found = end_ns(path, form)
        if found > 0:
            playback.end = min(found, until_ns) / SECOND

    if isinstance(form, QueryForm) and form.timed:  # times of dmon may lack the date, and then mean the line before
        Thread(target=work, name="gpumon-log-end", daemon=True).start()


def end_ns(path: str, form: Form) -> int:
    """Return the time of the last whole line, in ns since 1970; 0 where that cannot be read."""
    try:
        with os.fdopen(open_regular(path, follow=True), "rb") as file:
            tail = _unpacked_tail(file) if file.read(2) == _GZIP else _tail(file)
    except (OSError, EOFError, zlib.error):
        return 0
    for line in reversed(tail.decode("utf-8", "replace").splitlines()):
        try:
            time_ns = form.row(0, line.strip(), 0).time_ns
        except (BadLine, ValueError):
            continue
        return time_ns or 0
    return 0


def _tail(file: BinaryIO) -> bytes:
    size = file.seek(0, 2)
    file.seek(max(0, size - _TAIL))
    return file.read(_TAIL)


def _unpacked_tail(file: BinaryIO) -> bytes:
    file.seek(0)
    tail, many = b"", 0
    with gzip.GzipFile(fileobj=file) as unpacked:
        while part := unpacked.read(_TAIL):
            tail, many = (tail + part)[-_TAIL:], many + len(part)
            if many > _MOST_PACKED:
                return b""
    return tail
