"""The exceptions of gpumon, and the exit codes of its commands.

A message is one line: what failed, the value, and what to do.
"""

import sys

EXIT_OK = 0
EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_NO_GPU = 3


class GpumonError(Exception):
    """Base of all errors; `cli.main` prints it as one line on stderr."""

    exit_code = EXIT_FAILED


class UsageError(GpumonError):
    """A command or a function was called with invalid arguments."""

    exit_code = EXIT_USAGE


class SourceError(GpumonError):
    """A source cannot be opened or read: no driver, an unreadable recording."""


class RingError(GpumonError):
    """A ring file is missing, damaged or of another version."""


class NotBegunError(GpumonError):
    """A file that a daemon creates does not exist yet, or is empty; its disk may be full."""


def quoted(word: str) -> str:
    """Return a path or name quoted for a shell."""
    from shlex import quote  # needed only for messages

    return quote(word)


def pip(arguments: str) -> str:
    """Return a pip command for the environment of this program; a bare `pip` may belong to another one."""
    return f"{quoted(sys.executable or 'python3')} -m pip {arguments}"


class AlreadyRunning(GpumonError):
    """Another daemon uses this directory."""

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
    """A file is not a tag board, or is not trusted."""


class MissingPackage(GpumonError, ImportError):
    """An optional Python package is not installed."""

    def __init__(self, what: str, *packages: str) -> None:
        pronoun = "it" if len(packages) == 1 else "them"
        command = pip(f"install {' '.join(packages)}")
        super().__init__(f"{what} requires {', '.join(packages)}: install {pronoun} with '{command}'")


class FrameworkError(GpumonError, ImportError):
    """The framework of a callback is missing, or older than gpumon supports."""
