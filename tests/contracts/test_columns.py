"""Columns of rows are described once, in `gpumon/model/columns.py`: every view shows their titles, units and digits."""

from __future__ import annotations

import csv
import io
import re
import runpy
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from gpumon.analysis.gpu_state import GpuState
from gpumon.analysis.gpu_status import gpu_statuses
from gpumon.common.clock import SECOND
from gpumon.common.config import read_prices
from gpumon.common.numbers import NAN, is_known
from gpumon.model import units
from gpumon.model.columns import (
    COSTS,
    EPOCHS,
    GPU_BY_KEY,
    GPUS,
    PROCESSES,
    RANKS,
    RUNS,
    TABLES,
    USAGE,
    USERS,
    Column,
    View,
    shown,
)
from gpumon.model.frame import RunState
from gpumon.model.metrics import BY_NAME as METRICS
from gpumon.model.metrics import GPU_INDEX, Unit
from gpumon.model.origin import Driver, Origin
from gpumon.reports import (
    charges,
    compare,
    epoch_export,
    epoch_text,
    html,
    processes,
    run_export,
    run_json,
    run_tables,
    status_details,
    status_text,
    usage,
)
from gpumon.reports.csv import BYTE_ORDER_MARK
from gpumon.reports.run_list import RUN_COLUMNS
from gpumon.reports.text_table import TextColumn
from gpumon.storage.history.buckets import DEFAULT_WINDOW
from gpumon.storage.ledger.aggregate import epoch_summaries, run_total
from gpumon.storage.ledger.reader import Ledger
from gpumon.storage.ledger.records import Record
from gpumon.storage.ledger.row_keys import WHOLE_RUN
from gpumon.storage.usage.account import Account, DeviceUse
from gpumon.storage.usage.period_totals import AccountGroup
from gpumon_tui import theme
from gpumon_tui.data.accounts import AccountRow
from gpumon_tui.data.processes import frame_facts
from gpumon_tui.data.run_reader import open_run
from gpumon_tui.render import accounts, gpu_columns, overview_rows, process_columns, run_detail, run_list
from gpumon_tui.render.gpu_row import GpuLine, gpu_row
from gpumon_tui.render.gpu_status import GpuHolder, GpuLabel
from gpumon_web.api import openapi
from gpumon_web.cluster import node as node_page
from gpumon_web.cluster import tables as cluster_tables
from gpumon_web.components import costs as web_costs
from gpumon_web.components import layout
from gpumon_web.components.machine import Now
from gpumon_web.components.user_rows import account_cells
from gpumon_web.fleet import make_gpu
from gpumon_web.pages import fleet as fleet_page
from gpumon_web.pages import gpu as gpu_page
from gpumon_web.pages import runs as runs_page
from gpumon_web.pages import users as users_page
from gpumon_web.stored import epoch_table
from tests.builders import frame_of, process, sample, tick
from tests.runs import BEGAN, GIB, Book, measured

ROOT = Path(__file__).parents[2]
ALL = [pytest.param(column, id=f"{title}: {column.key}") for title, columns in TABLES.items() for column in columns]


def repeated(texts: Iterable[str]) -> set[str]:
    every = [text for text in texts if text]
    return {text for text in every if every.count(text) > 1}


@pytest.mark.parametrize("title", TABLES)
def test_columns_of_a_table_are_told_apart(title: str) -> None:
    columns = TABLES[title]
    assert repeated(column.key for column in columns) == set()
    assert repeated(column.title for column in columns) == set()


@pytest.mark.parametrize("column", ALL)
def test_a_column_says_what_it_is(column: Column) -> None:
    assert column.title
    assert column.title[:1] == column.title[:1].upper()
    assert column.help.endswith(".")
    assert not re.search(r"\b[A-Z][a-z]{2,}", column.short), "lower case, but for abbreviations"
    assert column.keep >= 0


def test_the_page_on_columns_is_up_to_date() -> None:
    made = runpy.run_path(str(ROOT / "docs" / "generate.py"))["columns_page"]()
    page = (ROOT / "docs" / "reference" / "columns.md").read_text(encoding="utf-8")
    assert page == made, "docs/reference/columns.md is not what the tables say: run 'python docs/generate.py'"


