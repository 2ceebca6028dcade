"""A scrape of `gpumon export` beside one of nvitop-exporter: 8 GPUs and 40 processes of the stub driver.

Both are scraped as Prometheus does it (its headers, gzip, a kept connection), in turn. First in bursts, whose CPU is
that of scrapes alone: of nvitop-exporter one right after the other, since it reads the driver by itself once a second;
of ours with a new frame each time, since it keeps lines whose values have not changed. Then once a second for a window,
with all that they do in between. Our exporter has a control file of its own beside the daemon's: each driver call that
it made would be counted there. Last, the ticks that the daemon skips while ours is scraped fifty times a second.
"""

from __future__ import annotations

import gzip
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from http.client import HTTPConnection
from statistics import median
from typing import NamedTuple

from benchmarks.report import Budget, Result, number, times
from benchmarks.stage import Effort, Place, Stage, background, tool
from benchmarks.usage import cpu_seconds, memory
from gpumon.common.paths import Places
from gpumon.live import follow
from tests.programs import command, daemon, until

OURS, NVITOP = "gpumon export", "nvitop-exporter"
_HEADERS = {
    "Accept": "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,"
    "text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
    "Accept-Encoding": "gzip",
    "X-Prometheus-Scrape-Timeout-Seconds": "10",
}
_BURST = 10
"""Scrapes in a row."""
_FRAMES = 0.05
"""Seconds between frames."""
_CROWD, _CROWDED = 50, 10.0
"""Scrapes a second, and seconds for which there are so many."""


class Scraper(NamedTuple):
    """An exporter that is scraped."""

    pid: int
    connection: HTTPConnection
    pause: float = 0.0
    """Seconds between two scrapes of a burst."""

    def scrape(self) -> bytes:
        """Return the body of an answer, as it came."""
        self.connection.request("GET", "/metrics", headers=_HEADERS)
        answer = self.connection.getresponse()
        body = answer.read()
        if answer.status != 200 or answer.getheader("Content-Encoding") != "gzip":
            raise RuntimeError(f"{answer.status}: {body[:200]!r}")
        return body

    def burst(self, scrapes: int) -> float:
        """Return CPU seconds of each of so many scrapes in a row."""
        begun = cpu_seconds(self.pid)
        for _ in range(scrapes):
            self.scrape()
            time.sleep(self.pause)
        return (cpu_seconds(self.pid) - begun) / scrapes


def measure(stage: Stage, effort: Effort) -> Result:
    """Scrape both in turn, in bursts and once a second."""
    place, apart = stage.place("exported"), stage.place("exporter")
    with ExitStack() as stack:
        stack.enter_context(daemon("--interval", _FRAMES, env=place.env))
        watching = apart._replace(env={**apart.env, "GPUMON_DIR": str(place.live)})
        words = command("export", "--listen")
        ours = stack.enter_context(_exporting(words, "127.0.0.1:{port}", watching))
        scrapers = {OURS: ours._replace(pause=2 * _FRAMES)}
        rooms = {OURS: apart}
        if found := tool("nvitop-exporter"):
            rooms[NVITOP] = stage.place("nvitop-exporter")
            begin = [found, "--bind-address", "127.0.0.1", "--interval", "1", "--port"]
            scrapers[NVITOP] = stack.enter_context(_exporting(begin, "{port}", rooms[NVITOP]))
        until(lambda: b"gpumon_user_held_seconds" in gzip.decompress(scrapers[OURS].scrape()))
        bursts: dict[str, list[float]] = {name: [] for name in scrapers}
        for _ in range(effort.times(30)):
            for name, one in scrapers.items():
                bursts[name].append(one.burst(_BURST))
        each_second = _each_second(scrapers, effort.seconds)
        bodies = {name: one.scrape() for name, one in scrapers.items()}
        sizes = {name: memory(one.pid)[0] for name, one in scrapers.items()}
        skipped = _skipped_by_a_crowd(ours, place)
        calls = {name: sum(room.stub.calls().values()) for name, room in rooms.items()}

    cpu = {name: median(found) for name, found in bursts.items()}
    result = Result(
        "A scrape of the exporter",
        ("program", "CPU ms a scrape", "ours is 1", "once a second", "bytes", "compressed", "RSS MB", "driver calls"),
    )
    for name in scrapers:
        result.rows.append(
            (
                name, number(cpu[name] * 1e3), times(cpu[name], cpu[OURS]), number(each_second[name] * 1e3),
                str(len(gzip.decompress(bodies[name]))), str(len(bodies[name])), f"{sizes[name]:.1f}",
                str(calls[name]),
            )
        )  # fmt: skip
    if NVITOP in cpu:
        result.budgets.append(Budget("CPU of a scrape beside nvitop-exporter", cpu[OURS] / cpu[NVITOP], 0.3, "×"))
    result.budgets += [
        Budget("CPU of a scrape", cpu[OURS] * 1e3, 6, " ms"),
        Budget("bytes of a scrape, compressed", len(bodies[OURS]) / 1e3, 12, " kB"),
        Budget("memory (RSS)", sizes[OURS], 45, " MB"),
        Budget("driver calls that scrapes caused", calls[OURS], 0),
        Budget(f"ticks that the daemon skips in {_CROWDED:g} s of {_CROWD} scrapes a second", skipped, 0),
    ]
    result.notes.append("Once a second: CPU ms a scrape with all that a program does in between.")
    return result


@contextmanager
def _exporting(words: list[str], address: str, place: Place) -> Iterator[Scraper]:
    """An exporter on a free port, ready to be scraped, for the length of a block."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with background([*words, address.format(port=port)], place) as process:
        until(lambda: _answers(port))
        with closing(HTTPConnection("127.0.0.1", port, timeout=60)) as connection:
            yield Scraper(process.pid, connection)


def _answers(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1):
            return True
    except OSError:
        return False


def _skipped_by_a_crowd(ours: Scraper, place: Place) -> int:
    """Ticks that the daemon of `place` skips more than in a quiet time as long, while it is scraped often."""
    live = follow(Places(explicit=str(place.live)))

    def skipped() -> int:
        frame = live.latest()
        assert frame is not None, "the daemon samples while it is measured"
        return frame.skipped_ticks

    begun = skipped()
    time.sleep(_CROWDED)
    quiet, due = skipped() - begun, time.monotonic()
    for place_in_time in range(round(_CROWD * _CROWDED)):
        ours.scrape()
        time.sleep(max(0.0, due + (place_in_time + 1) / _CROWD - time.monotonic()))
    return max(0, skipped() - begun - 2 * quiet)


def _each_second(scrapers: dict[str, Scraper], seconds: float) -> dict[str, float]:
    """CPU seconds of a scrape of each, scraped once a second for so long."""
    begun = {name: cpu_seconds(one.pid) for name, one in scrapers.items()}
    rounds = max(3, round(seconds))
    due = time.monotonic()
    for _ in range(rounds):
        for one in scrapers.values():
            one.scrape()
        due += 1.0
        time.sleep(max(0.0, due - time.monotonic()))
    return {name: (cpu_seconds(one.pid) - begun[name]) / rounds for name, one in scrapers.items()}
