"""Sample the GPUs of this machine for all views, until stopped.

One daemon serves any number of views and is the only process that talks to the driver. It runs in the
foreground, as service managers expect; --detach runs it in the background. SIGTERM and SIGINT stop it,
even while the driver hangs. Subcommands show, stop or restart the running daemon.
"""

from __future__ import annotations

import argparse
import os
import resource
import select
import sys
from collections.abc import Callable
from contextlib import suppress

from gpumon.cli.options import add_daemon, playback_of, resolve_options, source_of
from gpumon.cli.streams import say
from gpumon.common.errors import EXIT_OK, GpumonError, UsageError
from gpumon.common.paths import LOG, Places, live_dirs

_OF_ALL = ("action", "dir", "state_dir")
_PATIENCE = 3.0
"""Seconds without a first sample until that is said."""
_RUNS = "+"
"""Begins what a detached daemon answers once it samples; anything else is why it does not."""


def add_options(parser: argparse.ArgumentParser) -> None:
    add_daemon(parser)


def run(arguments: argparse.Namespace) -> int:
    if arguments.action:
        _refuse_options(arguments)
        return _control(arguments)
    where, arguments = resolve_options(arguments)
    if not arguments.detach:
        return _serve(where, arguments, lambda text, _: print(text, flush=True))
    return _detach(where, arguments)


def _refuse_options(arguments: argparse.Namespace) -> None:
    """Raise UsageError for an option of a daemon that starts: none does here with it."""
    given = [name for name, value in vars(arguments).items() if name not in _OF_ALL and value not in (None, False)]
    if given:
        raise UsageError(
            f"'gpumon daemon {arguments.action}' takes --dir and --state-dir alone: other options are for a daemon "
            "that starts"
        )


def _control(arguments: argparse.Namespace) -> int:
    given = arguments.dir, arguments.state_dir
    where, _ = resolve_options(arguments)
    if arguments.action == "status":
        from gpumon.cli.daemon_status import show

        return show(where)
    if arguments.action == "stop":
        from gpumon.cli.daemon_stop import stop

        return stop(where)
    from gpumon.cli.daemon_restart import restart

    return restart(where, *given)


def _serve(where: Places, arguments: argparse.Namespace, tell: Callable[[str, str], object]) -> int:
    """Sample until a signal; `tell` gets the line for people and the directory once the first sample is there."""
    from gpumon.common.clock import SystemClock
    from gpumon.daemon import service
    from gpumon.daemon.recorder import Recorder
    from gpumon.daemon.service import Service, open_daemon
    from gpumon.storage.history.tiers import HistoryLimits

    def open_recorder() -> Recorder:
        playback = playback_of(arguments)
        limits = HistoryLimits(arguments.history_days, arguments.history_size, arguments.account_days)
        return open_daemon(
            where, source_of(arguments), arguments.interval, arguments.speed, SystemClock(), playback=playback,
            limits=limits, gpm=arguments.gpm, idle_interval=arguments.idle_interval, job_dir=arguments.job_dir or "",
        )  # fmt: skip

    def started(recorder: Recorder) -> None:
        sampler = recorder.sampler
        where_to = f"sampled every {arguments.interval:g} s into {recorder.directory}"
        text = f"gpumon daemon {os.getpid()}: {sampler.found()}; {where_to}"
        service.tune_garbage_collection()
        tell_of_another(where, recorder.directory or "")
        tell(text, recorder.directory or "")

    service.limit_malloc_arenas()
    _allow_open_files()
    Service(open_recorder, started).run()
    return EXIT_OK


def tell_of_another(where: Places, directory: str) -> None:
    """Say where views do not read the daemon that has just started, because one for the machine goes before it."""
    if live_dirs(where)[:1] == [directory]:
        return
    from gpumon.cli.daemon_lookup import read_instead

    found = read_instead(where, directory)
    if found is not None:
        say(
            f"gpumon: views read the daemon in {found.directory} (pid {found.pid}), not this one: "
            "stop this one, or give it and its views a --dir of their own"
        )


def _allow_open_files() -> None:
    """Raise the soft limit to the hard one: each training's board is an open file, and shells allow 1024."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _detach(where: Places, arguments: argparse.Namespace) -> int:
    """Fork twice, and wait until the daemon has its first frame or its first problem."""
    told, tell = os.pipe()
    child = os.fork()
    if child:
        os.close(tell)
        os.waitpid(child, 0)
        if not select.select([told], [], [], _PATIENCE)[0]:
            say(
                "gpumon: no sample yet: the driver is slow to answer, or this machine is busy. The daemon keeps "
                "waiting, even if you interrupt this command"
            )
        with os.fdopen(told, encoding="utf-8", errors="surrogateescape") as answer:
            verdict = answer.read()
        if verdict[:1] != _RUNS:
            raise GpumonError(verdict or "the daemon exited before its first sample")
        print(verdict[1:])
        return EXIT_OK
    os.close(told)
    os.setsid()
    if os.fork():
        os._exit(0)
    os.chdir("/")
    _serve_detached(where, arguments, tell)
    os._exit(0)


def _serve_detached(where: Places, arguments: argparse.Namespace, pipe: int) -> None:
    def tell(text: str, directory: str) -> None:
        _close_standard_streams(directory)  # before it is said that all is well
        with suppress(BrokenPipeError):  # nobody waits any more
            os.write(pipe, _bytes(_RUNS + text))
        os.close(pipe)

    try:
        _serve(where, arguments, tell)
    except GpumonError as error:
        _answer(pipe, str(error))
    except Exception as error:
        _answer(pipe, f"the daemon failed: {type(error).__name__}: {error}")
        raise


def _answer(pipe: int, text: str) -> None:
    try:
        os.write(pipe, _bytes(text))
    except OSError:
        print(text, file=sys.stderr, flush=True)  # the pipe is closed once it runs: this is the log


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")  # a path may be of any bytes


def _close_standard_streams(directory: str) -> None:
    """Input from nowhere; output and errors into a small log beside the ring."""
    nothing = os.open(os.devnull, os.O_RDONLY)
    try:
        log = os.open(
            f"{directory}/{LOG}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600
        )
    except OSError as error:
        raise GpumonError(f"cannot write {directory}/{LOG}: {error.strerror}") from error
    os.dup2(nothing, 0)
    os.dup2(log, 1)
    os.dup2(log, 2)
    for fd in (nothing, log):
        os.close(fd)
