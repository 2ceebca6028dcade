"""The page of a run: what the ledger keeps of it, and what the ring tells while it goes on."""

from __future__ import annotations

import json
import math
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpumon.common.clock import SECOND
from gpumon.common.numbers import NAN
from gpumon.diagnosis.past_findings import verdict
from gpumon.model.columns import USAGE
from gpumon.model.frame import Mark, RunState
from gpumon.reports import run_json
from gpumon.storage.ledger import aggregate
from gpumon.storage.ledger.reader import Ledger, Ledgers
from gpumon.storage.ledger.records import LivePeak
from gpumon.storage.ledger.row_keys import WHOLE_RUN
from gpumon.storage.ledger.summary import EpochSummary
from gpumon_web.components.machine import Now
from gpumon_web.components.run_head import length_range, run_progress
from gpumon_web.pages import runs as runs_page
from gpumon_web.pages.run import kept, live
from gpumon_web.stored.epoch_table import MAX_LOGGED, epoch_cells, logged_names, rank_cells
from gpumon_web.stored.run_list import run_list_document
from gpumon_web.stored.run_page import ROWS, find_run, run_document
from tests.builders import TIME, boundary, device, run, sample, tick
from tests.runs import BEGAN, GIB, HOSTILE, Book, measured, training, uuid_of
from tests.web.served import Served

NET = "net-1a2b"
UNKNOWN_PEAK = LivePeak()


def document(book: Book, of: str = NET, now: float = BEGAN + 1000) -> dict[str, Any]:
    """What the page gets of a run that only the ledger knows."""
    found, _ = run_document([str(book.path)], of, "", None, None, now, None)
    assert found is not None
    return {"run": None, **found, "id": of, "now": now}


def sent(served: Served, of: str = NET, more: str = "") -> Any:
    """What a browser gets of it."""
    return served.json(f"/api/kept?page=run&id={of}{more}")


def test_a_run_that_is_over_says_how_many_epochs_it_did_and_how_long_it_took(tmp_path: Path) -> None:
    with Book(tmp_path) as book:
        training(book, NET, 3)
        found = kept(document(book))
    values = found.values
    assert (values["epoch_is"], values["epoch"], values["epoch_below"]) == ("Epochs done", "3 of 3", "last: epoch 2")
    assert values["left_is"] == "Took"
    assert [one["fact"] for one in values["facts"] if one.get("time")] == ["began"]
    assert values["left_below"] == {"text": "ended", "time": pytest.approx(BEGAN + 35, abs=1)}
    assert values["mean_range"].startswith("from 10")
    assert values["state"] == {"tag": "finished", "level": "", "now": False}
    assert found.again > 60


@pytest.mark.parametrize(("steps", "told"), [(0, "0 of 40"), (2016, "– of 40")])
def test_a_run_claims_no_number_of_epochs_that_nobody_saw(tmp_path: Path, steps: int, told: str) -> None:
    with Book(tmp_path) as book:
        book.rank(book.run(NET, epochs=40, base=0, state=RunState.FINISHED, ended=(BEGAN + 60) * SECOND), steps=steps)
        values = kept(document(book)).values
    assert (values["epoch_is"], values["epoch"]) == ("Epochs done", told)


def test_a_run_that_was_seen_late_did_the_epochs_before_as_well(tmp_path: Path) -> None:
    with Book(tmp_path) as book:
        training(book, NET, 3)
        book.db.execute("UPDATE epoch SET epoch = epoch + 7")
        book.db.execute("UPDATE run SET epochs = 10")
        values = kept(document(book)).values
    assert (values["epoch"], values["epoch_below"]) == ("10 of 10", "last: epoch 9")


