"""The number of epochs done is the same in every view, for ranks that repeat epochs at different speeds."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from gpumon.common.clock import SECOND
from gpumon.model.frame import RunState
from gpumon.reports import run_json, run_list, run_text
from gpumon.storage.ledger.api import PastLedger
from gpumon.storage.ledger.reader import Ledger, Ledgers
from gpumon_tui.data.run_detail import open_run
from gpumon_tui.data.run_list import ListedRuns
from tests.runs import BEGAN, Book, measured
from tests.web.served import Served

RUN = "keras-1a2b"
NOW = BEGAN + 1000


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
    ("speeds", "until", "done"),
    [
        ((10.0, 10.1), 1e9, 9),
        ((10.0, 25.0), 1e9, 9),
        ((25.0, 10.0, 13.0), 1e9, 9),
        ((10.0, 25.0), 60.0, 2),
        ((10.0, 25.0), 101.0, 4),
        ((25.0, 10.0), 90.0, 3),
    ],
)
@pytest.mark.parametrize("planned", [None, 3, 9])
def test_repeated_fits(tmp_path: Path, speeds: tuple[float, ...], until: float, done: int, planned: int | None) -> None:
    with Book(tmp_path) as book:
        fits(book, speeds, until=until, planned=planned)
        assert views(book) == dict.fromkeys(views(book), done)


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
        assert cells["epochs"][0]["line"][0]["text"] == "9 done"
