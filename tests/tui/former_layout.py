"""The room of each part of `FormerPage`."""

from __future__ import annotations

from enum import Enum
from math import ceil
from typing import NamedTuple

WIDE = 120
"""From here on the two tables stand side by side; below, the screen is of the narrow class."""
CHART_CELLS = 80
CARD_CELLS = 38
LINE_CELLS = 92
CARD_ROWS = (6, 5)
"""Heights of a card, the best first."""
GPU_SHARE = 0.38
"""Cards may take so much of the screen; above that GPUs get a line each."""
FEWEST_CHART_ROWS = 5
FEWEST_TABLE_ROWS = 4
FEWEST_EPOCH_ROWS = 5
SPLIT_ROWS = 2
SPLIT_TITLE_FROM = 30
"""Rows below the GPUs from which the memory's parts have a title too."""
HEAD_ROWS = 2
"""A table's title and its headings."""
TITLE_ROWS = 1
"""Of a table without rows, where GPUs lack room."""


class Tables(Enum):
    """Arrangement of the tables of processes and of runs."""

    BESIDE = "beside"
    STACKED = "stacked"
    ONE = "one"


class Plan(NamedTuple):
    """Rows and columns of every part."""

    columns: int
    """Of GPUs side by side."""
    card_rows: int
    """Height of a GPU: a card, or 1 for a line."""
    gpu_rows: int
    charts: int
    """Side by side."""
    chart_rows: int
    tables: Tables
    table_rows: int
    run_rows: int
    """Of the table of runs, within the room for trainings."""
    training_rows: int
    """Of the runs and the epochs of one of them, when they stand below the processes; 0 is all there is."""
    epochs: bool
    """Whether there is room for the epochs of a run."""
    split_rows: int = 0
    """Of how the memory of the selected GPU divides."""


def plan(
    width: int, height: int, gpus: int, problem_rows: int, processes: int, runs: int, below: tuple[int, int] = (0, 0),
    split: bool = False,
) -> Plan:  # fmt: skip
    """Share out the screen between its header and its line of keys.

    `below`: rows under those of the runs, such as their ranks: those shown if there is room, and those
    asked for. `split`: whether it is known how the memory divides.
    """
    body = max(1, height - 2)
    kept = FEWEST_TABLE_ROWS if processes or runs else TITLE_ROWS
    columns, card_rows, gpu_rows = _gpus(width, body, gpus, kept)
    if gpus == 0:
        gpu_rows = min(problem_rows, body // 2)
    rest = body - gpu_rows
    tables = _tables(width, rest)
    split_rows = 0
    if split and gpus and rest >= FEWEST_CHART_ROWS + FEWEST_TABLE_ROWS + SPLIT_ROWS:
        split_rows = SPLIT_ROWS + (rest >= SPLIT_TITLE_FROM)
    rest -= split_rows
    wanted = _wanted(tables, processes, runs, sum(below))
    if rest < FEWEST_CHART_ROWS + FEWEST_TABLE_ROWS:
        run_rows, training_rows, epochs = _trainings(tables, rest, runs, below)
        return Plan(
            columns=columns, card_rows=card_rows, gpu_rows=gpu_rows, charts=0, chart_rows=0, tables=tables,
            table_rows=rest, run_rows=run_rows, training_rows=training_rows, epochs=epochs,
        )  # fmt: skip
    table_rows = max(FEWEST_TABLE_ROWS, min(wanted, rest // 2))
    charts = min(3, max(1, width // CHART_CELLS))
    run_rows, training_rows, epochs = _trainings(tables, table_rows, runs, below)
    return Plan(
        columns=columns, card_rows=card_rows, gpu_rows=gpu_rows, charts=charts, chart_rows=rest - table_rows,
        tables=tables, table_rows=table_rows, run_rows=run_rows, training_rows=training_rows, epochs=epochs,
        split_rows=split_rows,
    )  # fmt: skip


def _gpus(width: int, body: int, gpus: int, kept: int) -> tuple[int, int, int]:
    """Columns, rows of each and rows in all: cards where they fit, else lines.

    Every GPU has its line before the tables have more than the rows `kept` for them: which GPU is free is what
    people come for.
    """
    return 1, 1, min(gpus, max(1, body - kept))


def _tables(width: int, rest: int) -> Tables:
    if width >= WIDE:
        return Tables.BESIDE
    return Tables.STACKED if rest >= 24 else Tables.ONE


def _trainings(tables: Tables, rows: int, runs: int, below: tuple[int, int]) -> tuple[int, int, bool]:
    """Rows of the table of runs, of runs and epochs together, and whether epochs have room."""
    room = rows // 2 if tables is Tables.STACKED else rows
    run_rows = HEAD_ROWS + max(1, runs)
    most = room - FEWEST_EPOCH_ROWS
    epochs = runs > 0 and run_rows <= most
    run_rows += sum(below) if run_rows + sum(below) <= most else min(below[1], max(0, most - run_rows))
    return (run_rows if epochs else room), (room if tables is Tables.STACKED else 0), epochs


def _wanted(tables: Tables, processes: int, runs: int, below: int) -> int:
    """Rows the tables could use, in steps, so that a process that comes or goes moves nothing."""
    stepped = [HEAD_ROWS + 5 * ceil(max(1, rows) / 5) for rows in (processes, runs + below)]
    if runs:
        stepped[1] += 8  # its epochs
    return sum(stepped) if tables is Tables.STACKED else max(stepped)
