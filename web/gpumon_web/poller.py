"""Waiting for many connections, where a round costs what has happened and not how many are open.

waitress asks every connection before each wait what it waits for: with a thousand idle ones that is most of what a
request costs. Here a connection is asked again only after something happened to it.
"""

from __future__ import annotations

import select
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from waitress.wasyncore import readwrite

_READ = select.EPOLLIN | select.EPOLLPRI
_LONGEST = 1.0
"""Seconds of a wait; the server's `maintenance` is due about as often."""


class Poller:
    """The events of connections, by descriptor in a map of waitress. One thread polls; any may `look_at` one."""

    def __init__(self, connections: Mapping[int, Any]) -> None:
        """`connections` holds the listening socket and the trigger now; both are asked before each wait."""
        self._connections = connections
        self._always = tuple(connections.values())
        self._served: set[Any] = set()
        self._changed: deque[Any] = deque()  # not a set: threads append while the other one empties it
        self._epoll = select.epoll()
        self._waits_for: dict[int, int] = {}
        """Events registered with the kernel, by descriptor."""

    def look_at(self, connection: Any) -> None:
        """Look at a channel again: its events may have changed. The wait in force continues."""
        self._changed.append(connection)

    def begin(self, connection: Any) -> None:
        """A thread serves it: until `end`, what it waits for may change at any time."""
        self._served.add(connection)

    def end(self, connection: Any) -> None:
        self._changed.append(connection)
        self._served.discard(connection)

    def forget(self, fd: int) -> None:
        """Its connection is about to be closed."""
        if self._waits_for.pop(fd, 0):
            # A signal that stops the server may have come between the kernel's list and this one.
            with suppress(FileNotFoundError):
                self._epoll.unregister(fd)

    def poll(self, waits: bool = True) -> None:
        """Handle what has happened; where it `waits`, until something does, a second at most."""
        for connection in (*self._always, *self._served.copy()):
            self._tell(connection)
        while self._changed:
            self._tell(self._changed.popleft())
        for fd, events in self._epoll.poll(_LONGEST if waits else 0.0):
            connection = self._connections.get(fd)
            if connection is not None:  # else what happened before it in this round has closed it
                self._changed.append(connection)
                readwrite(connection, events)

    def close(self) -> None:
        self._epoll.close()

    def _tell(self, connection: Any) -> None:
        fd = connection._fileno  # None when it is closed
        if fd not in self._connections or self._connections[fd] is not connection:
            return
        events = _READ if connection.readable() else 0
        if connection.writable() and not connection.accepting:
            events |= select.EPOLLOUT
        told = self._waits_for.get(fd, 0)
        if events == told:
            return
        if not events:
            self._epoll.unregister(fd)  # so that it is not even told that the other end hung up
        elif told:
            self._epoll.modify(fd, events)
        else:
            self._epoll.register(fd, events)
        self._waits_for[fd] = events
