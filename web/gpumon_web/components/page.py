"""The parts of a web page: its address, its layout of Dash components, and pure functions from data to values.

A module of a page imports Dash inside of `layout` alone: the process that reads the ledger imports these modules too,
and has to stay small.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from gpumon.model import columns
from gpumon.model.columns import Form
from gpumon.model.metrics import Unit

if TYPE_CHECKING:
    from dash.development.base_component import Component

    from gpumon_web.cluster.known import ClusterNow

Args = Mapping[str, str]
"""Arguments of an address, with the page's defaults filled in."""
Cells = dict[str, Any]
"""Values by name: of a page, or of a row, as JSON has them."""

NUMBERS = frozenset({
    "count", "percent", "bytes", "watts", "celsius", "gigahertz", "joules", "duration", "span", "elapsed", "lasting",
    "logged",
})  # fmt: skip
"""Kinds of values that stand at the right of a column, and sort from the largest first."""
KINDS = NUMBERS | {
    "text", "mono", "age", "state", "standing", "places", "tag", "person", "link", "bar", "parts", "memory", "rich",
    "notes", "checks", "spark", "strip", "ticks", "choices", "download", "when", "pick", "day", "mine",
    "filters", "tiles", "nodes", "away", "tick", "picked", "asked", "opening",
}  # fmt: skip
"""Kinds of values that the scripts can show (assets/25-kinds.js)."""


class Column(NamedTuple):
    """A column of a table: the cell that it shows, its heading, and its kind."""

    key: str
    title: str
    kind: str = "text"
    help: str = ""
    sort: bool = True
    css: str = ""
    sorts_by: str = ""
    """Another cell of the row to order by."""
    falls: bool | None = None
    """Whether the largest stand first when somebody sorts by it; None: as numbers do."""
    is_head: bool = False
    """It names the row, for screen readers too."""
    is_number: bool = False
    """It stands at the right though its kind does not say so."""
    small_unit: str = ""
    """`unit`: the unit is smaller than the number; `big`: so, and the number is large."""
    most: str = ""
    """The value that is the largest of the column, so that all its cells have one unit."""
    titled: str = ""
    """The value that is its heading instead, where there is one."""
    each_of: str = ""
    """The value that names the columns in its place: one for each name, whose cells are under it in the row's cell."""
    needs: str = ""
    """The value without which it is not shown."""
    csv_list: str = ""
    """Name of a list in the row that a file has as a column of its own before this one, separated by semicolons."""
    csv: str = ""
    """Its name in a file, with the unit, where the file has the cell that it is ordered by: `power_watts`."""


_KINDS: Mapping[Unit | None, str] = {
    Unit.RATIO: "percent", Unit.BYTES: "bytes", Unit.SECONDS: "duration", Unit.JOULES: "joules", Unit.WATTS: "watts",
    Unit.CELSIUS: "celsius", Unit.HERTZ: "gigahertz", Unit.COUNT: "count",
}  # fmt: skip
"""Kinds of the numbers of a unit; others are words, which Python writes."""
_WRITTEN = ("text", "rich", "memory")
"""Kinds of cells that have words for a number."""
_LEAVES = ((85, ""), (70, "c-extra"), (55, "c-rare"))
"""Classes of columns by the importance that they have at least; the first to leave have another one."""


def described(
    column: columns.Column, kind: str = "", *, key: str = "", css: str | None = None, **layout: Any
) -> Column:
    """A column of `model.columns`: what it says of it, and how this view shows it.

    Where the cell has words for a number, rows are sorted, and saved in files, by the number itself: it stands in
    another cell of the row, which has the column's name in files.
    """
    kind = kind or ("text" if column.form in (Form.FINE, Form.ID, Form.TOTAL) else _KINDS.get(column.unit, "text"))
    if css is None:
        css = next((css for least, css in _LEAVES if column.keep >= least), "c-less")
    if kind in _WRITTEN and column.unit is not None and "sorts_by" not in layout:
        layout = {"csv": column.file_name, **layout, "sorts_by": column.file_name}
    return Column(
        key or column.key, column.title, kind, column.help, css=css, is_number=column.is_number,
        falls=column.falls, **layout
    )  # fmt: skip


class Rows(list[Cells]):
    """Rows of a table, each with a `key`: a type of its own, so that a table without rows is one too."""


