"""The checks of `gpumon doctor`: GPUs (read from the daemon, or sampled), packages, daemon and files."""

from __future__ import annotations

import os
import platform
import sqlite3
import stat
import sys
import time
from argparse import Namespace
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import metadata
from types import MappingProxyType

from gpumon import __version__
from gpumon.analysis.gpu_status import GpuStatus, gpu_statuses
from gpumon.callbacks.frameworks import OLDEST, is_too_old
from gpumon.cli.daemon_lookup import RunningDaemon, find_daemon
from gpumon.cli.daemon_stop import unit_of
from gpumon.cli.options import DEFAULT_SOURCE
from gpumon.cli.sampling import sample_once
from gpumon.cli.streams import print_message
from gpumon.common.check_result import Check, Condition
from gpumon.common.errors import GpumonError, pip, quoted
from gpumon.common.paths import (
    LEDGER,
    LOG,
    RING,
    Places,
    check_private_dir,
    history_beside,
    history_paths,
    ledger_path,
    make_live_dir,
    nearest_existing,
    tag_dir_for_client,
)
from gpumon.common.procfs import read_stat
from gpumon.diagnosis.context import GpuContext, diagnose
from gpumon.diagnosis.faults import FAULT_RULES, MAX_XID, unavailable_remedy
from gpumon.diagnosis.finding import Severity
from gpumon.diagnosis.gpu import answers_with_errors
from gpumon.live import NO_DAEMON, Live, follow
from gpumon.model.events import XID
from gpumon.model.frame import Frame, Sample
from gpumon.model.metrics import PROCESSES, Availability
from gpumon.model.origin import Capability, Driver, Origin
from gpumon.model.remedies import clause
from gpumon.model.units import bytes_binary, counted
from gpumon.model.xids import Xid, worse, xid_of
from gpumon.storage.events.query import EventFilter, read_events
from gpumon.storage.ledger.change import user_name
from gpumon.storage.sqlite.read import describe_error, open_to_read

GPUS = "GPUs"
_ANSWERS = (Availability.OK, Availability.ASLEEP)
"""Conditions of a GPU that are no fault."""
_DRIVER_TIMEOUT = 20.0
"""Seconds to wait for the driver. Without persistence mode, the driver may need some seconds to start each GPU."""
_SLOW_REMEDY = (
    "check 'dmesg' for a driver that hangs; if GPUs are slow to start, 'sudo nvidia-smi -pm 1' keeps all GPUs of this "
    "machine started"
)


@dataclass(frozen=True, slots=True)
class GpuChecks:
    """Checks of the GPUs that the driver shows."""

    checks: Sequence[Check]
    readable: int = 0
    """Number of GPUs if at least one of them can be read, else 0."""


def check_gpus(places: Places, arguments: Namespace) -> GpuChecks:
    """Check the GPUs of this machine."""
    live, reader = _local_daemon(places), "the daemon"
    if live is None:
        reader, arguments.source = "this command", DEFAULT_SOURCE
        try:
            live = sample_once(places, arguments, _DRIVER_TIMEOUT, until_all_answer=True, on_slow=_report_slow)
        except GpumonError as error:
            return GpuChecks([_no_gpu(str(error))])
        if live is None:
            text = f"the driver did not answer within {_DRIVER_TIMEOUT:g} s"
            return GpuChecks([Check(GPUS, Condition.FAULT, text, _SLOW_REMEDY)])
    frame = live.latest()
    if frame is None:
        return GpuChecks([Check(GPUS, Condition.FAULT, live.state().text)])
    failing = [sample.device.uuid for sample in frame.samples if sample.condition not in _ANSWERS]
    return check_frame(frame, live.origin(), live.driver(), reader, logged_xids(places, failing))


def logged_xids(places: Places, uuids: Sequence[str]) -> dict[str, int]:
    """Return the code of the worst logged XID error by GPU, since the machine started and the GPU last came back."""
    booted = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
    codes: dict[str, int] = {}
    for uuid in uuids:
        events = []
        for path in history_paths(places):
            with suppress(GpumonError):  # another check reports a file that cannot be read
                events += read_events(path, booted, wanted=EventFilter((XID, "gpu_back"), uuid))
        for event in sorted(events, key=lambda event: event.time_ns):
            code = event.details.get("code") if event.kind.name == XID else 0
            codes[uuid] = worse(code, codes.get(uuid, 0)) if isinstance(code, int) and code > 0 else 0
    return codes


