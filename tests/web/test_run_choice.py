"""Runs by state, user, framework, time and parameters: chosen on the page, in the link, and of all that are kept."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

from gpumon.common.errors import GpumonError
from gpumon.common.privacy import HIDDEN, People, use_policy
from gpumon.model.frame import RunState
from gpumon_web.pages.runs import NO_MATCH
from gpumon_web.stored import run_list
from gpumon_web.stored.run_list import RunFilter, run_list_document
from tests.builders import run, tick
from tests.programs import until
from tests.runs import BEGAN, Book
from tests.web.conftest import PATIENCE_MS, on_a_port, visit
from tests.web.served import Served

expect.set_options(timeout=PATIENCE_MS)

DAY = 86_400
NOW = BEGAN + 30 * DAY


def book(directory: Path) -> str:
    """Runs of two people, frameworks and rates, a day apart; the newest one failed."""
    with Book(directory) as found:
        for number in range(6):
            name = f"net{number}-1a2b"
            state = RunState.FAILED if number == 5 else RunState.FINISHED
            at = round((NOW - (6 - number) * DAY + 60) * 1e9)
            found.run(name, name=f"net{number}", user=("alice", "bob")[number % 2], state=state, started=at, updated=at,
                      framework=("torch", "keras")[number // 3])  # fmt: skip
            found.add("parameter", run=name, kind=0, name="lr", place=0, value=("0.1", "0.2")[number % 2], rank=0)
            found.add("parameter", run=name, kind=0, name="act", place=1, value='"relu, x"', rank=0)
        found.add("tag", run="net0-1a2b", tag="golden for alice", removed=0)
        return str(found.path)


def names(document: dict[str, Any] | None) -> list[str]:
    assert document is not None
    return [row["name"] for row in document["runs"]]


@pytest.mark.parametrize(
    ("choice", "found"),
    [
        (RunFilter(), "543210"), (RunFilter(state="failed"), "5"), (RunFilter(user="alice"), "420"),
        (RunFilter(framework="keras"), "543"), (RunFilter(since="24h"), "5"), (RunFilter(since="7d"), "543210"),
        (RunFilter(where="lr=0.2"), "531"), (RunFilter(where="lr=0.2", framework="torch", user="bob"), "1"),
        (RunFilter(where="lr=0.2, lr=0.1"), ""), (RunFilter(user="nobody"), ""),
        (RunFilter(since="nonsense"), "543210"),
    ],
)  # fmt: skip
def test_a_choice_has_the_runs_that_it_says_and_all_that_there_is_to_choose(
    tmp_path: Path, choice: RunFilter, found: str
) -> None:
    document, _ = run_list_document([book(tmp_path)], {}, NOW, None, choice)
    assert names(document) == [f"net{number}" for number in found]
    assert document is not None
    assert (document["users"], document["frameworks"]) == (["alice", "bob"], ["keras", "torch"])


def test_a_choice_is_among_all_runs_and_not_among_the_newest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_list, "MAX_LISTED", 2)
    path = book(tmp_path)
    assert names(run_list_document([path], {}, NOW, None)[0]) == ["net5", "net4"]
    assert names(run_list_document([path], {}, NOW, None, RunFilter(framework="torch"))[0]) == ["net2", "net1"]
    assert names(run_list_document([path], {}, NOW, None, RunFilter(where="lr=0.1"))[0]) == ["net4", "net2"]


class TestSearch:
    @pytest.mark.parametrize("words", ["NET0", "net0-1a", " alice ", "golden"])
    def test_is_among_all_runs_by_name_id_user_and_tag(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: str
    ) -> None:
        monkeypatch.setattr(run_list, "MAX_LISTED", 1)
        path = book(tmp_path)
        document, _ = run_list_document([path], {}, NOW, None, RunFilter(q=words))
        found = 3 if words.strip() == "alice" else 1
        assert document is not None
        assert (names(document), document["total"]) == (["net4"] if found == 3 else ["net0"], found)

    def test_finds_no_name_that_is_not_shown(self, tmp_path: Path) -> None:
        path = book(tmp_path)
        with use_policy(People(HIDDEN, b"salt")):
            for words in ("alice", "golden", "net0"):
                assert names(run_list_document([path], {}, NOW, None, RunFilter(q=words))[0]) == []

    def test_finds_runs_of_which_only_the_ring_tells(self, tmp_path: Path) -> None:
        row = {"user": "bob", "state": "running", "started": NOW, "framework": "", "label": ""}
        live = {one: {**row, "name": one, "id": one} for one in ("vit", "gpt")}
        document, _ = run_list_document([book(tmp_path)], live, NOW, None, RunFilter(q="vi"))
        assert (names(document), document and document["total"]) == (["vit"], 1)

    def test_in_the_page_finds_runs_that_the_list_leaves_out(
        self, browser: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(run_list, "MAX_LISTED", 2)
        with on_a_port(Served([tick(1)], [book(tmp_path)])) as link, visit(browser, link) as visitor:
            page = visitor.open("#/runs")
            shown, field = page.locator("#page-runs tbody tr"), page.locator("#page-runs .search").first
            expect(shown).to_have_count(2)
            expect(page.get_by_text("2 of 6")).to_be_visible()
            field.fill("net0")
            expect(shown).to_have_count(1)
            expect(page.get_by_text("of 6")).to_be_hidden()
            field.fill("net77")
            expect(page.get_by_text(NO_MATCH)).to_be_visible()
            field.fill("")
            expect(shown).to_have_count(2)


def test_a_run_of_which_only_the_ring_tells_is_chosen_by_what_it_tells(tmp_path: Path) -> None:
    working = run("tag.1000.1.a", id="now-5e6f", name="now", user="carol", state=RunState.RUNNING, started=NOW)
    served = Served([tick(n, runs=[working]) for n in range(1, 4)], [book(tmp_path)])
    for asked, found in (("user=carol", ["now"]), ("user=alice", ["net4", "net2", "net0"]), ("state=running", ["now"]),
                         ("where=lr%3D0.1", ["net4", "net2", "net0"])):  # fmt: skip
        answer = served.json(f"/api/kept?page=runs&{asked}")
        cells = answer["tables"]["runs"]
        assert [cells["cells"][key]["name"] for key in cells["order"]] == found
        assert ["carol", "carol"] in answer["values"]["people"]["options"]


@pytest.mark.parametrize("where", ["lr", "=", "=1", "lr=0.1,nonsense", "x" * 150])
def test_a_parameter_that_is_none_is_told(tmp_path: Path, where: str) -> None:
    answer = Served([tick(1)], [book(tmp_path)]).json(f"/api/kept?page=runs&where={where}")
    assert "config takes NAME=VALUE, such as lr=0.1" in answer["values"]["problem"]
    assert answer["values"]["config"]["text"] == where
    assert answer["tables"]["runs"]["order"] == []
    assert answer["values"]["nothing"] == "", "what was not understood was not looked for"


def test_what_has_a_name_in_it_is_not_found_by_it_while_names_are_not_shown() -> None:
    with use_policy(People(HIDDEN)), pytest.raises(GpumonError, match="while names are not shown"):
        RunFilter(where="home=/home/alice").parameters()
    assert RunFilter(where="home=/home/alice").parameters() == [("home", "/home/alice")]


def test_filters_are_in_the_link_and_the_page_says_what_is_chosen(browser: Browser, tmp_path: Path) -> None:
    with on_a_port(Served([tick(1)], [book(tmp_path)])) as link, visit(browser, link) as visitor:
        page = visitor.open("#/runs")
        shown = page.locator("#page-runs tbody tr")
        expect(shown).to_have_count(6)
        page.get_by_label("user", exact=True).select_option("bob")
        expect(shown).to_have_count(3)
        field = page.get_by_label("Filter runs by their config")
        field.fill("lr=0.2")
        field.press("Enter")
        page.get_by_label("framework", exact=True).select_option("torch")
        expect(shown).to_have_count(1)
        until(lambda: "user=bob" in page.url and "framework=torch" in page.url and "where=lr" in page.url)
        page.reload()
        expect(shown).to_have_count(1)
        expect(page.get_by_label("user", exact=True)).to_have_value("bob")
        expect(page.get_by_label("Filter runs by their config")).to_have_value("lr=0.2")
        page.get_by_label("state", exact=True).select_option("failed")
        expect(page.locator("#page-runs")).to_contain_text("No matching runs.")
        page.get_by_label("state", exact=True).select_option("")
        expect(shown).to_have_count(1)


def test_no_filter_is_offered_where_there_is_no_run_to_choose_from(browser: Browser, tmp_path: Path) -> None:
    def is_without(ledgers: list[str], asked: str = "") -> bool:
        return bool(Served([tick(1)], ledgers).json(f"/api/kept?page=runs{asked}")["values"]["is_without"])

    assert is_without([])
    assert not is_without([book(tmp_path)])
    assert not is_without([], "&user=nobody"), "a choice can be taken back"
    with on_a_port(Served([tick(1)])) as link, visit(browser, link) as visitor:
        page = visitor.open("#/runs")
        expect(page.locator("#page-runs")).to_contain_text("No runs yet")
        for name in ("Filter runs by their config", "Filter runs by name, user or tag", "state"):
            expect(page.get_by_label(name, exact=True)).to_be_hidden()
