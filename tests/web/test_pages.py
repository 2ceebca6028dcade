"""The pages in a real browser: they show what there is, stay live, and are usable by whoever comes, on any screen."""

from __future__ import annotations

import csv
import re
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.programs import until
from tests.web.conftest import PATIENCE_MS, Visitor, own_places, visit, web

expect.set_options(timeout=PATIENCE_MS)

PLACES = ("#/fleet", "#/gpu/0?window=600", "#/runs", "#/run/sim-0-0")
PHONE = {"width": 400, "height": 800}
_RANGE = "document.querySelector('.page:not([hidden]) .plot').gpumonView.range.map((at) => 1000 * at)"
_PAINTED = """() => {
  const canvas = document.querySelector(".page:not([hidden]) .plot canvas");
  const pen = new OffscreenCanvas(canvas.width, canvas.height).getContext("2d");
  pen.drawImage(canvas, 0, 0);
  const all = new Uint32Array(pen.getImageData(0, 0, canvas.width, canvas.height).data.buffer);
  const counts = new Map();
  for (const one of all) { if (one >>> 24 === 255) { counts.set(one, (counts.get(one) || 0) + 1); } }
  return [...counts].sort((a, b) => b[1] - a[1])[0][0];
}"""
"""The color that a chart has most of."""


def drawn(page: Page, more: int = 1) -> None:
    """Wait until the figure has been drawn `more` times again."""
    figure = page.locator(".page:not([hidden]) .plot")
    before = int(figure.get_attribute("data-drawn") or 0)
    until(lambda: int(figure.get_attribute("data-drawn") or 0) >= before + more)


def shows_all(page: Page, place: str) -> None:
    """Wait until a page has all it shows."""
    shown = page.locator("main .page:not([hidden])")
    if place == "#/fleet":
        expect(shown.locator("tbody tr:not(.group)")).to_have_count(8)
        expect(shown.locator(".look li")).not_to_have_count(0)
    elif place == "#/runs":
        expect(shown.get_by_role("link", name="llama-8b-sft")).to_be_visible()
    else:
        expect(shown.locator(".plot[data-drawn]")).to_be_visible()
        expect(shown.locator("tbody tr")).not_to_have_count(0)


def test_every_page_shows_its_things_without_complaint(browser: Browser, simulated: str) -> None:
    with visit(browser, simulated) as visitor:
        for place in PLACES:
            page = visitor.open(place)
            shows_all(page, place)
            expect(page.locator("#label")).to_have_text("SIMULATED")
            expect(page.locator("#live")).to_contain_text("live")
            visitor.check()


def test_no_page_is_wider_than_a_phone(viewer: Visitor) -> None:
    viewer.page.set_viewport_size(PHONE)
    for place in PLACES:
        page = viewer.open(place)
        shows_all(page, place)
        assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"], place
        wide = page.evaluate(
            "[...document.querySelectorAll('main *, header *')].filter((one) => one.checkVisibility()"
            " && !one.closest('.sr, thead, svg, .plot') && one.getBoundingClientRect().right > innerWidth + 1)"
            ".map((one) => one.outerHTML.slice(0, 200))"
        )
        assert wide == [], place
        cut = page.evaluate(
            "[...document.querySelectorAll('.page:not([hidden]) td, .page:not([hidden]) td .progress')]"
            ".filter((one) => one.checkVisibility() && one.scrollWidth > one.clientWidth + 1)"
            ".map((one) => one.outerHTML.slice(0, 200))"
        )
        assert cut == [], place
    label = page.locator("#label")
    expect(label).to_have_text("SIMULATED")
    assert label.evaluate("(one) => one.scrollWidth <= one.clientWidth"), "a few letters of it would say nothing"


def test_numbers_move_by_themselves(viewer: Visitor) -> None:
    page = viewer.open("#/fleet")
    shows_all(page, "#/fleet")
    table = page.locator(".fleet tbody")
    for _ in range(2):
        seen = table.inner_text()
        until(lambda seen=seen: table.inner_text() != seen)  # type: ignore[misc]
    first = page.evaluate("gpumon.feed.feed.seq")
    until(lambda: page.evaluate("gpumon.feed.feed.seq") > first)


