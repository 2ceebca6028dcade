"""Pages of metrics for engines to scrape, and what is sent to a webhook, from threads of the test."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any, NamedTuple

Page = Callable[[Mapping[str, str]], tuple[bytes, Mapping[str, str]]]
"""From the headers of a question, all in lower case: the body of an answer and its headers."""


class Scraped(NamedTuple):
    """A target that is served."""

    address: str
    """Host and port."""
    asked: list[Mapping[str, str]]
    """Headers of each question so far."""

    def scrape(self, **labels: str) -> dict[str, Any]:
        """Return a scrape of it under the job of the guide."""
        return scrape([self.address], **labels)


def scrape(addresses: list[str], **labels: str) -> dict[str, Any]:
    """Return a scrape of several targets."""
    return {"job_name": "gpumon", "static_configs": [{"targets": addresses, "labels": labels}]}


def text(body: str, content_type: str = "text/plain; version=0.0.4") -> Page:
    """Return a page that stays as it is."""
    return lambda headers: (body.encode(), {"Content-Type": content_type})


@contextmanager
def served(page: Page) -> Iterator[Scraped]:
    """Serve a page at every path."""
    asked: list[Mapping[str, str]] = []

    def answer(handler: BaseHTTPRequestHandler) -> None:
        headers = {name.lower(): value for name, value in handler.headers.items()}
        asked.append(headers)
        body, told = page(headers)
        handler.send_response(200)
        for name, value in told.items():
            handler.send_header(name, value)
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)

    with listening("do_GET", answer) as address:
        yield Scraped(address, asked)


@contextmanager
def webhook() -> Iterator[tuple[str, list[Any]]]:
    """A URL that takes JSON, and what it was sent so far."""
    taken: list[Any] = []

    def take(handler: BaseHTTPRequestHandler) -> None:
        taken.append(json.loads(handler.rfile.read(int(handler.headers["Content-Length"]))))
        handler.send_response(200)
        handler.send_header("Content-Length", "0")
        handler.end_headers()

    with listening("do_POST", take) as address:
        yield f"http://{address}/", taken


@contextmanager
def listening(method: str, answer: Callable[[BaseHTTPRequestHandler], None]) -> Iterator[str]:
    """Answer questions of one method on a free port, each in a thread, and yield the address."""
    handler = type("Quiet", (BaseHTTPRequestHandler,), {method: answer, "log_message": lambda *_: None})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
