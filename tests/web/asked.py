"""Requests to an app without a server: as a werkzeug client sends them, on an event loop of this process."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote_to_bytes

from werkzeug.test import Client as WsgiClient

from tests.programs import PATIENCE

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIEnvironment

HOST = "127.0.0.1:8050"


@cache
def event_loop() -> asyncio.AbstractEventLoop:
    """The loop on which all apps answer: one, in a thread, as in a server."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="apps", daemon=True).start()
    return loop


class Client(WsgiClient):
    """A visitor of an app, with headers of its own."""

    def __init__(self, app: Any, headers: Mapping[str, str] | None = None, *, use_cookies: bool = True) -> None:
        super().__init__(adapter(app), use_cookies=use_cookies)
        self.environ_base: dict[str, Any] = {"HTTP_HOST": HOST, "REMOTE_ADDR": "127.0.0.1"}
        for name, value in (headers or {}).items():
            self.environ_base[f"HTTP_{name.upper()}"] = value

    def open(self, *args: Any, **kwargs: Any) -> Any:
        return super().open(*args, **{"environ_base": self.environ_base, **kwargs})


def adapter(app: Any) -> Any:
    """An app as WSGI, which that client knows."""

    def answer(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        messages: list[dict[str, Any]] = []
        asked = [{"type": "http.request", "body": environ["wsgi.input"].read(), "more_body": False}]

        async def receive() -> dict[str, Any]:
            return asked.pop() if asked else await asyncio.Future()  # who asked stays until the answer is there

        async def send(message: Any) -> None:
            messages.append(message)

        running = asyncio.run_coroutine_threadsafe(app(scope_of(environ), receive, send), event_loop())
        running.result(PATIENCE)
        start, *parts = messages
        headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in start["headers"]]
        start_response(f"{start['status']} ", headers)
        body = b"".join(part.get("body", b"") for part in parts)
        return [] if environ["REQUEST_METHOD"] == "HEAD" else [body]

    return answer


def scope_of(environ: Mapping[str, Any]) -> dict[str, Any]:
    """The scope that uvicorn makes of such a request."""
    headers = [
        (name.removeprefix("HTTP_").replace("_", "-").lower().encode(), str(value).encode("latin-1"))
        for name, value in environ.items()
        if (name.startswith("HTTP_") or name in ("CONTENT_TYPE", "CONTENT_LENGTH")) and value
    ]
    raw_path = environ["REQUEST_URI"].partition("?")[0] or "/"
    return {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": environ["REQUEST_METHOD"],
        "scheme": environ["wsgi.url_scheme"],
        "path": unquote_to_bytes(raw_path).decode("utf-8", "replace"),
        "raw_path": raw_path.encode(),
        "root_path": "",
        "query_string": environ["QUERY_STRING"].encode("latin-1"),
        "headers": headers,
        "client": (environ["REMOTE_ADDR"], int(environ.get("REMOTE_PORT", 50000))),
        "server": ("127.0.0.1", 8050),
        "state": {},
    }
