"""A part of a run's figure with all the points that there are: made in the process of `worker`, as `run_page` is."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from typing import Any

from gpumon.common.errors import GpumonError
from gpumon.common.paths import history_beside
from gpumon.reports.figures.run_series import run_series, zoom
from gpumon.storage.history.open import open_history
from gpumon.storage.history.recent import RecentHistory
from gpumon.storage.ledger import aggregate
from gpumon.storage.ledger.reader import Ledger, Ledgers
from gpumon_web.charts.run_chart import run_chart
from gpumon_web.charts.run_gpus import EACH, DeviceCourse
from gpumon_web.jobs import NOTHING, Packed, packed
from gpumon_web.stored.run_course import with_newest
from gpumon_web.stored.run_page import LONG, Recent, Ring, Told, chosen_of, drawing_of, find_run, recent_of, told_of


def zoomed_figure(
    paths: Sequence[str], run: str, device: str, ring: Ring | None, recent: RecentHistory, begin: float | None,
    end: float | None,
) -> Packed:  # fmt: skip
    """The chart of a run on `device` (a UUID, or all of its GPUs) from `begin` to `end` (s since 1970).

    All of its time where these name none; points are those of `recent` frames and of tiers. The chart is None where
    nothing is kept that a trace does not have.
    """
    try:
        with Ledgers(paths) as ledgers:
            found = find_run(ledgers, run)
            drawn = _drawn(found[0], run, device, ring, recent, begin, end) if found else None
    except GpumonError as error:
        return Packed(b"", unread=str(error))
    return packed(drawn) if drawn is not None else NOTHING


def _drawn(
    ledger: Ledger, run: str, device: str, ring: Ring | None, recent: RecentHistory, begin: float | None,
    end: float | None,
) -> dict[str, Any] | None:  # fmt: skip
    """The answer; None where the run had no such device."""
    read, traces = _read(ledger, run, begin, end), ledger.traces(run)
    record = read.record
    shown, chosen = chosen_of(record.devices, device)
    if not chosen or shown != device:
        return None
    logged = run_series(record, traces, "")
    found: list[DeviceCourse] = []
    known = Recent(logged, logged)
    with closing(open_history()) as history:
        history.set_path(history_beside(ledger.path))
        history.move_from(recent)
        for one in chosen:
            kept = run_series(record, traces, one.uuid)
            known = recent_of(record, one.uuid, ring, kept, logged) if ring else Recent(kept, logged)
            whole = known.course
            first, last = begin, end
            if first is None or last is None or not first < last:
                first, last = whole.begun, whole.begun + whole.points * whole.step
            series = zoom(whole, history, one.uuid, first, last) if whole.points else None
            if series is not None:
                found.append(DeviceCourse(one, series))
    if len(found) < len(chosen):  # of some GPUs as they were, and of others not, there is no mean
        return {"chart": None}
    newest = [one for one in known.epochs if end is None or one.begin < end]
    epochs = with_newest(read.epochs, newest)
    drawing = drawing_of(read, chosen, [known], epochs, ring, is_each=shown == EACH)
    return {"chart": run_chart(drawing._replace(gpus=found), len(record.devices))}


def _read(ledger: Ledger, run: str, begin: float | None, end: float | None) -> Told:
    """The epochs of a run; of a long one those in a part of its time, where these are not too many."""
    if begin is not None and end is not None and ledger.epoch_count(run) > LONG:
        first, after = ledger.ordinals(run, begin, end)
        if 0 < after - first <= LONG:
            record = ledger.record(run, phases=False, times=True, ordinals=(first, after))
            return Told(record, aggregate.epoch_summaries(record))
    return told_of(ledger, run)
