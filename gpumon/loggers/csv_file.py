"""CSV: a file with a line for each epoch; `log_to="csv:PATH"`, or a path."""

from __future__ import annotations

import os
from collections.abc import Mapping

from gpumon.common.errors import GpumonError
from gpumon.loggers.epoch_values import EPOCH_VALUES
from gpumon.loggers.logger import EpochPlace, Logger
from gpumon.reports.csv import csv_line

COLUMNS = ("run", "epoch", "step", *(value.name for value in EPOCH_VALUES))


class CsvLogger(Logger):
    """Appends to a file, which is closed between epochs. An unknown value is an empty cell."""

    def __init__(self, path: str, run: str) -> None:
        """`run`: the id that tells the lines of several runs apart."""
        self.name = path
        self._run = run

    def write(self, values: Mapping[str, float], at: EpochPlace) -> None:
        """Append a line. Raises GpumonError if the file has other columns, OSError if it cannot be written."""
        header = csv_line(COLUMNS)
        os.makedirs(os.path.dirname(os.path.abspath(self.name)), exist_ok=True)
        with open(self.name, "a+", encoding="utf-8", newline="") as file:
            file.seek(0)
            found = file.readline()
            if found not in ("", header):
                raise GpumonError("the file has other columns: name another one")
            measured = [values.get(value.name) for value in EPOCH_VALUES]
            file.write(("" if found else header) + csv_line([self._run, at.epoch, at.step, *measured]))
