"""TensorBoard: a SummaryWriter of torch or tensorboardX, or a directory; the epoch's number is the step."""

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
    """Writes to `writer`, which its owner closes."""

    name = "TensorBoard"

    def __init__(self, writer: Any) -> None:
        self._writer = writer

    def write(self, values: Mapping[str, float], at: EpochPosition) -> None:
        """Add a scalar for each value, with the time when the epoch ended."""
        for name, value in values.items():
            self._writer.add_scalar(name, value, at.epoch, walltime=at.ended)

    def flush(self) -> None:
        """Flush the writer to disk."""
        self._writer.flush()


class TensorBoardDirectory(TensorBoardLogger):
    """Writes to a directory with a writer of its own."""

    def __init__(self, directory: str) -> None:
        """Create the writer. Raises MissingPackage without tensorboard (if torch is imported) or tensorboardX."""
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
