"""A route of the interface for programs: a row of the table from which serving, checks and documentation follow."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import NamedTuple

from gpumon_web.answers import Packed
from gpumon_web.api.data import ApiData
from gpumon_web.api.parameters import Asked, QueryParameter


class ApiRoute(NamedTuple):
    """A route; it answers GET and HEAD."""

    name: str
    """Its path below `/api/v1/`."""
    title: str
    meaning: str
    """Sentences for the documentation."""
    answer: str
    """Name of the schema of its answer."""
    start: Callable[[ApiData, Asked], Future[Packed]]
    """Begins to make the answer, or has it. Raises BadParameter for values that do not go together, SourceError for a
    thing that is not there."""
    parameters: Sequence[QueryParameter] = ()
    of: str = "this"
    """The thing of which there may be no record."""
    has_missing: bool = False
    """Whether it answers 404 for a thing that is not there."""
