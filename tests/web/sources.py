"""Sources of the matrix: whatever a page may be about, from an empty machine to a month, served as people serve it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from math import nan
from pathlib import Path
from typing import Any, NamedTuple

from gpumon.common.clock import SECOND
from gpumon.model.frame import RunState, Sample
from gpumon.model.origin import Origin
from gpumon.storage.history.tiers import SHAPES
from tests.activity import keep
from tests.builders import device, process, run, sample, tick
from tests.months import fill
from tests.nvml import Stub, build, sleepers
from tests.programs import daemon, environment, status
from tests.runs import BEGAN, Book, training
from tests.web.conftest import on_a_port, own_places, web
from tests.web.served import Served

GIB = 2.0**30
RECORDINGS = Path(__file__).parents[3] / "shared" / "recordings"
"""Logs of real trainings, beside the checkout where somebody has them."""
RECORDING = "h100x8-llama3-8b-ckpt100.csv.gz"
SECONDS = 60
_CACHE = Path(__file__).parents[2] / ".cache"


class Opened(NamedTuple):
    """A server with a source."""

    link: str
    places: Mapping[str, str]
    """Addresses of its pages behind the link, by the page's name."""
    status: Callable[[], dict[str, Any]] | None = None
    """The words of `gpumon status --json`, of a source that stands still: they are of the tick that the page shows."""


class MatrixSource(NamedTuple):
    """A source by its name."""

    name: str
    pages: frozenset[str]
    """Those that have something to show, or say that there is nothing."""
    open: Callable[[Path], AbstractContextManager[Opened]]
    needs: Path | None = None
    """A file without which it cannot be."""


LISTS = frozenset(("fleet", "runs", "users", "events"))
"""Pages that any machine has."""
OF_GPUS = LISTS | {"gpu"}
OF_RUNS = OF_GPUS | {"run", "compare"}


def places(pages: frozenset[str], run_id: str = "", other: str = "", gpu: str = "0") -> dict[str, str]:
    """Addresses of pages."""
    special = {"gpu": f"#/gpu/{gpu}", "run": f"#/run/{run_id}", "compare": f"#/compare?runs={run_id},{other}"}
    return {page: special.get(page, f"#/{page}") for page in pages}


def working(index: int, key: str = "", **values: float) -> Sample:
    """A GPU in use."""
    return sample(index, run=key, **{
        "utilization": 0.1 + index % 9 / 10, "memory_used": (8 + index) * GIB, "memory_total": 80 * GIB,
        "power": 300.0 + index, "power_limit": 700.0, "temperature": 50.0 + index % 30, **values,
    })  # fmt: skip


@contextmanager
def simulation(directory: Path) -> Iterator[Opened]:
    with web("--source", "sim", env=own_places(directory)) as link:
        yield Opened(link, places(OF_RUNS, "sim-0-0", "sim-1-0"))


@contextmanager
def stub_daemon(directory: Path) -> Iterator[Opened]:
    live = directory / "live"
    live.mkdir(mode=0o700, exist_ok=True)
    with Stub(build(into=_CACHE), gpus=4) as stub, sleepers(4) as pids:
        stub.spread(pids)
        stub.hold_clock(60.0)
        env = environment(live, stub.env())
        with daemon(env=env), web(env=env) as link:
            yield Opened(link, places(OF_GPUS), lambda: status(env))


def recording(name: str) -> Callable[[Path], AbstractContextManager[Opened]]:
    @contextmanager
    def opened(directory: Path) -> Iterator[Opened]:
        arguments = ("--source", f"replay:{RECORDINGS / name}", "--speed", 5)
        with web(*arguments, env=own_places(directory)) as link:
            yield Opened(link, places(OF_GPUS))

    return opened


def _from(served: Served) -> Callable[[], dict[str, Any]]:
    def told() -> dict[str, Any]:
        found: dict[str, Any] = json.loads(served.client().get("/api/v1/status").data)
        return found

    return told


