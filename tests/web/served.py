"""The web app over a ring of our own making, asked without a browser."""

from __future__ import annotations

import json
import os
import re
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from dash import Dash
from starlette.routing import Mount, Route

from gpumon.common.caps import Caps
from gpumon.common.net import Address, listen
from gpumon.common.privacy import EVERYBODY, SHOWN, People
from gpumon.live import Live, LiveState
from gpumon.model.frame import Tick
from gpumon.ring.writer import RingWriter
from gpumon_web.app import make_app
from gpumon_web.auth.api_tokens import NamedTokens
from gpumon_web.auth.failed_login_log import FailedLoginLog
from gpumon_web.auth.gate import Gate
from gpumon_web.auth.rate_limit import Buckets
from gpumon_web.auth.session_file import Sessions
from gpumon_web.components.machine import Now
from gpumon_web.feed import Feed
from gpumon_web.jobs import Inline, Work
from gpumon_web.live.accounts import Accounts
from gpumon_web.live.positions import Recording
from gpumon_web.live.runs import Runs
from gpumon_web.live.values import PageFeed
from gpumon_web.names import named_frames, named_work
from gpumon_web.pages.compare import ADDRESS
from gpumon_web.routes.compare import OUTPUTS
from gpumon_web.routes.pages import Sources
from gpumon_web.server import WebServer, create_server
from gpumon_web.stored.run_page import run_document
from tests.programs import PATIENCE
from tests.web.asked import Client

TOKEN = "a-token-for-tests-0123456789"


class Steady(Live):
    """A reader of a daemon that is never silent, however slow a test is, or has been so for `age` seconds."""

    age = 0.0
    beat: Callable[[], object] | None = None
    """Heartbeat of the ring's writer."""

    history = ""
    """The file of its history, where it is another than the ring names."""

    def history_file(self) -> str:
        return self.history or super().history_file()

    def state(self) -> LiveState:
        if self.beat is not None and not self.age:
            self.beat()  # as a daemon would have meanwhile
        found = super().state()
        if not self.age:
            return found if self.origin().ended else found._replace(live=True, text="live", age=0.0, stale=False)
        text = f"stale: last seen 00:00:00 ({self.age:.0f} s ago)"
        return found._replace(live=False, text=text, age=self.age, stale=True)


class Served:
    """An app, its feed, and the ring that they read."""

    def __init__(
        self, ticks: Iterable[Tick] = (), ledgers: Iterable[str] = (), token: str | None = TOKEN, devices: int = 2,
        hosts: Iterable[str] = (), buckets: Buckets | None = None, work: Work | None = None, sessions: str = "",
        recording: Recording | None = None, histories: Iterable[str] = (), named: NamedTokens | None = None,
        refused: str = "", people: People = EVERYBODY, played: str = "", caps: Caps | None = None,
    ) -> None:  # fmt: skip
        self.writer = RingWriter.private(devices, 1_000_000_000, 600)
        for tick in ticks:
            self.writer.append(tick)
        self.live = Steady(lambda: os.dup(self.writer.fd))
        self.live.beat = lambda: self.writer.heartbeat()  # a test may put another in its place
        self.feed = Feed(named_frames(self.live, people))
        work = named_work(work or Inline(), people) if people.way != SHOWN else work
        self.pages = PageFeed(self.feed)
        self.now = 1_790_000_000.0
        self.gate = Gate(token, hosts, 8050, Sessions(sessions), named)
        self.gate.failed_logins = FailedLoginLog(refused)
        self.ledgers = list(ledgers)
        runs = self.runs = Runs(self.feed, lambda: self.ledgers, lambda: self.now, work, played=lambda: played)
        accounts = Accounts(self.feed, lambda: list(histories), lambda: self.now, work, quick=work, caps=caps)
        self.app: Dash = make_app(
            Sources(self.feed, runs, accounts, work or Inline(), recording),
            self.gate,
            lambda: self.now,
            buckets or Buckets(1e9, 1e9),
        )

    def client(self, *, token: bool = True, cookie: str | None = None) -> Client:
        """A visitor, with the token or without; one with a `cookie` sends it as it is and keeps none."""
        headers = {"Cookie": cookie} if cookie is not None else {}
        if token:
            headers["Authorization"] = f"Bearer {TOKEN}"
        return Client(self.app.server, headers, use_cookies=cookie is None)

    def known(self) -> Now:
        """All that pages know at the newest tick."""
        with self.feed.lock:
            self.feed.refresh()
            return self.pages.now()

    def told(self, page: str = "fleet", boot: str = "", since: int = 0, **args: str) -> dict[str, Any]:
        """What a viewer of a page is told, who has seen frame `since` of `boot`."""
        found: dict[str, Any] = json.loads(self.pages.answer(page, args, boot, since).plain)
        return found

    def json(self, path: str) -> Any:
        """What a route answers."""
        answer = self.client().get(path)
        assert answer.status_code == 200, (path, answer.status_code)
        return answer.get_json()

    def run(self, run: str, device: str = "") -> dict[str, Any]:
        """The document of which the page of a run is made."""
        live, ring = self.runs._live().get(run), self.runs._ring(run, device)
        document, _ = run_document(self.ledgers, run, device, live, ring, self.now, None)
        return dict(document or {})

    def compared(self, runs: Iterable[str] | str, *, is_shown: bool = False, **arguments: str) -> dict[str, Any]:
        """What the callback of the compare page answers, by names of outputs; `is_shown`: a comparison was before."""
        address = {"runs": runs if isinstance(runs, str) else ",".join(runs), **arguments}
        answer = self.client().post("/_dash-update-component", json=comparison_request(address, is_shown=is_shown))
        assert answer.status_code == 200, answer.data
        response = json.loads(answer.data)["response"]
        return {
            name: response[output.component_id][output.component_property]
            for name, output in OUTPUTS.items()
            if output.component_property in response.get(output.component_id, {})
        }

    def paths(self) -> list[str]:
        """A path for every route that Dash and the server have registered."""
        found = set()
        for route in self.app.server.routes:
            assert isinstance(route, Mount | Route), "a kind of route that this test does not know"
            path = f"{route.path}/x" if isinstance(route, Mount) else route.path
            found.add(re.sub(r"\{\w+(:path)?\}", "x", path))
        return sorted(found)


def comparison_request(address: Any, *, is_shown: bool = False) -> dict[str, Any]:
    """The body with which a browser asks for a comparison."""
    outputs = [{"id": output.component_id, "property": output.component_property} for output in OUTPUTS.values()]
    return {
        "output": f"..{'...'.join(str(output) for output in OUTPUTS.values())}..",
        "outputs": outputs,
        "inputs": [{"id": ADDRESS, "property": "data", "value": address}],
        "changedPropIds": [f"{ADDRESS}.data"],
        "state": [{"id": "compare-without", "property": "hidden", "value": is_shown}],
    }


class HasApp(Protocol):
    """What has an app to be served."""

    app: Dash


@contextmanager
def running(served: HasApp) -> Iterator[tuple[WebServer, int]]:
    """The server that people use, with the app, in a thread of this process; and its port."""
    server, listener, ready = create_server(served.app), listen(Address(port=0)), threading.Event()
    port = listener.getsockname()[1]
    server.on_ready = ready.set
    thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
    thread.start()
    try:
        assert ready.wait(PATIENCE)
        yield server, port
    finally:
        server.stop()
        thread.join(PATIENCE)


@contextmanager
def on_server(served: HasApp) -> Iterator[int]:
    """The port of such a server."""
    with running(served) as (_, port):
        yield port
