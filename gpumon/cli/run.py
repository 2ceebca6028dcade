"""Run a command and print its GPU cost when it exits.

The command gets the terminal and the signals; gpumon prints nothing until it exits, and returns its exit code.
If no daemon is running, gpumon samples in its own process meanwhile. A problem in gpumon never affects the command.

  gpumon run -- python train.py
  gpumon run --auto --name resnet50 -- torchrun --nproc-per-node 2 train.py
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from contextlib import suppress
from time import monotonic_ns
from typing import TYPE_CHECKING

from gpumon.auto import KNOWN, prepare
from gpumon.cli.options import DEFAULT_SOURCE, add_places, add_source, resolve_options, source_of
from gpumon.cli.streams import say
from gpumon.common.clock import SECOND
from gpumon.common.errors import UsageError
from gpumon.common.paths import Places, places
from gpumon.common.text import clean
from gpumon.launcher.command import Child, Ended, end_like, refusal
from gpumon.launcher.process_tree import adopt_orphans

if TYPE_CHECKING:
    from gpumon.launcher.watcher import Watcher

_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)
"""A word in front of a command that sets a variable of its environment."""


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.usage = "gpumon run [options] -- COMMAND ..."
    parser.add_argument(
        "command",
        metavar="COMMAND",
        nargs=argparse.REMAINDER,
        help="command to run, with its arguments",
    )
    parser.add_argument("--name", metavar="NAME", help="name of the run (default: derived from the command)")
    parser.add_argument(
        "--auto",
        action="store_true",
        help=f"record trainings with {KNOWN}, without changes to their code",
    )
    add_source(parser, f"the source of the running daemon, else {DEFAULT_SOURCE}")
    add_places(parser)


def run(arguments: argparse.Namespace) -> int:
    words = arguments.command[1:] if arguments.command[:1] == ["--"] else arguments.command
    env = dict(os.environ)
    while words and (assignment := _ASSIGNMENT.fullmatch(words[0])):  # as a shell takes them
        env[assignment[1]] = assignment[2]
        words = words[2:] if words[1:2] == ["--"] else words[1:]
    if not words:
        raise UsageError("no command to run. Example: gpumon run -- python train.py")
    if arguments.dir:
        env["GPUMON_DIR"] = os.path.abspath(arguments.dir)  # its trainings publish where we look
    if arguments.auto:
        env = prepare(env, arguments.name)
    where, trouble = _resolve_options(arguments)
    adopt_orphans()  # before there can be any
    began = monotonic_ns()
    try:
        child = Child(words, env)
    except OSError as error:
        message, code = refusal(error, words[0])
        say(f"gpumon: {clean(message, 1024)}")
        return code
    # From here on nothing may raise: whatever happens to us, the command goes on, and its end is ours.
    watcher, trouble = _watch(child, began, words, where, arguments, trouble)
    ended = child.wait(watcher.tree.holds if watcher else lambda pid: pid == child.pid)
    at = monotonic_ns()
    try:
        awaited = KNOWN if arguments.auto else ""
        name = arguments.name or words[0]
        _tell(watcher, name, ended, began_ns=began, ended_ns=at, trouble=trouble, awaited=awaited)
    except Exception as error:
        try:
            sys.stderr.write(f"gpumon: the cost of this command is unknown: {type(error).__name__}: {error}\n")
            sys.stderr.flush()
        except (OSError, ValueError):
            _say_no_more()
    code = end_like(ended)
    if watcher is not None and watcher.hangs:
        sys.stdout.flush()
        os._exit(code)  # a thread that hangs in a driver would hold up the interpreter's end
    return code


def _say_no_more() -> None:
    """Nobody reads our errors any more; what is still to be written must not become the exit code at the end."""
    with suppress(OSError):
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, 2)
        os.close(nothing)


def _resolve_options(arguments: argparse.Namespace) -> tuple[Places, str]:
    """The directories, and what is wrong with the settings, which is no reason not to run the command."""
    try:
        return resolve_options(arguments)[0], ""
    except UsageError as error:
        arguments.source, arguments.interval, arguments.speed, arguments.gpm = None, 1.0, 1.0, False
        return places(arguments.dir, arguments.state_dir), str(error)


def _watch(
    child: Child, began: int, words: list[str], where: Places, arguments: argparse.Namespace, trouble: str
) -> tuple[Watcher | None, str]:
    """Begin to look on; None, and why, where that cannot be."""
    try:
        # Only now: the command runs already.
        from gpumon.launcher.command import name_of, script_of
        from gpumon.launcher.watcher import Watcher, WatchOptions

        arguments.name = arguments.name or name_of(words)
        source = source_of(arguments)
        wanted = WatchOptions(
            arguments.name, where, source, arguments.interval, arguments.speed,
            gpm=arguments.gpm, script=script_of(words),
        )  # fmt: skip
        watcher = Watcher(child.pid, began, wanted)
        watcher.start()
    except Exception as error:
        return None, f"sampling failed: {type(error).__name__}: {error}"
    return watcher, trouble


def _tell(
    watcher: Watcher | None,
    name: str,
    ended: Ended,
    *,
    began_ns: int,
    ended_ns: int,
    trouble: str,
    awaited: str,
) -> None:
    """Print what it cost."""
    from gpumon.launcher.summary import text
    from gpumon.launcher.watcher import CommandReport

    report = watcher.finish(ended, ended_ns)._replace(awaited=awaited) if watcher is not None else CommandReport()
    if trouble:
        report = report._replace(problem=trouble)
    color = sys.stderr.isatty() and not os.environ.get("NO_COLOR")
    sys.stderr.write(text(name, ended, (ended_ns - began_ns) / SECOND, report, color=color))
    sys.stderr.flush()
