"""The pages in Firefox, where the machine has one: whole at two widths, and without a complaint of its console."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import cannot
from tests.web.marionette import firefox, found
from tests.web.states import lab

SHOWN = 'document.querySelector(".page:not([hidden])")'
"""The page that is open."""
WIDTHS = (1440, 500)
"""The narrowest window that Firefox has is 450 px wide."""


@pytest.mark.slow
def test_pages_are_whole_in_firefox(tmp_path: Path) -> None:
    if not found():
        cannot("there is no Firefox (apt-get install firefox-esr)")
    profile = tmp_path / "profile"
    profile.mkdir()
    with lab(tmp_path) as opened, firefox(profile) as browser:
        for width in WIDTHS:
            for page, place in opened.places.items():
                browser.open(opened.link + place, width)
                browser.until(f"{SHOWN}?.querySelector('tbody tr')?.textContent.length > 3")
                assert browser.value("document.documentElement.scrollWidth <= innerWidth"), f"{page} at {width} px"
        assert browser.complaints() == []
