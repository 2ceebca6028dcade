"""The tables: processes, runs, and the epochs of a run."""

from __future__ import annotations

from collections.abc import Hashable

from gpumon_tui.renderables import epochs, processes, runs
from gpumon_tui.renderables.cells import Line, safe
from gpumon_tui.renderables.table import Row, table
from gpumon_tui.view import View
from gpumon_tui.widgets.lines import Lines
from gpumon_tui.widgets.table import Rows, Table


class Processes(Table):
    """Who is on the GPUs."""

    title = "Processes"
    columns = processes.COLUMNS

    @property
    def empty(self) -> str:
        """What stands in the place of rows."""
        if not self.view.tells_processes:
            return "the recording does not tell who was on the GPUs"
        return "no process holds memory on a GPU"

    def rows(self) -> tuple[list[Hashable], Rows]:
        view = self.view
        indexes = {sample.device.uuid: sample.device.index for sample in view.samples}
        by_key = {run.key: run for run in view.runs}
        ordered = processes.order(view.processes, indexes)
        subject = view.subject

        def row(place: int) -> Row:
            process = ordered[place]
            index, run = indexes.get(process.uuid), by_key.get(process.run)
            return processes.row(process, index, run, view.now, process.uuid == subject)

        return [processes.key(process) for process in ordered], Rows(len(ordered), row)


class Runs(Table):
    """Which trainings go on, and how far they are."""

    title = "Runs"
    columns = runs.COLUMNS

    @property
    def empty(self) -> str:
        """What stands in the place of rows."""
        if not self.view.tells_processes:
            return "the recording does not tell of trainings"
        return "no training publishes its epochs: see gpumon.run"

    def rows(self) -> tuple[list[Hashable], Rows]:
        groups = runs.by_id(self.view.runs)
        ranks, known, now = list(groups.values()), self.view.epochs, self.view.now
        return list(groups), Rows(len(ranks), lambda place: runs.row(ranks[place], known, now))

    @property
    def run(self) -> str:
        """The id of the run under the cursor, or empty."""
        return str(self.key) if self.key is not None else ""


class Epochs(Lines):
    """What the GPUs did in each epoch of the run that is selected, the newest first."""

    def __init__(self, view: View, of: Runs) -> None:
        super().__init__(view, id="epochs")
        self.of = of
        self._known: dict[tuple[str, int, float], epochs.Summary] = {}

    def lines(self) -> list[Line]:
        view = self.view
        ranks = [run for run in view.runs if run.id == self.of.run]
        if not ranks:
            return []
        stretches = view.epochs.stretches(ranks[0].key, view.now)[::-1]
        shown = stretches[: max(0, self.size.height - 2)]
        uuids = list(dict.fromkeys(uuid for run in ranks for uuid in run.gpus))
        rows: list[Row] = []
        known = {}
        for stretch in shown:
            key = (self.of.run, stretch.epoch, stretch.end)
            summary = self._known.get(key) or epochs.summary(view.history, uuids, stretch.begin, stretch.end)
            if stretch.finished and not view.filling:
                known[key] = summary
            rows.append(epochs.row(stretch, summary))
        self._known = known
        title = f"Epochs of {safe(ranks[0].name)}"
        return table(
            title, epochs.columns(bool(uuids)), rows, -1, 0, self.size.width, self.size.height, False,
            "no epoch has begun", position=str(len(stretches)),
        )  # fmt: skip
