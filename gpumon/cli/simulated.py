"""A simulation that the terminal view shows in the place of a machine without a GPU, with a ledger of its own."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from gpumon.cli.private_sampler import private_sampler
from gpumon.common.errors import GpumonError
from gpumon.common.paths import LEDGER, Places
from gpumon.live import Live

if TYPE_CHECKING:
    from gpumon.storage.ledger.reader import Ledgers


class Simulated:
    """Frames of a simulation, as often as they are asked for, and the runs of the one that goes on."""

    def __init__(self, where: Places) -> None:
        self._where = where
        self._ledger = ""

    @contextmanager
    def begin(self) -> Iterator[Live]:
        """Simulate, and keep the runs for as long as that goes on."""
        from tempfile import TemporaryDirectory

        arguments = argparse.Namespace(source="sim", interval=1.0, speed=1.0, gpm=True)
        with TemporaryDirectory(prefix="gpumon-tui-") as directory:
            ledger = f"{directory}/{LEDGER}"
            with private_sampler(self._where, arguments, ledger) as live:
                self._ledger = ledger
                try:
                    yield live
                finally:
                    self._ledger = ""

    def ledgers(self) -> Ledgers:
        """The ledger of the simulation that goes on. Raises GpumonError where there is none yet."""
        from gpumon.storage.ledger.reader import NOTHING, Ledgers

        if not os.path.exists(self._ledger):
            raise GpumonError(NOTHING)
        return Ledgers([self._ledger])
