"""The pages in Firefox, where the machine has one: whole at every width, down to 400 px, and without a complaint."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import cycle
from pathlib import Path

import pytest

from gpumon_web.pages import PAGES
from tests.web.marionette import Firefox, Look, firefox, found
from tests.web.matrix import WIDTHS, ZONES, Case, Open, faults, opening, same_numbers
from tests.web.states import lab

SHOWN = 'document.querySelector("main .page:not([hidden])")'
"""The page that is open."""
SETTLED = f"""(() => {{
  const shown = {SHOWN};
  const isDrawn = (place) => place.dataset.drawn > 0
    && place.querySelector("canvas").width === Math.round(place.clientWidth * devicePixelRatio);
  return document.body.dataset.state === "live" && shown && !shown.classList.contains("waits")
    && [...shown.querySelectorAll(".plot")].filter((one) => one.checkVisibility()).every(isDrawn);
}})()"""
"""Whether it has what it shows."""
_SEEN = """() => [
  innerWidth, matchMedia("(prefers-color-scheme: dark)").matches, Intl.DateTimeFormat().resolvedOptions().timeZone
]"""
_LOOKS = zip(
    (name for name in PAGES if name != "none"), cycle(WIDTHS), cycle(("dark", "light", "light")), cycle(ZONES),
    strict=False,
)  # fmt: skip
CASES = [Case("two-runs", *look) for look in _LOOKS]
"""Each page once, and each width, theme and zone."""


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Firefox]:
    if not found():
        pytest.skip("there is no Firefox (apt-get install firefox-esr)")
    with firefox(tmp_path_factory.mktemp("profile")) as started:
        yield started


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Open]:
    with opening(tmp_path_factory.mktemp("sources")) as opened:
        yield opened


def test_pages_are_whole_and_accessible_in_firefox(browser: Firefox, sources: Open) -> None:
    def evaluate(function: str) -> object:
        return browser.value(f"({function})()")

    wrong = {}
    for case in CASES:
        opened = sources.source(case.source)
        width, height = int(case.width), WIDTHS[case.width]
        browser.open(opened.link + opened.places[case.page], Look(width, height, case.zone, case.theme))
        browser.until(SETTLED)
        seen = evaluate(_SEEN)
        assert seen == [width, case.theme == "dark", case.zone]
        wrong["-".join(case)] = [*faults(evaluate, width), *browser.complaints()]
        assert opened.status is not None
        same_numbers(evaluate, opened.status())
    assert {case: what for case, what in wrong.items() if what} == {}


@pytest.mark.slow
def test_pages_of_a_lab_are_whole_in_firefox(browser: Firefox, tmp_path: Path) -> None:
    with lab(tmp_path) as opened:
        for look in (Look(1440, 900), Look(400, 800)):
            for page, place in opened.places.items():
                browser.open(opened.link + place, look)
                browser.until(f"{SHOWN}?.querySelector('tbody tr')?.textContent.length > 3")
                assert browser.value("document.documentElement.scrollWidth <= innerWidth"), f"{page} at {look.width} px"
        assert browser.complaints() == []
