"""Costs of the driver's calls, which the daemon keeps in a file of its directory and `status --verbose` shows.

The file is one JSON object: {"schema": 1, "calls": [{"function", "calls", "mean", "worst", "every"}, …]}.
"""

import json
import os
from collections.abc import Sequence
from math import isfinite
from typing import Any, NamedTuple

from gpumon.common.paths import read_regular
from gpumon.common.text import clean

FILE = "driver-calls.json"
SHARE = 0.05
"""Of the time, that one call for one GPU may take: a slower one is made so seldom that it takes no more."""
_SCHEMA = 1
_MOST_BYTES = 1 << 18
_LONGEST_NAME = 80


class DriverCall(NamedTuple):
    """One function of the driver's library, over all GPUs, since the daemon began."""

    function: str
    calls: int
    """Number of them."""
    mean: float
    """Seconds."""
    worst: float
    """Seconds."""
    every: float = 0.0
    """Seconds between two calls for a GPU where it is asked less often, because it has turned slow; else 0."""


def write_calls(directory: str, calls: Sequence[DriverCall]) -> None:
    """Replace the file. Raises OSError."""
    path = f"{directory}/{FILE}"
    text = json.dumps({"schema": _SCHEMA, "calls": [call._asdict() for call in calls]})
    descriptor = os.open(
        f"{path}.new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o644
    )
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
        os.fchmod(file.fileno(), 0o644)  # whatever the umask: who may read it, its directory says
    os.replace(f"{path}.new", path)


def read_calls(directory: str) -> tuple[DriverCall, ...]:
    """The calls in the file; none where there is no such file, or it is not one of ours."""
    try:
        found = json.loads(read_regular(f"{directory}/{FILE}", _MOST_BYTES))
        if not isinstance(found, dict) or found.get("schema") != _SCHEMA:
            return ()
        return tuple(_call(row) for row in found["calls"])
    except (OSError, ValueError, LookupError, TypeError, OverflowError, RecursionError):
        return ()


def _call(row: Any) -> DriverCall:
    """Check a row. Raises one of the errors of numbers and lookups for one that cannot be."""
    mean, worst, every = (float(row[key]) for key in ("mean", "worst", "every"))
    if not all(isfinite(seconds) and seconds >= 0 for seconds in (mean, worst, every)):
        raise ValueError(f"{row['function']!r} took no time that can be")
    return DriverCall(clean(str(row["function"]), _LONGEST_NAME), int(row["calls"]), mean, worst, every)
