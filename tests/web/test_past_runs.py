"""Runs of the past as the server tells them to a page: from the ledger alone, or with what the ring has of them."""

from __future__ import annotations

from math import isnan
from pathlib import Path

import pytest

from gpumon.model.frame import Mark
from gpumon.model.origin import SIMULATED, Origin
from tests.builders import boundary, run, tick
from tests.runs import BEGAN, Book, training
from tests.web.served import Served

SPANS = "UPDATE phase SET spans = '[[8.0, 2.0]]' WHERE phase = 'validate'"


def test_phases_of_a_past_run_come_from_the_ledger(tmp_path: Path) -> None:
    with Book(tmp_path) as book:
        training(book, "net-1a2b", 3)
        book.db.execute(SPANS)
        begun = [row[0] / 1e9 for row in book.db.execute("SELECT begun FROM epoch ORDER BY ordinal")]
        found = Served(ledgers=[str(book.path)]).run("net-1a2b")
    assert found["chart"]["runs"][0]["phases"] == [[at + 8.0, at + 10.0, "validate"] for at in begun]


def test_of_what_ring_and_ledger_both_tell_the_ring_holds(tmp_path: Path) -> None:
    with Book(tmp_path) as book:
        training(book, "net-1a2b", 3)
        book.db.execute(SPANS)
        (key,), (begun,) = (
            book.db.execute(f"SELECT {what}").fetchone()
            for what in ("key FROM rank", "begun FROM epoch WHERE ordinal = 2")
        )
        again = boundary(7, 2, Mark.PHASE, key)._replace(phase="validate", time_ns=begun + 8_000_000_000)
        ticks = [tick(1, runs=[run(key, id="net-1a2b", started=BEGAN)], boundaries=[again])]
        found = Served(ticks, ledgers=[str(book.path)]).run("net-1a2b")
    chart = found["chart"]
    phases = chart["runs"][0]["phases"]
    begins = [begin - BEGAN for begin, _, _ in phases]
    assert len(begins) == 3, "none of them twice"
    assert begins == sorted(begins)
    assert phases[-1][1] == chart["end"], "as far as the ring knows, it goes on"


def test_an_epoch_whose_wait_nobody_measured_has_none_and_a_peak_says_whether_it_was_reached(tmp_path: Path) -> None:
    with Book(tmp_path) as book:
        training(book, "net-1a2b", 2)
        book.db.execute("UPDATE epoch SET wait = NULL WHERE ordinal = 0")
        book.db.execute("UPDATE usage SET run_allocated_peak = 1")
        first, second = Served(ledgers=[str(book.path)]).run("net-1a2b")["epochs"]
    assert isnan(first.wait_share)
    assert second.wait_share == pytest.approx(0.05)
    assert [(one.live_peak.reached, one.framework_peak > 1) for one in (first, second)] == [(True, True), (False, True)]


def test_runs_of_a_simulation_and_of_real_gpus_are_told_apart(tmp_path: Path) -> None:
    origin = Origin("sim", "SIMULATED", capabilities=SIMULATED)
    with Book(tmp_path) as book:
        for id in ("real-1a2b", "played-3c4d"):
            training(book, id, 2)
        book.db.execute("UPDATE run SET source = 'sim', label = 'SIMULATED' WHERE id = 'played-3c4d'")
        now = [run("k", id="now-5e6f", started=BEGAN)]
        served = Served([tick(1, runs=now, origin=origin)], ledgers=[str(book.path)])
        rows = served.json("/api/kept?page=runs")["tables"]["runs"]["cells"]
        tags = {id: [one["tag"] for one in row["run"][0]["line"] if "tag" in one] for id, row in rows.items()}
        assert tags == {"real-1a2b": ["real GPUs"], "played-3c4d": ["SIMULATED"], "now-5e6f": ["SIMULATED"]}
        facts = served.json("/api/kept?page=run&id=real-1a2b")["values"]["facts"]
        assert "real GPUs" in [one.get("tag") for one in facts]
        facts = served.json("/api/kept?page=run&id=played-3c4d")["values"]["facts"]
        assert not any("tag" in one for one in facts), "as the head of the page says"
        without = Served([tick(1, [], origin=Origin("nvml", "", "no driver answers"))], ledgers=[str(book.path)])
        texts = [one["text"] for one in without.json("/api/kept?page=none")["values"]["newest"]]
        assert sorted(texts) == ["All runs", "played, alice, SIMULATED", "real, alice, real GPUs"]
    with Book(tmp_path / "alone") as book:
        training(book, "real-1a2b", 2)
        (row,) = (
            Served([tick(1)], ledgers=[str(book.path)]).json("/api/kept?page=runs")["tables"]["runs"]["cells"].values()
        )
    assert [list(one) for one in row["run"][0]["line"]] == [["link", "text", "css", "label"]]
