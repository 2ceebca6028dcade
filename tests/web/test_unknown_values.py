"""What a frame does not prove is claimed by no row of the page."""

from __future__ import annotations

import random

from playwright.sync_api import Browser

from tests.unknowns import any_tick, same_tick, wrong
from tests.web.conftest import on_a_port, visit
from tests.web.served import Served

GPUS, SCREENS = 8, 10
_ROWS = """() => [...document.querySelectorAll("table.fleet tbody tr, .fleet tbody tr")].map((row) => row.innerText)"""


def test_no_row_of_the_page_claims_what_the_frame_does_not_prove(browser: Browser) -> None:
    chance = random.Random(8)
    served = Served([any_tick(chance, 1, GPUS)], devices=GPUS)
    with on_a_port(served) as link, visit(browser, link) as visitor:
        page = visitor.open("#/")
        for number in range(2, 2 + SCREENS):
            # Far enough apart that no state follows from the frame before.
            now = same_tick(any_tick(chance, 1, GPUS), 100 * number)
            served.writer.append(now)
            page.wait_for_function("(number) => window.gpumon.feed.feed.seq >= number", arg=number)
            rows = page.evaluate(_ROWS)
            assert [row.split()[:2] for row in rows] == [["GPU", str(index)] for index in range(GPUS)]
            for one, row in zip(now.samples, rows, strict=True):
                assert wrong(row, one, now.processes) == [], row
