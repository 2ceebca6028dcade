"""The tables of one run as text: its epochs, their phases, and its ranks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from gpumon.common.config import Prices
from gpumon.common.numbers import is_known
from gpumon.common.text import cut
from gpumon.cost import NO_CHARGE, Charge
from gpumon.model import units
from gpumon.model.columns import EPOCHS, RANKS, RUNS, USAGE, View, shown
from gpumon.model.frame import TRAINING, RunState
from gpumon.model.metrics import Unit
from gpumon.model.run import Parameter
from gpumon.model.units import AT_LEAST
from gpumon.reports import charges, epoch_text
from gpumon.reports.text_table import TextColumn, distinct, draw, text_column
from gpumon.storage.ledger.aggregate import between_epochs, is_worth_a_row, outside_phases, step_summaries, steps_text
from gpumon.storage.ledger.combine import totals
from gpumon.storage.ledger.records import NoteRow, RankRow, Record, RunMetadata, RunRow, RunSummary, UsageRow
from gpumon.storage.ledger.row_keys import OTHER, STEP_ROWS, WHOLE_EPOCH, WHOLE_RUN
from gpumon.storage.ledger.summary import EpochSummary, EpochSums

COMMIT_LETTERS = 10
"""Of a commit's id, as people see it."""
_SHOWN = 12
"""Parameters in the head of a run; `--json` and the report have all."""
_WIDE = 40
_UNKNOWN = " (whether files were changed since is unknown)"


def about_lines(about: RunMetadata) -> Iterator[str]:
    """Yield the particulars in a few lines: tags, program, parameters, notes."""
    if about.tags:
        yield f"tags: {', '.join(about.tags)}"
    if about.program:
        yield "  ·  ".join(program_words(about.program))
    if about.config:
        shown = [f"{name} {cut(written(value), _WIDE)}" for name, value in [*about.config.items()][:_SHOWN]]
        more = len(about.config) - len(shown)
        yield "config: " + "  ·  ".join([*shown, *([f"and {more} more (--json)"] if more else [])])
    if about.omitted:
        yield f"{units.count(about.omitted)} of the parameters and notes had no room and were not kept"
    for note in about.notes:
        yield f"note: {note.text}{_by(note)}"


def program_words(program: Mapping[str, Parameter]) -> Iterator[str]:
    """Yield script, commit and versions as people read them."""
    for name, value in program.items():
        if name == "commit":
            dirty = program.get("dirty")
            state = ", with uncommitted changes" if dirty is True else "" if dirty is False else _UNKNOWN
            yield f"commit {written(value)[:COMMIT_LETTERS]}{state}"
        elif name == "script":
            yield written(value)
        elif name != "dirty":
            yield f"{name} {written(value)}"


def written(value: Parameter) -> str:
    """A value as people read it."""
    if value is None or isinstance(value, bool):
        return str(value).lower() if value is not None else "none"
    return f"{value:g}" if isinstance(value, float) and float(f"{value:g}") == value else str(value)


def about_json(about: RunMetadata) -> dict[str, Any]:
    """The particulars for programs."""
    notes = [
        {"time": note.time if is_known(note.time) else None, "text": note.text, "author": note.author or None}
        for note in about.notes
    ]
    return {
        "config": dict(about.config), "program": dict(about.program), "tags": list(about.tags), "notes": notes,
        "omitted": about.omitted,
    }  # fmt: skip


def config_table(about: RunMetadata) -> tuple[Sequence[TextColumn], list[tuple[str, str]]]:
    """The parameters as a table: its columns and rows."""
    columns = (TextColumn("NAME", 100, right=False), TextColumn("VALUE", 90, right=False))
    return columns, [(name, written(value)) for name, value in about.config.items()]


def _by(note: NoteRow) -> str:
    return f" ({note.author}, {units.moment(note.time)})" if note.author else ""


_ROOM = {
    "id": (49, 17), "name": (24, 0), "user": (16, 6), "tags": (32, 0), "resumes": (49, 0), "hostname": (24, 0),
    "framework": (16, 0),
}  # fmt: skip
"""The widest and the narrowest that columns of text become."""
_RUNS = shown(RUNS, View.COMMAND)
RUN_COLUMNS = tuple(text_column(column, *_ROOM.get(column.key, (0, 0))) for column in _RUNS)
_COSTS_AT = [column.key for column in _RUNS].index("energy") + 1
"""Place of the columns of costs, where there are any."""


