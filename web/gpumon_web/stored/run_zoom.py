"""Part of a run's chart at full resolution. Runs in the worker process."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from typing import Any

from gpumon.common.errors import GpumonError
from gpumon.common.paths import history_beside
from gpumon.reports.figures.plotly_figure import Look, plotly_figure
from gpumon.reports.figures.run_chart import run_chart
from gpumon.reports.figures.run_gpus import EACH, DeviceCourse
from gpumon.reports.figures.run_series import run_series, zoom
from gpumon.storage.history.open import open_history
from gpumon.storage.history.recent import RecentHistory
from gpumon.storage.ledger import aggregate
from gpumon.storage.ledger.reader import Ledger, Ledgers
from gpumon_web.jobs import NOTHING, Packed, packed
from gpumon_web.stored.run_course import update_epochs
from gpumon_web.stored.run_list import Live
from gpumon_web.stored.run_page import (
    LONG,
    Recent,
    Ring,
    RunEpochs,
    find_run,
    merge_recent,
    read_epochs,
    run_document,
    run_drawing,
    select_devices,
)


def zoomed_figure(
    paths: Sequence[str], now: float, known_version: Any, run: str, device: str, begin: float | None,
    end: float | None, panels: Sequence[str] | None, live: Live | None, ring: Ring | None, recent: RecentHistory,
) -> Packed:  # fmt: skip
    """Return the chart of a run on `device` (a UUID, or all its GPUs) from `begin` to `end` (s since 1970).

    Without a valid range it covers the whole run. Points come from `recent` frames and from the history. The chart is
    None if these have nothing finer than the run's trace.

    With `panels`, return these as a figure of Plotly, which falls back to the points of the trace.
    """
    del known_version  # the newest frames change it
    try:
        with Ledgers(paths) as ledgers:
            match = find_run(ledgers, run)
            document = _document(match[0], run, device, ring, recent, begin, end) if match else None
    except GpumonError as error:
        return Packed(b"", unread=str(error))
    if panels is None:
        return packed(document) if document is not None else NOTHING
    chart = document["chart"] if document else None
    if chart is None:
        whole, _ = run_document(paths, run, device, live, ring, now, None)
        chart = whole.get("chart") if whole else None
    if chart is None:
        return NOTHING
    if begin is not None and end is not None and begin < end:
        chart = {**chart, "begin": begin, "end": end}
    return packed({"figure": plotly_figure(chart, Look(panels))})


def _document(
    ledger: Ledger, run: str, device: str, ring: Ring | None, recent: RecentHistory, begin: float | None,
    end: float | None,
) -> dict[str, Any] | None:  # fmt: skip
    """Return the document; None if the run did not use the device."""
    run_epochs, traces = _read(ledger, run, begin, end), ledger.traces(run)
    record = run_epochs.record
    selection, gpus = select_devices(record.devices, device)
    if not gpus or selection != device:
        return None
    logged = run_series(record, traces, "")
    courses: list[DeviceCourse] = []
    data = Recent(logged, logged)
    with closing(open_history()) as history:
        history.set_path(history_beside(ledger.path))
        history.move_from(recent)
        for gpu in gpus:
            stored = run_series(record, traces, gpu.uuid)
            data = merge_recent(record, gpu.uuid, ring, stored, logged) if ring else Recent(stored, logged)
            whole_course = data.course
            first, last = begin, end
            if first is None or last is None or not first < last:
                first, last = whole_course.begun, whole_course.begun + whole_course.points * whole_course.step
            series = zoom(whole_course, history, gpu.uuid, first, last) if whole_course.points else None
            if series is not None:
                courses.append(DeviceCourse(gpu, series))
    if len(courses) < len(gpus):  # a mean needs the finer points of all GPUs
        return {"chart": None}
    newest = [epoch for epoch in data.epochs if end is None or epoch.begin < end]
    epochs = update_epochs(run_epochs.epochs, newest)
    drawing = run_drawing(run_epochs, gpus, [data], epochs, ring, is_each=selection == EACH)
    return {"chart": run_chart(drawing._replace(gpus=courses), len(record.devices))}


def _read(ledger: Ledger, run: str, begin: float | None, end: float | None) -> RunEpochs:
    """Read the epochs of a run; for a long run only those in the range, unless these are too many."""
    if begin is not None and end is not None and ledger.epoch_count(run) > LONG:
        first, after = ledger.ordinals(run, begin, end)
        if 0 < after - first <= LONG:
            record = ledger.record(run, phases=False, times=True, ordinals=range(first, after))
            return RunEpochs(record, aggregate.epoch_summaries(record))
    return read_epochs(ledger, run)
