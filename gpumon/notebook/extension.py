"""The IPython extension: `%load_ext gpumon` registers the magics and measures cells.

`%%gpumon` is not a cell magic, because a cell magic must run the code of the cell itself. Instead, an input transformer
removes the line, and the events `pre_run_cell` and `post_run_cell` measure the cell. IPython then runs the cell as it
would without gpumon: `await` works, tracebacks are unchanged, and the value of the last expression is shown.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from functools import wraps
from threading import Event, RLock, Thread
from time import monotonic_ns
from typing import Any, ParamSpec

from gpumon.common.errors import GpumonError, UsageError
from gpumon.common.paths import Places, places
from gpumon.common.procfs import has_own_pids
from gpumon.common.text import clean
from gpumon.launcher.process_tree import ProcessTree
from gpumon.live import Live, follow
from gpumon.model.frame import Frame
from gpumon.model.origin import Capability
from gpumon.notebook.cell_cost import CellCost, FrameworkPeaks, GpuCost
from gpumon.notebook.cell_report import CellReport
from gpumon.notebook.pane import Pane
from gpumon.notebook.sampling import NotebookSampling
from gpumon.tracking.context import visible_list
from gpumon.tracking.memory import FrameworkMemoryReader

MAGIC = "gpumon"
_CELL = f"%%{MAGIC}"
USAGE = "%gpumon [on | off | live [SECONDS] | runs [NUMBER]]"
_EVERY = 1.0
"""Default seconds between two updates of the pane."""
_SHORTEST, _LONGEST = 0.2, 3600.0
"""Limits of the seconds between two updates of the pane."""
_READ_EVERY = 10.0
"""Seconds between two reads of the ring during a cell without a pane. The ring contains frames of a longer time."""
_POLL_EVERY = 0.1
_MAX_WAIT = 5.0
"""Maximum seconds to wait after a cell for the next sample, with which its table is updated."""
_RUNS = 10
P = ParamSpec("P")


def is_measured(source: str) -> bool:
    """Return whether a cell begins with the line `%%gpumon`. Other cell magics, such as `%%time`, may precede it."""
    for line in source.splitlines():
        words = line.split(None, 1)[:1]
        if words and not words[0].startswith("%%"):
            return False
        if words == [_CELL]:
            return True
    return False


def without_magic(lines: list[str]) -> list[str]:
    """Return the lines of a cell without the leading line `%%gpumon`, which IPython would take for a cell magic.

    The line becomes a comment, so that the line numbers in tracebacks stay correct. If another cell magic follows, the
    line is removed, because a cell magic must be in the first line.
    """
    if not lines or lines[0].split(None, 1)[:1] != [_CELL]:
        return lines
    return lines[1:] if lines[1:] and lines[1].startswith("%%") else [f"# {lines[0]}", *lines[1:]]


without_magic.has_side_effects = True  # type: ignore[attr-defined]
"""So that IPython does not apply it to incomplete input. In a terminal, IPython then waits for more lines after
`%%gpumon`, as after a cell magic."""


def guarded(method: Callable[P, object]) -> Callable[P, None]:
    """Wrap a callback of IPython so that an exception is printed as one line and does not disturb the cell."""

    @wraps(method)
    def call(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            method(*args, **kwargs)
        except Exception as error:
            report_problem(f"this cell is not measured: {type(error).__name__}: {error}")

    return call


_reported: set[str] = set()


def report_problem(text: str) -> None:
    """Print a problem of gpumon as one line. The same problem is printed only once."""
    if text not in _reported and sys.stderr is not None:
        _reported.add(text)
        sys.stderr.write(f"gpumon: {clean(text, 300)}\n")


class MeasuredCell:
    """A cell that runs or has just ended. Its methods may be called from several threads.

    `lock`: held while `live` is read. `is_member`: function that returns whether a process belongs to the notebook.
    """

    def __init__(
        self, live: Live, lock: RLock, is_member: Callable[[int], bool], memory: FrameworkMemoryReader
    ) -> None:
        self.is_over = Event()
        self.handle: Any = None
        """IPython's handle of the output that shows the pane and later the table; None before the first output."""
        self.pane: Pane | None = None
        self._lock = lock
        self._live = live
        self._memory = memory
        self._started = time.time()
        self._cost = CellCost(monotonic_ns(), is_member)
        self._peaks = FrameworkPeaks(memory.read(self._cost.began))
        with lock:
            if live.is_alive() and (newest := live.latest()) is not None:
                self._cost.add(newest)

    def read(self) -> list[Frame]:
        """Add the new frames to the cost of the cell, and return them."""
        with self._lock:
            after = self._cost.last_frame
            frames = [frame for frame in self._live.since(after) if after or frame.monotonic_ns >= self._cost.began]
            for frame in frames:
                self._cost.add(frame)
            return frames

    def end(self) -> None:
        with self._lock:
            self._cost.ended = monotonic_ns()
            self._peaks.after = self._memory.read(self._cost.ended)
        self.is_over.set()
        self.read()

    @property
    def has_frames(self) -> bool:
        return self._cost.has_frames

    @property
    def is_complete(self) -> bool:
        """Whether there is a frame after the end of the cell."""
        return self._cost.is_complete

    def report(self, number: int, notes: Sequence[str], *, show_all: bool) -> CellReport:
        """Return the report on the cell after its end. `number`: execution count. `show_all`: see `CellCost.costs`."""
        with self._lock:
            cost = self._cost
            gpus = cost.costs(self._peaks, show_all=show_all or (cost.is_unattributed and has_own_pids()))
            return CellReport(number, self._started, cost.seconds, gpus, [*notes, *self._notes(gpus)])

    def _notes(self, gpus: Sequence[GpuCost]) -> list[str]:
        if not self._cost.has_gpus:
            return []
        if not gpus:
            return ["no process of this notebook was seen on a GPU"]
        shared = ", ".join(gpu.device.label for gpu in gpus if gpu.is_shared)
        if not shared:
            return []
        return [f"other processes were also on GPU {shared}: utilization, device memory and energy include them"]


