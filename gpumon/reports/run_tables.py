"""Text tables of a run's epochs, phases, parameters and ranks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from gpumon.common.numbers import is_known
from gpumon.common.text import cut
from gpumon.model import units
from gpumon.model.columns import BY_KEY, EPOCHS, RANKS, View, shown
from gpumon.model.frame import TRAINING
from gpumon.model.run import Parameter
from gpumon.reports import epoch_text
from gpumon.reports.text_table import TextColumn, distinct, text_column
from gpumon.storage.ledger.aggregate import (
    between_epochs,
    is_worth_a_row,
    outside_phases,
    rank_summaries,
    step_summaries,
    steps_text,
)
from gpumon.storage.ledger.records import NoteRow, RankRow, Record, RunMetadata
from gpumon.storage.ledger.row_keys import OTHER, STEP_ROWS
from gpumon.storage.ledger.summary import EpochSummary, EpochSums

COMMIT_LETTERS = 10
"""Number of characters of a commit id that are shown."""
_SHOWN = 12
"""Maximum number of parameters in the header of a run. `--json` and the report have all parameters."""
_WIDE = 40
_UNKNOWN = ", possibly with uncommitted changes"


def about_lines(about: RunMetadata) -> Iterator[str]:
    """Yield lines with the tags, script, commit and versions, parameters, and notes of a run."""
    if about.tags:
        yield f"tags: {', '.join(about.tags)}"
    if about.program:
        yield "  ·  ".join(program_texts(about.program))
    if about.config:
        shown = [f"{name} {cut(written(value), _WIDE)}" for name, value in [*about.config.items()][:_SHOWN]]
        more = len(about.config) - len(shown)
        yield "config: " + "  ·  ".join([*shown, *([f"and {more} more (--json)"] if more else [])])
    if about.omitted:
        yield f"{units.count(about.omitted)} parameters and notes were not recorded: too many, or too large in total"
    for note in about.notes:
        yield f"note: {note.text}{_by(note)}"


def program_texts(program: Mapping[str, Parameter]) -> Iterator[str]:
    """Yield the script, the commit and the versions as texts. `program`: facts about the program by name."""
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
    """Return a parameter as text."""
    if value is None or isinstance(value, bool):
        return str(value).lower() if value is not None else "none"
    return f"{value:g}" if isinstance(value, float) and float(f"{value:g}") == value else str(value)


def about_json(about: RunMetadata) -> dict[str, Any]:
    """Return parameters, program, tags and notes as JSON."""
    notes = [
        {"time": note.time if is_known(note.time) else None, "text": note.text, "author": note.author or None}
        for note in about.notes
    ]
    return {
        "config": dict(about.config), "program": dict(about.program), "tags": list(about.tags), "notes": notes,
        "omitted": about.omitted,
    }  # fmt: skip


def config_table(about: RunMetadata) -> tuple[Sequence[TextColumn], list[tuple[str, str]]]:
    """Return the columns and rows of a table of the parameters."""
    columns = (TextColumn("NAME", 100, right=False), TextColumn("VALUE", 90, right=False))
    return columns, [(name, written(value)) for name, value in about.config.items()]


def _by(note: NoteRow) -> str:
    return f" ({note.author}, {units.moment(note.time)})" if note.author else ""


OPEN = " …"
"""Text after the number of an epoch that has not ended."""
BETWEEN = "between"
"""Title of the row for the time outside epochs."""
_NAME_WIDTH = 16
"""Maximum width of a metric name, in columns."""
_METRICS = 8
"""Maximum number of logged metrics that have a column."""

TitledRow = tuple[str, EpochSummary]
"""The first cell of a row, and the values of the row."""

_EPOCHS = shown(EPOCHS, View.COMMAND)
_FIRST = {word: TextColumn(word, 100, right=False, max_width=24) for word in ("EPOCH", "STEP", "PHASE", "RUN")}
"""The possible first columns, by their headings."""
_RANKS = tuple(map(text_column, shown(RANKS, View.COMMAND)))
_OF_RANKS = tuple(BY_KEY[key] for key in ("utilization_mean", "framework_peak", "memory_used_peak", "energy"))
"""Measured columns of a rank, in the order of `_RANKS`."""


def epoch_table(
    epochs: Sequence[EpochSummary],
    phases: Mapping[int, Sequence[EpochSummary]],
    total: EpochSummary,
    outside: Sequence[TitledRow] = (),
    costs: Sequence[TextColumn] = (),
    priced: Callable[[EpochSummary], Sequence[str]] = lambda _: (),
) -> tuple[list[TextColumn], list[tuple[str, ...]]]:
    """Return the columns and rows of a table of epochs. Each phase has a row below its epoch, with its name indented.

    `phases`: phases of each epoch, by the ordinal of the epoch. `total`: values of the last row. `outside`: rows from
    `outside_rows`. `costs`: columns of costs. `priced`: function that returns the cells of a row in these columns.
    """
    stretches = (*epochs, *(row for _, row in outside), total)
    names = list(dict.fromkeys(name for stretch in stretches for name in stretch.metrics))[:_METRICS]
    logged = [TextColumn(text, 88 if i == 0 else 56 - i) for i, text in enumerate(distinct(names, _NAME_WIDTH))]
    named: list[TitledRow] = []
    for epoch in epochs:
        named.append((f"{epoch.label}{OPEN if not is_known(epoch.ended) else ''}", epoch))
        named += [_titled(phase) for phase in phases.get(epoch.ordinal, ())]
    named += [*outside, ("all", total)]
    # The units of columns do not depend on the total and the rows of the time outside epochs.
    main_rows = len(named) - 1 - sum(row.ordinal > STEP_ROWS for _, row in outside)
    summaries = [stretch for _, stretch in named]
    largest = epoch_text.largest(_EPOCHS, summaries[:main_rows], summaries[main_rows:])
    logged_texts = [_logged(summaries, name) for name in names]
    rows = [
        (
            title,
            *(epoch_text.cell(column, stretch, largest) for column in _EPOCHS),
            *priced(stretch),
            *(texts[index] for texts in logged_texts),
        )
        for index, (title, stretch) in enumerate(named)
    ]
    empty_columns = {index for index, cells in enumerate(zip(*rows, strict=True)) if set(cells) == {units.MISSING}}
    # A note below the table explains columns without any value.
    rows = [tuple("" if index in empty_columns else cell for index, cell in enumerate(row)) for row in rows]
    return [_FIRST[_row_kind(epochs, outside)], *map(text_column, _EPOCHS), *costs, *logged], rows


def _row_kind(epochs: Sequence[EpochSummary], outside: Sequence[TitledRow]) -> str:
    if epochs:
        return "EPOCH"
    if any(row.ordinal <= STEP_ROWS for _, row in outside):
        return "STEP"
    return "PHASE" if outside else "RUN"


def outside_rows(
    record: Record, epochs: Sequence[EpochSummary] | EpochSums, total: EpochSummary, *, phases: bool
) -> list[TitledRow]:  # fmt: skip
    """Return the rows for the time outside epochs.

    `phases`: if True, add a row for each phase outside epochs. For a run without epochs, the result has its rows of
    steps, if any, and its phases.
    """
    between = between_epochs(record, epochs)
    parts = outside_phases(record, between)
    if not epochs and record.step_rows:
        rows = [(steps_text(row) + (OPEN if not is_known(row.ended) else ""), row) for row in step_summaries(record)]
        return [*rows, *(_titled(part) for part in parts if part.phase != OTHER)]
    if between is not None and is_worth_a_row(between, parts, total):
        return [(BETWEEN, between), *(_titled(part) for part in parts if phases)]
    return [_titled(part) for part in parts] if not epochs and any(part.phase != OTHER for part in parts) else []


def _titled(phase: EpochSummary) -> TitledRow:
    # The training phase resumes after every other phase, even if only for microseconds. So the number of training
    # phases means nothing.
    times = f" ×{phase.times}" if phase.times > 1 and phase.phase not in (TRAINING, OTHER) else ""
    return f"  {phase.phase}{times}", phase


def rank_table(record: Record) -> tuple[Sequence[TextColumn], list[tuple[str, ...]]]:
    """Return the columns and rows of a table of ranks."""
    summaries = rank_summaries(record)
    largest = epoch_text.largest(_OF_RANKS, summaries)
    return _RANKS, [_rank(*row, largest) for row in zip(record.ranks, summaries, strict=True)]


def _logged(stretches: Sequence[EpochSummary], name: str) -> list[str]:
    """Return the values of a logged metric as texts with the same number of decimals. Missing values are empty."""
    texts = iter(units.logged_column([stretch.metrics[name] for stretch in stretches if name in stretch.metrics]))
    return [next(texts) if name in stretch.metrics else "" for stretch in stretches]


def _rank(rank: RankRow, summary: EpochSummary, largest: Mapping[str, float]) -> tuple[str, ...]:
    measured = [epoch_text.cell(column, summary, largest) for column in _OF_RANKS]
    return (
        str(rank.rank), str(rank.pid or units.MISSING), ", ".join(str(device.number) for device in rank.devices),
        rank.state.name.lower(), units.count(rank.steps or None), units.fine_duration(rank.wait), *measured,
        units.rounded(rank.retries), units.rounded(rank.ooms),
    )  # fmt: skip
