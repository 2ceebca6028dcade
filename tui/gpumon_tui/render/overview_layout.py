"""Layout of the overview: a pure function of its size and content.

GPUs have priority: blank rows are dropped before headings, headings before sections, and sections before a GPU.
"""

from __future__ import annotations

from math import ceil
from typing import NamedTuple

TWO_COLUMNS_FROM = 180
"""Minimum screen width, in columns, at which sections are placed in two columns."""
BLANKS_FROM = 28
"""Minimum screen height, in rows, at which blank rows separate sections."""
SHORT, SHORT_CELLS, SIDE_BY_SIDE_FROM = 56, 41, 80
"""Widths in columns: below the first, the line of a GPU is short; the second is the width of a short line next to
another one; from the third on, short lines are placed side by side.
"""
BLANKS = 4
"""Number of blank rows, one above each part."""
MAX_FINDINGS = 3
"""Maximum findings shown before other parts get rows; all are shown if the rows are not needed elsewhere."""
MAX_CHARTED = 2
"""Up to this number of GPUs, the charts of the selected one take the place of processes; with more GPUs, charts get
only unused room.
"""
CHARTS_FROM, MIN_CHART_ROWS = 60, 11
MIN_SHORT_CHART_ROWS = 9
"""Minimum rows of charts in room that nothing else uses."""
MIN_PROCESS_ROWS = 3
MIN_NARROW_PROCESS_ROWS = 6
"""Minimum rows of processes; on a narrow screen runs are more important."""
LEFT_SHARE = 0.47
"""Share of the width for the left of two columns."""
TWO_COLUMNS_MIN_ROWS = 12
"""Rows below the GPUs from which there are two columns."""
MAX_CHART_ROWS = 30
REASON_ROWS = 3
"""Rows for the reason why no process is listed."""
RANK_OTHER_ROWS = 3
"""Rows in addition to the rows of the ranks."""
MAX_EPOCHS, MIN_PAST_ROWS = 12, 5
"""Maximum epochs shown, and the rows that must be available for each of epochs and events before epochs are shown."""
MANY_EVENTS = 99
"""A number of events that uses all room it is given."""
MIN_EVENT_ROWS = 2
"""Minimum rows of events, enough for the newest one."""
COLUMN_GAP = 4
"""Cells between two columns."""


class Area(NamedTuple):
    """Position and size of a part; it is not shown if it has no rows."""

    x: int
    y: int
    cells: int
    rows: int


class OverviewPlan(NamedTuple):
    """Position of every part."""

    gpus: Area
    charts: Area
    """Charts of the selected GPU, on a machine with one or two GPUs."""
    attention: Area
    runs: Area
    processes: Area
    ranks: Area = Area(0, 0, 0, 0)
    """Ranks of the selected run over time, if there are two columns."""
    epochs: Area = Area(0, 0, 0, 0)
    events: Area = Area(0, 0, 0, 0)


NO_AREA = Area(0, 0, 0, 0)


