"""Table of the loggers: the one that each `log_to` names."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

from gpumon.common.errors import GpumonError, UsageError
from gpumon.common.text import clean
from gpumon.loggers import mlflow, wandb
from gpumon.loggers.csv_file import CsvLogger
from gpumon.loggers.function import FunctionLogger
from gpumon.loggers.logger import Logger
from gpumon.loggers.metrics_method import MetricsLogger, has_method
from gpumon.loggers.mlflow import MlflowLogger
from gpumon.loggers.tensorboard import TensorBoardDirectory, TensorBoardLogger, is_writer
from gpumon.loggers.wandb import WandbLogger
from gpumon.tracking.warn import warn_once

_BY_TEXT: Mapping[str, Callable[[str, str], Logger]] = {
    "csv": lambda path, run: CsvLogger(path, run),
    "mlflow": lambda _, run: MlflowLogger(),
    "tensorboard": lambda directory, run: TensorBoardDirectory(directory or os.path.join("runs", run)),
    "wandb": lambda _, run: WandbLogger(),
}
"""By what stands before the colon; called with what stands behind it, and the id of the run."""
_NEEDS_MORE = {"csv"}
_HAS_MORE = {"csv", "tensorboard"}
_BY_OBJECT: tuple[tuple[Callable[[object], bool], Callable[[Any], Logger]], ...] = (
    (is_writer, TensorBoardLogger),
    (wandb.is_run, WandbLogger),
    (mlflow.is_run, MlflowLogger),
    (has_method, MetricsLogger),
    (callable, FunctionLogger),
)


def loggers_of(log_to: object, run: str) -> list[Logger]:
    """Return the loggers that `log_to` names, in a list or alone; `run` is the id of the run.

    One that cannot be made, as without its package, is left out with a warning. Raises UsageError for what is none.
    """
    found = []
    for one in log_to if isinstance(log_to, list | tuple) else [log_to]:
        try:
            found.append(_logger_of(one, run))
        except UsageError:
            raise
        except Exception as error:
            why = str(error) if isinstance(error, GpumonError) else f"{type(error).__name__}: {error}"
            warn_once(f"log_to {one!r}", f"log_to={clean(repr(one), 80)} is left out: {why}")
    return found


def _logger_of(one: object, run: str) -> Logger:
    if isinstance(one, ModuleType):
        one = one.__name__  # `log_to=wandb`: its active run
    if isinstance(one, os.PathLike):
        return CsvLogger(os.fsdecode(os.fspath(one)), run)
    if isinstance(one, str) and one.endswith(".csv") and ":" not in one:
        return CsvLogger(one, run)
    if isinstance(one, str):
        kind, colon, rest = one.partition(":")
        if kind not in _BY_TEXT or (kind in _NEEDS_MORE and not rest) or (colon and kind not in _HAS_MORE):
            raise _refused(one)
        return _BY_TEXT[kind](rest, run)
    for is_one, make in _BY_OBJECT:
        if is_one(one):
            return make(one)
    raise _refused(one)


def _refused(one: object) -> UsageError:
    named = ", ".join(f'"{kind}:PATH"' if kind in _NEEDS_MORE else f'"{kind}"' for kind in sorted(_BY_TEXT))
    return UsageError(f"log_to={clean(repr(one), 80)}: give {named}, a path, a logger, or a function")
