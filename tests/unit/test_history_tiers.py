"""Kept history: ticks into cells, cells into blocks, blocks into the file, and back as lines."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from hashlib import sha256
from math import nan
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.common.clock import SECOND
from gpumon.common.columnar import ColumnarBlock, DamagedBlock, pack_block
from gpumon.model.frame import Tick
from gpumon.model.metrics import Availability
from gpumon.storage.history import tiers as limits_module
from gpumon.storage.history.block import pack, unpack, unpack_cells
from gpumon.storage.history.buckets import Grid
from gpumon.storage.history.cell import HistoryCell, fold
from gpumon.storage.history.file import HistoryFile
from gpumon.storage.history.query import HOST, Query, Series
from gpumon.storage.history.recovery import recover
from gpumon.storage.history.schema import HISTORY_FILE, TABLES, VERSION
from gpumon.storage.history.tier_aggregator import Aggregator, Block, values_from_tick
from gpumon.storage.history.tiered_history import StoredTier
from gpumon.storage.history.tiers import GPU_COLUMNS, SHAPES, HistoryLimits, TierShape, prune_large, prune_old
from gpumon.storage.history.write import seal, write
from gpumon.storage.sqlite.write import open_to_write
from gpumon.storage.usage.account import DeviceUse
from tests.builders import device, sample, tick

GPU = device().uuid
T1, T2, T3 = SHAPES
BEGIN = 93230 * 19200
"""A time at which a block of each tier begins."""
UTILIZATION, ENERGY = GPU_COLUMNS.names.index("gpu.utilization"), GPU_COLUMNS.names.index("gpu.energy")
BOOT = "b" * 32


def at(second: float, interval: float = 1.0, steady: float | None = None, **values: float) -> Tick:
    """A tick `second` seconds after `BEGIN`; `steady` is what the steady clock has, where that differs."""
    found = tick(samples=(sample(0, **values),) if values else ())
    return found._replace(
        time_ns=round((BEGIN + second) * SECOND),
        monotonic_ns=round((1000 + (second if steady is None else steady)) * SECOND),
        interval_ns=round(interval * SECOND),
    )


def collected(ticks: Iterable[Tick], *, finish: bool = True) -> list[Block]:
    blocks: list[Block] = []
    aggregator = Aggregator(blocks.append)
    for one in ticks:
        aggregator.add(values_from_tick(one))
    if finish:
        aggregator.finish()
    return blocks


def cells(blocks: Sequence[Block], shape: TierShape, subject: str = GPU) -> dict[int, HistoryCell]:
    """Cells of a tier, by their seconds after `BEGIN`."""
    return {
        (block.number * shape.cells + place) * shape.step - BEGIN: cell
        for block in blocks
        if (block.shape, block.subject) == (shape, subject)
        for place, cell in block.cells.items()
    }


def grown(blocks: Sequence[Block], shape: TierShape) -> float:
    """Joules over all cells."""
    pairs = ((cell.mean[ENERGY], cell.seconds[ENERGY]) for cell in cells(blocks, shape).values())
    return sum(rate * seconds for rate, seconds in pairs if seconds)


def busy(second: float) -> float:
    return 0.0 if second == 777 else 0.9


def test_a_tick_belongs_to_the_cell_of_its_own_time_in_every_tier() -> None:
    blocks = collected(at(second + 0.3, utilization=busy(second)) for second in range(1200))
    assert list(cells(blocks, T1)) == list(range(1200))
    assert list(cells(blocks, T2)) == list(range(0, 1200, 10))
    assert list(cells(blocks, T3)) == list(range(0, 1200, 300))
    assert cells(blocks, T1)[777].mean[UTILIZATION] == 0.0
    for shape, begin in ((T2, 770), (T3, 600)):
        cell = cells(blocks, shape)[begin]
        assert cell.low[UTILIZATION] == 0.0
        assert cell.high[UTILIZATION] == pytest.approx(0.9)
        assert cell.mean[UTILIZATION] == pytest.approx(0.9 - 0.9 / shape.step)
        assert cell.last[UTILIZATION] == pytest.approx(0.9)
        assert cell.seconds[UTILIZATION] == pytest.approx(shape.step)


def test_what_a_counter_grew_by_is_cut_exactly_at_the_border_of_cells() -> None:
    blocks = collected(at(second + 0.3, energy=1000 + 400 * second) for second in range(601))
    for shape in SHAPES:
        inner = list(cells(blocks, shape).items())[1:-1]
        for _, cell in inner:
            assert cell.mean[ENERGY] == pytest.approx(400)
            assert cell.seconds[ENERGY] == pytest.approx(shape.step, abs=1e-3)
        for begin, cell in inner:
            assert cell.last[ENERGY] == pytest.approx(1000 + 400 * (begin + shape.step - 0.3))
        assert grown(blocks, shape) == pytest.approx(400 * 600, rel=1e-6), shape


@given(st.lists(st.tuples(st.floats(0.05, 8.0), st.floats(0, 5000)), min_size=2, max_size=150))
def test_growth_over_all_cells_is_that_between_samples_that_are_near_each_other(
    steps: list[tuple[float, float]],
) -> None:
    second, energy, near, ticks = 5.0, 100.0, 0.0, [at(5.0, energy=100.0)]
    for passed, growth in steps:
        second, energy = second + passed, energy + growth
        ticks.append(at(second, energy=energy))
        between = ticks[-1].monotonic_ns - ticks[-2].monotonic_ns  # times are rounded, so that `passed` may differ
        near += growth if between <= 3 * SECOND else 0.0
    blocks = collected(ticks)
    for shape in SHAPES:
        assert grown(blocks, shape) == pytest.approx(near, rel=1e-3, abs=0.01)


def test_a_counter_that_went_back_has_no_growth_there() -> None:
    values = [100.0 + 10 * n for n in range(50)] + [5.0 + 10 * n for n in range(50)]
    assert grown(collected(at(n + 0.5, energy=value) for n, value in enumerate(values)), T2) == pytest.approx(980)


def test_a_gap_stays_a_gap() -> None:
    ticks = [*(at(n, utilization=0.5) for n in range(100)), *(at(n, utilization=0.5) for n in range(400, 500))]
    found = cells(collected(ticks), T1)
    assert list(found) == [*range(100), *range(400, 500)]
    assert list(cells(collected(ticks), T3)) == [0, 300]


def test_a_suspended_machine_leaves_a_gap_though_its_steady_clock_went_on_as_always() -> None:
    ticks = [at(n, utilization=0.5, energy=100.0 * n) for n in range(100)]
    ticks += [at(3600 + n, steady=100 + n, utilization=0.5, energy=100.0 * (100 + n)) for n in range(100)]
    blocks = collected(ticks)
    assert [second for second in cells(blocks, T2) if 100 <= second < 3600] == []
    assert grown(blocks, T2) == pytest.approx(2 * 9900)


def test_a_clock_that_is_set_back_a_little_writes_no_cell_twice() -> None:
    ticks = [at(n, utilization=0.1) for n in range(100)]
    ticks += [at(70 + n, steady=100 + n, utilization=0.9) for n in range(60)]
    found = cells(collected(ticks), T1)
    assert list(found) == list(range(130))
    assert [found[n].mean[UTILIZATION] for n in (99, 100)] == pytest.approx([0.1, 0.9])


def test_a_clock_that_is_set_back_far_goes_on_from_there() -> None:
    ticks = [at(n, utilization=0.1) for n in range(7200, 7300)]
    ticks += [at(n, steady=7300 + n, utilization=0.9) for n in range(100)]
    assert list(cells(collected(ticks), T1)) == [*range(7200, 7300), *range(100)]


def test_values_hold_between_samples_that_are_further_apart_than_cells() -> None:
    blocks = collected(at(n, interval=20.0, utilization=0.5, energy=300.0 * n) for n in range(0, 401, 20))
    assert list(cells(blocks, T1)) == list(range(401))
    assert cells(blocks, T3)[0].seconds[UTILIZATION] == pytest.approx(300, rel=0.1)
    assert grown(blocks, T3) == pytest.approx(300 * 400)


def test_many_samples_in_a_second_are_one_cell_with_their_extremes() -> None:
    found = cells(collected(at(n / 100, interval=0.01, utilization=n % 100 / 100) for n in range(500)), T1)
    assert list(found) == list(range(5))
    cell = found[2]
    assert [column[UTILIZATION] for column in (cell.low, cell.high, cell.last)] == pytest.approx([0.0, 0.99, 0.99])
    assert cell.mean[UTILIZATION] == pytest.approx(0.495)


def test_samples_near_the_borders_of_cells_hide_no_gap() -> None:
    ticks = [at(n + (0.001 if n % 2 else -0.001), utilization=0.5) for n in range(1, 300) if not 100 <= n < 140]
    blocks = collected(ticks)
    seconds = [cell.seconds[UTILIZATION] for cell in cells(blocks, T1).values()]
    assert max(seconds) <= 1.0
    assert cells(blocks, T3)[0].seconds[UTILIZATION] == pytest.approx(259, abs=2)


def test_growth_is_counted_also_after_a_second_that_has_two_ticks() -> None:
    # A daemon takes its first tick when it starts, and the second one as soon as it runs.
    ticks = [at(second, energy=100.0 * second) for second in (0.1, 0.2, 1.2, 2.2, 3.2)]
    ticks += [at(second + 0.2, energy=100.0 * second) for second in range(4, 20)]
    assert grown(collected(ticks), T1) == pytest.approx(1890.0)


def test_seconds_are_those_of_all_samples_though_cells_have_uneven_numbers_of_them() -> None:
    blocks = collected(at(n * 0.4, interval=0.4, utilization=0.5) for n in range(750))
    assert cells(blocks, T3)[0].seconds[UTILIZATION] == pytest.approx(300, abs=0.5)


@pytest.mark.parametrize("interval", [0.05, 0.1, 0.2, 0.5, 0.9])
def test_skipped_ticks_leave_nothing_missing_and_no_more_is_known_than_passed(interval: float) -> None:
    times = [n * interval for n in range(round(120 / interval)) if n % 7 != 3]
    begin = 0.37
    found = cells(collected(at(begin + time, interval=interval, utilization=0.5) for time in times), T1)
    seconds = [cell.seconds[UTILIZATION] for cell in found.values()]
    assert max(seconds) <= 1.0
    assert seconds[1:-1] == [1.0] * (len(seconds) - 2)
    assert seconds[0] == pytest.approx(1 - begin)
    assert sum(seconds) <= times[-1] + interval + 1e-6


def test_a_gap_between_fast_samples_is_cut_where_the_last_one_holds_no_longer() -> None:
    ticks = [at(n / 5, interval=0.2, utilization=0.5) for n in range(100) if not 22 <= n < 40]
    found = cells(collected(ticks), T1)
    seconds = {second: cell.seconds[UTILIZATION] for second, cell in found.items()}
    assert seconds[4] == pytest.approx(0.4)
    assert list(seconds) == [*range(5), *range(8, 20)]
    assert sum(seconds.values()) == pytest.approx(20 - 18 / 5)


def test_a_device_that_does_not_answer_has_no_values_and_one_that_comes_back_is_the_same() -> None:
    def lost(second: float) -> Tick:
        return at(second)._replace(samples=(sample(0, Availability.LOST, utilization=0.9),))

    ticks = [at(n, utilization=0.5) if not 20 <= n < 50 else lost(n) for n in range(100)]
    assert list(cells(collected(ticks), T1)) == [*range(20), *range(50, 100)]
    assert len(cells(collected(ticks), T1, HOST)) == 100


NUMBERS = st.one_of(st.floats(0, 1e6, width=32), st.just(nan))


@st.composite
def some_cells(draw: Callable[..., Any]) -> dict[int, HistoryCell]:
    metrics = 4
    found = {}
    for place in draw(st.sets(st.integers(0, 63), min_size=1)):
        low, mean, high, last = (draw(st.lists(NUMBERS, min_size=metrics, max_size=metrics)) for _ in range(4))
        weight = [draw(st.sampled_from([1.0, 10.0, 7.5])) if one == one else 0.0 for one in mean]
        found[place] = HistoryCell(low, mean, high, last, weight)
    return found


@given(some_cells())
def test_a_block_gives_back_what_was_packed(packed: dict[int, HistoryCell]) -> None:
    data = pack(packed, 64, (1,))
    block = ColumnarBlock(data)
    found = unpack_cells(block, range(4), 64)
    known = {place: cell for place, cell in packed.items() if any(cell.seconds)}
    assert set(found) == set(known)
    for place, cell in known.items():
        for column in ("mean", "seconds"):
            assert repr(list(getattr(found[place], column))) == repr(list(getattr(cell, column)))
    assert [block.has(place) for place in range(4)] == [unpack(block, place, 64) is not None for place in range(4)]


@given(st.integers(0, 10_000), st.integers(0, 255))
def test_a_damaged_block_is_said_to_be_damaged_or_gives_numbers(place: int, byte: int) -> None:
    one = {n: HistoryCell(*[(n,) * 3] * 4, (1.0,) * 3) for n in range(64)}
    data = bytearray(pack(one, 64, (0,)))
    data[place % len(data)] = byte
    for metric in range(3):
        try:
            found = unpack(ColumnarBlock(bytes(data)), metric, 64)
        except DamagedBlock:
            continue
        assert found is None or len(found.mean) == 64


def test_a_block_that_would_unpack_to_much_more_is_damaged() -> None:
    import zlib

    block = ColumnarBlock(pack_block([zlib.compress(b"\0" * 10_000_000)]))
    with pytest.raises(DamagedBlock):
        unpack(block, 0, 64)


def test_cells_of_different_weight_are_one_by_their_seconds() -> None:
    def one(value: float, seconds: float) -> HistoryCell:
        return HistoryCell((value,), (value,), (value,), (value,), (seconds,))

    cell = fold([one(1.0, 300), one(nan, 300), one(4.0, 100)])
    assert [column[0] for column in cell[:4]] == [1.0, pytest.approx(1.75), 4.0, 4.0]
    assert list(cell.seconds) == [400]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "history.sqlite"


def opened(path: Path) -> sqlite3.Connection:
    import os

    return open_to_write(str(path), HISTORY_FILE, shared=False, uid=os.getuid(), log=pytest.fail)


def stored(path: Path, ticks: Iterable[Tick], *, finish: bool = True) -> None:
    with closing(opened(path)) as connection:
        write(connection, map(seal, collected(ticks, finish=finish)), BOOT)


def asked(path: Path, shape: TierShape, grid: Grid, metric: str = "gpu.utilization") -> Series:
    file = HistoryFile(str(path), lambda: BEGIN + 3000.0)
    found = StoredTier(file, shape).query(Query(GPU, (metric,), grid.begin, grid.end, grid=grid))[metric]
    assert not file.problem
    file.close()
    return found


def test_a_line_of_any_tier_has_the_low_the_mean_and_the_high_of_its_ticks(path: Path) -> None:
    stored(path, (at(second, utilization=busy(second)) for second in range(1800)))
    for shape in SHAPES:
        found = asked(path, shape, Grid(BEGIN // 600, 600.0, 3))
        assert found.low == pytest.approx([0.9, 0.0, 0.9])
        assert found.mean == pytest.approx([0.9, 0.9 - 0.9 / 600, 0.9])
        assert found.high == pytest.approx([0.9] * 3)


def test_a_bucket_shorter_than_a_cell_has_the_values_of_that_cell_and_a_gap_has_none(path: Path) -> None:
    stored(path, (at(n, utilization=0.5) for n in range(1200) if not 300 <= n < 600))
    found = asked(path, T3, Grid(BEGIN // 60, 60.0, 20)).mean
    assert found[:5] == found[10:15] == pytest.approx([0.5] * 5)
    assert all(value != value for value in found[5:10])


def test_each_bucket_shorter_than_a_cell_is_seen_for_its_share_of_that_cell(path: Path) -> None:
    stored(path, (at(n, utilization=0.5) for n in range(20) if not 5 <= n < 10))
    assert asked(path, T2, Grid(BEGIN // 2, 2.0, 10)).seen == pytest.approx([1.0] * 5 + [2.0] * 5)


def test_a_tier_tells_how_much_of_each_cell_is_known_whatever_the_metric_has(path: Path) -> None:
    stored(path, (at(n, utilization=0.5) for n in range(1000) if not 300 <= n < 600))
    with closing(HistoryFile(str(path), lambda: BEGIN + 3000.0)) as file:
        query = Query(GPU, ("gpu.power",), BEGIN, BEGIN + 1500)
        seconds = StoredTier(file, T3).seconds(query, BEGIN + 10.0, BEGIN + 1210.0)
    assert seconds == pytest.approx([300, 0, 300, 100, 0], abs=2)


def test_a_daemon_that_begins_again_within_a_block_continues_it(path: Path) -> None:
    stored(path, (at(n, utilization=0.2) for n in range(104)))
    stored(path, (at(n, steady=n - 900, utilization=0.8) for n in range(106, 300)))
    found = asked(path, T2, Grid(BEGIN // 10, 10.0, 30))
    assert found.mean[9:12] == pytest.approx([0.2, 0.5, 0.8])
    assert (found.low[10], found.high[10]) == pytest.approx((0.2, 0.8))


def test_a_time_that_is_written_twice_has_what_came_later(path: Path) -> None:
    stored(path, (at(n, utilization=0.2) for n in range(300)))
    stored(path, (at(n, utilization=0.8) for n in range(100, 200)))
    assert asked(path, T2, Grid(BEGIN // 100, 100.0, 3)).mean[1] == pytest.approx(0.8)


def test_what_a_killed_daemon_had_not_written_of_a_coarse_tier_is_made_from_the_finer_one(path: Path) -> None:
    stored(path, (at(n, utilization=busy(n)) for n in range(3000)), finish=False)
    with closing(opened(path)) as connection:
        assert not connection.execute("SELECT * FROM block WHERE tier = 3").fetchall()
        recover(connection, BOOT)
        recover(connection, BOOT)
    found = asked(path, T3, Grid(BEGIN // 300, 300.0, 10))
    assert found.mean[:8] == pytest.approx([0.9, 0.9, 0.897, *[0.9] * 5])
    assert found.low[2] == 0.0


def test_a_coarse_cell_of_which_a_killed_daemon_had_written_a_part_becomes_whole(path: Path) -> None:
    stored(path, (at(n, utilization=0.2) for n in range(4)))
    stored(path, (at(n, steady=n - 900, utilization=0.8) for n in range(4, 1000)), finish=False)
    with closing(opened(path)) as connection:
        for _ in range(2):
            recover(connection, BOOT)
            found = asked(path, T2, Grid(BEGIN // 10, 10.0, 2))
            assert found.mean == pytest.approx([0.56, 0.8])
            (whole,) = asked(path, T3, Grid(BEGIN // 300, 300.0, 1)).mean
            assert whole == pytest.approx((0.2 * 4 + 0.8 * 296) / 300)


def test_a_block_of_a_version_with_other_metrics_keeps_its_cells(path: Path) -> None:
    stored(path, (at(n, utilization=0.2, power=100.0) for n in range(100)))
    with closing(opened(path)) as connection:
        names = list(GPU_COLUMNS.names)
        place = names.index("gpu.power")
        names[place], names[UTILIZATION] = "gpu.of_long_ago", "gpu.power"  # its values are those of utilization
        connection.execute("UPDATE schema SET metrics = ? WHERE metrics LIKE '%gpu.power%'", (json.dumps(names),))
    stored(path, (at(n, utilization=0.8) for n in range(100, 200)))
    grid = Grid(BEGIN // 10, 10.0, 20)
    power, utilization = (asked(path, T1, grid, name).mean for name in ("gpu.power", "gpu.utilization"))
    assert power[:10] == pytest.approx([0.2] * 10)
    assert [value == value for value in utilization] == [False] * 10 + [True] * 10


def test_what_is_too_old_goes_tier_by_tier(path: Path) -> None:
    stored(path, (at(n, interval=60, utilization=0.5) for n in range(0, 8000, 60)))
    with closing(opened(path)) as connection:
        prune_old(connection, BEGIN + 8000, HistoryLimits())
        oldest = dict(connection.execute("SELECT tier, min(number) FROM block GROUP BY tier"))
        prune_old(connection, BEGIN + 8000, HistoryLimits(days=6000 / 86400))
        shorter = dict(connection.execute("SELECT tier, min(number) FROM block GROUP BY tier"))
    assert [oldest[shape.number] * shape.block for shape in SHAPES] == [BEGIN + 3600, BEGIN, BEGIN]
    assert shorter[2] * T2.block <= BEGIN + 2000 < (shorter[2] + 1) * T2.block
    assert shorter[3] * T3.block == BEGIN


def test_the_oldest_goes_first_where_there_is_too_much(path: Path) -> None:
    stored(path, (at(n, interval=60, utilization=n % 7) for n in range(0, 8000, 60)))
    with closing(opened(path)) as connection:
        ends = "SELECT min((number + 1) * CASE tier WHEN 1 THEN 300 WHEN 2 THEN 640 ELSE 19200 END) FROM block"
        (whole,) = connection.execute("SELECT sum(length(data)) FROM block").fetchone()
        before = connection.execute(ends).fetchone()
        prune_large(connection, HistoryLimits(bytes=whole // 2))
        (left,) = connection.execute("SELECT sum(length(data)) FROM block").fetchone()
        assert whole // 4 < left <= whole // 2
        assert connection.execute(ends).fetchone() > before
        assert connection.execute("SELECT count(*) FROM block WHERE tier = 3").fetchone()[0] > 0


def test_a_block_with_a_wrong_checksum_is_a_gap(path: Path) -> None:
    stored(path, (at(n, utilization=0.5) for n in range(1200)))
    with closing(sqlite3.connect(path)) as connection:
        damage = "UPDATE block SET data = CAST(data || x'00' AS BLOB) WHERE tier = 1 AND number = ?"
        connection.execute(damage, (BEGIN // 300 + 1,))
        connection.commit()
    found = asked(path, T1, Grid(BEGIN // 300, 300.0, 4)).mean
    assert [value == value for value in found] == [True, False, True, True]


def test_a_line_grows_as_blocks_are_written(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpumon.storage.history.file._REFRESH_INTERVAL", 0.0)
    file = HistoryFile(str(path), lambda: BEGIN + 3000.0)
    monkeypatch.setattr("gpumon.storage.history.file._RETRY_INTERVAL", 0.0)
    tier = StoredTier(file, T2)
    assert tier.begin != tier.begin
    assert not tier.has(GPU, "gpu.utilization")
    grid = Grid(BEGIN // 300, 300.0, 12)
    for seconds in (450, 900, 2000):
        stored(path, (at(n, utilization=n / 10_000) for n in range(seconds)))
        assert (tier.begin, tier.end) == (BEGIN, BEGIN + seconds)
        assert tier.has(GPU, "gpu.utilization")
        found = tier.query(Query(GPU, ("gpu.utilization",), grid.begin, grid.end, grid=grid))["gpu.utilization"]
        assert sum(value == value for value in found.mean) == -(-seconds // 300)
    file.close()


@pytest.mark.parametrize("content", [b"", b"this is no database, and long enough to be read as one" * 20])
def test_a_file_that_is_none_answers_nothing_and_says_so(path: Path, content: bytes) -> None:
    path.parent.mkdir()
    path.write_bytes(content)
    file = HistoryFile(str(path))
    assert StoredTier(file, T3).begin != StoredTier(file, T3).begin
    assert bool(file.problem) == bool(content)


def test_a_file_of_another_version_answers_nothing_and_says_so(path: Path) -> None:
    stored(path, [at(0, utilization=0.5)])
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA user_version = {VERSION + 1}")
    file = HistoryFile(str(path))
    assert StoredTier(file, T3).begin != StoredTier(file, T3).begin
    assert f"format {VERSION + 1}" in file.problem


def test_the_tables_change_only_with_their_version() -> None:
    assert (VERSION, sha256(TABLES.encode()).hexdigest()[:16]) == (2, "0de6381286353486")


def test_accounts_and_events_are_kept_for_a_year_and_those_that_go_on_for_longer(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    year, now = 8784, int(BEGIN) // 3600 + 10_000
    with closing(open_to_write(str(path), HISTORY_FILE, shared=False, uid=os.getuid(), log=pytest.fail)) as connection:
        connection.execute("BEGIN")
        for hour in range(now - year - 5, now):
            connection.execute("INSERT INTO account VALUES (?, 'GPU-1', 'alice', 1, 1, 1, 0, 1, 1)", (hour,))
            sums = ", ".join("1" for _ in DeviceUse._fields)
            connection.execute(f"INSERT INTO device_hour VALUES (?, 'GPU-1', {sums})", (hour,))
            until = 5 if hour == now - year - 3 else None
            row = (hour * 3600 * 10**9, until)
            connection.execute("INSERT INTO event VALUES (?, 'gpu_lost', '', '', '', '', '', NULL, ?, '{}')", row)

        connection.execute("COMMIT")

        def counts() -> list[int]:
            tables = ("account", "device_hour", "event")
            return [connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in tables]

        prune_old(connection, now * 3600.0, HistoryLimits())
        assert counts() == [year, year, year + 1]
        prune_old(connection, now * 3600.0, HistoryLimits(account_days=100))
        assert counts() == [2400, 2400, 2401]
        monkeypatch.setattr(limits_module, "MAX_EVENTS", 100)
        monkeypatch.setattr(limits_module, "MAX_ACCOUNTS", 200)
        prune_old(connection, now * 3600.0, HistoryLimits())
        assert counts() == [200, 2400, 101]
        assert connection.execute("SELECT min(hour) FROM account").fetchone() == (now - 200,), "the oldest goes first"