def check_frame(
    frame: Frame, origin: Origin, driver: Driver, reader: str, xids: Mapping[str, int] = MappingProxyType({})
) -> GpuChecks:
    """Return the checks of the GPUs in a frame.

    `reader`: what sampled the frame, as text for messages: "the daemon" or "this command". `xids`: code of the worst
    logged XID error of GPUs that cannot be read, by UUID.
    """
    samples = [sample for sample in frame.samples if not sample.device.is_instance]
    answering = [sample for sample in samples if sample.state is Availability.OK]
    asleep = [sample.device.label for sample in samples if sample.state is Availability.ASLEEP]
    if not answering and not asleep:
        reasons = ", ".join(sorted({sample.state.reason for sample in samples})) or "none was found"
        remedy = _remedy(samples[0]) if samples else "check 'dmesg' for driver errors"
        first = _no_gpu(origin.problem) if origin.problem else Check(GPUS, Condition.FAULT, reasons, remedy)
        explained = [
            sample for sample in samples if sample.state is Availability.RESET_REQUIRED or _fault(sample, xids)
        ]
        return GpuChecks([first, *(_unreadable_gpu(sample, xids) for sample in explained)])
    checks: list[Check] = []
    if answering:
        checks.append(_readable(answering, samples, driver, reader))
    if asleep:
        text = f"GPU {', '.join(asleep)}: powered down, so not queried"
        checks.append(Check("asleep" if answering else GPUS, Condition.NOTE, text))
    for status in gpu_statuses(frame, []):
        if status.sample.device.is_instance:
            continue
        if status.sample.condition in _ANSWERS:
            checks += _faults(status, frame.time)
        else:
            checks.append(_unreadable_gpu(status.sample, xids))
    checks += _denied(answering)
    if origin.notice:
        checks.append(Check("processes", Condition.WARNING, origin.notice))
    return GpuChecks(checks, len(samples) if answering else 0)


def _report_slow() -> None:
    print_message(f"gpumon: the driver is slow to answer: waiting up to {_DRIVER_TIMEOUT:g} s")


def _local_daemon(places: Places) -> Live | None:
    """Return the ring of a daemon that is sampling this machine; None if there is none."""
    live = follow(places)
    if live.state().live and Capability.LIVE in live.origin().capabilities:
        return live
    return None


def _readable(answering: Sequence[Sample], samples: Sequence[Sample], driver: Driver, reader: str) -> Check:
    versions = ", ".join(filter(None, (f"driver {driver.version}" if driver.version else "", driver.runtime)))
    with_versions = f" with {versions}" if versions else ""
    if len(answering) < len(samples):
        text = f"{reader} reads {len(answering)} of {counted(len(samples), 'GPU')}{with_versions}"
        return Check(GPUS, Condition.NOTE, text)  # a separate check reports each GPU that cannot be read
    counts = Counter(sample.device.name for sample in samples)
    models = ", ".join(f"{number} × {name}" for name, number in counts.items())
    return Check(GPUS, Condition.OK, f"{reader} reads {models}{with_versions}")


def _no_gpu(problem: str) -> Check:
    """Return the check that reports that no GPU can be read.

    `problem`: one line with the reason and, after a colon, a remedy if there is one.
    """
    text, _, remedy = problem.partition(": ")
    return Check(GPUS, Condition.FAULT, text, remedy)


def _fault(sample: Sample, xids: Mapping[str, int]) -> Xid | None:
    """Return the hardware fault that the driver reported of a GPU, as an XID error. None if it reported none."""
    code = sample.value("gpu.xid")
    known = int(code) if 0 < code < MAX_XID else xids.get(sample.device.uuid, 0)
    return xid_of(known) if known else None


def _unreadable_gpu(sample: Sample, xids: Mapping[str, int]) -> Check:
    name, text = f"GPU {sample.device.label}", sample.condition.reason
    fault = _fault(sample, xids)
    return Check(name, Condition.WARNING, f"{text}, after {fault.text}" if fault else text, _remedy(sample, fault))


