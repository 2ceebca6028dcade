"""Words on charts: none lies over another one or beyond the edge, whatever the width and the moment."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.builders import sample, tick
from tests.crossed import crossed
from tests.web.conftest import on_a_port, visit
from tests.web.served import Served

GIB = 2.0**30
_NOTE = """(() => {
  const { clearRect, fillText } = CanvasRenderingContext2D.prototype;
  CanvasRenderingContext2D.prototype.clearRect = function (...given) {
    this.canvas.words = [];
    return clearRect.apply(this, given);
  };
  CanvasRenderingContext2D.prototype.fillText = function (text, x, y) {
    const wide = this.measureText(text).width;
    const left = x - { left: 0, center: wide / 2, right: wide }[this.textAlign];
    this.canvas.words.push({ text, left, right: left + wide, y });
    return fillText.call(this, text, x, y);
  };
})();"""
"""Notes each word that a canvas shows, and where."""


def words(page: Page) -> list[dict[str, Any]]:
    """The words of the chart of a GPU."""
    found: list[dict[str, Any]] = page.locator("#page-gpu .plot canvas").evaluate("(canvas) => canvas.words")
    return found


@pytest.mark.parametrize(("width", "seconds"), crossed([1440, 1000, 400], [59, 65]))
def test_words_of_a_chart_lie_beside_each_other_and_within_it(browser: Browser, width: int, seconds: int) -> None:
    total = 79.6 * GIB
    held = sample(0, utilization=0.9, memory_used=total, memory_total=total, power=412.0, clock_sm=1.98e9)
    served = Served([tick(n, [held]) for n in range(1, seconds + 1)])
    with on_a_port(served) as link, visit(browser, link, viewport={"width": width, "height": 900}) as visitor:
        visitor.context.add_init_script(_NOTE)
        page = visitor.open("#/gpu/0?window=60")
        expect(page.locator("#page-gpu .plot[data-drawn]")).to_be_visible()
        found = words(page)
        wide = page.locator("#page-gpu .plot").evaluate("(place) => place.clientWidth")
        assert [one for one in found if one["left"] < 0 or one["right"] > wide] == []
        assert "79.6 GiB" in [one["text"] for one in found]
        below = sorted((one["left"], one["right"], one["text"]) for one in found
                       if one["y"] == max(other["y"] for other in found))  # fmt: skip
        assert len(below) >= 2
        for (_, right, word), (left, _, after) in pairwise(below):
            assert left - right >= 6, (word, after)