def test_the_epochs_before_a_resume_are_a_number_of_their_own_in_json(tmp_path: Path) -> None:
    with Book(tmp_path) as book:
        training(book, NET, 3)
        book.db.execute("UPDATE epoch SET epoch = epoch + 7")
        book.db.execute("UPDATE run SET epochs = 10, first_epoch = 7, base = 0")
        with Ledger(str(book.path)) as ledger:
            (listed,) = run_json.listing(ledger.runs(), BEGAN + 1000)["runs"]
    assert (listed["epochs_done"], listed["epochs_before"]) == (3, 7)


def test_a_run_that_resumed_at_an_epoch_has_those_before_behind_it_on_both_pages(tmp_path: Path) -> None:
    with Book(tmp_path) as book:
        training(book, NET, 3)
        book.db.execute("UPDATE epoch SET epoch = epoch + 5")
        book.db.execute("UPDATE run SET epochs = 8, first_epoch = 5")
        served = Served((), [str(book.path)])
        values = served.json(f"/api/kept?page=run&id={NET}")["values"]
        rows = served.json("/api/kept?page=runs")["tables"]["runs"]["cells"]
    assert (values["epoch"], values["epoch_below"]) == ("8 of 8", "3 in this run; last: epoch 7")
    assert rows[NET]["epochs"][0]["line"][0]["text"] == "8/8"


def test_an_epoch_of_unknown_utilization_has_no_bar_which_would_be_0_percent(tmp_path: Path) -> None:
    with Book(tmp_path) as book:
        rank = book.rank(book.run(NET))
        uuid = book.device(rank)
        book.epoch(rank, 0)
        book.epoch(rank, 1)
        book.usage(rank, 1, uuid, **measured(utilization=0.0))
        unknown, idle = (one["utilization"][0]["line"] for one in kept(document(book)).values["epochs"])
    assert len(unknown) == 1
    assert len(idle) == 2


@pytest.mark.parametrize(("logged", "said"), [(MAX_LOGGED, False), (MAX_LOGGED + 3, True)])
def test_logged_metrics_without_a_column_are_counted(tmp_path: Path, logged: int, said: bool) -> None:
    with Book(tmp_path) as book:
        training(book, NET, 3, course=False)
        names = json.dumps({f"metric{place}": 1.0 for place in range(logged)})
        book.db.execute("UPDATE epoch SET metrics = ?", (names,))
    values = kept(document(book)).values
    assert len(values["logged_names"]) == MAX_LOGGED
    assert (f"{MAX_LOGGED} of {logged}" in values["folded"]) is said


def test_numbers_of_epochs_have_their_thousands_set_apart_wherever_a_run_names_them(tmp_path: Path) -> None:
    with Book(tmp_path) as book:
        training(book, NET, 1030, course=False, phases=False)
        book.out_of_memory("tag.1000.4711." + NET)
        book.db.execute("UPDATE mark SET epoch = 1021, step = 102150")
        values = kept(document(book)).values
    assert values["epoch_below"] == "last: epoch 1,029"
    assert values["epochs"][-1]["epoch"] == "1,029"
    assert "1,000–1,019" in [one["epoch"]["text"] for one in values["folds"]]
    assert values["noted"][0]["text"].startswith("epoch 1,021, step 102,150: ")
    assert values["epochs"][-1]["search"].startswith("1029 1,029 "), "it is found by either"


def test_an_epoch_that_a_failed_run_broke_off_is_not_the_last_that_it_did(tmp_path: Path) -> None:
    with Book(tmp_path) as book:
        training(book, NET, 4, state=RunState.FAILED)
        book.db.execute("UPDATE epoch SET ended = NULL WHERE ordinal = 3")
        values = kept(document(book)).values
        assert (values["epoch"], values["epoch_below"]) == ("3 of 4", "last: epoch 2")
        book.db.execute("UPDATE epoch SET ended = NULL")
        assert kept(document(book)).values["epoch_below"] == ""


