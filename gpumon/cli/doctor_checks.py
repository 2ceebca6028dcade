"""GPUs, as `gpumon doctor` finds them: read from the daemon that runs, else by samples of its own."""

from __future__ import annotations

import os
import platform
import sqlite3
import stat
import sys
import time
from argparse import Namespace
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from importlib import metadata
from typing import NamedTuple

from gpumon import __version__
from gpumon.callbacks.frameworks import OLDEST, is_too_old
from gpumon.cli.daemon_lookup import FoundDaemon, find_daemon
from gpumon.cli.daemon_stop import unit_of
from gpumon.cli.options import DEFAULT_SOURCE
from gpumon.cli.sampling import sampled
from gpumon.cli.streams import say
from gpumon.common.checkup import Check, Condition
from gpumon.common.errors import GpumonError, pip, quoted
from gpumon.common.paths import (
    LEDGER,
    LOG,
    RING,
    Places,
    check_private_dir,
    history_beside,
    ledger_path,
    make_live_dir,
    nearest_existing,
    tag_dir_for_client,
)
from gpumon.common.procfs import read_stat
from gpumon.live import NO_DAEMON, Live, follow
from gpumon.model.frame import Frame, Sample
from gpumon.model.metrics import PROCESSES, Availability
from gpumon.model.origin import Capability, Driver, Origin
from gpumon.model.remedies import RESTART_MACHINE, reset
from gpumon.model.units import bytes_binary, counted
from gpumon.storage.ledger.change import user_name
from gpumon.storage.sqlite.read import describe_error, open_to_read

GPUS = "GPUs"
_DRIVER_TIMEOUT = 20.0
"""Seconds that the driver has: without persistence mode, it may take some for each GPU to start."""
_LONG = (
    "it may hang ('dmesg' says more), or be slow to start its GPUs: 'sudo nvidia-smi -pm 1' keeps all GPUs of this "
    "machine started"
)


class FoundGpus(NamedTuple):
    """The GPUs that the driver shows."""

    checks: Sequence[Check]
    read: int = 0
    """Number of GPUs that it shows, where it was asked and answers for one at least."""


def find_gpus(where: Places, arguments: Namespace) -> FoundGpus:
    """Look for the GPUs of this machine."""
    live, by = _live(where), "the daemon"
    if live is None:
        by, arguments.source = "this command", DEFAULT_SOURCE
        try:
            live = sampled(where, arguments, _DRIVER_TIMEOUT, until_all_answer=True, slow=_tell_slow)
        except GpumonError as error:
            return FoundGpus([_none(str(error))])
        if live is None:
            text = f"the driver did not answer within {_DRIVER_TIMEOUT:g} s"
            return FoundGpus([Check(GPUS, Condition.FAULT, text, _LONG)])
    frame = live.latest()
    if frame is None:
        return FoundGpus([Check(GPUS, Condition.FAULT, live.state().text)])
    return read_gpus(frame, live.origin(), live.driver(), by)


def read_gpus(frame: Frame, origin: Origin, driver: Driver, by: str) -> FoundGpus:
    """Judge a frame that `by` has sampled."""
    samples = [sample for sample in frame.samples if not sample.device.is_instance]
    answering = [sample for sample in samples if sample.state is Availability.OK]
    asleep = [sample.device.label for sample in samples if sample.state is Availability.ASLEEP]
    if not answering and not asleep:
        reasons = ", ".join(sorted({sample.state.reason for sample in samples})) or "none was found"
        none = _none(origin.problem) if origin.problem else _silent(GPUS, Condition.FAULT, samples, reasons)
        to_reset = [sample for sample in samples if sample.state is Availability.RESET_REQUIRED]
        return FoundGpus([none, *map(_silent_one, to_reset)])
    told: list[Check] = []
    if answering:
        told.append(_read(answering, samples, driver, by))
    if asleep:
        text = f"GPU {', '.join(asleep)}: powered down, and so not asked"
        told.append(Check("asleep" if answering else GPUS, Condition.NOTE, text))
    for sample in samples:
        if sample.state not in (Availability.OK, Availability.ASLEEP):
            told.append(_silent_one(sample))
    told += _refused(answering)
    if origin.notice:
        told.append(Check("processes", Condition.WARNING, origin.notice))
    return FoundGpus(told, len(samples) if answering else 0)


def _tell_slow() -> None:
    say(f"gpumon: the driver takes its time: waiting for at most {_DRIVER_TIMEOUT:g} s")