def zoomed(page: Page) -> Any:
    """Drag over a part of the figure that is not the newest; gives the range that it shows then.

    What is fetched for it reaches beyond now for two minutes still, so that the figure goes on being drawn.
    """
    box = page.locator(".page:not([hidden]) .plot").bounding_box()
    assert box
    y = box["y"] + 90
    page.mouse.move(box["x"] + box["width"] * 0.5, y)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.7, y, steps=4)
    page.mouse.move(box["x"] + box["width"] * 0.97, y, steps=4)
    page.mouse.up()
    expect(page.get_by_role("button", name="Back to live")).to_be_visible()
    drawn(page)
    return page.evaluate(_RANGE)


def test_a_zoom_stays_while_it_is_live_and_a_link_to_it_shows_the_same_elsewhere(
    browser: Browser, simulated: str
) -> None:
    with visit(browser, simulated) as visitor:
        page = visitor.open("#/gpu/0?window=600")
        shows_all(page, "#/gpu/0")
        whole = page.evaluate(_RANGE)
        found = zoomed(page)
        assert 0 < found[1] - found[0] < (whole[1] - whole[0]) * 0.7
        drawn(page, 3)
        assert page.evaluate(_RANGE) == pytest.approx(found, abs=200)
        place = "#" + page.url.partition("#")[2]
        assert "from=" in place
        with visit(browser, simulated) as other:
            same = other.open(place)
            shows_all(same, "#/gpu/0")
            assert same.evaluate(_RANGE) == pytest.approx(found, abs=200)
        page.get_by_role("button", name="Back to live").click()
        until(lambda: page.evaluate(_RANGE)[1] >= whole[1])
        first = page.evaluate(_RANGE)
        until(lambda: page.evaluate(_RANGE)[1] > first[1])
        assert "from=" not in page.url


def test_zoom_and_move_work_without_a_mouse(viewer: Visitor) -> None:
    page = viewer.open("#/gpu/0?window=600")
    shows_all(page, "#/gpu/0")
    before = page.evaluate(_RANGE)
    button = page.locator("#page-gpu").get_by_role("button", name="Zoom in")
    button.focus()
    page.keyboard.press("Enter")
    until(lambda: page.evaluate(_RANGE)[1] - page.evaluate(_RANGE)[0] < 0.6 * (before[1] - before[0]))
    near = page.evaluate(_RANGE)
    page.locator("#page-gpu").get_by_role("button", name="Earlier").press("Enter")
    until(lambda: page.evaluate(_RANGE)[0] < near[0] - 1000)


def test_windows_and_other_gpus_are_links_that_others_can_open(viewer: Visitor) -> None:
    page = viewer.open("#/gpu/5?window=60")
    expect(page.locator("#page-gpu h1")).to_have_text("GPU 5")
    expect(page.get_by_role("button", name="1 min")).to_have_attribute("aria-pressed", "true")
    shows_all(page, "#/gpu/5")
    length = "(([begin, end]) => end - begin)(" + _RANGE + ")"
    until(lambda: page.evaluate(length) == pytest.approx(60_000, abs=2000))
    page.get_by_role("button", name="10 min").click()
    until(lambda: page.evaluate("location.hash") == "#/gpu/5?window=600")
    page.get_by_role("link", name="GPU 6").click()
    expect(page.locator("#page-gpu h1")).to_have_text("GPU 6")
    uuid = page.evaluate("gpumon.feed.feed.view.values.get('uuid')")
    viewer.open(f"#/gpu/{uuid}")
    expect(page.locator("#page-gpu h1")).to_have_text("GPU 6")


