"""The number of epochs done is the same in every view, for ranks that repeat epochs at different speeds."""

from __future__ import annotations

import re
from math import nan
from pathlib import Path
from typing import Any

import pytest

from gpumon.analysis.progress import Progress
from gpumon.analysis.ranks import Ranks
from gpumon.common.clock import SECOND
from gpumon.model import units
from gpumon.model.frame import RunState
from gpumon.reports import run_json, run_list, run_text
from gpumon.storage.ledger.api import PastLedger
from gpumon.storage.ledger.reader import Ledger, Ledgers
from gpumon_tui.data.run_reader import ListedRuns, open_run
from gpumon_tui.render.overview_rows import RUN_COLUMNS, run_row
from tests.builders import run
from tests.runs import BEGAN, Book, measured
from tests.web.served import Served

RUN = "keras-1a2b"
NOW = BEGAN + 1000
EPOCH = [column.key for column in RUN_COLUMNS].index("epoch")


def fits(book: Book, speeds: tuple[float, ...], *, until: float = 1e9, planned: int | None = 3) -> None:
    """Three fits of three epochs in each rank, which needs `speeds` seconds for an epoch; the state after `until`
    seconds.
    """
    ends = [9 * speed for speed in speeds]
    is_over = max(ends) <= until
    end = round((BEGAN + max(ends)) * SECOND)
    book.run(RUN, world_size=len(speeds), epochs=planned, state=RunState.FINISHED if is_over else RunState.RUNNING,
             ended=end if is_over else None, updated=round(min(BEGAN + until, BEGAN + max(ends)) * SECOND))  # fmt: skip
    for rank, (speed, rank_end) in enumerate(zip(speeds, ends, strict=True)):
        has_ended = rank_end <= until
        key = book.rank(RUN, rank, state=RunState.FINISHED if has_ended else RunState.RUNNING, steps=9,
                        ended=round((BEGAN + rank_end) * SECOND) if has_ended else None)  # fmt: skip
        uuid = book.device(key, rank)
        for ordinal in range(9):
            begun, ended = BEGAN + speed * ordinal, BEGAN + speed * (ordinal + 1)
            if begun < BEGAN + until:
                is_open = ended > BEGAN + until
                book.epoch(key, ordinal, epoch=ordinal % 3, begun=round(begun * SECOND), seconds=speed,
                           ended=None if is_open else round(ended * SECOND))  # fmt: skip
                book.usage(key, ordinal, uuid, **measured(speed))


def views(book: Book) -> dict[str, Any]:
    """The number of epochs done by view."""
    with Ledger(str(book.path)) as ledger:
        (listed,), record = ledger.runs(), ledger.record(RUN)
    with Ledgers([str(book.path)]) as ledgers:
        (row,) = ListedRuns().read(ledgers, NOW)
    served = Served((), [str(book.path)])
    text = "\n".join(run_text.lines(record, NOW, 0))
    page = served.json(f"/api/kept?page=run&id={RUN}")["values"]
    cells = served.json("/api/kept?page=runs")["tables"]["runs"]["cells"][RUN]
    of_views = {
        "list": run_json.listing([listed], NOW)["runs"][0]["epochs_done"],
        "show": run_json.run_document(record, NOW)["run"]["epochs_done"],
        "text": int(re.search(r"(\d+) (?:of \d+ )?epochs done", text)[1]),  # type: ignore[index]
        "python": PastLedger([str(book.path)]).runs()[0].epochs_done,
        "pages": cells["epochs_done"],
        "api": served.json("/api/v1/runs")["runs"][0]["epochs_done"],
    }
    if listed.run.state is not RunState.RUNNING:
        of_views["table"] = int(run_list.epoch_cell(listed).partition("/")[0])
        of_views["opened"] = open_run(record, NOW).totals.done
        of_views["terminal"] = int(row.epoch.partition("/")[0])
        of_views["page"] = int(page["epoch"].partition(" ")[0])
    return of_views


