"""The one family of exceptions, and the exit codes of the commands.

A message is one line for a person: what is wrong, and what to do about it.
"""

import sys

EXIT_OK = 0
EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_NO_GPU = 3


class GpumonError(Exception):
    """Anything that gpumon refuses or cannot do; `cli.main` prints it as one line on stderr."""

    exit_code = EXIT_FAILED


class UsageError(GpumonError):
    """A command or a function was called with something that makes no sense."""

    exit_code = EXIT_USAGE


class SourceError(GpumonError):
    """A source cannot be opened or read: no driver, an unreadable recording."""


class RingError(GpumonError):
    """A ring file is missing, damaged or of another version."""


class NotBegunError(GpumonError):
    """A file that a daemon makes is not there yet, or has nothing in it: its disk may be full."""


def quoted(word: str) -> str:
    """Return a path or name as a shell takes it."""
    from shlex import quote  # for messages alone

    return quote(word)


def pip(arguments: str) -> str:
    """Return a command of pip for the environment of this program: a bare `pip` may be another one's."""
    return f"{quoted(sys.executable or 'python3')} -m pip {arguments}"


class AlreadyRunning(GpumonError):
    """Another daemon writes this directory."""

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
    """A tag board is not one, or is not to be trusted."""


class MissingPackage(GpumonError, ImportError):
    """A Python package that is only for this is not installed."""

    def __init__(self, what: str, *packages: str) -> None:
        them = "it" if len(packages) == 1 else "them"
        command = pip(f"install {' '.join(packages)}")
        super().__init__(f"{what} requires {', '.join(packages)}: install {them} with '{command}'")


class FrameworkError(GpumonError, ImportError):
    """The framework of a callback is missing, or older than gpumon supports."""
