"""Logger that calls a function of the user: `function(values, epoch)`."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from gpumon.loggers.logger import EpochPosition, Logger


class FunctionLogger(Logger):
    """Calls `function` with a dict of values by name, and the number of the epoch."""

    def __init__(self, function: Callable[[dict[str, float], int], object]) -> None:
        self.name = getattr(function, "__qualname__", type(function).__qualname__)
        self._function = function

    def write(self, values: Mapping[str, float], at: EpochPosition) -> None:
        """Call the function. Its exceptions are not caught."""
        self._function(dict(values), at.epoch)
