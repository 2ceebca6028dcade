"""Telling a training's author that something is off: once, in one line, through `logging`, and never louder."""

from __future__ import annotations

from gpumon.text import clean

LONGEST = 300
"""Characters of a message."""
_told: set[str] = set()


def warn_once(subject: str, message: str) -> None:
    """Log `message` as a warning of the logger `gpumon`, the first time for this subject and process."""
    if subject in _told:
        return
    _told.add(subject)
    try:
        import logging  # most trainings never need it here
    except ImportError:
        return  # an interpreter whose library has become unreadable: nowhere to say it
    # The root logger prints the message alone, without its origin.
    logging.getLogger("gpumon").warning("gpumon: %s", clean(message, LONGEST))
