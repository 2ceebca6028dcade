"""Warnings for the author of a training script. Each warning is one line, is given through `logging`, and is given only
once."""

from __future__ import annotations

import sys

from gpumon.common.text import clean

LONGEST = 300
"""Maximum number of characters of a message."""
_warned: set[str] = set()


def warn_once(subject: str, message: str) -> None:
    """Log `message` as a warning of the logger `gpumon`, unless this process has already warned about `subject`.

    `subject`: text that identifies the problem. It is not shown.
    """
    if subject in _warned:
        return
    _warned.add(subject)
    try:
        message = clean(message, LONGEST)
        try:
            import logging  # most trainings give no warning and do not need this module
        except Exception:  # such as an unreadable library, or no free descriptor
            print(f"gpumon: {message}", file=sys.stderr)
        else:
            # If `logging` is not configured, it prints only the message. So the message itself must name gpumon.
            logging.getLogger("gpumon").warning("gpumon: %s", message)
    except Exception as error:  # a user's handler raised this, and there is no other place to report it
        del error


def shown(value: object) -> str:
    """Return the repr of `value` for a message; the name of its type if `repr` raises an exception."""
    try:
        return clean(repr(value), 80)
    except Exception:  # the `repr` of a user's object may raise anything
        return f"<{type(value).__name__}>"
