"""The same faults of Prometheus on a real socket: the client, the poller and the page as they run, a real server."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler
from threading import Event
from urllib.parse import parse_qs

import pytest

from gpumon.cluster.client import MAX_BYTES, PrometheusAccess, PrometheusAnswer, PrometheusClient
from gpumon.cluster.queries import QUERIES
from tests.engines.programs import free_port
from tests.engines.served import listening
from tests.web.clustered import NOW, Cluster, TableEngine, cluster, row

SECRET, PASSWORD, TENANT = "s3cr3t-t0ken", "s3cr3t-w0rd", "s3cr3t-ten4nt"
PATIENCE, HASTE = 20.0, 0.3
"""Seconds for an answer: of a server that answers, and of one that never does, for which nobody waits long."""
FEW = tuple(one for one in QUERIES if one.name in ("seen", "gpus", "models", "busy", "held_now", "runs"))
Answer = Callable[[BaseHTTPRequestHandler], None]


class SocketEngine:
    """Answers well, or as a test says."""

    def __init__(self) -> None:
        self.fault: Answer | None = None
        self.ahead = 0.0
        self.date = NOW
        """Of its header, which a proxy writes."""
        self.passed = 0.0
        self.let_go = Event()
        self.sent = 0
        """Bytes of the endless answer of which somebody took the most."""
        self.broken = ""
        """Part of the expressions that fail alone."""
        self.asked: set[tuple[str, str]] = set()
        """Path and authorization of each question."""
        self._table = TableEngine(cluster(3))

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        form = parse_qs(handler.rfile.read(int(handler.headers["Content-Length"])).decode())
        self.asked.add((handler.path, handler.headers["Authorization"]))
        if self.fault is not None:
            self.fault(handler)
            return
        if self.broken and self.broken in form["query"][0]:
            self.say(handler, 422, {"status": "error", "error": "too many samples"})
            return
        at = float(form["time"][0]) if "time" in form else NOW + self.passed + self.ahead
        rows = self._table.query(form["query"][0], at).rows if "time" in form else [row(1.0)]
        result = [{"metric": dict(one.labels), "value": [at, str(one.value)]} for one in rows]
        self.say(handler, 200, {"status": "success", "data": {"resultType": "vector", "result": result}})

    def say(self, handler: BaseHTTPRequestHandler, status: int, document: object, **headers: str) -> None:
        body = json.dumps(document).encode()
        handler.send_response_only(status)
        told = {"Date": formatdate(self.date, usegmt=True), "Content-Length": str(len(body))}
        for name, value in (told | headers).items():
            handler.send_header(name, value)
        handler.end_headers()
        handler.wfile.write(body)

    @property
    def is_slow(self) -> bool:
        """Whether no answer comes to its end."""
        return self.fault in (self.never, self.drip)

    def never(self, handler: BaseHTTPRequestHandler) -> None:
        """Say nothing until the test is over."""
        del handler
        self.let_go.wait()

    def drip(self, handler: BaseHTTPRequestHandler) -> None:
        """A byte now and then, so that no single read is late."""
        handler.send_response_only(200)
        handler.end_headers()
        while not self.let_go.wait(HASTE / 5):
            try:
                handler.wfile.write(b" ")
            except OSError:
                return

    def endless(self, handler: BaseHTTPRequestHandler) -> None:
        """50 MB, as far as somebody takes them."""
        handler.send_response_only(200)
        handler.end_headers()
        for megabytes in range(1, 51):
            try:
                handler.wfile.write(b" " * 1_000_000)
            except OSError:
                return
            self.sent = max(self.sent, megabytes * 1_000_000)

    def refuse(self, handler: BaseHTTPRequestHandler) -> None:
        self.say(handler, 401, {"status": "error", "error": f"not {handler.headers['Authorization']}"})

    def fail(self, handler: BaseHTTPRequestHandler) -> None:
        self.say(handler, 503, {"status": "error", "error": "overloaded"})

    def send_away(self, handler: BaseHTTPRequestHandler) -> None:
        self.say(handler, 307, {}, Location=f"http://localhost:{handler.server.server_port}/login")  # type: ignore[attr-defined]

    def hang_up(self, handler: BaseHTTPRequestHandler) -> None:
        handler.connection.close()


class Clients:
    """Clients of Prometheus: a patient one, and one in haste, which asks while the server is slow."""

    def __init__(self, engine: SocketEngine, patient: PrometheusClient, hasty: PrometheusClient) -> None:
        self._engine, self._patient, self._hasty = engine, patient, hasty
        self.name = patient.name

    def clock_offset(self) -> float:
        return (self._hasty if self._engine.is_slow else self._patient).clock_offset()

    def query(self, expression: str, at: float) -> PrometheusAnswer:
        return (self._hasty if self._engine.is_slow else self._patient).query(expression, at)


@pytest.fixture
def engine() -> Iterator[SocketEngine]:
    found = SocketEngine()
    yield found
    found.let_go.set()


@pytest.fixture
def served(engine: SocketEngine, request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """A page over the client that asks real engines."""
    access = getattr(request, "param", PrometheusAccess(token=SECRET, headers={"X-Scope-OrgID": TENANT}))
    with ExitStack() as stack:
        address = stack.enter_context(listening("do_POST", lambda handler: engine.answer(handler)))
        clients = [
            stack.enter_context(
                closing(PrometheusClient(f"http://{address}/", access, None, patience, lambda: NOW + engine.passed))
            )
            for patience in (PATIENCE, HASTE)
        ]
        page = Cluster(Clients(engine, *clients), asked=FEW)
        yield page
        engine.let_go.set()
        page.poller.close()


def after(engine: SocketEngine, served: Cluster, seconds: float) -> Cluster:
    """Let time pass for the page and for the clocks of both."""
    engine.passed += seconds
    return served.after(seconds)


FAULTS = {
    "never answers": ("never", "did not answer within 0.3 s"),
    "drips": ("drip", "did not answer within 0.3 s"),
    "refuses": ("refuse", "denied access (401)"),
    "is overloaded": ("fail", "Prometheus says: overloaded (503)"),
    "redirects": ("send_away", "redirects to http://localhost"),
    "hangs up": ("hang_up", "closed the connection before answering"),
    "answers 50 MB": ("endless", "more than 8 MiB"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_the_page_stays_and_says_what_happened_and_since_when(
    engine: SocketEngine, served: Cluster, name: str, caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    caplog.set_level(logging.DEBUG)
    way, said = FAULTS[name]
    before = after(engine, served, 0.0).page()
    assert before["live"]
    assert before["values"]["free"] != "–"
    engine.fault = getattr(engine, way)
    pages = [after(engine, served, seconds).page() for seconds in (60.0, 60.0)]
    for found in pages:
        assert said.lower() in found["state"].lower()
        assert found["values"]["free"] == "–", "after a minute nobody knows"
        for panel in ("summary", "map", "free", "users", "runs"):
            age = found["values"][f"{panel}_age"]
            assert age["text"].lower().endswith("values are from")
            assert age["time"] == NOW, "what stands there is of then"
    assert not pages[1]["live"]
    if name == "answers 50 MB":
        assert 0 < engine.sent < 3 * MAX_BYTES, "none is read to its end; the rest is in the buffers of sockets"
    assert engine.asked == {("/api/v1/query", f"Bearer {SECRET}")}, "nobody goes where they are sent"
    engine.fault = None
    engine.let_go.set()
    again = after(engine, served, 60.0).page()
    assert again["live"]
    assert again["values"]["map_age"] is None
    assert SECRET not in (told := json.dumps([*pages, again]) + caplog.text + "".join(capfd.readouterr()))
    assert TENANT not in told


@pytest.mark.parametrize("served", [PrometheusAccess(username="gpumon", password=PASSWORD)], indirect=True)
def test_a_password_is_in_no_log_and_on_no_page(
    engine: SocketEngine, served: Cluster, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    told = [after(engine, served, 0.0).page()]
    engine.fault = engine.refuse
    told.append(after(engine, served, 60.0).page())
    assert told[0]["live"]
    said = json.dumps(told) + caplog.text + "".join(capfd.readouterr())
    assert PASSWORD not in said
    assert "Basic " not in said


def test_where_nobody_listens_the_page_claims_nothing() -> None:
    with closing(PrometheusClient(f"http://127.0.0.1:{free_port()}/", timeout=PATIENCE)) as client:
        served = Cluster(client, asked=FEW)
        found = served.after(0.0).page()
        served.poller.close()
    assert found["values"]["free"] == "–"
    assert "refuses connections" in found["state"]
    assert found["values"]["map_age"]["text"] == "No answer from Prometheus since"
    assert not found["live"]


def test_some_questions_fail_and_the_others_are_shown(engine: SocketEngine, served: Cluster) -> None:
    after(engine, served, 0.0)
    engine.broken = "run:gpumon_"
    found = after(engine, served, 60.0).page()
    assert found["live"]
    ages = {name: value for name, value in found["values"].items() if name.endswith("_age") and value}
    assert set(ages) == {"users_age", "runs_age"}
    assert ages["runs_age"]["text"].startswith("Prometheus says: too many samples (422)")
    assert found["values"]["wrong_age"] is None, "whether a node is silent is of now"


@pytest.mark.parametrize(("ahead", "said"), [(-300.0, "5 min behind"), (300.0, "5 min ahead of")])
def test_a_clock_that_is_five_minutes_off_is_told(
    engine: SocketEngine, served: Cluster, ahead: float, said: str
) -> None:
    engine.ahead = ahead
    after(engine, served, 0.0)
    engine.date = NOW + 4000
    assert any(said in one["text"] for one in after(engine, served, 60.0).values()["doubts"])
