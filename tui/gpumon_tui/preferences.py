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
_MAX_TEXT = 200
"""Maximum length of a name and of a value."""
_WRITE_TIMEOUT = 2.0
"""Seconds to wait for the file system on exit."""


def preferences_path(env: Mapping[str, str]) -> str:
    """Return the path of the file for this user; empty if there is no home directory."""
    return settings_path(env, FILE)


class Preferences:
    """Choices by name, as text. Without `path` they are kept in memory only."""

    def __init__(self, path: str = "") -> None:
        self._path = path
        self._choices: dict[str, str] = {}
        self._problem = ""
        self._lock = Lock()
        self._writing: Thread | None = None
        if path:
            self._read()

    def get(self, name: str, default: str = "") -> str:
        """Return the value of a choice, from this or an earlier session."""
        return self._choices.get(name, default)

    def set(self, name: str, value: str) -> None:
        """Store a choice.

        The file is written in another thread, because the home directory may be on a slow network.
        """
        if self._choices.get(name) == value:
            return
        self._choices[name] = value[:_MAX_TEXT]
        if self._path:
            self._writing = Thread(target=self._write, name="gpumon-choices", daemon=True)
            self._writing.start()

    def pop_problem(self) -> str:
        """Return the problem since the last call as a sentence; empty if there was none."""
        problem, self._problem = self._problem, ""
        return problem

    def close(self) -> None:
        """Wait briefly for pending writes."""
        if self._writing is not None:
            self._writing.join(_WRITE_TIMEOUT)

    def _read(self) -> None:
        try:
            choices = _parse(read_settings(self._path))
        except FileNotFoundError:
            return
        except (OSError, ValueError, RecursionError) as error:
            reason = error.strerror if isinstance(error, OSError) else "not as this program writes it"
            self._problem = f"cannot read {self._path}: {reason}; choices are not kept"
            self._path = ""
            return
        self._choices = {name[:_MAX_TEXT]: value[:_MAX_TEXT] for name, value in choices.items()}

    def _write(self) -> None:
        import json

        with self._lock:
            choices = dict(self._choices)  # copied here, because the writing threads may run in any order
            path = os.path.realpath(self._path)
            temporary_path = f"{path}.{os.getpid()}"
            try:
                os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
                fd = os.open(
                    temporary_path,
                    os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC,
                    0o600,
                )
                with os.fdopen(fd, "w", encoding="utf-8") as file:
                    json.dump(choices, file, indent=1)
                    file.write("\n")
                os.replace(temporary_path, path)
            except OSError as error:
                with suppress(OSError):
                    os.unlink(temporary_path)
                if self._path:
                    self._problem = f"cannot keep choices in {self._path}: {error.strerror or error}"
                    self._path = ""


def _parse(content: bytes) -> dict[str, str]:
    """Parse the file content. Raises ValueError or RecursionError."""
    import json

    choices = json.loads(content)
    if not isinstance(choices, dict) or not all(isinstance(value, str) for value in choices.values()):
        raise ValueError("no table of texts")
    return choices
