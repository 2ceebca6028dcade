"""Functions of a framework that are running around a hook, for what it tells no callback."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from types import FrameType
from typing import Any

_DEEPEST = 64
"""Frames that are looked at."""


def frames(function: str) -> Iterator[FrameType]:
    """The frames of functions called `function` that run in this thread, the innermost first."""
    frame: FrameType | None = sys._getframe(1)
    for _ in range(_DEEPEST):
        if frame is None:
            return
        if frame.f_code.co_name == function:
            yield frame
        frame = frame.f_back


def variables(module: str, *functions: str) -> Mapping[str, Any]:
    """The variables of the innermost of `functions` of `module` that runs in this thread; empty without one."""
    for function in functions:
        for frame in frames(function):
            if frame.f_globals.get("__name__") == module:
                return frame.f_locals
    return {}
