"""The way from an epoch of an opened run to its time and its GPUs on the charts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpumon.common.numbers import NAN, is_known
from gpumon.model import units
from gpumon.storage.history.buckets import SHORT_WINDOWS, WINDOWS
from gpumon_tui.keys import RUNS
from gpumon_tui.renderables.text_width import safe
from gpumon_tui.view import View
from gpumon_tui.way_back import WayBack

if TYPE_CHECKING:
    from gpumon_tui.run_reading.rows import OpenRun, StretchRow

AROUND = 1.2
"""The window is as much longer than the epoch, at least, so that its begin and its end are seen."""


def epoch_on_chart(view: View, run: OpenRun, row: StretchRow) -> tuple[WayBack | None, str]:
    """Point the charts at an epoch; return the way back, or None and why there is nothing to see."""
    begin, end = row.of.begun, row.of.ended
    end = end if is_known(end) else begin + row.of.seconds
    devices = [device.uuid for device in run.record.devices]
    here = [sample.device.uuid for sample in view.samples if sample.device.uuid in devices]
    name = safe(run.record.run.name)
    if not (is_known(begin) and is_known(end)):
        return None, f"it is not known when {row.title} of {name} was"
    if not here:
        return None, f"none of the GPUs of {name} is here" if devices else f"{name} was on no GPU"
    oldest = view.history.begin
    if not end > oldest:
        since = f": history begins {units.moment(oldest)[:16]}" if is_known(oldest) else ""
        return None, f"nothing of {row.title} is kept{since}"
    before = view.shown.state()
    if view.subject not in here:
        view.select(here[0])
    view.selected_run = run.record.run.id
    window = next((one.seconds for one in (*SHORT_WINDOWS, *WINDOWS) if one.seconds >= AROUND * (end - begin)), None)
    window = window or WINDOWS[-1].seconds
    last = (begin + end + window) / 2
    view.shown.hold(last if last < view.now else NAN, window)
    view.shown.cursor = min((max(begin, oldest) + end) / 2, view.now)
    ended = run.rows[-1].of.ended
    return WayBack(RUNS, before, name, run.record.run.id, frozenset(devices), run.marks, ended), ""