def overview_plan(
    cells: int,
    rows: int,
    gpus: int,
    *,
    problem_rows: int,
    findings: int,
    runs: int,
    processes: int,
    ranks: int = 0,
    epochs: int = 0,
    events: int = MANY_EVENTS,
    has_holders: bool = True,
) -> OverviewPlan:
    """Divide the room between header and footer; `problem_rows` is for the reason why there is no GPU.

    Without `has_holders`, as in a log of nvidia-smi, runs and processes are unknown, and the selected GPU gets their
    room.
    """
    rows = max(1, rows)
    lines = min(rows, problem_rows) if not gpus else _gpu_rows(cells, rows, gpus)
    spare = rows - lines
    heading_rows = 0
    if gpus:
        gpu_columns = ceil(gpus / lines)
        gpu_cells = (cells + 2) // gpu_columns - 2
        wanted_headings = 1 if gpu_cells >= SHORT else 2 if gpu_columns == 1 else 0
        heading_rows = wanted_headings if spare >= wanted_headings else 0
    spare -= heading_rows
    if gpus and cells >= TWO_COLUMNS_FROM and spare >= TWO_COLUMNS_MIN_ROWS and has_holders:
        return _two_columns(cells, rows, lines + heading_rows, gpus=gpus, findings=findings, runs=runs,
                       processes=processes, ranks=ranks, epochs=epochs, events=events)  # fmt: skip
    attention = min(1 + min(MAX_FINDINGS, findings), spare) if spare > bool(findings) else 0
    attention *= bool(gpus or findings)
    spare -= attention
    run_rows = _run_rows(spare, runs, processes) if cells >= SHORT else min(1 + runs, spare)
    run_rows *= has_holders
    spare -= run_rows
    charts = 0
    if 0 < gpus <= MAX_CHARTED or (gpus and not has_holders):
        charts = _chart_rows(cells, spare, processes, has_holders=has_holders)
    spare -= charts
    if charts and gpus == 1:  # the charts show everything in the GPU's line
        charts, lines, heading_rows = charts + lines + heading_rows, 0, 0
    if gpus and runs and cells >= SHORT and heading_rows and spare >= 1 and rows >= 20 and not charts:
        heading_rows, spare = heading_rows + 1, spare - 1
    blanks = BLANKS + bool(charts)
    has_blanks = rows >= BLANKS_FROM and spare >= blanks + MIN_PROCESS_ROWS * has_holders
    spare -= blanks * has_blanks
    min_process_rows = MIN_PROCESS_ROWS if cells >= SHORT else MIN_NARROW_PROCESS_ROWS
    process_rows = min(spare, 2 + max(1, processes)) if spare >= min_process_rows and (gpus or processes) else 0
    process_rows *= has_holders
    if not process_rows and run_rows and spare > 0:
        taller_rows = min(run_rows + spare, 2 + runs)
        run_rows = taller_rows if taller_rows >= min(4, 2 + runs) else run_rows
    if has_blanks and process_rows and not charts:
        attention += _more_findings(spare - process_rows, attention, findings, runs, epochs)
    areas: list[Area] = []
    y = int(has_blanks)
    for part_rows in (lines + heading_rows, charts, attention, run_rows, process_rows):
        areas.append(Area(0, y, cells, part_rows) if part_rows else NO_AREA)
        y += part_rows + (has_blanks if part_rows else 0)
    plan = OverviewPlan(*areas)
    y += not has_blanks  # a blank row above
    if not (gpus and process_rows) or cells < SIDE_BY_SIDE_FROM or (charts and not has_blanks):
        return plan
    epoch_rows, event_rows = _past_rows(rows - y, runs, epochs, events)
    return plan._replace(
        epochs=Area(0, y, cells, epoch_rows) if epoch_rows else NO_AREA,
        events=Area(0, rows - event_rows, cells, event_rows) if event_rows else NO_AREA,
    )


def _more_findings(rows: int, attention: int, findings: int, runs: int, epochs: int) -> int:
    """Return the rows for further findings, from what other parts leave, except epochs and the newest events."""
    past_rows = MIN_PAST_ROWS + (3 + min(MAX_EPOCHS, max(1, epochs)) if runs else 0)
    return max(0, min(1 + findings - attention, rows - past_rows))


