"""What the charts show: the time window the user can move, the epoch marks, and the page to which Escape returns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from gpumon.analysis.run_epochs import EpochMark, EpochMarks, Epochs
from gpumon.common.numbers import NAN, is_known
from gpumon.storage.history.buckets import ChartWindow
from gpumon.storage.history.query import HOST
from gpumon_tui.render.text_width import safe


class ChartTime:
    """The time window that the user can move. Times are in s since 1970, lengths in s."""

    def __init__(self) -> None:
        self.length = 0
        """Length chosen by the user; 0 if none was chosen."""
        self.previous_length = 0
        """Length chosen in the last session, used until the user chooses one, up to the length of the history; 0 for
        none.
        """
        self.end = NAN
        """End of a window in the past; NaN while it ends now."""
        self.cursor = NAN
        """Time of the cursor; NaN for none."""

    @property
    def is_past(self) -> bool:
        """Whether the window is fixed in the past."""
        return is_known(self.end)

    def follow_now(self) -> None:
        """Return to the present, with the same length and without a cursor."""
        self.end = self.cursor = NAN

    def state(self) -> tuple[int, float, float]:
        """Return the user's choices, for `restore`."""
        return self.length, self.end, self.cursor

    def restore(self, state: tuple[int, float, float]) -> None:
        """Restore choices returned by `state`."""
        self.length, self.end, self.cursor = state

    def set_cursor(self, time: float, window: int, begin: float, now: float) -> None:
        """Set the cursor, and move the window if it does not contain that time."""
        self.cursor = time
        end = self.end if self.is_past else now
        if not end - window <= time <= end:
            self.length = window
            self._end_at(time + window / 2, window, begin, now)

    def fix(self, end: float, window: int) -> None:
        """Fix the window with the given end; NaN: follow the present."""
        self.end, self.length = end, window

    def zoom(self, step: int, window: int, windows: Sequence[ChartWindow], begin: float, now: float) -> None:
        """Choose the next shorter or longer of the available windows, aligned as in `set_length`."""
        lengths = [window_choice.seconds for window_choice in windows]
        index = (lengths.index(window) if window in lengths else len(lengths)) + step
        self.set_length(lengths[min(max(index, 0), len(lengths) - 1)], window, begin, now)

    def set_length(self, length: int, previous: int, begin: float, now: float) -> None:
        """Change the length from `window` to `length`.

        A window in the past keeps its middle; a window that ends now keeps its end.
        """
        self.length = length
        if self.is_past:
            self._end_at(self.end + (self.length - previous) / 2, self.length, begin, now)

    def pan(self, halves: float, window: int, begin: float, now: float) -> None:
        """Move by half windows, no further back than `begin` of the history.

        A window that reaches the present follows it again.
        """
        self.length = window
        self._end_at((self.end if self.is_past else now) + halves * window / 2, window, begin, now)

    def _end_at(self, end: float, window: int, begin: float, now: float) -> None:
        earliest = begin + window
        self.end = max(end, earliest) if earliest < now and end < now else NAN


class ReturnTarget(NamedTuple):
    """The page that opened a chart, and the run it was opened for, if any."""

    page: str
    window: tuple[int, float, float] | None = None
    """Previous window of the charts, for `ChartTime.restore`; None if the chart opened with the page's own window."""
    label: str = ""
    """Short name of the return target for Escape; empty if it is the page itself."""
    run: str = ""
    """Run id."""
    devices: frozenset[str] = frozenset()
    """UUIDs of the run's devices."""
    marks: Sequence[EpochMark] = ()
    """Starts of the run's epochs, oldest first; recent frames may no longer contain them."""
    last_end: float = NAN
    """End of the last epoch; NaN while it is running."""


Groups = Mapping[str, Sequence[str]]
"""Keys of the ranks of each run, by run id."""


def chart_epochs(epochs: Epochs, subject: str, selected: str, newest_key: str) -> tuple[EpochMarks, str]:
    """Return the epoch marks for a subject's charts, and the name of their run if several runs are possible.

    On the host, the marks belong to the run `selected` in the table (an id). On a GPU shared by several runs, they
    belong to the selected run if it uses the GPU, otherwise to the newest run there (`newest_key`). Runs that ended
    before it began are included.
    """
    groups: dict[str, list[str]] = {}
    for key in epochs.runs_on(subject):
        run = epochs.run(key)
        groups.setdefault(run.id if run else key, []).append(key)
    selected_run = selected if selected in groups else ""
    if subject == HOST:
        groups = {selected_run: groups[selected_run]} if selected_run else {}
    elif len(groups) > 1:
        run = epochs.run(newest_key) if newest_key else None
        return _without_overlaps(epochs, groups, selected_run or (run.id if run else list(groups)[-1]))
    keys = [key for group in groups.values() for key in group]
    return epochs.chart_marks(keys), _name_of(epochs, selected_run, groups) if subject == HOST else ""


def _without_overlaps(epochs: Epochs, groups: Groups, selected_run: str) -> tuple[EpochMarks, str]:
    """Return the marks of the chosen run, and of other runs that ended before the next one began."""
    ranges = [epochs.time_range(groups[selected_run])]
    shown_keys = list(groups[selected_run])
    for name, keys in reversed([*groups.items()]):
        begin, end = epochs.time_range(keys)
        if name != selected_run and all(end <= taken_range[0] or begin >= taken_range[1] for taken_range in ranges):
            ranges.append((begin, end))
            shown_keys += keys
    return epochs.chart_marks(shown_keys), _name_of(epochs, selected_run, groups) if len(ranges) < len(groups) else ""


def _name_of(epochs: Epochs, run_id: str, groups: Groups) -> str:
    run = epochs.run(groups[run_id][0]) if run_id else None
    return safe(run.name) if run else ""
