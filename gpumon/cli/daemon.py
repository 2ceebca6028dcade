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
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from threading import Thread

from gpumon.cli.options import add_daemon, chosen_source, make_playback, refuse_options, resolve_options
from gpumon.cli.streams import print_message
from gpumon.common.errors import EXIT_OK, GpumonError
from gpumon.common.paths import LOG, Places, live_dirs
from gpumon.common.usage_lock import is_in_use

_SHARED = ("action", "dir", "state_dir")
"""Options that the subcommands also have."""
_PATIENCE = 3.0
"""If there is no first sample after this many seconds, a message is printed."""
_CHECK_EVERY = 0.5
"""Seconds between two checks of the file `--until-unlocked`."""
_UNUSED_FOR = 2.0
"""The daemon stops when the file `--until-unlocked` was not locked for this many seconds. A notebook whose kernel is
restarted locks it again."""
_SUCCESS = "+"
"""First character of the message from a detached daemon that has taken its first sample. Any other message is an
error."""


def add_options(parser: argparse.ArgumentParser) -> None:
    add_daemon(parser)


def run(arguments: argparse.Namespace) -> int:
    if arguments.action:
        refuse_options(arguments, f"daemon {arguments.action}", _SHARED, "starting a daemon")
        return _control(arguments)
    places, arguments = resolve_options(arguments)
    if arguments.until_unlocked:
        arguments.until_unlocked = os.path.abspath(arguments.until_unlocked)  # --detach changes the working directory
    if not arguments.detach:
        return _serve(places, arguments, lambda text, _: print(text, flush=True))
    return _detach(places, arguments)


def _control(arguments: argparse.Namespace) -> int:
    flags = arguments.dir, arguments.state_dir
    places, _ = resolve_options(arguments)
    if arguments.action == "status":
        from gpumon.cli.daemon_status import show

        return show(places)
    if arguments.action == "stop":
        from gpumon.cli.daemon_stop import stop

        return stop(places)
    from gpumon.cli.daemon_restart import restart

    return restart(places, *flags)


def _serve(places: Places, arguments: argparse.Namespace, announce: Callable[[str, str], object]) -> int:
    """Sample until a signal arrives.

    `announce`: called after the first sample, with a line of text to print and the directory of live data.
    """
    from gpumon.common.clock import SystemClock
    from gpumon.daemon import service
    from gpumon.daemon.recorder import Recorder
    from gpumon.daemon.service import Service, open_daemon
    from gpumon.storage.history.tiers import HistoryLimits

    def open_recorder() -> Recorder:
        playback = make_playback(arguments)
        limits = HistoryLimits(arguments.history_days, arguments.history_size, arguments.account_days)
        return open_daemon(
            places, chosen_source(arguments), arguments.interval, arguments.speed, SystemClock(), playback=playback,
            limits=limits, gpm=arguments.gpm, idle_interval=arguments.idle_interval, job_dir=arguments.job_dir or "",
        )  # fmt: skip

    def started(recorder: Recorder) -> None:
        sampler = recorder.sampler
        target = f"sampled every {arguments.interval:g} s into {recorder.directory}"
        text = f"gpumon daemon {os.getpid()}: {sampler.devices_text()}; {target}"
        service.tune_garbage_collection()
        warn_of_preferred(places, recorder.directory or "")
        announce(text, recorder.directory or "")
        if arguments.until_unlocked:
            Thread(target=_stop_when_unlocked, args=(arguments.until_unlocked,), daemon=True).start()

    service.limit_malloc_arenas()
    _allow_open_files()
    Service(open_recorder, started).run()
    return EXIT_OK


def _stop_when_unlocked(path: str) -> None:
    """Stop this process once no other process locks the file `path` any more."""
    used_at = time.monotonic()
    while time.monotonic() - used_at < _UNUSED_FOR:
        time.sleep(_CHECK_EVERY)
        try:
            if is_in_use(path):
                used_at = time.monotonic()
        except OSError as error:
            print_message(f"gpumon: cannot check the lock of {path} ({error.strerror or error}): stopping")
            break
    os.kill(os.getpid(), signal.SIGTERM)


def warn_of_preferred(places: Places, directory: str) -> None:
    """Warn if views read another daemon, such as one for the whole machine, instead of this one."""
    if live_dirs(places)[:1] == [directory]:
        return
    from gpumon.cli.daemon_lookup import preferred_daemon

    preferred = preferred_daemon(places, directory)
    if preferred is not None:
        print_message(
            f"gpumon: views read the daemon in {preferred.directory} (pid {preferred.pid}) instead of this daemon: "
            "stop this daemon, or start this daemon and its views with another --dir"
        )


def _allow_open_files() -> None:
    """Raise the soft limit of open files to the hard limit.

    The daemon keeps the board of each training open, and shells set a limit of 1024 files.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _detach(places: Places, arguments: argparse.Namespace) -> int:
    """Start the daemon with two forks, and wait until it reports its first sample or an error."""
    reading, writing = os.pipe()
    child = os.fork()
    if child:
        os.close(writing)
        os.waitpid(child, 0)
        if not select.select([reading], [], [], _PATIENCE)[0]:
            print_message(
                "gpumon: no sample yet: the driver is slow to answer, or this machine is busy. The daemon keeps "
                "waiting, even if you interrupt this command"
            )
        with os.fdopen(reading, encoding="utf-8", errors="surrogateescape") as pipe:
            message = pipe.read()
        if message[:1] != _SUCCESS:
            raise GpumonError(message or "the daemon exited before its first sample")
        print(message[1:])
        return EXIT_OK
    os.close(reading)
    os.setsid()
    if os.fork():
        os._exit(0)
    os.chdir("/")
    _serve_detached(places, arguments, writing)
    os._exit(0)


def _serve_detached(places: Places, arguments: argparse.Namespace, pipe: int) -> None:
    def announce(text: str, directory: str) -> None:
        _redirect_standard_streams(directory)  # may fail, so done before success is reported
        with suppress(BrokenPipeError):  # the command that started the daemon was interrupted
            os.write(pipe, _encode(_SUCCESS + text))
        os.close(pipe)

    try:
        _serve(places, arguments, announce)
    except GpumonError as error:
        _report(pipe, str(error))
    except Exception as error:
        _report(pipe, f"the daemon failed: {type(error).__name__}: {error}")
        raise


def _report(pipe: int, text: str) -> None:
    """Report an error to the command that started the daemon. Once the daemon samples, write it to the log instead."""
    try:
        os.write(pipe, _encode(text))
    except OSError:
        print(text, file=sys.stderr, flush=True)  # the pipe is closed, and stderr is now the log


def _encode(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")  # a path may contain any bytes


def _redirect_standard_streams(directory: str) -> None:
    """Redirect stdin to /dev/null, and stdout and stderr to a small log next to the ring."""
    null = os.open(os.devnull, os.O_RDONLY)
    try:
        log = os.open(
            f"{directory}/{LOG}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600
        )
    except OSError as error:
        raise GpumonError(f"cannot write {directory}/{LOG}: {error.strerror}") from error
    os.dup2(null, 0)
    os.dup2(log, 1)
    os.dup2(log, 2)
    for fd in (null, log):
        os.close(fd)
