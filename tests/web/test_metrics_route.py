"""`/metrics` of the browser view: behind the gate, in the format that is asked for, with names as pages have them."""

from __future__ import annotations

import gzip
from collections.abc import Iterator

import pytest

from gpumon.common.privacy import HASHED, HIDDEN, SHOWN, SOMEBODY, People
from gpumon.daemon.recorder import UsageCounters
from gpumon.export.exposition import CONTENT_TYPE
from tests.builders import device, process, run, sample, tick
from tests.exported import Page
from tests.web.served import Served

ANN, BOB = "annabella", "bobadilla"
TICKS = [
    tick(
        n,
        [sample(0, utilization=0.9, energy=100.0 * n, memory_used=2.0**33, memory_total=2.0**36)],
        [process(1, user=ANN, sm_utilization=0.3), process(2, user=BOB, sm_utilization=0.1)],
        [run(user=ANN, name=f"{ANN}-net", id=f"{ANN}-1", gpus=(device().uuid,), epoch=3)],
    )
    for n in range(1, 142)
]


def served(people: People) -> Served:
    """A server whose daemon keeps counters of use."""
    found = Served(people=people)
    counter = UsageCounters(lambda: found.writer)
    for one in TICKS:
        found.writer.append(one)
        counter.add(one)
    return found


@pytest.fixture(scope="module")
def shown() -> Iterator[Served]:
    found = served(People())
    yield found
    found.live.close()


def page_of(one: Served) -> Page:
    answer = one.client().get("/metrics")
    assert answer.status_code == 200
    return Page(answer.data)


def test_metrics_are_behind_the_gate(shown: Served) -> None:
    assert shown.client(token=False).get("/metrics").status_code == 401
    assert shown.client().get("/metrics").status_code == 200
    assert shown.client().get("/metrics/x").status_code == 404
    assert shown.client().get("/metricsx").status_code == 404
    assert shown.client().post("/metrics").status_code == 405


def test_metrics_are_what_the_exporter_tells(shown: Served) -> None:
    page = page_of(shown)
    assert page.value("gpumon_up") == 1
    assert page.value("gpumon_gpu_utilization_ratio") == 0.9
    assert page.value("gpumon_user_held_seconds_total", user=ANN) == 140
    assert page.value("gpumon_user_energy_joules_total", user=BOB) == pytest.approx(3500)


def test_a_scraper_gets_compressed_text(shown: Served) -> None:
    answer = shown.client().get("/metrics", headers={"Accept-Encoding": "gzip"})
    assert answer.content_type == CONTENT_TYPE
    assert answer.headers["Content-Encoding"] == "gzip"
    assert Page(gzip.decompress(answer.data)).value("gpumon_up") == 1


@pytest.mark.parametrize("way", [HASHED, HIDDEN, SHOWN])
def test_names_are_those_of_the_pages(way: str) -> None:
    people = People(way, b"salt")
    one = served(people)
    answer = one.client().get("/metrics")
    page = Page(answer.data)
    told = {labels["user"] for name in page.samples for labels in page.labels(name) if "user" in labels}
    assert told == {people.name(ANN), people.name(BOB)}
    assert (ANN.encode() in answer.data) is (way == SHOWN)
    if way == HIDDEN:
        assert page.value("gpumon_user_held_seconds_total", user=SOMEBODY) == 280
        assert page.value("gpumon_user_busy_seconds_total", user=SOMEBODY) == pytest.approx(140)
    one.live.close()
