"""The matrix of pages: what is true of each load, whatever it shows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, ViewportSize, expect

from gpumon_web.pages import PAGES
from tests.web.conftest import PATIENCE_MS, visit
from tests.web.pairs import Case, every, pairs
from tests.web.sources import MADE, REAL, MatrixSource, Opened

expect.set_options(timeout=PATIENCE_MS)

WIDTHS = {"1440": 900, "1024": 768, "768": 1024, "400": 800, "320": 700}
"""Widths of windows, and the heights that go with them."""
ZONES = ("UTC", "Asia/Kolkata", "America/New_York", "Europe/Berlin")
ALL = {source.name: source for source in (*REAL, *MADE)}
PARAMETERS = {
    "source": tuple(ALL), "page": tuple(name for name in PAGES if name != "none"), "width": tuple(WIDTHS),
    "theme": ("dark", "light"), "zone": ZONES,
}  # fmt: skip
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


def possible(case: Case) -> bool:
    """Whether the source has something for that page."""
    return case["page"] in ALL[case["source"]].pages


def loads(sources: Sequence[MatrixSource]) -> list[Any]:
    """Loads of these sources, source by source, out of those that all sources have among them."""
    names = {source.name for source in sources}
    chosen = [case for case in covering() if case["source"] in names]
    return [pytest.param(case, id="-".join(case.values())) for case in sorted(chosen, key=lambda one: one["source"])]


@cache
def covering() -> Sequence[Case]:
    """All pairs of source, page, width, theme and zone that there are.

    Sources that need a file come last, with what they add: without their files no pair of any others is left out.
    """
    anyway = covering_of([source.name for source in ALL.values() if source.needs is None])
    return (*anyway, *pairs(PARAMETERS, possible, anyway))


def covering_of(names: Sequence[str]) -> Sequence[Case]:
    """All pairs of page, width, theme and zone of these sources."""
    return pairs({**PARAMETERS, "source": names}, possible)


def tours(sources: Sequence[MatrixSource]) -> list[Any]:
    """Each page of these sources in each zone: all widths and themes, beginning with another one each time."""
    names = {source.name for source in sources}
    looks = [{"width": width, "theme": theme} for width, theme in product(PARAMETERS["width"], PARAMETERS["theme"])]
    found: dict[str, list[list[Case]]] = {page: [] for page in PARAMETERS["page"]}
    for place in every({name: PARAMETERS[name] for name in ("zone", "source", "page")}, possible):
        first = len(found[place["page"]]) % len(looks)
        found[place["page"]].append([{**place, **look} for look in looks[first:] + looks[:first]])
    chosen = [tour for one in found.values() for tour in one if tour[0]["source"] in names]
    return [
        pytest.param(tour, id=f"{tour[0]['source']}-{tour[0]['page']}-{tour[0]['zone']}")
        for tour in sorted(chosen, key=lambda tour: tour[0]["source"])
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


def opening(directory: Path) -> Iterator[Open]:
    """For a fixture."""
    found = Open(directory)
    try:
        yield found
    finally:
        found.close()


def check(browser: Browser, opened: Opened, tour: Sequence[Case]) -> None:
    """Load a page as the first of these says, and change the window and the theme as the others say.

    Each time nothing is too wide, axe finds nothing, and numbers are those of `status`; and nothing complains.
    """
    first = tour[0]
    options: dict[str, Any] = {
        "viewport": window(first), "color_scheme": first["theme"], "timezone_id": first["zone"],
    }  # fmt: skip
    with visit(browser, opened.link, **options) as visitor:
        visitor.context.add_init_script(_COUNT)
        page = visitor.open(opened.places[first["page"]])
        settled(page)
        found = {}
        for case in tour:
            if case is not first:
                page.emulate_media(color_scheme=case["theme"])  # type: ignore[arg-type]
                page.set_viewport_size(window(case))
                settled(page)
            found[f"{case['width']} {case['theme']}"] = faults(page.evaluate, int(case["width"]))
            if opened.status is not None:
                same_numbers(page.evaluate, opened.status())
        assert {look: wrong for look, wrong in found.items() if wrong} == {}


def window(case: Case) -> ViewportSize:
    return {"width": int(case["width"]), "height": WIDTHS[case["width"]]}


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
