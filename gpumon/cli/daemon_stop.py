"""Stopping the daemon that runs: the process that holds the lock, and never another that has its pid by now."""

from __future__ import annotations

import os
import signal
import sys
import time
from contextlib import suppress

from gpumon.cli.daemon_lookup import FoundDaemon, find_daemon
from gpumon.common.errors import EXIT_OK, GpumonError, quoted
from gpumon.common.paths import Places
from gpumon.common.procfs import is_alive, read_stat
from gpumon.ring.lock import Holder, holder_of
from gpumon.storage.ledger.change import user_name

_PATIENCE = 15.0
"""Seconds until a lock that is not free counts as a daemon that does not stop: on a busy machine it needs long."""
_USUAL = 3.0
"""Seconds within which a daemon stops on a machine that has time for it."""
_LOOK_EVERY = 0.02
_SUSPENDED = ("T", "t")


def stop(where: Places) -> int:
    """Stop the daemon and say so. Raises GpumonError where none runs, it may not be stopped, or does not stop."""
    end(find_daemon(where))
    return EXIT_OK


def end(found: FoundDaemon) -> None:
    """Stop this daemon, wait until its lock is free, and say so. Raises GpumonError."""
    refuse(found)
    _terminate(found.holder)
    begun, is_late = time.monotonic(), False
    while _holds(found):
        waited = time.monotonic() - begun
        if waited > _PATIENCE:
            raise GpumonError(_why_not(found))
        if waited > _USUAL and not is_late:
            is_late = True
            print(
                f"gpumon: the daemon (pid {found.pid}) has not stopped within {_USUAL:g} s, as on a busy machine or a "
                f"slow disk: waiting up to {_PATIENCE:g} s",
                file=sys.stderr, flush=True,
            )  # fmt: skip
        time.sleep(_LOOK_EVERY)
    print(f"daemon {found.pid} stopped: {found.directory} is free", flush=True)


def refuse(found: FoundDaemon) -> None:
    """Raise GpumonError for a daemon that is not this user's, is out of sight, or is a service manager's."""
    who = f"the daemon (pid {found.pid}, {found.directory})"
    if found.holder.uid != os.getuid():
        raise GpumonError(f"{who} belongs to {user_name(found.holder.uid)}: only that user can stop it")
    if not found.is_seen():
        raise GpumonError(f"{who} cannot be seen from here, as from a container: stop it where it was started")
    if found.holder.for_command:
        raise GpumonError(f"{who} is 'gpumon run', and ends with its command: to stop it would end that, too")
    unit, manager = unit_of(found.pid)
    if unit and not manager:
        raise GpumonError(f"{who} is run by {unit}: stop or restart it with systemctl")
    if unit:
        raise GpumonError(f"{who} is run by {unit}: use '{manager} stop {unit}' or '{manager} restart {unit}'")


def environment_of(pid: int) -> dict[str, str]:
    """Return the environment that a process of one's own began with; empty where it cannot be read."""
    with suppress(OSError), open(f"/proc/{pid}/environ", "rb") as file:
        pairs = (os.fsdecode(entry).partition("=") for entry in file.read().split(b"\0"))
        return {name: value for name, _, value in pairs if name}
    return {}


def unit_of(pid: int) -> tuple[str, str]:
    """Return the unit of systemd whose main process this is, and the command for it; empty where it is none's.

    Of a unit whose name is unknown or no plain word, the command is empty.

    A shell in a unit, such as a desktop's terminal, hands the id of its unit on, but not the pid of its main process.
    """
    env = environment_of(pid)
    if "INVOCATION_ID" not in env or env.get("SYSTEMD_EXEC_PID") != str(pid):
        return "", ""
    try:
        with open(f"/proc/{pid}/cgroup", encoding="utf-8", errors="replace") as file:
            path = file.read().strip().rpartition(":")[2]
    except OSError:
        path = ""
    unit = path.rpartition("/")[2]
    if not unit or quoted(unit) != unit:
        return "a unit of systemd", ""
    return unit, "systemctl --user" if "/user@" in path else "sudo systemctl"


def _terminate(holder: Holder) -> None:
    """Send SIGTERM; nothing where the process has ended by now."""
    try:
        process = os.pidfd_open(holder.pid)
    except ProcessLookupError:
        return
    except OSError:  # a kernel before 5.3
        process = None
    try:
        if not is_alive(holder.pid, holder.started):  # asked after the descriptor names one process for ever
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


def _holds(found: FoundDaemon) -> bool:
    holder = holder_of(found.lock)
    return holder is not None and holder[:2] == found.holder[:2]


def _why_not(found: FoundDaemon) -> str:
    stat = read_stat(found.pid)
    said = f"the daemon (pid {found.pid}) was sent SIGTERM and has not stopped within {_PATIENCE:g} s"
    if stat is not None and stat.state in _SUSPENDED:
        return f"{said}: it is suspended, and stops once 'kill -CONT {found.pid}' continues it"
    look = f"'gpumon daemon status --dir {quoted(found.directory)}'"
    return f"{said}: look again with {look}, or end it with 'kill -KILL {found.pid}'; trainings go on"
