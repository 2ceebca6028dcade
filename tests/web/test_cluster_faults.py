"""Prometheus that fails in the ways that servers do: the page stays, each part says what, since when, and no secret."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import httpx
import pytest
from playwright.sync_api import Browser, expect

from gpumon.cluster import model
from gpumon.cluster.client import MAX_BYTES, PrometheusAccess, PrometheusAnswer, PrometheusClient, PrometheusSeries
from gpumon.cluster.queries import Period
from gpumon.reports.cluster_text import lines
from tests.web.clustered import ENGINE, NOW, Cluster, TableEngine, cluster, row
from tests.web.conftest import visit
from tests.web.served import on_server

SECRET = "s3cr3t-t0ken"
Answer = Callable[[httpx.Request], httpx.Response]


class Backend:
    """An HTTP server that answers well, or as a test says."""

    def __init__(self) -> None:
        self.table = TableEngine(cluster(3))
        self.fault: Answer | None = None
        self.broken: tuple[str, ...] = ()
        """Parts of expressions that fail alone."""
        self.clock = 0.0
        """Seconds by which its clock is ahead."""
        self.time: object = None
        """That it says it is; None for that of its clock."""
        self.date = "Thu, 01 Jan 2026 00:00:00 GMT"
        """Of a proxy before it, whose clock is none of ours."""
        self.cluster: Cluster | None = None

    def __call__(self, request: httpx.Request) -> httpx.Response:
        assert request.headers["Authorization"] == f"Bearer {SECRET}"
        if self.fault is not None:
            return self.fault(request)
        expression = httpx.QueryParams(request.content.decode())["query"]
        if any(part in expression for part in self.broken):
            return httpx.Response(
                422, json={"status": "error", "error": "query processing would load too many samples"}
            )
        form = httpx.QueryParams(request.content.decode())
        passed = self.cluster.passed if self.cluster else 0.0
        own = NOW + passed + self.clock if self.time is None else self.time
        at = float(form["time"]) if "time" in form else own
        rows = self.table.query(expression, NOW).rows if "time" in form else [row(1.0)]
        result = [{"metric": dict(one.labels), "value": [at, str(one.value)]} for one in rows]
        document = {"status": "success", "data": {"resultType": "vector", "result": result}}
        return httpx.Response(200, content=json.dumps(document), headers={"Date": self.date})


def made() -> tuple[Backend, Cluster]:
    """A page over such a server, by the client that asks real ones."""
    backend = Backend()

    def now() -> float:
        return NOW + (backend.cluster.passed if backend.cluster else 0.0)

    engine = PrometheusClient(ENGINE, PrometheusAccess(token=SECRET), httpx.MockTransport(backend), now=now)
    backend.cluster = Cluster(engine)
    return backend, backend.cluster


def slow(request: httpx.Request) -> httpx.Response:
    raise httpx.ReadTimeout("slow", request=request)


def down(request: httpx.Request) -> httpx.Response:
    raise httpx.ConnectError("[Errno 111] Connection refused", request=request)


def odd(request: httpx.Request) -> httpx.Response:
    raise httpx.ReadError("The line broke.", request=request)


FAULTS: list[tuple[Answer, str]] = [
    (down, "refuses connections"),
    (slow, "did not answer within 4 s"),
    (lambda _: httpx.Response(401, text="no"), "denied access (401)"),
    (lambda _: httpx.Response(302, headers={"Location": "https://evil.example/login?a=b"}), "redirects to"),
    (lambda _: httpx.Response(200, content=b"x" * (MAX_BYTES + 1)), "more than 8 MiB"),
    (lambda _: httpx.Response(200, stream=Endless(50)), "more than 8 MiB"),
    (lambda _: httpx.Response(503, json={"status": "error", "error": "timed out"}), "Prometheus says: timed out (503)"),
    (lambda _: httpx.Response(200, text="<html>hello</html>"), "no Prometheus API there"),
]


class Endless(httpx.SyncByteStream):
    """So many MB, of which nobody should read all."""

    def __init__(self, megabytes: int) -> None:
        self._left = megabytes
        self.read = 0

    def __iter__(self) -> Any:
        for _ in range(self._left):
            self.read += 1
            yield b" " * 1_000_000
        raise AssertionError("all of it was read")


@pytest.mark.parametrize(("fault", "said"), FAULTS, ids=[said for _, said in FAULTS[:5]] + ["50 MB", "503", "HTML"])
def test_the_page_keeps_what_it_knew_and_says_what_happened_and_since_when(
    fault: Answer, said: str, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    backend, served = made()
    before = served.after(0.0).page()
    assert before["live"]
    backend.fault = fault
    first = served.after(15.0).page()
    assert (first["live"], first["answered"]) == (True, False), "numbers stay for a while, and are not said to be live"
    assert said.lower() in first["state"].lower()
    assert first["values"]["free"] == before["values"]["free"]
    for panel in ("summary", "map", "free", "wrong"):
        age = first["values"][f"{panel}_age"]
        assert age["text"] == "Values are from", "the head says why"
        assert age["time"] == NOW
    later = served.after(300.0).page()
    assert not later["live"]
    assert later["age"] == 315
    assert all(value["time"] <= NOW for name, value in later["values"].items() if name.endswith("_age")), "each says it"
    assert ENGINE in later["step"], "it names whom to look at"
    assert "daemon" not in later["step"]
    assert later["values"]["foot"]["time"] == NOW, "what stands there is of then"
    assert said in later["state"]
    values = later["values"]
    assert (values["free"], later["tables"]["free_gpus"]["order"]) == ("–", []), "nobody knows what is free now"
    assert {tile["word"] for tile in values["map"]["tiles"]} == {"unknown", "silent 10 min"}
    assert values["wrong"] == before["values"]["wrong"], "what was wrong stays, with its time"
    for panel in ("summary", "map", "free"):
        assert values[f"{panel}_age"] == {"text": "Free GPUs are unknown. Other values are from", "time": NOW}
    for page in ("node", "person"):
        assert served.page(page, id="gn001")["values"]
    backend.fault = None
    again = served.after(15.0).page()
    assert (again["live"], again["answered"], again["state"], again["step"]) == (True, True, "live", "")
    assert again["values"]["map_age"] is None
    told = json.dumps([first, later, again]) + caplog.text + "".join(capfd.readouterr())
    assert SECRET not in told
    assert "evil.example/login?a" not in told


STEPS = {
    "refuses connections": "whether Prometheus runs",
    "within 4 s": "look at its load",
    "(401)": "--prometheus-config",
    "(403)": "--prometheus-config",
    "HTTP 429": "raise its limit",
    "HTTP 500": "log of Prometheus",
    "HTTP 200": "the URL of Prometheus itself",
    "MiB": "the URL of Prometheus itself",
}
"""Words of what is wrong, and of what is said to help."""
ANSWERED: list[Answer] = [
    down, slow, lambda _: httpx.Response(401), lambda _: httpx.Response(403), lambda _: httpx.Response(429),
    lambda _: httpx.Response(500), lambda _: httpx.Response(200, text="garbage"),
    lambda _: httpx.Response(200, content=b"x" * (MAX_BYTES + 1)),
]  # fmt: skip


@pytest.mark.parametrize(("fault", "words"), [*zip(ANSWERED, STEPS, strict=True)], ids=STEPS)
def test_what_to_do_is_about_the_engine_and_the_reason_at_hand(fault: Answer, words: str) -> None:
    backend, served = made()
    served.after(0.0).page()
    backend.fault = fault
    served.after(15.0)
    told = served.after(60.0).page()
    assert words in told["state"]
    assert STEPS[words] in told["step"]
    assert ENGINE in told["step"]


def test_the_words_of_a_client_end_without_a_period_since_a_sentence_follows() -> None:
    backend, served = made()
    backend.fault = odd
    assert served.after(0.0).page()["state"] == f"cannot query Prometheus at {ENGINE}: The line broke"


def test_a_question_that_fails_alone_leaves_the_others_answered() -> None:
    backend, served = made()
    served.after(0.0).page()
    backend.broken = ("run:gpumon_gpus:listed", "user:gpumon_gpus_held")
    assert served.after(60.0).page()["answered"]
    assert served.after(1.0).page()["answered"], "a round that has nothing to ask is none without an answer"


def test_a_browser_says_at_once_that_nothing_is_answered_and_then_what_to_do(browser: Browser) -> None:
    engine = TableEngine(cluster(3))
    served = Cluster(engine).after(0.0)
    green = "getComputedStyle(document.querySelector('[data-bind=free]')).color"
    with on_server(served) as port, visit(browser, f"http://127.0.0.1:{port}/") as visitor:
        page = visitor.open("#/")
        expect(page.locator("#live")).to_contain_text("live")
        well = page.evaluate(green)
        engine.down = "Prometheus denied access (401): see --prometheus-config"
        served.after(15.0)
        page.reload()
        expect(page.locator("#live")).to_contain_text("not answered · as of")
        expect(page.locator("[data-bind=free]").first).to_have_text("4 of 16")
        assert page.evaluate(green) != well
        expect(page.locator("#problem")).to_be_hidden()
        served.after(60.0)
        page.reload()
        expect(page.locator("#live")).to_have_text("stale")
        expect(page.locator("#problem")).to_contain_text("file given by --prometheus-config")
        expect(page.locator("#problem")).not_to_contain_text("daemon")
        engine.down = ""
        served.after(15.0)
        page.reload()
        expect(page.locator("#live")).to_contain_text("live")
        assert page.evaluate(green) == well


def test_a_poller_whose_rounds_do_not_end_is_not_live() -> None:
    _, served = made()
    assert served.after(0.0).page()["live"]
    served.passed += 300.0
    told = served.page()
    assert (told["live"], told["age"]) == (False, 300)


def answering(result: object, **more: object) -> Answer:
    document: dict[str, Any] = {"status": "success", "data": {"resultType": "vector", "result": result}, **more}
    return lambda _: httpx.Response(200, content=json.dumps(document))


@pytest.mark.parametrize(
    "result",
    [[[["a"]]], [{"metric": {}}], [{"metric": {}, "value": [1, 10**400]}], [{"metric": {}, "value": [1, "many"]}]],
    ids=["lists", "no value", "beyond all numbers", "no number"],
)
def test_series_that_are_none_are_a_fault_and_not_nothing(result: object) -> None:
    backend, served = made()
    served.after(0.0)
    backend.fault = answering(result)
    told = served.after(15.0).page()["values"]
    assert told["wrong_age"] == {"text": "Values are from", "time": NOW}
    assert told["wrong"], "what was wrong before stays, with its time"


def test_a_node_that_counts_more_gpus_than_there_can_be_counts_none() -> None:
    answers = cluster(3)
    for rows in answers.values():
        rows[:] = [one for one in rows if one.labels.get("instance") == "gn001"]
    answers["gpus"] = [replace(one, value=1e308) for one in answers["gpus"]]
    assert [node.total for node in model.nodes(answers, NOW)] == [0]
    assert len(Cluster(TableEngine(answers)).after(0.0).raw()) < 100_000


@pytest.mark.parametrize("said", [f"Authorization: Bearer {SECRET} of lab", "x" * 150 + SECRET])
def test_an_engine_that_repeats_what_it_was_shown_tells_no_secret(said: str) -> None:
    backend, served = made()
    backend.fault = lambda _: httpx.Response(400, json={"status": "error", "error": said})
    assert "Prometheus says" in json.dumps(served.after(0.0).page())
    assert SECRET[:6] not in json.dumps(served.page())
    backend.fault = answering([], warnings=[said])
    assert SECRET[:6] not in json.dumps(served.after(15.0).page())


def test_an_engine_that_never_answered_shows_a_page_that_claims_nothing() -> None:
    backend, served = made()
    backend.fault = down
    found = served.after(0.0).page()
    assert found["values"]["free"] == "–"
    assert found["values"]["map"] is None
    assert found["state"] == "Prometheus at http://prom:9090 refuses connections"
    assert found["values"]["map_age"] == {"text": "No answer from Prometheus since", "time": NOW}
    assert found["values"]["wrong"] == [{"text": "Unknown."}]
    assert not found["live"]


@pytest.mark.parametrize("fault", [fault for fault, _ in FAULTS[:5]])
def test_of_an_engine_that_never_told_what_it_has_it_is_not_said_that_the_rules_are_missing(fault: Answer) -> None:
    backend, served = made()
    backend.fault = fault
    values = served.after(0.0).values()
    assert values["doubts"] is None
    assert "series" not in values["foot"]["text"]
    head, *_ = lines(served.poller.snapshot(), ENGINE, Period.WEEK)
    assert "rules" not in head
    backend.fault, backend.table.names = None, ["gpumon_gpus"]
    values = served.after(60.0).values()
    assert "rules are missing" in values["doubts"][0]["text"]


def test_a_round_gives_up_after_a_few_late_answers_and_the_next_one_tries_again() -> None:
    backend, served = made()
    served.after(0.0)
    asked: list[httpx.Request] = []

    def late(request: httpx.Request) -> httpx.Response:
        asked.append(request)
        return slow(request)

    backend.fault = late
    problems = served.after(3600.0).poller.snapshot().problems()
    assert len(asked) < 12, "of dozens"
    assert any(one.startswith("not queried") for one in problems.values())
    assert any("within 4 s" in one for one in problems.values())
    backend.fault = None
    assert served.after(15.0).poller.snapshot().problems() == {}


def test_nothing_is_free_while_it_is_not_known_which_nodes_are_silent() -> None:
    backend, served = made()
    backend.broken = ("gpumon_last_sample_timestamp_seconds offset",)
    found = served.after(0.0).page()
    values = found["values"]
    assert (values["free"], found["tables"]["free_gpus"]["order"]) == ("–", [])
    assert {tile["word"] for tile in values["map"]["tiles"]} == {"unknown"}
    for panel in ("summary", "map", "free"):
        text = values[f"{panel}_age"]["text"]
        assert text.endswith("It is unknown which nodes are silent, so no GPU counts as free, since"), text
    told = served.after(15.0).page("node", id="gn001")
    assert "Model" in json.dumps(told["values"]["facts"])
    assert "Free" not in json.dumps(told["values"]["facts"])
    assert told["tables"]["gpus"]["order"] == []


def test_each_part_fails_alone() -> None:
    backend, served = made()
    served.after(0.0)
    backend.broken = ("run:gpumon_gpus:listed", "user:gpumon_gpus_held")
    found = served.after(60.0).page()
    assert found["live"]
    ages = {name for name, value in found["values"].items() if name.endswith("_age") and value}
    assert ages == {"runs_age", "users_age"}
    assert found["values"]["runs_age"]["text"].startswith("Prometheus says: query processing would load too many")
    assert found["values"]["runs_age"]["time"] == NOW
    assert found["tables"]["runs"]["order"], "its last answer stays"


@pytest.mark.parametrize(("ahead", "said"), [(-300.0, "5 min behind"), (300.0, "5 min ahead of")])
def test_an_engine_five_minutes_off_is_asked_in_its_own_time(ahead: float, said: str) -> None:
    backend, served = made()
    backend.clock = ahead
    backend.table = TableEngine(
        {name: [replace(one, value=one.value + ahead) if name == "seen" else one for one in rows]
         for name, rows in cluster(3).items()}
    )  # fmt: skip
    values = served.after(0.0).values()
    assert any(said in one["text"] for one in values["doubts"])
    assert values["map_title"] == "3 nodes, 16 GPUs, 1 silent", "nodes are not silent because a clock is off"


def test_a_proxy_whose_clock_is_off_changes_no_time() -> None:
    backend, served = made()
    for date in ("Wed, 21 Oct 2015 07:28:00 GMT", "Fri, 31 Dec 9999 23:59:59 GMT", "noon", ""):
        backend.date = date
        values = served.after(15.0).values()
        assert values["doubts"] is None
        assert values["foot"]["time"] == NOW + served.passed


@pytest.mark.parametrize("told", [math.inf, math.nan, 1e300, "noon", []])
def test_an_engine_that_tells_no_time_is_asked_in_ours(told: object) -> None:
    backend, served = made()
    backend.time = told
    values = served.after(0.0).values()
    assert (values["foot"]["time"], values["doubts"]) == (NOW, None)


def test_a_part_that_may_be_missing_is_told() -> None:
    backend, served = made()
    partial = {"status": "success", "isPartial": True, "data": {"resultType": "vector", "result": []}}
    backend.fault = lambda _: httpx.Response(200, json=partial)
    assert "the answer lacks part of the data" in served.after(0.0).values()["free_age"]["text"]


def test_who_comes_after_a_while_without_viewers_waits_a_second_and_is_told_no_fault() -> None:
    engine = TableEngine(cluster(3))
    served = Cluster(engine).after(0.0)
    served.page()
    served.passed += 600.0
    first = served.page()
    assert (first["live"], first["state"], first["interval"]) == (False, "querying Prometheus", 1.0)
    again = served.after(1.0).page()
    assert (again["live"], again["interval"]) == (True, 15.0)
    served.passed += 600.0
    served.page()
    engine.down = "cannot ask it: no answer"
    failed = served.after(1.0).page()
    assert (failed["live"], failed["state"], failed["interval"]) == (False, engine.down, 15.0)


def test_old_numbers_are_not_live_while_the_first_round_after_a_while_without_viewers_goes_on() -> None:
    engine = AskedMidway(cluster(3))
    served = Cluster(engine).after(0.0)
    served.page()
    served.passed += 600.0
    first = served.page()
    engine.looks = served.page
    served.poller.round()
    for told in (first, *engine.seen):
        assert (told["live"], told["state"], told["age"], told["interval"]) == (False, "querying Prometheus", 600, 1.0)
    assert len(engine.seen) > 1
    assert served.page()["live"]


class AskedMidway(TableEngine):
    """A Prometheus server that notes what a viewer sees at each question of a round."""

    def __init__(self, answers: dict[str, list[PrometheusSeries]]) -> None:
        super().__init__(answers)
        self.looks: Callable[[], dict[str, Any]] | None = None
        self.seen: list[dict[str, Any]] = []

    def query(self, expression: str, at: float) -> PrometheusAnswer:
        if self.looks is not None:
            self.seen.append(self.looks())
        return super().query(expression, at)
