"""The pages of the web view in Chromium: first paint, bytes, main thread, zoom; beside a plain Dash page.

A daemon on the stub driver samples 8 GPUs and 40 processes at 1 Hz, one of them a training with epochs;
`gpumon web` and the plain page read its ring. First paint counts from the navigation to the frame in which the
first GPU has a number (the plain page: the first line of a figure); cold is a browser that was nowhere yet, warm
opens the page again. Loads are in turn. Main thread is Chromium's own TaskDuration, one page after the other.
A zoom is a drag of the mouse: until the chart is redrawn, and until the finer points of it are drawn.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from benchmarks.browser import SIZE, Load, chromium, load, main_thread, missing, until, visitor
from benchmarks.report import Budget, Result, number
from benchmarks.stage import Effort, Place, Stage
from benchmarks.usage import ROOT, Figures
from benchmarks.web import plain_dash, web
from tests.programs import daemon

if TYPE_CHECKING:
    from playwright.sync_api import BrowserContext, Page

OURS, PLAIN = "gpumon web", "plain Dash"
FIRST_PAINT = 0.8
MOST_POINTS = 2000
_ROW = '/[0-9]/.test(document.querySelector("#page-fleet tbody .big")?.textContent)'
_TRACE = 'document.querySelector(".js-plotly-plot .scatterlayer .trace path")'
_PLOT = 'document.querySelector(".page:not([hidden]) .plot")'
_POINTS = (
    f"Math.max(0, ...({_PLOT}?.gpumonView?.doc.panels || []).flatMap((one) => one.lines).map((line) => line.x.length))"
)
_WARM = 4.0
"""Seconds after which a page has drawn its first figure."""
_HISTORY = 40.0
"""Seconds of samples that a figure has at least before it is zoomed."""
_TRAINING = """
import time, gpumon
with gpumon.run("benchmark", epochs=1000) as run:
    for epoch in run.epochs():
        for step in run.steps(range(20)):
            time.sleep(0.25)
        run.log(loss=1.0 / (epoch + 1))
