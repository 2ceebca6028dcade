"""Explore: the figure of a chart in Plotly, in a dialog over the page."""

from __future__ import annotations

import gzip
import sqlite3
import threading
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from gpumon.model.frame import RunState
from gpumon_web.http import headers
from tests.builders import device, process, run, sample, tick
from tests.programs import until
from tests.runs import BEGAN, Book, training
from tests.web.conftest import PATIENCE_MS, on_a_port, visit
from tests.web.served import Served

expect.set_options(timeout=PATIENCE_MS)

RUN = "net-1a2b"
_FIGURE = """() => { const {data, layout} = document.querySelector("dialog .explored");
  const lines = data.map(({name, y, x, line}) => ({name, y: [...y], x: [...x], color: line && line.color}));
  return {data: lines, layout}; }"""


def ledger(directory: Path, **options: Any) -> str:
    with Book(directory) as book:
        training(book, RUN, 5, **options)
        return str(book.path)


def gpu_in_use(ledgers: tuple[str, ...] = ()) -> Served:
    """A GPU that two users held one after the other, with a gap in between."""
    going = run("tag.1000.1.a", id="now-5e6f", name="now", state=RunState.RUNNING, gpus=(device(0).uuid,))
    ticks = [
        tick(n, [sample(0, utilization=n / 100, run=going.key)], [process(1, 0)], [going])
        for n in (*range(1, 20), *range(40, 60))
    ]
    return Served(ticks, ledgers)


def explore(page: Page) -> Any:
    """Open the figure of the chart of the page; gives what it draws."""
    expect(page.locator("main .page:not([hidden]) .plot[data-drawn]").first).to_be_visible()
    page.get_by_role("button", name="Explore").click()
    expect(page.locator("dialog .main-svg").first).to_be_visible()
    return page.evaluate(_FIGURE)


class TestRoute:
    def test_gpu_has_the_points_of_the_chart(self) -> None:
        served = gpu_in_use()
        address = f"/api/gpu?gpu={device(0).uuid}&panels=gpu.utilization"
        chart, figure = served.json(address)["chart"], served.json(f"{address}&as=figure")["figure"]
        known = [value for value in chart["panels"][0]["lines"][0]["mean"] if value is not None]
        (line,) = [trace for trace in figure["data"] if trace["name"] == "Utilization"]
        assert [value for value in line["y"] if value is not None] == [pytest.approx(100 * value) for value in known]
        assert None in line["y"], "no line across the gap"
        assert any(shape["type"] == "rect" for shape in figure["layout"]["shapes"])

    def test_run_has_the_chosen_panels_and_time(self, tmp_path: Path) -> None:
        served = Served([tick(1)], [ledger(tmp_path)])
        chart = served.json(f"/api/kept?page=run&id={RUN}")["figures"]["course"]
        address = f"/{chart['figure']}&panels=logged.loss,gpu.power&from={BEGAN + 10}&to={BEGAN + 20}"
        layout = served.json(address)["figure"]["layout"]
        assert layout["xaxis"]["range"] == [(BEGAN + 10) * 1000, (BEGAN + 20) * 1000]
        assert "yaxis2" in layout
        assert "yaxis3" not in layout
        assert layout["meta"]["logged"] == ["yaxis"]

    def test_unknown_run_is_not_found(self, tmp_path: Path) -> None:
        served = Served([tick(1)], [ledger(tmp_path)])
        assert served.client().get("/api/run/zoom?id=nope&gpu=&as=figure").status_code == 404

    def test_run_without_gpus(self, tmp_path: Path) -> None:
        with Book(tmp_path) as book:
            key = book.rank(book.run(RUN))
            book.epoch(key, 0, metrics='{"loss": 2.0}')
            book.epoch(key, 1, metrics='{"loss": 1.0}')
            path = str(book.path)
        chart = Served([tick(1)], [path]).json(f"/api/kept?page=run&id={RUN}")["figures"]["course"]
        figure = Served([tick(1)], [path]).json(f"/{chart['figure']}")["figure"]
        assert [2.0, 1.0] in [trace["y"] for trace in figure["data"]]