def test_tags_parameters_and_notes_of_a_run_are_on_its_page_and_a_change_of_them_makes_it_new(tmp_path: Path) -> None:
    with Book(tmp_path) as book:
        training(book, NET, 3)
        before = run_document([str(book.path)], NET, "", None, None, BEGAN + 1000, None)[1]
        assert kept(document(book)).values["about"] == []
        book.add("parameter", run=NET, kind=0, name="lr", place=0, value="0.1", rank=0)
        book.add("parameter", run=NET, kind=1, name="script", place=0, value='"train.py"', rank=0)
        book.add("note", run=NET, time=TIME, text=f"tried {HOSTILE}", author="bob")
        book.add("tag", run=NET, tag="good", removed=0)
        found, after = run_document([str(book.path)], NET, "", None, None, BEGAN + 1000, before)
        values = kept(document(book)).values
    assert found is not None
    assert after != before
    pieces = [[piece.get("tag") or (piece.get("fact", ""), piece["text"]) for piece in line["line"]]
              for line in values["about"]]  # fmt: skip
    assert pieces == [["good"], [("", "train.py")], [("lr", "0.1")]]
    (note,) = values["notes"]
    assert note["text"].endswith("(bob)")
    assert "\x1b" not in note["text"]


def test_a_run_whose_end_nobody_recorded_is_not_said_to_have_ended(tmp_path: Path) -> None:
    with Book(tmp_path) as book:
        book.rank(book.run(NET, state=RunState.DIED))
        values = kept(document(book)).values
    assert values["left_below"] == "end not recorded"
    assert values["mean_range"] == values["idle"] == values["power"] == ""
    assert (values["utilization"], values["energy"], values["csv"]) == ("–", None, None)


def test_a_run_that_is_none_has_a_title_that_says_so_and_no_values(tmp_path: Path) -> None:
    with Book(tmp_path) as book:
        book.run(NET)
    values = sent(Served([tick(1)], [str(book.path)]), "nope")["values"]
    assert values["title"] == "No such run"
    assert "the id nope" in values["gone"]
    assert {value for name, value in values.items() if name not in ("title", "gone", "without")} == {None}


def test_what_the_ring_tells_stands_before_what_the_ledger_has_and_nothing_else_does() -> None:
    working = run(epoch=4, state=RunState.RUNNING, phase="validate", started=TIME / 1e9)
    served = Served([tick(100, [sample(0)], runs=[working])])
    told = live(served.known(), {"id": working.id})
    assert (told["title"], told["epoch_is"], told["left_is"]) == (working.name, "Epoch", "Time left")
    assert told["epoch"].startswith("4")
    assert told["epoch_below"] == "validate"
    assert told["left_below"] == "1 min so far"
    assert told["left"] == "–", "an estimate that there is not is unknown, and not an older one"
    over = Served([tick(100, [sample(0)], runs=[run(state=RunState.FAILED)])])
    told = live(over.known(), {"id": working.id})
    assert {name for name, value in told.items() if value is not None} == {"title", "tab", "state", "left_is"}
    assert told["state"]["level"] == "bad"
    assert set(live(Now(), {"id": "nope"}).values()) == {None}


ON = {"state": "running", "epoch": "1 (2/9)", "phase": "validate", "progress": 0.2, "left": 90.0}


def test_of_a_run_that_just_ended_nothing_says_that_it_goes_on(tmp_path: Path) -> None:
    """The ring says at once that it ended; what the ledger has comes a moment later, and then was made before."""
    with Book(tmp_path) as book:
        rank = book.rank(book.run(NET, epochs=9))
        book.epoch(rank, 0)
        found = document(book)
    before = kept({**found, "live": {**found["run"], **ON}}).values
    ended = {**found["run"], **ON, "state": "finished", "left": None}
    told = live(Now(runs={NET: ended}), {"id": NET})
    shown = {name: value if (value := told.get(name)) is not None else before[name] for name in (*told, *before)}
    assert shown["state"]["tag"] == "finished"
    assert (shown["left_is"], shown["left"], shown["left_below"]) == ("Took", "–", "")
    assert (shown["epoch"], shown["epoch_below"]) == ("0", "1 of 9 done")
    meanwhile = live(Now(runs={NET: {**found["run"], **ON}}, time=BEGAN + 1000), {"id": NET})
    assert (meanwhile["left_is"], meanwhile["left"], meanwhile["epoch_below"]) == ("Time left", 90.0, "validate")


