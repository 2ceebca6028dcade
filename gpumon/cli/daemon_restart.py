"""Restart the running daemon with the options it was started with."""

from __future__ import annotations

import os
import sys
from argparse import Namespace
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NoReturn

from gpumon.cli.daemon_lookup import RunningDaemon, find_daemon
from gpumon.cli.daemon_stop import read_environment, require_stoppable, stop_daemon
from gpumon.cli.options import add_daemon
from gpumon.cli.parser import command_parser
from gpumon.cli.streams import print_message
from gpumon.common.errors import GpumonError, UsageError
from gpumon.common.paths import Places, unreadable_rings

_COMMAND = "daemon"
_PREFIXES = ("GPUMON_", "XDG_")
"""Prefixes of environment variables that set options and directories."""


@dataclass(frozen=True, slots=True)
class Launch:
    """The options and the environment with which a daemon was started."""

    words: list[str]
    """Command-line options of the daemon, without --detach."""
    env: Mapping[str, str]
    """Environment with which the daemon was started."""


def restart(places: Places, directory: str | None, state: str | None) -> NoReturn:
    """Stop the daemon, and replace this process by a command that starts a new daemon.

    `directory` and `state` are the values of `--dir` and `--state-dir`. Raises GpumonError if the running daemon may
    not be stopped, or does not stop.
    """
    try:
        daemon = find_daemon(places)
    except GpumonError:
        if unreadable_rings(places):
            raise
        print_message("gpumon: no daemon was running: starting one with the options of this environment")
        _exec_daemon(_directory_options(directory, state), os.environ)
    require_stoppable(daemon)
    launch = read_launch(daemon.pid)
    if launch is None:
        print_message(
            "gpumon: cannot read the options of the running daemon: the new daemon gets the options of this environment"
        )
        words, env = _directory_options(daemon.directory if places.explicit else None, state), dict(os.environ)
    else:
        words, env = _same_options(daemon, launch)
    stop_daemon(daemon)
    _exec_daemon(words, env)


def read_launch(pid: int) -> Launch | None:
    """Return the options and the environment of a daemon of this user; None if its command line cannot be read.

    Raises UsageError if the daemon has options that this version does not support.
    """
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            command = [os.fsdecode(word) for word in file.read().split(b"\0")[:-1]]
    except OSError:
        return None
    if _COMMAND not in command[1:]:
        return None
    words = command[command.index(_COMMAND, 1) + 1 :]
    options = _parse(words)
    return None if options.action else Launch([word for word in words if word != "--detach"], read_environment(pid))


def _parse(words: list[str]) -> Namespace:
    """Return the parsed options. Raises UsageError for options that this version does not support."""
    parser = command_parser(_COMMAND, None)
    add_daemon(parser)
    try:
        return parser.parse_args(words)
    except (SystemExit, UsageError):
        raise UsageError(
            "the running daemon has options that this version of gpumon does not support: it was not stopped"
        ) from None


def _same_options(daemon: RunningDaemon, launch: Launch) -> tuple[list[str], dict[str, str]]:
    """Return the options and the environment that start the same daemon again.

    Paths are made absolute, because the daemon may have been started in a different working directory.
    """
    current = {name: value for name, value in os.environ.items() if not name.startswith(_PREFIXES)}
    previous = {name: value for name, value in launch.env.items() if name.startswith(_PREFIXES)}
    options = _parse(launch.words)
    directory = daemon.directory if options.dir or previous.get("GPUMON_DIR") else None
    state = options.state_dir or previous.get("GPUMON_STATE_DIR")
    state = os.path.join(launch.env.get("PWD", ""), state) if state else None
    return [*launch.words, *_directory_options(directory, state)], {**current, **previous}


def _directory_options(directory: str | None, state: str | None) -> list[str]:
    options = (("--dir", directory), ("--state-dir", state))
    return [word for option, value in options if value for word in (option, value)]


def _exec_daemon(words: list[str], env: Mapping[str, str]) -> NoReturn:
    """Replace this process by `gpumon daemon --detach`, so that the daemon's command line contains its options."""
    sys.stdout.flush()
    interpreter = sys.orig_argv[1 : len(sys.orig_argv) - len(sys.argv) + 1]
    os.execve(sys.executable, [sys.executable, *interpreter, _COMMAND, "--detach", *words], env)
