"""CPU, memory, disks and network of this machine, from /proc."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable

from gpumon.common.clock import Clock
from gpumon.common.numbers import NAN
from gpumon.common.text import clean
from gpumon.model.metrics import HOST_METRICS
from gpumon.sources.processes import ProcessTable, detect_sandbox

_SECTOR = 512
"""Bytes per sector in /proc/diskstats. It is the same for every disk, see Documentation/admin-guide/iostats.rst."""
_NAMES = tuple(metric.name for metric in HOST_METRICS)
_UNKNOWN_BY_FILE = {
    name: dict.fromkeys((metric for metric in _NAMES if metric.startswith(prefixes)), NAN)
    for name, prefixes in {
        "meminfo": ("host.memory_", "host.swap_"), "diskstats": ("host.disk_",), "net/dev": ("host.network_",),
        "loadavg": ("host.load",),
    }.items()
}  # fmt: skip
"""By procfs file: NaN for each of its metrics."""
_MOST = 1 << 16
"""Maximum bytes of one read. On most machines, all these files are smaller."""


class HostSource:
    """CPU, memory, swap, load, disks and network of this machine.

    Counters start at boot. CPU utilization covers the time since the previous read, so it may be missing in the first
    read.
    """

    def __init__(
        self,
        clock: Clock,
        proc: str = "/proc",
        hostname: Callable[[], str] = socket.gethostname,
    ) -> None:
        self.hostname = clean(hostname(), 64)
        self.sandbox = detect_sandbox(proc)
        self.processes = ProcessTable(clock, proc, self.sandbox.has_own_pids)
        self._proc = proc
        self._files: dict[str, int] = {}
        self._whole_disks = _whole_disks("/sys/block" if proc == "/proc" else f"{proc}/sys_block")
        self._parsers: dict[str, Callable[[bytes], dict[str, float]]] = {
            "meminfo": _memory,
            "diskstats": self._disks,
            "net/dev": _network,
            "loadavg": _load,
        }
        self._values = dict.fromkeys(_NAMES, NAN)
        self._cpu = self._cpu_times()
        self._utilization = NAN

    def read(self) -> list[float]:
        """Return the values in the order of `HOST_METRICS`."""
        self.processes.evict()
        values = self._values
        values["host.cpu_utilization"] = self._cpu_utilization()
        for name, parse in self._parsers.items():
            values.update(_UNKNOWN_BY_FILE[name])
            values.update(parse(self._read_file(name)))
        return list(values.values())

    def _cpu_utilization(self) -> float:
        busy, total = self._cpu_times()
        before_busy, before_total = self._cpu
        # With fewer than 10 clock ticks, the share would be too inaccurate, so the last share is kept.
        if total - before_total >= 10:
            self._utilization = min(1.0, max(0.0, (busy - before_busy) / (total - before_total)))
            self._cpu = busy, total
        return self._utilization

    def _cpu_times(self) -> tuple[int, int]:
        # user nice system idle iowait irq softirq steal. Guest time is part of user, see proc(5).
        fields = list(map(int, self._read_file("stat").partition(b"\n")[0].split()[1:9]))
        if len(fields) < 5:
            return 0, 0
        total = sum(fields)
        return total - fields[3] - fields[4], total

    def _disks(self, text: bytes) -> dict[str, float]:
        lines = [line.split(None, 10) for line in text.splitlines()]
        disks = [fields for fields in lines if len(fields) > 9 and fields[2] in self._whole_disks]
        if not disks:
            return {}
        read, written = sum(int(fields[5]) for fields in disks), sum(int(fields[9]) for fields in disks)
        return {"host.disk_read": float(read * _SECTOR), "host.disk_written": float(written * _SECTOR)}

    def close(self) -> None:
        """Close the descriptors of all files that the source reads."""
        self.processes.close()
        while self._files:
            os.close(self._files.popitem()[1])

    def _read_file(self, name: str) -> bytes:
        """Read a procfs file. Return an empty string if this fails.

        The file stays open, because opening it takes as long as reading it.
        """
        try:
            fd = self._files.get(name, -1)
            if fd < 0:
                fd = self._files[name] = os.open(f"{self._proc}/{name}", os.O_RDONLY | os.O_CLOEXEC)
            text = os.pread(fd, _MOST, 0)
            while len(text) % _MOST == 0 and (more := os.pread(fd, _MOST, len(text))):
                text += more
        except OSError:
            return b""
        return text


def _load(text: bytes) -> dict[str, float]:
    fields = text.split(None, 1)
    return {"host.load": float(fields[0])} if fields else {}


def _memory(text: bytes) -> dict[str, float]:
    total, swap = _kib(text, b"MemTotal:"), _kib(text, b"SwapTotal:")
    return {
        "host.memory_total": total,
        "host.memory_used": total - _kib(text, b"MemAvailable:"),
        "host.swap_total": swap,
        "host.swap_used": swap - _kib(text, b"SwapFree:"),
    }


def _kib(text: bytes, key: bytes) -> float:
    """Return the value of a line of /proc/meminfo, converted from KiB to bytes; NaN if the line is missing."""
    at = text.find(key) + len(key)
    return float(text[at : text.find(b"kB", at)]) * 1024 if at >= len(key) else NAN


def _network(text: bytes) -> dict[str, float]:
    received = sent = 0
    lines = text.splitlines()[2:]
    for line in lines:
        name, _, rest = line.partition(b":")
        fields = rest.split(None, 9)
        if name.strip() != b"lo" and len(fields) > 8:
            received += int(fields[0])
            sent += int(fields[8])
    return {"host.network_received": float(received), "host.network_sent": float(sent)} if lines else {}


def _whole_disks(block: str) -> frozenset[bytes]:
    """Return the names of disks. Partitions, loops, RAM disks and devices mapped onto other disks are left out."""
    try:
        names = os.listdir(block)
    except OSError:
        return frozenset()
    return frozenset(
        os.fsencode(name) for name in names if not name.startswith(("loop", "ram", "zram", "dm-", "md", "sr", "fd"))
    )
