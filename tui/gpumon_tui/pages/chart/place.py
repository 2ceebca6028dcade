"""Where a run was at a moment: epoch, step and phase."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from operator import attrgetter, itemgetter

from rich.segment import Segment

from gpumon.analysis.epochs import EpochMarks
from gpumon.common.numbers import NAN, is_known
from gpumon.model.frame import TRAINING, RunState
from gpumon_tui import palette, theme
from gpumon_tui.pages.chart.state import ChartState
from gpumon_tui.renderables.text_width import Line, safe
from gpumon_tui.renderables.time_marks import phase_role


def place_in_run(state: ChartState, time: float, *, until: float = NAN, is_brief: bool = False) -> Line:
    """Return epoch, step and phase of the run that the charts mark, at a time (s since 1970).

    `until` is the end of the column that is read out: what begins within that is told too, as where the moment of a
    run's begin is shown. Empty before the run, and once it was over: its last epoch is not that of a GPU on which
    nothing trains any more. A run that was in no epoch yet has its name.
    """
    view = state.view
    drawn, _ = view.epochs_drawn()
    after = bisect_right(drawn.marks, time, key=attrgetter("time"))
    if not after and is_known(until):
        after = bisect_left(drawn.marks, until, key=attrgetter("time"))
    if not after:
        return _without_epoch(state, time, until)
    mark = drawn.marks[after - 1]
    time = max(time, mark.time)
    line: Line = [Segment(f"{'e' if is_brief else 'epoch '}{mark.epoch}", theme.RUN)]
    run = next((run for run in view.runs if view.subject in run.gpus and run.id == mark.run), None)
    if run is None:
        led = view.way_back
        is_of_led = led is not None and led.run == mark.run and not time >= led.ended
        return line if is_of_led else []  # of a run that the frames tell nothing of, step and phase are not known
    if run.state is not RunState.RUNNING and time >= run.updated:
        return []
    newest = (view.now, run.step) if run.step and not view.shown.is_past else None
    if step := step_at(state, run.key, time, newest):
        line.append(Segment(f"  step {step}", theme.PLAIN))
    phase = _phase(drawn, time)
    line.append(Segment(f"  {safe(phase)}", theme.PLAIN if phase == TRAINING else palette.ink(phase_role(phase))))
    return line


def _without_epoch(state: ChartState, time: float, until: float) -> Line:
    """The name of a run of the subject that had begun, and was in no epoch yet."""
    view = state.view
    last = until if is_known(until) else time
    here = [run for run in view.runs if view.subject in run.gpus and run.started < last]
    run = max(here, key=lambda one: one.started, default=None)
    if run is None or (run.state is not RunState.RUNNING and time >= run.updated):
        return []
    return [Segment(safe(run.name), theme.RUN), Segment("  begins" if run.started >= time else "", theme.DIM)]


def _phase(drawn: EpochMarks, time: float) -> str:
    return next((span.phase for span in drawn.spans_within(time, time)), TRAINING)


def step_at(state: ChartState, key: str, time: float, newest: tuple[float, int] | None = None) -> str:
    """Return the step of a run at a time: by its boundaries, `≈` between two of them; empty where they do not tell.

    `newest`: the time of the frame on screen, and the step that the run reports there.
    """
    known = state.view.epochs.step_moments(key)
    if newest is not None and time >= newest[0]:
        return f"{newest[1]:,}"
    after = bisect_right(known, time, key=itemgetter(0))
    if after == 0:
        return ""
    begin, first = known[after - 1]
    later = known[after] if after < len(known) else None
    if newest is not None and (later is None or later[0] >= newest[0]):
        later = newest
    if later is None:
        return ""
    end, last = later
    if first == last or end <= begin:
        return f"{first:,}"
    return f"≈{round(first + (last - first) * (time - begin) / (end - begin)):,}"
