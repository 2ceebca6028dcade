"""The page below a path of a proxy that strips it, in a browser, without configuration."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, expect

from tests.programs import PATIENCE
from tests.web.conftest import PATIENCE_MS, visit

expect.set_options(timeout=PATIENCE_MS)

PREFIX = "/gpus"
_HOP = ("connection", "keep-alive", "transfer-encoding", "content-length", "date", "server")


@contextmanager
def proxy(link: str, header: str, keeps_host: bool) -> Iterator[tuple[str, list[str]]]:
    """A reverse proxy that shows `link` below PREFIX and says so in `header`: its link, and what it was not asked for.

    A request outside of PREFIX gets 404 and is noted: the page has then left its prefix.
    """
    behind = urlsplit(link).netloc
    outside: list[str] = []

    class Proxy(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self.forward(None)

        def do_POST(self) -> None:
            self.forward(self.rfile.read(int(self.headers["Content-Length"])))

        def forward(self, body: bytes | None) -> None:
            if not self.path.startswith(f"{PREFIX}/"):
                outside.append(self.path)
                self.send_response(404)
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            headers = {name: value for name, value in self.headers.items() if name.lower() not in _HOP}
            headers["Host"] = self.headers["Host"] if keeps_host else behind
            headers[header] = PREFIX
            connection = HTTPConnection(behind, timeout=PATIENCE)
            try:
                connection.request(self.command, self.path.removeprefix(PREFIX), body, headers)
                answer = connection.getresponse()
                content = answer.read()
            finally:
                connection.close()
            self.send_response(answer.status)
            for name, value in answer.getheaders():
                if name.lower() not in _HOP:
                    self.send_header(name, value)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            """Nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Proxy)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}{PREFIX}/?{urlsplit(link).query}", outside
    finally:
        server.shutdown()
        thread.join(PATIENCE)
        server.server_close()


@pytest.mark.parametrize(
    ("header", "keeps_host"),
    [("X-Forwarded-Prefix", True), ("X-ProxyContextPath", False), ("X-Names-No-Path", False)],
)
def test_every_page_works_below_a_path_whether_the_proxy_names_it_or_not(
    browser: Browser, simulated: str, header: str, keeps_host: bool
) -> None:
    with proxy(simulated, header, keeps_host) as (link, outside), visit(browser, link) as visitor:
        page = visitor.open("#/fleet")
        assert urlsplit(page.url).path == f"{PREFIX}/"
        assert "token" not in page.url
        expect(page.locator("#page-fleet tbody tr:not(.group)")).to_have_count(8)
        page.locator(".fleet a.row").nth(2).click()
        expect(page.locator("#page-gpu .plot[data-drawn]")).to_be_visible()
        page.get_by_role("link", name="Runs").click()
        page.get_by_role("link", name="resnet50").click()
        expect(page.locator("#page-run h1")).to_have_text("resnet50")
        expect(page.locator("#page-run .plot[data-drawn]")).to_be_visible()
        address = page.get_by_role("link", name="CSV", exact=True).evaluate("(one) => one.href")
        assert urlsplit(address).path == f"{PREFIX}/api/run.csv"
        page.reload()
        expect(page.locator("#page-run h1")).to_have_text("resnet50")
        expect(page.locator("#page-run .plot[data-drawn]")).to_be_visible()
        page.get_by_role("button", name="Explore").click()
        expect(page.locator("dialog .main-svg").first).to_be_visible()
        page = visitor.open("#/compare?runs=sim-0-0,sim-1-0")
        expect(page.locator("#compare-graph .main-svg").first).to_be_visible()
        assert outside == []
