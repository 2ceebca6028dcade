"""Times of day are the viewer's, wherever the viewer is, and a drag leads to the time that it was drawn over."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.builders import TIME, sample, tick
from tests.programs import until
from tests.runs import BEGAN, Book, training
from tests.web.conftest import PATIENCE_MS, Visitor, on_a_port, visit
from tests.web.served import Served

expect.set_options(timeout=PATIENCE_MS)

FIRST, LAST = TIME / 1e9 + 1, TIME / 1e9 + 599
ZONES = ("UTC", "Asia/Kolkata", "America/New_York", "Europe/Berlin")
_SHOWN = "(place) => place._fullLayout.xaxis.range"
_TICKS = ".page:not([hidden]) .xaxislayer-above text"


@pytest.fixture(scope="module")
def link(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server with ten minutes of a GPU, and a run of the past."""
    with Book(tmp_path_factory.mktemp("zones")) as book:
        training(book, "net-1a2b", 4)
    ticks = [tick(number, [sample(0, utilization=0.5)]) for number in range(1, 600)]
    with on_a_port(Served(ticks, [str(book.path)])) as found:
        yield found


@pytest.fixture(scope="module", params=ZONES)
def abroad(browser: Browser, link: str, request: pytest.FixtureRequest) -> Iterator[tuple[Visitor, str]]:
    """Somebody in each zone, who goes from page to page."""
    with visit(browser, link, timezone_id=request.param) as visitor:
        yield visitor, request.param


def local(seconds: float, zone: str) -> str:
    return datetime.fromtimestamp(seconds, UTC).astimezone(ZoneInfo(zone)).strftime("%Y-%m-%d %H:%M:%S")


def figure(page: Page) -> Any:
    found = page.locator(".page:not([hidden]) .plot[data-drawn]")
    expect(found).to_be_visible()
    return found


def test_a_gpus_chart_and_its_pointer_show_the_viewers_time_of_day(abroad: tuple[Visitor, str]) -> None:
    visitor, zone = abroad
    plot = figure(visitor.open("#/gpu/0?window=all"))
    until(lambda: plot.evaluate(_SHOWN)[1][:19] == local(LAST, zone))
    shown = plot.evaluate(_SHOWN)
    assert [text[:19] for text in shown] == [local(FIRST, zone), local(LAST, zone)]
    hours = {text[:5] for text in visitor.page.locator(_TICKS).all_text_contents()}
    assert hours <= {local(at, zone)[11:16] for at in range(int(FIRST), int(LAST) + 1)}
    box = plot.bounding_box()
    visitor.page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 90)
    head = visitor.page.locator(".hoverlayer .legend .legendtitletext")
    expect(head).to_contain_text(re.compile(r"\d\d:\d\d:\d\d"))
    assert local(FIRST, zone) <= (head.text_content() or "") <= local(LAST, zone)


def test_a_drag_leads_to_the_times_it_was_drawn_over_and_its_link_names_them(abroad: tuple[Visitor, str]) -> None:
    visitor, zone = abroad
    page = visitor.open("#/gpu/0?window=all")
    plot = figure(page)
    until(lambda: plot.evaluate(_SHOWN)[1][:19] == local(LAST, zone))
    at = plot.evaluate(
        "(place) => { const axis = place._fullLayout.xaxis;"
        " const box = place.querySelector('.main-svg').getBoundingClientRect();"
        " return [0.25, 0.75].map((part) => box.left + axis._offset + part * axis._length); }"
    )
    top = plot.bounding_box()["y"] + 90
    page.mouse.move(at[0], top)
    page.mouse.down()
    page.mouse.move(at[0] + 50, top, steps=2)
    page.mouse.move(at[1], top, steps=2)
    page.mouse.up()
    expect(page.get_by_role("button", name="Back to live")).to_be_visible()
    named = [float(text) for text in re.findall(r"(?:from|to)=([\d.]+)", page.url)]
    assert named == pytest.approx([FIRST + 0.25 * (LAST - FIRST), FIRST + 0.75 * (LAST - FIRST)], abs=2)
    assert [text[:16] for text in plot.evaluate(_SHOWN)] == [local(one, zone)[:16] for one in named]


def test_a_runs_chart_begins_when_its_head_says_it_began(abroad: tuple[Visitor, str]) -> None:
    visitor, zone = abroad
    page = visitor.open("#/run/net-1a2b")
    begin, _ = figure(page).evaluate(_SHOWN)
    assert begin[:19] == local(BEGAN, zone)
    expect(page.locator("#page-run .facts")).to_contain_text(local(BEGAN, zone))
    first = page.evaluate("document.querySelector('#page-run .plot').calcdata[0][0].x")
    assert datetime.fromtimestamp(first / 1000, UTC).strftime("%Y-%m-%d %H") == local(BEGAN, zone)[:13]


NIGHT = 1_792_888_200
"""Half an hour before the clocks of Berlin are put back, on 2026-10-25."""


def test_a_chart_over_the_end_of_summer_time_goes_on_and_names_its_clock(browser: Browser, tmp_path: Path) -> None:
    with Book(tmp_path) as book:
        training(book, "night-1a2b", 8, seconds=900.0, began=NIGHT)
    with (
        on_a_port(Served([tick(1)], [str(book.path)])) as link,
        visit(browser, link, timezone_id="Europe/Berlin") as visitor,
    ):
        page = visitor.open("#/run/night-1a2b")
        plot = figure(page)
        drawn = plot.evaluate("(place) => place.calcdata.map((one) => one.map((point) => point.x))")
        for line in drawn:
            times = [time for time in line if isinstance(time, int | float)]
            assert times == sorted(times)
        begin, end = (text[:16] for text in plot.evaluate(_SHOWN))
        assert (begin, end) == ("2026-10-25 01:30", local(NIGHT + 7810, "Europe/Berlin")[:16])
        expect(plot).to_contain_text("times in UTC+1")
        labels = plot.locator(".annotation-text").all_text_contents()
        assert [int(text) for text in labels if text.isdigit()] == list(range(8))
        # A stretch that is chosen is the one that was drawn over, before the change too.
        page.evaluate("Plotly.relayout(document.querySelector('#page-run .plot'),"
                      " {'xaxis.range[0]': '2026-10-25 01:40', 'xaxis.range[1]': '2026-10-25 01:50'})")  # fmt: skip
        until(lambda: f"from={NIGHT + 600}.0&to={NIGHT + 1200}.0" in page.url)
        until(lambda: [text[:16] for text in plot.evaluate(_SHOWN)] == ["2026-10-25 02:40", "2026-10-25 02:50"])
        expect(plot).not_to_contain_text("times in UTC")