def _live(where: Places) -> Live | None:
    """The ring of a daemon that samples this machine now; None where there is none."""
    live = follow(where)
    if live.state().live and Capability.LIVE in live.origin().capabilities:
        return live
    return None


def _read(answering: Sequence[Sample], samples: Sequence[Sample], driver: Driver, by: str) -> Check:
    versions = ", ".join(filter(None, (f"driver {driver.version}" if driver.version else "", driver.runtime)))
    with_versions = f" with {versions}" if versions else ""
    if len(answering) < len(samples):
        text = f"{by} reads {len(answering)} of {counted(len(samples), 'GPU')}{with_versions}"
        return Check(GPUS, Condition.NOTE, text)  # those that it does not read say why themselves
    counts = Counter(sample.device.name for sample in samples)
    models = ", ".join(f"{number} × {name}" for name, number in counts.items())
    return Check(GPUS, Condition.OK, f"{by} reads {models}{with_versions}")


def _none(said: str) -> Check:
    """No GPU can be read, and why; `said` in one line, with what to do behind a colon where something can be done."""
    text, _, remedy = said.partition(": ")
    return Check(GPUS, Condition.FAULT, text, remedy)


def _silent_one(sample: Sample) -> Check:
    return _silent(f"GPU {sample.device.label}", Condition.WARNING, [sample], sample.state.reason)


def _silent(name: str, condition: Condition, samples: Sequence[Sample], text: str) -> Check:
    """Why some cannot be read, and what to do about the first of them."""
    remedy = "'dmesg' may say more"
    if samples and samples[0].state is Availability.RESET_REQUIRED:
        remedy = f"{reset(samples[0].device)}; or {RESTART_MACHINE}"
    elif samples and samples[0].state is Availability.NO_PERMISSION:
        remedy = "see its device file, and what this container or job may use"
    return Check(name, condition, text, remedy)


def _refused(samples: Sequence[Sample]) -> Iterator[Check]:
    """Say what the driver refuses this user; what a card does not have is no matter for a doctor."""
    refused = Counter(
        name for sample in samples for name, why in sample.device.missing.items() if why is Availability.NO_PERMISSION
    )
    if refused.pop(PROCESSES, 0):
        yield Check("processes", Condition.WARNING, "the driver refuses this user the lists of processes")
    if refused:
        names = ", ".join(name.removeprefix("gpu.") for name in refused)
        yield Check("counters", Condition.NOTE, f"the driver refuses this user {names}", "root may read them")


_OTHERS = ("torch", "tensorflow", "jax", "pytorch-ignite", "scikit-learn")
"""Distributions beside those whose callback takes no version older than some."""
_BINDINGS, _OTHER_BINDINGS = "nvidia-ml-py", "pynvml"
_OWN_MODULE_BEFORE = ("11", "8")
"""Beginnings of the versions of the package pynvml that bring a module of their own: later ones take nvidia-ml-py's."""
_ONLY_CPU, _ROCM = "+cpu", "+rocm"
"""Part of the version of a torch that was built without CUDA."""