RUN = "resnet50-1a2b"
NOW = BEGAN + 3600.0
Shown = Mapping[str, tuple[str, str]]
"""Titles and texts of an epoch in a view, by the keys of columns."""


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> Record:
    """A run of one epoch of which everything is known."""
    book = Book(tmp_path_factory.mktemp("ledger"))
    book.run(state=RunState.FINISHED, ended=(BEGAN + 10) * SECOND, updated=(BEGAN + 10) * SECOND)
    key = book.rank(RUN, state=RunState.FINISHED, ended=(BEGAN + 10) * SECOND, batch=32)
    uuid = book.device(key)
    peak = {"peak": 32 * GIB, "peak_reached": 1}
    book.epoch(key, 0, steps=123, metrics='{"loss": 0.5}', **peak)
    book.usage(key, 0, uuid, **measured(10.0, 0.9, throttled_share=0.03, energy_least=5000.0))
    book.usage(key, WHOLE_RUN, uuid, **measured(10.0, 0.9, throttled_share=0.03, energy_least=5000.0))
    with book, Ledger(str(book.path)) as ledger:
        return ledger.record(RUN)


def command(record: Record) -> Shown:
    columns, (row, *_) = run_tables.epoch_table(epoch_summaries(record), {}, run_total(record, epoch_summaries(record)))
    found = dict(zip((column.heading for column in columns), row, strict=True))
    return {column.key: (column.heading, found[column.heading]) for column in EPOCHS if column.heading in found}


def report(record: Record) -> Shown:
    page = html.page(record, [], NOW)
    table = page[page.index("<h2>Epochs</h2>") :]
    titles = re.findall(r"<th[^>]*>(.*?)</th>", table)
    found = dict(zip(titles, re.findall(r"<td[^>]*>(.*?)</td>", table), strict=False))
    return {column.key: (column.title, found[column.title]) for column in EPOCHS if column.title in found}


def terminal(record: Record) -> Shown:
    run = open_run(record, NOW)
    row = run_detail.row(run.rows[0], run_detail.row_scale(run))
    found = dict(zip((column.title for column in run_detail.columns(run, 200)), row, strict=True))
    return {column.key: (column.short, found[column.short].text) for column in EPOCHS if column.short in found}


def overview(record: Record) -> Shown:
    line = overview_rows.from_stretch(open_run(record, NOW).rows[0])
    columns = overview_rows.columns([line], ())
    texts = overview_rows.texts(line, columns, overview_rows.largest([line]))
    found = dict(zip((column.title for column in columns), (str(text[0]) for text in texts), strict=True))
    return {column.key: (column.short, found[column.short]) for column in EPOCHS if column.short in found}


_BROWSER: Mapping[str, Callable[[float], str]] = {
    "percent": lambda value: units.number(value, Unit.RATIO), "bytes": lambda value: units.number(value, Unit.BYTES),
    "joules": lambda value: units.energy_in_column(value, value), "lasting": units.fine_duration,
    "duration": units.fine_duration,
    "count": lambda value: units.number(value, Unit.COUNT), "celsius": lambda value: units.number(value, Unit.CELSIUS),
}  # fmt: skip
"""What the scripts write of values by kind: `test_numbers_are_the_same_text_in_a_page_as_everywhere_else` holds it."""


def browser(record: Record) -> Shown:
    epochs = epoch_summaries(record)
    run = {"user": "", "state": "finished"}
    cells = epoch_table.epoch_cells(epochs[0], run, epoch_table.largest_values(epochs))
    by_title = {column.title: column for column in epoch_table.EPOCHS}
    found = {}
    for column in EPOCHS:
        if column.title in by_title:
            kind, cell = by_title[column.title].kind, cells[by_title[column.title].key]
            text = cell[0]["line"][0]["text"] if kind == "rich" else cell if kind == "text" else _BROWSER[kind](cell)
            found[column.key] = column.title, text
    return found


def comparison(record: Record) -> Shown:
    lines = compare.compare([record, record]).lines
    return {one.measure.column.key: (one.measure.title, one.measure.texts(one.medians)[0]) for one in lines}


VIEWS: Mapping[str, tuple[View, Callable[[Record], Shown]]] = {
    "command": (View.COMMAND, command), "report": (View.COMMAND, report), "terminal": (View.TERMINAL, terminal),
    "overview": (View.TERMINAL, overview), "browser": (View.BROWSER, browser),
    "comparison": (View.COMPARE, comparison),
}  # fmt: skip


