"""gpumon: what every GPU did in every epoch.

Trainings import this package. So each public name is loaded on first use, and `run` imports only the standard library.
"""

from __future__ import annotations

import sys
from contextlib import nullcontext
from functools import partial
from itertools import count
from math import inf
from operator import index
from typing import TYPE_CHECKING, Any

from gpumon.common.errors import GpumonError

if TYPE_CHECKING:
    from gpumon.live import connect
    from gpumon.storage.ledger.api import open_ledger as ledger
    from gpumon.tracking.active_run import run

__version__ = "0.1.0"
__all__ = ["__version__", "connect", "ledger", "run"]

_MODULES = {"run": "gpumon.tracking.active_run", "connect": "gpumon.live", "ledger": "gpumon.storage.ledger.api"}
_EXTENSION = "gpumon.notebook.extension"


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name == "run":
        try:
            from importlib import import_module

            value = import_module(_MODULES[name]).run
        except Exception as error:  # no file descriptor may be free; the training continues without gpumon
            return partial(_run_untagged, error)
        globals()[name] = value
        return value
    try:
        from importlib import import_module

        module = import_module(_MODULES[name])
    except Exception as error:
        raise GpumonError(f"gpumon.{name} cannot be loaded: {type(error).__name__}: {error}") from error
    value = globals()[name] = getattr(module, "open_ledger" if name == "ledger" else name)
    return value


def load_ipython_extension(shell: object) -> None:
    """Register `%gpumon` and `%%gpumon`. IPython calls this for `%load_ext gpumon`."""
    if not sys.platform.startswith("linux"):
        sys.stderr.write("gpumon: GPUs can be sampled only on Linux\n")
        return
    from importlib import import_module

    import_module(_EXTENSION).load(shell)


def unload_ipython_extension(shell: object) -> None:
    """Remove `%gpumon` and `%%gpumon`. IPython calls this for `%unload_ext gpumon`."""
    extension = sys.modules.get(_EXTENSION)
    if extension is not None:
        extension.unload()


def _run_untagged(error: Exception, name: object = None, *, epochs: object = None, **settings: object) -> object:
    _UntaggedRun.warn(error)
    return _UntaggedRun(epochs)


def _whole(value: Any) -> int | None:
    """Return `value` as an int; None if it is not a whole number."""
    try:
        return int(value) if isinstance(value, float) and value.is_integer() else index(value)
    except Exception:  # types of users may raise any exception
        return None


class _UntaggedRun:
    """Replaces a run if gpumon cannot be loaded. Loops work as usual, but nothing is published."""

    on = False
    name = id = ""
    _has_warned = False

    def __init__(self, planned: Any = None) -> None:
        self._planned = _whole(planned)

    @classmethod
    def warn(cls, error: Exception) -> None:
        if not cls._has_warned and sys.stderr is not None:
            cls._has_warned = True
            sys.stderr.write(f"gpumon: this training will not show in gpumon: {type(error).__name__}: {error}\n")

    def epochs(self, over: Any = None, *, start: int = 0) -> Any:
        first = _whole(start) or 0
        if over is None or (isinstance(over, float) and over == inf):
            last = self._planned if over is None else None
        elif (last := _whole(over)) is None:
            return iter(over)
        return count(first) if last is None else iter(range(first, last))

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