@contextmanager
def month(directory: Path) -> Iterator[Opened]:
    """A GPU of which a month is kept, and its users' hours."""
    path, now = str(directory / "history.sqlite"), time.time() // 300 * 300
    served = Served(
        [tick(n, [working(0)], [process(1, 0)], time_ns=round((now + n) * SECOND)) for n in range(1, SECONDS)],
        devices=1, histories=[str(directory / "accounts.sqlite")],
    )  # fmt: skip
    served.now = now + SECONDS
    uuid = device(0).uuid
    hours = [
        tick(second, [working(0)], [process(1, 0)], time_ns=round((now - 86_400 + second) * SECOND),
             interval_ns=600 * SECOND) for second in range(0, 86_400, 600)
    ]  # fmt: skip
    keep(directory / "accounts.sqlite", hours)
    fill(path, [uuid], now, lambda _, name, at: _values(name, at), [SHAPES[-1]])
    served.feed.history.set_path(path)
    served.live.history_file = lambda: path  # type: ignore[method-assign]
    with on_a_port(served) as link:
        found = places(OF_GPUS)
        yield Opened(link, {**found, "gpu": "#/gpu/0?window=2678400"}, _from(served))


def _values(name: str, at: float) -> tuple[float, float, float]:
    value = {"gpu.utilization": at / 3600 % 24 / 24, "gpu.power": 300.0, "gpu.memory_used": 40 * GIB}.get(name, nan)
    return value, value, value


@contextmanager
def no_driver(directory: Path) -> Iterator[Opened]:
    del directory
    why = "no NVIDIA driver answers: install it"
    with on_a_port(Served([tick(1, [], origin=Origin("nvml", "", why))])) as link:
        yield Opened(link, places(LISTS))


@contextmanager
def many_gpus(directory: Path) -> Iterator[Opened]:
    """Thirty-two GPUs of four users; each eighth is free."""
    del directory
    free = {"utilization": 0.0, "memory_used": 0.0}
    samples = [working(index, **(free if index % 8 == 7 else {})) for index in range(32)]
    users = [process(100 + index, index, user=f"user{index // 8}") for index in range(32) if index % 8 != 7]
    served = Served([tick(n, samples, users) for n in range(1, SECONDS)], devices=32)
    with on_a_port(served) as link:
        yield Opened(link, places(OF_GPUS, gpu="17"), _from(served))


@contextmanager
def many_epochs(directory: Path) -> Iterator[Opened]:
    with Book(directory) as book:
        training(book, "long-1a2b", 5000, seconds=2.0, phases=False)
        training(book, "short-3c4d", 3, began=BEGAN - 3600)
    served = Served([tick(n, [working(0)]) for n in range(1, SECONDS)], [str(book.path)])
    with on_a_port(served) as link:
        yield Opened(link, places(OF_RUNS, "long-1a2b", "short-3c4d"), _from(served))


@contextmanager
def two_runs(directory: Path) -> Iterator[Opened]:
    """Two runs on one GPU, and the same of the past."""
    with Book(directory) as book:
        for number in range(2):
            training(book, f"net{number}-1a2b", 4, seed=number, utilization=0.8 - number / 10, user=f"user{number}")
    both = [
        run(f"tag.1000.{number}.aaaa", id=f"now{number}-5e6f", name=f"now{number}", pid=number, epoch=2, step=10,
            state=RunState.RUNNING, gpus=(device(0).uuid,), user=f"user{number}")
        for number in (11, 12)
    ]  # fmt: skip
    on_it = [process(number, 0, user=f"user{number}", run=f"tag.1000.{number}.aaaa") for number in (11, 12)]
    served = Served([tick(n, [working(0, both[0].key)], on_it, both) for n in range(1, SECONDS)], [str(book.path)])
    with on_a_port(served) as link:
        yield Opened(link, places(OF_RUNS, "net0-1a2b", "net1-1a2b"), _from(served))


REAL: tuple[MatrixSource, ...] = (
    MatrixSource("simulation", OF_RUNS, simulation),
    MatrixSource("stub", frozenset(("fleet", "gpu")), stub_daemon),
    MatrixSource("h100x8", frozenset(("fleet", "gpu", "runs")), recording(RECORDING), RECORDINGS / RECORDING),
)
"""Served by programs, as people start them."""
MADE: tuple[MatrixSource, ...] = (
    MatrixSource("month", frozenset(("gpu", "users", "events")), month),
    MatrixSource("none", LISTS, no_driver),
    MatrixSource("many-gpus", frozenset(("fleet", "gpu", "users")), many_gpus),
    MatrixSource("many-epochs", frozenset(("run", "compare")), many_epochs),
    MatrixSource("two-runs", OF_RUNS, two_runs),
)
"""Served by this process, from ticks and files that are made up."""
