"""Options of a command of which none was given: argparse, which would find the same, takes longer than the rest."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any


def defaults(add_options: Callable[[Any], None]) -> SimpleNamespace:
    """Return what argparse makes of no arguments; for commands whose options are all flags with a value or without."""
    found = _Defaults()
    add_options(found)
    return found.values


class _Defaults:
    """Stands in for a parser and its groups."""

    def __init__(self) -> None:
        self.values = SimpleNamespace()

    def add_argument_group(self, *_: str) -> _Defaults:
        return self

    def add_argument(self, flag: str, *, dest: str = "", action: str = "store", default: Any = None, **_: Any) -> None:
        name = dest or flag.lstrip("-").replace("-", "_")
        setattr(self.values, name, False if action == "store_true" else default)
