"""Run the daemon as a systemd service, from boot on.

As root, the service is for the whole machine. As another user, it is for that user's own trainings, and runs while the
user is logged in, or always after 'loginctl enable-linger'.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import gpumon
from gpumon.common.errors import EXIT_FAILED, EXIT_OK, GpumonError, quoted
from gpumon.common.program import archive

UNIT = "gpumon.service"
_BOOTED = "/run/systemd/system"
"""Directory that exists only if the machine was booted with systemd, see sd_booted(3)."""
_MARKER = "# Written by 'gpumon service install'. Change it with 'systemctl edit', not here."
_TIMEOUT = 60.0
"""Maximum seconds for one call of systemctl."""
_SERVICE = """\
[Unit]
Description=gpumon: samples the GPUs for all views on this machine
After=nvidia-persistenced.service

[Service]
Type=exec
ExecStart={command} daemon
# The daemon ends within 3 s of SIGTERM, even if a driver call hangs. On an overloaded machine, it takes longer.
TimeoutStopSec=10
{directories}Restart=on-failure
Nice=5
NoNewPrivileges=yes
{protection}
[Install]
WantedBy={target}
"""
_DIRECTORIES = """\
RuntimeDirectory=gpumon
RuntimeDirectoryMode=0755
# The ledger of all runs, which `gpumon runs` of every user reads.
StateDirectory=gpumon
StateDirectoryMode=0755
# Keep the boards of running trainings and the ring across a restart of the daemon.
RuntimeDirectoryPreserve=yes
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", choices=("install", "uninstall", "status"), help="what to do with the service")
    parser.add_argument(
        "--print", dest="print_only", action="store_true", help="print the unit file and commands, and change nothing"
    )


def run(arguments: argparse.Namespace) -> int:
    systemd = Systemd.of_user(os.getuid(), os.environ)
    command = f"{sys.executable} {archive() or '-m gpumon'}"
    if arguments.action == "install":
        return _install(systemd, command, print_only=arguments.print_only)
    if arguments.action == "uninstall":
        return _uninstall(systemd, print_only=arguments.print_only)
    return _status(systemd)


@dataclass(frozen=True, slots=True)
class Systemd:
    """The service manager of the machine, or of one user."""

    is_system: bool
    """True for the machine's service manager, which only root can change."""
    unit: Path
    """Path of the service's unit file."""
    is_running: Callable[[], bool] = lambda: os.path.isdir(_BOOTED) and shutil.which("systemctl") is not None

    @classmethod
    def of_user(cls, uid: int, env: Mapping[str, str]) -> Systemd:
        """Return the machine's service manager for root, and the user's own service manager for other users."""
        if uid == 0:
            return cls(True, Path("/etc/systemd/system") / UNIT)
        home = env.get("XDG_CONFIG_HOME") or os.path.join(env.get("HOME") or os.path.expanduser("~"), ".config")
        return cls(False, Path(home) / "systemd" / "user" / UNIT)

    def command(self, *words: str) -> list[str]:
        """Return the words of a systemctl command."""
        return ["systemctl", *(() if self.is_system else ("--user",)), *words]

    def call(self, *words: str) -> str:
        """Run systemctl and return its output. Raises GpumonError with the reason if it fails."""
        command = self.command(*words)
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise GpumonError(f"cannot run '{' '.join(command)}': {error}") from error
        if done.returncode:
            reason = " ".join(done.stderr.split()) or f"exit code {done.returncode}"
            raise GpumonError(f"'{' '.join(command)}' failed: {reason}")
        return done.stdout

    def require_running(self) -> None:
        """Raise GpumonError if the machine was not booted with systemd. Most containers are not."""
        if not self.is_running():
            raise GpumonError(
                "systemd does not run this machine: start 'gpumon daemon' with its service manager, or by hand with "
                "'gpumon daemon --detach'"
            )

    def has_unit(self) -> bool:
        """Return True if the unit file exists and was written by `gpumon service install`.

        Raises GpumonError if another program or person wrote it.
        """
        try:
            text = self.unit.read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            return False
        except OSError as error:
            raise GpumonError(f"cannot read {self.unit}: {error.strerror}") from error
        if _MARKER not in text:
            raise GpumonError(f"{self.unit} was not written by 'gpumon service install': move it away first")
        return True


