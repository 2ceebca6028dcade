"""Peer of a connection: the user on a unix socket, else the address, never the port."""

from __future__ import annotations

import ipaddress
import socket
import struct
from typing import Any

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