"""
_TIME_ZOOM = f"""() => {{
  const plot = {_PLOT};
  const seen = window.zoom = {{}};
  addEventListener("mouseup", () => {{ seen.up = performance.now(); }}, {{ capture: true, once: true }});
  new MutationObserver(() => {{
    if (seen.up) {{ seen.redrawn = seen.redrawn || performance.now(); }}
    const asked = performance.getEntriesByType("resource")
      .find((one) => one.name.includes("api/gpu") && one.name.includes("from=") && one.startTime > seen.up);
    if (asked && asked.responseEnd) {{ seen.finer = seen.finer || performance.now(); }}
  }}).observe(plot, {{ attributeFilter: ["data-drawn"] }});
}}"""


def measure(stage: Stage, effort: Effort) -> Result:
    """Loads in turn, then each page for a window, then zooms."""
    result = Result("The pages in a browser", ("page", "first paint cold, s", "warm, s", "bytes cold", "warm",
                                               "requests cold", "warm", "main thread, ms/s"))  # fmt: skip
    if why := missing():
        result.notes.append(f"Not measured: {why}.")
        return result
    place = stage.place("gpumon")
    with ExitStack() as stack:
        stack.enter_context(daemon("--interval", "1", env=place.env))
        began = time.monotonic()
        pid = stack.enter_context(_training(place))
        place.stub.spread([*stage.pids[:-1], pid])
        _, port, token = stack.enter_context(web(place))
        _, plain_port = stack.enter_context(plain_dash(place))
        browser = stack.enter_context(chromium())
        version = browser.version
        pages = {
            OURS: (f"http://127.0.0.1:{port}/?token={token}", f"http://127.0.0.1:{port}/", _ROW),
            PLAIN: (f"http://127.0.0.1:{plain_port}/", f"http://127.0.0.1:{plain_port}/", _TRACE),
        }
        cold: dict[str, list[Load]] = {name: [] for name in pages}
        warm: dict[str, list[Load]] = {name: [] for name in pages}
        for turn in range(max(3, effort.rounds // 2) + 1):
            for name, (first, again, shown) in pages.items():
                with visitor(browser, shown) as context:
                    loads = load(context, first), load(context, again)
                if turn:  # the first load of all starts parts of Chromium, and fills the server's cache of files
                    cold[name].append(loads[0])
                    warm[name].append(loads[1])
        seconds = max(6.0, effort.seconds / 6)
        busy: dict[str, float] = {}
        with visitor(browser, _TRACE) as context:
            busy[PLAIN] = _busy(context, pages[PLAIN][0], seconds)[0]
        longest = 0
        with visitor(browser, _ROW) as context:
            load(context, pages[OURS][0])
            run = _run_of(context, pages[OURS][1])
            for place_ in ("#/fleet", "#/gpu/0?window=600", "#/runs", f"#/run/{run}"):
                name = f"{OURS}, {place_.split('/')[1].partition('?')[0]}"
                busy[name], points = _busy(context, pages[OURS][1] + place_, seconds)
                longest = max(longest, points)
            time.sleep(max(0.0, began + _HISTORY - time.monotonic()))
            zooms = [_zoom(context, f"{pages[OURS][1]}#/gpu/0?window=600") for _ in range(max(3, effort.rounds // 2))]
    for name, used in busy.items():
        page = {f"{OURS}, fleet": OURS, PLAIN: PLAIN}.get(name, "")
        result.rows.append((name, *_loads(cold.get(page, []), warm.get(page, [])), number(used)))
    redrawn, finer = Figures([one[0] for one in zooms]), Figures([one[1] for one in zooms])
    for what, loads_ in (("cold", cold), ("warm", warm)):
        found = Figures([one.painted for one in loads_[OURS]])
        result.budgets.append(Budget(f"first paint, {what}", found.median, FIRST_PAINT, " s"))
    result.budgets.append(Budget("points of a line at most", longest, MOST_POINTS))
    result.notes.append(
        f"A zoom step, from the mouse's release: redrawn after {number(redrawn.median)} ms (at most "
        f"{number(max(redrawn.values))}), with the finer points of it after {number(finer.median)} ms (at most "
        f"{number(max(finer.values))}), {len(zooms)} drags. "
        "120 ms of the latter are a pause, for somebody who goes on zooming."
    )
    result.notes.append(f"Chromium {version}, {SIZE['width']}×{SIZE['height']}. Figures had {longest} points a line.")
    return result


def _loads(cold: list[Load], warm: list[Load]) -> list[str]:
    if not cold:
        return ["–"] * 6
    cells = []
    for kind in ("painted", "received", "requests"):
        cells += [number(Figures([getattr(one, kind) for one in loads]).median) for loads in (cold, warm)]
    return cells


def _busy(context: BrowserContext, address: str, seconds: float) -> tuple[float, int]:
    """Main-thread time of a page, ms a second, and the points of its longest line."""
    page = context.new_page()
    session = context.new_cdp_session(page)
    session.send("Performance.enable")
    page.goto(address)
    page.wait_for_timeout(_WARM * 1000)
    found = main_thread(session, page, seconds)
    points = page.evaluate(_POINTS)
    page.close()
    return found, int(points)


def _zoom(context: BrowserContext, address: str) -> tuple[float, float]:
    """Milliseconds from the release of the mouse until redrawn, and until drawn with the points asked for."""
    page: Page = context.new_page()
    page.goto(address)
    until(page, f"{_PLOT}?.dataset.drawn > 1")
    page.evaluate(_TIME_ZOOM)
    box = page.locator(".page:not([hidden]) .plot").bounding_box()
    assert box
    page.mouse.move(box["x"] + box["width"] * 0.4, box["y"] + 90)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.8, box["y"] + 90, steps=6)
    page.mouse.up()
    seen: dict[str, Any] = until(page, "window.zoom.finer && window.zoom.redrawn && window.zoom")
    page.close()
    return seen["redrawn"] - seen["up"], seen["finer"] - seen["up"]


def _run_of(context: BrowserContext, address: str) -> str:
    page = context.new_page()
    page.goto(address)
    found = until(
        page, "gpumon.feed.feed.server && gpumon.feed.feed.server.runs.length && gpumon.feed.feed.server.runs[0][0]"
    )
    page.close()
    return str(found)


@contextmanager
def _training(place: Place) -> Iterator[int]:
    """A training with epochs of five seconds, which computes nothing; its pid."""
    process = subprocess.Popen([sys.executable, "-c", _TRAINING], env=place.env, cwd=ROOT)
    try:
        yield process.pid
    finally:
        process.terminate()
        process.wait(timeout=20)
