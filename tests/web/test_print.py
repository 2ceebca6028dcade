"""Paper: light, without controls, with every row and the charts, and the screen as it was afterward."""

from __future__ import annotations

import json
import re
import zlib
from contextlib import suppress
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.builders import sample, tick
from tests.runs import Book, training
from tests.web.conftest import DESK, Visitor, on_a_port, visit
from tests.web.served import Served

PAPER, LETTER, SMALL = 703, 725, 468
"""Pixels between the margins of an A4 page, of one as in America, and of A5."""


def on_paper(page: Page, width: int = PAPER) -> None:
    page.set_viewport_size({"width": width, "height": 1000})
    page.emulate_media(media="print")
    expect(page.locator("html.printing")).to_be_attached()


def on_screen(page: Page) -> None:
    page.emulate_media(media="screen")
    expect(page.locator("html.printing")).not_to_be_attached()


def test_every_page_is_printed_light_without_controls_and_as_wide_as_the_paper(viewer: Visitor) -> None:
    for place in ("#/fleet", "#/gpu/0", "#/run/sim-0-0", "#/runs", "#/users", "#/events"):
        page = viewer.open(place)
        page.set_viewport_size(DESK)
        expect(page.locator("main .page:not([hidden]) h1")).to_be_attached()
        dark = page.evaluate("getComputedStyle(document.body).backgroundColor")
        on_paper(page)
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
        seen = page.evaluate(
            "[...document.querySelectorAll("
            "'button:not(.sort, .row, [aria-pressed=true]), input, select, nav a, form')]"
            ".filter((one) => one.checkVisibility()).map((one) => one.outerHTML.slice(0, 80))"
        )
        assert seen == [], place
        assert page.evaluate("document.documentElement.scrollWidth") <= PAPER, place
        assert "printed 2" in page.evaluate("getComputedStyle(document.body, '::before').content")
        on_screen(page)
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") == dark


def test_epochs_fit_on_paper_whatever_their_metrics_are_called(browser: Browser, tmp_path: Path) -> None:
    with Book(tmp_path) as book:
        training(book, "wide-1a2b", 30, course=False, usage={"energy": 1.2345e8})
        names = ("validation_accuracy_of_five_classes", "a" * 40, "learning_rate", "perplexity")
        logged = json.dumps(dict.fromkeys(names, -1.234567e-5))
        book.db.execute("UPDATE epoch SET epoch = epoch + 123456, seconds = 36000, metrics = ?", (logged,))
    served = Served([tick(n, [sample(0)]) for n in range(1, 5)], [str(book.path)])
    with on_a_port(served) as link, visit(browser, link) as visitor:
        page = visitor.open("#/run/wide-1a2b")
        expect(page.locator("#page-run tbody tr").first).to_be_visible()
        for width in (PAPER, LETTER):
            on_paper(page, width)
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            assert page.locator("#page-run thead th.logged:visible").count() == len(names)


