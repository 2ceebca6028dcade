"""The pages as a lab has them open: fifty viewers, a first paint at home and on a slow line, a month, eight runs.

A daemon on the stub driver samples 8 GPUs at 1 Hz; its ledger has eight runs of 500 epochs and its history a month of
the coarsest tier. CPU is the server's, of fifty viewers who ask once a second as the page does. First paint counts from
the navigation to the frame in which the first GPU has a number, in a browser that was nowhere yet; the slow line is
Chromium's own, of 1 Mbit/s and 40 ms. A window counts from the click to the frame after the line that was asked for is
drawn; a comparison from the click on its link to the frame after its courses are. Main thread is Chromium's own
TaskDuration of each page that is left alone.
"""

from __future__ import annotations

import os
import time
from contextlib import ExitStack
from math import nan
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.browser import SIZE, chromium, load, main_thread, missing, until, visitor
from benchmarks.report import Budget, Result, number
from benchmarks.stage import GPUS, Effort, Stage
from benchmarks.usage import Figures, cpu_seconds
from benchmarks.viewers import watch
from benchmarks.web import question, web
from gpumon.storage.history.tiers import SHAPES
from tests.months import fill
from tests.programs import daemon
from tests.runs import Book, training

if TYPE_CHECKING:
    from playwright.sync_api import BrowserContext, Page

VIEWERS = 50
RUNS, EPOCHS = 8, 500
MONTH = 2_678_400
_ROW = '/[0-9]/.test(document.querySelector("#page-fleet tbody .big")?.textContent)'
_ANYTHING = "true"
"""So that the script that waits for a paint ends: else it asks for each frame of a page without such a row, and is
measured with it."""
_PLOT = 'document.querySelector(".page:not([hidden]) .plot")'
_SLOW = {"offline": False, "latency": 40, "downloadThroughput": 1e6 / 8, "uploadThroughput": 1e6 / 8}
"""A line of 1 Mbit/s, as Chromium takes it."""
_SETTLED = 4.0
"""Seconds after which a page has drawn what it has."""
_WATCH = """(reached) => {
  const seen = window.seen = {};
  addEventListener("click", () => { seen.click = performance.now(); }, { capture: true, once: true });
  const look = () => {
    if (seen.click && reachedNow()) { requestAnimationFrame(() => { seen.drawn = performance.now(); }); }
    else { requestAnimationFrame(look); }
  };
  const reachedNow = () => {
    const view = document.querySelector(".page:not([hidden]) .plot")?.gpumonView;
    return view && (reached === "runs" ? view.doc.axis !== "time" : view.range[1] - view.range[0] > reached);
  };
  requestAnimationFrame(look);
}"""


