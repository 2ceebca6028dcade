"""A browser as a measuring instrument: when a page shows something, what it fetched, how busy its main thread is."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from tests.chromium import program as chromium_program

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, CDPSession, Page

SIZE = {"width": 1440, "height": 900}
_PATIENCE = 60.0
_ARGUMENTS = (
    "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update",
    "--disable-sync", "--no-first-run",
)  # fmt: skip
# Looked at in each frame, so it is known to a sixtieth of a second; what a frame shows is painted at its end.
_WATCH = """
(() => {
  const look = () => {
    if (SHOWN) { requestAnimationFrame(() => { window.painted = performance.now(); }); }
    else { requestAnimationFrame(look); }
  };
  requestAnimationFrame(look);
})();
"""


class Load(NamedTuple):
    """One load of a page."""

    painted: float
    """Seconds from the navigation until the page showed what it was opened for."""
    received: int
    """Bytes from the network, headers included, compressed as they came."""
    requests: int
    """Those that went to the network."""


def missing() -> str:
    """Why there is no browser here; empty when there is one."""
    try:
        import playwright.sync_api  # noqa: F401
    except ImportError:
        return "playwright is not installed (pip install playwright)"
    return "" if chromium_program() else "there is no Chromium (apt-get install chromium)"


@contextmanager
def chromium() -> Iterator[Browser]:
    """The system's Chromium, without a window."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium_program(), args=_ARGUMENTS)
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def visitor(browser: Browser, shown: str) -> Iterator[BrowserContext]:
    """A browser that was nowhere yet; `shown` is an expression that is true once a page shows what it should."""
    context = browser.new_context(viewport=SIZE, color_scheme="dark")  # type: ignore[arg-type]
    context.set_default_timeout(_PATIENCE * 1000)
    context.add_init_script(_WATCH.replace("SHOWN", shown))
    try:
        yield context
    finally:
        context.close()


def load(context: BrowserContext, address: str) -> Load:
    """Open `address` in a new tab, and close it again."""
    page = context.new_page()
    session = context.new_cdp_session(page)
    received: dict[str, int] = {}
    kept: set[str] = set()

    def ended(event: dict[str, Any]) -> None:
        received[event["requestId"]] = event["encodedDataLength"]

    def answered(event: dict[str, Any]) -> None:
        if event["response"].get("fromDiskCache"):
            kept.add(event["requestId"])

    session.on("Network.responseReceived", answered)
    session.on("Network.requestServedFromCache", lambda event: kept.add(event["requestId"]))
    session.on(
        "Network.loadingFinished", lambda event: received.update({event["requestId"]: event["encodedDataLength"]})
    )
    session.send("Network.enable")
    page.goto(address)
    painted = until(page, "window.painted")
    page.wait_for_timeout(200)  # for what is on its way still
    page.close()
    fresh = {name: size for name, size in received.items() if name not in kept}
    return Load(painted / 1000, int(sum(fresh.values())), len(fresh))


def until(page: Page, expression: str) -> Any:
    """The value of `expression` once it has one. Asked from here: the page's policy forbids eval in it."""
    deadline = time.monotonic() + _PATIENCE
    while time.monotonic() < deadline:
        found = page.evaluate(expression)
        if found:
            return found
        page.wait_for_timeout(20)
    raise RuntimeError(f"the page did not come to {expression}")


def main_thread(session: CDPSession, page: Page, seconds: float) -> float:
    """Milliseconds a second for which the page's main thread was at work."""
    before = _metrics(session)
    page.wait_for_timeout(seconds * 1000)
    after = _metrics(session)
    return (after["TaskDuration"] - before["TaskDuration"]) / (after["Timestamp"] - before["Timestamp"]) * 1000


def _metrics(session: CDPSession) -> dict[str, float]:
    return {one["name"]: one["value"] for one in session.send("Performance.getMetrics")["metrics"]}
