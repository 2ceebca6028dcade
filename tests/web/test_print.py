"""Paper: light, without controls, with every row and the charts, and the screen as it was afterward."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.builders import sample, tick
from tests.runs import Book, training
from tests.web.conftest import on_a_port, visit
from tests.web.served import Served

PAPER, LETTER = 703, 725
"""Pixels between the margins of an A4 page, and of one as in America."""


def on_paper(page: Page, width: int = PAPER) -> None:
    page.set_viewport_size({"width": width, "height": 1000})
    page.emulate_media(media="print")
    expect(page.locator("html.printing")).to_be_attached()


def test_every_page_is_printed_light_without_controls_and_as_wide_as_the_paper(
    browser: Browser, simulated: str
) -> None:
    with visit(browser, simulated, color_scheme="dark") as visitor:
        for place in ("#/fleet", "#/gpu/0", "#/run/sim-0-0", "#/runs", "#/users", "#/events"):
            page = visitor.open(place)
            page.set_viewport_size({"width": 1440, "height": 900})
            expect(page.locator("main .page:not([hidden]) h1")).to_be_attached()
            dark = page.evaluate("getComputedStyle(document.body).backgroundColor")
            on_paper(page)
            assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
            seen = page.evaluate(
                "[...document.querySelectorAll('button:not(.sort, .row), input, select, nav a, form')]"
                ".filter((one) => one.checkVisibility()).map((one) => one.outerHTML.slice(0, 80))"
            )
            assert seen == [], place
            assert page.evaluate("document.documentElement.scrollWidth") <= PAPER, place
            assert "printed 2" in page.evaluate("getComputedStyle(document.body, '::before').content")
            page.emulate_media(media="screen")
            expect(page.locator("html.printing")).not_to_be_attached()
            assert page.evaluate("getComputedStyle(document.body).backgroundColor") == dark


@pytest.mark.parametrize("width", [PAPER, LETTER])
def test_epochs_fit_on_paper_whatever_their_metrics_are_called(browser: Browser, tmp_path: Path, width: int) -> None:
    with Book(tmp_path) as book:
        training(book, "wide-1a2b", 30, course=False, usage={"energy": 1.2345e8})
        names = ("validation_accuracy_of_five_classes", "a" * 40, "learning_rate", "perplexity")
        logged = json.dumps(dict.fromkeys(names, -1.234567e-5))
        book.db.execute("UPDATE epoch SET epoch = epoch + 123456, seconds = 36000, metrics = ?", (logged,))
    served = Served([tick(n, [sample(0)]) for n in range(1, 5)], [str(book.path)])
    with on_a_port(served) as link, visit(browser, link) as visitor:
        page = visitor.open("#/run/wide-1a2b")
        expect(page.locator("#page-run tbody tr").first).to_be_visible()
        on_paper(page, width)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert page.locator("#page-run thead th.logged:visible").count() == len(names)


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
        assert (
            page.evaluate("getComputedStyle(document.querySelector('#page-runs thead')).display")
            == "table-header-group"
        )
        assert len(page.pdf(format="A4")) > 10_000
        page.emulate_media(media="screen")
        expect(rows).to_have_count(few)


def test_charts_are_drawn_anew_for_paper_before_it_is_printed(browser: Browser, simulated: str) -> None:
    with visit(browser, simulated, color_scheme="dark") as visitor:
        page = visitor.open("#/gpu/0")
        plot = page.locator("#page-gpu .plot[data-drawn]")
        expect(plot).to_be_visible()
        found = "document.querySelector('#page-gpu .plot')"
        drawn = f"Number({found}.dataset.drawn)"
        before = page.evaluate(drawn)
        printed = page.evaluate(f"(dispatchEvent(new Event('beforeprint')), [{drawn}, {found}.clientWidth])")
        assert printed[0] > before
        assert 900 < printed[1] <= 1000
        page.evaluate("dispatchEvent(new Event('afterprint'))")
        expect(page.locator("html.printing")).not_to_be_attached()


@pytest.mark.parametrize("width", [PAPER, LETTER])
def test_a_chart_reaches_from_edge_to_edge_of_the_paper(browser: Browser, simulated: str, width: int) -> None:
    with visit(browser, simulated) as visitor:
        page = visitor.open("#/gpu/0")
        expect(page.locator("#page-gpu .plot[data-drawn]")).to_be_visible()
        on_paper(page, width)
        canvas = page.locator("#page-gpu .plot canvas")
        left, right = canvas.evaluate("(one) => [one.getBoundingClientRect().left, one.getBoundingClientRect().right]")
        assert abs(left) < 1
        assert abs(right - width) < 1
