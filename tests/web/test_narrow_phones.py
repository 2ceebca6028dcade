"""Phones of 320 and 400 px: no number, unit or word is cut at the edge of its cell, and none lies on its label."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from gpumon.common.clock import SECOND
from gpumon.model.frame import RunState
from tests.builders import TIME, process, run, sample, tick
from tests.runs import Book, training
from tests.web.conftest import PATIENCE_MS, Visitor, on_a_port, visit
from tests.web.served import Served

expect.set_options(timeout=PATIENCE_MS)
GIB = 2.0**30
VALUES = {"utilization": 0.5, "memory_used": 12 * GIB, "memory_total": 80 * GIB, "power": 477.0, "power_limit": 630.0,
          "temperature": 44.0}  # fmt: skip
NAME = "long-name-of-a-training-that-somebody-gave-to-it"
SHOWN = "main .page:not([hidden])"
CUT = f"""() => {{
  const isWide = (one) => one.scrollWidth > one.clientWidth + 1;
  const isCut = (one) => {{
    const {{ display, textOverflow }} = getComputedStyle(one);
    return isWide(one) && textOverflow !== 'ellipsis' && display !== 'inline';
  }};
  return [...document.querySelectorAll('{SHOWN} table.stack td')]
    .filter((cell) => cell.checkVisibility() && (isWide(cell) || [...cell.children].some(isCut)))
    .map((cell) => `${{cell.dataset.label}}: ${{cell.textContent}}`);
}}"""
BARE = f"""() => [...document.querySelectorAll('{SHOWN} :is(td, tbody th) > :is(a, div)')].filter((one) => {{
  const {{ overflowX, textOverflow }} = getComputedStyle(one);
  const isWide = one.checkVisibility() && one.scrollWidth > one.clientWidth + 1;
  return isWide && overflowX === 'hidden' && textOverflow !== 'ellipsis';
}}).map((one) => one.textContent)"""


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    with Book(tmp_path) as book:
        training(book, "net-1a2b", 3)
        book.db.execute("UPDATE run SET name = ?", (NAME,))
        goes = run(id="live-1a2b", name=NAME, epoch=8, epochs=500, started=TIME / SECOND - 600, state=RunState.RUNNING)
        held = [process(pid=20416, started=TIME / SECOND - 600, run=goes.key)]
        yield Served([tick(100, [sample(0, **VALUES)], processes=held, runs=[goes])], [str(book.path)], devices=1)


@pytest.mark.parametrize("metric", ["loss", "loss_of_the_validation"])
def test_a_run_that_went_on_when_last_seen_says_so_in_whole_words(
    browser: Browser, tmp_path: Path, metric: str
) -> None:
    with Book(tmp_path) as book:
        id = training(book, "net-1a2b", 3, gpus=2, state=RunState.RUNNING)
        book.db.execute("UPDATE epoch SET ended = NULL WHERE ordinal = 2")
        book.db.execute(f"UPDATE epoch SET metrics = '{{\"{metric}\": 0.0022061}}'")
        goes = run(book.db.execute("SELECT key FROM rank").fetchone()[0], id=id, name="net", epoch=2, epochs=3)
        served = Served([tick(100, [sample(0, **VALUES)], runs=[goes])], [str(book.path)], devices=1)
        served.live.age = 90.0
        with on_a_port(served) as link, visit(browser, link) as visitor:
            for width, page in product((320, 400), ("runs", f"run/{id}")):
                visitor.page.set_viewport_size({"width": width, "height": 850})
                shown = visitor.open(f"#/{page}")
                tag = shown.locator(f"{SHOWN} td .tag", has_text="last seen running")
                expect(tag.first).to_be_visible()
                for one in tag.all():
                    assert one.evaluate("(tag) => tag.scrollWidth <= tag.clientWidth + 1"), page
                assert shown.evaluate(CUT) == [], page


def test_what_a_cell_says_is_whole_live_and_stale(browser: Browser, served: Served) -> None:
    with on_a_port(served) as link, visit(browser, link) as visitor:
        for width, page in product((320, 400), ("gpu/0", "fleet", "runs", "users")):
            served.live.age = 90.0 if width == 320 else 0.0  # more words when stale
            visitor.page.set_viewport_size({"width": width, "height": 850})
            shown = visitor.open(f"#/{page}")
            expect(shown.locator(f"{SHOWN} table.stack tbody tr").first).to_be_visible()
            assert shown.evaluate(CUT) == [], page
            assert shown.evaluate(BARE) == [], page


def test_the_time_left_of_a_run_is_whole_on_a_small_desk(browser: Browser, served: Served) -> None:
    with on_a_port(served) as link, visit(browser, link, viewport={"width": 1024, "height": 768}) as visitor:
        shown = visitor.open("#/fleet")
        expect(shown.locator(f"{SHOWN} .c-who .progress")).to_be_visible()
        left = """(one) => {
          one.style.width = '200px';
          one.firstChild.textContent = 'epoch 139 (140/500)';
          one.append(gpumon.dom.make('span', { text: '46 min left' }));
          return one.scrollWidth <= one.clientWidth + 1;
        }"""
        assert shown.locator(f"{SHOWN} .c-who .progress").evaluate(left)


def test_what_runs_of_a_lab_say_is_whole_on_a_phone(viewer: Visitor) -> None:
    for width in (320, 400, 1024):
        viewer.page.set_viewport_size({"width": width, "height": 850})
        for page in ("fleet", "runs", "gpu/4"):
            shown = viewer.open(f"#/{page}")
            expect(shown.locator(f"{SHOWN} table.stack tbody tr").first).to_be_visible()
            assert shown.evaluate(CUT) == [], (page, width)


@pytest.mark.parametrize("has_tensors", [True, False])
def test_no_number_beside_the_chart_of_a_run_is_cut_on_a_phone(
    browser: Browser, tmp_path: Path, has_tensors: bool
) -> None:
    with Book(tmp_path) as book:
        id = training(book, "net-1a2b", 3)
        if not has_tensors:
            book.db.execute("UPDATE trace SET columns = replace(columns, 'gpu.run_allocated', 'gpu.other')")
        served = Served([tick(100, [sample(0, **VALUES)])], [str(book.path)], devices=1)
    with on_a_port(served) as link, visit(browser, link, viewport={"width": 320, "height": 850}) as visitor:
        shown = visitor.open(f"#/run/{id}")
        told = shown.locator("#page-run .gutter :is(.below, .covers)")
        expect(told.filter(has_text="peak 42.0 GiB")).to_have_count(1)
        expect(told.filter(has_text="thin line: allocated")).to_have_count(int(has_tensors))
        expect(told.filter(has_text="end of epoch")).to_have_count(1)
        for one in told.all():
            assert one.evaluate("(one) => one.scrollWidth <= one.clientWidth + 1"), one.inner_text()
            assert one.evaluate("(one) => one.getBoundingClientRect().right <= innerWidth"), one.inner_text()


def test_values_at_the_pointer_and_the_menu_of_files_are_within_the_screen(viewer: Visitor) -> None:
    outside = """(one) => {
      const { left, right } = one.getBoundingClientRect();
      return left < 0 || right > document.documentElement.clientWidth;
    }"""
    viewer.page.set_viewport_size({"width": 320, "height": 850})
    shown = viewer.open("#/run/sim-0-0?gpu=each")
    expect(shown.locator("#page-run .gutter.lists").first).to_be_visible()
    plot = shown.locator("#page-run .plot")
    for share in (0.1, 0.3, 0.5, 0.7):
        box = plot.bounding_box()
        assert box is not None
        plot.hover(position={"x": share * box["width"], "y": 60})
        told = shown.locator("#page-run .tell")
        expect(told.nth(1)).to_be_visible()
        assert [one.inner_text() for one in told.all() if one.evaluate(outside)] == [], share
    files = shown.locator("#page-run .files")
    files.locator("summary").click()
    expect(files.locator(".menu")).to_be_visible()
    assert not files.locator(".menu").evaluate(outside)


def test_no_number_beside_a_panel_of_several_gpus_is_cut(browser: Browser, tmp_path: Path) -> None:
    with Book(tmp_path) as book:
        training(book, "net-1a2b", 3, gpus=2)
    served = Served([tick(100, [sample(0, **VALUES)])], [str(book.path)])
    with on_a_port(served) as link, visit(browser, link, viewport={"width": 320, "height": 800}) as visitor:
        page = visitor.open("#/run/net-1a2b")
        expect(page.locator("#page-run .gutter .below").first).to_be_visible()
        cut = "(all) => all.filter((one) => one.scrollWidth > one.clientWidth + 1).map((one) => one.textContent)"
        assert page.locator("#page-run .gutter :is(.value, .below)").evaluate_all(cut) == []