@pytest.mark.parametrize("name", VIEWS)
def test_a_column_of_epochs_is_the_same_in_every_view(record: Record, name: str) -> None:
    view, read = VIEWS[name]
    found = read(record)
    (epoch,) = epoch_summaries(record)
    largest = epoch_text.largest(EPOCHS, [epoch])
    assert {*found} == {column.key for column in shown(EPOCHS, view)}, "each that it shows, and no other"
    for column in shown(EPOCHS, view):
        title, text = found[column.key]
        assert title in (column.title, column.short, column.heading)
        assert plain(text) == plain(epoch_text.cell(column, epoch, largest)), column.key
        assert plain(text) != units.MISSING


def plain(text: str) -> str:
    """A text without its spaces: those before units and behind signs are left out where there is little room."""
    return text.replace(" ", "")


def test_every_column_of_epochs_has_a_value(record: Record) -> None:
    (epoch,) = epoch_summaries(record)
    assert [column.key for column in EPOCHS if not is_known(epoch_text.number(column.key, epoch))] == []


def test_files_have_each_column_of_epochs_by_its_key_and_unit(record: Record) -> None:
    (epoch,) = epoch_summaries(record)
    (row,) = csv.DictReader(io.StringIO("".join(epoch_export.lines(record)).lstrip(BYTE_ORDER_MARK)))
    assert {column.file_name for column in shown(EPOCHS, View.CSV)} <= row.keys()
    for column in shown(EPOCHS, View.CSV):
        assert float(row[column.file_name]) == pytest.approx(epoch.number(column.key)), column.key
    exported = {field.name for field in run_export.FIELDS}
    assert {column.file_name for column in USAGE} <= exported


def test_json_and_its_schema_have_each_column_of_epochs(record: Record) -> None:
    (epoch,) = epoch_summaries(record)
    (made,) = run_json.run_document(record, NOW)["epochs"]
    schema = run_json.RUN_SCHEMAS["run_epoch"]["properties"]
    for column in shown(EPOCHS, View.JSON):
        assert made[column.key] == pytest.approx(epoch.number(column.key)), column.key
        assert (schema[column.key]["title"], schema[column.key]["description"]) == (column.title, column.help)


def test_lists_of_runs_have_the_titles_of_the_table() -> None:
    command = [column.heading for column in RUN_COLUMNS]
    assert command == [column.heading for column in shown(RUNS, View.COMMAND)]
    terminal = {column.title for column in run_list.columns(200)} - {""}
    assert terminal == {column.short for column in shown(RUNS, View.TERMINAL)}
    browser = {column.title for column in runs_page.COLUMNS} - {"Compare"}
    assert browser == {column.title for column in shown(RUNS, View.BROWSER)} | {RUNS[0].title}


def test_tables_of_ranks_have_the_titles_of_the_table(record: Record) -> None:
    columns, _ = run_tables.rank_table(record)
    assert [column.heading for column in columns] == [column.heading for column in shown(RANKS, View.COMMAND)]
    assert [column.title for column in epoch_table.RANKS] == [column.title for column in shown(RANKS, View.BROWSER)]
    assert [column.title for column in run_detail.RANK_COLUMNS[:-1]] == [c.short for c in shown(RANKS, View.TERMINAL)]


def test_tables_of_processes_have_the_titles_of_the_table() -> None:
    headings = {column.heading for column in PROCESSES if View.COMMAND in column.views}
    commands = (*processes.COLUMNS, *status_details.COLUMNS)
    assert {column.heading for column in commands} == headings
    terminal = {column.title for column in process_columns.COLUMNS} - {""}
    named = {"GiB": "mem", " %": ""}  # numbers without a unit have it in their heading
    for unit, word in named.items():
        terminal = {title.replace(unit, word) for title in terminal}
    assert terminal == {column.short for column in shown(PROCESSES, View.TERMINAL)}
    titles = {column.title for column in gpu_page.COLUMNS if not column.each_of}
    video = {"Encoder", "Decoder"}  # columns that stand where some process uses them
    assert titles | video == {column.title for column in shown(PROCESSES, View.BROWSER)}