def test_a_run_that_just_ended_is_asked_for_again_until_its_ledger_has_all_of_it(tmp_path: Path) -> None:
    with Book(tmp_path) as book:
        book.epoch(book.rank(book.run(NET)), 0)
        before = document(book)
    ended = {**before["run"], "state": "finished", "ended": BEGAN + 60}
    assert kept({**before, "live": ended}).again < 10, "the ring tells it first"
    assert kept({**before, "run": ended, "now": BEGAN + 65}).again < 10, "its last numbers come late"
    assert kept({**before, "run": ended, "now": BEGAN + 600}).again > 100


def test_an_epoch_that_goes_on_is_one_that_was_last_seen_so_once_nothing_new_comes(tmp_path: Path) -> None:
    with Book(tmp_path) as book:
        rank = book.rank(book.run(NET, epochs=9))
        book.epoch(rank, 0)
        book.usage(rank, 0, book.device(rank), **measured(60.0))
        book.epoch(rank, 1, ended=None)
        found = document(book)
    newest, before = found["epochs"][1], found["epochs"][0]
    assert epoch_cells(newest, found["run"])["verdict"]["tag"] == "running"
    assert epoch_cells(newest, found["run"])["verdict"]["old"] == "last seen running", "as its run"
    assert "old" not in epoch_cells(before, found["run"])["verdict"]


def test_energy_that_is_known_in_part_is_at_least_that_wherever_it_stands(tmp_path: Path) -> None:
    known = {"energy": 5000.0, "energy_least": 5000.0}
    with Book(tmp_path) as book:
        rank = book.rank(book.run(NET, state=RunState.FINISHED))
        device = book.device(rank)
        for ordinal, part in ((0, known), (1, {"energy": None, "energy_least": 900.0}),
                              (WHOLE_RUN, {"energy": None, "energy_least": 5900.0})):  # fmt: skip
            if ordinal >= 0:
                book.epoch(rank, ordinal)
            book.usage(rank, ordinal, device, **{**measured(60.0), **part})
        found = document(book)
        listed, _ = run_list_document([str(book.path)], {}, BEGAN + 600, None)
    values = kept(found).values
    assert [row["energy"] for row in values["epochs"]][:2] == [5000.0, {"least": 900.0}]
    assert values["energy"] == {"least": 5900.0}
    assert values["most_energy"] == 5000.0
    assert listed is not None
    (row,) = runs_page.kept({**listed, "missing": "", "not_kept": "", "label": "", "none": ""}).values["runs"]
    assert row["energy"] == {"least": 5900.0}


def test_cells_of_an_epoch_that_goes_on_hold_while_the_ring_tells_of_it(tmp_path: Path) -> None:
    with Book(tmp_path) as book:
        rank = book.rank(book.run(NET, epochs=9))
        book.epoch(rank, 0)
        book.epoch(rank, 1, ended=None)
        found = document(book)
    run = {**found["run"], **ON}
    cells = epoch_cells(found["epochs"][1], run, is_live=True)
    told = live(Now(runs={NET: run}), {"id": NET})
    assert cells["verdict"]["while"] == cells["seconds"]["while"] == told["epoch"]
    assert "while" not in str(epoch_cells(found["epochs"][0], run, is_live=False))


def test_a_run_that_goes_on_has_its_epoch_from_the_ledger_where_the_ring_tells_none(tmp_path: Path) -> None:
    with Book(tmp_path) as book:
        rank = book.rank(book.run(NET, epochs=9))
        book.epoch(rank, 0)
        book.epoch(rank, 1)
        found = document(book)
    values = run_progress(found, found["run"])
    assert (values["epoch"], values["epoch_below"]) == ("1", "2 of 9 done")
    assert kept(found).again < 10


