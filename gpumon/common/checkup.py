"""Checks of `gpumon doctor`: one thing of this machine each, its condition, and what to do about it."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import NamedTuple


class Condition(IntEnum):
    """Condition of a thing, the worst last."""

    OK = 0
    NOTE = 1
    """Worth knowing; nothing has to be done."""
    WARNING = 2
    """Something is missed by it."""
    FAULT = 3
    """No GPU can be read, or nothing is recorded, as long as it is so."""

    @property
    def word(self) -> str:
        """For people and programs, such as `warning`."""
        return self.name.lower()


class Check(NamedTuple):
    """A thing that was looked at."""

    name: str
    """Such as `driver library`."""
    condition: Condition
    text: str
    """Finding, in a clause."""
    remedy: str = ""
    """Advice, in a clause; empty where nothing has to be done."""


class CheckSection(NamedTuple):
    """Checks under one heading."""

    title: str
    checks: Sequence[Check]