def test_tables_of_users_have_the_titles_of_the_table() -> None:
    command = {column.heading for column in usage.COLUMNS} - {""}
    assert command == {column.heading for column in shown(USERS, View.COMMAND)}
    every = accounts.columns("user", None, has_now=True, has_times=True)
    assert {column.title for column in every} - {""} == {column.short for column in shown(USERS, View.TERMINAL)}
    costs = {column.title for column in COSTS}
    titles = {column.title for column in users_page.COLUMNS} - {"Course"} - costs
    assert titles == {column.title for column in shown(USERS, View.BROWSER)}
    cluster = {column.title for column in cluster_tables.USERS} - {"Held, used"} - costs
    assert cluster == titles - {"Note"}


def test_costs_have_the_titles_of_the_table() -> None:
    prices = read_prices({"currency": "EUR", "gpu-hour": 3.0, "kwh": 0.3, "co2": 300})
    assert [column.heading for column in charges.columns(prices)] == [column.heading for column in COSTS]
    assert [column.title for column in web_costs.COSTS] == [column.title for column in COSTS]


GPU = sample(
    0, utilization=0.97, memory_used=37 * GIB, memory_total=80 * GIB, power=212.0, power_limit=700.0, temperature=66.0,
    clock_sm=1.98e9, fan=0.41, encoder_utilization=0.07, decoder_utilization=0.02, performance_state=2.0,
)  # fmt: skip
RATES = {"pcie_received": 3.2 * GIB, "pcie_sent": 1.5 * GIB}
UNIT_SIGNS = {
    Unit.RATIO: "%", Unit.BYTES: "GiB", Unit.BYTES_PER_SECOND: "GiB/s", Unit.WATTS: "W", Unit.CELSIUS: "°C",
    Unit.HERTZ: "GHz",
}  # fmt: skip


def gpus_in_command() -> Shown:
    """`gpumon status` has no headings: its columns are in the order of the table."""
    frame = frame_of(tick(1, [GPU], processes=[process()]))
    line = list(status_text.lines(frame, Origin("nvml"), Driver(), "node", "", width=200))[1]
    texts = re.split(r"  +", line.strip())
    return {column.key: (column.heading, text) for column, text in zip(shown(GPUS, View.COMMAND), texts, strict=True)}


def gpus_in_terminal() -> Shown:
    columns = gpu_columns.gpu_columns(230, reported=frozenset(gpu_columns.OPTIONAL_COLUMNS))
    head = "".join(segment.text for segment in gpu_columns.gpu_heading(columns, 600.0, {80.0}))
    label, nobody = GpuLabel("busy", theme.GOOD, True), GpuHolder("", False, "", ())
    rates = RATES["pcie_received"], RATES["pcie_sent"]
    gpu = GpuLine(GPU, GpuState.BUSY, label, "", nobody, NAN, *rates, [])
    cells, found = gpu_row(gpu, columns), {}
    for (_, begin, column), cell in zip(columns.placed, cells, strict=True):
        if column.key in ("utilization", "memory_used", *gpu_columns.NUMBERS):
            text = cell.text or "".join(part.text for part in cell.parts)
            found[column.key] = head[begin : begin + column.cells].strip(), text.strip(" ▆▁%")
    holder = columns.placed[-1].begin
    assert {key: head[holder + x :].split("  ")[0] for key, x in (("user", 1), ("run", columns.run))} == {
        key: GPU_BY_KEY[key].short for key in ("user", "run")
    }
    return found


def gpus_in_browser() -> Shown:
    frame = frame_of(tick(1, [GPU], processes=[process()]))
    (status,) = gpu_statuses(frame, [])
    values = dict(zip(GPU_INDEX, GPU.values, strict=True))
    cells = fleet_page.row(replace(make_gpu(status, []), values=values, counted=values), Now())
    keys = {"utilization": "now", "memory_used": "memory"}
    by_cell = {column.key: column for column in fleet_page.COLUMNS}
    found = {}
    for column in shown(GPUS, View.BROWSER):
        if column.unit is not None:
            place = by_cell[keys.get(column.key, column.key)]
            cell = cells[place.key]
            text = (
                cell["used"] if place.kind == "memory" else cell if place.kind == "text" else _BROWSER[place.kind](cell)
            )
            assert place.help == column.help
            assert place.csv in ("", column.file_name)
            found[column.key] = place.title, text
    return found


