"""Logger for CSV: `log_to="csv:PATH"`, or a path. The file has a line for each epoch."""

from __future__ import annotations

import os
from collections.abc import Mapping

from gpumon.common.errors import GpumonError
from gpumon.loggers.epoch_values import EPOCH_VALUES
from gpumon.loggers.logger import EpochPosition, Logger
from gpumon.reports.csv import csv_line

COLUMNS = ("run", "epoch", "step", *(value.name for value in EPOCH_VALUES))


class CsvLogger(Logger):
    """Appends a line for each epoch to a file. The file is closed between epochs. Cells of missing values are empty."""

    def __init__(self, path: str, run: str) -> None:
        """`run`: id of the run. It is written in each line, because several runs may share a file."""
        self.name = path
        self._run = run

    def write(self, values: Mapping[str, float], at: EpochPosition) -> None:
        """Append a line. Raises GpumonError if the file has different columns, and OSError if it cannot be written."""
        header = csv_line(COLUMNS)
        os.makedirs(os.path.dirname(os.path.abspath(self.name)), exist_ok=True)
        with open(self.name, "a+", encoding="utf-8", newline="") as file:
            file.seek(0)
            first_line = file.readline()
            if first_line not in ("", header):
                raise GpumonError("the file has other columns: pass another path")
            cells = [values.get(value.name) for value in EPOCH_VALUES]
            file.write(("" if first_line else header) + csv_line([self._run, at.epoch, at.step, *cells]))
