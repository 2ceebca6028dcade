"""A process to the bytes of its record, and back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpumon.common.numbers import NAN
from gpumon.model.process import Process
from gpumon.ring.believable import believable, is_doubtful
from gpumon.ring.directory import Known
from gpumon.ring.layout import KINDS, NO_SHARE, PROCESS, SHARE, Layout

if TYPE_CHECKING:
    from gpumon.ring.directory_writer import Directory

_FLOATS, _FLOATS_3 = range(32, 64, 8), range(20, 68, 8)
"""Offsets of a record's float64 values, now and until layout 3."""
_MOST = (NO_SHARE - 1) / SHARE


def pack_process(process: Process, directory: Directory) -> bytes:
    """Return the record of a process, whose texts are taken into the directory."""
    string = directory.string
    return PROCESS.pack(
        process.pid, directory.row_of(process.uuid), KINDS.index(process.kind), string(process.name),
        string(process.user), directory.run_id(process.run), string(process.container), string(process.pod),
        string(process.job), process.started, process.memory_used, process.cpu_utilization, process.host_memory,
        _share(process.sm_utilization), _share(process.memory_utilization), _share(process.encoder_utilization),
        _share(process.decoder_utilization),
    )  # fmt: skip


def read_processes(raw: bytes, layout: Layout, known: Known) -> tuple[Process, ...]:
    """Return the processes in these whole records; those on devices that the directory does not know are left out."""
    record, is_former = layout.process, layout.process is not PROCESS
    doubtful = is_doubtful(raw, _FLOATS_3 if is_former else _FLOATS, record.size)
    strings, found = known.strings, []
    for pid, row, kind, name, user, run_id, *rest in record.iter_unpack(raw):
        device, run = known.devices.get(row), known.runs.get(run_id)
        if device is None:
            continue
        if is_former:
            texts, shares = [0, 0, 0], [NAN, NAN]
            started, used, sm, memory, cpu, host = believable(rest) if doubtful else rest
        else:
            texts = rest[:3]
            started, used, cpu, host = believable(rest[3:7]) if doubtful else rest[3:7]
            sm, memory, *shares = map(_ratio, rest[7:])
        container, pod, job = (strings.get(text, "") for text in texts)
        found.append(
            Process(
                pid=pid,
                uuid=device.uuid,
                kind=KINDS[kind] if kind < len(KINDS) else KINDS[0],
                name=strings.get(name, ""),
                user=strings.get(user, ""),
                started=started,
                memory_used=used,
                sm_utilization=sm,
                memory_utilization=memory,
                cpu_utilization=cpu,
                host_memory=host,
                run=run.key if run else "",
                encoder_utilization=shares[0],
                decoder_utilization=shares[1],
                container=container,
                pod=pod,
                job=job,
            )
        )
    return tuple(found)


def _share(ratio: float) -> int:
    """Return a ratio as whole steps, to a hundredth of a percent."""
    return round(ratio * SHARE) if 0 <= ratio <= _MOST else NO_SHARE


def _ratio(share: int) -> float:
    return share / SHARE if share != NO_SHARE else NAN
