"""Say why a training is slow: causes, what to change, and what it is expected to save.

Without an argument, explain the newest run. RUN is the id or name of a run, or an unambiguous prefix of either. GPU is
the index or UUID of a GPU: its own findings, and the findings about the runs on it.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Collection
from contextlib import closing

from gpumon.cli.daemon_lookup import played_ledger, why_no_runs
from gpumon.cli.options import add_places, gpu_option, resolve_options
from gpumon.cli.streams import output_width, print_json, print_lines, print_message
from gpumon.common.errors import EXIT_OK, GpumonError, UsageError
from gpumon.common.paths import Places, ledger_paths
from gpumon.diagnosis.finding import Finding
from gpumon.live import Live, follow, no_daemon
from gpumon.model.device import Device
from gpumon.model.frame import Frame, RunState
from gpumon.storage.ledger.reader import Ledgers, resolve_run

_UUID = ("GPU-", "MIG-")
"""Beginnings of the UUIDs of GPUs. No name of a run begins so."""


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "subject", metavar="RUN|GPU", nargs="?", default="last",
        help="id, name or prefix of a run, or index or UUID of a GPU (default: last, the newest run)",
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print one JSON object for programs")
    add_places(parser)


def run(arguments: argparse.Namespace) -> int:
    places, arguments = resolve_options(arguments)
    if isinstance(gpu_option(arguments.subject), int) or arguments.subject.startswith(_UUID):
        _explain_gpu(places, arguments)
    else:
        _explain_run(places, arguments)
    return EXIT_OK


def _explain_run(places: Places, arguments: argparse.Namespace) -> None:
    from gpumon.reports import why

    now = time.time()
    with Ledgers(ledger_paths(places)) as ledgers:
        if not ledgers:
            raise GpumonError(why_no_runs(places))
        ledger, row = resolve_run(ledgers, arguments.subject, now, print_message)
        record = ledger.record(row.id, phases=False, times=True)
    live = _live_findings(row.id, places) if record.run.state is RunState.RUNNING else []
    if arguments.json:
        print_json(why.run_document(record, now, live))
    else:
        print_lines(why.run_lines(record, now, output_width(), live))


def _live_findings(run_id: str, places: Places) -> list[Finding]:
    """Return the findings about a run in the newest frame; empty if no daemon samples."""
    with closing(follow(places)) as live:
        frame = live.latest() if live.is_alive() else None
        return [] if frame is None else _frame_findings(live, frame, {run_id})


def _frame_findings(live: Live, frame: Frame, subjects: Collection[str]) -> list[Finding]:
    from gpumon.diagnosis.live_findings import JudgedFrame, earlier_frames, epochs_from_boundaries

    judged = JudgedFrame(frame, earlier_frames(live, frame), epochs=epochs_from_boundaries(live, frame))
    return [finding for finding in judged.findings() if finding.subject.id in subjects]


def _explain_gpu(places: Places, arguments: argparse.Namespace) -> None:
    from gpumon.reports import why

    with closing(follow(places)) as live:
        frame = live.latest() if live.is_alive() else None
        if frame is None:
            raise GpumonError(no_daemon(places))
        device = _find_gpu(frame, arguments.subject)
        ranked = _findings(live, frame, device, places)
    if arguments.json:
        gpu = {"index": device.index, "label": device.label, "uuid": device.uuid, "name": device.name}
        print_json(why.document(ranked, (), gpu=gpu))
        return
    print_lines([f"GPU {device.label}: {device.name}", "", *why.lines(ranked, (), output_width(), titled=True)])


def _find_gpu(frame: Frame, wanted: str) -> Device:
    devices = [sample.device for sample in frame.samples]
    for device in devices:
        if wanted in (device.uuid, device.label):
            return device
    labels = ", ".join(device.label for device in devices)
    raise UsageError(f"no GPU '{wanted}' here. {f'There are: {labels}' if labels else 'There is none'}")


def _findings(live: Live, frame: Frame, device: Device, places: Places) -> list[Finding]:
    """Return the findings about a GPU and the runs on it, ranked. The ledger says more about a run than the ring."""
    from gpumon.diagnosis.running_findings import add_recorded, read_findings

    runs = {row.id for row in frame.runs if device.uuid in row.gpus}
    about = _frame_findings(live, frame, {device.uuid, *runs})
    played = played_ledger(live, places)
    with Ledgers([played] if played else ledger_paths(places)) as ledgers:
        return add_recorded(about, read_findings(ledgers, sorted(runs), frame.time))