def _past_rows(rows: int, runs: int, epochs: int, events: int) -> tuple[int, int]:
    """Return the rows of epochs and events, with a blank row between, in the remaining room."""
    max_epoch_rows = max(max(rows - 1, 0) * 3 // 5, rows - 2 - max(1, events))  # few events leave more for epochs
    epoch_rows = min(2 + min(MAX_EPOCHS, max(1, epochs)), max_epoch_rows) if runs else 0
    epoch_rows *= rows >= 2 * MIN_PAST_ROWS
    event_rows = rows - (epoch_rows + 1 if epoch_rows else 0)
    return epoch_rows, event_rows if event_rows >= MIN_EVENT_ROWS else 0


def _two_columns(
    cells: int, rows: int, lines: int, *, gpus: int, findings: int, runs: int, processes: int, ranks: int,
    epochs: int, events: int,
) -> OverviewPlan:  # fmt: skip
    """Return a layout with two columns below the GPUs: findings and processes; runs and their details."""
    spare = rows - lines - 2
    charts = min(spare // 2, MAX_CHART_ROWS) if gpus <= MAX_CHARTED else 0
    charts = charts if charts >= MIN_CHART_ROWS else 0
    lines += bool(runs) and not charts
    if charts and gpus == 1:
        charts, lines = charts + lines + 1, -1
    gpus_end = 1 + lines
    columns_top = gpus_end + 1 + (charts + 1 if charts else 0)
    column_rows = rows - columns_top
    left_cells = int(cells * LEFT_SHARE)
    right_begin, right_cells = left_cells + COLUMN_GAP, cells - left_cells - COLUMN_GAP
    wanted_process_rows = 2 + (processes or REASON_ROWS)
    attention = min(column_rows, 1 + min(findings, max(MAX_FINDINGS, column_rows - 2 - wanted_process_rows)))
    run_rows = min(column_rows, 2 + max(1, runs))
    process_rows = max(0, min(column_rows - attention - 1, wanted_process_rows))
    free_chart_rows = min(MAX_CHART_ROWS, column_rows - attention - process_rows - 2)
    free_chart_rows *= gpus > MAX_CHARTED and free_chart_rows >= MIN_CHART_ROWS
    rank_rows = max(0, min(column_rows - run_rows - 1, ranks + RANK_OTHER_ROWS))
    rank_rows *= ranks > 0 and rank_rows > RANK_OTHER_ROWS
    y = columns_top + run_rows + 1 + (rank_rows + 1 if rank_rows else 0)
    epoch_rows, event_rows = _past_rows(rows - y, runs, epochs, events)
    return OverviewPlan(
        gpus=Area(0, 1, cells, lines) if lines > 0 else NO_AREA,
        charts=Area(0, gpus_end + 1, cells, charts) if charts
        else Area(1, columns_top + attention + process_rows + 2, left_cells - 1, free_chart_rows) if free_chart_rows
        else NO_AREA,
        attention=Area(0, columns_top, left_cells, attention),
        runs=Area(right_begin, columns_top, right_cells, run_rows),
        processes=Area(0, columns_top + attention + 1, left_cells, process_rows) if process_rows else NO_AREA,
        ranks=Area(right_begin, columns_top + run_rows + 1, right_cells, rank_rows) if rank_rows else NO_AREA,
        epochs=Area(right_begin, y, right_cells, epoch_rows) if epoch_rows else NO_AREA,
        events=Area(right_begin, rows - event_rows, right_cells, event_rows) if event_rows else NO_AREA,
    )  # fmt: skip


def _gpu_rows(cells: int, rows: int, gpus: int) -> int:
    """Return the rows of the GPU lines; they are side by side if there are more GPUs than rows."""
    if gpus <= rows or cells < SIDE_BY_SIDE_FROM:
        return min(gpus, rows)
    max_across = (cells + 2) // SHORT_CELLS
    for room in (rows - 1 - MAX_FINDINGS, rows):
        if room > 0 and ceil(gpus / max_across) <= room:
            return ceil(gpus / ceil(gpus / room))
    return rows


def _chart_rows(cells: int, spare: int, processes: int, *, has_holders: bool) -> int:
    """Return the rows of charts, after leaving room for some processes."""
    process_rows = min(2 + max(1, processes), max(4, spare // 4)) if has_holders else 0
    rows = spare - process_rows - (BLANKS + 1 if spare >= 20 else 0)
    if cells >= CHARTS_FROM and rows < MIN_CHART_ROWS and has_holders:
        rows_left = spare - 2 - max(1, processes)
        return rows_left if rows_left >= MIN_SHORT_CHART_ROWS else 0
    return rows if cells >= CHARTS_FROM and rows >= MIN_CHART_ROWS else 0


def _run_rows(spare: int, runs: int, processes: int) -> int:
    """Return the rows of runs: head, headings and all runs, or a single row of short descriptions."""
    if not runs:
        return 2 if spare >= 2 + MIN_PROCESS_ROWS else 0
    all_rows = 2 + runs
    max_rows = max(spare // 2, spare - 2 - processes) if processes else spare
    if all_rows <= max_rows:
        return all_rows
    return min(all_rows, max_rows) if max_rows >= 4 else min(1, spare)
