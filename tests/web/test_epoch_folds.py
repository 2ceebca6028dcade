"""The table of a long run: neighbors that are alike are one row, and what differs stands between them."""

from __future__ import annotations

from typing import Any

import pytest

from gpumon.reports import run_json
from gpumon.storage.ledger.reader import Ledgers
from gpumon_web.pages.run import kept, rest
from gpumon_web.stored.epoch_rows import LONG, MAX_FOLD, NEWEST
from gpumon_web.stored.run_page import all_rows, find_run, run_document
from tests.runs import BEGAN, Book

RUN = "long-1a2b"
EPOCHS = 320
ODD = 150


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A ledger with a run of which one epoch waited for data, and one of as many epochs as are shown one by one."""
    with Book(tmp_path_factory.mktemp("folds")) as book:
        for run, epochs in ((RUN, EPOCHS), ("short-3c4d", LONG)):
            key = book.rank(book.run(run, epochs=epochs))
            book.device(key, 0)
            for at in range(epochs):
                book.epoch(key, at, wait=6.0 if at == ODD else 0.1, metrics=f'{{"loss": {at}}}')
                book.usage(key, at, "GPU-0", utilization_mean=0.9, energy=100.0 + at)
                book.phase(key, at, "train", 8.0)
                book.phase(key, at, "validate", 2.0 + at % 2)
        return str(book.path)


def document(path: str, run: str = RUN) -> dict[str, Any]:
    found, _ = run_document([path], run, "", None, None, BEGAN + 9000, None)
    assert found is not None
    return {"run": None, **found, "id": run, "now": BEGAN + 9000}


def test_neighbors_of_one_verdict_are_one_row_and_the_one_that_differs_and_the_newest_are_not(path: str) -> None:
    values = kept(document(path)).values
    spans = [(one["first"], one["last"], one["epoch"]["text"]) for one in values["folds"]]
    assert spans == [
        (0, MAX_FOLD - 1, "0–99"), (100, ODD - 1, "100–149"), (ODD + 1, 199, "151–199"), (200, 299, "200–299"),
        (300, EPOCHS - NEWEST - 1, "300–309"),
    ]  # fmt: skip
    single = [row["ordinal"] for row in values["epochs"] if not row["key"].startswith("part")]
    assert single == [ODD, *range(EPOCHS - NEWEST, EPOCHS)]
    assert "neighbors" in values["folded"]


def test_a_row_of_neighbors_has_their_means(path: str) -> None:
    first, *_ = kept(document(path)).values["folds"]
    assert first["seconds"] == 10
    assert first["energy"] == pytest.approx(149.5)
    assert first["logged"] == {"loss": 49.5}
    assert first["beside"] == 2.5
    assert first["utilization_mean"] == 0.9
    assert first["verdict"] == {"text": "fine", "css": "mut"}


def test_all_epochs_come_when_a_row_of_them_is_opened(path: str) -> None:
    with Ledgers([path]) as ledgers:
        found = find_run(ledgers, RUN)
        assert found is not None
        record = found[0].record(RUN, phases=False, times=True)
    rows = rest({"run": run_json.run_to_json(record.run, BEGAN), **all_rows(record)}).values["epochs"]
    assert [row["ordinal"] for row in rows if not row["key"].startswith("part")] == list(range(EPOCHS))


def test_a_run_that_is_not_long_has_no_such_rows(path: str) -> None:
    found = kept(document(path, "short-3c4d"))
    assert (found.values["folds"], found.values["folded"]) == ([], "")
    assert found.totals["epochs"] >= LONG
