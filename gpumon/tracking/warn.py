"""Telling a training's author that something is off: once, in one line, through `logging`, and never louder."""

from __future__ import annotations

import sys

from gpumon.common.text import clean

LONGEST = 300
"""Characters of a message."""
_told: set[str] = set()


def warn_once(subject: str, message: str) -> None:
    """Log `message` as a warning of the logger `gpumon`, the first time for this subject and process."""
    if subject in _told:
        return
    _told.add(subject)
    try:
        message = clean(message, LONGEST)
        try:
            import logging  # most trainings never need it here
        except Exception:  # a library that has become unreadable, a process without a free descriptor
            print(f"gpumon: {message}", file=sys.stderr)
        else:
            # The root logger prints the message alone, without its origin.
            logging.getLogger("gpumon").warning("gpumon: %s", message)
    except Exception as error:  # a handler of the user's own that raises: nowhere to say it
        del error


def shown(value: object) -> str:
    """`value` in a message; of one that cannot be shown its type."""
    try:
        return clean(repr(value), 80)
    except Exception:  # an object of the user's own, that may do anything
        return f"<{type(value).__name__}>"