def lines(
    runs: Sequence[RunSummary], now: float, width: int, prices: Prices | None = None,
    costs: Mapping[str, Charge] | None = None,
) -> Iterator[str]:  # fmt: skip
    """A line for each run under a heading, at most `width` cells wide (0: as wide as it gets).

    `costs`: charges by the id of a run, which have columns where there are `prices`.
    """
    if prices is None or costs is None:
        yield from draw(RUN_COLUMNS, [*_rows(runs, now)], width)
        return
    rows = []
    for listed, row in zip(runs, _rows(runs, now), strict=True):
        rows.append((*row[:_COSTS_AT], *charges.cells(costs.get(listed.run.id, NO_CHARGE), prices), *row[_COSTS_AT:]))
    yield from draw((*RUN_COLUMNS[:_COSTS_AT], *charges.columns(prices), *RUN_COLUMNS[_COSTS_AT:]), rows, width)


def state(run: RunRow, now: float) -> str:
    """Return the state of a run as one word."""
    return "unseen" if run.unseen_seconds(now) else run.state.name.lower()


def place(listed: RunSummary) -> str:
    """Return the epoch in which a run is or ended, as all views count it: `12/90`, whether or not that was done."""
    return units.epoch_position(listed.newest, listed.run.epochs, listed.run.base)


def _rows(runs: Sequence[RunSummary], now: float) -> Iterator[tuple[str, ...]]:
    lacks = [not is_known(listed.energy) and is_known(listed.energy_least) for listed in runs]
    joules = [listed.energy_least if lack else listed.energy for listed, lack in zip(runs, lacks, strict=True)]
    for listed, lack, energy in zip(runs, lacks, units.energy_column(joules), strict=True):
        yield _run_row(listed, f"{units.AT_LEAST}{energy}" if lack else energy, now)


def _run_row(listed: RunSummary, energy: str, now: float) -> tuple[str, ...]:
    run = listed.run
    cells = {
        "id": run.id, "name": run.name if run.name not in run.id else "", "user": run.user,
        "started": units.age(run.started, now), "seconds": units.fine_duration(run.duration(now)),
        "state": state(run, now),
        "epoch": place(listed), "gpus": str(listed.gpus or units.MISSING),
        "utilization_mean": units.percent(listed.utilization), "energy": energy, "tags": ", ".join(listed.tags),
        "resumes": run.resumes, "hostname": run.hostname, "framework": run.framework or run.label,
    }  # fmt: skip
    return tuple(cells[column.key] for column in _RUNS)


OPEN = " …"
"""Behind the number of an epoch that has not ended."""
BETWEEN = "between"
"""The row of all that lies outside epochs."""
_NAME_WIDTH = 16
"""Cells of a metric's name."""
_METRICS = 8
"""Logged metrics that get a column."""

TitledRow = tuple[str, EpochSummary]
"""The first cell of a row, and the stretch of time that it shows."""

_EPOCHS = shown(EPOCHS, View.COMMAND)
_FIRST = {word: TextColumn(word, 100, right=False, most=24) for word in ("EPOCH", "STEP", "PHASE", "RUN")}
"""The first column, by what the rows are of."""
_RANKS = tuple(map(text_column, shown(RANKS, View.COMMAND)))


def epoch_table(
    epochs: Sequence[EpochSummary],
    phases: Mapping[int, Sequence[EpochSummary]],
    total: EpochSummary,
    outside: Sequence[TitledRow] = (),
    costs: Sequence[TextColumn] = (),
    priced: Callable[[EpochSummary], Sequence[str]] = lambda _: (),
) -> tuple[list[TextColumn], list[tuple[str, ...]]]:
    """The columns and rows of the table of epochs; a phase is a row whose first cell is indented.

    `outside`: the rows of `outside_rows`; `costs`: columns of what has a price, of which `priced` gives the cells.
    """
    stretches = (*epochs, *(row for _, row in outside), total)
    names = list(dict.fromkeys(name for stretch in stretches for name in stretch.metrics))[:_METRICS]
    logged = [TextColumn(text, 88 if i == 0 else 56 - i) for i, text in enumerate(distinct(names, _NAME_WIDTH))]
    named: list[TitledRow] = []
    for epoch in epochs:
        named.append((f"{epoch.epoch}{OPEN if not is_known(epoch.ended) else ''}", epoch))
        named += [_titled(phase) for phase in phases.get(epoch.ordinal, ())]
    named += [*outside, ("all", total)]
    beside = len(named) - 1 - sum(row.ordinal > STEP_ROWS for _, row in outside)
    rows_of = [stretch for _, stretch in named]
    most = epoch_text.largest(_EPOCHS, rows_of[:beside], rows_of[beside:])
    logged_texts = [_logged(rows_of, name) for name in names]
    rows = [
        (
            title,
            *(epoch_text.cell(column, stretch, most) for column in _EPOCHS),
            *priced(stretch),
            *(texts[place] for texts in logged_texts),
        )
        for place, (title, stretch) in enumerate(named)
    ]
    nothing = {place for place, cells in enumerate(zip(*rows, strict=True)) if set(cells) == {units.MISSING}}
    # Of which nobody knows anything, the note below says it once.
    rows = [tuple("" if place in nothing else cell for place, cell in enumerate(row)) for row in rows]
    return [_FIRST[_rows_of(epochs, outside)], *map(text_column, _EPOCHS), *costs, *logged], rows


