"""The work that a page of a GPU makes of each tick: counted in drawings and changes of the document, not in time."""

from __future__ import annotations

import re
import time
from math import nan
from pathlib import Path

from playwright.sync_api import Browser, Page, expect

from gpumon.common.clock import SECOND
from gpumon.model.frame import Tick
from gpumon.storage.history.tiers import SHAPES
from tests.builders import sample, tick
from tests.months import fill
from tests.programs import until
from tests.web.conftest import PATIENCE_MS, on_a_port, visit
from tests.web.served import Served

expect.set_options(timeout=PATIENCE_MS)

NOW = time.time() // 7200 * 7200 - 300
"""At the end of a cell of a month, which may have two hours: samples lie behind its middle, where its point stands."""
TICKS = 6
MUTATIONS = 30
"""Changes of the document a tick: the numbers of four panels, of the memory and of the head."""
_COUNT = """() => {
  const counts = window.counts = { frames: 0, changes: 0 };
  const ask = window.requestAnimationFrame;
  window.requestAnimationFrame = (draw) => { counts.frames += 1; return ask.call(window, draw); };
  new MutationObserver((all) => { counts.changes += all.length; })
    .observe(document.body, { subtree: true, childList: true, attributes: true, characterData: true });
}"""


def a_tick(number: int) -> Tick:
    values = {"utilization": 0.5 + number % 7 / 100, "power": 300.0 + number % 5, "temperature": 60.0}
    return tick(number, [sample(0, **values)], time_ns=round((NOW + number) * SECOND))


def served_month(tmp_path: Path) -> Served:
    """A GPU with a month of history, and half a minute of frames."""
    path = str(tmp_path / "history.sqlite")
    served = Served([a_tick(number) for number in range(1, 30)], devices=1)
    fill(
        path, [served.known().gpus[0].uuid], NOW,
        lambda subject, name, at: (0.4, 0.5, 0.6) if subject and name == "gpu.utilization" else (nan,) * 3,
        [SHAPES[-1]],
    )  # fmt: skip
    served.feed.history.set_path(path)
    served.live.history_file = lambda: path  # type: ignore[method-assign]
    return served


def after(page: Page, served: Served, number: int) -> None:
    """A new tick, until the chart has it."""
    drawn = int(page.locator("#page-gpu .plot").get_attribute("data-drawn") or 0)
    served.writer.append(a_tick(number))
    until(lambda: int(page.locator("#page-gpu .plot").get_attribute("data-drawn") or 0) > drawn)


def test_a_tick_draws_the_chart_once_and_changes_few_elements(browser: Browser, tmp_path: Path) -> None:
    served = served_month(tmp_path)
    with on_a_port(served) as link, visit(browser, link) as visitor:
        page = visitor.open("#/gpu/0?window=600")
        expect(page.locator("#page-gpu .plot")).to_have_attribute("data-drawn", re.compile(r"\d+"))
        after(page, served, 30)
        after(page, served, 31)
        page.evaluate(_COUNT)
        for number in range(32, 32 + TICKS):
            after(page, served, number)
        counts = page.evaluate("window.counts")
        assert counts["frames"] <= TICKS + 1, "a page draws when something is new, and not all the time"
        assert counts["changes"] <= MUTATIONS * TICKS
        expect(page.locator("#page-gpu .gutter .value").first).to_have_text(re.compile(r"5\d"))


def test_a_cell_of_a_month_says_what_it_covers_also_while_samples_go_into_it(browser: Browser, tmp_path: Path) -> None:
    served = served_month(tmp_path)
    with on_a_port(served) as link, visit(browser, link) as visitor:
        page = visitor.open("#/gpu/0?window=2678400")
        below = page.locator("#page-gpu .gutter .below").first
        expect(below).to_contain_text(re.compile(r"^mean within the last \d+\s(min|s|h)"))
        box = page.locator("#page-gpu .plot canvas").bounding_box()
        assert box is not None
        page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
        expect(page.locator("#page-gpu .plot .pill")).to_contain_text(re.compile(r"\d\d:\d\d:\d\d to .*\d\d:\d\d:\d\d"))
        for number in range(30, 33):
            after(page, served, number)
        expect(below).to_contain_text(re.compile(r"^mean within the last \d+\s(min|s|h)"))
        page.goto(f"{link}#/gpu/0?window=60")
        page.mouse.move(box["x"] + box["width"] - 70, box["y"] + box["height"] / 2)
        expect(page.locator("#page-gpu .plot .pill")).not_to_contain_text(" to ")