def installed(name: str) -> str:
    """Return the version of a distribution; empty where there is none."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""


def package_checks(has_gpu: bool, version_of: Callable[[str], str] = installed, encoding: str = "utf-8") -> list[Check]:
    """Check the packages beside gpumon.

    `version_of` gives the version of a distribution, empty for none; `encoding` is that of the output.
    """
    python = Check("Python", Condition.OK, f"{platform.python_version()} in {sys.prefix}")
    return [python, *_terminal(encoding), *_bindings(version_of), *_frameworks(version_of, has_gpu)]


def _terminal(encoding: str) -> Iterator[Check]:
    if "utf" not in encoding.lower():
        text = f"the output is {encoding or 'of no known encoding'}: views draw in plain characters"
        yield Check("terminal", Condition.NOTE, text, "'export LANG=C.UTF-8' where the terminal can do more")


def _bindings(version_of: Callable[[str], str]) -> Iterator[Check]:
    version, other = version_of(_BINDINGS), version_of(_OTHER_BINDINGS)
    if other.startswith(_OWN_MODULE_BEFORE):
        text = f"the package {_OTHER_BINDINGS} {other} brings a module of the same name"
        remedy = (
            f"'{pip(f'uninstall {_OTHER_BINDINGS}')}', then '{pip(f'install --force-reinstall {_BINDINGS}')}', in this "
            "environment alone"
        )
        yield Check(_BINDINGS, Condition.WARNING, text, remedy)
    else:
        yield Check(_BINDINGS, Condition.OK, version or "of an unknown version")


def _frameworks(version_of: Callable[[str], str], has_gpu: bool) -> Iterator[Check]:
    names = (*_OTHERS, *(name.replace("_", "-") for name in OLDEST))
    found = {name: version for name in names if (version := version_of(name))}
    told = ", ".join(f"{name} {version}" for name, version in found.items())
    yield Check("frameworks", Condition.OK if told else Condition.NOTE, told or "none in this environment")
    for name, version in found.items():
        module = name.replace("-", "_")
        if is_too_old(module, version):
            text = f"{version} is older than gpumon's callback takes"
            yield Check(name, Condition.WARNING, text, f"{OLDEST[module]}.0 or newer; any loop has gpumon.run()")
    torch = found.get("torch", "")
    if torch.endswith(_ONLY_CPU) or (has_gpu and _ROCM in torch):
        remedy = "a build with CUDA trains on NVIDIA's GPUs" if has_gpu else ""
        text = f"{torch} uses no GPU" if torch.endswith(_ONLY_CPU) else f"{torch} uses AMD's GPUs alone"
        yield Check("torch", Condition.WARNING if has_gpu else Condition.NOTE, text, remedy)


_RING_ROOM = 16 << 20
"""Bytes of the ring of a machine of eight GPUs."""
_FILE_TIMEOUT = 1.0
"""Seconds to wait for a file that another program has locked, and to look through one."""
_LOOK_EVERY = 10_000
"""Steps of SQLite's machine between two looks at the clock."""
_STOPPED = "T"


def found_daemon(where: Places) -> tuple[FoundDaemon | None, str]:
    """The daemon that commands of this user read; else None, and why there is none."""
    try:
        return find_daemon(where), ""
    except GpumonError as error:
        return None, str(error)


def daemon_checks(where: Places, found: FoundDaemon | None, no_gpu_reason: str) -> Iterator[Check]:
    """Check the daemon that commands of this user read."""
    name = "daemon"
    if found is None:
        text, _, remedy = no_gpu_reason.partition(": ")
        none = no_gpu_reason.startswith(NO_DAEMON)
        yield Check(name, Condition.NOTE if none else Condition.WARNING, text, remedy)
        return
    yield _daemon_check(name, found, where.uid)
    version = found.live.version()
    if found.has_sampled() and version != __version__:
        text = f"the daemon is of version {version or 'unknown'}, this command of {__version__}"
        yield Check("its version", Condition.WARNING, text, _again(found, where.uid))
    if found.has_sampled() and Capability.LIVE not in found.live.origin().capabilities:
        text = (
            f"the daemon plays {found.live.origin().label or found.live.origin().source}: nobody samples this machine"
        )
        yield Check("its source", Condition.WARNING, text)
    for kept, problem in zip(("its ledger", "its history"), found.live.not_kept(), strict=True):
        if problem:
            yield Check(kept, Condition.FAULT, problem)


def file_checks(where: Places, history_size: int, daemon: FoundDaemon | None) -> Iterator[Check]:
    """Check live data, tags and what is kept; `history_size`: bytes that history may take."""
    if daemon is not None:
        yield from _room("live data", daemon.directory, 0, is_ours=False)
    else:
        try:
            directory = make_live_dir(where, check_private_dir)
            least = 0 if os.path.exists(f"{directory}/{RING}") else _RING_ROOM
            yield from _room("live data", directory, least, is_ours=True)
        except GpumonError as error:
            text, _, remedy = str(error).rpartition(": ")
            yield Check("live data", Condition.FAULT, text, remedy)
    yield _tags_check(where)
    ledger = ledger_path(where)
    machine = f"{where.machine_state}/{LEDGER}" if where.machine_state else ""
    kept = [path for path in dict.fromkeys((ledger, machine)) if path]
    for path in kept:
        for name, file in (("ledger", path), ("history", history_beside(path))):
            if os.path.lexists(file) or path == ledger:
                yield _file_check(name, file)
    is_ours = daemon is None or daemon.holder.uid == where.uid
    if ledger:
        yield from _room("kept data", os.path.dirname(ledger), history_size - _size(history_beside(ledger)), is_ours)
    elif is_ours:
        text = "there is no place that survives a restart, as neither HOME nor XDG_STATE_HOME is set"
        yield Check("kept data", Condition.WARNING, text, "set HOME, or pass --state-dir")


