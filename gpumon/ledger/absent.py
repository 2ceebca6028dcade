"""Why there is no ledger to read: nothing is recorded yet, or nothing can be."""

from __future__ import annotations

import os

from gpumon.ledger.reader import NOTHING
from gpumon.paths import Places, ledger_path


def why_absent(where: Places) -> str:
    """One line for people: what is wrong with the place of the ledger, else how one comes to be."""
    path = ledger_path(where)
    if not path:
        return "runs are not recorded: there is no state directory; pass --state-dir"
    directory = os.path.dirname(path)
    try:
        os.stat(path)
    except FileNotFoundError:
        there = _nearest(directory)
        if not os.access(there, os.W_OK | os.X_OK, effective_ids=True):
            return f"runs are not recorded: you cannot write to {there}; pass another --state-dir"
        return NOTHING
    except NotADirectoryError:
        return f"runs are not recorded: {directory} is not a directory; pass another --state-dir"
    except OSError as error:
        return f"cannot look into {directory}: {error.strerror or error}"
    return NOTHING


def _nearest(directory: str) -> str:
    """The directory, or its nearest parent that exists, in which a daemon would make it."""
    while directory and not os.path.isdir(directory) and os.path.dirname(directory) != directory:
        directory = os.path.dirname(directory)
    return directory or "."
