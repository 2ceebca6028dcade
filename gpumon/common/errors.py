"""The exceptions of gpumon, and the exit codes of its commands.

The message of an exception is one line that says what failed, with the value, and what to do.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

EXIT_OK = 0
EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_NO_GPU = 3
EXIT_LIMIT = 4


class GpumonError(Exception):
    """Base class of all errors. `cli.main` prints the message as one line on stderr."""

    exit_code = EXIT_FAILED


class UsageError(GpumonError):
    """Raised if a command or function gets invalid arguments."""

    exit_code = EXIT_USAGE


class LimitError(GpumonError):
    """Raised if a limit that a command was asked to check is broken, or if it cannot be checked."""

    exit_code = EXIT_LIMIT


class SourceError(GpumonError):
    """Raised if a source cannot be opened or read, for example without a driver."""


class NoCardError(SourceError):
    """Raised if there is no driver and no card that would need one."""


class RingError(GpumonError):
    """Raised if a ring file is missing, damaged or of another version."""


class NotBegunError(GpumonError):
    """Raised if a daemon has not yet created a file, or if the file is empty. The disk may be full."""


def converts_os_errors(function: Callable[P, T]) -> Callable[P, T]:
    """Wrap a function of the Python API so that an OSError becomes a GpumonError.

    Any call may raise an OSError. For example, a process without a free file descriptor cannot even load a module.
    """

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return function(*args, **kwargs)
        except OSError as error:
            raise GpumonError(f"{function.__name__}() failed: {error}") from error

    return call


_NEEDS_NO_QUOTES = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789@%+=:,./-_")


def quoted(word: str) -> str:
    """Return a path or name, in quotes if a shell needs them.

    Like `shlex.quote`. The module `shlex` is not used, because it cannot be loaded if no file descriptor is free.
    """
    return word if word and _NEEDS_NO_QUOTES.issuperset(word) else "'" + word.replace("'", "'\"'\"'") + "'"


def pip(arguments: str) -> str:
    """Return a pip command for this program's Python environment. A plain `pip` may belong to another environment."""
    return f"{quoted(sys.executable or 'python3')} -m pip {arguments}"


class AlreadyRunning(GpumonError):
    """Raised if another daemon is using the directory."""

    def __init__(self, directory: str, pid: int, *, for_command: bool = False) -> None:
        option = f"--dir {quoted(directory)}"
        if for_command:
            text = f"'gpumon run' (pid {pid}) samples for {directory} until its command ends"
            text += f": join it with 'gpumon tui {option}'"
        else:
            text = (
                f"a daemon already runs for {directory} (pid {pid}): "
                f"join it with 'gpumon tui {option}', or stop it with 'gpumon daemon stop {option}'"
            )
        super().__init__(text)
        self.pid = pid


class BoardError(GpumonError):
    """Raised if a file is not a board, or cannot be trusted."""


class MissingPackage(GpumonError, ImportError):
    """Raised if an optional Python package is not installed."""

    def __init__(self, what: str, *packages: str) -> None:
        pronoun = "it" if len(packages) == 1 else "them"
        command = pip(f"install {' '.join(packages)}")
        super().__init__(f"{what} requires {', '.join(packages)}: install {pronoun} with '{command}'")


class MissingExtra(GpumonError, ImportError):
    """Raised if the packages of one of gpumon's extras are not installed."""

    def __init__(self, what: str, extra: str) -> None:
        """`what`: the command or option that needs the packages. `extra`: name of the extra in `pyproject.toml`."""
        super().__init__(f"{what} requires more packages. Install them with: {pip_install_extra(extra)}")


def pip_install_extra(extra: str) -> str:
    """Return the pip command that installs the packages of one of gpumon's extras.

    The command names the packages, so it does not depend on how gpumon was installed.
    """
    from importlib import metadata

    try:
        requirements = [line.partition(";") for line in metadata.requires("gpumon-ml") or ()]
    except metadata.PackageNotFoundError:  # gpumon runs from a directory without being installed
        return pip(f"install '.[{extra}]'")
    packages = [name.strip() for name, _, marker in requirements if marker.split() == ["extra", "==", f"'{extra}'"]]
    return pip(f"install {' '.join(map(quoted, packages))}")


class FrameworkError(GpumonError, ImportError):
    """Raised if the framework of a callback is not installed or too old."""
