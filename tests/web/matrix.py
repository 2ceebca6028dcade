"""The matrix of pages: what is true of each load, whatever it shows."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect

from gpumon_web.pages import PAGES
from tests.web.conftest import PATIENCE_MS, visit
from tests.web.pairs import Case, every, pairs
from tests.web.sources import MADE, REAL, MatrixSource, Opened

expect.set_options(timeout=PATIENCE_MS)

WIDTHS = {"1440": 900, "1024": 768, "768": 1024, "400": 800}
"""Widths of windows, and the heights that go with them."""
ZONES = ("UTC", "Asia/Kolkata", "America/New_York", "Europe/Berlin")
ALL = {source.name: source for source in (*REAL, *MADE)}
PARAMETERS = {
    "source": tuple(ALL), "page": tuple(name for name in PAGES if name != "none"), "width": tuple(WIDTHS),
    "theme": ("dark", "light"), "zone": ZONES,
}  # fmt: skip
_DRAWN = re.compile("[1-9]")
"""How often a figure has been drawn, if it has."""
_SERIOUS = ("serious", "critical")
_WIDE = """() => {
  const scrolls = (one) => one && (/auto|scroll/.test(getComputedStyle(one).overflowX) || scrolls(one.parentElement));
  return [...document.querySelectorAll("main *, header *")].filter((one) => one.checkVisibility()
    && !one.closest(".sr, thead, svg, canvas, .plot") && one.getBoundingClientRect().right > innerWidth + 1
    && !scrolls(one.parentElement)).map((one) => one.outerHTML.slice(0, 200));
}"""
"""Elements that reach beyond the window, but for those within what scrolls by itself."""


def possible(case: Case) -> bool:
    """Whether the source has something for that page."""
    return case["page"] in ALL[case["source"]].pages


def loads(sources: Sequence[MatrixSource]) -> list[Any]:
    """The loads of these sources, source by source: those that cover all pairs, and, as slow ones, the others."""
    names = {source.name for source in sources}
    quick = pairs(PARAMETERS, possible)
    rest = [case for case in every(PARAMETERS, possible) if case not in quick]
    found = [(case, ()) for case in quick] + [(case, (pytest.mark.slow,)) for case in rest]
    chosen = sorted((one for one in found if one[0]["source"] in names), key=lambda one: one[0]["source"])
    return [pytest.param(case, marks=marks, id="-".join(case.values())) for case, marks in chosen]


class Open:
    """Sources by name, each opened when it is first asked for."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._stack = ExitStack()
        self._opened: dict[str, Opened] = {}

    def source(self, name: str) -> Opened:
        """A source that is open; skips where it cannot be."""
        needed = ALL[name].needs
        if needed is not None and not needed.exists():
            pytest.skip(f"{needed.name} is not beside the checkout")
        if name not in self._opened:
            directory = self._directory / name
            directory.mkdir(exist_ok=True)
            self._opened[name] = self._stack.enter_context(ALL[name].open(directory))
        return self._opened[name]

    def close(self) -> None:
        self._stack.close()


def opening(directory: Path) -> Iterator[Open]:
    """For a fixture."""
    found = Open(directory)
    try:
        yield found
    finally:
        found.close()


def check(browser: Browser, opened: Opened, case: Case) -> None:
    """Load a page: nothing complains, nothing is too wide, axe finds nothing, and numbers are those of `status`."""
    width = int(case["width"])
    options: dict[str, Any] = {
        "viewport": {"width": width, "height": WIDTHS[case["width"]]}, "color_scheme": case["theme"],
        "timezone_id": case["zone"],
    }  # fmt: skip
    with visit(browser, opened.link, **options) as visitor:
        page = visitor.open(opened.places[case["page"]])
        settled(page)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert page.evaluate(_WIDE) == []
        found = Axe().run(page).response
        assert len(found["passes"]) > 10, "axe looked at nothing"
        assert [
            (one["id"], node["target"], node["failureSummary"])
            for one in found["violations"]
            if one["impact"] in _SERIOUS
            for node in one["nodes"]
        ] == []
        if opened.status is not None:
            same_numbers(page, opened.status())


def settled(page: Page) -> None:
    """Wait until nothing of the page is still to come."""
    shown = page.locator("main .page:not([hidden])")
    expect(shown).to_have_count(1)
    page.wait_for_load_state("networkidle")
    for figure in shown.locator(".plot").all():
        if figure.is_visible():
            expect(figure).to_have_attribute("data-drawn", _DRAWN)


def same_numbers(page: Page, told: dict[str, Any]) -> None:
    """Hold what the page knows of each GPU against `status --json`."""
    known = page.evaluate(
        "() => { const table = gpumon.feed.view.tables.get('gpus'); return table"
        " ? [...table.rows.values()].map((row) => [row.index, row.now, row.watts, row.used]) : []; }"
    )
    expected = {
        gpu["index"]: (gpu["utilization"], gpu["power"], gpu["memory_used"]) for gpu in told["gpus"]
    }  # fmt: skip
    for index, *values in known:
        for value, wanted in zip(values, expected[index], strict=True):
            assert value == pytest.approx(wanted, rel=1e-3) if wanted is not None else value is None
