"""The page of a cluster in Chromium: what has room, and what gives way to names of any length."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import product
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from gpumon.cluster.client import PrometheusSeries
from gpumon_web.cluster.node_map import labels
from tests.web.clustered import PRICES, Cluster, TableEngine, cluster, row
from tests.web.conftest import Visitor, visit
from tests.web.served import on_server

WIDE = (1440, 1240, 1101, 1100, 1024, 900)
"""Windows in which users have all their columns, on both sides of where the page changes its columns."""
LONG = "node-with-a-long-name-" * 9 + "ab"


def renamed(answers: dict[str, list[PrometheusSeries]], before: str, after: str) -> dict[str, list[PrometheusSeries]]:
    """Answers in which a node has another name."""

    def of(one: PrometheusSeries) -> PrometheusSeries:
        is_it = one.labels.get("instance") == before
        return replace(one, labels={**one.labels, "instance": after}) if is_it else one

    return {name: [of(one) for one in rows] for name, rows in answers.items()}


@contextmanager
def opened(
    browser: Browser, answers: dict[str, list[PrometheusSeries]], width: int, place: str = "#/"
) -> Iterator[Page]:
    served = Cluster(TableEngine(answers), prices=PRICES).after(0.0)
    kind, _, name = place.removeprefix("#/").partition("/")
    if name:  # it is asked for once somebody looks
        served.page(kind, id=name)
        served.after(15.0)
    options: dict[str, Any] = {"viewport": {"width": width, "height": 900}}
    with on_server(served) as port, visit(browser, f"http://127.0.0.1:{port}/", **options) as visitor:
        page = visitor.open(place)
        expect(page.locator(".page:not([hidden]) tbody tr").first).to_be_visible()
        yield page


@pytest.fixture(scope="module")
def visitor(browser: Browser) -> Iterator[Visitor]:
    """A viewer of three nodes, whose pages have been asked for."""
    served = Cluster(TableEngine(cluster(3)), prices=PRICES).after(0.0)
    for kind, name in (("node", "gn001"), ("person", "ada"), ("person", "bob")):
        served.page(kind, id=name)
    served.after(15.0)
    with on_server(served) as port, visit(browser, f"http://127.0.0.1:{port}/") as found:
        yield found


def look(visitor: Visitor, width: int, place: str = "#/") -> Page:
    """Open a page in a window of this width."""
    visitor.page.set_viewport_size({"width": width, "height": 900})
    page = visitor.open(place)
    expect(page.locator(".page:not([hidden]) tbody tr").first).to_be_visible()
    return page


def at(page: Page, width: int) -> Page:
    """The same page in a window of another width."""
    page.set_viewport_size({"width": width, "height": 900})
    return page


def test_users_with_all_costs_fit_their_card(visitor: Visitor) -> None:
    beyond = (
        "table => { const box = table.closest('.card').getBoundingClientRect(); return [...table.querySelectorAll"
        "('th, td')].filter((one) => one.getBoundingClientRect().right > box.right + 0.5).length; }"
    )
    page = look(visitor, 1440)
    expect(page.locator(".page:not([hidden]) table.people thead")).to_contain_text("CO₂")
    found = {width: at(page, width).locator(".page:not([hidden]) table.people").evaluate(beyond) for width in WIDE}
    assert found == dict.fromkeys(WIDE, 0)


def test_a_long_name_of_a_node_takes_two_lines_of_its_tile_and_no_column_of_others(browser: Browser) -> None:
    with opened(browser, renamed(cluster(3), "gn001", LONG), 1440) as page:
        tile = page.locator(".nodetile").filter(has_text="node-with")
        expect(tile).to_have_attribute("title", LONG)
        assert tile.evaluate("one => one.querySelector('b').getBoundingClientRect().height") < 40
        for table in ("runs", "free_gpus"):
            link = page.locator(f".page:not([hidden]) [data-rows={table}] .name").filter(has_text="node-with").first
            expect(link).to_have_attribute("title", LONG)
            assert link.evaluate("one => one.getBoundingClientRect().width") < 250
            assert page.locator(f".page:not([hidden]) [data-rows={table}] th").last.evaluate(
                "one => one.getBoundingClientRect().right <= one.closest('.card').getBoundingClientRect().right"
            )


def test_names_that_are_no_hosts_are_told_whole() -> None:
    names = ["rack/1/../node?x#y%41", "rack/1/../node?x#y%42", "gn01.lab.example:9835", "gn02"]
    found = labels(names)
    assert [found[name] for name in names[:2]] == names[:2]
    assert found["gn01.lab.example:9835"] == "gn01"


def test_a_phone_shows_the_whole_label_and_users_in_little_height(browser: Browser) -> None:
    answers = cluster(3) | {"unreal": [row(38.0)]}
    with opened(browser, answers, 390) as page:
        label = page.locator("#label")
        expect(label).to_have_text("SIMULATED or REPLAY: 38 nodes")
        assert label.evaluate("one => one.scrollWidth <= one.clientWidth")
        rows = page.locator(".page:not([hidden]) table.people tbody tr")
        assert max(rows.evaluate_all("all => all.map((one) => one.getBoundingClientRect().height)")) < 150
        wide = "all => all.every((one) => one.getBoundingClientRect().right <= innerWidth)"
        assert page.locator(".page:not([hidden]) table.people tbody :is(td, th)").evaluate_all(wide)


def test_on_a_phone_free_gpus_take_two_lines_a_row_and_nothing_is_left_out(visitor: Visitor) -> None:
    page = look(visitor, 390)
    rows = page.locator(".page:not([hidden]) [data-rows=free_gpus] tbody tr")
    assert max(rows.evaluate_all("all => all.map((one) => one.getBoundingClientRect().height)")) < 64
    seen = "all => all.every((one) => { const box = one.getBoundingClientRect(); return box.width > 8 &&"
    seen += " box.left >= 0 && box.right <= innerWidth && one.scrollWidth <= one.clientWidth; })"
    assert rows.locator(":is(td, th)").evaluate_all(seen)


def test_on_a_phone_a_heading_of_two_lines_begins_at_the_left(visitor: Visitor) -> None:
    page = look(visitor, 390, "#/person/bob")
    heading = page.locator(".page:not([hidden]) [data-rows=hours] tbody th").first
    assert heading.evaluate("one => getComputedStyle(one).textAlign") == "left"


IN_SIGHT = """all => all.every((one) => {
  const box = one.getBoundingClientRect();
  return box.width > 4 && box.left >= 0 && box.right <= innerWidth && one.scrollWidth <= one.clientWidth;
})"""
HIGHEST = "all => Math.max(...all.map((one) => one.getBoundingClientRect().height))"


@pytest.mark.parametrize(
    ("place", "table", "height"),
    [("#/node/gn001", "gpus", 116), ("#/person/ada", "runs", 64), ("#/person/bob", "idle_holders", 44),
     ("#/", "runs", 90), ("#/", "idle_holders", 70)],
)  # fmt: skip
def test_on_a_phone_rows_of_gpus_runs_and_holders_are_low_and_nothing_is_left_out(
    visitor: Visitor, place: str, table: str, height: float
) -> None:
    page = look(visitor, 390, place)
    rows = page.locator(f".page:not([hidden]) [data-rows={table}] tbody tr")
    expect(rows.first).to_be_visible()
    assert 0 < rows.evaluate_all(HIGHEST) <= height
    assert rows.locator(":is(td, th):visible").evaluate_all(IN_SIGHT)
    assert rows.locator(".tag").evaluate_all("all => all.every((one) => one.scrollWidth <= one.clientWidth)")


@pytest.mark.parametrize(
    ("place", "table", "words"), [("#/person/ada", "hours", "CO₂"), ("#/node/gn001", "gpus", "Temperature")]
)
def test_hours_of_a_user_and_gpus_of_a_node_fit_every_window(
    visitor: Visitor, place: str, table: str, words: str
) -> None:
    fits = "one => one.closest('.tablebox').scrollWidth <= one.closest('.tablebox').clientWidth"
    whole = "all => all.every((one) => one.getBoundingClientRect().width > 4 && one.scrollWidth <= one.clientWidth)"
    page = look(visitor, 1440, place)
    found = page.locator(f".page:not([hidden]) [data-rows={table}]")
    last = found.locator("tbody tr").first.locator(f"[data-label='{words}']")
    for width in (400, 561, 768, 860, *sorted(WIDE)):
        at(page, width)
        assert found.evaluate(fits), width
        assert found.locator("tbody :is(td, th):visible").evaluate_all(whole), width
        expect(last).to_be_visible()
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), width


def test_on_the_page_of_a_user_no_row_names_them(visitor: Visitor) -> None:
    page = look(visitor, 1440, "#/person/bob")
    for table in ("runs", "idle_holders"):
        expect(page.locator(f"#page-person [data-rows={table}] thead")).not_to_contain_text("User")


def test_what_is_wrong_with_a_node_stands_apart_from_its_gpus(visitor: Visitor) -> None:
    page = look(visitor, 1440, "#/node/gn001")
    expect(page.locator("#page-node .look li").first).to_be_visible()
    apart = page.evaluate(
        "document.querySelector('#page-node .card').getBoundingClientRect().top"
        " - document.querySelector('#page-node .look').getBoundingClientRect().bottom"
    )
    assert apart >= 10


def test_the_ends_of_long_names_of_users_stay_in_sight(browser: Browser) -> None:
    names = [f"institute-of-bioinformatics-shared-account-{end}" for end in ("alpha", "omega")]
    answers = {name: _by_user(rows, names) for name, rows in cluster(3).items()}
    tables = (("users", names[0]), ("users", names[1]), ("runs", names[0]), ("idle_holders", names[1]))
    with opened(browser, answers, 1440) as page:
        for width, (table, name) in product((1440, 1024, 768, 400), tables):
            rows = at(page, width).locator(f".page:not([hidden]) [data-rows={table}]")
            expect(rows.locator(".person").filter(has_text=name).first).to_have_attribute("title", name)
            # Read at once: a resize may replace the rows at any time.
            content, is_whole = rows.evaluate(
                "(rows, name) => { const cell = [...rows.querySelectorAll('.person')].find((cell) => cell.textContent"
                ".includes(name)); const text = cell.firstChild; const right = cell.getBoundingClientRect().right;"
                "return [getComputedStyle(text, '::after').content, text.scrollWidth <= text.clientWidth"
                " && cell.scrollWidth <= cell.clientWidth"
                " && right <= cell.closest('th, td').getBoundingClientRect().right + 0.5]; }",
                name,
            )
            assert content.startswith(f'"{name[-9:]}'), width
            assert is_whole, (width, table)


def _by_user(rows: list[PrometheusSeries], names: list[str]) -> list[PrometheusSeries]:
    """Rows in which the first two users have these names."""
    renamed = dict(zip(("ada", "bob"), names, strict=True))
    return [
        replace(row, labels={**row.labels, "user": renamed.get(row.labels["user"], row.labels["user"])})
        if "user" in row.labels else row
        for row in rows
    ]  # fmt: skip


@pytest.mark.parametrize("width", [768, 400])
def test_nothing_covers_the_foot_where_there_is_one_page_to_go_to(visitor: Visitor, width: int) -> None:
    page = look(visitor, width)
    expect(page.locator(".tabs")).to_be_hidden()


def test_a_tablet_shows_the_names_in_the_head_whole_and_free_gpus_as_a_table(browser: Browser) -> None:
    answers = cluster(3) | {"unreal": [row(38.0)]}
    with opened(browser, answers, 768) as page:
        for name in ("#label", "#hostname"):
            assert page.locator(name).evaluate("one => one.scrollWidth <= one.clientWidth")
        rows = page.locator(".page:not([hidden]) [data-rows=free_gpus] tbody tr")
        assert max(rows.evaluate_all("all => all.map((one) => one.getBoundingClientRect().height)")) < 50
        tops = page.locator(".headline").evaluate_all("all => all.map((one) => one.getBoundingClientRect().top)")
        assert max(tops[:5]) - min(tops[:5]) < 3
