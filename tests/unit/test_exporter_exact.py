"""Exactness of counters at any scrape interval, on a clock that is simulated; a plain gauge misses what they tell."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from statistics import fmean

import pytest

from gpumon.export.usage import NEW_USER_SECONDS
from gpumon.model.frame import Sample, Tick
from gpumon.model.process import Process
from tests.builders import device, process, sample, tick
from tests.exported import Node, Page

GIB = 2.0**30
HALF = 7
"""Seconds for which a GPU works, and then as many for which it does not."""
HOUR = 3600
INTERVALS = (15, 30, 60)
"""Seconds between scrapes."""
WINDOW = 300
"""Seconds of `rate(...[5m])`."""
OFFSET = 3
"""Seconds from the begin of an interval to its scrape."""
HELD = {"memory_used": 8 * GIB, "memory_total": 80 * GIB}


@pytest.fixture
def node() -> Iterator[Node]:
    found = Node()
    yield found
    found.close()


@dataclass
class ScrapeLog:
    """Scrapes of an exporter, by the second at which each was made."""

    pages: dict[int, Page]

    def growth(self, name: str, begin: int, end: int, **labels: str) -> float:
        """By how much counters have grown, all of these labels together."""
        return sum(self.pages[end].values(name, **labels)) - sum(self.pages[begin].values(name, **labels))

    def thinned(self, every: int) -> ScrapeLog:
        """What a server gets that scrapes at this interval, in seconds."""
        return ScrapeLog({second: page for second, page in self.pages.items() if second % every == OFFSET})

    def windows(self) -> list[tuple[int, int]]:
        """All windows that begin and end with a scrape."""
        return [(begin, begin + WINDOW) for begin in self.pages if begin + WINDOW in self.pages]


def wave(second: int) -> float:
    return 1.0 if second // HALF % 2 == 0 else 0.0


def gpu(second: int, index: int = 0) -> Sample:
    return sample(index, utilization=wave(second), energy=100.0 * second, **HELD)


def scraped_often(node: Node, ticks: Iterable[Tick]) -> ScrapeLog:
    """Ticks of a second each, scraped every 15 seconds."""
    exporter = node.exporter()
    pages = {}
    for second, one in enumerate(ticks, 1):
        node.add([one])
        if second % 15 == OFFSET:
            pages[second] = Page(exporter.scrape())
    return ScrapeLog(pages)


def test_the_mean_of_a_square_wave_is_that_of_all_frames_and_a_gauge_misses_it(node: Node) -> None:
    often = scraped_often(node, (tick(second, [gpu(second)], [process()]) for second in range(1, HOUR + 1)))
    for every in INTERVALS:
        found = often.thinned(every)
        windows = found.windows()
        assert len(windows) >= 40
        misses, gauges = [], []
        for begin, end in windows:
            truth = fmean(wave(second) for second in range(begin, end))
            counted = found.growth("gpumon_gpu_utilization_seconds_total", begin, end)
            observed = found.growth("gpumon_gpu_utilization_observed_seconds_total", begin, end)
            misses.append(abs(counted / observed / truth - 1))
            seen = [found.pages[at].value("gpumon_gpu_utilization_ratio") for at in found.pages if begin < at <= end]
            gauges.append(abs(fmean(seen) / truth - 1))
        assert max(misses) <= 0.005
        assert max(gauges) > 0.05, "the gauge has seen one second of each interval"


def test_lost_scrapes_a_killed_daemon_and_a_new_exporter_lose_what_nobody_sampled_alone(node: Node) -> None:
    killed, back = 1000, 1007
    pages = {}
    exporter = node.exporter()
    for second in range(1, HOUR + 1):
        if killed <= second < back:
            continue  # no daemon
        if second == back:
            node.restart()
            exporter = node.exporter()
        node.add([tick(second, [gpu(second)], [process()])])
        if second % 15 == OFFSET and second not in (63, 78, 93):
            pages[second] = Page(exporter.scrape())
    found = ScrapeLog(pages)
    begin, end = min(at for at in pages if at > NEW_USER_SECONDS + 1), max(pages)
    nobody = back - killed + 1
    for name in ("gpumon_gpu_observed_seconds_total", "gpumon_user_held_seconds_total"):
        assert found.growth(name, begin, end) == pytest.approx(end - begin - nobody)
    truth = sum(wave(second) for second in range(begin, end) if not killed - 1 <= second < back)
    assert found.growth("gpumon_gpu_utilization_seconds_total", begin, end) == pytest.approx(truth)
    last = 0.0
    for page in pages.values():
        now = page.value("gpumon_gpu_observed_seconds_total")
        assert now >= last, "it never begins anew, so that rate() sees no reset"
        last = now


def test_gpu_hours_of_two_users_add_up_to_the_held_time(node: Node) -> None:
    """Ann and Bob share GPU 0 now and then; GPU 1 is Ann's, and GPU 2 is free half of the time."""

    def here(second: int) -> list[Process]:
        found = [process(1, user="ann", sm_utilization=0.5), process(3, index=1, user="ann")]
        if second % 100 < 60:
            found.append(process(2, user="bob", sm_utilization=0.1))
        if second < HOUR // 2:
            found.append(process(4, index=2, user="bob"))
        return found

    def ticks() -> Iterator[Tick]:
        for second in range(1, HOUR + 1):
            empty = sample(2, utilization=0.0, memory_used=0.0, memory_total=80 * GIB)
            third = gpu(second, 2) if second < HOUR // 2 else empty
            yield tick(second, [gpu(second), gpu(second, 1), third], here(second))

    found = scraped_often(node, ticks())
    begin, end = min(at for at in found.pages if at > NEW_USER_SECONDS + 1), max(found.pages)
    held = found.growth("gpumon_gpu_held_seconds_total", begin, end)
    hours = {
        user: found.growth("gpumon_user_held_share_seconds_total", begin, end, user=user) for user in ("ann", "bob")
    }
    assert held == pytest.approx(2 * (end - begin) + HOUR / 2 - begin, rel=0.01)
    assert sum(hours.values()) == pytest.approx(held, rel=0.01)
    alone = sum(second % 100 >= 60 for second in range(begin, end))
    assert hours["ann"] == pytest.approx((end - begin) + alone + (end - begin - alone) / 2)
    whole = found.growth("gpumon_user_held_seconds_total", begin, end, user="ann", uuid=device(0).uuid)
    assert whole == pytest.approx(end - begin), "who shares a GPU holds it the whole time"
    busy = found.growth("gpumon_gpu_busy_seconds_total", begin, end, uuid=device(0).uuid)
    assert found.growth("gpumon_user_busy_seconds_total", begin, end, uuid=device(0).uuid) == pytest.approx(busy)
    energy = found.growth("gpumon_gpu_accounted_energy_joules_total", begin, end, uuid=device(0).uuid)
    assert found.growth("gpumon_user_energy_joules_total", begin, end, uuid=device(0).uuid) == pytest.approx(energy)
    assert energy == pytest.approx(100 * (end - begin))