def _daemon_check(name: str, found: FoundDaemon, uid: int) -> Check:
    who = f"pid {found.pid or '?'} of {user_name(found.holder.uid)}, in {found.directory}"
    if not found.has_sampled():
        return Check(name, Condition.NOTE, f"{who}, is starting")
    state = found.live.state()
    if state.live or found.live.origin().ended:
        return Check(name, Condition.OK, who)
    facts = read_stat(found.pid) if found.is_seen() else None
    if facts is not None and facts.state == _STOPPED:
        return Check(name, Condition.FAULT, f"the daemon ({who}) was suspended", f"'kill -CONT {found.pid}'")
    text = f"the daemon ({who}) does not sample: {state.text}"
    return Check(name, Condition.FAULT, text, f"{found.directory}/{LOG} may say why; {_again(found, uid)}")


def _again(found: FoundDaemon, uid: int) -> str:
    """Words on starting a daemon again, by this user or another."""
    if found.holder.uid != uid:
        return f"{user_name(found.holder.uid)} may restart it"
    unit, manager = unit_of(found.pid)
    if unit:
        return f"'{manager} restart {unit}'" if manager else f"restart {unit}, which runs it"
    return f"'gpumon daemon restart --dir {quoted(found.directory)}'"


def _tags_check(where: Places) -> Check:
    try:
        directory = tag_dir_for_client(where, check_private_dir)
        return Check("tags", Condition.OK, f"trainings of this user write to {directory}")
    except OSError as error:
        text = f"trainings of this user find no directory for their tags ({error.filename}: {error.strerror})"
        return Check("tags", Condition.FAULT, text, "choose another GPUMON_DIR or XDG_RUNTIME_DIR")


def _file_check(name: str, path: str) -> Check:
    try:
        mode = os.lstat(path)
        if not stat.S_ISREG(mode.st_mode):
            return Check(name, Condition.FAULT, f"{path} is no regular file", "move it away")
        if not mode.st_size:
            return Check(name, Condition.NOTE, f"{path} is empty")
        damage = _damage(path)
    except FileNotFoundError:
        first = "run that a daemon sees" if os.path.basename(path) == LEDGER else "daemon"
        text = f"none yet in {os.path.dirname(path)}: it begins with the first {first}"
        return Check(name, Condition.NOTE, text)
    except (sqlite3.Error, OSError) as error:
        why = error.strerror if isinstance(error, OSError) else describe_error(error, path)
        return Check(name, Condition.WARNING, f"{path} cannot be read: {why}")
    if damage:
        text = f"{path} is damaged: {damage}"
        return Check(name, Condition.WARNING, text, "the next daemon puts it aside, and begins another")
    return Check(name, Condition.OK, f"{path}, {bytes_binary(mode.st_size)}")


def _damage(path: str) -> str:
    """The first damage that is found in a second; empty for none. Raises sqlite3.Error where it cannot be read."""
    connection, _ = open_to_read(path, timeout=_FILE_TIMEOUT)
    until = time.monotonic() + _FILE_TIMEOUT
    connection.set_progress_handler(lambda: time.monotonic() > until, _LOOK_EVERY)
    try:
        (found,) = connection.execute("PRAGMA quick_check(1)").fetchone()
        return "" if found == "ok" else str(found)
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode == sqlite3.SQLITE_INTERRUPT:  # too large to be looked through
            return ""
        raise
    finally:
        connection.close()


def _room(name: str, directory: str, least: int, is_ours: bool) -> Iterator[Check]:
    """Whether a daemon of this user may write there and has room; only the room where it `is_ours` not to write."""
    existing = nearest_existing(directory)
    try:
        found = os.statvfs(existing)
    except OSError as error:
        yield Check(name, Condition.WARNING, f"{directory}: {error.strerror}")
        return
    free = found.f_bavail * found.f_frsize
    text = f"{bytes_binary(free)} free for {directory}"
    if is_ours and not (os.path.isdir(existing) and os.access(existing, os.W_OK | os.X_OK)):
        remedy = f"make it writable, or pass {'--dir' if name == 'live data' else '--state-dir'}"
        yield Check(name, Condition.FAULT, f"this user may not write to {directory}, so nothing is kept", remedy)
    elif free < least:
        yield Check(name, Condition.WARNING, f"{text}, which may take {bytes_binary(least)} more", "make room there")
    else:
        yield Check(name, Condition.OK, text)


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0