@pytest.mark.parametrize(
    ("speeds", "until", "planned", "done"),
    [
        ((10.0, 10.1), 1e9, 3, 9),
        ((10.0, 25.0), 1e9, None, 9),
        ((25.0, 10.0, 13.0), 1e9, 9, 9),
        ((10.0, 25.0), 60.0, 3, 2),
        ((10.0, 25.0), 101.0, None, 4),
        ((25.0, 10.0), 90.0, 9, 3),
    ],
)
def test_repeated_fits(tmp_path: Path, speeds: tuple[float, ...], until: float, planned: int | None, done: int) -> None:
    with Book(tmp_path) as book:
        fits(book, speeds, until=until, planned=planned)
        told = views(book)
    assert told == dict.fromkeys(told, done)


def test_exceeded_plan_is_omitted(tmp_path: Path) -> None:
    with Book(tmp_path) as book:
        fits(book, (10.0, 25.0))
        with Ledger(str(book.path)) as ledger:
            (listed,), record = ledger.runs(), ledger.record(RUN)
        assert run_list.epoch_cell(listed) == "9"
        assert "9 epochs done" in "\n".join(run_text.lines(record, NOW, 0))
        served = Served((), [str(book.path)])
        assert served.json(f"/api/kept?page=run&id={RUN}")["values"]["epoch"] == "9"
        cells = served.json("/api/kept?page=runs")["tables"]["runs"]["cells"][RUN]
        assert cells["epochs"][0]["line"][0]["text"] == "9"


@pytest.mark.parametrize(
    ("planned", "base", "state", "cell"),
    [
        (4, 0, RunState.FAILED, "2/4"),
        (4, 1, RunState.INTERRUPTED, "1/4"),
        (4, 0, RunState.STOPPED, "2/4"),
        (4, 0, RunState.RUNNING, "2/4"),
        (None, 0, RunState.DIED, "1"),
        (None, 0, RunState.RUNNING, "1"),
    ],
)
def test_every_list_shows_the_epoch_in_which_a_run_ended(
    tmp_path: Path, planned: int | None, base: int, state: RunState, cell: str
) -> None:
    ended = None if state is RunState.RUNNING else round((BEGAN + 15) * SECOND)
    with Book(tmp_path) as book:
        book.run(RUN, epochs=planned, base=base, state=state, ended=ended)
        key = book.rank(RUN, state=state, ended=ended)
        book.epoch(key, 0)
        book.epoch(key, 1, ended=None)
        with Ledgers([str(book.path)]) as ledgers:
            (listed,) = ledgers.runs()
            (row,) = ListedRuns().read(ledgers, NOW)
        cells = Served((), [str(book.path)]).json("/api/kept?page=runs")["tables"]["runs"]["cells"][RUN]
    live = run("keras", state=state, epoch=1, epochs=planned or 0, base=base, phase="train")
    ranks = Ranks((live,))
    no_progress = Progress(nan, nan, nan)
    of_views = {
        "command": run_list.epoch_cell(listed),
        "terminal": row.epoch,
        "browser": cells["epochs"][0]["line"][0]["text"],
        "overview": run_row(ranks, no_progress, "", now=NOW, bar_cells=9, pace="", change=nan)[EPOCH].text,
    }
    assert of_views == dict.fromkeys(of_views, cell)
    assert listed.done == 1


@pytest.mark.parametrize(("states", "cell"), [
    ((RunState.FAILED, RunState.STOPPED), "3/4"),
    ((RunState.RUNNING, RunState.RUNNING), "1/4"),
    ((RunState.FAILED, RunState.RUNNING), "3/4"),
])  # fmt: skip
def test_ranks_that_ended_hold_back_no_list(tmp_path: Path, states: tuple[RunState, RunState], cell: str) -> None:
    with Book(tmp_path) as book:
        book.run(RUN, world_size=2, epochs=4, state=min(states, key=lambda state: state is not RunState.RUNNING))
        for rank, (state, epoch) in enumerate(zip(states, (0, 2), strict=True)):
            key = book.rank(RUN, rank, state=state)
            for ordinal in range(epoch + 1):
                book.epoch(key, ordinal, ended=None if ordinal == epoch else (BEGAN + 10 * ordinal + 10) * SECOND)
        with Ledger(str(book.path)) as ledger:
            (listed,) = ledger.runs()
    slowest = Ranks(
        tuple(run(epochs=4, state=state, epoch=epoch) for state, epoch in zip(states, (0, 2), strict=True))
    ).slowest
    assert run_list.epoch_cell(listed) == units.epoch_position(slowest.epoch, 4, 0) == cell
