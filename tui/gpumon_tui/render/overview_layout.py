"""Layout of the overview: a pure function of its size and content.

GPUs have priority: blank rows are dropped before headings, headings before sections, and sections before a GPU.
"""

from __future__ import annotations

from math import ceil
from typing import NamedTuple

BESIDE_FROM = 180
"""Width from which sections are placed in two columns."""
AIRY_FROM = 28
"""Height from which blank rows separate sections."""
SHORT, SHORT_CELLS, SEVERAL_FROM = 56, 41, 80
"""Width below which a GPU has a short line, width of a short line side by side, and width from which lines are side
by side.
"""
BLANKS = 4
"""Number of blank rows, one above each part."""
MOST_FINDINGS = 3
"""Maximum findings shown before other parts get rows; all are shown if the rows are not needed elsewhere."""
MOST_CHARTED = 2
"""Up to this number of GPUs, the charts of the selected one take the place of processes; with more GPUs, charts get
only unused room.
"""
CHARTS_FROM, FEWEST_CHART_ROWS = 60, 11
FEWEST_SHORT_ROWS = 9
"""Minimum rows of charts in room that nothing else uses."""
FEWEST_PROCESS_ROWS = 3
FEWEST_NARROW_ROWS = 6
"""Minimum rows of processes; on a narrow screen runs are more important."""
LEFT_SHARE = 0.47
"""Share of the width for the left of two columns."""
FEWEST_BESIDE = 12
"""Rows below the GPUs from which there are two columns."""
MOST_CHART_ROWS = 30
REASON_ROWS = 3
"""Rows for the reason why no process is listed."""
RANKS_AROUND = 3
"""Rows in addition to those of the ranks."""
MOST_EPOCHS, FEWEST_PAST_ROWS = 12, 5
"""Maximum epochs shown, and the rows that must be available for each of epochs and events before epochs are shown."""
MANY_EVENTS = 99
"""A number of events that uses all room it is given."""
FEWEST_EVENT_ROWS = 2
"""Minimum rows of events, enough for the newest one."""
BETWEEN = 4
"""Cells between two columns."""


class PartRoom(NamedTuple):
    """Position and size of a part; it is not shown if it has no rows."""

    x: int
    y: int
    cells: int
    rows: int


class OverviewPlan(NamedTuple):
    """Position of every part."""

    gpus: PartRoom
    charts: PartRoom
    """Charts of the selected GPU, on a machine with one or two GPUs."""
    attention: PartRoom
    runs: PartRoom
    processes: PartRoom
    ranks: PartRoom = PartRoom(0, 0, 0, 0)
    """Ranks of the selected run over time, if there are two columns."""
    epochs: PartRoom = PartRoom(0, 0, 0, 0)
    events: PartRoom = PartRoom(0, 0, 0, 0)


NOWHERE = PartRoom(0, 0, 0, 0)


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
    tells_holders: bool = True,
) -> OverviewPlan:
    """Divide the room between header and footer; `problem_rows` is for the reason why there is no GPU.

    Without `tells_holders`, as in a log of nvidia-smi, runs and processes are unknown, and the selected GPU gets their
    room.
    """
    rows = max(1, rows)
    lines = min(rows, problem_rows) if not gpus else _gpu_rows(cells, rows, gpus)
    spare = rows - lines
    around = 0
    if gpus:
        across = ceil(gpus / lines)
        each = (cells + 2) // across - 2
        wanted = 1 if each >= SHORT else 2 if across == 1 else 0
        around = wanted if spare >= wanted else 0
    spare -= around
    if gpus and cells >= BESIDE_FROM and spare >= FEWEST_BESIDE and tells_holders:
        return _beside(cells, rows, lines + around, gpus=gpus, findings=findings, runs=runs,
                       processes=processes, ranks=ranks, epochs=epochs, events=events)  # fmt: skip
    attention = min(1 + min(MOST_FINDINGS, findings), spare) if spare > bool(findings) else 0
    attention *= bool(gpus or findings)
    spare -= attention
    run_rows = _run_rows(spare, runs, processes) if cells >= SHORT else min(1 + runs, spare)
    run_rows *= tells_holders
    spare -= run_rows
    charts = 0
    if 0 < gpus <= MOST_CHARTED or (gpus and not tells_holders):
        charts = _chart_rows(cells, spare, processes, tells_holders=tells_holders)
    spare -= charts
    if charts and gpus == 1:  # the charts show everything in the GPU's line
        charts, lines, around = charts + lines + around, 0, 0
    if gpus and runs and cells >= SHORT and around and spare >= 1 and rows >= 20 and not charts:
        around, spare = around + 1, spare - 1
    blanks = BLANKS + bool(charts)
    airy = rows >= AIRY_FROM and spare >= blanks + FEWEST_PROCESS_ROWS * tells_holders
    spare -= blanks * airy
    fewest = FEWEST_PROCESS_ROWS if cells >= SHORT else FEWEST_NARROW_ROWS
    process_rows = min(spare, 2 + max(1, processes)) if spare >= fewest and (gpus or processes) else 0
    process_rows *= tells_holders
    if not process_rows and run_rows and spare > 0:
        taller = min(run_rows + spare, 2 + runs)
        run_rows = taller if taller >= min(4, 2 + runs) else run_rows
    if airy and process_rows and not charts:
        attention += _more_findings(spare - process_rows, attention, findings, runs, epochs)
    found: list[PartRoom] = []
    at = int(airy)
    for part in (lines + around, charts, attention, run_rows, process_rows):
        found.append(PartRoom(0, at, cells, part) if part else NOWHERE)
        at += part + (airy if part else 0)
    plan = OverviewPlan(*found)
    at += not airy  # a blank row above
    if not (gpus and process_rows) or cells < SEVERAL_FROM or (charts and not airy):
        return plan
    epoch_rows, event_rows = _past_rows(rows - at, runs, epochs, events)
    return plan._replace(
        epochs=PartRoom(0, at, cells, epoch_rows) if epoch_rows else NOWHERE,
        events=PartRoom(0, rows - event_rows, cells, event_rows) if event_rows else NOWHERE,
    )


