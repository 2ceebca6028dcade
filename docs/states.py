"""A picture of each page in each of its states, into a folder: `PYTHONPATH=. python docs/states.py FOLDER [SOURCE …]`.

For looking at one by one after a change of the browser view; none of them is kept. Needs playwright and Chromium.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple

from playwright.sync_api import Browser, Page, sync_playwright

from tests import chromium
from tests.web.sources import MADE, REAL, Opened
from tests.web.states import STATES

SIZES: Mapping[str, Mapping[str, Any]] = {
    "desk": {"viewport": {"width": 1440, "height": 900}},
    "phone": {"viewport": {"width": 400, "height": 860}},
}
LOOKS = {name: (size, theme) for size in SIZES for theme in ("dark", "light") for name in [f"{size}-{theme}"]}
DESKS, ALL = ("desk-dark", "desk-light"), ("desk-dark", "desk-light", "phone-dark")
PAIR = ("desk-dark", "phone-light")
SETTLES = 2500
"""Milliseconds after which a page has what it asks for."""
TALLEST = 2400
"""Pixels of a picture."""


class Shots(NamedTuple):
    """Pictures of one source: its pages, and the looks of each."""

    source: str
    pages: Sequence[str]
    looks: Sequence[str] = PAIR
    state: str = ""
    """Treatment of the page: `loading`, `signed-out`, `login`, `refused` or `printed`; nothing where empty."""


SHOTS = (
    Shots("simulation", ("fleet", "gpu", "runs", "run", "compare"), ALL),
    Shots("lab", ("fleet", "users", "events"), (*ALL, "phone-light")),
    Shots("lab", ("gpu", "runs", "run", "compare", "user", "month")),
    Shots("one", ("gpu",), ALL),
    Shots("one", ("fleet", "run")),
    Shots("none", ("fleet",), ALL),
    Shots("none", ("runs", "users", "events")),
    Shots("many-gpus", ("fleet",), ALL),
    Shots("many-gpus", ("gpu",)),
    Shots("many-epochs", ("run",), ALL),
    Shots("many-epochs", ("compare",)),
    Shots("two-runs", ("gpu", "run")),
    Shots("month", ("gpu",)),
    Shots("idle", ("fleet", "gpu", "runs")),
    Shots("stale", ("fleet", "gpu", "run")),
    Shots("lost", ("fleet", "gpu")),
    Shots("hashed", ("fleet", "users", "run")),
    Shots("ended", ("fleet", "gpu")),
    Shots("waiting", ("fleet",)),
    Shots("lab", ("fleet", "gpu", "run", "users"), state="loading"),
    Shots("lab", ("fleet",), state="signed-out"),
    Shots("lab", ("fleet",), state="login"),
    Shots("lab", ("fleet",), state="refused"),
    Shots("lab", ("fleet", "gpu", "run", "users"), ("desk-dark",), state="printed"),
)
_NO_ANSWER = """
const ask = window.fetch;
window.fetch = (address, ...more) => /delta|kept/.test(address) ? new Promise(() => {}) : ask(address, ...more);
"""
_SOURCES: Mapping[str, Any] = {**{one.name: one.open for one in (*REAL, *MADE)}, **STATES}


def main() -> None:
    """Take all pictures, or those of some sources."""
    folder, wanted = Path(sys.argv[1]), sys.argv[2:]
    folder.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium.program(), args=chromium.ARGUMENTS)
        for source in dict.fromkeys(one.source for one in SHOTS if not wanted or one.source in wanted):
            with tempfile.TemporaryDirectory() as directory:
                opened: AbstractContextManager[Opened] = _SOURCES[source](Path(directory))
                with opened as found:
                    for shots in SHOTS:
                        if shots.source == source:
                            take(browser, found, shots, folder)
        browser.close()


def take(browser: Browser, opened: Opened, shots: Shots, folder: Path) -> None:
    """Write `SOURCE-PAGE[-STATE]-LOOK.png` for each page and look."""
    for name in shots.pages:
        for look in shots.looks:
            size, theme = LOOKS[look]
            context = browser.new_context(**{**SIZES[size], "color_scheme": theme})
            page = context.new_page()
            show(page, opened.link, opened.places[name], shots.state)
            parts = (shots.source, name, *filter(None, (shots.state,)), look)
            height = page.evaluate("document.documentElement.scrollHeight")
            clip = {"x": 0, "y": 0, "width": page.evaluate("innerWidth"), "height": min(height, TALLEST)}
            page.screenshot(path=folder / f"{'-'.join(parts)}.png", full_page=True, clip=clip)
            context.close()


def show(page: Page, link: str, place: str, state: str) -> None:
    """Open a page, and do to it what the state asks for."""
    if state == "loading":
        page.add_init_script(_NO_ANSWER)
    if state in ("login", "refused"):
        link = link.partition("?")[0]
    page.goto(link + place)
    if state == "refused":
        page.get_by_label("Token").fill("not-the-token-at-all")
        page.keyboard.press("Enter")
    page.wait_for_timeout(SETTLES)
    if state == "signed-out":
        page.context.clear_cookies()
        page.wait_for_timeout(SETTLES)
    if state == "printed":
        page.set_viewport_size({"width": 703, "height": 990})
        page.emulate_media(media="print")
        page.wait_for_timeout(500)


if __name__ == "__main__":
    main()
