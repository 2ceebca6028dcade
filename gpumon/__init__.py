"""gpumon: what every GPU did in every epoch.

A training imports this; so each public name is loaded when it is first used, and `run` brings in
the standard library only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpumon.ledger.past import open_ledger as ledger
    from gpumon.live import connect
    from gpumon.tags.loop import run

__version__ = "0.1.0"
__all__ = ["__version__", "connect", "ledger", "run"]

_HOMES = {"run": "gpumon.tags.loop", "connect": "gpumon.live", "ledger": "gpumon.ledger.past"}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    if name == "ledger":
        return import_module("gpumon.ledger")  # a package that can be called
    found = globals()[name] = getattr(import_module(_HOMES[name]), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