def measure(stage: Stage, effort: Effort) -> Result:
    """Viewers, then paints, windows and comparisons in turn, then each page for a window."""
    result = Result("A lab's pages", ("what", "measured"))
    if why := missing():
        result.notes.append(f"Not measured: {why}.")
        return result
    place = stage.place("lab")
    state = Path(place.env["GPUMON_STATE_DIR"])
    now = time.time() // 300 * 300
    with Book(state) as book:
        ids = [training(book, f"net{at}-1a2b", EPOCHS, seconds=60.0, seed=at, began=now - (RUNS - at) * 1e5)
               for at in range(RUNS)]  # fmt: skip
    fill(str(state / "history.sqlite"), [place.stub.uuid(at) for at in range(GPUS)], now - 3600, _values, [SHAPES[-1]])
    turns = max(3, effort.rounds // 2)
    with ExitStack() as stack:
        stack.enter_context(daemon("--interval", "1", env=place.env))
        pid, port, token = stack.enter_context(web(place))
        browser = stack.enter_context(chromium())
        version = browser.version
        first, again = f"http://127.0.0.1:{port}/?token={token}", f"http://127.0.0.1:{port}/"
        cpu = _viewers(pid, port, token, max(6.0, effort.seconds / 4))
        cold, slow = [], []
        for _ in range(turns + 1):
            with visitor(browser, _ROW) as context:
                cold.append(load(context, first).painted)
        for _ in range(3):
            with visitor(browser, _ROW) as context:
                slow.append(_slow(context, first))
        with visitor(browser, _ROW) as context:
            load(context, first)
            month = [_month(context, again) for _ in range(turns)]
            compared = [_compared(context, again, ids) for _ in range(turns)]
        with visitor(browser, _ANYTHING) as context:
            load(context, first)
            places = {
                "fleet": "#/fleet", "GPU": "#/gpu/0?window=600", "GPU, a month": f"#/gpu/0?window={MONTH}",
                "runs": "#/runs", "run": f"#/run/{ids[0]}",
                "compare": _address(ids), "users": "#/users", "events": "#/events",
            }  # fmt: skip
            busy = {name: _busy(context, again + where, max(6.0, effort.seconds / 6)) for name, where in places.items()}
    result.rows.append((f"CPU of a viewer-second, {VIEWERS} viewers, ms", number(cpu)))
    for what, figures in (
        ("first paint, cold, s", cold[1:]), ("first paint at 1 Mbit/s, s", slow), ("a month, click to line, ms", month),
        (f"{RUNS} runs of {EPOCHS} epochs compared, click to courses, ms", compared),
    ):  # fmt: skip
        found = Figures(figures)
        result.rows.append((what, f"{number(found.median)} (at most {number(max(found.values))})"))
    for name, used in busy.items():
        result.rows.append((f"main thread of {name}, ms/s", number(used)))
    result.budgets += [
        Budget(f"CPU a viewer-second, {VIEWERS} viewers", cpu, 3, " ms"),
        Budget("first paint, cold", Figures(cold[1:]).median, 0.8, " s"),
        Budget("first paint at 1 Mbit/s", Figures(slow).median, 2.5, " s"),
        Budget("a month, from click to line", Figures(month).median, 300, " ms"),
        Budget("eight runs compared", Figures(compared).median / 1000, 1, " s"),
        Budget("main thread of the busiest page, a second", max(busy.values()), 80, " ms"),
    ]
    result.notes.append(f"Chromium {version}, {SIZE['width']}×{SIZE['height']}, {turns} turns.")
    return result


def _values(subject: str, name: str, at: float) -> tuple[float, float, float]:
    value = {"gpu.utilization": at / 3600 % 24 / 24, "gpu.power": 300.0, "gpu.memory_used": 4e10}.get(name, nan)
    return value, value, value


def _viewers(pid: int, port: int, token: str, seconds: float) -> float:
    """CPU of the server, ms for each viewer and second."""
    used, begun = cpu_seconds(pid), time.monotonic()
    watch(port, VIEWERS, seconds, lambda last: question(port, token, last))
    return (cpu_seconds(pid) - used) / (time.monotonic() - begun) / VIEWERS * 1000


def _slow(context: BrowserContext, address: str) -> float:
    """Seconds to the first paint on a slow line."""
    page = context.new_page()
    session = context.new_cdp_session(page)
    session.send("Network.enable")
    session.send("Network.emulateNetworkConditions", _SLOW)
    page.goto(address)
    painted: float = until(page, "window.painted")
    page.close()
    return painted / 1000


def _month(context: BrowserContext, address: str) -> float:
    """Milliseconds from the click on a month to its line; the window of a GPU that nobody had asked for before."""
    page = context.new_page()
    page.goto(f"{address}#/gpu/{os.urandom(1)[0] % GPUS}?window=600")
    until(page, f"{_PLOT}?.gpumonView")
    page.evaluate(_WATCH, 30 * 86_400)
    page.get_by_role("button", name="31 d").click()
    return _seen(page)


def _address(ids: list[str]) -> str:
    return f"#/compare?runs={','.join(ids)}"


def _compared(context: BrowserContext, address: str, ids: list[str]) -> float:
    """Milliseconds from the click on the link of ticked runs to their courses, of runs in an order that is new."""
    page = context.new_page()
    turned = ids[(at := os.urandom(1)[0] % RUNS) :] + ids[:at]
    page.goto(f"{address}#/runs?pick={','.join(turned)}")
    link = page.get_by_role("link", name=f"Compare {RUNS} runs")
    link.wait_for()
    page.evaluate(_WATCH, "runs")
    link.click()
    return _seen(page)


def _seen(page: Page) -> float:
    seen: dict[str, Any] = until(page, "window.seen.drawn && window.seen")
    page.close()
    return float(seen["drawn"] - seen["click"])


def _busy(context: BrowserContext, address: str, seconds: float) -> float:
    """Main-thread time of a page, ms a second."""
    page = context.new_page()
    session = context.new_cdp_session(page)
    session.send("Performance.enable")
    page.goto(address)
    page.wait_for_timeout(_SETTLED * 1000)
    found = main_thread(session, page, seconds)
    page.close()
    return found