def test_the_bar_of_a_run_that_is_over_is_as_far_as_the_epochs_that_it_did(tmp_path: Path) -> None:
    with Book(tmp_path) as book:
        rank = book.rank(book.run(NET, epochs=10, state=RunState.FAILED))
        for number in range(3):
            book.epoch(rank, number)
        book.epoch(rank, 3, ended=None)
        found = document(book)
    # The ring still has it, and counts the part of the epoch in which it failed.
    values = run_progress(found, {**found["run"], "progress": 0.398})
    assert values["epoch"] == "3 of 10"
    (line,) = values["bar"]
    assert line["bar"][0]["share"] == 0.3


def test_measurements_of_an_epoch_that_goes_on_say_of_how_much_of_it_they_are(tmp_path: Path) -> None:
    with Book(tmp_path) as book:
        rank = book.rank(book.run(NET, epochs=9))
        uuid = book.device(rank)
        book.epoch(rank, 0)
        book.epoch(rank, 1, ended=None)
        before = kept(document(book)).values
        book.usage(rank, 1, uuid, **measured(8.0))
        found = document(book)
    live = {**found["run"], "epoch": "1 (2/9)", "progress": 0.2}
    assert kept({**found, "live": live}).values["folded"] == "epoch 1: measured for its first 8.0 s"
    assert before["folded"] == "", "the ring tells nothing of a time that is newer"
    over = kept({**found, "live": {**live, "state": "finished"}}).values
    assert over["folded"] == ""


def test_of_a_run_that_goes_on_epochs_with_a_verdict_are_counted_among_those_that_ended(tmp_path: Path) -> None:
    with Book(tmp_path) as book:
        training(book, NET, 4, state=RunState.RUNNING, usage={"throttled_share": 0.6})
        book.db.execute("UPDATE epoch SET ended = NULL WHERE ordinal = 3")
        said = [one["text"] for one in kept(document(book)).values["noted"]]
    assert "Epochs 0–2 were throttled: 3 of 3 that ended." in said


def test_an_epoch_that_is_not_settled_is_not_judged_and_says_that_its_use_may_change(tmp_path: Path) -> None:
    with Book(tmp_path) as book:
        key = book.rank(book.run(NET))
        uuid = book.device(key)
        for ordinal in range(2):
            book.epoch(key, ordinal)
            book.usage(key, ordinal, uuid, **measured())
        book.add("progress", rank=key, state=json.dumps({"course": {"next": 2, "epochs": [{"epoch": [1]}]}}))
        found = document(book)
        settled, settling = (epoch_cells(one, found["run"]) for one in found["epochs"])
        assert settling["idle"] == f"≈{settled['idle']}"
        use = [one["utilization"][0]["line"][0]["text"] for one in (settled, settling)]
        assert use[1] == f"≈{use[0]}"
        assert settling["verdict_text"] == "settling"
        book.db.execute("DELETE FROM progress")
        assert (
            epoch_cells(document(book)["epochs"][1], found["run"])["verdict_text"]
            == settled["verdict_text"]
            != "settling"
        )


@pytest.mark.parametrize(("share", "is_marked"), [(0.07, True), (0.94, True), (0.96, False), (1.0, False)])
def test_the_utilization_of_an_epoch_of_which_a_part_was_sampled_is_marked(
    tmp_path: Path, share: float, is_marked: bool
) -> None:
    with Book(tmp_path) as book:
        training(book, NET, 3)
        book.db.execute("UPDATE usage SET sampled = ? * seconds WHERE ordinal = 1", (share,))
        found = document(book)
    whole, part = (epoch_cells(found["epochs"][place], found["run"]) for place in (0, 1))
    texts = [(one["utilization"][0]["line"][0]["text"], one["idle"]) for one in (whole, part)]
    assert [one.startswith("≈") for one in texts[0]] == [False] * 2
    assert [one.startswith("≈") for one in texts[1]] == [is_marked] * 2


