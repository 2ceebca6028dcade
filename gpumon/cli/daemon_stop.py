"""Stop the running daemon. Only the process that holds the lock is signaled, never a process that has reused its
pid."""

from __future__ import annotations

import os
import signal
import sys
import time
from contextlib import suppress

from gpumon.cli.daemon_lookup import RunningDaemon, find_daemon
from gpumon.common.errors import EXIT_OK, GpumonError, quoted
from gpumon.common.paths import Places
from gpumon.common.procfs import is_alive, read_stat
from gpumon.ring.lock import Holder, holder_of
from gpumon.storage.ledger.change import user_name

_PATIENCE = 15.0
"""A daemon that still holds its lock this many seconds after SIGTERM counts as not stopping."""
_USUAL = 3.0
"""A daemon stops within this many seconds on a machine that is not busy."""
_POLL_INTERVAL = 0.02
_SUSPENDED = ("T", "t")


def stop(places: Places) -> int:
    """Stop the daemon. Raises GpumonError if no daemon is running, or if it may not be stopped or does not stop."""
    stop_daemon(find_daemon(places))
    return EXIT_OK


def stop_daemon(daemon: RunningDaemon) -> None:
    """Stop a daemon, wait until its lock is free, and print a confirmation. Raises GpumonError."""
    require_stoppable(daemon)
    _terminate(daemon.holder)
    started, is_late = time.monotonic(), False
    while _holds_lock(daemon):
        waited = time.monotonic() - started
        if waited > _PATIENCE:
            raise GpumonError(_not_stopped(daemon))
        if waited > _USUAL and not is_late:
            is_late = True
            print(
                f"gpumon: the daemon (pid {daemon.pid}) has not stopped within {_USUAL:g} s. The "
                f"machine may be busy, or its disk slow. Waiting up to {_PATIENCE:g} s in total",
                file=sys.stderr, flush=True,
            )  # fmt: skip
        time.sleep(_POLL_INTERVAL)
    print(f"daemon {daemon.pid} stopped: {daemon.directory} is free", flush=True)


def require_stoppable(daemon: RunningDaemon) -> None:
    """Raise GpumonError if this command may not stop the daemon.

    It may not stop the daemon of another user or pid namespace, of `gpumon run`, or of a systemd unit.
    """
    who = f"the daemon (pid {daemon.pid}, {daemon.directory})"
    if daemon.holder.uid != os.getuid():
        raise GpumonError(f"{who} belongs to {user_name(daemon.holder.uid)}: only that user can stop it")
    if not daemon.is_visible():
        raise GpumonError(
            f"{who} is not visible from here, possibly because of a container: stop it where it was started"
        )
    if daemon.holder.for_command:
        raise GpumonError(f"{who} is 'gpumon run' and ends with its command: stopping it would end the command, too")
    unit, manager = unit_of(daemon.pid)
    if unit and not manager:
        raise GpumonError(f"{who} is run by {unit}: stop or restart it with systemctl")
    if unit:
        raise GpumonError(f"{who} is run by {unit}: use '{manager} stop {unit}' or '{manager} restart {unit}'")


def read_environment(pid: int) -> dict[str, str]:
    """Return the initial environment of a process of this user; empty if it cannot be read."""
    with suppress(OSError), open(f"/proc/{pid}/environ", "rb") as file:
        pairs = (os.fsdecode(entry).partition("=") for entry in file.read().split(b"\0"))
        return {name: value for name, _, value in pairs if name}
    return {}


def unit_of(pid: int) -> tuple[str, str]:
    """Return the systemd unit whose main process this is, and the systemctl command for the unit.

    Both are empty if it is not the main process of a unit. The command is empty if the name of the unit cannot be read
    or must be quoted. SYSTEMD_EXEC_PID is checked because it names only the main process. INVOCATION_ID alone is not
    sufficient: a shell in a unit, as in the terminal of a desktop, passes it on to its children.
    """
    env = read_environment(pid)
    if "INVOCATION_ID" not in env or env.get("SYSTEMD_EXEC_PID") != str(pid):
        return "", ""
    try:
        with open(f"/proc/{pid}/cgroup", encoding="utf-8", errors="replace") as file:
            path = file.read().strip().rpartition(":")[2]
    except OSError:
        path = ""
    unit = path.rpartition("/")[2]
    if not unit or quoted(unit) != unit:
        return "a systemd unit", ""
    return unit, "systemctl --user" if "/user@" in path else "sudo systemctl"


def _terminate(holder: Holder) -> None:
    """Send SIGTERM, unless the process has already ended."""
    try:
        process = os.pidfd_open(holder.pid)
    except ProcessLookupError:
        return
    except OSError:  # a kernel before 5.3
        process = None
    try:
        if not is_alive(holder.pid, holder.started):  # only now, because the descriptor refers to one process
            return
        if process is None:
            os.kill(holder.pid, signal.SIGTERM)
        else:
            signal.pidfd_send_signal(process, signal.SIGTERM)
    except ProcessLookupError:
        return
    except PermissionError as error:
        raise GpumonError(f"the daemon (pid {holder.pid}) cannot be signaled: {error.strerror}") from error
    finally:
        if process is not None:
            os.close(process)


def _holds_lock(daemon: RunningDaemon) -> bool:
    holder = holder_of(daemon.lock)
    return holder is not None and holder[:2] == daemon.holder[:2]


def _not_stopped(daemon: RunningDaemon) -> str:
    stat = read_stat(daemon.pid)
    text = f"the daemon (pid {daemon.pid}) was sent SIGTERM and has not stopped within {_PATIENCE:g} s"
    if stat is not None and stat.state in _SUSPENDED:
        return f"{text}: it is suspended. To let it stop, run 'kill -CONT {daemon.pid}'"
    status = f"'gpumon daemon status --dir {quoted(daemon.directory)}'"
    return f"{text}: check again with {status}, or end it with 'kill -KILL {daemon.pid}'; training continues"
