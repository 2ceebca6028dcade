"""Rows of the list of runs: those that go on, as frames tell, and those of the ledger."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from rich.segment import Segment
from rich.style import Style

from gpumon import units
from gpumon.analysis.epochs import Epochs
from gpumon.analysis.progress import progress
from gpumon.analysis.ranks import Ranks
from gpumon.diagnosis.finding import Severity
from gpumon.frame import NAN, RunState
from gpumon.metrics import Unit
from gpumon.missing import is_known
from gpumon_tui import palette, theme
from gpumon_tui.renderables.runs import ENDED_BADLY
from gpumon_tui.renderables.table import Cell, Row, TableColumn
from gpumon_tui.renderables.text_width import Line, safe

if TYPE_CHECKING:
    from gpumon_tui.run_reading import ListedRun, RunDetail

BAR = 10
_YEAR = 300 * 86400
"""Seconds for which a day needs no year."""
SEVERE: Mapping[Severity | None, Style] = {
    None: theme.DIM, Severity.INFO: theme.DIM, Severity.WARNING: theme.WARN, Severity.CRITICAL: palette.ink("crit"),
}  # fmt: skip


class ShownRun(NamedTuple):
    """A run of the list, wherever it is known from."""

    id: str
    name: str
    user: str
    state: str
    is_over: bool
    ended_badly: bool
    gpus: int
    done: str
    share: float
    started: float
    seconds: float
    left: float
    utilization: float
    energy: float
    text: str
    """All that a filter looks in."""
    is_kept: bool
    """Whether a ledger has it."""
    metric: str = ""
    """The last of what it logs, of one that frames tell of."""


class Order(NamedTuple):
    """An order of the list."""

    name: str
    column: str
    """Title of the column that shows it."""
    key: Callable[[ShownRun], Any]
    falls: bool = True
    """Whether the latest, the largest or the worst stand first."""


def _high(value: float) -> float:
    return -value if is_known(value) else NAN


def _last(value: float) -> tuple[bool, float]:
    """A key by which the unknown comes last."""
    return not is_known(value), value


ORDERS = (
    Order("newest first", "began", lambda run: (run.is_over, -run.started)),
    Order("by name", "run", lambda run: (run.name.casefold(), -run.started), falls=False),
    Order("by user", "user", lambda run: (run.user.casefold(), -run.started), falls=False),
    Order("longest first", "took", lambda run: _last(_high(run.seconds))),
    Order("most energy first", "energy", lambda run: _last(_high(run.energy))),
    Order("least utilized first", "util", lambda run: _last(run.utilization), falls=False),
    Order("worst end first", "verdict", lambda run: (not run.ended_badly, run.state, -run.started)),
)
"""The orders, in the turn in which a key takes them."""


def of_ledger(run: ListedRun) -> ShownRun:
    """A run as a ledger tells of it."""
    return ShownRun(
        id=run.id, name=run.name, user=run.user, state=run.state, is_over=run.is_over or run.state == "unseen",
        ended_badly=run.ended_badly, gpus=run.gpus, done=run.done, share=run.share, started=run.started,
        seconds=run.seconds, left=NAN, utilization=run.utilization, energy=run.energy, text=run.text, is_kept=True,
    )  # fmt: skip


def of_frame(ranks: Ranks, kept: ListedRun | None, epochs: Epochs, now: float) -> ShownRun:
    """A run as the frame on screen tells of it, with what a ledger knows besides."""
    first, slowest, far = ranks.first, ranks.slowest, progress(ranks, epochs, now)
    name = next(iter(sorted(first.metrics, key=lambda name: "loss" not in name.casefold())), "")
    is_over = ranks.state is not RunState.RUNNING
    state = ranks.state.name.lower()
    return ShownRun(
        id=first.id, name=first.name, user=first.user, state=state, is_over=is_over,
        ended_badly=ranks.state in ENDED_BADLY, gpus=len(ranks.gpus),
        done=units.epoch_place(slowest.epoch, slowest.epochs, slowest.base) if slowest.epoch >= 0 else first.step_text
        if first.facts.planned_steps > 0 else units.MISSING,
        share=far.done, started=first.started, seconds=max(0.0, (first.updated if is_over else now) - first.started),
        left=NAN if is_over else far.left, utilization=kept.utilization if kept else NAN,
        energy=kept.energy if kept else NAN,
        text=" ".join((first.name, first.id, first.user, state, *(kept.tags if kept else ()))).casefold(),
        is_kept=kept is not None, metric=f"{name} {units.plain(first.metrics[name])}" if name else "",
    )  # fmt: skip


def matching(runs: Sequence[ShownRun], words: str) -> list[ShownRun]:
    """The runs in which every word is found: in name, id, user, state or a tag."""
    wanted = words.casefold().split()
    return [run for run in runs if all(word in run.text for word in wanted)] if wanted else list(runs)


def columns(cells: int) -> tuple[TableColumn, ...]:
    """The columns for a page of so many cells."""
    name = 12 if cells < 50 else 14 if cells < 70 else 18 if cells < 200 else 26
    return (
        TableColumn("", 1, keep=100),
        TableColumn("run", name, keep=99),
        TableColumn("ID", 22, keep=10),
        TableColumn("user", 8, keep=70),
        TableColumn("GPUs", 4, right=True, keep=40),
        TableColumn("began", 11, right=True, keep=65),
        TableColumn("progress", BAR, keep=20),
        TableColumn("epoch", 7 if cells < 50 else 9, right=True, keep=95),
        TableColumn("took", 7, right=True, keep=85),
        TableColumn("left", 7, right=True, keep=60),
        TableColumn("util", 4, right=True, keep=80),
        TableColumn("wait", 4, right=True, keep=50),
        TableColumn("energy", 9, right=True, keep=75),
        TableColumn("metric", 12, keep=55),
        TableColumn("verdict", 0, keep=90),
    )


def row(run: ShownRun, detail: RunDetail | None, now: float, *, is_open: bool) -> Row:
    """A run in a row; `detail` is known a moment later."""
    quiet = theme.DIM if run.is_over else theme.PLAIN
    told = detail is not None and (detail.severity is not None or not run.state or run.state == "finished")
    verdict = detail.verdict if told and detail is not None and detail.verdict else run.state
    severity = detail.severity if detail is not None else Severity.CRITICAL if run.ended_badly else None
    wait = detail.wait if detail is not None else NAN
    metric = run.metric or (detail.metric if detail is not None else "")
    strong = palette.ink("strong", bold=True)
    return (
        Cell(*mark(run)),
        Cell(safe(run.name), theme.RUN if not run.is_over else strong if is_open else theme.PLAIN),
        Cell(safe(run.id), theme.FAINT),
        Cell(safe(run.user), theme.DIM),
        Cell(str(run.gpus or units.MISSING), quiet),
        Cell(_began(run.started, now), theme.DIM),
        Cell("", parts=thin(run.share, BAR, theme.FAINT if run.is_over else theme.RUN)),
        Cell(run.done, theme.PLAIN if run.is_over else strong),
        Cell(units.span(run.seconds)),
        Cell(units.duration(run.left) if is_known(run.left) else ""),
        Cell(units.percent(run.utilization)),
        Cell(units.percent(wait) if detail is not None else ""),
        Cell(units.number(run.energy, Unit.JOULES)),
        Cell(safe(metric)),
        Cell(safe(verdict), SEVERE[severity]),
    )


def mark(run: ShownRun) -> tuple[str, Style]:
    """The glyph of a run's state, and its style: the state stands in words beside it."""
    if run.ended_badly:
        return "▲", palette.ink("crit", bold=True)
    if not run.is_over:
        return "▸", palette.ink("run", bold=True)
    return ("●", theme.GOOD) if run.state == "finished" else ("○", theme.DIM)


def thin(share: float, cells: int, style: Style) -> Line:
    """Progress as a heavy line, by halves of a cell; nothing where there is no plan."""
    if not is_known(share):
        return [Segment(" " * cells)]
    halves = round(min(1.0, max(0.0, share)) * 2 * cells)
    full, half = divmod(halves, 2)
    return [
        Segment("━" * full + "╸" * half, style), Segment("━" * (cells - full - half), theme.TRACK),
    ]  # fmt: skip


def _began(time: float, now: float) -> str:
    """Day and time of day, `09-21 14:03`; of what began long ago the date."""
    text = units.moment(time)
    return text[5:16] if abs(now - time) < _YEAR else text[:10]
