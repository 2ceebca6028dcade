"""A full month on the page of a GPU: opened, zoomed to less than a second, and back to live, by mouse."""

from __future__ import annotations

import re
import time
from math import nan
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page, expect

from gpumon.common.clock import SECOND
from gpumon.storage.history.tiers import SHAPES
from tests.builders import sample, tick
from tests.months import fill
from tests.programs import until
from tests.web import charted
from tests.web.conftest import PATIENCE_MS, on_a_port, visit
from tests.web.served import Served
from tests.web.sources import month

expect.set_options(timeout=PATIENCE_MS)

NOW = time.time() // 300 * 300
STALL = NOW - 28 * 86400
MEANS = re.compile(r"^means of \d+ (min|h)( \d+ min)?, shade: lowest to highest$")

_HOLDING = """(time) => {
  const line = document.querySelector("#page-gpu .plot").gpumonView.doc.panels[0].lines[0];
  const at = line.x.findIndex((x) => Math.abs(x - time) <= line.step / 2);
  return at < 0 ? null : [line.mean[at], line.low[at], line.high[at]];
}"""


def always_busy(subject: str, name: str, at: float) -> tuple[float, float, float]:
    """Busy for a month, but for one second of day 3."""
    if name != "gpu.utilization" or not subject:
        return nan, nan, nan
    return (0.0 if at <= STALL < at + 300 else 0.9), 0.9, 0.9


def seen(page: Page) -> Any:
    return charted.seen(page, "gpu")


def drag(page: Page, begin: float, end: float) -> None:
    """Zoom, and wait for the finer chart."""
    with page.expect_response(lambda answer: "/api/gpu?" in answer.url):
        charted.drag(page, "gpu", begin, end)


def stalled(page: Page) -> Any:
    """The mean, lowest and highest value of the stretch of the line that holds the second without use."""
    return page.evaluate(_HOLDING, STALL + 0.5)


def test_a_month_is_opened_zoomed_to_less_than_a_second_and_left_again(browser: Browser, tmp_path: Path) -> None:
    path = str(tmp_path / "history.sqlite")
    served = Served(
        [tick(n, [sample(0, utilization=0.5)], time_ns=round((NOW + n) * SECOND)) for n in range(1, 30)], devices=1
    )
    uuid = served.known().gpus[0].uuid
    fill(path, [uuid], NOW, always_busy, [SHAPES[-1]])
    served.feed.history.set_path(path)
    served.live.history_file = lambda: path  # type: ignore[method-assign]
    with on_a_port(served) as link, visit(browser, link) as visitor:
        page = visitor.open("#/gpu/0")
        until(lambda: seen(page))
        page.get_by_role("button", name="31 d").click()
        until(lambda: seen(page)["to"] - seen(page)["from"] > 30 * 86400)
        until(lambda: stalled(page) == [0.9, 0.0, 0.9])
        cells = page.locator("#page-gpu .cells")
        expect(cells).to_have_text(MEANS)
        while (found := seen(page))["to"] - found["from"] > 1:
            middle = (STALL - found["from"]) / (found["to"] - found["from"])
            drag(page, max(middle - 0.05, 0.01), min(middle + 0.05, 0.99))
            until(lambda found=found: seen(page)["to"] - seen(page)["from"] < (found["to"] - found["from"]) / 2)  # type: ignore[misc]
            until(lambda: stalled(page) == [0.9, 0.0, 0.9])
            now = seen(page)
            assert now["from"] <= STALL <= now["to"]
            page.mouse.move(*charted.across(page, "gpu", 0.5))
            expect(page.locator("#page-gpu .plot .values b").first).to_have_text("90 %")
            expect(page.get_by_role("button", name="Back to live")).to_be_visible()
        expect(cells).to_have_text("means of 5 min, shade: lowest to highest")
        page.mouse.dblclick(*charted.across(page, "gpu", 0.5))
        until(lambda: seen(page)["to"] - seen(page)["from"] > 30 * 86400)
        expect(page.get_by_role("button", name="Back to live")).to_be_hidden()
        expect(cells).to_have_text(MEANS)


def test_on_a_phone_no_words_about_a_panel_of_a_month_are_cut(browser: Browser, tmp_path: Path) -> None:
    with month(tmp_path) as opened, visit(browser, opened.link, viewport={"width": 400, "height": 800}) as visitor:
        page = visitor.open(opened.places["gpu"])
        covers = page.locator("#page-gpu .gutter .covers")
        expect(covers.first).to_have_text(re.compile(r"^mean within the last \d+ (h|min|s)( \d+ min)?$"))
        for one in (*page.locator("#page-gpu .gutter .below").all(), *covers.all()):
            assert one.evaluate("(words) => words.scrollWidth <= words.clientWidth"), one.text_content()
