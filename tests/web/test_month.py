"""A full month on the page of a GPU: opened, zoomed to less than a second, and back to live, by mouse."""

from __future__ import annotations

import time
from math import nan
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page, expect

from gpumon.clock import SECOND
from gpumon.history.tiers import SHAPES
from tests.builders import sample, tick
from tests.months import fill
from tests.programs import until
from tests.web.conftest import PATIENCE_MS, on_a_port, visit
from tests.web.served import Served

expect.set_options(timeout=PATIENCE_MS)

NOW = time.time() // 300 * 300
STALL = NOW - 28 * 86400
_SEEN = """() => {
  const place = document.querySelector("#page-gpu .plot");
  const line = (place.data || []).find((one) => one.meta && one.meta.metric === "gpu.utilization");
  if (!line) { return null; }
  const [from, to] = place.layout.xaxis.range;
  const points = line.x.map((x, at) => [x, line.y[at]]).filter(([x, y]) => x >= from && x <= to && y !== null);
  return { from: from / 1000, to: to / 1000, points: points.length, low: Math.min(...points.map(([, y]) => y)),
           dips: points.filter(([, y]) => y === 0).map(([x]) => x / 1000) };
}"""


def always_busy(subject: str, name: str, at: float) -> tuple[float, float, float]:
    """Busy for a month, but for one second of day 3."""
    if name != "gpu.utilization" or not subject:
        return nan, nan, nan
    return (0.0 if at <= STALL < at + 300 else 0.9), 0.9, 0.9


def seen(page: Page) -> Any:
    return page.evaluate(_SEEN)


def drag(page: Page, begin: float, end: float) -> None:
    """Zoom by drawing over the first panel, from one share of its width to another; waits for the finer figure."""
    box = page.locator("#page-gpu .plot .nsewdrag").first.bounding_box()
    assert box is not None
    y = box["y"] + box["height"] / 2
    with page.expect_response(lambda answer: "/api/gpu?" in answer.url):
        page.mouse.move(box["x"] + begin * box["width"], y)
        page.mouse.down()
        page.mouse.move(box["x"] + (begin + end) / 2 * box["width"], y, steps=3)
        page.mouse.move(box["x"] + end * box["width"], y, steps=3)
        page.mouse.up()
        page.mouse.move(5, 5)


def test_a_month_is_opened_zoomed_to_less_than_a_second_and_left_again(browser: Browser, tmp_path: Path) -> None:
    path = str(tmp_path / "history.sqlite")
    served = Served(
        [tick(n, [sample(0, utilization=0.5)], time_ns=round((NOW + n) * SECOND)) for n in range(1, 30)], devices=1
    )
    uuid = served.known().gpus[0].about["uuid"]
    fill(path, [uuid], NOW, always_busy, [SHAPES[-1]])
    served.feed.history.look_in(path)
    served.live.history_file = lambda: path  # type: ignore[method-assign]
    with on_a_port(served) as link, visit(browser, link) as visitor:
        page = visitor.open("#/gpu/0")
        until(lambda: seen(page))
        page.get_by_role("button", name="31 d").click()
        until(lambda: seen(page)["to"] - seen(page)["from"] > 30 * 86400)
        until(lambda: any(abs(at - STALL) < 3600 for at in seen(page)["dips"]))
        cells = page.locator("#page-gpu .cells")
        expect(cells).to_be_empty()
        while (found := seen(page))["to"] - found["from"] > 1:
            middle = (STALL - found["from"]) / (found["to"] - found["from"])
            drag(page, max(middle - 0.05, 0.01), min(middle + 0.05, 0.99))
            until(lambda found=found: seen(page)["to"] - seen(page)["from"] < (found["to"] - found["from"]) / 2)  # type: ignore[misc]
            until(lambda: seen(page)["points"])
            now = seen(page)
            assert now["from"] <= STALL <= now["to"]
            expect(page.get_by_role("button", name="Back to live")).to_be_visible()
        expect(cells).to_have_text("means of 5 min, lowest and highest in the middle")
        box = page.locator("#page-gpu .plot .nsewdrag").first.bounding_box()
        assert box is not None
        page.mouse.dblclick(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
        until(lambda: seen(page)["to"] - seen(page)["from"] > 30 * 86400)
        expect(page.get_by_role("button", name="Back to live")).to_be_hidden()
        expect(cells).to_be_empty()
