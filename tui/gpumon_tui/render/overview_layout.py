"""The room of each part of the overview: one pure function of its size and of the content.

GPUs come first: blank rows go before headings, headings before sections, and sections before a GPU.
"""

from __future__ import annotations

from math import ceil
from typing import NamedTuple

BESIDE_FROM = 180
"""Cells from which sections stand in two columns."""
AIRY_FROM = 28
"""Rows from which a blank one stands between sections."""
SHORT, SHORT_CELLS, SEVERAL_FROM = 56, 41, 80
"""Cells below which a GPU has a short line; those that each takes side by side, and from which there are several."""
BLANKS = 4
"""One above each part."""
MOST_FINDINGS = 3
"""Findings that are shown before anything else has rows; all are where nothing else needs these."""
MOST_CHARTED = 2
"""GPUs up to which the selected one has charts in the place of processes; with more, where these leave room."""
CHARTS_FROM, FEWEST_CHART_ROWS = 60, 11
FEWEST_SHORT_ROWS = 9
"""Of charts in room that nothing else would use."""
FEWEST_PROCESS_ROWS = 3
FEWEST_NARROW_ROWS = 6
"""Of processes; on a narrow screen runs say more."""
LEFT_SHARE = 0.47
"""Of the cells, for the left one of two columns."""
FEWEST_BESIDE = 12
"""Rows below the GPUs from which there are two columns."""
MOST_CHART_ROWS = 30
REASON_ROWS = 3
"""In which it is said why no process is listed."""
RANKS_AROUND = 3
"""Rows beside those of the ranks."""
MOST_EPOCHS, FEWEST_PAST_ROWS = 12, 5
"""Epochs shown, and rows from which they are, with as many of events."""
MANY_EVENTS = 99
"""So many have all the room that they are given."""
FEWEST_EVENT_ROWS = 2
"""Rows from which events are shown: with the newest one alone."""
BETWEEN = 4
"""Cells between two columns."""


class PartRoom(NamedTuple):
    """The room of a part; without rows it is not shown."""

    x: int
    y: int
    cells: int
    rows: int


class OverviewPlan(NamedTuple):
    """Where each part stands."""

    gpus: PartRoom
    charts: PartRoom
    """Of the selected GPU, where there are one or two."""
    attention: PartRoom
    runs: PartRoom
    processes: PartRoom
    ranks: PartRoom = PartRoom(0, 0, 0, 0)
    """Of the selected run over time, where there are two columns."""
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
    """Share out the room between header and footer; `problem_rows` say why there is no GPU.

    Without `tells_holders`, as of a log of nvidia-smi, nobody knows runs or processes: the selected GPU has their room.
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
    if charts and gpus == 1:  # the charts say all that its line would
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
    at += not airy  # a blank one above
    if not (gpus and process_rows) or cells < SEVERAL_FROM or (charts and not airy):
        return plan
    epoch_rows, event_rows = _past_rows(rows - at, runs, epochs, events)
    return plan._replace(
        epochs=PartRoom(0, at, cells, epoch_rows) if epoch_rows else NOWHERE,
        events=PartRoom(0, rows - event_rows, cells, event_rows) if event_rows else NOWHERE,
    )


def _more_findings(rows: int, attention: int, findings: int, runs: int, epochs: int) -> int:
    """Rows of further findings in those that all else leaves, but for the epochs and the newest events."""
    past = FEWEST_PAST_ROWS + (3 + min(MOST_EPOCHS, max(1, epochs)) if runs else 0)
    return max(0, min(1 + findings - attention, rows - past))


def _past_rows(rows: int, runs: int, epochs: int, events: int) -> tuple[int, int]:
    """Rows of epochs and of events, with a blank one between, in the room that all else has left."""
    most = max(max(rows - 1, 0) * 3 // 5, rows - 2 - max(1, events))  # few events leave epochs more
    epoch_rows = min(2 + min(MOST_EPOCHS, max(1, epochs)), most) if runs else 0
    epoch_rows *= rows >= 2 * FEWEST_PAST_ROWS
    event_rows = rows - (epoch_rows + 1 if epoch_rows else 0)
    return epoch_rows, event_rows if event_rows >= FEWEST_EVENT_ROWS else 0


def _beside(
    cells: int, rows: int, lines: int, *, gpus: int, findings: int, runs: int, processes: int, ranks: int,
    epochs: int, events: int,
) -> OverviewPlan:  # fmt: skip
    """Two columns below the GPUs: findings and processes, and what the runs do."""
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
    """Rows of the lines alone: side by side where there are more than rows."""
    if gpus <= rows or cells < SEVERAL_FROM:
        return min(gpus, rows)
    most = (cells + 2) // SHORT_CELLS
    for room in (rows - 1 - MOST_FINDINGS, rows):
        if room > 0 and ceil(gpus / most) <= room:
            return ceil(gpus / ceil(gpus / room))
    return rows


def _chart_rows(cells: int, spare: int, processes: int, *, tells_holders: bool) -> int:
    """Rows of charts: what some processes leave."""
    below = min(2 + max(1, processes), max(4, spare // 4)) if tells_holders else 0
    rows = spare - below - (BLANKS + 1 if spare >= 20 else 0)
    if cells >= CHARTS_FROM and rows < FEWEST_CHART_ROWS and tells_holders:
        left = spare - 2 - max(1, processes)
        return left if left >= FEWEST_SHORT_ROWS else 0
    return rows if cells >= CHARTS_FROM and rows >= FEWEST_CHART_ROWS else 0


def _run_rows(spare: int, runs: int, processes: int) -> int:
    """Rows of the runs: head, headings and all of them, or one row of them in a few words."""
    if not runs:
        return 2 if spare >= 2 + FEWEST_PROCESS_ROWS else 0
    wanted = 2 + runs
    most = max(spare // 2, spare - 2 - processes) if processes else spare
    if wanted <= most:
        return wanted
    return min(wanted, most) if most >= 4 else min(1, spare)