def glyphs(pdf: bytes) -> int:
    """The number of glyphs that a document shows."""
    parts = []
    for stream in re.findall(rb"stream\r?\n(.*?)\r?\nendstream", pdf, re.DOTALL):
        with suppress(zlib.error):  # not all are compressed
            parts.append(zlib.decompress(stream))
    return sum(len(shown) // 4 for part in parts for shown in re.findall(rb"<([0-9A-F]+)> Tj", part))


def test_every_row_is_printed_and_heads_are_repeated(browser: Browser, tmp_path: Path) -> None:
    with Book(tmp_path) as book:
        for number in range(150):
            training(book, f"net{number}-1a2b", 1, course=False)
    served = Served([tick(n, [sample(0)]) for n in range(1, 5)], [str(book.path)])
    with on_a_port(served) as link, visit(browser, link) as visitor:
        page = visitor.open("#/runs")
        rows = page.locator("#page-runs tbody tr")
        expect(rows.first).to_be_visible()
        few = rows.count()
        assert few < 150
        on_paper(page)
        expect(rows).to_have_count(150)
        page.emulate_media(media="null")
        printed = page.pdf(format="A4")
        [sheets] = map(int, re.findall(rb"/Count (\d+)", printed))
        head = page.locator("#page-runs thead")
        words = head.locator("th:visible").all_inner_texts()
        head.evaluate("(one) => { one.style.visibility = 'hidden'; }")
        letters = glyphs(printed) - glyphs(page.pdf(format="A4"))
        assert sheets > 2
        assert letters == pytest.approx(sheets * len("".join(words).replace(" ", "")), rel=0.15)
        page.emulate_media(media="screen")
        expect(rows).to_have_count(few)


def test_charts_are_drawn_anew_for_paper_from_edge_to_edge(viewer: Visitor) -> None:
    page = viewer.open("#/gpu/0")
    expect(page.locator("#page-gpu .plot[data-drawn]")).to_be_visible()
    found = "document.querySelector('#page-gpu .plot')"
    drawn = f"Number({found}.dataset.drawn)"
    before = page.evaluate(drawn)
    printed = page.evaluate(f"(dispatchEvent(new Event('beforeprint')), [{drawn}, {found}.clientWidth])")
    assert printed[0] > before
    assert 900 < printed[1] <= 1000
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    expect(page.locator("html.printing")).not_to_be_attached()
    for width in (PAPER, LETTER):
        on_paper(page, width)
        canvas = page.locator("#page-gpu .plot canvas")
        left, right = canvas.evaluate("(one) => [one.getBoundingClientRect().left, one.getBoundingClientRect().right]")
        assert abs(left) < 1
        assert abs(right - width) < 1
        on_screen(page)


def words(page: Page) -> str:
    """What is read on paper besides charts: text and fields with words."""
    fields = page.locator("main :is(input.search, select.chosen):visible")
    values = fields.evaluate_all("(all) => all.map((one) => one.value)")
    return " ".join([page.locator("main .page:not([hidden])").inner_text(), *values])


def test_paper_says_what_was_chosen_and_sought(browser: Browser, tmp_path: Path) -> None:
    with Book(tmp_path) as book:
        for number in range(3):
            training(book, f"net{number}-1a2b", 2, gpus=2, course=False, user=f"user{number}")
    served = Served([tick(n, [sample(0), sample(1)]) for n in range(1, 5)], [str(book.path)])
    with on_a_port(served) as link, visit(browser, link) as visitor:
        for place, chosen, not_chosen in (
            ("#/runs?q=net1&user=user1&state=finished", ["net1", "user1", "finished"], "All frameworks"),
            ("#/fleet?q=gpu+1", ["gpu 1"], "Mine first"),
            ("#/gpu/0?window=3600", ["1 h"], "24 h"),
        ):
            page = visitor.open(place)
            expect(
                page.locator("main .page:not([hidden]) tbody, main .page:not([hidden]) .plot").first
            ).to_be_attached()
            on_paper(page)
            for word in chosen:
                expect(page.locator("html.printing")).to_be_attached()
                assert word in words(page), place
            assert not_chosen not in words(page), place
            page.emulate_media(media="screen")
            page.set_viewport_size({"width": 1440, "height": 900})


def test_paper_dates_values_that_are_not_of_now(browser: Browser) -> None:
    head = "getComputedStyle(document.body, '::before').content"
    served = Served([tick(n, [sample(0)]) for n in range(1, 5)])
    with on_a_port(served) as link, visit(browser, link) as visitor:
        page = visitor.open("#/fleet")
        on_paper(page)
        assert "values of" not in page.evaluate(head)
        page.emulate_media(media="screen")
        served.live.age = 60.0
        expect(page.locator("body[data-state=stale]")).to_be_attached()
        on_paper(page)
        assert "values of 20" in page.evaluate(head)


def test_paper_counts_rows_that_were_not_loaded(browser: Browser, tmp_path: Path) -> None:
    with Book(tmp_path) as book:
        training(book, "net-1a2b", 150, course=False)
    served = Served([tick(n, [sample(0)]) for n in range(1, 5)], [str(book.path)])
    with on_a_port(served) as link, visit(browser, link) as visitor:
        visitor.context.route("**/api/kept?rest=1*", lambda route: route.abort())
        page = visitor.open("#/run/net-1a2b")
        rows = page.locator("#page-run table.epochs tbody tr")
        expect(rows.first).to_be_visible()
        on_paper(page)
        absent = page.locator("#page-run .more.absent")
        expect(absent).to_be_visible()
        assert f"{150 - rows.count()} of 150" in absent.inner_text()


def test_all_columns_of_a_comparison_fit_on_paper(browser: Browser, tmp_path: Path) -> None:
    with Book(tmp_path) as book:
        for number in range(8):
            training(book, f"net{number}-1a2b", 4, seed=number, name=f"an-experiment-with-a-long-name-{number}")
    served = Served([tick(n, [sample(0)]) for n in range(1, 5)], [str(book.path)])
    with on_a_port(served) as link, visit(browser, link) as visitor:
        page = visitor.open(f"#/compare?runs={','.join(f'net{number}-1a2b' for number in range(8))}")
        cells = page.locator("#page-compare table.compared :is(th, td):visible")
        expect(cells.first).to_be_visible()
        on_paper(page)
        right = max(cells.evaluate_all("(all) => all.map((one) => one.getBoundingClientRect().right)"))
        assert right <= PAPER


def test_columns_keep_their_words_on_small_paper(viewer: Visitor) -> None:
    page = viewer.open("#/fleet")
    expect(page.locator("#page-fleet tbody tr").first).to_be_visible()
    on_paper(page, SMALL)
    assert page.evaluate("document.documentElement.scrollWidth") <= SMALL
    who = page.locator("#page-fleet thead .c-who")
    assert who.evaluate("(one) => one.getBoundingClientRect().width / one.currentCSSZoom") > 200
    on_screen(page)
