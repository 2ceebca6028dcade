"""Logger for TensorBoard: a SummaryWriter of torch or tensorboardX, or a directory. The step is the number of the
epoch."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib import import_module
from typing import Any

from gpumon.common.errors import MissingPackage
from gpumon.loggers.logger import EpochPosition, Logger


def is_writer(writer: object) -> bool:
    """Whether `writer` is a SummaryWriter."""
    return callable(getattr(writer, "add_scalar", None))


class TensorBoardLogger(Logger):
    """Writes to `writer`. Does not close it, because its owner does."""

    name = "TensorBoard"

    def __init__(self, writer: Any) -> None:
        self._writer = writer

    def write(self, values: Mapping[str, float], at: EpochPosition) -> None:
        """Add a scalar for each value, with the end time of the epoch."""
        for name, value in values.items():
            self._writer.add_scalar(name, value, at.epoch, walltime=at.ended)

    def flush(self) -> None:
        """Flush the writer to disk."""
        self._writer.flush()


class TensorBoardDirectory(TensorBoardLogger):
    """Creates a writer for a directory, and closes it at the end of the run."""

    def __init__(self, directory: str) -> None:
        """Create the writer. Raises MissingPackage if its package is not installed.

        The package is tensorboard if the training has imported torch, else tensorboardX.
        """
        module = "torch.utils.tensorboard" if "torch" in sys.modules else "tensorboardX"
        try:
            writer = import_module(module).SummaryWriter
        except ImportError:
            package = "tensorboard" if "torch" in sys.modules else "tensorboardX"
            raise MissingPackage("log_to='tensorboard'", package) from None
        super().__init__(writer(directory))

    def close(self) -> None:
        """Close the writer."""
        self._writer.close()