def _faults(status: GpuStatus, now: float) -> Iterator[Check]:
    """Yield checks for the critical hardware faults of a GPU that answers, with the remedies of `gpumon status`."""
    for finding in diagnose((answers_with_errors, *FAULT_RULES), [GpuContext(status, now)]):
        if finding.severity is Severity.CRITICAL:
            yield Check(finding.subject.title, Condition.WARNING, finding.summary, clause(finding.action))


def _remedy(sample: Sample, fault: Xid | None = None) -> str:
    """Return what to do about a GPU that cannot be read."""
    action = "Check 'dmesg' for driver errors."
    if sample.condition is Availability.LOST:
        action = ""
    elif sample.state is Availability.NO_PERMISSION:
        action = "Check the GPU's device file, and which devices this container or job may use."
    return clause(unavailable_remedy(sample.device, sample.condition, fault, action))


def _denied(samples: Sequence[Sample]) -> Iterator[Check]:
    """Yield checks for the data that the driver denies this user. Data that a GPU does not support is not reported."""
    denied = Counter(
        name for sample in samples for name, why in sample.device.missing.items() if why is Availability.NO_PERMISSION
    )
    if denied.pop(PROCESSES, 0):
        yield Check("processes", Condition.WARNING, "the driver denies this user the lists of processes")
    if denied:
        names = ", ".join(name.removeprefix("gpu.") for name in denied)
        yield Check("counters", Condition.NOTE, f"the driver denies this user {names}", "root may read them")


_FRAMEWORKS = ("torch", "tensorflow", "jax", "pytorch-ignite", "scikit-learn")
"""Distributions to report, in addition to those with a minimum version for their callback."""
_BINDINGS, _OTHER_BINDINGS = "nvidia-ml-py", "pynvml"
_OLD_PYNVML = ("11", "8")
"""Version prefixes of the package pynvml that contain a module of their own; later ones use nvidia-ml-py's."""
_CPU_BUILD, _ROCM_BUILD = "+cpu", "+rocm"
"""Parts of the version of a torch that was built without CUDA."""


