"""Run a command and print its GPU cost when it exits.

The command gets the terminal and the signals. gpumon prints nothing until the command exits, and returns its exit code.
If no daemon is running, gpumon samples in its own process until then. A problem in gpumon never affects the command.

  gpumon run -- python train.py
  gpumon run --auto --name resnet50 -- torchrun --nproc-per-node 2 train.py
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from contextlib import suppress
from time import monotonic_ns, time
from typing import TYPE_CHECKING

from gpumon.auto import KNOWN, prepare
from gpumon.cli.options import DEFAULT_SOURCE, add_places, add_source, chosen_source, resolve_options
from gpumon.cli.streams import print_message
from gpumon.common.clock import SECOND, later_time
from gpumon.common.errors import UsageError
from gpumon.common.paths import Places
from gpumon.common.paths import places as default_places
from gpumon.common.program import archive
from gpumon.common.text import clean
from gpumon.launcher.child_process import Child, ExitStatus, exit_like, start_error
from gpumon.launcher.process_tree import adopt_orphans

if TYPE_CHECKING:
    from gpumon.launcher.notification import Target
    from gpumon.launcher.watcher import Watcher

_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)
"""A word before the command that sets an environment variable."""


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
    parser.add_argument(
        "--time-limit", metavar="TIME",
        help="when the command will be ended: 8h from now, or 2026-01-31T14:00. Views warn if a training will not be "
        "done by then (default: the end of its Slurm job, if Slurm reports it)",
    )  # fmt: skip
    parser.add_argument(
        "--notify", metavar="TARGET", dest="notify_target",  # `notify` is a setting of the terminal view
        help="notify TARGET when the command has ended, with its cost. TARGET is a program, which gets the text on "
        "stdin, or @FILE. The file must have mode 0600 and contain a URL that accepts POST (ntfy, Slack, Discord, ...)",
    )  # fmt: skip
    add_source(parser, f"the source of the running daemon, else {DEFAULT_SOURCE}")
    add_places(parser)


def run(arguments: argparse.Namespace) -> int:
    words = arguments.command[1:] if arguments.command[:1] == ["--"] else arguments.command
    env = dict(os.environ)
    while words and (assignment := _ASSIGNMENT.fullmatch(words[0])):  # as in a shell
        env[assignment[1]] = assignment[2]
        words = words[2:] if words[1:2] == ["--"] else words[1:]
    if not words or not words[0]:  # an empty word is a shell variable without a value
        raise UsageError("no command to run. Example: gpumon run -- python train.py")
    if arguments.dir:
        env["GPUMON_DIR"] = os.path.abspath(arguments.dir)  # so that its trainings publish where this process reads
    if arguments.auto:
        if archive():
            raise UsageError("gpumon.pyz cannot change the command's Python: for --auto, install the package with pip")
        env = prepare(env, arguments.name)
    if arguments.time_limit is not None:
        from gpumon.tracking.context import TIME_LIMIT

        env[TIME_LIMIT] = str(round(later_time(arguments.time_limit, time())))
    target = None
    if arguments.notify_target is not None:
        from gpumon.launcher.notification import parse_target

        target = parse_target(arguments.notify_target)
    places, problem = _resolve_options(arguments)
    adopt_orphans()  # must be called before the command starts
    started_ns = monotonic_ns()
    try:
        child = Child(words, env)
    except OSError as error:
        message, code = start_error(error, words[0])
        print_message(f"gpumon: {clean(message, 1024)}")
        return code
    # Nothing below may raise: the command must continue, and this process must exit in the same way as the command.
    watcher, problem = _start_watcher(child, started_ns, words, places, arguments, problem)
    ending = child.wait(watcher.tree.has_member if watcher else lambda pid: pid == child.pid)
    ended_ns = monotonic_ns()
    try:
        awaited = KNOWN if arguments.auto else ""
        name = arguments.name or words[0]
        summary = _report(
            watcher, name, ending, started_ns=started_ns, ended_ns=ended_ns, problem=problem, awaited=awaited
        )
        if target is not None:
            _notify(target, name, ending, summary)
    except Exception as error:
        try:
            sys.stderr.write(f"gpumon: the cost of this command is unknown: {type(error).__name__}: {error}\n")
            sys.stderr.flush()
        except (OSError, ValueError):
            _discard_stderr()
    code = exit_like(ending)
    if watcher is not None and watcher.hangs:
        sys.stdout.flush()
        os._exit(code)  # a thread that hangs in the driver would block the interpreter's exit
    return code


def _discard_stderr() -> None:
    """Redirect stderr to /dev/null, because a failing flush at exit would change the exit code."""
    with suppress(OSError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 2)
        os.close(null)


def _resolve_options(arguments: argparse.Namespace) -> tuple[Places, str]:
    """Return the directories, and the problem if the settings are invalid, else "". The command runs in either case."""
    try:
        return resolve_options(arguments)[0], ""
    except UsageError as error:
        arguments.source, arguments.interval, arguments.speed, arguments.gpm = None, 1.0, 1.0, False
        return default_places(arguments.dir, arguments.state_dir), str(error)


def _start_watcher(
    child: Child, started_ns: int, words: list[str], places: Places, arguments: argparse.Namespace, problem: str
) -> tuple[Watcher | None, str]:
    """Start a watcher, and return it and `problem`. If the watcher cannot be started, return None and the reason."""
    try:
        # Imported after the command has started, so that the imports do not delay it.
        from gpumon.launcher.child_process import command_name, command_script
        from gpumon.launcher.watcher import Watcher, WatchOptions

        arguments.name = arguments.name or command_name(words)
        source = chosen_source(arguments)
        options = WatchOptions(
            arguments.name, places, source, arguments.interval, arguments.speed,
            gpm=arguments.gpm, script=command_script(words),
        )  # fmt: skip
        watcher = Watcher(child.pid, started_ns, options)
        watcher.start()
    except Exception as error:
        return None, f"sampling failed: {type(error).__name__}: {error}"
    return watcher, problem


def _report(
    watcher: Watcher | None,
    name: str,
    ending: ExitStatus,
    *,
    started_ns: int,
    ended_ns: int,
    problem: str,
    awaited: str,
) -> str:
    """Print the cost of the command. Return the printed text, without colors."""
    from dataclasses import replace

    from gpumon.launcher.summary import text
    from gpumon.launcher.watcher import CommandReport

    report = replace(watcher.finish(ending, ended_ns), awaited=awaited) if watcher is not None else CommandReport()
    if problem:
        report = replace(report, problem=problem)
    has_color = sys.stderr.isatty() and not os.environ.get("NO_COLOR")
    plain, shown = (
        text(name, ending, (ended_ns - started_ns) / SECOND, report, color=color) for color in (False, has_color)
    )
    sys.stderr.write(shown)
    sys.stderr.flush()
    return plain


def _notify(target: Target, name: str, ending: ExitStatus, summary: str) -> None:
    """Notify `target` that the command has ended. If this fails, print the reason."""
    from gpumon.common.errors import GpumonError
    from gpumon.launcher.notification import Notification
    from gpumon.model.run import exit_text

    title = f"{clean(name, 60)}: {exit_text(ending.code, ending.signal) or 'finished'}"
    facts = {"GPUMON_NAME": clean(name, 60), "GPUMON_EXIT_CODE": str(ending.code), "GPUMON_SIGNAL": str(ending.signal)}
    try:
        target.send(Notification(title, summary, facts))
    except GpumonError as error:
        print_message(f"gpumon: no notification was sent: {clean(str(error), 300)}")