@pytest.mark.parametrize(
    ("view", "read"),
    [(View.COMMAND, gpus_in_command), (View.TERMINAL, gpus_in_terminal), (View.BROWSER, gpus_in_browser)],
    ids=["command", "terminal", "browser"],
)
def test_a_column_of_gpus_is_the_same_in_every_view(view: View, read: Callable[[], Shown]) -> None:
    found = read()
    numbers = {column.key: column for column in shown(GPUS, view) if column.unit is not None}
    numbers.pop("left", None)  # its run has no end here
    assert numbers.keys() <= found.keys()
    for column in numbers.values():
        title, text = found[column.key]
        value = RATES[column.key] if column.key in RATES else GPU.value(column.metric)
        assert title.removesuffix(" of 80") in (column.title, column.short, column.heading, column.heading_with_unit)
        if column.key == "performance_state":
            assert text == units.performance_state(value)
        elif view is View.TERMINAL:
            number = plain(column.write(value)).removesuffix(UNIT_SIGNS[column.unit])
            assert text.removesuffix("%") == number
        else:
            assert re.sub(r"/[\d.]+", "", plain(text)) == plain(column.write(value)), "without its limit"


def test_a_column_of_a_metric_has_its_unit_and_meaning() -> None:
    described = openapi.schemas()["gpu"]["properties"]
    page = (ROOT / "docs" / "reference" / "columns.md").read_text(encoding="utf-8")
    for column in GPUS:
        if column.unit is not None and column.metric:
            metric = METRICS[column.metric]
            assert (column.key, column.help) == (metric.key, metric.help)
            assert (described[column.key]["title"], described[column.key]["description"]) == (metric.title, column.help)
            assert (
                f"| {column.title} | `{column.short}` | `{column.key}` | {column.unit.value} | {column.help} |" in page
            )


def test_tables_of_gpus_have_the_titles_of_the_table() -> None:
    titles = {column.title for column in fleet_page.COLUMNS} - {DEFAULT_WINDOW.title}
    table = {column.title for column in shown(GPUS, View.BROWSER)}
    assert titles == table - {GPU_BY_KEY["history"].title}, "whose title is its window"
    node = {column.title for column in node_page.COLUMNS} - {"Used"}
    assert node <= {column.title for column in (*GPUS, RUNS[0])}


PROCESS = process(
    1048576, memory_used=37 * GIB, sm_utilization=0.97, memory_utilization=0.51, encoder_utilization=0.07,
    decoder_utilization=0.02, cpu_utilization=1.5, host_memory=3.2 * GIB,
)  # fmt: skip


def processes_in_command() -> Shown:
    frame = frame_of(tick(1, [GPU], processes=[PROCESS]))
    _, head, row = (re.split(r"  +", line.strip()) for line in status_details.process_lines(frame))
    return by_heading(status_details.COLUMNS, PROCESSES, zip(head, row, strict=False))


def processes_in_terminal() -> Shown:
    facts = frame_facts([GPU], [], NOW)
    cells = ((column.title, column.cell(PROCESS, facts).text) for column in process_columns.COLUMNS)
    titles = {column.heading_with_unit: column.key for column in PROCESSES if View.TERMINAL in column.views}
    return {titles[title]: (title, text) for title, text in cells if title}


def processes_in_browser() -> Shown:
    frame = frame_of(tick(1, [GPU], processes=[PROCESS]))
    (status,) = gpu_statuses(frame, [])
    (one,) = status.processes
    cells = gpu_page.process_cells(one, None, {})
    titles = {column.title: column.key for column in PROCESSES}
    found = {}
    for column in gpu_page.COLUMNS:
        if column.kind in ("text", *_BROWSER) and not column.each_of:
            cell = cells[column.key]
            found[titles[column.title]] = (
                column.title,
                _BROWSER[column.kind](cell) if column.kind != "text" else str(cell),
            )
    return found


def by_heading(columns: Sequence[TextColumn], table: Sequence[Column], texts: Iterable[tuple[str, str]]) -> Shown:
    keys = {column.heading: column.key for column in table}
    headings = {column.heading for column in columns}
    return {keys[heading]: (heading, text) for heading, text in texts if heading in headings}