@pytest.mark.parametrize(("ago", "says"), [(2.0, "settling"), (600.0, "fine")])
def test_the_last_epoch_of_a_run_that_just_ended_is_settling_until_its_last_samples_are_in(
    tmp_path: Path, ago: float, says: str
) -> None:
    ended = round((time.time() - ago) * SECOND)
    with Book(tmp_path) as book:
        id = book.run(NET, state=RunState.FINISHED, ended=ended)
        key = book.rank(id, state=RunState.FINISHED, ended=ended)
        for ordinal in range(2):
            book.epoch(key, ordinal)
            book.usage(key, ordinal, book.device(key) if not ordinal else uuid_of(0), **measured())
        book.add("progress", rank=key, state=json.dumps({"course": {"next": 2, "epochs": [{"epoch": [1]}]}}))
        found = document(book)
        before, last = (epoch_cells(one, found["run"])["verdict_text"] for one in found["epochs"])
        assert (before, last) == ("fine", says)


def test_a_running_epoch_has_taken_as_long_as_it_goes_on(tmp_path: Path) -> None:
    with Book(tmp_path) as book:
        rank = book.rank(book.run(NET))
        book.epoch(rank, 0)
        book.epoch(rank, 1, ended=None, seconds=None)
        found = document(book)
    first, second = (epoch_cells(one, found["run"]) for one in found["epochs"])
    assert isinstance(first["seconds"], float | int)
    assert second["seconds"] == {"since": found["epochs"][1].begun}
    assert [one.is_open for one in found["epochs"]] == [False, True]
    over = epoch_cells(found["epochs"][1], {**found["run"], "state": "died"})
    assert over["seconds"] is None


def epoch(
    peak: LivePeak = UNKNOWN_PEAK, *, is_open: bool = False, sampled: float = 1.0, **values: float
) -> EpochSummary:
    """An epoch of which only these values of `columns.USAGE` are known."""
    return EpochSummary(
        ordinal=0, epoch=0, phase="", begun=NAN, ended=NAN, seconds=NAN, times=1, steps=None, wait=NAN, metrics={},
        ranks=1, utilization_from="", values=[values.get(column.key, NAN) for column in USAGE], peak=peak,
        sampled_share=sampled, is_open=is_open,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("known", "peak", "text"),
    [
        (epoch(LivePeak(2 * GIB, reached=True)), 2 * GIB, "2.0 GiB"),
        (epoch(LivePeak(2 * GIB, reached=False)), 2 * GIB, "≤ 2.0 GiB"),
        (epoch(run_allocated_peak=GIB, memory_used_peak=3 * GIB), GIB, "≥ 1.0 GiB"),
        (epoch(memory_used_peak=3 * GIB), 3 * GIB, "3.0 GiB"),
        (epoch(LivePeak(2 * GIB, reached=True), is_open=True), 2 * GIB, "≥ 2.0 GiB"),
        (epoch(LivePeak(2 * GIB, reached=False), is_open=True), 2 * GIB, "≤ 2.0 GiB"),
        (epoch(memory_used_peak=3 * GIB, is_open=True), 3 * GIB, "≥ 3.0 GiB"),
        (epoch(memory_used_peak=3 * GIB, sampled=0.5), 3 * GIB, "≥ 3.0 GiB"),
        (epoch(), None, "–"),
        (epoch(sampled=0.5), None, "–"),
    ],
)
def test_a_peak_says_whether_it_is_a_bound(known: EpochSummary, peak: float | None, text: str) -> None:
    cells = epoch_cells(known, {"user": None, "state": "finished"})
    assert (cells["peak_bytes"], cells["peak"]) == (peak, text)
    assert cells["utilization"][0]["line"][0]["text"].endswith("–")


