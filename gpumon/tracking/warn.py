"""Warnings for the author of a training script. Each is one line through `logging` and is given only once."""

from __future__ import annotations

import sys

from gpumon.common.text import clean

LONGEST = 300
"""Maximum number of characters of a message."""
_warned: set[str] = set()


def warn_once(subject: str, message: str) -> None:
    """Log `message` as a warning of the logger `gpumon`, unless this process has already warned about `subject`.

    `subject`: text that identifies the problem; it is not shown.
    """
    if subject in _warned:
        return
    _warned.add(subject)
    try:
        message = clean(message, LONGEST)
        try:
            import logging  # most trainings never need it here
        except Exception:  # an unreadable library, a process without a free descriptor
            print(f"gpumon: {message}", file=sys.stderr)
        else:
            # Without configuration, logging prints only the message. So the message itself must name gpumon.
            logging.getLogger("gpumon").warning("gpumon: %s", message)
    except Exception as error:  # a user's handler that raises: there is nowhere left to report to
        del error


def shown(value: object) -> str:
    """Return the repr of `value` for a message; the name of its type if its repr raises."""
    try:
        return clean(repr(value), 80)
    except Exception:  # a user's object that may do anything
        return f"<{type(value).__name__}>"