class Extension:
    """The extension in one IPython shell: its settings, and the cells that are running."""

    def __init__(self, shell: Any, directories: Places | None = None, sampling: NotebookSampling | None = None) -> None:
        directories = directories or places()
        self.reports: list[CellReport] = []
        self._shell = shell
        self._places = directories
        self._live = follow(directories)
        self._lock = RLock()
        self._sampling = sampling or NotebookSampling(directories, follow(directories))
        self._tree = ProcessTree(os.getpid(), os.getpid())
        self._memory = FrameworkMemoryReader(visible_list(sys.modules, os.environ), sys.modules)
        self._cells: dict[int, MeasuredCell] = {}
        """Cells that are running, by the id of IPython's ExecutionInfo."""
        self._is_on = False
        self._pane_every = 0.0
        """Seconds between two updates of the pane; 0 if no pane is shown."""

    def load(self) -> None:
        self._shell.input_transformers_cleanup.append(without_magic)
        self._shell.events.register("pre_run_cell", self.begin_cell)
        self._shell.events.register("post_run_cell", self.end_cell)
        self._shell.register_magic_function(self.magic, "line", MAGIC)
        self._sampling.ensure()

    def unload(self) -> None:
        self._shell.input_transformers_cleanup.remove(without_magic)
        self._shell.events.unregister("pre_run_cell", self.begin_cell)
        self._shell.events.unregister("post_run_cell", self.end_cell)
        self._shell.magics_manager.magics["line"].pop(MAGIC, None)
        for cell in self._cells.values():
            cell.is_over.set()
        self._sampling.release()

    @guarded
    def begin_cell(self, info: Any) -> None:
        source = str(info.raw_cell)
        is_on = self._is_on and source.split(None, 1)[:1] != [f"%{MAGIC}"]
        # Front ends also run code of their own, which is not stored in the history.
        if not info.store_history or not (is_on or is_measured(source)):
            return
        self._sampling.ensure()
        cell = MeasuredCell(self._live, self._lock, self._tree.has_member, self._memory)
        if self._pane_every and self._can_update:
            cell.pane = Pane(self._tree.has_member)
            self._draw(cell, cell.read())
        self._cells[id(info)] = cell
        every = self._pane_every if cell.pane else _READ_EVERY
        Thread(target=self._follow, args=(cell, every), name="gpumon-cell", daemon=True).start()

    @guarded
    def end_cell(self, result: Any) -> None:
        cell = self._cells.pop(id(result.info), None)
        if cell is None:
            return
        cell.end()
        report = self._report(cell, result)
        self.reports.append(report)
        self._show(cell, report)
        if self._can_update and not cell.is_complete:
            # The first sample after the cell has not arrived yet. The table is shown now and replaced when it has.
            Thread(target=self._complete, args=(cell, result, report), name="gpumon-cell", daemon=True).start()

    def magic(self, line: str) -> Any:
        """Show the GPUs now, or turn tables and panes on and off.

        %gpumon                 the GPUs now
        %gpumon on              a table below each cell: time, utilization, memory, energy
        %gpumon live [SECONDS]  also a pane while a cell runs, updated every second
        %gpumon off             no tables and panes
        %gpumon runs [NUMBER]   the last runs that were recorded
        %%gpumon                a table for this cell only
        """
        word, *rest = line.split() or [""]
        try:
            if word in ("on", "off") and not rest:
                self._is_on, self._pane_every = word == "on", 0.0
                return None
            if word == "live" and len(rest) <= 1:
                return self._turn_pane_on(rest)
            if word == "runs" and len(rest) <= 1:
                return self._runs(rest)
            if not word:
                self._sampling.ensure()
                return self._pane_of_now()
            raise UsageError(f"usage: {USAGE}")
        except GpumonError as error:
            from IPython.core.error import UsageError as OneLine  # IPython shows it without a traceback

            raise OneLine(clean(str(error), 300)) from None

    @property
    def _can_update(self) -> bool:
        """Whether the front end can replace an output. A terminal cannot."""
        return getattr(self._shell, "kernel", None) is not None

    def _turn_pane_on(self, rest: Sequence[str]) -> Pane | None:
        try:
            every = float(rest[0]) if rest else _EVERY
        except ValueError:
            every = 0.0
        if not _SHORTEST <= every <= _LONGEST:
            raise UsageError(f"%gpumon live: give the seconds between two updates, from {_SHORTEST:g} to {_LONGEST:g}")
        self._is_on, self._pane_every = True, every
        self._sampling.ensure()
        if self._can_update:
            return None
        report_problem("a terminal cannot update a pane: each cell ends with its table. 'gpumon top' shows live values")
        return self._pane_of_now()

    def _runs(self, rest: Sequence[str]) -> Any:
        number = int(rest[0]) if rest and rest[0].isdecimal() and len(rest[0]) < 6 else _RUNS if not rest else 0
        if not number:
            raise UsageError("%gpumon runs: give a number of runs, such as 20")
        from gpumon.notebook.recorded_runs import RecordedRuns

        return RecordedRuns(self._places, number)

    def _pane_of_now(self) -> Pane:
        pane = Pane(self._tree.has_member)
        with self._lock:
            frames = self._live.since(0)
        pane.add(frames)
        pane.problem = self._problem()
        return pane

    def _problem(self) -> str:
        """Return the reason why there are no live values; empty if there are live values."""
        with self._lock:
            if self._live.is_alive():
                return self._live.origin().problem
            if self._sampling.is_starting:
                return "sampling is starting"
            return self._sampling.problem or self._live.state().text

    def _report(self, cell: MeasuredCell, result: Any) -> CellReport:
        arguments = is_measured(str(result.info.raw_cell)) and not _is_bare(str(result.info.raw_cell))
        notes = [f"the arguments of {_CELL} are ignored: it takes none"] if arguments else []
        if problem := self._problem() or ("" if cell.has_frames else "the cell ended before the first sample"):
            notes.append(problem)
        with self._lock:
            simulated = Capability.LIVE not in self._live.origin().capabilities
        return cell.report(result.execution_count or 0, notes, show_all=simulated)

    def _show(self, cell: MeasuredCell, report: CellReport) -> None:
        from IPython.display import display

        if cell.handle is not None:
            cell.handle.update(report)
        elif self._can_update:
            cell.handle = display(report, display_id=True)
        else:
            display(report)

    def _draw(self, cell: MeasuredCell, frames: Sequence[Frame]) -> None:
        from IPython.display import display

        pane = cell.pane
        if pane is None:
            return
        if cell.handle is None:
            with self._lock:
                frames = self._live.since(0)
        pane.add(frames)
        pane.problem = self._problem()
        if cell.handle is None:
            cell.handle = display(pane, display_id=True)
        else:
            cell.handle.update(pane)

    def _follow(self, cell: MeasuredCell, every: float) -> None:
        """Read frames and draw the pane until the cell has ended. Runs in a thread."""
        while not cell.is_over.wait(every):
            try:
                frames = cell.read()
                if not cell.is_over.is_set():
                    self._draw(cell, frames)
            except Exception as error:  # the cell continues without a pane
                report_problem(f"the pane is no longer updated: {type(error).__name__}: {error}")
                return

    def _complete(self, cell: MeasuredCell, result: Any, first: CellReport) -> None:
        """Wait for a frame after the end of the cell, and replace the table. Runs in a thread."""
        until = time.monotonic() + min(_MAX_WAIT, 3 * self._live.interval())
        while not cell.is_complete and time.monotonic() < until:
            time.sleep(_POLL_EVERY)
            cell.read()
        try:
            report = self._report(cell, result)
            if report.rows() != first.rows() or report.notes != first.notes:
                self.reports[self.reports.index(first)] = report
                cell.handle.update(report)
        except Exception as error:
            report_problem(f"the table is not complete: {type(error).__name__}: {error}")


def _is_bare(source: str) -> bool:
    """Return whether the line `%%gpumon` of a cell has no arguments."""
    return any(line.split() == [_CELL] for line in source.splitlines())


_extension: Extension | None = None


def load(shell: Any) -> None:
    """Register the magics in an IPython shell, and start sampling if no daemon is running."""
    global _extension
    if _extension is None:
        _extension = Extension(shell)
        _extension.load()


def unload() -> None:
    """Remove the magics. A daemon that was started for notebooks ends if no other notebook uses it."""
    global _extension
    if _extension is not None:
        _extension.unload()
        _extension = None


def cells() -> list[dict[str, object]]:
    """Return the measured cells of this notebook, in a form that can be stored as JSON. Unknown numbers are None."""
    return [report.to_dict() for report in _extension.reports] if _extension is not None else []