@pytest.mark.parametrize("has_waits", [False, True])
def test_an_epoch_of_whose_gpus_nothing_was_measured_has_no_verdict_anywhere(has_waits: bool, tmp_path: Path) -> None:
    """As of a run that a daemon took up from its board: its waits are short, and nobody saw its GPU."""
    with Book(tmp_path) as book:
        training(book, NET, 3)
        if not has_waits:
            book.db.execute("UPDATE epoch SET wait = NULL WHERE ordinal > 0")
        book.db.execute("DELETE FROM usage WHERE ordinal > 0")
        found = document(book)
        with Ledgers([str(book.path)]) as ledgers:
            (ledger, _) = find_run(ledgers, NET) or pytest.fail("the ledger has the run")
            record = ledger.record(NET)
    told = [epoch_cells(one, found["run"]) for one in found["epochs"]]
    assert [cells["verdict_text"] for cells in told] == ["fine", None, None]
    assert [cells["verdict"] for cells in told][1:] == [None, None]
    listed = run_json.run_document(record, BEGAN + 1000)["epochs"]
    assert [one["verdict"] for one in listed] == ["fine", None, None], "null is unknown"
    judged = [verdict(one, False) for one in aggregate.epoch_summaries(record)]
    assert [one and one.kind for one in judged] == ["fine", None, None]


def test_epochs_of_less_than_a_second_do_not_take_0_s() -> None:
    assert length_range({"ended": 9, "least": 0.05, "most": 0.42}) == "from 50 ms to 420 ms"


def test_epochs_of_one_length_have_no_range_of_lengths() -> None:
    assert length_range({"ended": 1, "least": 5.0, "most": 5.0}) == "of one epoch"
    assert length_range({"ended": 3, "least": 4.98, "most": 5.03}) == "each 5.0 s"


@pytest.mark.parametrize(("state", "peak"), [("running", "≥ 2.0 GiB"), ("finished", "2.0 GiB")])
def test_the_peak_of_a_rank_that_goes_on_may_still_rise(state: str, peak: str) -> None:
    one = {"key": "k", "rank": 0, "state": state, "gpus": [], "pid": 7, "steps": 9, "wait": None, "ooms": None}
    assert rank_cells({**one, "peak": 2 * GIB})["peak"] == peak
    assert rank_cells({**one, "peak": None})["peak"] == "–"


def test_logged_metrics_have_a_column_each_and_no_more_than_four() -> None:
    names = ("loss", "a", "b", "c", "d")
    rows = [replace(epoch(), metrics=metrics) for metrics in ({"loss": 1.0}, dict.fromkeys(names, 1.0))]
    assert logged_names(rows) == ["loss", "a", "b", "c"]
    assert len(logged_names(rows)) == MAX_LOGGED


def test_an_allocation_that_failed_is_noted_with_its_rank_where_there_are_several(tmp_path: Path) -> None:
    with Book(tmp_path) as book:
        training(book, NET, 2, gpus=2)
        book.out_of_memory(f"tag.1000.4712.{NET}")
        book.out_of_memory(f"tag.1000.4711.{NET}", 2, asked=None)
        found = kept(document(book)).values["noted"]
    assert sorted(note["text"].partition(",")[0] for note in found) == ["rank 0", "rank 1"]
    assert any(note["text"].endswith("requested 2.0 GiB, 1.0 GiB free") for note in found)
    assert any(note["text"].endswith("requested –, 1.0 GiB free") for note in found)
    assert {note["level"] for note in found} == {"bad"}


def test_phases_other_than_training_are_shaded_as_far_as_the_figure_reaches(tmp_path: Path) -> None:
    with Book(tmp_path) as book:
        training(book, NET, 3)
        key, begun = (
            book.db.execute(f"SELECT {what}").fetchone()[0]
            for what in ("key FROM rank", "begun FROM epoch WHERE ordinal = 2")
        )
    phase = boundary(7, 2, Mark.PHASE, key)._replace(phase="validate", time_ns=begun + 8_000_000_000)
    working = run(key, id=NET, started=BEGAN, state=RunState.RUNNING)
    served = Served([tick(1, [sample(0)], runs=[working], boundaries=[phase])], [str(book.path)])
    figure = sent(served)["figures"]["course"]
    phases = figure["runs"][0]["phases"]
    assert phases
    assert all(begin < end <= figure["end"] + 0.001 for begin, end, _ in phases)


