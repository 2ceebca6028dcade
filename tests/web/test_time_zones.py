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

from gpumon.model.origin import SIMULATED, Origin
from tests.builders import TIME, sample, tick
from tests.programs import until
from tests.runs import BEGAN, Book, training
from tests.web.charted import across, drag
from tests.web.conftest import PATIENCE_MS, Visitor, on_a_port, visit
from tests.web.served import Served

expect.set_options(timeout=PATIENCE_MS)

FIRST, LAST = TIME / 1e9 + 1, TIME / 1e9 + 599
ZONES = (
    pytest.param("UTC", marks=pytest.mark.slow), "Asia/Kolkata", "America/New_York",
    pytest.param("Europe/Berlin", marks=pytest.mark.slow),
)  # fmt: skip
"""Not slow: one ahead of UTC, by half an hour more than whole ones, and one behind it."""
_SHOWN = "(place) => place.gpumonView.range"
_TICKS = """(place) => {
  const { range: [from, to], plot: [left, right] } = place.gpumonView;
  return gpumon.scale.axes.time.ticks(from, to, right - left).map((one) => [one.value, one.text]);
}"""


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


@pytest.mark.parametrize("place", ["#/users", "#/events"])
def test_the_moment_to_which_charts_of_a_simulation_go_back_is_the_viewers(browser: Browser, place: str) -> None:
    origin = Origin("sim", "SIMULATED", capabilities=SIMULATED)
    served = Served([tick(number, [sample(0)], origin=origin) for number in (1, 2)])
    with on_a_port(served) as link, visit(browser, link, timezone_id="Asia/Kolkata") as visitor:
        told = visitor.open(place).locator(".page:not([hidden]) .empty:visible").first
        expect(told).to_contain_text("Its charts go back to")
        expect(told).to_have_attribute("title", local(FIRST, "Asia/Kolkata"))


def test_a_gpus_chart_and_its_pointer_show_the_viewers_time_of_day(abroad: tuple[Visitor, str]) -> None:
    visitor, zone = abroad
    plot = figure(visitor.open("#/gpu/0?window=all"))
    until(lambda: plot.evaluate(_SHOWN) == pytest.approx([FIRST, LAST]))
    ticks = plot.evaluate(_TICKS)
    assert len(ticks) > 3
    assert [text for _, text in ticks] == [local(at, zone)[11:16] for at, _ in ticks]
    visitor.page.mouse.move(*across(visitor.page, "gpu", 0.5))
    pill = plot.locator(".pill")
    expect(pill).to_have_text(re.compile(r"\d\d:\d\d:\d\d$"))
    middle = (FIRST + LAST) / 2
    near = {local(middle + off, zone)[11:] for off in range(-4, 5)}
    assert (pill.text_content() or "").split(" ")[-1] in near


def test_a_drag_leads_to_the_times_it_was_drawn_over_and_its_link_names_them(abroad: tuple[Visitor, str]) -> None:
    visitor, _ = abroad
    page = visitor.open("#/gpu/0?window=all")
    plot = figure(page)
    until(lambda: plot.evaluate(_SHOWN) == pytest.approx([FIRST, LAST]))
    drag(page, "gpu", 0.25, 0.75)
    expect(page.get_by_role("button", name="Back to live")).to_be_visible()
    named = [float(text) for text in re.findall(r"(?:from|to)=([\d.]+)", page.url)]
    assert named == pytest.approx([FIRST + 0.25 * (LAST - FIRST), FIRST + 0.75 * (LAST - FIRST)], abs=2)
    assert plot.evaluate(_SHOWN) == pytest.approx(named, abs=0.1)


def test_a_runs_chart_begins_when_its_head_says_it_began(abroad: tuple[Visitor, str]) -> None:
    visitor, zone = abroad
    page = visitor.open("#/run/net-1a2b")
    begin, _ = figure(page).evaluate(_SHOWN)
    assert begin == pytest.approx(BEGAN, abs=0.01)
    expect(page.locator("#page-run .facts b[title]")).to_have_attribute("title", local(BEGAN, zone))
    told = page.evaluate("(time) => gpumon.scale.axisScale.instant(time)", begin)
    assert told.split(" ")[-1] == local(BEGAN, zone)[11:]


NIGHT = 1_792_888_200
"""Half an hour before the clocks of Berlin are put back, on 2026-10-25."""


def test_a_chart_over_the_end_of_summer_time_goes_on_and_tells_the_time_of_each_place(
    browser: Browser, tmp_path: Path
) -> None:
    zone = "Europe/Berlin"
    with Book(tmp_path) as book:
        training(book, "night-1a2b", 8, seconds=900.0, began=NIGHT)
    with on_a_port(Served([tick(1)], [str(book.path)])) as link, visit(browser, link, timezone_id=zone) as visitor:
        page = visitor.open("#/run/night-1a2b")
        plot = figure(page)
        for line in plot.evaluate("(place) => place.gpumonView.doc.panels.flatMap((one) => one.lines)"):
            assert line["x"] == sorted(line["x"])
        begin, end = plot.evaluate(_SHOWN)
        assert begin == NIGHT
        assert end == pytest.approx(NIGHT + 7200, abs=900)
        bands = plot.evaluate("(place) => place.gpumonView.doc.runs[0].bands")
        assert [band[2] for band in bands] == list(range(8))
        assert [band[0] for band in bands[1:]] == [band[1] for band in bands[:-1]], "one behind the other"
        ticks = plot.evaluate(_TICKS)
        assert [text for _, text in ticks].count("02:30") == 2, "half past two comes twice"
        assert [text for _, text in ticks] == [local(at, zone)[11:16] for at, _ in ticks]
        # A stretch that is chosen is the one that was drawn over, before the change too.
        drag(page, "run", 600 / (end - begin), 1200 / (end - begin))
        until(lambda: "from=" in page.url)
        named = [float(text) for text in re.findall(r"(?:from|to)=([\d.]+)", page.url)]
        assert named == pytest.approx([NIGHT + 600, NIGHT + 1200], abs=8)
        assert plot.evaluate(_SHOWN) == pytest.approx(named, abs=0.1)
