"""Rows of the run list: active runs from frames, and runs of the ledgers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from rich.segment import Segment
from rich.style import Style

from gpumon.analysis.progress import progress
from gpumon.analysis.ranks import Ranks
from gpumon.analysis.run_epochs import Epochs
from gpumon.common.numbers import NAN, is_known
from gpumon.diagnosis.finding import Severity
from gpumon.model import units
from gpumon.model.columns import RUN_BY_KEY, RUNS, View, shown
from gpumon.model.frame import ENDED_BADLY, RunState
from gpumon_tui import theme
from gpumon_tui.data.run_rows import ListedRun, search_text
from gpumon_tui.render.bars import progress_line
from gpumon_tui.render.table import Cell, Row, TableColumn, table_column
from gpumon_tui.render.text_width import Line, fit, safe, width

if TYPE_CHECKING:
    from gpumon_tui.data.run_rows import RunDetail

BAR = 10
UNLIMITED = 1000
"""Width in which every word fits."""
NARROW = 50
"""Page width below which columns are narrower."""
EPOCH, NARROW_EPOCH = 11, 7
"""Width of an epoch, `13/90`, on a normal and a narrow page."""
METRIC = 13
"""Width of a logged metric with its name."""
MAX_NAME, VERDICT_CELLS = 40, 32
"""Maximum width of a name, and the width reserved for a verdict."""
_YEAR = 300 * 86400
"""Age in seconds up to which a date needs no year."""
"""First cell of the row under the cursor in the tables of runs and epochs."""
SEVERITY_STYLES: Mapping[Severity | None, Style] = {
    None: theme.DIM, Severity.INFO: theme.DIM, Severity.WARNING: theme.WARN, Severity.CRITICAL: theme.ink("crit"),
}  # fmt: skip


class Order(NamedTuple):
    """A sort order of the list."""

    name: str
    key: str
    """Key of the column that shows it."""
    by: Callable[[ListedRun], Any]

    @property
    def falls(self) -> bool:
        """Whether the latest, largest or worst come first."""
        return RUN_BY_KEY[self.key].falls

    @property
    def column(self) -> str:
        """Title of the column that shows it."""
        return RUN_BY_KEY[self.key].short


def _descending(value: float) -> float:
    return -value if is_known(value) else NAN


def _unknown_last(value: float) -> tuple[bool, float]:
    """Return a sort key that puts unknown values last."""
    return not is_known(value), value


ORDERS = (
    Order("newest first", "started", lambda run: (run.is_over, -run.started)),
    Order("by name", "name", lambda run: (run.name.casefold(), -run.started)),
    Order("by user", "user", lambda run: (run.user.casefold(), -run.started)),
    Order("longest first", "seconds", lambda run: _unknown_last(_descending(run.seconds))),
    Order("most energy first", "energy", lambda run: _unknown_last(_descending(run.energy))),
    Order("least utilized first", "utilization_mean", lambda run: _unknown_last(run.utilization)),
    Order("worst end first", "verdict", lambda run: (not run.ended_badly, run.state, -run.started)),
)
"""The orders, in the sequence in which a key cycles through them."""


UNSEEN = "unseen"
"""State of a run that was active when last seen, as in `gpumon runs`."""


def from_frame(
    ranks: Ranks, stored: ListedRun | None, epochs: Epochs, now: float, monotonic_ns: int = 0, *, is_old: bool = False
) -> ListedRun:  # fmt: skip
    """Return a run from the frame on screen, completed from a ledger; `is_old`: the frame is stale.

    `now` and `monotonic_ns` as in `progress`.
    """
    first, slowest, run_progress = ranks.first, ranks.slowest, progress(ranks, epochs, now, monotonic_ns)
    metrics = ranks.metrics
    name = next(iter(sorted(metrics, key=lambda name: "loss" not in name.casefold())), "")
    is_over = ranks.state is not RunState.RUNNING
    state = UNSEEN if is_old and not is_over else ranks.state.name.lower()
    if slowest.epoch >= 0:
        epoch = units.epoch_position(slowest.epoch, slowest.epochs, slowest.base)
    else:
        epoch = first.step_text if first.facts.planned_steps > 0 else units.MISSING
    tags = stored.tags if stored else ()
    started = min((rank.started for rank in ranks.all if is_known(rank.started)), default=NAN)
    updated = max((rank.updated for rank in ranks.all if is_known(rank.updated)), default=NAN)
    share, seconds = run_progress.done, max(0.0, (updated if is_over else now) - started)
    if is_over and stored is not None and stored.is_over:
        epoch, share, seconds = stored.epoch, stored.share, stored.seconds
    return ListedRun(
        id=first.id, name=first.name, user=first.user, state=state, is_over=is_over or is_old,
        ended_badly=ranks.state in ENDED_BADLY, gpus=len(ranks.gpus) or (stored.gpus if stored else 0),
        epoch=epoch, share=share, started=started, seconds=seconds,
        left=NAN if is_over or is_old else run_progress.left, utilization=stored.utilization if stored else NAN,
        energy=stored.energy if stored else NAN, is_least=stored is not None and stored.is_least,
        is_about=stored is not None and stored.is_about,
        tags=tags,
        text=search_text(first.name, first.id, first.user, first.framework, state, *tags), is_kept=stored is not None,
        metric=f"{name} {units.padded_logged_number(metrics[name])}" if name else "",
        written=stored.written if stored and not is_over else NAN,
    )  # fmt: skip


def filter_runs(runs: Sequence[ListedRun], words: str) -> list[ListedRun]:
    """Return the runs that contain every word in name, id, user, framework, state or a tag."""
    search_words = words.casefold().split()
    return [run for run in runs if all(word in run.text for word in search_words)] if search_words else list(runs)


_SHOWN = shown(RUNS, View.TERMINAL)
COLUMNS = (RUN_BY_KEY["name"], *(column for column in _SHOWN if column.key != "name"))
"""Columns of the list, after the mark; names come first."""
_KEEP = {"name": 99, "id": 10, "user": 70, "started": 65}
"""Priorities of columns that matter less here than in the output of commands."""
_CELLS = {
    "id": 22, "user": 8, "gpus": 4, "started": 11, "progress": BAR, "utilization_mean": 4, "wait_share": 4,
    "energy": 10, "metric": METRIC,
}  # fmt: skip


def columns(cells: int) -> tuple[TableColumn, ...]:
    """Return the columns for a page of the given width."""
    name_cells = 12 if cells < NARROW else 14 if cells < 70 else 18 if cells < 200 else 22
    widths = {**_CELLS, "name": name_cells, "epoch": NARROW_EPOCH if cells < NARROW else EPOCH}
    columns_by_key = {column.key: table_column(column, widths.get(column.key, 0)) for column in COLUMNS}
    columns_by_key = {key: column._replace(keep=_KEEP.get(key, column.keep)) for key, column in columns_by_key.items()}
    columns_by_key["name"] = columns_by_key["name"]._replace(preferred=MAX_NAME)
    columns_by_key["verdict"] = columns_by_key["verdict"]._replace(cells=0, preferred=VERDICT_CELLS)
    return (TableColumn("", 1, keep=100), *columns_by_key.values())


_HAS_VALUE: Mapping[str, Callable[[ListedRun], bool]] = {
    "user": lambda run: bool(run.user), "gpus": lambda run: run.gpus > 0, "progress": lambda run: is_known(run.share),
    "left": lambda run: is_known(run.left), "utilization_mean": lambda run: is_known(run.utilization),
    "wait_share": lambda run: run.is_kept, "energy": lambda run: is_known(run.energy),
    "metric": lambda run: run.is_kept or bool(run.metric),
}  # fmt: skip
"""Whether a run has a value for a column; values from a ledger may arrive later."""


def keys_with_values(runs: Sequence[ListedRun]) -> frozenset[str]:
    """Return the keys of optional columns for which any run has a value."""
    return frozenset(key for key, has_value in _HAS_VALUE.items() if any(map(has_value, runs)))


def empty_columns(present: frozenset[str]) -> frozenset[str]:
    """Return the keys of columns for which no run has a value; `present` has the keys of columns with values."""
    return frozenset(_HAS_VALUE.keys() - present)


def row(
    run: ListedRun, detail: RunDetail | None, now: float, *, is_open: bool, cells: int, room: int = UNLIMITED,
    largest_energy: float = 0.0,
) -> Row:  # fmt: skip
    """Return a run as a row of a page of the given width, with `room` for its verdict; `detail` may arrive later.

    `largest_energy`: the largest energy in the list (J), which determines the unit of all energies.
    """
    position = units.without_plan(run.epoch, NARROW_EPOCH if cells < NARROW else EPOCH)
    dim_style = theme.DIM if run.is_over else theme.PLAIN
    has_verdict = detail is not None and (detail.severity is not None or not run.state or run.state == "finished")
    verdict = detail.verdict if has_verdict and detail is not None and detail.verdict else run.state
    if detail is not None and verdict == detail.verdict and detail.brief and width(safe(verdict)) > room:
        verdict = detail.brief  # a truncated sentence would lose what its share refers to
    severity = detail.severity if detail is not None else Severity.CRITICAL if run.ended_badly else None
    wait = detail.wait if detail is not None else NAN
    metric = run.metric or (detail.metric if detail is not None else "")
    strong = theme.ink("strong", bold=True)
    energy = units.energy_in_column(run.energy, largest_energy or run.energy)
    cells_of = {
        "name": Cell(safe(run.name), theme.RUN if not run.is_over else strong if is_open else theme.PLAIN),
        "id": Cell(safe(run.id), theme.FAINT),
        "user": Cell(safe(run.user), theme.DIM),
        "gpus": Cell(str(run.gpus or units.MISSING), dim_style),
        "started": Cell(_start_text(run.started, now), theme.DIM),
        "progress": Cell("", parts=_progress(run)),
        "epoch": Cell(position, theme.PLAIN if run.is_over else strong),
        "seconds": Cell(units.fine_duration(run.seconds)),
        "left": Cell(units.duration(run.left) if is_known(run.left) else ""),
        "utilization_mean": Cell(units.about(units.percent(run.utilization), is_final=not run.is_about)),
        "wait_share": Cell(units.percent(wait) if detail is not None else ""),
        "energy": Cell(units.AT_LEAST * run.is_least + energy),
        "metric": Cell(_metric_text(safe(metric))),
        "verdict": Cell(safe(verdict), SEVERITY_STYLES[severity]),
    }  # fmt: skip
    return (Cell(*mark(run)), *(cells_of[column.key] for column in COLUMNS))


def _progress(run: ListedRun) -> Line:
    """Return the progress; blank without a plan, because an empty track would claim that the run has just begun."""
    if not is_known(run.share):
        return [Segment(" " * BAR)]
    return progress_line(run.share, BAR, theme.FAINT if run.is_over else theme.RUN)


def _metric_text(metric: str) -> str:
    """Return a name and its number at the width of the column; the number is never truncated."""
    name, _, number = metric.rpartition(" ")
    number = number.replace("e-0", "e-").replace("e+0", "e").replace("e+", "e")
    if width(metric) <= METRIC or not name:
        return metric
    return f"{fit(name, max(1, METRIC - 1 - width(number))).rstrip()} {number}"


def mark(run: ListedRun) -> tuple[str, Style]:
    """Return the glyph of a run's state and its style; the state is also shown as text."""
    if run.ended_badly:
        return "▲", theme.ink("crit", bold=True)
    if not run.is_over:
        return "▸", theme.ink("run", bold=True)
    return ("●", theme.GOOD) if run.state == "finished" else ("○", theme.DIM)


def _start_text(time: float, now: float) -> str:
    """Return day and time, `09-21 14:03`; for old runs the date with year."""
    text = units.moment(time)
    return text[5:16] if abs(now - time) < _YEAR else text[:10]
