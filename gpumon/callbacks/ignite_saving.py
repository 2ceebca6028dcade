"""The checkpoints that Ignite's `Checkpoint` saves, as phases: only it knows whether a call of it saves anything."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import wraps
from typing import Any

from gpumon.callbacks.around import CHECKPOINT, Phase
from gpumon.callbacks.hook import failed

_BEFORE = "_gpumon_before"
"""Attribute of a handler that saves: how to go back to the phase before."""


def mark_saving(phase_of: Callable[[], Phase | None]) -> None:
    """Have whatever is saved from now on be a phase of `phase_of()`; None: no training runs.

    The first call holds for the process.
    """
    kind = getattr(sys.modules.get("ignite.handlers.checkpoint"), "Checkpoint", None)
    if kind is None or hasattr(kind, _BEFORE):
        return
    call, collect = kind.__call__, kind._setup_checkpoint
    setattr(kind, _BEFORE, None)

    @wraps(collect)
    def begin(self: Any, *args: Any, **kwargs: Any) -> Any:
        """Collect what is about to be saved."""
        try:
            phase = phase_of()
            self.__dict__[_BEFORE] = (phase, phase(CHECKPOINT)) if phase is not None else None
        except Exception as error:  # a tag is never worth a checkpoint
            failed(CHECKPOINT, error)
        return collect(self, *args, **kwargs)

    @wraps(call)
    def save(self: Any, *args: Any, **kwargs: Any) -> Any:
        """Save, where it is time to."""
        try:
            return call(self, *args, **kwargs)
        finally:
            found = self.__dict__.pop(_BEFORE, None)
            if found is not None:
                try:
                    found[0](found[1])
                except Exception as error:
                    failed(found[1], error)

    kind.__call__, kind._setup_checkpoint = save, begin
