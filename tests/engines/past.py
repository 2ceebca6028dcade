"""Nodes in hours that are over: their ticks, what their exporters told at each scrape, and engines that have it all.

So a test of hours takes seconds, and each of its numbers is known beforehand.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain, islice
from pathlib import Path
from typing import Any, cast

from gpumon.cluster.queries import quoted
from gpumon.common.clock import SECOND
from gpumon.export.scrape import DialectOptions, Exporter
from gpumon.live import Live, LiveState
from gpumon.model.frame import Frame
from gpumon.model.origin import Driver, Origin
from gpumon.ring.sums import Sums, SumTable
from gpumon.ring.takeover import SUMS_ROOM
from gpumon.storage.usage.counters import UseMeter
from tests.builders import frame_of, tick
from tests.engines.programs import Backend, prometheus, promtool, victoria_metrics

HOUR = 3600
BEGIN = time.time() // (2 * HOUR) * 2 * HOUR - 6 * HOUR
"""Where made-up hours begin (s since 1970): Prometheus may refuse what is old, and writes its newest hours itself."""
_BOOTED = 10_000
_SAMPLE = re.compile(r"^(\w+)(?:\{(.*)\})? (\S+)$")

Second = Callable[[int], Mapping[str, Any]]
"""What the tick of the given second has: fields of `builders.tick`."""


class PastNode:
    """A node whose daemon samples each second; stands for the `Live` that its exporter reads."""

    def __init__(self, second: Second) -> None:
        self._second = second
        self._meter: UseMeter | None = None
        self._tick = tick()

    def pass_to(self, second: int) -> None:
        """Take the tick of a second."""
        time_ns = round((BEGIN + second) * SECOND)
        self._tick = tick(**{"time_ns": time_ns, "monotonic_ns": (_BOOTED + second) * SECOND, **self._second(second)})
        if self._meter is None:
            self._meter = UseMeter(None, time_ns, SUMS_ROOM)
        self._meter.add(self._tick)

    def restart(self) -> None:
        """Let another daemon go on from what the last one left, as one does from its ring."""
        self._meter = UseMeter(self.sums(), 0, SUMS_ROOM)

    def latest(self) -> Frame:
        return frame_of(self._tick)

    def sums(self) -> Sums:
        assert self._meter is not None
        number, names, times, rows = self._meter.record()
        values = chain.from_iterable(rows)
        tables = {
            name: SumTable(columns, {key: tuple(islice(values, len(columns))) for key in keys})
            for name, (columns, keys) in names.tables.items()
        }
        return Sums(number, *times, tables)

    def state(self) -> LiveState:
        return LiveState(True, "live", 1.0, 0.0, self.latest().time)

    def version(self) -> str:
        return "1.0"

    def driver(self) -> Driver:
        return Driver("570.86.15")

    def origin(self) -> Origin:
        return Origin("nvml")

    def hostname(self) -> str:
        return "node1"


def scraped(
    second: Second, seconds: int, every: Mapping[str, int], *, lost: Sequence[int] = (), restarts: Sequence[int] = (),
    dialect: str = "native", options: DialectOptions | None = None, cluster: str = "",
) -> Iterator[tuple[str, float]]:  # fmt: skip
    """Yield each line of each scrape, with its time: from a node scraped as several `instance`s each so many seconds.

    In seconds that are `lost` no scrape arrives; before each of `restarts` daemon and exporter begin anew. `cluster` is
    a label that the scrape adds.
    """
    node = PastNode(second)
    exporter = Exporter(cast(Live, node), dialect, options)
    for passed in range(seconds + 1):
        if passed in restarts:
            node.restart()
            exporter = Exporter(cast(Live, node), dialect, options)
        node.pass_to(passed)
        due = [instance for instance, interval in every.items() if passed % interval == 0 and passed not in lost]
        if not due:
            continue
        told = exporter.scrape().decode().splitlines()
        for instance in due:
            for line in told:
                if not line.startswith("#"):
                    yield _labeled(line, instance, cluster), BEGIN + passed


@contextmanager
def prometheus_of(
    directory: Path, told: Sequence[tuple[str, float]], rules: Sequence[Path] = (), interval: str = "1s"
) -> Iterator[Backend]:
    """A Prometheus that scraped these lines; `rules` were evaluated all the time, `interval` is that of subqueries."""
    directory.mkdir(parents=True, exist_ok=True)
    data, text = directory / "data", directory / "scraped.txt"
    text.write_text("".join(f"{line} {at:.3f}\n" for line, at in told) + "# EOF\n")
    begin, end = min(at for _, at in told), max(at for _, at in told)
    # It reads all lines anew for each block, which is one of two hours unless it is told otherwise.
    long = ["--max-block-duration=162h"] if end - begin >= 24 * HOUR else []
    done = promtool("tsdb", "create-blocks-from", *long, "openmetrics", "--quiet", text, data)
    assert done.returncode == 0, done.stderr
    for path in rules:
        with prometheus(directory, data=data) as running:
            done = promtool(
                "tsdb", "create-blocks-from", *long, "rules",
                f"--start={begin:.0f}", f"--end={end:.0f}", f"--url={running.url}", f"--output-dir={data}", path,
            )  # fmt: skip
            assert done.returncode == 0, done.stderr
    with prometheus(directory, data=data, interval=interval) as running:
        yield running


@contextmanager
def victoria_metrics_of(directory: Path, told: Sequence[tuple[str, float]]) -> Iterator[Backend]:
    """A VictoriaMetrics that scraped these lines."""
    with victoria_metrics(directory) as running:
        running.post("api/v1/import/prometheus", "".join(f"{line} {at * 1000:.0f}\n" for line, at in told).encode())
        running.get("internal/force_flush")
        yield running


@contextmanager
def recorded_by_both(
    directory: Path, told: Sequence[tuple[str, float]], rules: Sequence[Path]
) -> Iterator[tuple[Backend, Backend]]:
    """A Prometheus that evaluated rules, and a VictoriaMetrics that has what it recorded."""
    begin, end = min(at for _, at in told), max(at for _, at in told)
    with prometheus_of(directory / "prometheus", told, rules) as first:
        query = f'{{__name__=~".+:gpumon_.+"}}[{end - begin + 60:.0f}s]'
        series = first.get("api/v1/query", query=query, time=f"{end:.3f}")["data"]["result"]
        recorded = [
            (f"{name}{{{','.join(f'{label}={quoted(text)}' for label, text in labels.items())}}} {value}", float(at))
            for one in series
            for labels in [dict(one["metric"])]
            for name in [labels.pop("__name__")]
            for at, value in one["values"]
        ]
        with victoria_metrics_of(directory / "victoria-metrics", [*told, *recorded]) as second:
            yield first, second


def _labeled(line: str, instance: str, cluster: str) -> str:
    found = _SAMPLE.match(line)
    assert found, line
    name, labels, value = found.groups()
    own = f'job="gpumon",instance="{instance}"' + (f',cluster="{cluster}"' if cluster else "")
    return f"{name}{{{own}{',' + labels if labels else ''}}} {value}"
