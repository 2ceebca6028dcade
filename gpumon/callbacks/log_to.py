"""The setting `log_to` of a callback, as far as the framework has to do with it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gpumon.tracking.warn import warn_once


def with_loggers(settings: Mapping[str, Any], framework: str, loggers: Sequence[object]) -> dict[str, Any]:
    """Return `settings` in which the framework's own `loggers` stand for its name, such as `log_to="lightning"`."""
    given = settings.get("log_to")
    several = list(given) if isinstance(given, list | tuple) else [given]
    if framework not in [one for one in several if isinstance(one, str)]:
        return {**settings}
    if not loggers:
        warn_once("log_to framework", f"log_to={framework!r}: this training has no logger")
    own = [logger for one in several for logger in (loggers if one == framework else [one])]
    return {**settings, "log_to": own or None}


def without_log(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return `settings` without a `log_to` that cannot be pickled: a callback goes to other processes without it."""
    import pickle  # most callbacks go nowhere

    try:
        pickle.dumps(settings.get("log_to"))
    except Exception:  # whatever a logger raises: an open file, a thread, a connection
        return {**settings, "log_to": None}
    return {**settings}
