"""Charts as the scripts get them: lines by panel with the times that they name, and what a browser shows of them."""

from __future__ import annotations

from typing import Any

from playwright.sync_api import Page

_SEEN = """([name, key]) => {
  const view = document.querySelector(`#page-${name} .plot`)?.gpumonView;
  const panel = view && view.doc.panels.find((one) => one.key === key);
  if (!panel) { return null; }
  const [from, to] = view.range;
  const points = panel.lines[0].x.map((x, at) => [x, panel.lines[0].mean[at]])
    .filter(([x, y]) => x >= from && x <= to && y !== null);
  return { from, to, points, values: points.map(([, y]) => y), panels: view.doc.panels.length };
}"""
_EDGES = """(place) => {
  const left = place.getBoundingClientRect().left;
  return place.gpumonView.plot.map((at) => left + at);
}"""


def lines(chart: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The first line of each panel, by the key of the panel, with its own times as `x`."""
    return {
        panel["key"]: {**panel["lines"][0], "x": chart["times"][panel["lines"][0]["x"]]} for panel in chart["panels"]
    }


def points(chart: dict[str, Any], key: str) -> list[tuple[float, float | None]]:
    """The points of that line."""
    line = lines(chart)[key]
    return list(zip(line["x"], line["mean"], strict=True))


def seen(page: Page, name: str, key: str = "gpu.utilization") -> Any:
    """What the chart of a page shows of the first line of a panel; None before it is drawn."""
    return page.evaluate(_SEEN, [name, key])


def across(page: Page, name: str, share: float) -> tuple[float, float]:
    """A place of the first plot of a page, in px: `share` of the way from its left edge to its right one."""
    plot = page.locator(f"#page-{name} .plot")
    box = plot.bounding_box()
    assert box is not None
    left, right = plot.evaluate(_EDGES)
    return left + share * (right - left), box["y"] + 90


def drag(page: Page, name: str, begin: float, end: float) -> None:
    """Zoom by drawing over the first plot, from one share of its width to another."""
    first, last = across(page, name, begin), across(page, name, end)
    page.mouse.move(*first)
    page.mouse.down()
    page.mouse.move((first[0] + last[0]) / 2, first[1], steps=3)
    page.mouse.move(*last, steps=3)
    page.mouse.up()
    page.mouse.move(5, 5)