@pytest.mark.parametrize(
    ("view", "read"),
    [
        (View.COMMAND, processes_in_command),
        (View.TERMINAL, processes_in_terminal),
        (View.BROWSER, processes_in_browser),
    ],
    ids=["command", "terminal", "browser"],
)
def test_a_number_of_a_process_is_the_same_in_every_view(view: View, read: Callable[[], Shown]) -> None:
    found = read()
    measured = {"pid", "memory_used", "sm_utilization", "cpu_utilization"}
    assert measured <= found.keys()
    for column in shown(PROCESSES, view):
        if column.key in found and column.unit is not None and is_known(getattr(PROCESS, column.key, NAN)):
            text, value = plain(found[column.key][1]), getattr(PROCESS, column.key)
            whole = plain(column.write(value))
            sign = UNIT_SIGNS.get(column.unit, "") if view is View.TERMINAL else ""
            assert text == whole.removesuffix(sign), column.key


def test_a_number_of_a_user_is_the_same_in_every_view() -> None:
    account = Account("ada", 7300.0, 7300.0, 5400.0, 1900.0, 7300.0, 4.5e6)
    values = {**account._asdict(), "used": account.busy / account.held}
    group = AccountGroup(0.0, 86400.0, None, [account], Account(""), DeviceUse(*[86400.0] * 3), 0.0)
    _, head, row, *_ = (re.split(r"  +", line.strip()) for line in usage.lines([group], "user"))
    command = by_heading(usage.COLUMNS, USERS, zip(head, row, strict=True))
    place = accounts.AccountLine(AccountRow("ada", 0.0, account, None, unseen=7200.0), 1.0, "", NAN)
    columns = accounts.columns("user", None, has_now=False, has_times=True)
    cells = [(column.title, column.cell(place, frame_facts([GPU], [], NOW)).text) for column in columns]
    keys = {column.short: column.key for column in USERS}
    terminal = {keys[title]: (title, text) for title, text in cells if title}
    web = account_cells(account, {}, account.held)
    browser = {
        "held": web["held"][0]["line"][0]["text"], "used": web["used"], "idle_held": web["idle"],
        "energy": web["energy"],
    }  # fmt: skip
    values["unseen"] = 7200.0
    for column in USERS:
        if column.unit is None or column.key == "now":
            continue
        texts = [found[column.key][1] for found in (command, terminal) if column.key in found]
        texts += [browser[column.key]] if column.key in browser else []
        assert texts
        assert set(texts) == {column.write(values[column.key])}, column.key


def test_json_has_the_titles_of_processes() -> None:
    fields = openapi.schemas()["process"]["properties"]
    kept = {"first", "last", "held", "memory_peak"}  # only `gpumon history processes --json` has these
    for column in shown(PROCESSES, View.JSON):
        if column.key not in kept:
            assert (fields[column.key]["title"], fields[column.key]["description"]) == (column.title, column.help)


def test_a_table_is_sorted_in_the_direction_of_its_column() -> None:
    terminal = [
        (PROCESSES, process_columns.COLUMNS, lambda column: column.heading_with_unit),
        (USERS, accounts.columns("user", None, has_now=True, has_times=True), lambda column: column.short),
    ]
    for table, columns, title in terminal:
        falls = {title(column): column.falls for column in table}
        assert {c.title: c.falls for c in columns if c.order and c.title} == {
            c.title: falls[c.title] for c in columns if c.order and c.title
        }
    assert {order.key: order.falls for order in run_list.ORDERS} == {
        order.key: {column.key: column.falls for column in RUNS}[order.key] for order in run_list.ORDERS
    }
    browser = [
        (PROCESSES, gpu_page.COLUMNS), (GPUS, fleet_page.COLUMNS), (RUNS, runs_page.COLUMNS),
        (USERS, users_page.COLUMNS), (RANKS, epoch_table.RANKS), (TABLES["Epochs"], epoch_table.EPOCHS),
    ]  # fmt: skip
    for table, shown_columns in browser:
        falls = {column.title: column.falls for column in table}
        head = layout.table("rows", "Rows", shown_columns, shown_columns[0].key).children.children[1].children
        for column, heading in zip(shown_columns, head.children, strict=True):
            if column.sort and column.title in falls:
                assert bool(heading.to_plotly_json()["props"]["data-falls"]) == falls[column.title], column.title
