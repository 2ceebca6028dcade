"""Creates the loggers for the argument `log_to`."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

from gpumon.common.errors import GpumonError, UsageError
from gpumon.common.paths import Places
from gpumon.common.text import clean
from gpumon.loggers import mlflow, wandb
from gpumon.loggers.csv_file import CsvLogger
from gpumon.loggers.epoch_log import EpochLog
from gpumon.loggers.logger import FunctionLogger, Logger, MetricsLogger, has_log_metrics
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
"""Constructors of loggers, by the part of `log_to` before the colon. Their arguments are the part after the colon, and
the id of the run."""
_REQUIRES_ARGUMENT = {"csv"}
_TAKES_ARGUMENT = {"csv", "tensorboard"}
_BY_OBJECT: tuple[tuple[Callable[[object], bool], Callable[[Any], Logger]], ...] = (
    (is_writer, TensorBoardLogger),
    (wandb.is_run, WandbLogger),
    (mlflow.is_run, MlflowLogger),
    (has_log_metrics, MetricsLogger),
    (callable, FunctionLogger),
)


def epoch_log(log_to: object, *, run: str, places: Callable[[], Places], wait: float) -> EpochLog:
    """Return the epoch log for `gpumon.run(log_to=...)`. It writes nothing until its method `start` is called.

    `run`: id of the run. `places`: function that returns the directories of the daemon. `wait`: maximum seconds to wait
    at the end of the run for the values of its last epochs. Raises UsageError if `log_to` is not a logger.
    """
    return EpochLog(make_loggers(log_to, run), places, wait)


def make_loggers(log_to: object, run: str) -> list[Logger]:
    """Return the loggers for `log_to`, which is a single target or a list of targets. `run`: id of the run.

    If a logger cannot be created, it is left out with a warning. Its package may be missing. Raises UsageError for an
    invalid target.
    """
    loggers = []
    for target in log_to if isinstance(log_to, list | tuple) else [log_to]:
        try:
            loggers.append(_make_logger(target, run))
        except UsageError:
            raise
        except Exception as error:
            reason = str(error) if isinstance(error, GpumonError) else f"{type(error).__name__}: {error}"
            warn_once(f"log_to {target!r}", f"log_to={clean(repr(target), 80)} is left out: {reason}")
    return loggers


def _make_logger(target: object, run: str) -> Logger:
    if isinstance(target, ModuleType):
        target = target.__name__  # `log_to=wandb` (the module) means its active run
    if isinstance(target, os.PathLike):
        return CsvLogger(os.fsdecode(os.fspath(target)), run)
    if isinstance(target, str) and target.endswith(".csv") and ":" not in target:
        return CsvLogger(target, run)
    if isinstance(target, str):
        kind, colon, argument = target.partition(":")
        is_missing = kind in _REQUIRES_ARGUMENT and not argument
        if kind not in _BY_TEXT or is_missing or (colon and kind not in _TAKES_ARGUMENT):
            raise _invalid(target)
        return _BY_TEXT[kind](argument, run)
    for matches, make in _BY_OBJECT:
        if matches(target):
            return make(target)
    raise _invalid(target)


def _invalid(target: object) -> UsageError:
    texts = ", ".join(f'"{kind}:PATH"' if kind in _REQUIRES_ARGUMENT else f'"{kind}"' for kind in sorted(_BY_TEXT))
    return UsageError(f"log_to={clean(repr(target), 80)}: give {texts}, a path, a logger, or a function")
