"""The command as a run, so that views and ledger know it without any hook in it."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Sequence

from gpumon.common.paths import Places, tag_dir_for_client
from gpumon.launcher.child import Ended
from gpumon.tracking.board import Board
from gpumon.tracking.context import default_name, slug
from gpumon.tracking.description import Description
from gpumon.tracking.loader import CpuTime
from gpumon.tracking.metadata import script_facts


def name_of(words: Sequence[str]) -> str:
    """Return the short name of a command: `train` for `python -u train.py`, `make` for `/usr/bin/make all`."""
    script = script_of(words)
    if script:
        return default_name([script])
    if _is_starter(words) and "-m" in words[:-1]:
        return words[words.index("-m") + 1].rpartition(".")[2]
    return os.path.basename(words[0])


def script_of(words: Sequence[str]) -> str:
    """Return the script that a command runs, as it stands there; empty where it runs none."""
    scripts = (word for word in words[1:] if word.endswith((".py", ".sh")))
    return next(scripts, "") if _is_starter(words) else ""


def _is_starter(words: Sequence[str]) -> bool:
    return os.path.basename(words[0]).startswith(("python", "torchrun", "accelerate", "bash", "sh", "uv"))


class CommandRun:
    """The board of a command: gives way to a training inside it. `script`: the one that it runs.

    `began`: when the command began, ns of CLOCK_MONOTONIC; 0: now.
    """

    def __init__(self, name: str, where: Places, script: str = "", began: int = 0) -> None:
        described = Description(name=name, id=f"{slug(name)}-{os.urandom(4).hex()}")
        self._at = began
        """Time that the board takes for now, ns of CLOCK_MONOTONIC; 0: that of the clock."""
        self._board = Board(lambda: tag_dir_for_client(where), described, self._monotonic, self._now)
        self._at, self._begun = 0, self._monotonic()
        self._board.cpu_time = CpuTime(own=False, since_start=bool(began)).seconds
        if script:
            facts = script_facts(script)
            self._board.tell(lambda about: about._replace(program=facts))

    @property
    def id(self) -> str:
        return self._board.description.id

    @property
    def key(self) -> str:
        """The name of the board; empty when there is none."""
        return os.path.basename(self._board.path)

    def tell_devices(self, uuids: tuple[str, ...]) -> None:
        """The command holds these now. Those that it let go of stay: it ran on them."""
        known = self._board.description.devices
        fresh = tuple(uuid for uuid in uuids if uuid not in known)
        if fresh:
            self._board.describe(devices=known + fresh)

    def withdraw(self) -> None:
        """A training inside the command tells more of it: this one never was."""
        self._board.close(withdrawn=True)

    def end(self, ended: Ended, at: int = 0) -> None:
        """The command was over `at` that moment (ns, CLOCK_MONOTONIC; 0: now).

        Ctrl-C is an end that its user chose, also where it became an exit code.
        """
        interrupted = ended.signal == signal.SIGINT or ended.code == 128 + signal.SIGINT
        self._at = at if at > self._begun else 0
        self._board.close(failed=not ended.fine, interrupted=interrupted)

    def _monotonic(self) -> int:
        return self._at or time.monotonic_ns()

    def _now(self) -> int:
        return time.time_ns() - (time.monotonic_ns() - self._monotonic())
