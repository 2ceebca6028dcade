"""Findings of a run and of its epochs on its page: a sentence for each verdict, and epochs found by them."""

from __future__ import annotations

from pathlib import Path

from playwright.sync_api import Browser, expect

from gpumon.diagnosis.context import RunContext, diagnose
from gpumon.diagnosis.finding import Subject
from gpumon.diagnosis.past_findings import SLOW
from gpumon.diagnosis.runs import RUN_RULES
from gpumon.model.frame import RunState
from gpumon_web.components.run_head import PREDICATES, TAGS
from gpumon_web.pages.run import kept
from gpumon_web.stored.run_page import run_document
from tests.builders import tick
from tests.programs import until
from tests.runs import BEGAN, Book, training
from tests.web.conftest import PATIENCE_MS, on_a_port, visit
from tests.web.served import Served

expect.set_options(timeout=PATIENCE_MS)

RUN = "net-1a2b"


def book(directory: Path, epochs: int) -> str:
    """A run that waited for data in five epochs, and was throttled in two."""
    with Book(directory) as found:
        training(found, RUN, epochs, phases=False)
        found.db.execute("UPDATE epoch SET wait = 6.0 WHERE ordinal IN (3, 7, 8, 9, 21)")
        found.db.execute("UPDATE usage SET throttled_share = 0.6 WHERE ordinal IN (12, 14)")
        return str(found.path)


def test_each_verdict_is_one_sentence_with_its_epochs(tmp_path: Path) -> None:
    document, _ = run_document([book(tmp_path, 30)], RUN, "", None, None, BEGAN + 900, None)
    assert document is not None
    noted = kept({**document, "id": RUN, "now": BEGAN + 900, "missing": ""}).values["noted"]
    assert [(one["level"], one["about"], one["text"]) for one in noted] == [
        ("warn", "waits for data", "Epochs 3, 7–9, 21 waited for data: 5 of 30 epochs."),
        ("warn", "throttled", "Epochs 12, 14 were throttled: 2 of 30 epochs."),
    ]
    levels = [band[3:] for band in document["chart"]["runs"][0]["bands"]]
    assert [place for place, level in enumerate(levels) if level == ["warn"]] == [3, 7, 8, 9, 12, 14, 21]


def test_a_run_that_waits_for_data_all_the_time_is_said_to(tmp_path: Path) -> None:
    with Book(tmp_path) as found:
        training(found, RUN, 4, phases=False)
        found.db.execute("UPDATE epoch SET wait = 6.0")
        found.db.execute("UPDATE rank SET wait = 24.0")
        document, _ = run_document([str(found.path)], RUN, "", None, None, BEGAN + 900, None)
    assert document is not None
    noted = kept({**document, "id": RUN, "now": BEGAN + 900, "missing": ""}).values["noted"]
    assert (noted[0]["about"], noted[0]["text"]) == ("waits for data", "The run waits for data 52 % of the time.")
    assert noted[1]["text"] == "Epochs 0–3 waited for data: 4 of 4 epochs."


def test_each_finding_of_a_failed_run_is_a_sentence(tmp_path: Path) -> None:
    with Book(tmp_path) as found:
        training(found, RUN, 4, phases=False, state=RunState.FAILED)
        found.db.execute("UPDATE usage SET throttled_share = 0.6")
        found.db.execute("UPDATE epoch SET ended = NULL WHERE ordinal = 3")
        document, _ = run_document([str(found.path)], RUN, "", None, None, BEGAN + 900, None)
    assert document is not None
    noted = kept({**document, "id": RUN, "now": BEGAN + 900, "missing": ""}).values["noted"]
    assert [(one["about"], one["text"]) for one in noted] == [
        ("failed", "The run failed in epoch 3 (4/4)."),
        ("throttled", "The run was throttled 60 % of the time."),
        ("throttled", "Epochs 0–2 were throttled: 3 of the 3 that were measured."),
        ("not finished", "Epoch 3 did not finish."),
    ]


def test_every_finding_about_runs_and_epochs_has_its_words() -> None:
    whole = RunContext(
        Subject("run", RUN, "net"),
        state=RunState.FAILED,
        wait_share=0.9,
        throttled_share=0.9,
        idle_share=0.9,
        diverged=["loss"],
    )
    kinds = {one.kind for one in diagnose(RUN_RULES, [whole, whole._replace(state=RunState.DIED)])}
    assert kinds | SLOW.keys() == TAGS.keys()
    of_epochs = diagnose(RUN_RULES, [whole._replace(state=RunState.RUNNING)])
    assert {"not_finished", *(one.kind for one in of_epochs)} == PREDICATES.keys()


def test_the_remedy_of_a_verdict_stands_beside_it_and_once(tmp_path: Path) -> None:
    with Book(tmp_path) as found:
        training(found, RUN, 4, phases=False)
        found.db.execute("UPDATE epoch SET wait = 6.0")
        found.db.execute("UPDATE rank SET wait = 24.0")
        found.db.execute("UPDATE usage SET throttled_share = 0.6 WHERE ordinal = 2")
        found.db.execute("UPDATE epoch SET wait = 0.0 WHERE ordinal = 2")
        document, _ = run_document([str(found.path)], RUN, "", None, None, BEGAN + 900, None)
    assert document is not None
    noted = kept({**document, "id": RUN, "now": BEGAN + 900, "missing": ""}).values["noted"]
    assert [one["action"].partition(" ")[0] for one in noted] == ["Add", "", "Check"]


def test_epochs_are_found_by_number_and_by_verdict_though_the_page_has_the_newest(
    browser: Browser, tmp_path: Path
) -> None:
    with on_a_port(Served([tick(1)], [book(tmp_path, 900)])) as link, visit(browser, link) as visitor:
        page = visitor.open(f"#/run/{RUN}")
        shown = page.get_by_role("table", name="Epochs").locator("tbody tr")
        expect(shown.first).to_contain_text("899")
        field = page.get_by_label("Filter epochs by number or verdict")
        field.fill("waits for data")
        expect(shown).to_have_count(5)
        expect(shown.locator("th")).to_have_text(["21", "9", "8", "7", "3"])
        until(lambda: "waits" in page.url)
        page.reload()
        expect(shown).to_have_count(5)
        expect(field).to_have_value("waits for data")
        field.fill("4711")
        expect(page.locator("#page-run")).to_contain_text("No matching epochs.")
        page.get_by_role("link", name="Compare …").click()
        expect(page.get_by_role("checkbox", name="Compare net")).to_be_checked()
