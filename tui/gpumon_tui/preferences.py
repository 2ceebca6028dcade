"""Choices kept between sessions, such as the theme and the sort order of tables.

They are stored in a separate file, so that the user's own settings file is never modified. Errors do not stop the view:
they are shown in the footer, and an unreadable file is left unchanged.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from threading import Lock, Thread

from gpumon.common.config import read_settings, settings_path

FILE = "tui.json"
_LONGEST = 200
"""Maximum length of a name and of a value."""
_PATIENCE = 2.0
"""Seconds to wait for the file system on exit."""


def path_of(env: Mapping[str, str]) -> str:
    """Return the path of the file for this user; empty if there is no home directory."""
    return settings_path(env, FILE)


class Remembered:
    """Choices by name, as text. Without `path` they are kept in memory only."""

    def __init__(self, path: str = "") -> None:
        self._path = path
        self._known: dict[str, str] = {}
        self._problem = ""
        self._lock = Lock()
        self._writing: Thread | None = None
        if path:
            self._read()

    def get(self, name: str, default: str = "") -> str:
        """Return the value of a choice, from this or an earlier session."""
        return self._known.get(name, default)

    def keep(self, name: str, value: str) -> None:
        """Store a choice.

        The file is written in another thread, because the home directory may be on a slow network.
        """
        if self._known.get(name) == value:
            return
        self._known[name] = value[:_LONGEST]
        if self._path:
            self._writing = Thread(target=self._write, name="gpumon-choices", daemon=True)
            self._writing.start()

    def take_problem(self) -> str:
        """Return the problem since the last call as a sentence; empty if there was none."""
        problem, self._problem = self._problem, ""
        return problem

    def close(self) -> None:
        """Wait briefly for pending writes."""
        if self._writing is not None:
            self._writing.join(_PATIENCE)

    def _read(self) -> None:
        try:
            found = _parsed(read_settings(self._path))
        except FileNotFoundError:
            return
        except (OSError, ValueError, RecursionError) as error:
            why = error.strerror if isinstance(error, OSError) else "not as this program writes it"
            self._problem = f"cannot read {self._path}: {why}; choices are not kept"
            self._path = ""
            return
        self._known = {name[:_LONGEST]: value[:_LONGEST] for name, value in found.items()}

    def _write(self) -> None:
        import json

        with self._lock:
            known = dict(self._known)  # copied here, because the writing threads may run in any order
            path = os.path.realpath(self._path)
            new = f"{path}.{os.getpid()}"
            try:
                os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
                fd = os.open(
                    new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600
                )
                with os.fdopen(fd, "w", encoding="utf-8") as file:
                    json.dump(known, file, indent=1)
                    file.write("\n")
                os.replace(new, path)
            except OSError as error:
                with suppress(OSError):
                    os.unlink(new)
                if self._path:
                    self._problem = f"cannot keep choices in {self._path}: {error.strerror or error}"
                    self._path = ""


def _parsed(content: bytes) -> dict[str, str]:
    """Parse the file content. Raises ValueError or RecursionError."""
    import json

    found = json.loads(content)
    if not isinstance(found, dict) or not all(isinstance(value, str) for value in found.values()):
        raise ValueError("no table of texts")
    return found