def test_hours_of_users_who_come_and_go_are_whole_for_who_counts_from_the_first_sample(node: Node) -> None:
    """A server does: of a series that begins with 50 s it counts nothing of these."""

    def ticks() -> Iterator[Tick]:
        empty = sample(0, utilization=0.0, memory_used=0.0, memory_total=80 * GIB)
        for second in range(1, 900 + round(NEW_USER_SECONDS) + 60):
            user = "short" if 600 <= second < 610 else f"user{second // 180}"  # one holds it while nobody looks
            yield tick(second, *(([gpu(second)], [process(user=user)]) if second < 900 else ([empty],)))

    often = scraped_often(node, ticks())
    for every in INTERVALS:
        names = {"gpumon_user_held_seconds_total": 0.0, "gpumon_user_energy_joules_total": 0.0}
        last: dict[tuple[str, str], float] = {}
        for page in often.thinned(every).pages.values():
            for name in names:
                for labels in page.labels(name):
                    key, value = (name, labels["user"]), page.value(name, **labels)
                    assert value >= last.get(key, 0.0), "one that falls would be counted twice"
                    names[name] += value - last.get(key, value)
                    last[key] = value
        assert {user for _, user in last} == {"short", *(f"user{number}" for number in range(5))}
        assert names["gpumon_user_held_seconds_total"] == pytest.approx(899)
        assert page.value("gpumon_gpu_held_seconds_total") == pytest.approx(899)
        assert names["gpumon_user_energy_joules_total"] == pytest.approx(100 * 898, abs=100)
