"""Why there is no file to read: nothing is kept yet, or nothing can be."""

from __future__ import annotations

import os


def why_absent(path: str, nothing: str, refused: str, machine: str = "") -> str:
    """One line for people: what is wrong with the place of a file, else `nothing`, which says how one comes to be.

    `refused` begins the lines about a place that cannot be written, such as "runs are not recorded".
    `machine`: the directory of a daemon for all users, which may be closed to this one.
    """
    if machine and _is_closed(machine):
        return f"no permission to look into {machine}, where the machine's daemon keeps them: ask the administrator"
    if not path:
        return f"{refused}: there is no state directory; pass --state-dir"
    directory = os.path.dirname(path)
    try:
        os.stat(path)
    except FileNotFoundError:
        there = _nearest(directory)
        if not os.access(there, os.W_OK | os.X_OK, effective_ids=True):
            return f"{refused}: you cannot write to {there}; pass another --state-dir"
        return nothing
    except NotADirectoryError:
        return f"{refused}: {directory} is not a directory; pass another --state-dir"
    except OSError as error:
        return f"cannot look into {directory}: {error.strerror or error}"
    return nothing


def _is_closed(directory: str) -> bool:
    try:
        os.stat(f"{directory}/.")
    except OSError as error:
        return isinstance(error, PermissionError)
    return False


def _nearest(directory: str) -> str:
    """The directory, or its nearest parent that exists, in which a daemon would make it."""
    while directory and not os.path.isdir(directory) and os.path.dirname(directory) != directory:
        directory = os.path.dirname(directory)
    return directory or "."
