"""A part of a run's figure with all the points that there are: made in the process of `worker`, as `run_page` is."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from typing import Any

from gpumon.errors import GpumonError
from gpumon.figures.run import figure
from gpumon.figures.run_series import run_series
from gpumon.figures.run_zoom import zoomed
from gpumon.history.open import open_history
from gpumon.history.recent import RecentHistory
from gpumon.ledger import aggregate
from gpumon.ledger.reader import Ledger, Ledgers
from gpumon.paths import history_beside
from gpumon_web.answers import NOTHING, Packed
from gpumon_web.course import with_newest
from gpumon_web.packing import packed
from gpumon_web.run_course import course
from gpumon_web.run_page import PHASES, Recent, Ring, find_run, phases_of, recent_of


def zoomed_figure(
    paths: Sequence[str], run: str, device: str, ring: Ring | None, recent: RecentHistory, begin: float | None,
    end: float | None,
) -> Packed:  # fmt: skip
    """The figure of a run on `device` (a UUID) from `begin` to `end` (s since 1970), from `recent` frames and tiers.

    All of its time where these name none. The figure is None where nothing is kept that a trace does not have.
    """
    try:
        with Ledgers(paths) as ledgers:
            found = find_run(ledgers, run)
            drawn = _drawn(found[0], run, device, ring, recent, begin, end) if found else None
    except GpumonError:
        return NOTHING  # the list of runs says why
    return packed(drawn) if drawn is not None else NOTHING


def _drawn(
    ledger: Ledger, run: str, device: str, ring: Ring | None, recent: RecentHistory, begin: float | None,
    end: float | None,
) -> dict[str, Any] | None:  # fmt: skip
    """The answer; None where the run had no such device."""
    record, traces = ledger.record(run, phases=False, times=True), ledger.traces(run)
    chosen = next((one for one in record.devices if one.uuid == device), None)
    if chosen is None:
        return None
    kept = run_series(record, traces, device), run_series(record, traces, "")
    known = recent_of(record, device, ring, *kept) if ring else Recent(*kept)
    whole = known.course
    if begin is None or end is None or not begin < end:
        begin, end = whole.begun, whole.begun + whole.points * whole.step
    with closing(open_history()) as history:
        history.look_in(history_beside(ledger.path))
        history.take(recent)
        series = zoomed(whole, history, device, begin, end) if whole.points else None
    if series is None:
        return {"figure": None}
    epochs = with_newest(aggregate.epochs(record), known.epochs)
    made = figure(series, known.logged, chosen, epochs, record.marks, diverged=known.diverged, whole=whole)
    return {"figure": course({"figure": {**made, "step": series.step}, "phases": phases_of(record, ring)[-PHASES:]})}
