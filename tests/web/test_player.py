"""The bar of a recording in a browser: pause, seek, speed, links, and what the page then says it shows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect

from gpumon.model.origin import RECORDED, Origin
from tests.builders import tick
from tests.programs import until
from tests.recorded import simulated as recorded_of
from tests.recorded import write
from tests.web.conftest import PATIENCE_MS, on_a_port, own_places, visit, web
from tests.web.served import Served
from tests.web.test_pages import PHONE

expect.set_options(timeout=PATIENCE_MS)

FRAMES = 1500
_NOW = "gpumon.feed.feed.now"
_POSITION = "gpumon.position.position"
_NEWEST = """() => {
  const view = document.querySelector(".page:not([hidden]) .plot").gpumonView;
  return view ? Math.max(...view.doc.panels[0].lines[0].x) : 0;
}"""


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recording of 25 minutes."""
    path = tmp_path_factory.mktemp("recording") / "run.gpumon"
    write(path, recorded_of(FRAMES, "sim:one"))
    return path


@pytest.fixture(scope="module")
def link(file: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with web("--source", f"replay:{file}", env=own_places(tmp_path_factory.mktemp("player"))) as found:
        yield found


def soon(page: Page, wanted: str) -> None:
    """Until an expression is true in the page, whose policy lets nobody poll there."""
    until(lambda: bool(page.evaluate(wanted)))


def press(page: Page, name: str) -> None:
    page.locator("#player").get_by_role("button", name=name, exact=True).click()


def stands(page: Page) -> float:
    """Seconds since 1970 at which the page stands, once it says that it is paused."""
    expect(page.locator("#live")).to_contain_text("paused")
    found: float = page.evaluate(_NOW)
    return found


def address(page: Page) -> dict[str, list[str]]:
    return parse_qs(page.url.partition("#")[2].partition("?")[2])


def test_a_page_stands_still_while_another_one_plays_on(browser: Browser, link: str) -> None:
    with visit(browser, link) as one, visit(browser, link) as other:
        page, plays = one.open("#/fleet"), other.open("#/fleet")
        expect(page.locator("#live")).to_contain_text("playing")
        press(page, "Pause")
        at = stands(page)
        then = plays.evaluate(_NOW)
        soon(plays, f"{_NOW} > {then} + 2")
        assert stands(page) == at
        expect(plays.locator("#live")).to_contain_text("playing")
        expect(page.locator("#label")).to_contain_text("REPLAY run.gpumon")
        press(page, "Play")
        soon(page, f"{_NOW} > {at}")
        expect(page.locator("#live")).to_contain_text("playing")


def test_seeking_moves_values_and_charts_and_the_link_leads_there(browser: Browser, link: str) -> None:
    with visit(browser, link) as visitor, visit(browser, link) as other:
        page = visitor.open("#/gpu/0")
        press(page, "Pause")
        at = stands(page)
        press(page, "+10 min")
        soon(page, f"{_NOW} > {at} + 590")
        soon(page, f"Math.abs(({_NEWEST})() - {_NOW}) < 0.01")
        moved = stands(page)
        assert float(address(page)["at"][0]) == pytest.approx(moved, abs=1.1)
        press(page, "−1 min")
        soon(page, f"{_NOW} < {moved} - 55")
        soon(page, f"Math.abs(({_NEWEST})() - {_NOW}) < 0.01")
        twin = other.open(f"#{page.url.partition('#')[2]}")
        assert stands(twin) == stands(page)


def test_the_position_stays_from_page_to_page_and_rejoining_gives_it_up(browser: Browser, link: str) -> None:
    with visit(browser, link) as visitor:
        page = visitor.open("#/fleet")
        press(page, "Pause")
        press(page, "+10 min")
        soon(page, f"{_POSITION}.known.own && Math.abs({_POSITION}.here() - {_NOW}) < 1.1")
        at = stands(page)
        page.locator("#tab-runs").click()
        expect(page.locator("#page-runs")).to_contain_text("press Rejoin for all that was played")
        assert stands(page) == at
        assert "at" in address(page)
        press(page, "Rejoin")
        expect(page.locator("#live")).to_contain_text("playing")
        soon(page, f"{_NOW} < {at} - 60")
        assert "at" not in address(page)
        expect(page.locator("#page-runs")).not_to_contain_text("press Rejoin")


def test_the_keyboard_is_enough_and_the_end_is_said(browser: Browser, link: str) -> None:
    with visit(browser, link) as visitor:
        page = visitor.open("#/fleet")
        slider = page.get_by_role("slider", name="Position in the recording")
        slider.focus()
        page.keyboard.press("End")
        expect(page.locator("#live")).to_have_text("ended")
        expect(page.locator("#problem")).to_contain_text("The recording has ended")
        expect(page.locator("#problem")).not_to_contain_text("A log plays once")
        page.keyboard.press("Home")
        expect(page.locator("#live")).to_contain_text("playing")
        assert slider.get_attribute("aria-valuetext")
        names = []
        page.locator("#theme").focus()
        for _ in range(8):
            page.keyboard.press("Tab")
            names.append(page.evaluate("document.activeElement.textContent || document.activeElement.ariaLabel"))
        assert names[0] in ("Pause", "Play")
        assert names[2:6] == ["−10 min", "−1 min", "+1 min", "+10 min"]


def test_a_faster_speed_plays_faster(browser: Browser, link: str) -> None:
    with visit(browser, link) as visitor:
        page = visitor.open("#/fleet")
        page.get_by_role("combobox", name="Speed").select_option("×60")
        soon(page, "gpumon.position.position.known.own")
        at = page.evaluate(_NOW)
        soon(page, f"{_NOW} > {at} + 100")
        assert address(page)["speed"] == ["60"]


def test_axe_finds_nothing_in_the_bar(browser: Browser, link: str) -> None:
    with visit(browser, link, color_scheme="light", viewport=PHONE) as visitor:
        page = visitor.open("#/fleet")
        press(page, "Pause")
        stands(page)
        found = Axe().run(page).response
        assert [one["id"] for one in found["violations"]] == []
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_a_damaged_recording_says_where(browser: Browser, file: Path, tmp_path: Path) -> None:
    raw = bytearray(file.read_bytes())
    raw[len(raw) * 2 // 3] ^= 1
    (tmp_path / "cut.gpumon").write_bytes(raw)
    source = ("--source", f"replay:{tmp_path / 'cut.gpumon'}")
    with web(*source, env=own_places(tmp_path)) as link, visit(browser, link) as visitor:
        page = visitor.open("#/fleet")
        page.get_by_role("slider").focus()
        page.keyboard.press("End")
        expect(page.locator("#live")).to_have_text("ended")
        expect(page.locator("#player")).to_contain_text("is damaged: it plays up to")
        expect(page.locator("#label")).to_contain_text("damaged after")


def test_what_is_live_has_no_bar(browser: Browser, simulated: str) -> None:
    with visit(browser, simulated) as visitor:
        page = visitor.open("#/fleet?at=5&paused=1")
        expect(page.locator("#live")).to_contain_text("live")
        expect(page.locator("#player")).to_be_hidden()
        soon(page, "!location.hash.includes('at=')")


@pytest.mark.parametrize(("end", "speed"), [("×12.5", "×12.5"), ("ended (3 lines skipped)", "ended")])
def test_the_speed_of_a_recording_is_never_cut_off(browser: Browser, end: str, speed: str) -> None:
    label = f"REPLAY a-night-of-trainings-with-a-long-name.csv.gz {end}"
    served = Served([tick(1, origin=Origin("replay", label, capabilities=RECORDED))])
    with on_a_port(served) as link, visit(browser, link) as visitor:
        badge = visitor.open("#/fleet").locator("#label")
        expect(badge).to_have_text(label)
        shown = badge.locator(".speed")
        assert (shown.text_content() or "").strip() == speed
        for width in (1440, 400):
            visitor.page.set_viewport_size({"width": width, "height": 800})
            box, whole = shown.bounding_box(), badge.bounding_box()
            assert box is not None
            assert whole is not None
            assert box["x"] + box["width"] <= whole["x"] + whole["width"] <= width
            assert shown.evaluate("(one) => one.scrollWidth <= one.clientWidth")