def _more_findings(rows: int, attention: int, findings: int, runs: int, epochs: int) -> int:
    """Return the rows for further findings, from what other parts leave, except epochs and the newest events."""
    past = FEWEST_PAST_ROWS + (3 + min(MOST_EPOCHS, max(1, epochs)) if runs else 0)
    return max(0, min(1 + findings - attention, rows - past))


def _past_rows(rows: int, runs: int, epochs: int, events: int) -> tuple[int, int]:
    """Return the rows of epochs and events, with a blank row between, in the remaining room."""
    most = max(max(rows - 1, 0) * 3 // 5, rows - 2 - max(1, events))  # few events leave more for epochs
    epoch_rows = min(2 + min(MOST_EPOCHS, max(1, epochs)), most) if runs else 0
    epoch_rows *= rows >= 2 * FEWEST_PAST_ROWS
    event_rows = rows - (epoch_rows + 1 if epoch_rows else 0)
    return epoch_rows, event_rows if event_rows >= FEWEST_EVENT_ROWS else 0


def _beside(
    cells: int, rows: int, lines: int, *, gpus: int, findings: int, runs: int, processes: int, ranks: int,
    epochs: int, events: int,
) -> OverviewPlan:  # fmt: skip
    """Return a layout with two columns below the GPUs: findings and processes; runs and their details."""
    spare = rows - lines - 2
    charts = min(spare // 2, MOST_CHART_ROWS) if gpus <= MOST_CHARTED else 0
    charts = charts if charts >= FEWEST_CHART_ROWS else 0
    lines += bool(runs) and not charts
    if charts and gpus == 1:
        charts, lines = charts + lines + 1, -1
    top = 1 + lines
    below = top + 1 + (charts + 1 if charts else 0)
    room = rows - below
    left = int(cells * LEFT_SHARE)
    right, wide = left + BETWEEN, cells - left - BETWEEN
    wanted = 2 + (processes or REASON_ROWS)
    attention = min(room, 1 + min(findings, max(MOST_FINDINGS, room - 2 - wanted)))
    run_rows = min(room, 2 + max(1, runs))
    process_rows = max(0, min(room - attention - 1, wanted))
    free = min(MOST_CHART_ROWS, room - attention - process_rows - 2)
    free *= gpus > MOST_CHARTED and free >= FEWEST_CHART_ROWS
    rank_rows = max(0, min(room - run_rows - 1, ranks + RANKS_AROUND))
    rank_rows *= ranks > 0 and rank_rows > RANKS_AROUND
    at = below + run_rows + 1 + (rank_rows + 1 if rank_rows else 0)
    epoch_rows, event_rows = _past_rows(rows - at, runs, epochs, events)
    return OverviewPlan(
        gpus=PartRoom(0, 1, cells, lines) if lines > 0 else NOWHERE,
        charts=PartRoom(0, top + 1, cells, charts) if charts
        else PartRoom(1, below + attention + process_rows + 2, left - 1, free) if free else NOWHERE,
        attention=PartRoom(0, below, left, attention),
        runs=PartRoom(right, below, wide, run_rows),
        processes=PartRoom(0, below + attention + 1, left, process_rows) if process_rows else NOWHERE,
        ranks=PartRoom(right, below + run_rows + 1, wide, rank_rows) if rank_rows else NOWHERE,
        epochs=PartRoom(right, at, wide, epoch_rows) if epoch_rows else NOWHERE,
        events=PartRoom(right, rows - event_rows, wide, event_rows) if event_rows else NOWHERE,
    )  # fmt: skip


def _gpu_rows(cells: int, rows: int, gpus: int) -> int:
    """Return the rows of the GPU lines; they are side by side if there are more GPUs than rows."""
    if gpus <= rows or cells < SEVERAL_FROM:
        return min(gpus, rows)
    most = (cells + 2) // SHORT_CELLS
    for room in (rows - 1 - MOST_FINDINGS, rows):
        if room > 0 and ceil(gpus / most) <= room:
            return ceil(gpus / ceil(gpus / room))
    return rows


def _chart_rows(cells: int, spare: int, processes: int, *, tells_holders: bool) -> int:
    """Return the rows of charts, after leaving room for some processes."""
    below = min(2 + max(1, processes), max(4, spare // 4)) if tells_holders else 0
    rows = spare - below - (BLANKS + 1 if spare >= 20 else 0)
    if cells >= CHARTS_FROM and rows < FEWEST_CHART_ROWS and tells_holders:
        left = spare - 2 - max(1, processes)
        return left if left >= FEWEST_SHORT_ROWS else 0
    return rows if cells >= CHARTS_FROM and rows >= FEWEST_CHART_ROWS else 0


def _run_rows(spare: int, runs: int, processes: int) -> int:
    """Return the rows of runs: head, headings and all runs, or a single row of short descriptions."""
    if not runs:
        return 2 if spare >= 2 + FEWEST_PROCESS_ROWS else 0
    wanted = 2 + runs
    most = max(spare // 2, spare - 2 - processes) if processes else spare
    if wanted <= most:
        return wanted
    return min(wanted, most) if most >= 4 else min(1, spare)