def installed_version(name: str) -> str:
    """Return the version of a distribution; empty if it is not installed."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""


def package_checks(
    has_gpu: bool, version_of: Callable[[str], str] = installed_version, encoding: str = "utf-8"
) -> list[Check]:
    """Check the installed packages that gpumon works with.

    `version_of` returns the version of a distribution, empty for none; `encoding` is the encoding of the output.
    """
    python = Check("Python", Condition.OK, f"{platform.python_version()} in {sys.prefix}")
    return [python, *_terminal(encoding), *_bindings(version_of), *_frameworks(version_of, has_gpu)]


def _terminal(encoding: str) -> Iterator[Check]:
    if "utf" not in encoding.lower():
        text = f"the output encoding is {encoding or 'unknown'}: views use plain characters"
        yield Check("terminal", Condition.NOTE, text, "'export LANG=C.UTF-8' if the terminal supports UTF-8")


def _bindings(version_of: Callable[[str], str]) -> Iterator[Check]:
    version, other = version_of(_BINDINGS), version_of(_OTHER_BINDINGS)
    if other.startswith(_OLD_PYNVML):
        text = f"the package {_OTHER_BINDINGS} {other} contains a module of the same name"
        remedy = (
            f"'{pip(f'uninstall {_OTHER_BINDINGS}')}', then '{pip(f'install --force-reinstall {_BINDINGS}')}', in this "
            "environment only"
        )
        yield Check(_BINDINGS, Condition.WARNING, text, remedy)
    else:
        yield Check(_BINDINGS, Condition.OK, version or "unknown version")


def _frameworks(version_of: Callable[[str], str], has_gpu: bool) -> Iterator[Check]:
    names = (*_FRAMEWORKS, *(name.replace("_", "-") for name in OLDEST))
    versions = {name: version for name in names if (version := version_of(name))}
    text = ", ".join(f"{name} {version}" for name, version in versions.items())
    yield Check("frameworks", Condition.OK if text else Condition.NOTE, text or "none in this environment")
    for name, version in versions.items():
        module = name.replace("-", "_")
        if is_too_old(module, version):
            text = f"{version} is too old for gpumon's callback"
            yield Check(name, Condition.WARNING, text, f"use {OLDEST[module]}.0 or newer, or gpumon.run() in any loop")
    torch = versions.get("torch", "")
    if torch.endswith(_CPU_BUILD) or (has_gpu and _ROCM_BUILD in torch):
        remedy = "install a build with CUDA to train on NVIDIA GPUs" if has_gpu else ""
        text = f"{torch} uses no GPU" if torch.endswith(_CPU_BUILD) else f"{torch} uses only AMD GPUs"
        yield Check("torch", Condition.WARNING if has_gpu else Condition.NOTE, text, remedy)


_RING_SIZE = 16 << 20
"""Bytes of the ring on a machine with eight GPUs."""
_FILE_TIMEOUT = 1.0
"""Seconds to wait for a file that another program has locked, and maximum seconds for checking a file."""
_INSTRUCTIONS_PER_CHECK = 10_000
"""SQLite virtual machine instructions between two checks of the time."""
_STOPPED = "T"


def running_daemon(places: Places) -> tuple[RunningDaemon | None, str]:
    """Return the daemon that commands of this user read and an empty string, or None and the reason."""
    try:
        return find_daemon(places), ""
    except GpumonError as error:
        return None, str(error)


def daemon_checks(places: Places, daemon: RunningDaemon | None, no_daemon_reason: str) -> Iterator[Check]:
    """Check the daemon that commands of this user read."""
    name = "daemon"
    if daemon is None:
        text, _, remedy = no_daemon_reason.partition(": ")
        is_absent = no_daemon_reason.startswith(NO_DAEMON)
        yield Check(name, Condition.NOTE if is_absent else Condition.WARNING, text, remedy)
        return
    yield _daemon_check(name, daemon, places.uid)
    version, origin = daemon.live.version(), daemon.live.origin()
    if daemon.has_sampled() and version != __version__:
        text = f"the daemon is version {version or 'unknown'}, but this command is version {__version__}"
        yield Check("its version", Condition.WARNING, text, _restart_remedy(daemon, places.uid))
    if daemon.has_sampled() and Capability.LIVE not in origin.capabilities:
        text = f"the daemon plays {origin.label or origin.source}: this machine is not sampled"
        yield Check("its source", Condition.WARNING, text)
    for part, problem in zip(("its ledger", "its history"), daemon.live.not_kept(), strict=True):
        if problem:
            yield Check(part, Condition.FAULT, problem)


def file_checks(places: Places, history_size: int, daemon: RunningDaemon | None) -> Iterator[Check]:
    """Check live data, tags and persistent data; `history_size`: maximum bytes of history."""
    if daemon is not None:
        yield from _space("live data", daemon.directory, 0, is_ours=False)
    else:
        try:
            directory = make_live_dir(places, check_private_dir)
            needed = 0 if os.path.exists(f"{directory}/{RING}") else _RING_SIZE
            yield from _space("live data", directory, needed, is_ours=True)
        except GpumonError as error:
            text, _, remedy = str(error).rpartition(": ")
            yield Check("live data", Condition.FAULT, text, remedy)
    yield _tags_check(places)
    ledger = ledger_path(places)
    machine = f"{places.machine_state}/{LEDGER}" if places.machine_state else ""
    for path in filter(None, dict.fromkeys((ledger, machine))):
        for name, file in (("ledger", path), ("history", history_beside(path))):
            if os.path.lexists(file) or path == ledger:
                yield _file_check(name, file)
    is_ours = daemon is None or daemon.holder.uid == places.uid
    if ledger:
        needed = history_size - _size(history_beside(ledger))
        yield from _space("kept data", os.path.dirname(ledger), needed, is_ours)
    elif is_ours:
        text = "no directory persists across restarts, because neither HOME nor XDG_STATE_HOME is set"
        yield Check("kept data", Condition.WARNING, text, "set HOME, or pass --state-dir")


def _daemon_check(name: str, daemon: RunningDaemon, uid: int) -> Check:
    who = f"pid {daemon.pid or '?'} of {user_name(daemon.holder.uid)}, in {daemon.directory}"
    if not daemon.has_sampled():
        return Check(name, Condition.NOTE, f"{who}, is starting")
    state = daemon.live.state()
    if state.live or daemon.live.origin().ended:
        return Check(name, Condition.OK, who)
    stat = read_stat(daemon.pid) if daemon.is_visible() else None
    if stat is not None and stat.state == _STOPPED:
        return Check(name, Condition.FAULT, f"the daemon ({who}) was suspended", f"'kill -CONT {daemon.pid}'")
    text = f"the daemon ({who}) does not sample: {state.text}"
    remedy = f"{daemon.directory}/{LOG} may say why; {_restart_remedy(daemon, uid)}"
    return Check(name, Condition.FAULT, text, remedy)


def _restart_remedy(daemon: RunningDaemon, uid: int) -> str:
    """Return the command that restarts a daemon, or the user who may restart it."""
    if daemon.holder.uid != uid:
        return f"ask {user_name(daemon.holder.uid)} to restart it"
    unit, manager = unit_of(daemon.pid)
    if unit:
        return f"'{manager} restart {unit}'" if manager else f"restart {unit}, which runs it"
    return f"'gpumon daemon restart --dir {quoted(daemon.directory)}'"


def _tags_check(places: Places) -> Check:
    try:
        directory = tag_dir_for_client(places, check_private_dir)
        return Check("tags", Condition.OK, f"trainings of this user write to {directory}")
    except OSError as error:
        text = f"there is no directory for the tags of this user's trainings ({error.filename}: {error.strerror})"
        return Check("tags", Condition.FAULT, text, "choose another GPUMON_DIR or XDG_RUNTIME_DIR")


def _file_check(name: str, path: str) -> Check:
    try:
        mode = os.lstat(path)
        if not stat.S_ISREG(mode.st_mode):
            return Check(name, Condition.FAULT, f"{path} is not a regular file", "move it away")
        if not mode.st_size:
            return Check(name, Condition.NOTE, f"{path} is empty")
        damage = _damage(path)
    except FileNotFoundError:
        first = "run that a daemon sees" if os.path.basename(path) == LEDGER else "daemon"
        text = f"none yet in {os.path.dirname(path)}: it is created by the first {first}"
        return Check(name, Condition.NOTE, text)
    except (sqlite3.Error, OSError) as error:
        why = error.strerror if isinstance(error, OSError) else describe_error(error, path)
        return Check(name, Condition.WARNING, f"{path} cannot be read: {why}")
    if damage:
        text = f"{path} is damaged: {damage}"
        return Check(name, Condition.WARNING, text, "the next daemon moves it aside and creates a new one")
    return Check(name, Condition.OK, f"{path}, {bytes_binary(mode.st_size)}")


def _damage(path: str) -> str:
    """Return the first damage that is found in a file within a second; empty if none is found.

    Raises sqlite3.Error if the file cannot be read.
    """
    connection, _ = open_to_read(path, timeout=_FILE_TIMEOUT)
    deadline = time.monotonic() + _FILE_TIMEOUT
    connection.set_progress_handler(lambda: time.monotonic() > deadline, _INSTRUCTIONS_PER_CHECK)
    try:
        (result,) = connection.execute("PRAGMA quick_check(1)").fetchone()
        return "" if result == "ok" else str(result)
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode == sqlite3.SQLITE_INTERRUPT:  # too large to check in this time
            return ""
        raise
    finally:
        connection.close()


def _space(name: str, directory: str, needed: int, is_ours: bool) -> Iterator[Check]:
    """Check that a directory has `needed` free bytes and, if `is_ours`, that this user may write to it."""
    existing = nearest_existing(directory)
    try:
        status = os.statvfs(existing)
    except OSError as error:
        yield Check(name, Condition.WARNING, f"{directory}: {error.strerror}")
        return
    free = status.f_bavail * status.f_frsize
    text = f"{bytes_binary(free)} free for {directory}"
    if is_ours and not (os.path.isdir(existing) and os.access(existing, os.W_OK | os.X_OK)):
        remedy = f"make it writable, or pass {'--dir' if name == 'live data' else '--state-dir'}"
        yield Check(
            name, Condition.FAULT, f"this user may not write to {directory}, so nothing is recorded there", remedy
        )
    elif free < needed:
        yield Check(
            name, Condition.WARNING, f"{text}, which may grow by {bytes_binary(needed)}", "free some space there"
        )
    else:
        yield Check(name, Condition.OK, text)


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0
