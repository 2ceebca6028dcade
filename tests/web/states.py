"""States of a machine that pages have designs for, and which the matrix has not: each served as people serve it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gpumon.common.clock import SECOND
from gpumon.common.privacy import EVERYBODY, HASHED, People
from gpumon.model.frame import Run, RunState, Sample, Tick
from gpumon.model.metrics import HOST_METRICS, Availability
from gpumon.model.origin import RECORDED, Origin
from gpumon.model.process import Process
from tests.activity import keep
from tests.builders import device, process, run, sample, tick
from tests.runs import Book, training
from tests.web.conftest import on_a_port
from tests.web.served import Served
from tests.web.sources import GIB, LISTS, OF_GPUS, OF_RUNS, Opened, places

GPUS = 8
DAYS = 9
STEP = 300
DOWN = range(5 * 86400, 5 * 86400 + 14 * 3600)
"""Seconds of the lab's days in which no daemon ran."""
KEY = "tag.1000.40211.abcd"
_KNOWN = {"host.cpu_utilization": 0.23, "host.memory_used": 207 * GIB, "host.memory_total": 1007 * GIB,
          "host.swap_used": 0.0, "host.swap_total": 0.0, "host.load": 15.2}  # fmt: skip
HOST = [_KNOWN.get(metric.name, 4e11) for metric in HOST_METRICS]
"""The machine's own numbers; its counters stand still."""


def free(index: int) -> Sample:
    """A GPU that nobody has."""
    return sample(index, utilization=0.0, memory_used=0.0, memory_total=80 * GIB, power=70.0, power_limit=700.0,
                  temperature=31.0)  # fmt: skip


def works(index: int, use: float, gib: float, key: str = "", state: Availability = Availability.OK) -> Sample:
    """One that is held, and works as much."""
    return sample(index, state, key, utilization=use, memory_used=gib * GIB, memory_total=80 * GIB, power_limit=700.0,
                  power=110 + 540 * use, temperature=36 + 30 * use)  # fmt: skip


def held(second: int) -> dict[int, tuple[str, float]]:
    """User and utilization of each GPU that is held, at a second of the lab's days."""
    day, hour = second // 86400, second // 3600 % 24
    found = {6: ("dave", 0.0)} if day > 2 else {}
    if hour >= 8 or day % 3 == 0:
        found |= dict.fromkeys(range(2 if day % 2 else 4), ("alice", 0.94))
    if 9 <= hour < 19:
        found[4] = ("carol", 0.25 if hour % 3 else 0.0)
    if day % 4 != 3:
        found[5] = ("bob", 0.62)
    return found


def wavering(use: float, time: float) -> float:
    """A utilization that drops for some seconds of each two minutes, as at the end of an epoch."""
    return 0.15 if use > 0.5 and time % 120 > 112 else max(0.0, use - 0.03 * (time % 7) / 7)


def lab_tick(number: int, second: int, now: float, interval: int = 1) -> Tick:
    """A tick of the lab, `second` s after its first day began."""
    who = held(second)
    training_now = run(
        KEY, id="llama-8b-sft-7f3a", name="llama-8b-sft", pid=40211, user="alice", epoch=14, epochs=40, step=18410,
        gpus=tuple(device(index).uuid for index, (user, _) in who.items() if user == "alice"),
        started=now - 11_000, framework="torch",
    )  # fmt: skip
    runs: list[Run] = [training_now] if who.get(0) else []
    samples = [works(index, wavering(who[index][1], now + 7 * index), 12.0 + 9 * index,
                     KEY if index < 4 and runs else "") if index in who
               else free(index) for index in range(GPUS)]  # fmt: skip
    on_it: list[Process] = [
        process(40211 + index, index, user=user, name="python", run=KEY if user == "alice" else "", memory_used=
                (12.0 + 9 * index) * GIB, sm_utilization=use) for index, (user, use) in who.items()
    ]  # fmt: skip
    return tick(number, samples, on_it, runs, time_ns=round(now * SECOND), monotonic_ns=(50 + second) * SECOND,
                interval_ns=interval * SECOND, hostname="atlas-03", host=HOST)  # fmt: skip


