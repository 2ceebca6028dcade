"""Restarting the daemon that runs, with the options that it was given."""

from __future__ import annotations

import os
import sys
from argparse import Namespace
from collections.abc import Mapping
from typing import NamedTuple, NoReturn

from gpumon.cli.daemon_lookup import FoundDaemon, find_daemon
from gpumon.cli.daemon_stop import end, environment_of, refuse
from gpumon.cli.options import add_daemon
from gpumon.cli.parser import parser_of
from gpumon.cli.streams import say
from gpumon.common.errors import GpumonError, UsageError
from gpumon.common.paths import Places, unreadable_rings

_WORD = "daemon"
_OF_ENVIRONMENT = ("GPUMON_", "XDG_")
"""Beginnings of the variables that stand for options, and for where files are."""


class Launch(NamedTuple):
    """The way in which a daemon was started."""

    words: list[str]
    """Options, without --detach."""
    env: Mapping[str, str]
    """The environment that it began with."""


def restart(where: Places, directory: str | None, state: str | None) -> NoReturn:
    """Stop the daemon, and become the command that starts another; `directory` and `state` are those of the flags.

    Raises GpumonError where the one that runs may not be stopped, or does not stop.
    """
    try:
        found = find_daemon(where)
    except GpumonError:
        if unreadable_rings(where):
            raise
        say("gpumon: no daemon was running: starting one with the options of this environment")
        _become(_places(directory, state), os.environ)
    refuse(found)
    launch = launch_of(found.pid)
    if launch is None:
        say("gpumon: the options of the daemon are not known: the new one gets those of this environment")
        words, env = _places(found.directory if where.explicit else None, state), dict(os.environ)
    else:
        words, env = _same(found, launch)
    end(found)
    _become(words, env)


def launch_of(pid: int) -> Launch | None:
    """Return how a daemon of this user was started; None where its command line does not tell. Raises UsageError."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            given = [os.fsdecode(word) for word in file.read().split(b"\0")[:-1]]
    except OSError:
        return None
    if _WORD not in given[1:]:
        return None
    words = given[given.index(_WORD, 1) + 1 :]
    options = _parsed(words)
    return None if options.action else Launch([word for word in words if word != "--detach"], environment_of(pid))


def _parsed(words: list[str]) -> Namespace:
    """The options in `words`. Raises UsageError where this version does not know them."""
    parser = parser_of(_WORD, None)
    add_daemon(parser)
    try:
        return parser.parse_args(words)
    except (SystemExit, UsageError):
        raise UsageError("this version does not take the options of the daemon that runs, which goes on") from None


def _same(found: FoundDaemon, launch: Launch) -> tuple[list[str], dict[str, str]]:
    """Options and environment for the same daemon; paths are written in full, as it began in another directory."""
    here = {name: value for name, value in os.environ.items() if not name.startswith(_OF_ENVIRONMENT)}
    before = {name: value for name, value in launch.env.items() if name.startswith(_OF_ENVIRONMENT)}
    options = _parsed(launch.words)
    directory = found.directory if options.dir or before.get("GPUMON_DIR") else None
    state = options.state_dir or before.get("GPUMON_STATE_DIR")
    state = os.path.join(launch.env.get("PWD", ""), state) if state else None
    return [*launch.words, *_places(directory, state)], {**here, **before}


def _places(directory: str | None, state: str | None) -> list[str]:
    named = (("--dir", directory), ("--state-dir", state))
    return [word for option, value in named if value for word in (option, value)]


def _become(words: list[str], env: Mapping[str, str]) -> NoReturn:
    """Replace this process by `gpumon daemon --detach`, so that its command line tells its options."""
    sys.stdout.flush()
    own = sys.orig_argv[1 : len(sys.orig_argv) - len(sys.argv) + 1]
    os.execve(sys.executable, [sys.executable, *own, _WORD, "--detach", *words], env)