class Gpu(NamedTuple):
    """A GPU as pages see it."""

    about: Cells
    """Data that rarely changes: card, state, holders, processes."""
    values: Mapping[str, float | None]
    """The newest value of each metric, of an earlier moment where the GPU does not answer; None: unknown."""
    counted: Mapping[str, float | None]
    """The same for sums: empty where the GPU does not answer."""
    mean: tuple[float, float] | None
    """Utilization over the last ten minutes, and of how many seconds of them it is known."""


class Now(NamedTuple):
    """All that pages know at one tick."""

    time: float = 0.0
    """Seconds since 1970 of the newest frame; 0 before the first."""
    gpus: Sequence[Gpu] = ()
    runs: Mapping[str, Cells] = MappingProxyType({})
    """By id, those that the ring knows."""
    findings: Sequence[Cells] = ()
    """Sentences for the reader's attention."""
    not_judged: Sequence[str] = ()
    """In words, what no rule could judge."""
    processes_known: bool = True
    """False of a source that does not tell which processes ran."""
    host: Mapping[str, float | None] = MappingProxyType({})
    """The machine's own numbers; of counters, their rates."""
    driver: str = ""
    problem: str = ""
    """The reason why there is no GPU."""
    notice: str = ""
    """Processes that cannot be seen, and why, in one sentence."""
    cluster: ClusterNow | None = None
    """The whole cluster, on pages of one."""

    def runs_of(self, gpu: Gpu) -> list[Cells]:
        """The runs on a GPU."""
        return [self.runs[run] for run in gpu.about["runs"] if run in self.runs]


class Kept(Enum):
    """The subject of what is kept, for `kept` of a page; the value names it in a sentence."""

    RUNS = "the list of runs"
    RUN = "this run"
    """The one that the argument `id` names, on the device `gpu`."""
    COMPARED = "these runs"
    """Those that `runs` names, on the axis `by`."""
    ACCOUNTS = "this window"
    """Users' time on the GPUs in the window that `period`, `day` and `zone` name."""
    EVENTS = "the events"
    """Events of the last `days`."""
    DAY = "the last 24 hours"
    """Holders of each GPU in the last 24 hours."""


class KeptValues(NamedTuple):
    """The part of a page that comes from the ledger."""

    values: Cells
    """Values by name; `Rows` fill the table of that name. One that `live` gives too counts where that is None."""
    figures: Mapping[str, Cells | None] = MappingProxyType({})
    """Charts by name; None: there is nothing to draw."""
    totals: Mapping[str, int] = MappingProxyType({})
    """The number of rows of tables of which only the newest are among `values`."""
    again: float = 10.0
    """Seconds after which it is worth asking again."""
    unread: str = ""
    """Why what is kept cannot be read now, in a sentence: a page that has read it before keeps what it shows."""


def _no_values(now: Now, args: Args) -> Cells:
    return {}


def _no_series(now: Now, args: Args) -> Mapping[str, tuple[str, str]]:
    return {}


class Page(NamedTuple):
    """One page. `live` gives values by name; `Rows` fill the table of that name."""

    name: str
    """The first part of the address behind `#/`."""
    title: str
    layout: Callable[[], Component]
    live: Callable[[Now, Args], Cells] = _no_values
    kept: Callable[[Cells], KeptValues] | None = None
    """Further values from a document of what is kept; made in another process, asked for seldom."""
    rest: Callable[[Cells], KeptValues] | None = None
    """All rows of the tables of which `kept` gives the newest, for whoever wants to see them."""
    kept_of: Kept = Kept.RUNS
    """The subject of these documents."""
    series: Callable[[Now, Args], Mapping[str, tuple[str, str]]] = _no_series
    """Lines that grow: name -> (UUID of a GPU, metric)."""
    has_past: bool = False
    """A viewer gets the last ten minutes of its lines when it opens the page."""
    args: Args = MappingProxyType({})
    """Arguments of its address, and what they are where it does not say."""
    kept_args: Args = MappingProxyType({})
    """Further ones, that only what the ledger keeps depends on."""
    subject: tuple[str, ...] = ("id",)
    """Those of `args` that its values depend on; the others change what is shown of them."""
    tab: str = ""
    """The tab that is marked while it is shown; its own where empty and `is_tab`."""
    is_tab: bool = True
    needs_id: bool = False
    """An address that names nothing leads to the page of its tab."""
    without_gpus: str = ""
    """The page that takes its place on a machine without a GPU."""