def test_a_run_without_a_course_has_no_figure(tmp_path: Path) -> None:
    with Book(tmp_path) as book:
        book.rank(book.run(NET))
    found = sent(Served([tick(1)], [str(book.path)]))
    assert found["figures"] == {"course": None}
    assert found["tables"]["ranks"]["order"] == [f"tag.1000.4711.{NET}"]


def test_the_newest_epochs_come_with_a_run_and_the_rest_when_it_is_wanted(tmp_path: Path) -> None:
    with Book(tmp_path) as book:
        training(book, NET, ROWS + 50, course=False)
    served = Served([tick(1)], [str(book.path)])
    newest = sent(served)["tables"]["epochs"]
    assert newest["order"] == [str(at) for at in range(50, ROWS + 50)]
    assert newest["total"] == ROWS + 50
    rest = sent(served, more="&rest=1")["tables"]["epochs"]
    assert len(rest["order"]) == rest["total"] == ROWS + 50
    assert {key: rest["cells"][key] for key in newest["order"]} == newest["cells"]


def test_each_device_of_a_run_has_a_button_and_the_figure_is_of_the_one_that_is_pressed(tmp_path: Path) -> None:
    with Book(tmp_path) as book:
        training(book, NET, 2, gpus=2)
    served = Served([tick(1)], [str(book.path)])
    pressed = [[one["is_pressed"] for one in sent(served, more=more)["values"]["devices"]]
               for more in ("", f"&gpu={uuid_of(1)}")]  # fmt: skip
    assert pressed == [[True, False, False, False], [False, False, False, True]], "the mean, each, and one of them"
    alone = tmp_path / "alone"
    with Book(alone) as book:
        training(book, NET, 2)
    assert sent(Served([tick(1)], [str(book.path)]))["values"]["devices"] == []


def test_a_loss_that_is_no_number_is_a_word(tmp_path: Path) -> None:
    with Book(tmp_path) as book:
        book.epoch(book.rank(book.run(NET)), 0, metrics='{"loss": "NaN"}')
    found = sent(Served([tick(1)], [str(book.path)]))
    assert found["values"]["logged_names"] == ["loss"]
    assert found["tables"]["epochs"]["cells"]["0"]["logged"] == {"loss": "NaN"}
    assert not math.isnan(found["values"]["most_energy"])


def test_a_page_without_rest_has_none(tmp_path: Path) -> None:
    served = Served([tick(1)])
    assert served.client().get("/api/kept?page=runs&rest=1").status_code == 404
    assert served.client().get("/api/kept?page=gpu&rest=1").status_code == 404
    assert served.client().get(f"/api/kept?page=run&rest=1&id={device().uuid}").status_code == 404


@pytest.mark.parametrize(
    ("unmeasured", "heading"),
    [
        ("", "Tensors, peak"),
        ("UPDATE epoch SET peak = NULL; UPDATE usage SET run_allocated_peak = NULL", "Device memory, peak"),
        ("UPDATE epoch SET peak = NULL WHERE ordinal; UPDATE usage SET run_allocated_peak = NULL WHERE ordinal", ""),
    ],
)
def test_the_peaks_of_epochs_say_in_their_heading_of_which_memory_they_are(
    tmp_path: Path, unmeasured: str, heading: str
) -> None:
    with Book(tmp_path) as book:
        training(book, NET, 3)
        book.db.executescript(unmeasured)
        found = kept(document(book))
    assert found.values["peak_column"] == heading
    course = found.figures["course"]
    assert course is not None
    assert [one["title"] for one in course["panels"] if one["key"] == "gpu.memory_used"] == ["Device memory"]