def _rows_of(epochs: Sequence[EpochSummary], outside: Sequence[TitledRow]) -> str:
    if epochs:
        return "EPOCH"
    if any(row.ordinal <= STEP_ROWS for _, row in outside):
        return "STEP"
    return "PHASE" if outside else "RUN"


def outside_rows(
    record: Record, epochs: Sequence[EpochSummary] | EpochSums, total: EpochSummary, *, phases: bool
) -> list[TitledRow]:  # fmt: skip
    """Rows of what lies outside the epochs of a run, with a row for each of its `phases`.

    A run without epochs has no other rows than these phases, and rows of its steps where it marked them.
    """
    parts, together = outside_phases(record), between_epochs(record, epochs)
    if not epochs and record.step_rows:
        rows = [(steps_text(row) + (OPEN if not is_known(row.ended) else ""), row) for row in step_summaries(record)]
        return [*rows, *(_titled(part) for part in parts if part.phase != OTHER)]
    if together is not None and is_worth_a_row(together, parts, total):
        return [(BETWEEN, together), *(_titled(part) for part in parts if phases)]
    return [_titled(part) for part in parts] if not epochs and any(part.phase != OTHER for part in parts) else []


def _titled(phase: EpochSummary) -> TitledRow:
    # Training goes on after each other phase, if only for its last microseconds: that is no second training.
    times = f" ×{phase.times}" if phase.times > 1 and phase.phase not in (TRAINING, OTHER) else ""
    return f"  {phase.phase}{times}", phase


def rank_table(record: Record) -> tuple[Sequence[TextColumn], list[tuple[str, ...]]]:
    """The columns and rows of the table of ranks."""
    values = [_rank_values(record, rank) for rank in record.ranks]
    energies = units.energy_column([of["energy"] for of in values])
    return _RANKS, [_rank(*row) for row in zip(record.ranks, values, energies, strict=True)]


def _logged(stretches: Sequence[EpochSummary], name: str) -> list[str]:
    """Return the values that were logged by a name, with equal decimals; empty where none was."""
    texts = iter(units.logged_column([stretch.metrics[name] for stretch in stretches if name in stretch.metrics]))
    return [next(texts) if name in stretch.metrics else "" for stretch in stretches]


def _rank_values(record: Record, rank: RankRow) -> Mapping[str, float]:
    """What was measured of a rank, by the keys of `columns.USAGE`."""
    own: list[UsageRow] = [row for row in record.whole_epochs if row.rank == rank.key]
    whole = [row for row in own if row.ordinal == WHOLE_RUN and row.phase == WHOLE_EPOCH]
    return dict(zip((column.key for column in USAGE), totals(whole or own), strict=True))


def _rank(rank: RankRow, values: Mapping[str, float], energy: str) -> tuple[str, ...]:
    return (
        str(rank.rank), str(rank.pid or units.MISSING), ", ".join(str(device.number) for device in rank.devices),
        rank.state.name.lower(), units.count(rank.steps or None), units.fine_duration(rank.wait),
        units.percent(values["utilization_mean"]), _rank_peak(rank, values["run_allocated_peak"]),
        units.limited(values["memory_used_peak"], Unit.BYTES, _of_rank(rank)), energy,
        units.rounded(rank.retries), units.rounded(rank.ooms),
    )  # fmt: skip


def _of_rank(rank: RankRow) -> str:
    """The sign of a peak that a rank may still exceed."""
    return AT_LEAST if rank.state is RunState.RUNNING else ""


def _rank_peak(rank: RankRow, read: float) -> str:
    """Of all devices of a rank together, as its framework counts them."""
    if is_known(rank.peak):
        return units.limited(rank.peak, Unit.BYTES, _of_rank(rank))
    return units.limited(read, Unit.BYTES, AT_LEAST)
