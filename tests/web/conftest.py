"""A real browser on the real pages, and what it may never do: complain, or ask another host."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, Request, ViewportSize, expect, sync_playwright

from tests import chromium
from tests.conftest import cannot
from tests.programs import PATIENCE, command, environment
from tests.web.served import TOKEN, Served, on_server

pytest.register_assert_rewrite("tests.web.matrix")  # so that what fails there says what it found

DESK: ViewportSize = {"width": 1440, "height": 900}
PATIENCE_MS = 1000 * PATIENCE
"""The same for a browser."""
expect.set_options(timeout=PATIENCE_MS)
_WATCH = """
window.violations = [];
document.addEventListener("securitypolicyviolation", (event) => {
  window.violations.push(`${event.violatedDirective} ${event.blockedURI}`);
});
"""
_OUR_REFUSALS = ("404", "401", "503")
"""What a page may be answered without being wrong; Chromium writes each into its console."""


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """The system's Chromium."""
    found = chromium.program()
    if found is None:
        cannot("chromium is not installed")
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(
            executable_path=found,
            timeout=2 * PATIENCE_MS,
            args=chromium.ARGUMENTS,
        )
        yield started
        started.close()


class Visitor:
    """A browser of its own, that has opened the link with the token, and everything it complained about."""

    def __init__(self, browser: Browser, link: str, **options: Any) -> None:
        self.link = link
        self.complaints: list[str] = []
        self.foreign: list[str] = []
        self.context: BrowserContext = browser.new_context(**{"viewport": DESK, "color_scheme": "dark", **options})
        self.context.set_default_timeout(PATIENCE_MS)
        self.context.add_init_script(_WATCH)
        self.context.on("request", self._asked)
        self.page: Page = self.context.new_page()
        self.page.on("console", lambda said: self._said(said.type, said.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))

    def open(self, place: str) -> Page:
        """A page by what stands behind the # of its address; waits until it has what it shows."""
        self.page.goto(self.link + place)
        self.page.locator("main .page:not([hidden])").wait_for(state="attached")
        self.page.locator("body:is([data-state=live], [data-state=stale], [data-state=ended])").wait_for(
            state="attached"
        )
        return self.page

    def check(self) -> None:
        """Fails when the page complained, or asked somebody else."""
        assert self.complaints == []
        assert self.foreign == []
        assert self.page.evaluate("window.violations || []") == []

    def _asked(self, request: Request) -> None:
        asked = urlsplit(request.url)
        if asked.scheme not in ("data", "blob") and asked.netloc != urlsplit(self.link).netloc:
            self.foreign.append(request.url)

    def _said(self, kind: str, text: str) -> None:
        refused = text.startswith("Failed to load resource") and any(f" {one} " in text for one in _OUR_REFUSALS)
        if kind in ("error", "warning") and not refused:
            self.complaints.append(text)


@contextmanager
def visit(browser: Browser, link: str, *, strict: bool = True, **options: Any) -> Iterator[Visitor]:
    """A visitor who must have had nothing to complain about in the end, where `strict`."""
    visitor = Visitor(browser, link, **options)
    try:
        yield visitor
        if strict:
            visitor.check()
    finally:
        visitor.context.close()


@contextmanager
def on_a_port(served: Served) -> Iterator[str]:
    """The link to an app of this process, behind the server that people use."""
    with on_server(served) as port:
        yield f"http://127.0.0.1:{port}/?token={TOKEN}"


@contextmanager
def web(*arguments: object, env: Mapping[str, str]) -> Iterator[str]:
    """`gpumon web` on a free port; its link."""
    process = subprocess.Popen(
        command("web", "--port", 0, *arguments),
        env=dict(env),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    drained = threading.Thread(target=process.stderr.read, daemon=True)
    try:
        link = process.stdout.readline().strip()
        assert link.startswith("http://"), link + process.stderr.read()
        drained.start()
        yield link
    finally:
        process.terminate()
        process.wait(timeout=PATIENCE)
        if drained.ident:
            drained.join(PATIENCE)
        process.stdout.close()
        process.stderr.close()


def own_places(directory: Path) -> dict[str, str]:
    """The environment of somebody without a daemon."""
    live = directory / "live"
    live.mkdir(mode=0o700, parents=True, exist_ok=True)
    return environment(live, os.environ)


@pytest.fixture(scope="session")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The link to `gpumon web --source sim`."""
    with web("--source", "sim", env=own_places(tmp_path_factory.mktemp("sim"))) as link:
        yield link


@pytest.fixture(scope="session")
def _viewer(browser: Browser, simulated: str) -> Iterator[Visitor]:
    with visit(browser, simulated) as visitor:
        yield visitor


@pytest.fixture
def viewer(_viewer: Visitor) -> Iterator[Visitor]:
    """A viewer of the simulation whom tests share: each opens pages anew, in the same browser context."""
    _viewer.page.set_viewport_size(DESK)
    yield _viewer
    _viewer.check()