def test_the_browsers_back_button_leads_back(viewer: Visitor) -> None:
    page = viewer.open("#/fleet")
    shows_all(page, "#/fleet")
    page.locator(".fleet a.row").nth(3).click()
    expect(page.locator("#page-gpu h1")).to_have_text("GPU 3")
    page.get_by_role("link", name="Runs").click()
    page.get_by_role("link", name="resnet50").click()
    expect(page.locator("#page-run h1")).to_have_text("resnet50")
    expect(page).to_have_title(re.compile(r"^epoch \d.* · resnet50 · simulated$"))
    page.go_back()
    expect(page.locator("#page-runs h1")).to_be_visible()
    page.go_back()
    expect(page.locator("#page-gpu h1")).to_have_text("GPU 3")
    page.go_back()
    expect(page.locator("#page-fleet tbody tr").first).to_be_visible()
    page.go_forward()
    expect(page.locator("#page-gpu h1")).to_have_text("GPU 3")


def test_the_back_button_takes_back_the_choice_of_a_window_and_no_tick_is_a_step(viewer: Visitor) -> None:
    page = viewer.open("#/fleet")
    page.locator(".fleet a.row").nth(3).click()
    windows = page.locator("#page-gpu [data-usual]")
    pressed = windows.locator("[aria-pressed=true]")
    expect(pressed).to_have_text("10 min")
    steps = page.evaluate("history.length")
    for name in ("1 min", "1 h", "1 h"):
        windows.get_by_role("button", name=name, exact=True).click()
    heard = page.evaluate("gpumon.feed.feed.now")
    page.wait_for_function("heard => gpumon.feed.feed.now > heard + 1", arg=heard)
    assert page.evaluate("history.length") == steps + 2, "neither a tick nor what is shown already is a choice"
    page.go_back()
    expect(pressed).to_have_text("1 min")
    with page.expect_response(lambda answer: answer.url.endswith("&window=600")):
        page.go_back()
    expect(pressed).to_have_text("10 min")
    page.go_forward()
    expect(pressed).to_have_text("1 min")
    page.get_by_role("link", name="Runs").click()
    page.go_back()
    expect(page.locator("#page-gpu h1")).to_have_text("GPU 3")
    expect(pressed).to_have_text("1 min")


def test_the_back_button_takes_back_a_search_before_it_leaves_its_page(viewer: Visitor) -> None:
    page = viewer.open("#/fleet")
    page.get_by_role("link", name="Runs").click()
    field = page.get_by_role("searchbox", name="Filter runs by name")
    rows = page.locator("#page-runs tbody tr")
    expect(rows.first).to_be_visible()
    all_of_them = rows.count()
    field.press_sequentially("no such run")
    expect(rows).to_have_count(0)
    page.go_back()
    expect(field).to_have_value("")
    expect(rows).to_have_count(all_of_them)
    page.go_forward()
    expect(field).to_have_value("no such run")
    page.go_back()
    states = page.locator("#page-runs select").first
    states.select_option("running")
    until(lambda: page.url.endswith("?state=running"))
    page.go_back()
    expect(states).to_have_value("")
    page.go_back()
    expect(page.locator("#page-fleet tbody tr").first).to_be_visible()


def test_tables_sort_by_click_and_by_key(viewer: Visitor) -> None:
    page = viewer.open("#/run/sim-0-0")
    shows_all(page, "#/run/sim-0-0")
    table = page.get_by_role("table", name="Epochs")
    head = table.get_by_role("columnheader", name="Epoch")
    first = table.locator("tbody th").first
    expect(head).to_have_attribute("aria-sort", "descending")
    newest = int(first.inner_text())
    assert newest > 0
    head.get_by_role("button").click()
    expect(head).to_have_attribute("aria-sort", "ascending")
    expect(first).to_have_text("0")
    loss = table.get_by_role("columnheader", name=re.compile("^loss"))
    loss.get_by_role("button").focus()
    page.keyboard.press("Enter")
    expect(loss).to_have_attribute("aria-sort", "descending")
    expect(head).to_have_attribute("aria-sort", "none")
    page.keyboard.press("Space")
    expect(loss).to_have_attribute("aria-sort", "ascending")
    texts = table.locator("tbody td[data-label=loss]").all_inner_texts()
    losses = [float(text) for text in texts if text != "–"]
    assert len(set(losses)) > 1
    assert losses == sorted(losses)


