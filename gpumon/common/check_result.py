"""Results of `gpumon doctor`: the condition of each checked component of this machine, and what to do."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import NamedTuple


class Condition(IntEnum):
    """Condition of a component, from best to worst."""

    OK = 0
    NOTE = 1
    """There is something to know about the component, but nothing to do."""
    WARNING = 2
    """Because of the component, something does not work or is not shown."""
    FAULT = 3
    """Until the component is fixed, no GPU can be read, or nothing is recorded."""

    @property
    def word(self) -> str:
        """The condition as text, such as `warning`."""
        return self.name.lower()


class Check(NamedTuple):
    """Result of checking one component, and what to do."""

    name: str
    """Name of the component, such as `driver library`."""
    condition: Condition
    text: str
    """The finding, as a clause."""
    remedy: str = ""
    """What to do, as a clause; empty if nothing needs to be done."""


class CheckSection(NamedTuple):
    """Results that are shown under one heading."""

    title: str
    checks: Sequence[Check]
