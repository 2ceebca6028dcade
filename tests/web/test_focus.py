"""The keyboard's focus on pages that change by themselves: it stays, though rows are drawn anew and move."""

from __future__ import annotations

from playwright.sync_api import Browser, expect

from gpumon.model.frame import Tick
from gpumon.model.metrics import Availability
from tests.builders import sample, tick
from tests.web.conftest import PATIENCE_MS, on_a_port, visit
from tests.web.served import Served

expect.set_options(timeout=PATIENCE_MS)


def a_tick(number: int, first: float, second: float, state: Availability = Availability.OK) -> Tick:
    """Two GPUs by their utilization, the second one in a state."""
    values = {"utilization": second} if state is Availability.OK else {}
    return tick(number, [sample(0, utilization=first), sample(1, state, **values)])


def test_a_row_keeps_the_keyboards_focus_when_it_moves_and_when_its_state_is_another(browser: Browser) -> None:
    served = Served([a_tick(1, 0.9, 0.1)])
    with on_a_port(served) as link, visit(browser, link) as visitor:
        page = visitor.open("#/fleet?sort=-now")
        rows = page.locator(".fleet a.row")
        expect(rows.first).to_have_attribute("href", "#/gpu/0")
        row = page.locator('.fleet a.row[href="#/gpu/1"]')
        row.focus()
        served.writer.append(a_tick(2, 0.1, 0.9))
        expect(rows.first).to_have_attribute("href", "#/gpu/1")
        expect(row).to_be_focused()
        served.writer.append(a_tick(3, 0.1, 0.9, Availability.LOST))
        expect(row.locator(".state.lost")).to_be_attached()
        expect(row).to_be_focused()
        page.keyboard.press("Enter")
        expect(page.locator("#page-gpu h1")).to_have_text("GPU 1")


def test_a_button_that_the_page_draws_anew_keeps_the_focus_and_shows_it(browser: Browser) -> None:
    served = Served([a_tick(1, 0.9, 0.1)])
    with on_a_port(served) as link, visit(browser, link) as visitor:
        page = visitor.open("#/fleet")
        button = page.get_by_role("button", name="Utilization", exact=True)
        page.locator("#page-fleet select").focus()
        for _ in range(10):
            if button.evaluate("(one) => one === document.activeElement"):
                break
            page.keyboard.press("Tab")
        page.keyboard.press("Enter")
        expect(button).to_have_attribute("aria-pressed", "true")
        expect(button).to_be_focused()
        assert button.evaluate("(one) => one.matches(':focus-visible')")
