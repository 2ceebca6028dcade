"""First screens: nothing is cut at the edge of a card or covers another value, and what people ask stands first."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Route, expect

from gpumon.model.metrics import HOST_METRICS
from tests.builders import sample, tick
from tests.programs import until
from tests.web.conftest import DESK, PATIENCE_MS, Visitor, on_a_port, visit
from tests.web.served import Served
from tests.web.sources import Opened
from tests.web.states import lab, lab_served

expect.set_options(timeout=PATIENCE_MS)
SHOWN = "main .page:not([hidden])"
CUT = f"""() => [...document.querySelectorAll('{SHOWN} .tablebox')]
  .filter((box) => box.checkVisibility() && box.scrollWidth > box.clientWidth + 1)
  .map((box) => box.textContent.slice(0, 60))"""
COVERED = f"""() => [...document.querySelectorAll('{SHOWN} .gutter')].filter((one) => {{
  const [name, value] = ['.what', '.value'].map((part) => one.querySelector(part).getBoundingClientRect());
  return name.right > value.left + 1 || value.height > 32;
}}).map((one) => one.textContent)"""

REST = """(one) => {
  const { data } = one.getContext('2d').getImageData(0, Math.floor(one.height / 2), one.width, 1);
  let last = one.width - 1;
  while (last >= 0 && data[4 * last + 3] < 255) { last -= 1; }
  return 1 - (last + 1) / one.width;
}"""
"""The share of a strip behind the last pixel that somebody used."""


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Opened]:
    with lab(tmp_path_factory.mktemp("lab")) as found:
        yield found


@pytest.fixture(scope="module")
def _visitor(browser: Browser, opened: Opened) -> Iterator[Visitor]:
    with visit(browser, opened.link) as visitor:
        yield visitor


@pytest.fixture
def visitor(_visitor: Visitor) -> Iterator[Visitor]:
    """A viewer of the lab whom tests share."""
    _visitor.page.set_viewport_size(DESK)
    yield _visitor
    _visitor.page.unroute_all()
    _visitor.check()


def test_no_table_is_cut_on_a_small_desk(visitor: Visitor, opened: Opened) -> None:
    visitor.page.set_viewport_size({"width": 1024, "height": 768})
    for page in ("runs", "run", "users", "events"):
        shown = visitor.open(opened.places[page])
        expect(shown.locator(f"#page-{page}:not([hidden]) tbody tr").first).to_be_visible()
        assert shown.evaluate(CUT) == [], page


def test_columns_of_epochs_leave_before_the_verdict_is_cut(viewer: Visitor) -> None:
    viewer.page.set_viewport_size({"width": 880, "height": 768})
    shown = viewer.open("#/run/sim-0-0")
    expect(shown.locator(f"{SHOWN} table.epochs tbody tr").first).to_be_visible()
    for width in (880, 1024, 1200):
        shown.set_viewport_size({"width": width, "height": 768})
        expect(shown.locator(f"{SHOWN} table.epochs")).to_have_attribute("data-less", re.compile("^1"))
        assert shown.evaluate(CUT) == [], width
        expect(shown.locator(f"{SHOWN} table.epochs th.c-verdict")).to_be_visible()
        shown.set_viewport_size({"width": 1440, "height": 900})
        expect(shown.locator(f"{SHOWN} table.epochs th.c-less:not([hidden])").first).to_be_visible()
        assert shown.evaluate(CUT) == []


def test_the_gpus_of_a_run_are_one_row_of_buttons_on_a_phone(visitor: Visitor, opened: Opened) -> None:
    visitor.page.set_viewport_size({"width": 390, "height": 844})
    shown = visitor.open(opened.places["run"])
    choice = shown.locator(f"{SHOWN} .seg[data-bind=devices]")
    choice.wait_for(state="attached")
    # As of a run on four GPUs.
    tops = choice.evaluate("""(node) => {
      node.closest('[hidden]')?.removeAttribute('hidden');
      const button = (text) => gpumon.dom.make('button', {type: 'button', text});
      node.replaceChildren(...['Mean', 'GPU 0', 'GPU 1', 'GPU 2', 'GPU 3'].map(button));
      return [...new Set([...node.children].map((one) => Math.round(one.getBoundingClientRect().top)))];
    }""")
    assert len(tops) == 1


class TestBeforeScripts:
    def test_page_of_the_address_is_shown(self, browser: Browser, opened: Opened) -> None:
        with visit(browser, opened.link) as visitor:
            page = visitor.page
            held: list[Route] = []
            goes_on = False
            page.route("**/*.js*", lambda route: route.continue_() if goes_on else held.append(route))
            page.goto(visitor.link + opened.places["gpu"], wait_until="commit")
            head = page.locator("header.top")
            expect(head.get_by_role("link")).to_have_text(["gpumon", "Fleet", "GPU", "Runs", "Users", "Events"])
            expect(page.locator(SHOWN)).to_have_attribute("data-page", "gpu")
            expect(page.locator(f"{SHOWN} h1")).to_be_visible()
            assert page.locator(f"{SHOWN} h1").evaluate("(one) => getComputedStyle(one, '::before').height") == "22px"
            before = [page.locator(what).first.bounding_box() for what in ("header.top", f"{SHOWN} h1")]
            goes_on = True
            for one in held:
                one.continue_()
            page.locator("body[data-state=live]").wait_for(state="attached")
            expect(page.locator(f"{SHOWN} h1")).not_to_be_empty()
            after = [page.locator(what).first.bounding_box() for what in ("header.top", f"{SHOWN} h1")]
            for old, new in zip(before, after, strict=True):
                assert old is not None
                assert new is not None
                assert abs(old["y"] - new["y"]) <= 1

    def test_page_is_the_one_that_scripts_show(self, browser: Browser, opened: Opened) -> None:
        with visit(browser, opened.link) as visitor:
            page = visitor.page
            for place, name in (("", "fleet"), ("#/run", "runs"), ("#/run/x", "run"), ('#/"]&<x>', "fleet")):
                page.route("**/scripts.js*", lambda route: route.abort())
                page.goto(visitor.link + place)
                expect(page.locator(SHOWN)).to_have_attribute("data-page", name)
                page.unroute("**/scripts.js*")
                visitor.complaints.clear()
                page.reload()
                page.locator("body[data-state=live]").wait_for(state="attached")
                expect(page.locator(SHOWN)).to_have_attribute("data-page", name)

    def test_page_of_stored_values_has_no_empty_parts(self, browser: Browser, opened: Opened) -> None:
        with visit(browser, opened.link) as visitor:
            visitor.page.route("**/scripts.js*", lambda route: route.abort())
            visitor.page.goto(visitor.link + opened.places["run"])
            expect(visitor.page.locator(SHOWN)).to_have_attribute("data-page", "run")
            expect(visitor.page.locator(f"{SHOWN} [data-show]").locator("visible=true")).to_have_count(0)
            visitor.complaints.clear()

    def test_chosen_theme_is_applied(self, browser: Browser, opened: Opened) -> None:
        with visit(browser, opened.link, color_scheme="dark") as visitor:
            visitor.open("#/fleet").get_by_role("button", name="Switch to light").click()
            visitor.page.route("**/scripts.js*", lambda route: route.abort())
            visitor.page.reload()
            expect(visitor.page.locator("html")).to_have_attribute("data-theme", "light")
            visitor.complaints.clear()


def test_the_tab_says_as_soon_as_the_head_that_nobody_answers(browser: Browser, opened: Opened) -> None:
    with visit(browser, opened.link, strict=False) as visitor:
        page = visitor.open("#/fleet")
        page.route("**/api/delta*", lambda route: route.abort())
        page.locator("body[data-state=reconnecting]").wait_for(state="attached")
        assert page.title().startswith("reconnecting · ")


def test_on_a_phone_names_and_values_of_panels_stand_beside_each_other(visitor: Visitor, opened: Opened) -> None:
    visitor.page.set_viewport_size({"width": 390, "height": 844})
    shown = visitor.open(opened.places["run"])
    expect(shown.locator(f"{SHOWN} .gutter .value:not(:empty)")).to_have_count(4)
    assert shown.evaluate(COVERED) == []


def test_a_gpu_shows_who_held_it_in_the_last_24_hours(visitor: Visitor) -> None:
    shown = visitor.open("#/gpu/0")
    strip = shown.locator(f"{SHOWN} .lastday canvas")
    expect(strip).to_have_attribute("aria-label", re.compile("^GPU 0: alice"))
    shown.get_by_role("navigation", name="GPUs").get_by_role("link", name="GPU 5").click()
    expect(strip).to_have_attribute("aria-label", re.compile("^GPU 5: bob"))
    expect(strip).to_be_visible()


def test_a_phone_shows_the_course_of_a_gpu_that_is_well_before_its_health(visitor: Visitor) -> None:
    visitor.page.set_viewport_size({"width": 390, "height": 844})
    shown = visitor.open("#/gpu/0")
    expect(shown.locator(f"{SHOWN} .checks li")).to_have_count(5)
    tops = [
        shown.get_by_role("region", name=name).first.evaluate("one => one.getBoundingClientRect().top")
        for name in ("Who is on it", "Course", "Health", "Processes")
    ]
    assert tops == sorted(tops)


def test_a_strip_of_what_is_over_is_drawn_up_to_now(visitor: Visitor) -> None:
    strip = visitor.open("#/gpu/0").locator(f"{SHOWN} .lastday canvas")
    expect(strip).to_be_visible()
    rest = strip.evaluate(REST)
    assert 0 <= rest * 24 < 0.25, "its last tick is some minutes old"


def test_the_tools_of_a_chart_are_two_rows_on_a_phone(visitor: Visitor, opened: Opened) -> None:
    visitor.page.set_viewport_size({"width": 400, "height": 860})
    page = visitor.open(opened.places["gpu"])
    head = page.locator("#page-gpu .cardhead:has(.tools)")
    head.locator(".panels").wait_for()
    middle = "(node) => { const box = node.getBoundingClientRect(); return (box.top + box.bottom) / 2; }"
    rows = {round(head.locator(part).evaluate(middle) / 12) for part in (".seg", ".tools", ".panels", ".files")}
    assert len(rows) == 2
    expect(head.locator(".files > .button")).to_contain_text("Download")


def test_a_machine_of_one_gpu_has_the_page_of_that_one_with_the_host_and_no_tab_of_a_fleet(browser: Browser) -> None:
    host = [{"host.cpu_utilization": 0.23}.get(metric.name, 0.0) for metric in HOST_METRICS]
    served = Served([tick(n, [sample(0, utilization=0.5)], host=host) for n in (1, 2)], devices=1)
    with on_a_port(served) as link, visit(browser, link) as visitor:
        page = visitor.open("")
        expect(page.locator("#page-gpu h1")).to_have_text("GPU 0")
        expect(page.locator("#page-gpu .hostline")).to_contain_text("CPU 23 %")
        expect(page.locator("#tab-fleet")).to_be_hidden()
        expect(page.locator(".brand")).to_have_attribute("href", "#/gpu/0")
        page.goto(visitor.link + "#/fleet")
        expect(page.locator("#page-fleet")).to_be_visible()
        expect(page.locator("#tab-fleet")).to_be_visible()


def test_the_page_of_a_gpu_has_veils_in_the_shape_of_what_comes(visitor: Visitor, opened: Opened) -> None:
    page = visitor.page
    page.route("**/api/delta*", lambda route: None)
    page.goto(visitor.link + opened.places["gpu"])
    for part in ("h1", ".holding", ".checks", "[data-bind=memory_bar]"):
        veil = "(node) => [getComputedStyle(node, '::before').content, node.getBoundingClientRect().height]"
        content, tall = page.locator(f"#page-gpu {part}").evaluate(veil)
        assert (content, tall > 10) == ('""', True), part
    expect(page.locator("#page-gpu .hostline")).to_be_hidden()
    page.unroute("**/api/delta*")


def test_a_phone_shows_free_gpus_first_and_a_desk_those_of_few_in_their_order(visitor: Visitor) -> None:
    visitor.page.set_viewport_size({"width": 390, "height": 844})
    shown = visitor.open("#/fleet")
    first = shown.locator(f"{SHOWN} table.fleet tbody tr").first
    expect(first).to_contain_text("free for")
    expect(shown.get_by_role("button", name="Free first", pressed=True)).to_be_visible()
    shown.get_by_role("group", name="Order").get_by_role("button", name="GPU").click()
    expect(first).not_to_contain_text("free for")
    shown = visitor.open("#/fleet")
    shown.set_viewport_size({"width": 1440, "height": 900})
    expect(first).not_to_contain_text("free for")


BESIDE = f"""() => ['.search', '.csv'].map((part) => [...document.querySelectorAll('{SHOWN} .toolbar ' + part)]
  .map((one) => one.getBoundingClientRect()).map(({{top, bottom}}) => Math.round((top + bottom) / 2)))"""


def test_a_button_that_saves_rows_is_never_in_a_row_of_its_own(visitor: Visitor) -> None:
    for page in ("#/fleet", "#/events"):
        shown = visitor.open(page)
        expect(shown.locator(f"{SHOWN} .csv").first).to_be_visible()
        for width in (400, 600, 720, 768, 900, 1024, 1440):
            shown.set_viewport_size({"width": width, "height": 900})
            field, button = shown.evaluate(BESIDE)
            assert len(field) == len(button) == 1
            assert abs(field[0] - button[0]) <= 2, (page, width)


def test_the_name_of_the_server_stays_beside_the_word_that_it_is_simulated(viewer: Visitor) -> None:
    inside = "(one) => one.scrollWidth <= one.clientWidth && one.scrollHeight <= 54"
    viewer.page.set_viewport_size({"width": 360, "height": 900})
    shown = viewer.open("#/fleet")
    for width in (360, 400, 480, 600, 768):
        shown.set_viewport_size({"width": width, "height": 900})
        for part in ("#hostname", "#label"):
            expect(shown.locator(part)).to_be_visible()
            assert shown.locator(part).evaluate("(one) => one.scrollWidth <= one.clientWidth"), (part, width)
        assert shown.locator(".top").evaluate(inside), width


def test_a_run_takes_four_lines_on_a_phone(visitor: Visitor) -> None:
    visitor.page.set_viewport_size({"width": 400, "height": 844})
    shown = visitor.open("#/runs")
    rows = shown.locator(f"{SHOWN} table.runs tbody tr")
    expect(rows.first).to_be_visible()
    assert max(rows.evaluate_all("(all) => all.map((one) => one.getBoundingClientRect().height)")) < 130
    cut = "(all) => all.filter((one) => one.scrollWidth > one.clientWidth + 1).map((one) => one.textContent)"
    assert shown.locator(f"{SHOWN} table.runs tbody :is(td, th)").evaluate_all(cut) == []


def test_on_a_phone_the_hours_of_a_user_have_their_title(visitor: Visitor, opened: Opened) -> None:
    visitor.page.set_viewport_size({"width": 400, "height": 800})
    page = visitor.open(opened.places["users"])
    cell = page.locator("table.users td.c-held").first
    expect(cell.locator(".number")).to_be_visible()
    assert cell.evaluate("(one) => getComputedStyle(one, '::before').content") == '"GPU-hours"'
    bar, number = (cell.locator(one).bounding_box() for one in (".bar", ".number"))
    assert bar is not None
    assert number is not None
    assert bar["x"] + bar["width"] <= number["x"], "beside each other"
    assert number["x"] + number["width"] <= 400


def test_the_last_24_hours_of_a_gpu_are_24_hours(tmp_path: Path) -> None:
    served = lab_served(tmp_path)
    served.now += 25 * 60  # within an hour
    strips = served.json("/api/kept?page=fleet")["values"]["day"].values()
    assert {(one["slots"], one["until"]) for one in strips} == {(24, 1)}
    begin = served.now - 24 * 3600
    assert {round(one["shift"], 3) for one in strips} == {round(-begin % 3600 / 3600, 3)}
    assert all(part[0] >= -1 for one in strips for part in one["parts"])


def test_the_key_of_strips_has_the_color_of_nobody(visitor: Visitor, opened: Opened) -> None:
    color = "(one) => getComputedStyle(one).backgroundColor"
    for page, place in (("fleet", ".toolbar .key"), ("users", ".cardhead .key")):
        shown = visitor.open(opened.places[page])
        used = shown.locator(f"{SHOWN} {place} .k-used")
        expect(used).to_be_visible()
        people = shown.locator(f"{SHOWN} tbody .person").evaluate_all(
            "(all) => all.map((one) => getComputedStyle(one, '::before').backgroundColor)"
        )
        assert people
        assert used.evaluate(color) not in people
        muted = shown.evaluate("getComputedStyle(document.querySelector('main .mut')).color")
        assert used.evaluate(color) == muted


def test_what_stands_beside_each_other_in_a_toolbar_has_one_height(visitor: Visitor, opened: Opened) -> None:
    """But for buttons that take two rows."""
    tall = f"""() => [...document.querySelectorAll('{SHOWN} :is(.toolbar, .cardhead, .head)')].map((bar) => new Set(
      [...bar.querySelectorAll(':is(.seg, .button, .pick, .search, .turns, .tools)')]
        .filter((one) => one.checkVisibility() && one.offsetHeight < 60).map((one) => one.offsetHeight)).size)"""
    for page, place in opened.places.items():
        shown = visitor.open(place)
        expect(shown.locator(f"{SHOWN} :is(.seg, .search, .csv) >> visible=true").first).to_be_visible()
        for width in (1440, 400):
            shown.set_viewport_size({"width": width, "height": 900})
            assert max(shown.evaluate(tall)) == 1, (page, width)


def test_on_a_phone_strips_and_small_charts_of_the_fleet_have_their_titles(visitor: Visitor, opened: Opened) -> None:
    title = "(cell) => getComputedStyle(cell, '::before').content"
    visitor.page.set_viewport_size({"width": 400, "height": 800})
    row = visitor.open(opened.places["fleet"]).locator("table.fleet tbody tr:not(.child)").first
    expect(row.locator(".c-day canvas")).to_be_visible()
    assert row.locator(".c-day").evaluate(title) == '"Last 24 hours"'
    assert row.locator(".c-spark").evaluate(title) == '"Utilization, 10 min"'
    expect(visitor.page.locator("#page-fleet .toolbar .key")).to_be_visible()


@pytest.mark.parametrize("width", [1440, 400, 360])
def test_beside_a_line_of_each_gpu_its_name_stands_whole(viewer: Visitor, width: int) -> None:
    lies = """(all) => all.flatMap((one) => [...one.querySelectorAll(".each > span")].map((row) => {
      const [outer, inner] = [one, row].map((each) => each.getBoundingClientRect());
      return [row.innerText.replace(/\\s+/g, " ").trim().split(" ").slice(0, 2).join(" "),
        inner.bottom <= outer.bottom + 1 && inner.right <= outer.right + 1];
    }))"""
    viewer.page.set_viewport_size({"width": width, "height": 800})
    shown = viewer.open("#/run/sim-0-0?gpu=each")
    lists = shown.locator(f"{SHOWN} .gutter.lists")
    expect(lists).to_have_count(3)
    found = lists.evaluate_all(lies)
    assert found == [[f"GPU {number}", True] for number in range(4)] * 3


def test_that_values_are_simulated_and_a_verdict_are_whole_on_every_width(viewer: Visitor) -> None:
    whole = "all => all.every((one) => one.scrollWidth <= one.clientWidth && one.getBoundingClientRect().width > 20)"
    viewer.page.set_viewport_size({"width": 861, "height": 768})
    shown = viewer.open("#/run/sim-1-0")
    verdicts = shown.locator(f"{SHOWN} table.epochs .c-verdict .tag", has_text="waits for data")
    expect(verdicts.first).to_be_attached()
    for width in (1440, 961, 960, 861, 860, 768, 561, 400, 360):
        shown.set_viewport_size({"width": width, "height": 768})
        expect(shown.locator(".label .name")).to_have_text("SIMULATED")
        assert shown.locator(".label .name").evaluate_all(whole), width
        until(lambda: verdicts.evaluate_all(whole))  # columns leave in the next frame
        # As cards, epochs would leave most of a tablet empty.
        expect(shown.locator(f"{SHOWN} table.epochs")).to_have_css("display", "table" if width > 560 else "block")


def test_without_scripts_the_page_says_so_and_promises_nothing(browser: Browser) -> None:
    with on_a_port(Served([tick(1, [sample(0)])])) as link:
        context = browser.new_context(java_script_enabled=False)
        try:
            page = context.new_page()
            page.goto(link)
            expect(page.locator("noscript .problem")).to_be_visible()
            expect(page.locator("main, .live, .top button").locator("visible=true")).to_have_count(0)
        finally:
            context.close()
