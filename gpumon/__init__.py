"""gpumon: what every GPU did in every epoch.

A training imports this; so each public name is loaded when it is first used, and `run` brings in
the standard library only.
"""

from __future__ import annotations

import sys
from contextlib import nullcontext
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gpumon.live import connect
    from gpumon.storage.ledger.api import open_ledger as ledger
    from gpumon.tracking.active_run import run

__version__ = "0.1.0"
__all__ = ["__version__", "connect", "ledger", "run"]

_HOMES = {"run": "gpumon.tracking.active_run", "connect": "gpumon.live", "ledger": "gpumon.storage.ledger.api"}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name == "run":
        try:
            from importlib import import_module

            found = import_module(_HOMES[name]).run
        except Exception as error:  # no descriptor is left to read it: a training goes on without
            return partial(_run_untagged, error)
        globals()[name] = found
        return found
    from importlib import import_module

    found = globals()[name] = getattr(import_module(_HOMES[name]), "open_ledger" if name == "ledger" else name)
    return found


def _run_untagged(error: Exception, name: object = None, *, epochs: object = None, **settings: object) -> object:
    _UntaggedRun.warn(error)
    return _UntaggedRun(epochs)


class _UntaggedRun:
    """A run where gpumon itself cannot be loaded: loops go on as with any other, and nothing is published."""

    on = False
    name = id = ""
    _is_told = False

    def __init__(self, planned: Any = None) -> None:
        self._planned = planned

    @classmethod
    def warn(cls, error: Exception) -> None:
        if not cls._is_told and sys.stderr is not None:
            cls._is_told = True
            sys.stderr.write(f"gpumon: this training will not show in gpumon: {type(error).__name__}: {error}\n")

    def epochs(self, over: Any = None, *, start: int = 0) -> Any:
        over = self._planned if over is None else over
        if over is None or over == float("inf"):
            return count(start)
        return iter(over) if hasattr(over, "__iter__") else iter(range(start, int(over)))

    def steps(self, loader: Any) -> Any:
        return loader

    def epoch(self, number: object) -> Any:
        return nullcontext()

    def phase(self, name: object) -> Any:
        return nullcontext()

    def __enter__(self) -> _UntaggedRun:
        return self

    def __exit__(self, *error: object) -> None: ...

    def __call__(self, function: Any) -> Any:
        return function

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *_, **__: None


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
