"""Limits per visitor: token buckets for requests, sizes and timeouts, and the identity of a client.

They keep one visitor from delaying the others.
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
"""Size of a bucket: requests that may be sent at once, enough for a page with all its files."""
PER_SECOND = 20.0
PROGRAMS = 20.0
"""Factor on the limit for programs that send the token: many of them may share an address."""
GUESSES = 1 / 6
"""Factor on the limit for wrong tokens from an address."""
VISITORS = 4096
"""Number of buckets kept; the least recently used one is dropped first."""
HEADER_BYTES = 16 * 1024
BODY_BYTES = 8 * 1024
"""Largest request body in bytes. Only the sign-in form and Dash's callbacks have one."""
CONNECTIONS = 1000
IDLE_SECONDS = 30
"""Seconds for which a connection may be idle, or read nothing of an answer."""
REQUEST_SECONDS = 10
"""Seconds within which a request must be complete, from its first byte or from the opening of the connection."""


class Buckets:
    """Token buckets by visitor. Thread-safe."""

    def __init__(self, burst: float = BURST, per_second: float = PER_SECOND) -> None:
        self._burst = burst
        self._per_second = per_second
        self._left: OrderedDict[Hashable, tuple[float, float]] = OrderedDict()
        self._lock = Lock()

    def allows(self, visitor: Hashable, now: float, times: float = 1.0) -> bool:
        """Take one request from a visitor's bucket; False if it is empty. `now`: s of a monotonic clock.

        `times` is a factor on the bucket's size and refill rate.
        """
        burst = self._burst * times
        with self._lock:
            left, updated = self._left.pop(visitor, (burst, now))
            left = min(burst, left + (now - updated) * self._per_second * times)
            allowed = left >= 1.0
            self._left[visitor] = (left - 1.0 if allowed else left, now)
            if len(self._left) > VISITORS:
                self._left.popitem(last=False)
            return allowed


_CREDENTIALS = struct.Struct("3i")


def peer_of(connection: socket.socket, address: Any) -> str:
    """Return the client of a connection: the user of a unix socket, else the network address."""
    if connection.family == socket.AF_UNIX:
        _, uid, _ = _CREDENTIALS.unpack(
            connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        )  # fmt: skip
        return f"user {uid}"
    return network_of(str(address[0]) if address else "")


def network_of(address: str) -> str:
    """Return an IPv4 address, or the /64 network of an IPv6 address, as one machine can use all of its addresses."""
    try:
        ip = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if ip.version == 4:
        return str(ip)
    if ip.ipv4_mapped is not None:
        return str(ip.ipv4_mapped)
    if ip.is_loopback:
        return str(ip)
    return str(ipaddress.ip_network((ip, 64), strict=False))