def test_one_order_of_the_gpus_is_marked_as_in_force(viewer: Visitor) -> None:
    """By a button or at a column, whichever somebody chose last."""
    page = viewer.open("#/fleet")
    orders = page.get_by_role("group", name="Order")
    pressed, arrows = orders.locator("[aria-pressed=true]"), page.locator("#page-fleet th:is([aria-sort$=ending])")
    expect(pressed).to_have_text(["GPU"])
    expect(arrows).to_have_text(["GPU"])
    orders.get_by_role("button", name="Free first").click()
    expect(pressed).to_have_text(["Free first"])
    expect(arrows).to_have_count(0)
    page.get_by_role("columnheader", name="Power").get_by_role("button").click()
    expect(arrows).to_have_text(["Power"])
    expect(pressed).to_have_count(0)
    page.set_viewport_size({"width": 400, "height": 800})
    page.goto(f"{viewer.link}#/fleet")
    expect(pressed).to_have_text(["Free first"])
    expect(arrows).to_have_count(0)


@pytest.mark.parametrize("width", [1440, 1024])
@pytest.mark.parametrize("place", ["run/sim-0-0", "gpu/0"])
def test_the_buttons_of_a_course_stand_in_one_row_and_no_title_beside_it_is_cut(
    viewer: Visitor, width: int, place: str
) -> None:
    viewer.page.set_viewport_size({"width": width, "height": 900})
    page = viewer.open(f"#/{place}")
    shown = page.locator("main .page:not([hidden])")
    expect(shown.locator(".plot[data-drawn]")).to_be_visible()
    head = shown.locator(".cardhead", has_text="Course")
    places = [box for one in head.locator(".seg, .opens").all() if (box := one.bounding_box())]
    middles = [box["y"] + box["height"] / 2 for box in places]
    assert len(middles) > 2
    assert max(middles) - min(middles) < 2
    whole = "all => all.every((one) => one.scrollWidth <= one.clientWidth)"
    assert shown.locator(".gutter .what").evaluate_all(whole)


@pytest.mark.parametrize("width", [1024, 961, 900])
def test_no_column_of_the_runs_is_cut_at_the_edge_of_its_card(viewer: Visitor, width: int) -> None:
    viewer.page.set_viewport_size({"width": width, "height": 800})
    page = viewer.open("#/runs")
    expect(page.locator("#page-runs tbody tr").first).to_be_visible()
    box = "document.querySelector('#page-runs .tablebox')"
    page.wait_for_function(f"() => {box}.scrollWidth <= {box}.clientWidth")


def test_the_epoch_table_downloads_as_csv(viewer: Visitor, tmp_path: Path) -> None:
    page = viewer.open("#/run/sim-0-0")
    with page.expect_download() as expected:
        page.get_by_role("link", name="CSV", exact=True).click()
    expected.value.save_as(tmp_path / "epochs.csv")
    with (tmp_path / "epochs.csv").open(newline="", encoding="utf-8-sig") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) > 3
    assert "epoch" in rows[0]


def test_a_person_chooses_a_theme_and_it_stays(browser: Browser, simulated: str) -> None:
    back = "getComputedStyle(document.body).backgroundColor"
    with visit(browser, simulated, color_scheme="dark") as visitor:
        page = visitor.open("#/gpu/0")
        shows_all(page, "#/gpu/0")
        dark, color = page.evaluate(back), page.evaluate(_PAINTED)
        page.get_by_role("button", name="Switch to light").click()
        light = page.evaluate(back)
        assert light != dark
        until(lambda: page.evaluate(_PAINTED) != color)
        page.reload()
        expect(page.get_by_role("button", name="Switch to dark")).to_be_visible()
        assert page.evaluate(back) == light
        page.emulate_media(color_scheme="light")
        page.get_by_role("button", name="Switch to dark").click()
        assert page.evaluate(back) == dark


