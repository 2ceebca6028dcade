"""The commands of gpumon.

Each command is a module with its help text, its options and a function `run`. Only the module of the command that the
user calls is imported.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any

from gpumon.cli import streams
from gpumon.common.errors import EXIT_FAILED, EXIT_USAGE, GpumonError, UsageError
from gpumon.common.program import archive
from gpumon.common.text import clean

COMMANDS = {
    "tui": "terminal view: every GPU, live, with the epochs of each training",
    "web": "browser view: free GPUs, users, and every run with its epochs",
    "top": "print the status repeatedly, for plain terminals and logs",
    "why": "say why a training is slow, what to change, and what that saves",
    "status": "print GPUs, processes and runs once; --json for programs",
    "run": "run a command and print its GPU cost when it exits",
    "hang": "print where each process of a hanging run waits, and why",
    "wait": "wait until GPUs are free, then run a command on them",
    "notify": "tell a program or URL what happens to your runs",
    "runs": "list, show, compare, report and export runs, epoch by epoch",
    "history": "show recorded history: totals, users, processes, events; export",
    "export": "export the metrics of this node to Prometheus",
    "record": "record samples into a file, to replay with --source replay:FILE",
    "daemon": "sample the GPUs of this machine for all views",
    "service": "run the daemon as a systemd service: install, uninstall, status",
    "mcp": "answer questions of coding agents about GPUs and runs",
    "doctor": "check driver, daemon, files and packages, and suggest fixes",
    "completion": "print a completion script for bash, zsh or fish",
}

_VIEWS = ("tui", "web")
"""Commands that `gpumon.pyz` does not contain."""
_LONG_RUNNING = (["daemon"], ["web"], ["run"], ["wait"], ["notify"], ["record"])
"""Commands that continue after a write to stdout has failed."""
_HELP = (["-h"], ["--help"])
_PRINTING = (["daemon", "status"], ["web", "token"])
"""Subcommands of long-running commands that exist only to print something."""

_TOP = """\
usage: gpumon [COMMAND] [options]

Monitor GPUs, epoch by epoch of each training.

Without a command, gpumon opens the terminal view, or prints the status if its output is not a terminal.

commands:
{commands}

For help on a command: gpumon COMMAND --help
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command. Return the exit code: one of `EXIT_…`, or for `run` the exit code of its command."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    is_long = arguments[:1] in _LONG_RUNNING and arguments[1:2] not in _HELP and arguments[:2] not in _PRINTING
    streams.prepare(forgiving=is_long)
    try:
        code = _run(arguments)
        sys.stdout.flush()
    except GpumonError as error:
        return _fail(str(error), error.exit_code)
    except BrokenPipeError:
        # The reader of our output is gone. Buffered text must not raise the error again at exit.
        streams.silence(sys.stdout)
        return EXIT_FAILED
    except KeyboardInterrupt:
        return 130
    except UnicodeEncodeError as error:
        if not any(map(_is_undecodable, arguments)):
            return _fail(streams.report(error), EXIT_FAILED)
        return _fail(f"an argument is not valid UTF-8: {error.object!a}", EXIT_USAGE)
    except Exception as error:
        if isinstance(error, OSError) and streams.is_output(error):
            streams.silence(sys.stdout)
            return _fail(f"cannot write the output: {error.strerror}", EXIT_FAILED)
        return _fail(streams.report(error), EXIT_FAILED)
    finally:
        streams.flush(sys.__stderr__)  # the terminal view draws on stderr, and its terminal may be gone
    return code


def _is_undecodable(argument: str) -> bool:
    """Return whether an argument contains bytes that are invalid in the encoding of the file system."""
    return any("\udc80" <= character <= "\udcff" for character in argument)


def _run(arguments: Sequence[str]) -> int:
    if arguments[:1] == ["help"] and len(arguments) > 1:
        arguments = [*arguments[1:], "--help"]
    if not arguments:
        opens_view = sys.stdin.isatty() and sys.stdout.isatty() and not archive()
        arguments = ["tui" if opens_view else "status"]
    if arguments[0] in ("-h", "--help", "help"):
        print(_TOP.format(commands="\n".join(f"  {name:<12}{text}" for name, text in COMMANDS.items())), end="")
        return 0
    if arguments[0] in ("-V", "--version"):
        from gpumon import __version__

        print(f"gpumon {__version__}")
        return 0
    name = arguments[0]
    if name not in COMMANDS:
        raise UsageError(f"unknown command '{name}'. {_suggestion(name)}Commands: {', '.join(COMMANDS)}")
    if name in _VIEWS and archive():
        raise UsageError(f"gpumon.pyz has no '{name}': install the package with pip, or use 'gpumon top'")
    command = import_module(f"gpumon.cli.{name}")
    from gpumon.cli.parser import command_parser

    parser = command_parser(name, command.__doc__)
    command.add_options(parser)
    try:
        parsed = parser.parse_args(arguments[1:])
    except SystemExit as ending:
        return int(ending.code or 0)  # after --help
    return _call(command, parsed)


def _call(command: Any, options: object) -> int:
    """Run a command. While it runs, Ctrl-C raises KeyboardInterrupt. Before and afterward, the signal ends the process.

    During imports, a KeyboardInterrupt could be lost in a callback of the import system, or be turned into another
    error.
    """
    if signal.getsignal(signal.SIGINT) is not signal.SIG_DFL:  # not called by gpumon.__main__
        return int(command.run(options))
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        return int(command.run(options))
    finally:
        signal.signal(signal.SIGINT, signal.SIG_DFL)


def _suggestion(name: str) -> str:
    """Return a question that suggests a command with a similar name; empty if there is none."""
    from difflib import get_close_matches

    close = get_close_matches(name, COMMANDS, 1)
    return f"Did you mean '{close[0]}'? " if close else ""


def _fail(message: str, code: int) -> int:
    streams.print_message(f"gpumon: {clean(streams.shortened(message), 1200)}")
    return code
