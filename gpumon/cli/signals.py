"""Waiting for a signal that ends a long-running command."""

from __future__ import annotations

import os
import select
import signal

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class EndSignal:
    """Waits for SIGINT, SIGTERM or SIGHUP. While this object is open, these signals interrupt nothing, such as a write.

    The kernel may deliver a signal to any thread. This would not interrupt a main thread that waits for a lock.
    Therefore, `wait` waits for a byte in a pipe. Python's signal handler writes the byte in the thread that receives
    the signal.
    """

    def __enter__(self) -> EndSignal:
        self._reading, self._writing = os.pipe()
        os.set_blocking(self._writing, False)
        self._handlers = {number: signal.signal(number, lambda *_: None) for number in _SIGNALS}
        self._wakeup_fd = signal.set_wakeup_fd(self._writing, warn_on_full_buffer=False)
        return self

    def __exit__(self, *_: object) -> None:
        signal.set_wakeup_fd(self._wakeup_fd)
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        os.close(self._reading)
        os.close(self._writing)

    def wait(self, seconds: float | None = None) -> bool:
        """Wait for at most `seconds` (None: without limit). Return whether a signal has arrived, now or earlier."""
        return bool(select.select([self._reading], [], [], seconds)[0])