def lab_served(directory: Path, people: People = EVERYBODY, length: int = 590) -> Served:
    """The lab: eight GPUs, five people, nine days of history with a gap, past runs."""
    now = time.time() // STEP * STEP
    begin = now - DAYS * 86400
    past = (lab_tick(1, second, begin + second, STEP) for second in range(0, DAYS * 86400, STEP) if second not in DOWN)
    keep(directory / "history.sqlite", past)
    with Book(directory) as book:
        for number, (name, user) in enumerate((("llama-8b-sft", "alice"), ("resnet50", "bob"), ("vit-l", "carol"))):
            training(book, f"{name}-{number}a2b", 12 - 3 * number, seed=number, user=user, name=name,
                     began=now - 86400 * (number + 1), utilization=0.9 - number / 5)  # fmt: skip
        training(book, "bert-9c1d", 4, name="bert", user="bob", state=RunState.FAILED, began=now - 40_000)
    last = DAYS * 86400 - length
    ticks = [lab_tick(number, last + number, now - length + number) for number in range(1, length)]
    histories = [str(directory / "history.sqlite")]
    served = Served(ticks, [str(book.path)], devices=GPUS, histories=histories, people=people)
    served.now = now
    return served


@contextmanager
def lab(directory: Path) -> Iterator[Opened]:
    """The lab as it is."""
    with on_a_port(lab_served(directory)) as link:
        found = places(OF_RUNS, "llama-8b-sft-0a2b", "resnet50-1a2b")
        yield Opened(link, {**found, "user": "#/users?user=alice", "month": "#/users?period=month"})


@contextmanager
def hashed(directory: Path) -> Iterator[Opened]:
    """The lab with hashes in place of names."""
    with on_a_port(lab_served(directory, People(HASHED, b"salt"))) as link:
        yield Opened(link, places(OF_RUNS, "llama-8b-sft-0a2b", "resnet50-1a2b"))


@contextmanager
def stale(directory: Path) -> Iterator[Opened]:
    """The lab, whose daemon has been silent for a while."""
    served = lab_served(directory)
    served.live.age = 42.0
    with on_a_port(served) as link:
        yield Opened(link, places(OF_RUNS, "llama-8b-sft-7f3a", "resnet50-1a2b"))


@contextmanager
def lost(directory: Path) -> Iterator[Opened]:
    """Four GPUs: one fell off the bus, one does not answer, one is asleep."""
    del directory
    bad = {1: Availability.LOST, 2: Availability.STALE, 3: Availability.ASLEEP}
    before = [tick(n, [works(index, 0.9, 60) for index in range(4)], [process(7, 0, user="ada"), process(8, 1)])
              for n in range(1, 50)]  # fmt: skip
    after = [tick(n, [works(index, 0.9, 60, "", bad.get(index, Availability.OK)) for index in range(4)],
                  [process(7, 0, user="ada")]) for n in range(50, 90)]  # fmt: skip
    with on_a_port(Served([*before, *after], devices=4)) as link:
        yield Opened(link, places(OF_GPUS, gpu="1"))


@contextmanager
def idle(directory: Path) -> Iterator[Opened]:
    """Eight GPUs that nobody uses."""
    del directory
    with on_a_port(Served([tick(n, [free(index) for index in range(8)]) for n in range(1, 90)], devices=8)) as link:
        yield Opened(link, places(OF_GPUS))


@contextmanager
def ended(directory: Path) -> Iterator[Opened]:
    """A recording that has ended."""
    del directory
    origin = Origin("replay", "REPLAY night.csv.gz", ended=True, capabilities=RECORDED)
    ticks = [tick(n, [works(index, 0.9, 60) for index in range(2)] + [free(2)], origin=origin) for n in range(1, 90)]
    with on_a_port(Served(ticks, devices=3)) as link:
        yield Opened(link, places(OF_GPUS))


@contextmanager
def waiting(directory: Path) -> Iterator[Opened]:
    """A daemon that has not sampled yet."""
    del directory
    with on_a_port(Served(devices=2)) as link:
        yield Opened(link, places(LISTS))


STATES = {one.__name__: one for one in (lab, hashed, stale, lost, idle, ended, waiting)}