class TestDialog:
    def test_gpu(self, browser: Browser) -> None:
        with on_a_port(gpu_in_use()) as link, visit(browser, link) as visitor:
            page = visitor.open("#/gpu/0")
            figure = explore(page)
            (line,) = [trace for trace in figure["data"] if trace["name"] == "Utilization"]
            assert line["color"].startswith("rgb(")
            page.locator("#theme").evaluate("(button) => button.click()")
            until(lambda: page.evaluate(_FIGURE)["data"][0]["color"] != figure["data"][0]["color"])
            page.keyboard.press("Escape")
            expect(page.locator("dialog")).to_have_count(0)

    def test_run(self, browser: Browser, tmp_path: Path) -> None:
        with on_a_port(Served([tick(1)], [ledger(tmp_path)])) as link, visit(browser, link, strict=False) as visitor:
            page = visitor.open(f"#/run/{RUN}")
            explore(page)
            page.get_by_role("button", name="Log", exact=True).click()
            until(lambda: page.evaluate(_FIGURE)["layout"]["yaxis"].get("type") == "log")
            page.locator("dialog [role=group]").focus()
            page.keyboard.press("ArrowRight")
            expect(page.locator("dialog [role=status]")).to_contain_text("loss")
            with page.expect_download() as saved:
                page.get_by_role("button", name="PNG").click()
            assert Path(saved.value.path()).read_bytes().startswith(b"\x89PNG")
            visitor.check()
            page.set_viewport_size({"width": 400, "height": 800})
            visitor.open(f"#/run/{RUN}")
            page.locator("#page-run .files > .button").click()
            page.locator("#page-run .files").get_by_role("button", name="Explore").click()
            expect(page.locator("dialog .main-svg").first).to_be_visible()
            assert page.evaluate("document.querySelector('dialog').scrollWidth") <= 400
            page.keyboard.press("Escape")
            page.set_viewport_size({"width": 1440, "height": 900})
            page.route("**/api/run/zoom*", lambda route: route.abort())
            page.get_by_role("button", name="Explore").click()
            expect(page.locator("dialog .empty")).to_contain_text("cannot be loaded")

    def test_times_are_the_viewers(self, browser: Browser, tmp_path: Path) -> None:
        figure = Served([tick(1)], [ledger(tmp_path)])
        with on_a_port(figure) as link, visit(browser, link, timezone_id="Asia/Kolkata") as visitor:
            begin = explore(visitor.open(f"#/run/{RUN}"))["data"][0]["x"][0]
        chart = figure.json(f"/api/kept?page=run&id={RUN}")["figures"]["course"]
        utc = figure.json(f"/{chart['figure']}")["figure"]["data"][0]["x"][0]
        assert begin - utc == 5.5 * 3600 * 1000

    def test_hostile_names_are_text(self, browser: Browser, tmp_path: Path) -> None:
        hostile = "<img src=x onerror=window.hit=1>%{y}"
        path = ledger(tmp_path)
        with closing(sqlite3.connect(path)) as db, db:
            db.execute("UPDATE run SET name = ?", (hostile,))
            db.execute("UPDATE epoch SET metrics = ?", (f'{{"{hostile}": 0.5}}',))
            db.execute("DELETE FROM trace WHERE uuid = ''")
        with on_a_port(Served([tick(1)], [path])) as link, visit(browser, link) as visitor:
            page = visitor.open(f"#/run/{RUN}")
            explore(page)
            page.locator("dialog .nsewdrag").first.hover()
            page.wait_for_timeout(300)
            assert page.evaluate("window.hit") is None
            assert page.locator("dialog img").count() == 0


def test_plotly_is_compressed_beside_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[str] = []

    def compress(body: bytes, level: int) -> bytes:
        threads.append(threading.current_thread().name)
        return gzip.compress(body, level)

    monkeypatch.setattr(headers, "gzip", SimpleNamespace(compress=compress))
    client = Served([tick(1)]).client()
    for _ in range(2):
        address = "/_dash-component-suites/plotly/package_data/plotly.min.js"
        answer = client.get(address, headers={"Accept-Encoding": "gzip"})
        assert answer.headers["Content-Encoding"] == "gzip"
        assert b"plotly.js" in gzip.decompress(answer.data)[:200]
    assert len(threads) == 1
    assert threads[0] != "apps"
