"""The compare page in a browser: choices in the address, figure, files and themes."""

from __future__ import annotations

import csv
import json
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.builders import sample, tick
from tests.programs import until
from tests.runs import Book
from tests.web.conftest import PATIENCE_MS, Visitor, on_a_port, visit
from tests.web.served import Served
from tests.web.test_compare import IDS, three

expect.set_options(timeout=PATIENCE_MS)

_TRACES = """() => document.querySelector("#compare-graph .js-plotly-plot").data.map(({name, mode, yaxis, line}) =>
  ({name, mode, yaxis, color: line && line.color}))"""
_COLOR = """() => {
  const probe = document.body.appendChild(document.createElement("i"));
  probe.style.color = "var(--s0)";
  return getComputedStyle(probe).color.replaceAll(" ", "");
}"""
_LAYOUT = '() => document.querySelector("#compare-graph .js-plotly-plot").layout'


def served(path: str) -> Served:
    return Served([tick(n, [sample(0, utilization=0.5)]) for n in range(1, 4)], [path])


@pytest.fixture(scope="module")
def link(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with on_a_port(served(three(tmp_path_factory.mktemp("three")))) as found:
        yield found


@contextmanager
def comparison(
    browser: Browser, link: str, runs: str = ",".join(IDS), query: str = "", **options: Any
) -> Iterator[tuple[Page, Visitor]]:
    """Open the page with a comparison whose figure is drawn."""
    with visit(browser, link, **options) as visitor:
        page = visitor.open(f"#/compare?runs={runs}{query}")
        expect(page.locator("#compare-graph .main-svg").first).to_be_visible()
        yield page, visitor


def labels(page: Page) -> list[str]:
    """Names of the lines of the first panel."""
    return [trace["name"] for trace in page.evaluate(_TRACES) if trace["yaxis"] == "y"]


class TestChoice:
    def test_link_shows_the_same_and_arrows_read_it(self, browser: Browser, link: str) -> None:
        query = "&by=since&panels=gpu.power,logged.loss&log=1&smooth=0.6&from=20&to=60"
        with comparison(browser, link, query=query) as (page, _):
            layout = page.evaluate(_LAYOUT)
            assert layout["meta"]["axis"] == "since"
            factor = layout["meta"]["factor"]
            assert layout["xaxis"]["range"] == [pytest.approx(20 * factor), pytest.approx(60 * factor)]
            assert layout["yaxis"]["type"] == "log"
            assert "yaxis3" not in layout
            expect(page.locator("#compare-weight")).to_have_text("Smoothing 0.6")
            expect(page.get_by_role("link", name="Log", exact=True)).to_have_attribute("aria-current", "true")
            assert len(labels(page)) == 2 * len(IDS), "each line and its mean"
            page.locator("#compare-course").focus()
            for _ in range(3):
                page.keyboard.press("ArrowRight")
            said = page.locator("#compare-course + [role=status]")
            expect(said).to_have_text(re.compile(r"A first [\d.]+ \([\d.]+\), B second [\d.]+ "))
            expect(page.locator("#compare-graph .hoverlayer .legend")).to_be_visible()
            page.keyboard.press("Escape")
            expect(said).to_have_text("")

    def test_runs_are_added_reordered_and_left_out(self, browser: Browser, link: str) -> None:
        with comparison(browser, link, f"{IDS[0]},{IDS[2]}") as (page, _):
            assert labels(page) == ["A first", "B third"]
            page.get_by_role("link", name="Compare with B, third").click()
            until(lambda: labels(page) == ["A third", "B first"])
            page.get_by_role("link", name="Choose more runs").click()
            page.get_by_role("checkbox", name="Compare second").check()
            page.get_by_role("link", name="Compare 3 runs").click()
            until(lambda: labels(page) == ["A third", "B first", "C second"])
            page.get_by_role("link", name="Leave out C, second").click()
            expect(page.locator("#page-compare h1")).to_have_text("2 runs compared")
            page.go_back()
            until(lambda: labels(page) == ["A third", "B first", "C second"])

    def test_axis_zoom_panels_smoothing_and_scale(self, browser: Browser, link: str) -> None:
        with comparison(browser, link) as (page, _):
            page.get_by_role("link", name="Time", exact=True).click()
            until(lambda: page.evaluate(_LAYOUT)["meta"]["axis"] == "since")
            page.go_back()
            until(lambda: page.evaluate(_LAYOUT)["meta"]["axis"] == "epochs")
            self._zoom(page)
            page.locator(".opens.panels summary").focus()
            page.keyboard.press("Enter")
            page.keyboard.press("Tab")
            expect(page.locator("#compare-panels a").first).to_be_focused()
            page.locator("#compare-panels").get_by_role("link", name="Utilization").focus()
            page.keyboard.press("Enter")
            until(lambda: "yaxis5" not in page.evaluate(_LAYOUT))
            expect(page.locator("#compare-panels")).to_be_visible()
            expect(page.locator("#compare-values")).not_to_contain_text("Utilization")
            page.locator(".opens.smoothing summary").click()
            page.locator("#compare-smoothing").get_by_role("link", name="0.9", exact=True).click()
            until(lambda: len(labels(page)) == 2 * len(IDS))
            assert "smooth=0.9" in page.url
            page.get_by_role("link", name="Log", exact=True).click()
            until(lambda: page.evaluate(_LAYOUT)["yaxis"].get("type") == "log")
            assert "smooth=0.9" in page.url
            assert page.evaluate(_LAYOUT)["yaxis2"].get("type") != "log", "only of what runs logged"

    def _zoom(self, page: Page) -> None:
        page.get_by_role("button", name="Zoom in").click()
        until(lambda: "from=2.3&to=6.8" in page.url or "from=2.2&to=6.8" in page.url)
        until(lambda: page.evaluate(_LAYOUT)["xaxis"]["range"] == [pytest.approx(2.25), pytest.approx(6.75)])
        box = page.locator("#compare-graph .nsewdrag").first.bounding_box()
        assert box is not None
        page.mouse.move(box["x"] + box["width"] * 0.25, box["y"] + 20)
        page.mouse.down()
        page.mouse.move(box["x"] + box["width"] * 0.75, box["y"] + 20, steps=4)
        page.mouse.up()
        until(lambda: page.evaluate(_LAYOUT)["xaxis"]["range"][0] == pytest.approx(3.4, abs=0.1))
        page.locator("#compare-graph .nsewdrag").first.dblclick()
        until(lambda: "from=" not in page.url)
        until(lambda: page.evaluate(_LAYOUT)["xaxis"]["range"] == [0, 9])


class TestLooks:
    def test_phone(self, browser: Browser, link: str) -> None:
        with comparison(browser, link, viewport={"width": 400, "height": 800}) as (page, _):
            assert page.evaluate("document.documentElement.scrollWidth") == 400
            assert page.evaluate("document.querySelector('#compare-graph .main-svg').clientWidth") <= 400
            page.locator(".values-table summary").click()
            expect(page.locator("#compare-values tbody tr")).to_have_count(5 * len(IDS))

    def test_table_and_files_have_what_the_figure_shows_in_each_theme(self, browser: Browser, link: str) -> None:
        with comparison(browser, link, f"{IDS[2]},{IDS[0]}") as (page, _):
            page.locator(".values-table summary").click()
            row = page.get_by_role("table", name="Last, lowest and highest values").locator("tbody tr").first
            shown = row.locator("td").nth(1).inner_text()
            assert f"A {shown}" in [note["text"] for note in page.evaluate(_LAYOUT)["annotations"]]
            self._files(page)
            dark = page.evaluate(_TRACES)[0]["color"]
            assert dark == page.evaluate(_COLOR)
            page.locator("#theme").click()
            until(lambda: page.evaluate(_TRACES)[0]["color"] != dark)

    def _files(self, page: Page) -> None:
        with page.expect_download() as numbers:
            page.get_by_role("button", name="Numbers as CSV").click()
        with Path(numbers.value.path()).open(newline="", encoding="utf-8-sig") as file:
            third, first = csv.DictReader(file, strict=True)
        assert (third["name"], third["epoch_seconds_difference"]) == ("third", "")
        assert float(first["epoch_seconds_difference_low"]) <= float(first["epoch_seconds_difference_high"])
        for kind, head in (("CSV", b"\xef\xbb\xbfepochs,logged.loss_A_third,"), ("PNG", b"\x89PNG"), ("SVG", b"<svg ")):
            page.locator(".opens.files summary").click()
            with page.expect_download() as saved:
                page.locator(".opens.files").get_by_role("button", name=kind).click()
            content = Path(saved.value.path()).read_bytes()
            assert content.startswith(head)
            assert len(content) > (200 if kind == "CSV" else 5000)
            page.mouse.click(5, 300)


class TestStrangers:
    def test_names_are_text(self, browser: Browser, tmp_path: Path) -> None:
        hostile = "<img src=x onerror=window.hit=1>"
        path = three(tmp_path)
        with closing(sqlite3.connect(path)) as db, db:
            db.execute("UPDATE run SET name = ?", (f"{hostile}<b>%{{x}}</b>",))
            db.execute(
                "UPDATE epoch SET metrics = ?",
                (json.dumps({f"loss {hostile}": 0.5, "<a href='javascript:hit=1'>m": 1.0}),),
            )
            db.execute("DELETE FROM trace WHERE uuid = ''")
            db.execute("UPDATE parameter SET value = ? WHERE run = ?", (hostile, IDS[0]))
        with on_a_port(served(path)) as link, comparison(browser, link, query="&smooth=0.5") as (page, _):
            page.locator("#compare-graph .nsewdrag").first.hover()
            page.wait_for_timeout(300)
            assert page.evaluate("window.hit") is None
            assert page.locator("#page-compare :is(img, svg a[*|href])").count() == 0
            expect(page.locator("#compare-runs")).to_contain_text(hostile)


class TestMissing:
    def test_runs_without_a_course(self, browser: Browser, tmp_path: Path) -> None:
        with Book(tmp_path) as book:
            for run in IDS[:2]:
                book.rank(book.run(run, epochs=None))
            path = str(book.path)
        with on_a_port(Served([tick(1)], [path])) as link, visit(browser, link) as visitor:
            page = visitor.open(f"#/compare?runs={','.join(IDS[:2])}")
            expect(page.locator("#compare-ends")).to_contain_text("no course")
            expect(page.locator(".values-table")).to_be_hidden()
            content = "getComputedStyle(document.getElementById('compare-course'), '::before').content"
            until(lambda: page.evaluate(content) == "none")

    def test_too_few_runs(self, browser: Browser, link: str) -> None:
        with visit(browser, link) as visitor:
            for runs in ("", "nope", IDS[0], "x" * 2000):
                page = visitor.open(f"#/compare?runs={runs}")
                expect(page.get_by_role("link", name="Choose runs")).to_be_visible()
                expect(page.locator("#compare-body")).to_be_hidden()
                expect(page.locator("#compare-runs > *")).to_have_count(0)

    def test_run_is_deleted_meanwhile(self, browser: Browser, tmp_path: Path) -> None:
        path = three(tmp_path)
        with on_a_port(served(path)) as link, comparison(browser, link) as (page, _):
            with closing(sqlite3.connect(path)) as db, db:
                db.execute("DELETE FROM run WHERE id = ?", (IDS[1],))
            page.get_by_role("link", name="Time", exact=True).click()
            expect(page.locator("#page-compare h1")).to_have_text("2 runs compared")
            expect(page.locator("#compare-how")).to_contain_text(IDS[1])
            until(lambda: labels(page) == ["A first", "B third"])


class TestLoading:
    def test_other_pages_do_without_dash(self, browser: Browser, link: str) -> None:
        with visit(browser, link) as visitor:
            asked: list[str] = []
            visitor.page.on("request", lambda request: asked.append(request.url))
            for place in ("", "#/runs", f"#/run/{IDS[0]}", "#/gpu/0"):
                visitor.open(place)
            visitor.page.wait_for_timeout(500)
            assert [url for url in asked if "_dash" in url] == []
            visitor.open(f"#/compare?runs={','.join(IDS)}")
            expect(visitor.page.locator("#compare-graph .main-svg").first).to_be_visible()
            assert any("plotly.min.js" in url for url in asked)
