"""The command as a run, so that views and ledger know it without any hook in it."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence

from gpumon.launcher.child import Ended
from gpumon.paths import Places, tag_dir_for_client
from gpumon.tags.client import Board
from gpumon.tags.cpu_time import CpuTime
from gpumon.tags.description import Description
from gpumon.tags.naming import default_name
from gpumon.tags.ranks import slug


def name_of(words: Sequence[str]) -> str:
    """Return the short name of a command: `train` for `python -u train.py`, `make` for `/usr/bin/make all`."""
    program = os.path.basename(words[0])
    if program.startswith(("python", "torchrun", "accelerate", "bash", "sh", "uv")):
        for script in words[1:]:
            if script.endswith((".py", ".sh")):
                return default_name([script])
        if "-m" in words[:-1]:
            return words[words.index("-m") + 1].rpartition(".")[2]
    return program


class CommandRun:
    """The board of a command: begins now, and gives way to a training inside it."""

    def __init__(self, name: str, where: Places) -> None:
        described = Description(name=name, id=f"{slug(name)}-{os.urandom(4).hex()}")
        self._board = Board(lambda: tag_dir_for_client(where), described)
        self._board.cpu_time = CpuTime(own=False).seconds

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

    def end(self, ended: Ended) -> None:
        """The command is over; Ctrl-C is an end that its user chose, also where it became an exit code."""
        interrupted = ended.signal == signal.SIGINT or ended.code == 128 + signal.SIGINT
        self._board.close(failed=not ended.fine, interrupted=interrupted)
