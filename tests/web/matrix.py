"""The matrix of pages: what is true of each load, whatever it shows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Literal, NamedTuple

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect

from gpumon_web.pages import PAGES
from tests.web.conftest import PATIENCE_MS, visit
from tests.web.sources import MADE, REAL, MatrixSource, Opened

expect.set_options(timeout=PATIENCE_MS)

WIDTHS = {"1440": 900, "1024": 768, "768": 1024, "400": 800, "320": 700}
"""Widths of windows, and the heights that go with them."""


class Case(NamedTuple):
    """A page of a source, and how it is looked at."""

    source: str
    page: str
    width: str
    theme: Literal["dark", "light"]
    zone: str


ZONES = ("UTC", "Asia/Kolkata", "America/New_York", "Europe/Berlin")
ALL = {source.name: source for source in (*REAL, *MADE)}
_WIDE = """() => {
  const scrolls = (one) => one && (/auto|scroll/.test(getComputedStyle(one).overflowX) || scrolls(one.parentElement));
  return [...document.querySelectorAll("main *, header *")].filter((one) => one.checkVisibility()
    && !one.closest(".sr, thead, svg, canvas, .plot") && one.getBoundingClientRect().right > innerWidth + 1
    && !scrolls(one.parentElement)).map((one) => one.outerHTML.slice(0, 200));
}"""
"""Elements that reach beyond the window, but for those within what scrolls by itself."""
Evaluate = Callable[[str], Any]
"""Calls a function of JavaScript in a page; its value."""
_COUNT = """
window.asking = 0;
window.quiet = 0;
const ask = window.fetch;
const isWhole = () => { window.asking -= 1; };
window.fetch = (...asked) => {
  window.asking += 1;
  const answer = ask(...asked);
  answer.then((one) => one.clone().arrayBuffer()).then(isWhole, isWhole);
  return answer;
};
"""
"""Counts the questions that have no answer yet, or one of which some is still to come."""
_QUIET = """() => {
  const isDrawn = (place) => place.dataset.drawn > 0
    && place.querySelector("canvas").width === Math.round(place.clientWidth * devicePixelRatio);
  const all = [...document.querySelectorAll("main .page:not([hidden]) .plot")];
  const places = all.filter((one) => one.checkVisibility());
  window.quiet = window.asking || !places.every(isDrawn) ? 0 : window.quiet + 1;
  return window.quiet > 6;
}"""
"""Whether for some frames no answer has been due, and each figure has been drawn, as wide as its place."""
_AXE = """async () => {
  const { passes, violations } = await axe.run({ resultTypes: ["violations"] });
  const nodes = (one) => one.nodes.map((node) => [node.target, node.failureSummary]);
  return { passes: passes.length, violations: violations.map((one) => [one.id, one.impact, nodes(one)]) };
}"""


def cases_of(source: MatrixSource) -> list[Case]:
    """Return a case for each page of a source. Over all sources, each page has every width and both themes."""
    first = [*ALL].index(source.name)
    looks = [(width, theme) for theme in ("dark", "light") for width in WIDTHS]
    return [
        Case(source.name, page, *looks[(first + 3 * number) % len(looks)], ZONES[first % len(ZONES)])
        for number, page in enumerate(name for name in PAGES if name in source.pages)
    ]


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


@contextmanager
def opening(directory: Path) -> Iterator[Open]:
    """Sources that are closed at the end."""
    found = Open(directory)
    try:
        yield found
    finally:
        found.close()


def check(browser: Browser, opened: Opened, cases: Sequence[Case]) -> None:
    """Load pages of one source: nothing is too wide, axe finds nothing, and numbers are those of `status`."""
    first = cases[0]
    with visit(browser, opened.link, timezone_id=first.zone) as visitor:
        visitor.context.add_init_script(_COUNT)
        found = {}
        for case in cases:
            visitor.page.emulate_media(color_scheme=case.theme)
            visitor.page.set_viewport_size({"width": int(case.width), "height": WIDTHS[case.width]})
            page = visitor.open(opened.places[case.page])
            settled(page)
            found[case] = faults(page.evaluate, int(case.width))
            if opened.status is not None:
                same_numbers(page.evaluate, opened.status())
        assert {case: wrong for case, wrong in found.items() if wrong} == {}


def settled(page: Page) -> None:
    """Wait until nothing of the page is still to come."""
    expect(page.locator("main .page:not([hidden])")).to_have_count(1)
    page.evaluate("quiet = 0")
    page.wait_for_function(_QUIET)


def faults(evaluate: Evaluate, width: int) -> list[object]:
    """What is too wide, and what axe finds."""
    taken = evaluate("() => document.documentElement.scrollWidth")
    beyond = [f"the page is {taken} px wide"] if taken > width else []
    if not evaluate("() => 'axe' in window"):
        evaluate(f"() => {{ {Axe().axe_script}\n}}")
    found = evaluate(_AXE)
    assert found["passes"] > 10, "axe looked at nothing"
    return [*beyond, *evaluate(_WIDE), *found["violations"]]


def same_numbers(evaluate: Evaluate, told: dict[str, Any]) -> None:
    """Hold what the page knows of each GPU against `status --json`."""
    known = evaluate(
        "() => { const table = gpumon.feed.feed.view.tables.get('gpus'); return table"
        " ? [...table.rows.values()].map((row) => [row.index, row.now, row.power_watts, row.memory_used_bytes]) : []; }"
    )
    expected = {
        gpu["index"]: (gpu["utilization"], gpu["power"], gpu["memory_used"]) for gpu in told["gpus"]
    }  # fmt: skip
    for index, *values in known:
        for value, wanted in zip(values, expected[index], strict=True):
            assert value == pytest.approx(wanted, rel=1e-3) if wanted is not None else value is None