def test_the_system_decides_the_theme_until_somebody_chooses(browser: Browser, simulated: str) -> None:
    back = "getComputedStyle(document.body).backgroundColor"
    with visit(browser, simulated, color_scheme="light") as visitor:
        page = visitor.open("#/fleet")
        light = page.evaluate(back)
        page.emulate_media(color_scheme="dark")
        until(lambda: page.evaluate(back) != light)


def test_the_keyboard_reaches_everything_and_the_first_key_skips_the_head(viewer: Visitor) -> None:
    page = viewer.open("#/fleet")
    shows_all(page, "#/fleet")
    page.keyboard.press("Tab")
    skip = page.get_by_role("link", name="Skip to content")
    expect(skip).to_be_focused()
    expect(skip).to_be_in_viewport()
    page.keyboard.press("Enter")
    expect(page.locator("#main")).to_be_focused()
    row = page.locator(".fleet a.row").first
    for _ in range(40):
        page.keyboard.press("Tab")
        if row.evaluate("(one) => one === document.activeElement"):
            break
    expect(row).to_be_focused()
    assert "dashed" not in row.evaluate("(one) => getComputedStyle(one.closest('tr')).outlineStyle")
    assert row.evaluate("(one) => getComputedStyle(one.closest('tr')).outlineStyle") == "solid"
    page.keyboard.press("Enter")
    expect(page.locator("#page-gpu h1")).to_have_text("GPU 0")
    assert "/gpu/0" in page.url


def test_states_bars_and_what_is_chosen_are_seen_with_colors_of_the_system(browser: Browser, simulated: str) -> None:
    with visit(browser, simulated, forced_colors="active") as visitor:
        page = visitor.open("#/fleet")
        drawn_by_color = page.locator("#page-fleet tbody :is(.state, .bar)")
        expect(drawn_by_color.first).to_be_attached()
        adjusts = "(all) => all.map((one) => getComputedStyle(one).forcedColorAdjust)"
        assert set(drawn_by_color.evaluate_all(adjusts)) == {"none"}
        background = "(one) => getComputedStyle(one).backgroundColor"
        for chosen, other in (
            ("[aria-current=page]", ".tabs a:not([aria-current])"),
            ("#page-fleet [aria-pressed=true]", "#page-fleet [aria-pressed=false]"),
        ):
            assert page.locator(chosen).first.evaluate(background) != page.locator(other).first.evaluate(background)
        colors = page.evaluate("['p0', 'p1', 'acc', 'bad'].map((role) => gpumon.theme.theme.color(role))")
        assert len(set(colors)) == 4, "lines of charts keep their colors"


def test_a_browser_without_the_token_sees_a_page_that_says_what_to_do(browser: Browser, simulated: str) -> None:
    with visit(browser, simulated.partition("?")[0], strict=False) as visitor:
        visitor.page.goto(visitor.link)
        expect(visitor.page.get_by_role("heading")).to_have_text("Token required")


def test_a_recording_of_a_real_training_is_shown_and_labeled(
    browser: Browser, recordings: Path, tmp_path: Path
) -> None:
    source = f"replay:{recordings / 'h100x8-llama3-8b-ckpt100.csv.gz'}"
    with web("--source", source, env=own_places(tmp_path)) as link, visit(browser, link) as visitor:
        page = visitor.open("#/fleet")
        expect(page.locator("#label")).to_contain_text("REPLAY")
        expect(page.locator("#page-fleet tbody tr")).not_to_have_count(0)
        page = visitor.open("#/gpu/0?window=all")
        expect(page.locator("#page-gpu .plot[data-drawn]")).to_be_visible()
        expect(page.locator("#page-gpu")).to_contain_text("has no process data")
        visitor.open("#/runs")
        expect(page.locator("#page-runs")).to_contain_text("This recording has no data about runs.")
        expect(page.locator("#page-runs")).not_to_contain_text("No runs yet")
        expect(page.locator("#page-runs .picked")).to_have_text("")
