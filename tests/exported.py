"""An exporter over a ring in memory: what a scrape says of ticks that a test has made."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping

from prometheus_client.parser import text_string_to_metric_families

from gpumon.common.clock import SECOND
from gpumon.daemon.recorder import UsageCounters
from gpumon.export.scrape import DialectOptions, Exporter
from gpumon.export.snapshot import UserNames
from gpumon.live import Live, LiveState
from gpumon.model.frame import Tick
from gpumon.ring.layout import RUNNING
from gpumon.ring.writer import RingWriter

Labels = frozenset[tuple[str, str]]


class Heard(Live):
    """A reader of a daemon that is never silent before it is stopped, however slow a test is."""

    def __init__(self, ring: Callable[[], RingWriter], generation: Callable[[], int]) -> None:
        super().__init__(lambda: os.dup(ring().fd), generation=generation)
        self._ring = ring

    def state(self) -> LiveState:
        found = self.heartbeat()
        if found is not None and found.state == RUNNING:
            self._ring().heartbeat()  # as a daemon would have meanwhile
        return super().state()


class Node:
    """A machine whose daemon lives in this process, and has no thread."""

    def __init__(self, devices: int = 4) -> None:
        self.ring = RingWriter.private(devices, SECOND, 64)
        self._generation = 0
        self.live = Heard(lambda: self.ring, generation=lambda: self._generation)
        self._counter = UsageCounters(lambda: self.ring)

    def add(self, ticks: Iterable[Tick]) -> None:
        for one in ticks:
            self.ring.append(one)
            self._counter.add(one)

    def restart(self) -> None:
        """Kill the daemon, and start another one that takes the ring over."""
        old = self.ring
        self.ring = RingWriter.private(4, SECOND, 64, former=old.fd)
        old.close()
        self._generation += 1
        self._counter = UsageCounters(lambda: self.ring)

    def exporter(self, dialect: str = "native", users: UserNames = UserNames.NAME, **options: str) -> Exporter:
        return Exporter(self.live, dialect, DialectOptions(users, **options))

    def close(self) -> None:
        self.live.close()
        self.ring.close()


class Page:
    """Samples of a text for Prometheus, as its own client library reads them."""

    def __init__(self, text: bytes) -> None:
        self.families = {one.name: one for one in text_string_to_metric_families(text.decode())}
        self.samples: dict[str, dict[Labels, float]] = {}
        for family in self.families.values():
            for one in family.samples:
                series = self.samples.setdefault(one.name, {})
                labels = frozenset(one.labels.items())
                assert labels not in series, f"{one.name}{one.labels} is there twice"
                series[labels] = one.value

    def value(self, name: str, **labels: str) -> float:
        """The one sample of this name that has these labels."""
        (found,) = self.values(name, **labels)
        return found

    def values(self, name: str, **labels: str) -> list[float]:
        wanted = set(labels.items())
        return [value for found, value in self.samples.get(name, {}).items() if wanted <= found]

    def labels(self, name: str) -> list[Mapping[str, str]]:
        return [dict(found) for found in self.samples.get(name, {})]


def scraped(node: Node, dialect: str = "native", users: UserNames = UserNames.NAME, **options: str) -> Page:
    return Page(node.exporter(dialect, users, **options).scrape())