def unit_text(command: str, *, is_system: bool) -> str:
    """Return the unit file of a daemon. `command`: the command line of gpumon, with an absolute path."""
    return _SERVICE.format(
        command=command,
        directories=_DIRECTORIES if is_system else "",
        protection="ProtectSystem=strict\n" if is_system else "",
        target="multi-user.target" if is_system else "default.target",
    )


def _install(systemd: Systemd, command: str, *, print_only: bool) -> int:
    text = f"{_MARKER}\n{unit_text(command, is_system=systemd.is_system)}"
    calls = (("daemon-reload",), ("enable", UNIT), ("restart", UNIT))
    if print_only:
        print(f"# {systemd.unit}\n{text}", end="")
        _print_commands(systemd, calls)
        return EXIT_OK
    systemd.require_running()
    if systemd.is_system and (path := next(_changeable_by_others(_program_files()), None)) is not None:
        raise GpumonError(
            f"users other than root can change {path}, which the service would run as root: install gpumon for root, "
            "for example into /opt/gpumon"
        )
    systemd.has_unit()
    _write(systemd.unit, text)
    for words in calls:
        systemd.call(*words)
    print(f"gpumon service: running ({systemd.unit})")
    if not systemd.is_system:
        print("It stops when you log out, unless you run 'loginctl enable-linger' once.")
    return EXIT_OK


def _uninstall(systemd: Systemd, *, print_only: bool) -> int:
    if print_only:
        _print_commands(systemd, (("disable", "--now", UNIT),))
        print(f"rm {quoted(str(systemd.unit))}")
        _print_commands(systemd, (("daemon-reload",),))
        return EXIT_OK
    if not systemd.has_unit():
        raise GpumonError(f"the service is not installed: there is no {systemd.unit}")
    systemd.require_running()
    systemd.call("disable", "--now", UNIT)
    systemd.unit.unlink(missing_ok=True)
    systemd.call("daemon-reload")
    print("gpumon service: stopped and removed. Recorded runs and history remain: see 'gpumon runs'.")
    return EXIT_OK


def _status(systemd: Systemd) -> int:
    """Print whether the service is installed and runs. Return 0 if it runs, else 1."""
    if not systemd.has_unit():
        print(f"gpumon service: not installed (no {systemd.unit})")
        return EXIT_FAILED
    systemd.require_running()
    output = systemd.call("show", UNIT, "--property=ActiveState,SubState,UnitFileState,MainPID,NRestarts")
    facts = dict(line.partition("=")[::2] for line in output.splitlines())
    state, is_active = facts.get("ActiveState", "unknown"), facts.get("ActiveState") == "active"
    details = [f"{facts.get('SubState', 'unknown')}", f"{facts.get('UnitFileState', 'unknown')} at boot"]
    if is_active:
        details.append(f"pid {facts.get('MainPID', 'unknown')}")
    if facts.get("NRestarts", "0") != "0":
        details.append(f"restarted {facts['NRestarts']} times")
    print(f"gpumon service: {state} ({', '.join(details)}; {systemd.unit})")
    if not is_active:
        journal = "journalctl" if systemd.is_system else "journalctl --user"
        print(f"See its messages with '{journal} -u {UNIT}'.")
    return EXIT_OK if is_active else EXIT_FAILED


def _print_commands(systemd: Systemd, calls: Sequence[Sequence[str]]) -> None:
    for words in calls:
        print(" ".join(systemd.command(*words)))


def _write(path: Path, text: str) -> None:
    """Replace a file atomically. Raises GpumonError."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_text(text, encoding="utf-8")
        temporary.chmod(0o644)
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise GpumonError(f"cannot write {path}: {error.strerror or error}") from error


def _program_files() -> list[Path]:
    """Return the files that start the daemon: the interpreter, and gpumon's own package or archive."""
    return [Path(sys.executable), Path(archive() or gpumon.__file__)]


def _changeable_by_others(files: Sequence[Path]) -> Iterator[Path]:
    """Yield each file or parent directory that a user other than root may change.

    For a link, the target is checked, too.
    """
    paths = {path for file in files for name in (file.absolute(), file.resolve()) for path in (name, *name.parents)}
    for path in sorted(paths):
        status = path.stat()
        is_sticky = path.is_dir() and status.st_mode & 0o1000
        if status.st_uid != 0 or (status.st_mode & 0o022 and not is_sticky):
            yield path
