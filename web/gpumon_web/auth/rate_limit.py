"""Limits on the requests of one visitor, so that nobody delays the others.

Each visitor has a bucket: so many requests at once, and so many each second after that.
"""

from __future__ import annotations

import ipaddress
import socket
import struct
from collections import OrderedDict
from collections.abc import Hashable
from threading import Lock
from typing import Any

BURST = 120.0
"""Requests that a page with all its files may send at once."""
PER_SECOND = 20.0
PROGRAMS = 20.0
"""Times as much for programs that send the token: many of them may share an address."""
GUESSES = 1 / 6
"""Times as much for wrong tokens from an address."""
VISITORS = 4096
"""Buckets that are kept; whoever was not heard longest is forgotten."""
HEADER_BYTES = 16 * 1024
BODY_BYTES = 1024
"""The one body that is read has a token in it."""
CONNECTIONS = 1000
IDLE_SECONDS = 30
"""A connection may be silent, or read nothing of an answer, for so long."""
REQUEST_SECONDS = 10
"""A request must be whole in so many, from its first byte, or from the connection's opening."""
UNREAD = 2**20
"""Bytes of answers that a client may leave unread and still get the next one."""
THREADS = 4


class Buckets:
    """The visitors' buckets. Safe to use from several threads."""

    def __init__(self, burst: float = BURST, per_second: float = PER_SECOND) -> None:
        self._burst = burst
        self._per_second = per_second
        self._left: OrderedDict[Hashable, tuple[float, float]] = OrderedDict()
        self._lock = Lock()

    def takes(self, visitor: Hashable, now: float, times: float = 1.0) -> bool:
        """Whether this visitor may ask now, at `now` seconds of a clock that does not go back.

        His bucket is `times` as large as the usual one, and fills `times` as quickly.
        """
        burst = self._burst * times
        with self._lock:
            left, then = self._left.pop(visitor, (burst, now))
            left = min(burst, left + (now - then) * self._per_second * times)
            allowed = left >= 1.0
            self._left[visitor] = (left - 1.0 if allowed else left, now)
            if len(self._left) > VISITORS:
                self._left.popitem(last=False)
            return allowed


_CREDENTIALS = struct.Struct("3i")


def peer_of(opened: socket.socket, address: Any) -> str:
    """Return the identity that all connections of one visitor share, as far as it can be known."""
    if opened.family == socket.AF_UNIX:
        _, uid, _ = _CREDENTIALS.unpack(
            opened.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        )  # fmt: skip
        return f"user {uid}"
    return network_of(str(address[0]) if address else "")


def network_of(address: str) -> str:
    """An address; of IPv6 the network, as each machine has millions of addresses in its own."""
    try:
        known = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if known.version == 4:
        return str(known)
    if known.ipv4_mapped is not None:
        return str(known.ipv4_mapped)
    if known.is_loopback:
        return str(known)
    return str(ipaddress.ip_network((known, 64), strict=False))
