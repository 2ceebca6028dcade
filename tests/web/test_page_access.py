"""Whoever reads with a screen reader, without a mouse, or with weak eyes: what axe-core knows to look for."""

from __future__ import annotations

from itertools import product

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser

from tests.web.conftest import visit
from tests.web.test_pages import PHONE, PLACES, shows_all

DESK = {"width": 1440, "height": 900}


# Slow: in the matrix axe looks at every page in both themes and on all widths, here at the simulation in each of them.
@pytest.mark.slow
@pytest.mark.parametrize(("theme", "size"), [*product(("dark", "light"), (DESK, PHONE))])
def test_axe_finds_nothing_on_any_page(browser: Browser, simulated: str, theme: str, size: dict[str, int]) -> None:
    with visit(browser, simulated, color_scheme=theme, viewport=size) as visitor:
        for place in PLACES:
            page = visitor.open(place)
            shows_all(page, place)
            found = Axe().run(page).response
            assert len(found["passes"]) > 15, "axe looked at nothing"
            wrong = [
                (one["id"], node["target"], node["failureSummary"])
                for one in found["violations"]
                for node in one["nodes"]
            ]
            assert wrong == [], place
