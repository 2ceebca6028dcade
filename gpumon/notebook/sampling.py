"""Ensures that the GPUs are sampled while a notebook needs it.

If no daemon is running, the notebook starts one as a separate process. A thread of the kernel could not sample
reliably, because the code of a cell may hold the GIL for seconds. All notebooks of a user share this daemon. Each of
them locks the same file, and the daemon stops a few seconds after the last kernel has ended.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from threading import Thread

import gpumon
from gpumon.common.errors import GpumonError
from gpumon.common.paths import Places, make_live_dir
from gpumon.common.text import clean
from gpumon.common.usage_lock import UsageLock
from gpumon.live import Live

LOCK = "notebooks"
"""Name of the file in the live directory that each notebook locks."""
_RETRY_AFTER, _MAX_RETRY_AFTER = 30.0, 960.0
"""Shortest and longest pause in seconds between two attempts to start a daemon. The pause doubles each time."""
_START_TIMEOUT = 60.0
"""Maximum seconds to wait for a daemon's first sample. A driver may take a while to load."""


class NotebookSampling:
    """Starts a daemon if none is running, and keeps it running until `release` or the end of this process.

    `live`: reader of the daemon. `start`: function that starts a daemon, given the directories and the file to lock. It
    returns why this failed, or an empty string.
    """

    def __init__(self, places: Places, live: Live, start: Callable[[Places, str], str] | None = None) -> None:
        self.problem = ""
        """Why no daemon could be started; empty if there is no problem."""
        self._places = places
        self._live = live
        self._start = start or start_daemon
        self._lock: UsageLock | None = None
        self._thread: Thread | None = None
        self._next_try = 0.0
        self._pause = _RETRY_AFTER

    def ensure(self) -> None:
        """Start a daemon in the background if none is running. Does not wait for it."""
        if self._thread is not None and self._thread.is_alive():
            return
        if is_alive := self._live.is_alive():
            self.problem, self._next_try, self._pause = "", 0.0, _RETRY_AFTER
            if self._lock is not None:
                return
        if time.monotonic() < self._next_try:
            return
        self._next_try = time.monotonic() + self._pause
        self._pause = min(2 * self._pause, _MAX_RETRY_AFTER)
        try:
            path = f"{make_live_dir(self._places)}/{LOCK}"
            self._lock = self._lock or UsageLock(path)
        except (GpumonError, OSError) as error:
            self.problem = "" if is_alive else clean(str(error), 300)
            return
        if not is_alive:
            # A daemon thread, because the driver may hang.
            self._thread = Thread(target=self._run, args=(path,), name="gpumon-start", daemon=True)
            self._thread.start()

    @property
    def is_starting(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def release(self) -> None:
        """Release the lock. The daemon ends a few seconds later unless another notebook holds a lock."""
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def _run(self, path: str) -> None:
        try:
            self.problem = self._start(self._places, path)
        except Exception as error:  # must not disturb the notebook
            self.problem = f"{type(error).__name__}: {error}"
        if not self.problem:
            self._next_try, self._pause = 0.0, _RETRY_AFTER


def start_daemon(places: Places, lock: str) -> str:
    """Start a daemon that runs for as long as a process locks the file `lock`, and wait for its first sample.

    Return why there is no daemon, as one line; empty if there is one.
    """
    package = os.path.dirname(os.path.abspath(gpumon.__file__))
    words = [sys.executable, "-m", "gpumon", "daemon", "--detach", "--until-unlocked", lock]
    if places.explicit:
        words += ["--dir", places.explicit]
    if places.state and not places.usual_state:
        words += ["--state-dir", places.state]
    try:
        # In the package's directory, because `-m` imports from the working directory, which belongs to the notebook. In
        # a session of its own, because the stop button interrupts the process group of the kernel.
        done = subprocess.run(
            words, cwd=os.path.dirname(package), stdin=subprocess.DEVNULL, capture_output=True, text=True,
            errors="replace", timeout=_START_TIMEOUT, start_new_session=True, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return "the daemon has not taken a sample yet: the driver does not answer, or the machine is busy"
    except OSError as error:
        return f"cannot start 'gpumon daemon': {error.strerror or error}"
    if done.returncode == 0:
        return ""
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    return clean(lines[-1].removeprefix("gpumon: ") if lines else "the daemon could not be started", 300)
