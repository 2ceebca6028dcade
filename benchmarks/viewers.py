"""Viewers of the web view as a load: each asks once a second over a connection of its own, like a browser.

All are in one thread, on non-blocking sockets, so that the load itself costs little of the machine that is measured.
"""

from __future__ import annotations

import json
import selectors
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from benchmarks.usage import Figures

Path = Callable[[dict[str, object]], bytes]
"""The request's first line and body for a viewer, from what the last answer said (empty before the first)."""


@dataclass
class Load:
    """Results of a load."""

    took: Figures = field(default_factory=Figures)
    """Seconds from question to whole answer."""
    received: int = 0
    """Bytes, headers included, without each viewer's first answer."""
    failed: int = 0


class _Viewer:
    def __init__(self, port: int, begin: float) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.due = begin
        self.asked = 0.0
        self.buffer = b""
        self.last: dict[str, object] = {}
        self.answers = 0


def watch(port: int, viewers: int, seconds: float, question: Path, warm: float = 3.0) -> Load:
    """`viewers` ask once a second for `warm` seconds, and then for `seconds` in which it is measured."""
    load, chosen = Load(), selectors.DefaultSelector()
    begin = time.monotonic()
    crowd = [_Viewer(port, begin + i / viewers) for i in range(viewers)]
    for viewer in crowd:
        chosen.register(viewer.socket, selectors.EVENT_READ, viewer)
    measured, end = begin + warm, begin + warm + seconds
    while (now := time.monotonic()) < end:
        for viewer in crowd:
            if viewer.due <= now and not viewer.asked:
                viewer.socket.sendall(question(viewer.last))
                viewer.asked, viewer.due = now, viewer.due + 1.0
        waiting = min((viewer.due for viewer in crowd if not viewer.asked), default=end)
        for key, _ in chosen.select(max(0.0, min(waiting, end) - time.monotonic())):
            viewer = key.data
            viewer.buffer += viewer.socket.recv(1 << 20)
            length = whole(viewer.buffer)
            if length is None:
                continue
            answer, viewer.buffer = viewer.buffer[:length], b""
            head, _, body = answer.partition(b"\r\n\r\n")
            if viewer.asked >= measured:
                load.took.add(time.monotonic() - viewer.asked)
                load.failed += b" 200 " not in head[:20]
                load.received += length if viewer.answers else 0
            viewer.asked = 0.0
            viewer.answers += 1
            viewer.last = json.loads(body) if body.startswith(b"{") else {}
    for viewer in crowd:
        viewer.socket.close()
    return load


def whole(buffer: bytes) -> int | None:
    """The length of the answer in `buffer` when all of it is there."""
    head, found, body = buffer.partition(b"\r\n\r\n")
    if not found:
        return None
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            length = len(head) + 4 + int(line.partition(b":")[2])
            return length if len(buffer) >= length else None
    return len(buffer) if body.endswith(b"0\r\n\r\n") else None
