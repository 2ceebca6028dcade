"""A daemon that can be stopped whatever its driver does.

A call into a driver that hangs never comes back to Python, so a signal handler of the thread that made it never runs.
Sampling therefore has a thread of its own, and the main thread only waits: for a signal, or for the end of the work.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from threading import Thread

from gpumon.common.clock import StopSign
from gpumon.common.errors import EXIT_OK
from gpumon.daemon.recorder import Recorder

_GRACE = 1.5
"""Seconds that a driver call may take after a signal. With `recorder.LAST_WORDS` it makes less than 3."""
_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Service:
    """Samples in a thread until SIGTERM or SIGINT.

    `open_recorder` opens what is sampled into, and may take as long as the driver does; then `started` is called.
    """

    def __init__(self, open_recorder: Callable[[], Recorder], started: Callable[[Recorder], object]) -> None:
        self._open = open_recorder
        self._started = started
        self._stop = StopSign()
        self._recorder: Recorder | None = None
        self._error: BaseException | None = None
        # A byte in a pipe, because a handler may interrupt the main thread anywhere: also inside an Event's own lock.
        self._woken, self._wake = os.pipe()
        os.set_blocking(self._wake, False)

    def run(self) -> None:
        """Serve until a signal, or raise what the work raised. Where the driver hangs, the process ends here."""
        # The kernel may hand a signal to any thread, such as after SIGCONT, and then wakes that one alone: the byte is
        # written by the handler in C, wherever it runs.
        signal.set_wakeup_fd(self._wake, warn_on_full_buffer=False)
        for number in _SIGNALS:
            signal.signal(number, lambda *_: None)
        worker = Thread(target=self._work, name="gpumon-sampler", daemon=True)
        worker.start()
        os.read(self._woken, 1)
        self._stop.set()
        worker.join(_GRACE)
        if worker.is_alive() and not (self._recorder and self._recorder.has_let_go.is_set()):
            self._leave()
        worker.join()  # the last of the ledger is written
        if self._error is not None:
            raise self._error

    def _work(self) -> None:
        try:
            self._recorder = recorder = self._open()
            try:
                self._started(recorder)
            except BaseException:
                recorder.close()  # so that nobody takes it for one that runs
                raise
            recorder.run(self._stop)
        except BaseException as error:
            self._error = error  # raised by the main thread
        finally:
            os.write(self._wake, b".")

    def _leave(self) -> None:
        """End without the thread that the driver holds."""
        print(f"gpumon: the driver did not answer within {_GRACE:g} s: stopped without it", file=sys.stderr, flush=True)
        if self._recorder is not None:
            self._recorder.abandon()
        os._exit(EXIT_OK)
