"""History files of earlier versions: a view reads them as they are, and a new daemon continues them.

`tests/histories/version-N.gz` is a file as the last gpumon with version N wrote it: ticks 1 to 2000 of
`tests.builders`, one a second; the first GPU with utilization n % 10 / 10, 400 W and energy 1000 + 400 n, the second
one from tick 1000 with utilization 0.25. Version 2 has accounts and events too, of `process()`.
"""

from __future__ import annotations

import gzip
import os
import sqlite3
from contextlib import closing
from math import isnan
from pathlib import Path

import pytest

from gpumon.model.metrics import HOST_METRICS
from gpumon.storage.events.query import read_events
from gpumon.storage.history.aggregator import Block, Collector, values_of
from gpumon.storage.history.file import KeptFile
from gpumon.storage.history.grid import Grid, WindowSpan
from gpumon.storage.history.overview import overview
from gpumon.storage.history.query import HOST, Query
from gpumon.storage.history.recorder import HistoryRecorder
from gpumon.storage.history.schema import HISTORY_FILE, VERSION
from gpumon.storage.history.tiered import KeptTier
from gpumon.storage.history.tiers import SHAPES, TierShape
from gpumon.storage.history.write import seal, write
from gpumon.storage.processes.query import read_processes
from gpumon.storage.sqlite.write import open_to_write
from gpumon.storage.usage.query import by_user, read_accounts
from tests.builders import TIME, device, sample, tick
from tests.programs import PATIENCE

HISTORIES = Path(__file__).parents[1] / "histories"
RELEASED = (1, 2)
BEGIN = TIME // 1_000_000_000
UID = os.getuid()


@pytest.fixture(params=RELEASED)
def path(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    found = tmp_path / "state" / "history.sqlite"
    found.parent.mkdir(mode=0o700)
    found.write_bytes(gzip.decompress((HISTORIES / f"version-{request.param}.gz").read_bytes()))
    return found


def means(path: Path, shape: TierShape, subject: str, metric: str, first: int, last: int) -> list[float]:
    """Means of the cells from tick `first` up to `last`."""
    file = KeptFile(str(path), lambda: BEGIN + 3000.0)
    grid = Grid((BEGIN + first) // shape.step, float(shape.step), (last - first) // shape.step)
    found = KeptTier(file, shape).query(Query(subject, (metric,), grid.begin, grid.end, grid=grid))[metric]
    assert not file.problem
    file.close()
    return list(found.mean)


def assert_is_as_it_was_written(path: Path) -> None:
    fine, middle, coarse = SHAPES
    first, second = device(0).uuid, device(1).uuid
    assert means(path, fine, first, "gpu.utilization", 1, 2001) == pytest.approx([n % 10 / 10 for n in range(1, 2001)])
    assert means(path, fine, first, "gpu.energy", 2, 2000) == pytest.approx([400.0] * 1998)
    assert means(path, middle, first, "gpu.utilization", 10, 1990) == pytest.approx([0.45] * 198)
    assert means(path, coarse, first, "gpu.power", 100, 1900) == pytest.approx([400.0] * 6)
    assert all(map(isnan, means(path, fine, second, "gpu.utilization", 1, 1000)))
    assert means(path, fine, second, "gpu.utilization", 1000, 2001) == pytest.approx([0.25] * 1001)
    assert means(path, middle, HOST, HOST_METRICS[0].name, 10, 1990) == pytest.approx([0.0] * 198)
    found = overview(str(path))
    assert found.subjects == [first, second]
    assert [(size.begin, size.end) for size in found.tiers] == [
        ((BEGIN + 1) // shape.step * shape.step, (BEGIN + 2000) // shape.step * shape.step + shape.step)
        for shape in SHAPES
    ]


def test_every_version_that_was_released_has_a_file_here() -> None:
    assert {f"version-{version}.gz" for version in RELEASED} == {found.name for found in HISTORIES.iterdir()}
    assert max(RELEASED) in (VERSION - 1, VERSION)


def test_a_history_from_before_an_upgrade_is_read_as_it_is(path: Path) -> None:
    before = path.read_bytes()
    assert_is_as_it_was_written(path)
    found = read_processes(str(path), (), WindowSpan(BEGIN, BEGIN + 2000))
    assert (found.processes, "restart the daemon" in found.problem) == ([], True)
    assert path.read_bytes() == before


def test_a_daemon_of_the_version_before_is_read_while_it_writes(tmp_path: Path) -> None:
    path = tmp_path / "state" / "history.sqlite"
    kind = HISTORY_FILE._replace(migrations=HISTORY_FILE.migrations[:1])
    writer = open_to_write(str(path), kind, shared=False, uid=UID, log=pytest.fail)
    file = KeptFile(str(path), lambda: BEGIN + 3000.0)
    blocks: list[Block] = []
    collector = Collector(blocks.append)
    for number in range(1, 1000):
        collector.add(values_of(tick(number, samples=(sample(0, utilization=0.5),))))
    write(writer, map(seal, blocks), "0" * 32)
    assert KeptTier(file, SHAPES[0]).end > BEGIN
    assert means(path, SHAPES[0], device(0).uuid, "gpu.utilization", 1, 500) == pytest.approx([0.5] * 499)
    assert overview(str(path)).subjects == [device(0).uuid]
    assert not file.problem
    file.close()
    writer.close()


def test_it_is_brought_up_to_date_and_loses_nothing(path: Path) -> None:
    for _ in range(2):
        open_to_write(str(path), HISTORY_FILE, shared=False, uid=UID, log=pytest.fail).close()
        assert_is_as_it_was_written(path)
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (VERSION,)
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    assert read_processes(str(path), (), WindowSpan(BEGIN, BEGIN + 2000))[1:3] == ([], "")


def test_accounts_and_events_of_the_second_version_are_there_before_and_after(tmp_path: Path) -> None:
    path = tmp_path / "state" / "history.sqlite"
    path.parent.mkdir(mode=0o700)
    path.write_bytes(gzip.decompress((HISTORIES / "version-2.gz").read_bytes()))
    for _ in range(2):
        (alice,) = by_user(read_accounts(str(path)).hours)
        assert (alice.user, alice.held, alice.energy) == ("alice", 1999, pytest.approx(400 * 1999))
        assert [event.kind.name for event in read_events(str(path))] == ["daemon_started", "daemon_stopped"]
        open_to_write(str(path), HISTORY_FILE, shared=False, uid=UID, log=pytest.fail).close()


def test_a_new_daemon_continues_it_within_its_open_blocks(path: Path) -> None:
    history = HistoryRecorder(str(path), UID, pytest.fail).start()
    for number in range(2010, 2400):
        history.add(tick(number, samples=(sample(0, utilization=0.75, energy=1000.0 + 400 * number),)))
    history.close(PATIENCE)
    fine, _, coarse = SHAPES
    gpu = device(0).uuid
    assert means(path, fine, gpu, "gpu.utilization", 1990, 2001) == pytest.approx(
        [n % 10 / 10 for n in range(1990, 2001)]
    )
    assert all(map(isnan, means(path, fine, gpu, "gpu.utilization", 2001, 2010)))
    assert means(path, fine, gpu, "gpu.utilization", 2010, 2400) == pytest.approx([0.75] * 390)
    assert means(path, coarse, gpu, "gpu.energy", 1900, 2200) == pytest.approx([400.0])
