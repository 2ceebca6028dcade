"""Durations of driver calls, in a file that the daemon writes and `gpumon status --verbose` shows.

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
"""Maximum share of the time that one kind of call may take per GPU. A slow call is made less often to stay below this
share."""
_SCHEMA = 1
_MAX_BYTES = 1 << 18
_LONGEST_NAME = 80


class DriverCall(NamedTuple):
    """Calls of one function of the driver's library, for all GPUs, since the daemon started."""

    function: str
    calls: int
    """Number of calls since the daemon started."""
    mean: float
    """Mean duration in seconds."""
    worst: float
    """Longest duration in seconds."""
    every: float = 0.0
    """Seconds between two calls for a GPU if the call is slow and therefore made less often; otherwise 0."""


def write_calls(directory: str, calls: Sequence[DriverCall]) -> None:
    """Replace the file. Raises OSError."""
    path = f"{directory}/{FILE}"
    text = json.dumps({"schema": _SCHEMA, "calls": [call._asdict() for call in calls]})
    descriptor = os.open(
        f"{path}.new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o644
    )
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
        os.fchmod(file.fileno(), 0o644)  # independent of the umask, because the directory controls access
    os.replace(f"{path}.new", path)


def read_calls(directory: str) -> tuple[DriverCall, ...]:
    """Return the calls in the file; empty if it does not exist or is invalid."""
    try:
        document = json.loads(read_regular(f"{directory}/{FILE}", _MAX_BYTES))
        if not isinstance(document, dict) or document.get("schema") != _SCHEMA:
            return ()
        return tuple(_parse_call(row) for row in document["calls"])
    except (OSError, ValueError, LookupError, TypeError, OverflowError, RecursionError):
        return ()


def _parse_call(row: Any) -> DriverCall:
    """Validate a row. Raises the errors that `read_calls` catches."""
    mean, worst, every = (float(row[key]) for key in ("mean", "worst", "every"))
    if not all(isfinite(seconds) and seconds >= 0 for seconds in (mean, worst, every)):
        raise ValueError(f"{row['function']!r} has an impossible duration")
    return DriverCall(clean(str(row["function"]), _LONGEST_NAME), int(row["calls"]), mean, worst, every)
