"""A method of a framework's that is a phase by itself, such as that which saves a checkpoint.

No hook stands on both sides of it, so it is replaced by one that calls it between two marks.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from gpumon.callbacks.hook import failed

CHECKPOINT = "checkpoint"
Phase = Callable[[str], str]
"""Begins a phase; gives the one before."""


def marked(method: Callable[..., Any], phase_of: Callable[[Any], Phase | None], name: str) -> Callable[..., Any]:
    """`method` of a class, in the phase `name` of what `phase_of` gives for its object; None: there is no run."""

    @wraps(method)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        phase, before = None, ""
        try:
            phase = phase_of(self)
            before = phase(name) if phase is not None else ""
        except Exception as error:  # a tag is never worth a checkpoint
            phase = None
            failed(name, error)
        try:
            return method(self, *args, **kwargs)
        finally:
            if phase is not None:
                _back(phase, before)

    return call


def _back(phase: Phase, before: str) -> None:
    try:
        phase(before)
    except Exception as error:
        failed(before, error)
