"""Results of `gpumon doctor`. Each is about one part of this machine: its condition, and what to do."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import NamedTuple


class Condition(IntEnum):
    """Condition of a part. The worst comes last."""

    OK = 0
    NOTE = 1
    """Worth knowing; nothing needs to be done."""
    WARNING = 2
    """Something is missing because of it."""
    FAULT = 3
    """Until it is fixed, no GPU can be read or nothing is recorded."""

    @property
    def word(self) -> str:
        """The condition as text, such as `warning`."""
        return self.name.lower()


class Check(NamedTuple):
    """What was found about one part, and what to do."""

    name: str
    """Such as `driver library`."""
    condition: Condition
    text: str
    """What was found, as a clause."""
    remedy: str = ""
    """What to do, as a clause; empty if nothing."""


class CheckSection(NamedTuple):
    """Results that are shown under one heading."""

    title: str
    checks: Sequence[Check]
