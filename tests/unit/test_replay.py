"""Logs that people already have, in every shape nvidia-smi and its users give them."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import math
import os
import time
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from itertools import accumulate, pairwise
from pathlib import Path
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpumon.common.clock import SECOND
from gpumon.common.errors import SourceError, UsageError
from gpumon.model.frame import Sample
from gpumon.model.metrics import PROCESSES, Availability
from gpumon.model.origin import RECORDED
from gpumon.sources.base import Reading
from gpumon.sources.replay import ReplaySource
from gpumon.sources.replay.log import COMMAND
from tests.fakes import FakeClock
from tests.fuzzing import examples

HEADING = "timestamp, power.draw [W], utilization.gpu [%], memory.used [MiB]"
MIB = 2.0**20
RECORDINGS = Path(__file__).parents[3] / "shared" / "recordings"


@pytest.fixture(autouse=True)
def _berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Local times need a known zone, one that changes in autumn."""
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.fixture
def opened() -> Iterator[Callable[..., ReplaySource]]:
    """Opens a replay that is closed after the test."""
    with ExitStack() as stack:

        def opener(path: str, clock: FakeClock, speed: float = 1.0) -> ReplaySource:
            return stack.enter_context(closing(ReplaySource(path, speed=speed, clock=clock)))

        yield opener


def write(folder: Path, content: str | bytes, name: str = "log.csv") -> str:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return str(path)


def everything(path: str, clock: FakeClock | None = None) -> tuple[ReplaySource, list[Reading]]:
    clock = clock or FakeClock(SECOND)
    source = ReplaySource(path, clock=clock)
    clock.advance(1e8)
    readings: list[Reading] = []
    while more := source.read():
        readings.extend(more)
    source.close()
    return source, readings


def replayed(folder: Path, content: str | bytes) -> list[Reading]:
    return everything(write(folder, content))[1]


def stamp(ms: int) -> str:
    seconds, ms = divmod(ms, 1000)
    return f"2025/07/27 {seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}.{ms:03}"


def rows(times: Sequence[int], watts: Sequence[float] | None = None) -> str:
    """A log with a row at each of `times` (ms); the power tells which row it was."""
    powers = watts or range(100, 100 + len(times))
    lines = (f"{stamp(t)}, {w:.2f} W, 7 %, 17 MiB" for t, w in zip(times, powers, strict=True))
    return "\n".join([HEADING, *lines]) + "\n"


def powers(readings: Sequence[Reading]) -> list[list[float]]:
    return [[s.value("gpu.power") for s in r.samples if s.state is Availability.OK] for r in readings]


def only(readings: Sequence[Reading]) -> Sample:
    assert len(readings) == 1
    assert len(readings[0].samples) == 1
    return readings[0].samples[0]


# What the cells say


def test_every_known_column_arrives_in_base_units(tmp_path: Path) -> None:
    sample = only(
        replayed(
            tmp_path,
            "pstate, index, name, uuid, timestamp, power.draw [W], utilization.gpu [%], utilization.memory [%], "
            "memory.used [MiB], memory.total [MiB], memory.reserved [MiB], temperature.gpu, temperature.memory, "
            "clocks.current.sm [MHz], clocks.current.memory [MHz], enforced.power.limit [W], fan.speed [%], "
            "pcie.link.gen.current, pcie.link.width.current, utilization.encoder [%], utilization.decoder [%], "
            "clocks_event_reasons.active, total_energy_consumption [mJ], compute_mode\n"
            "P2, 3, NVIDIA A100, GPU-abc, 2025/07/27 00:00:00.250, 72.50 W, 50 %, 25 %, 10 MiB, 100 MiB, 5 MiB, 40, "
            "44, 1980 MHz, 2619 MHz, 700.00 W, 30 %, 4, 16, 1 %, 2 %, 0x0000000000000004, 5000 mJ, Default\n",
        )
    )
    assert (sample.device.uuid, sample.device.index, sample.device.name) == ("GPU-abc", 3, "NVIDIA A100")
    expected = {
        "power": 72.5, "utilization": 0.5, "memory_utilization": 0.25, "memory_used": 10 * MIB,
        "memory_total": 100 * MIB, "memory_reserved": 5 * MIB, "temperature": 40, "temperature_memory": 44,
        "clock_sm": 1.98e9, "clock_memory": 2.619e9, "power_limit": 700, "fan": 0.3, "pcie_generation": 4,
        "pcie_width": 16, "encoder_utilization": 0.01, "decoder_utilization": 0.02, "event_reasons": 4, "energy": 5,
        "performance_state": 2,
    }  # fmt: skip
    for key, value in expected.items():
        assert sample.value(f"gpu.{key}") == pytest.approx(value), key
    absent = {name for name, why in sample.device.missing.items() if why is Availability.NOT_RECORDED} - {PROCESSES}
    assert {f"gpu.{key}" for key in expected}.isdisjoint(absent)
    assert sample.device.missing[PROCESSES] is Availability.NOT_RECORDED, "a log says nothing of processes"
    assert all(math.isnan(sample.value(name)) for name in absent)
    assert "gpu.throttled_sw_power" in absent


@pytest.mark.parametrize(
    ("heading", "cell", "metric", "value"),
    [
        ("power.draw [W]", "72.5", "gpu.power", 72.5),
        ("power.draw", "72.5", "gpu.power", 72.5),
        ("power.draw.instant [W]", "72.5 W", "gpu.power", 72.5),
        ("power.draw [mW]", "72500", "gpu.power", 72.5),
        ("memory.used", "10", "gpu.memory_used", 10 * MIB),
        ("memory.used [MB]", "10 MB", "gpu.memory_used", 10 * MIB),
        ("memory.used [GiB]", "1", "gpu.memory_used", 1024 * MIB),
        ("utilization.gpu", "50", "gpu.utilization", 0.5),
        ("clocks.sm", "1980", "gpu.clock_sm", 1.98e9),
        ("clocks.gr [MHz]", "1980 MHz", "gpu.clock_sm", 1.98e9),
        ("clocks.mem", "2619", "gpu.clock_memory", 2.619e9),
        ("power.limit [W]", "350.00 W", "gpu.power_limit", 350),
        ("pcie.link.gen.gpucurrent", "5", "gpu.pcie_generation", 5),
        ("clocks_throttle_reasons.active", "0x0000000000000020", "gpu.event_reasons", 32),
        ("temperature.gpu", "-3", "gpu.temperature", -3),
        ("pstate", "P15", "gpu.performance_state", 15),
        ("pcie.link.gen.max", "5", "gpu.pcie_generation_max", 5),
        ("pcie.link.width.max", "16", "gpu.pcie_width_max", 16),
        ("temperature.gpu.tlimit", "-2", "gpu.temperature_margin", -2),
        ("utilization.jpeg [%]", "3 %", "gpu.jpeg_utilization", 0.03),
        ("utilization.ofa [%]", "4 %", "gpu.optical_flow_utilization", 0.04),
        ("ecc.errors.corrected.volatile.total", "7", "gpu.ecc_corrected", 7),
        ("ecc.errors.uncorrected.volatile.total", "1", "gpu.ecc_uncorrected", 1),
        ("ecc.errors.corrected.aggregate.total", "70", "gpu.ecc_corrected_lifetime", 70),
        ("ecc.errors.uncorrected.aggregate.total", "2", "gpu.ecc_uncorrected_lifetime", 2),
    ],
)
def test_units_come_from_the_cell_the_heading_or_the_manual(
    tmp_path: Path, heading: str, cell: str, metric: str, value: float
) -> None:
    assert only(replayed(tmp_path, f"{heading}\n{cell}\n")).value(metric) == pytest.approx(value)


@pytest.mark.parametrize(
    ("cell", "why"),
    [
        ("[N/A]", Availability.NOT_SUPPORTED),
        ("[Not Supported]", Availability.NOT_SUPPORTED),
        ("N/A", Availability.NOT_SUPPORTED),
        ("", Availability.NOT_SUPPORTED),
        ("[Unknown Error]", Availability.FAILED),
        ("[Never Heard Of]", Availability.FAILED),
        ("[Insufficient Permissions]", Availability.NO_PERMISSION),
        ("[GPU requires reset]", Availability.RESET_REQUIRED),
        ("[GPU is lost]", Availability.LOST),
    ],
)
def test_a_cell_without_a_value_says_why(tmp_path: Path, cell: str, why: Availability) -> None:
    sample = only(replayed(tmp_path, f"index, power.draw [W], utilization.gpu [%]\n0, {cell}, 5 %\n"))
    assert math.isnan(sample.value("gpu.power"))
    assert sample.device.missing["gpu.power"] is why
    assert sample.value("gpu.utilization") == 0.05
    assert sample.state is (Availability.LOST if why is Availability.LOST else Availability.OK)


def test_of_several_columns_for_a_metric_the_surest_counts(tmp_path: Path) -> None:
    content = "power.draw.instant [W], power.draw [W], power.limit [W], enforced.power.limit [W]\n1 W, 2 W, 3 W, 4 W\n"
    sample = only(replayed(tmp_path, content))
    assert (sample.value("gpu.power"), sample.value("gpu.power_limit")) == (2, 4)


def test_a_hostile_name_is_made_harmless(tmp_path: Path) -> None:
    sample = only(replayed(tmp_path, 'name, uuid, power.draw [W]\n"A\x1b[31m, B", GPU-\u202ex, 1 W\n'))
    assert sample.device.name == "A\\x1b[31m, B"
    assert sample.device.uuid == "GPU-\\u202ex"


# What the file looks like


GOOD = rows([0, 2, 1000, 1002, 2000, 2002])


@pytest.mark.parametrize(
    "content",
    [
        GOOD.encode(),
        gzip.compress(GOOD.encode()),
        gzip.compress(GOOD[:60].encode()) + gzip.compress(GOOD[60:].encode()),
        b"\xef\xbb\xbf" + GOOD.encode(),
        GOOD.encode("utf-16"),
        GOOD.replace("\n", "\r\n").encode(),
        GOOD.replace("\n", "\n\n").encode(),
        GOOD.replace("\n", "\n# a remark\n").encode(),
        GOOD.rstrip("\n").encode(),
        (GOOD + stamp(3000)[:9]).encode(),
        (GOOD + f"{stamp(3000)}, 106.00 W, 7 %, 1").encode(),
        (GOOD + f"{stamp(3000)}, 106.00 W, 7 %, 17 Mi").encode(),
        ("\n".join('"' + line.replace(", ", '", "') + '"' for line in GOOD.splitlines()) + "\n").encode(),
        GOOD.replace(stamp(1000), f"{HEADING}\n{stamp(1000)}").encode(),
        GOOD.replace(stamp(1000), f"\ufeff{HEADING}\n{stamp(1000)}").encode(),
        GOOD.replace(HEADING, HEADING.upper()).encode(),
        GOOD.replace(", ", ",").encode(),
        ("$ nvidia-smi --query-gpu=... -l 1\n" + GOOD).encode(),
        (GOOD + "No devices were found\n").encode(),
    ],
)
def test_the_same_log_in_another_dress_gives_the_same(tmp_path: Path, content: bytes) -> None:
    assert powers(replayed(tmp_path, content)) == [[100, 101], [102, 103], [104, 105]]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is empty"),
        (gzip.compress(b"", mtime=0), "is empty"),
        (bytes(range(256)) * 20, "binary"),
        (gzip.compress(bytes(range(256)) * 20, mtime=0), "binary"),
        (b"\x1f\x8b\x08", "truncated"),
        (b"\x1f\x8b garbage that is no gzip at all", "unreadable"),
        (b"GPUMRNG\x01" + bytes(100), "a daemon's ring: record it with 'gpumon record --last 1h -o FILE'"),
        (b"2025/07/27 00:00:00.000, 72 W, 0 %, 1 MiB\n" * 30, "line 1: no header"),
        (b"2025/07/27 00:00:00.000, 72 W, 0 %, 1 MiB\n", "no header"),
        (HEADING.encode(), "no readable row"),
        (b"timestamp, compute_mode\n2025/07/27 00:00:00.000, Default\n", "no column"),
        (b"power.draw [W]\n" + b"x" * 70000, "line 2: longer than"),
        (b"# gpu pwr\n# Idx W\n", "no readable row"),
    ],
)
def test_what_is_no_log_is_refused_in_one_line(tmp_path: Path, content: bytes, words: str) -> None:
    with pytest.raises(SourceError, match=words) as caught:
        ReplaySource(write(tmp_path, content), clock=FakeClock(0))
    assert "\n" not in str(caught.value)


def test_a_missing_file_a_directory_and_a_pipe_are_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path, words in (("none.csv", "No such file"), ("", "is a directory"), ("pipe", "not a regular"), ("\0", "NUL")):
        with pytest.raises(SourceError, match=words):
            ReplaySource(f"{tmp_path}/{path}", clock=FakeClock(0))


def test_a_gzip_cut_short_gives_what_could_be_read_and_says_so(tmp_path: Path) -> None:
    whole = gzip.compress(rows(range(0, 300_000, 100)).encode())
    source, readings = everything(write(tmp_path, whole[: len(whole) // 2]))
    assert 100 < len(readings) < 3000
    assert "truncated after line" in source.origin().label
    assert source.origin().problem == ""


def zipped(content: bytes) -> bytes:
    with zipfile.ZipFile(file := io.BytesIO(), "w") as archive:
        archive.writestr("x.csv", content)
    return file.getvalue()


def test_wherever_a_gzip_is_cut_it_gives_its_rows_or_says_so(tmp_path: Path) -> None:
    whole = gzip.compress(rows(range(0, 3000, 100)).encode())
    refused = 0
    for kept in range(2, len(whole)):
        try:
            source, readings = everything(write(tmp_path, whole[:kept]))
        except SourceError as error:
            refused += 1
            assert "truncated" in str(error), kept  # noqa: PT017
        else:
            assert readings
            assert "truncated" in source.origin().label
    assert refused > 50


def test_a_gzip_whose_checksum_is_wrong_gives_its_rows_and_says_so(tmp_path: Path) -> None:
    whole = gzip.compress(GOOD.encode())
    source, readings = everything(write(tmp_path, whole[:-8] + bytes(8)))
    assert len(readings) == 3
    assert "damaged" in source.origin().label


@pytest.mark.parametrize(
    ("compress", "name"),
    [(lzma.compress, "xz"), (bz2.compress, "bzip2"), (lambda _: b"\x28\xb5\x2f\xfd\x04", "zstd"), (zipped, "zip")],
)
def test_another_compression_is_named(tmp_path: Path, compress: Callable[[bytes], bytes], name: str) -> None:
    with pytest.raises(SourceError, match=f"compressed with {name}"):
        ReplaySource(write(tmp_path, compress(GOOD.encode())), clock=FakeClock(0))


@pytest.mark.parametrize("left", [1, 2, 3, 4])
def test_a_log_cut_short_within_a_tick_calls_no_gpu_silent(tmp_path: Path, left: int) -> None:
    times = [1000 * tick + gpu for tick in range(20) for gpu in range(4)]
    lines = rows(times).splitlines(keepends=True)
    content = "".join(lines[: 1 + 4 * 19 + left]) + "2025/07/27 00:0"
    _, readings = everything(write(tmp_path, content))
    assert len(readings) == (20 if left == 4 else 19)
    assert {sample.state for reading in readings for sample in reading.samples} == {Availability.OK}


@pytest.mark.parametrize(
    "bad",
    [
        "garbage",
        "2025/07/27 00:00:01.500, 5 W, 7 %",
        "2025/07/27 00:00:01.500, 5 W, 7 %, 17 MiB, 5",
        "2025/13/27 00:00:01.500, 5 W, 7 %, 17 MiB",
        "2025/07/27 00:00:01.500, 5 V, 7 %, 17 MiB",
        "2025/07/27 00:00:01.500, nan, 7 %, 17 MiB",
        "2025/07/27 00:00:01.500, -5 W, 7 %, 17 MiB",
        "2024/07/27 00:00:01.500, 5 W, 7 %, 17 MiB",
        "2095/07/27 00:00:01.500, 5 W, 7 %, 17 MiB",
        "\x00\x00\x00\x00",
    ],
)
@pytest.mark.parametrize("place", [2, 20])
def test_one_bad_line_is_skipped_and_counted(tmp_path: Path, bad: str, place: int) -> None:
    lines = rows(range(0, 40_000, 1000)).replace("timestamp", "index, timestamp").replace("\n2025", "\n0, 2025")
    split = lines.splitlines()
    split.insert(place, f"0, {bad}" if "," in bad else bad)
    source, readings = everything(write(tmp_path, "\n".join(split) + "\n"))
    assert [p for (p,) in powers(readings)] == list(range(100, 140))
    assert source.origin().label == "REPLAY log.csv ended (1 line skipped)"


def test_an_unreadable_row_holds_its_place_among_rows_without_names(tmp_path: Path) -> None:
    times = [tick * 1000 + gpu for tick in range(20) for gpu in range(4)]
    lines = rows(times).splitlines()
    lines[1 + 4 * 10 + 1] = "2025/07/27 ??, 5 W, 7 %, 17 MiB"
    readings = replayed(tmp_path, "\n".join(lines) + "\n")
    assert len(readings) == 20
    broken = readings[10].samples
    assert [s.state for s in broken] == [Availability.OK, Availability.STALE, Availability.OK, Availability.OK]
    assert [s.value("gpu.power") for s in broken] == [140, 137, 142, 143]
    assert broken[1].age == pytest.approx(1.0)


def test_too_many_bad_lines_refuse_the_log_with_the_line(tmp_path: Path) -> None:
    lines = rows(range(0, 40_000, 1000)).splitlines()
    lines[5:5] = ["2025/07/27 00:00:01.500, 5 V, 7 %, 17 MiB"] * 11
    with pytest.raises(SourceError, match=r"log.csv: line 16: '5 V' is out of range .*, and 11 of 16"):
        everything(write(tmp_path, "\n".join(lines)))


def test_a_log_that_goes_bad_later_ends_with_the_reason(tmp_path: Path) -> None:
    path = write(tmp_path, rows(range(0, 6_000_000, 1000)) + "garbage\n" * 2000)
    source, readings = everything(path)
    assert 5900 < len(readings) <= 6000
    assert "line 60" in source.origin().problem
    assert "ended" in source.origin().label


# Times


def test_times_are_local_and_exact(tmp_path: Path) -> None:
    (reading,) = replayed(tmp_path, rows([1]))
    assert reading.time_ns == 1_753_567_200_001_000_000  # 2025-07-26 22:00:00.001 UTC


def test_the_hour_that_comes_twice_in_autumn_goes_on(tmp_path: Path) -> None:
    times = ["02:59:58", "02:59:59", "02:00:00", "02:00:01", "03:00:00"]
    readings = replayed(tmp_path, "timestamp, power.draw [W]\n" + "".join(f"2025/10/26 {t}.000, 5 W\n" for t in times))
    assert [(r.time_ns - readings[0].time_ns) // SECOND for r in readings] == [0, 1, 2, 3, 3602]


def test_a_clock_set_back_a_little_keeps_the_order(tmp_path: Path) -> None:
    readings = replayed(tmp_path, rows([0, 1000, 2000, 1900, 3000]))
    assert len(readings) == 5
    assert all(b.time_ns > a.time_ns for a, b in pairwise(readings))


def test_a_log_without_times_counts_a_second_a_tick(tmp_path: Path) -> None:
    clock = FakeClock(SECOND)
    source, readings = everything(write(tmp_path, "power.draw [W]\n1 W\n2 W\n3 W\n"), clock)
    assert [r.monotonic_ns - readings[0].monotonic_ns for r in readings] == [0, SECOND, 2 * SECOND]
    assert (
        source.origin().label
        == "REPLAY log.csv ended (no timestamps: 1 s per tick assumed, rows name no GPU: shown as one GPU)"
    )


def test_ticks_become_due_at_ten_times_the_speed(tmp_path: Path, opened: Callable[..., ReplaySource]) -> None:
    clock = FakeClock(77 * SECOND)
    source = opened(write(tmp_path, rows(range(0, 20_000, 1000))), clock, speed=10)
    assert source.interval == 1.0
    assert source.capabilities == source.origin().capabilities == RECORDED
    assert source.origin().label == "REPLAY log.csv ×10"
    assert powers(source.read()) == [[100]]
    assert source.read() == []
    clock.advance(0.05)
    assert source.read() == []
    clock.advance(0.05)
    assert powers(source.read()) == [[101]]
    clock.advance(0.51)
    late = source.read()
    assert powers(late) == [[102], [103], [104], [105], [106]]
    assert late[0].monotonic_ns == 77 * SECOND + 2 * SECOND
    assert late[0].time_ns == 1_753_567_200 * SECOND + 2 * SECOND
    assert {reading.pace.interval_ns for reading in late if reading.pace} == {SECOND}, "apart as in the log"
    clock.advance(10)
    assert len(source.read()) == 13
    assert source.read() == []
    assert source.origin().label == "REPLAY log.csv ended"


def test_a_huge_speed_gives_bounded_bursts_that_lose_nothing(
    tmp_path: Path, opened: Callable[..., ReplaySource]
) -> None:
    clock = FakeClock(0)
    source = opened(write(tmp_path, rows(range(0, 5_000_000, 1000))), clock, speed=1e300)
    clock.advance(1)
    assert [len(source.read()) for _ in range(4)] == [2000, 2000, 1000, 0]


@pytest.mark.parametrize("speed", [0, -1, math.inf, math.nan])
def test_a_speed_that_makes_no_sense_is_refused(tmp_path: Path, speed: float) -> None:
    with pytest.raises(UsageError, match="speed"):
        ReplaySource(write(tmp_path, GOOD), speed=speed, clock=FakeClock(0))


# Several GPUs


@pytest.mark.parametrize("gpus", [1, 2, 3, 8, 64])
@pytest.mark.parametrize("interval", [100, 10_000])
def test_the_number_of_gpus_is_found_from_the_gaps(tmp_path: Path, gpus: int, interval: int) -> None:
    times = [tick * (interval + gpus) + gpu for tick in range(12) for gpu in range(gpus)]
    readings = replayed(tmp_path, rows(times))
    assert [len(p) for p in powers(readings)] == [gpus] * 12
    assert [s.device.uuid for s in readings[0].samples] == [f"REPLAY-{i}" for i in range(gpus)]


def test_one_repeated_time_is_one_tick(tmp_path: Path) -> None:
    assert powers(replayed(tmp_path, rows([0, 0, 0, 1000, 1000, 1000]))) == [[100, 101, 102], [103, 104, 105]]


def test_a_single_look_at_eight_gpus_is_one_tick(tmp_path: Path) -> None:
    assert [len(p) for p in powers(replayed(tmp_path, rows(range(0, 16, 2))))] == [8]


def test_one_gpu_with_pauses_stays_one_gpu(tmp_path: Path) -> None:
    times = [t * 1000 + (5000 if t >= 10 else 0) + (9000 if t >= 15 else 0) for t in range(20)]
    assert powers(replayed(tmp_path, rows(times))) == [[100 + i] for i in range(20)]


def test_a_stall_inside_a_tick_does_not_part_it(tmp_path: Path) -> None:
    times, now = [], 0
    for tick in range(40):
        for gpu in range(4):
            now += 1 + (300 if (tick, gpu) in ((5, 1), (9, 3), (9, 2), (30, 2)) else 0)
            times.append(now)
        now += 100
    assert [len(p) for p in powers(replayed(tmp_path, rows(times)))] == [4] * 40


def stalling(gpus: int, interval: int, seed: int, ticks: int = 250) -> list[int]:
    """Times (ms) of a log like those of a real driver: a pause within a tick is mostly 0 to 3 ms, at times up to nearly
    the interval, of any length between; and nvidia-smi sleeps for as long as ever after the tick."""
    chance = Random(seed)
    times, now = [], 0
    for _ in range(ticks):
        stalls = chance.randrange(gpus) if chance.random() < 0.12 else -1
        for gpu in range(gpus):
            now += chance.choice((0, 1, 1, 2, 2, 2, 3)) if gpu else 0
            now += round(4 * (0.22 * interval) ** chance.random()) if gpu and gpu == stalls else 0
            times.append(now)
        now += interval + chance.choice((0, 1, 2, 2, 3, 4))
    return times


@pytest.mark.parametrize(("gpus", "interval"), [(2, 100), (3, 1000), (8, 1000), (16, 100)])
def test_gpus_are_told_apart_though_the_driver_stalls(tmp_path: Path, gpus: int, interval: int) -> None:
    times = stalling(gpus, interval, seed=1)
    source, readings = everything(write(tmp_path, rows(times, [100.0 + i % gpus for i in range(len(times))])))
    assert powers(readings) == [[100.0 + gpu for gpu in range(gpus)]] * 250
    assert "shown as one" not in source.origin().label


def test_one_gpu_whose_driver_stalls_stays_one_gpu(tmp_path: Path) -> None:
    for seed in range(3):
        source, readings = everything(write(tmp_path, rows(stalling(1, 100, seed))))
        assert {len(reading.samples) for reading in readings} == {1}
        assert "shown as one" not in source.origin().label


def test_a_log_that_does_not_tell_how_many_gpus_it_has_says_so(tmp_path: Path) -> None:
    chance = Random(5)
    times = list(accumulate(round(chance.expovariate(1 / 80)) for _ in range(600)))
    source, readings = everything(write(tmp_path, rows(times)))
    assert {len(reading.samples) for reading in readings} == {1}
    assert "rows name no GPU: shown as one" in source.origin().label


def test_a_missing_row_does_not_shift_those_after_it(tmp_path: Path) -> None:
    times = [tick * 100 + gpu for tick in range(40) for gpu in range(4)]
    watts = [100 + gpu for tick in range(40) for gpu in range(4)]
    del times[4 * 20 + 3], watts[4 * 20 + 3]
    readings = replayed(tmp_path, rows(times, watts))
    assert len(readings) == 40
    assert powers(readings)[20] == [100, 101, 102]
    assert readings[20].samples[3].state is Availability.STALE
    assert all(p == [100, 101, 102, 103] for i, p in enumerate(powers(readings)) if i != 20)


@pytest.mark.parametrize("column", ["index", "uuid", "gpu_uuid", "pci.bus_id"])
def test_a_column_that_names_the_gpu_parts_the_ticks(tmp_path: Path, column: str) -> None:
    names = ["0", "1", "2"] if column == "index" else ["GPU-a", "GPU-b", "GPU-c"]
    cells = [(t, n, 10 * t + i) for t in range(5) for i, n in enumerate(names) if (t, i) != (2, 1)]
    content = f"{column}, power.draw [W]\n" + "".join(f"{n}, {w} W\n" for _, n, w in cells)
    readings = replayed(tmp_path, content)
    assert powers(readings) == [[0, 1, 2], [10, 11, 12], [20, 22], [30, 31, 32], [40, 41, 42]]
    assert [s.device.index for s in readings[0].samples] == [0, 1, 2]
    assert readings[2].samples[1].state is Availability.STALE


def test_rows_that_stop_naming_their_gpu_are_still_bounded_ticks(tmp_path: Path) -> None:
    content = "index, power.draw [W]\n0, 1 W\n1, 2 W\npower.draw [W]\n" + "3 W\n" * 5000
    assert max(len(p) for p in powers(replayed(tmp_path, content))) == 2


def test_another_card_at_the_same_index_is_another_device(tmp_path: Path) -> None:
    content = "index, uuid, power.draw [W]\n0, GPU-a, 1 W\n0, [GPU is lost], 2 W\n0, GPU-b, 3 W\n"
    readings = replayed(tmp_path, content)
    assert [s.device.uuid for s in readings[1].samples] == ["GPU-a"]
    assert [s.device.uuid for s in readings[2].samples] == ["GPU-a", "GPU-b"]


def test_a_repeated_start_of_nvidia_smi_is_a_tick_each(tmp_path: Path) -> None:
    one = "power.draw [W]\n1 W\n2 W\n"
    assert powers(replayed(tmp_path, one * 4)) == [[1, 2]] * 4


# dmon


DMON = """# gpu    pwr  gtemp  mtemp     sm    mem    enc    dec    jpg    ofa   mclk   pclk     fb  rxpci  txpci
# Idx      W      C      C      %      %      %      %      %      %    MHz    MHz     MB   MB/s   MB/s
    0    117     45      -     50      6      0      0      0      0   2619   1980    100     10      1
    1    118     46      -     51      7      0      0      0      0   2619   1980    200     20      2
"""


def test_dmon_arrives_in_base_units_and_rates_become_counters(tmp_path: Path) -> None:
    source, readings = everything(write(tmp_path, DMON * 3))
    assert len(readings) == 3
    assert readings[2].time_ns - readings[0].time_ns == 2 * SECOND
    first, second = readings[2].samples
    assert (first.device.index, second.device.uuid) == (0, "REPLAY-1")
    for key, value in {
        "power": 117, "temperature": 45, "utilization": 0.5, "memory_utilization": 0.06, "clock_sm": 1.98e9,
        "clock_memory": 2.619e9, "memory_used": 100 * MIB, "pcie_received": 20e6, "pcie_sent": 2e6,
    }.items():  # fmt: skip
        assert first.value(f"gpu.{key}") == pytest.approx(value), key
    assert second.value("gpu.pcie_received") == pytest.approx(40e6)
    assert first.device.missing["gpu.temperature_memory"] is Availability.NOT_SUPPORTED
    assert "1 s per tick" in source.origin().label


@pytest.mark.parametrize(
    ("heading", "cells", "offsets"),
    [
        ("#Date       Time        gpu    pwr", ["20250727   00:00:01      0     72", "20250727 00:00:03 0 73"], [0, 2]),
        ("#Time        gpu    pwr", [" 23:59:58      0     72", " 00:00:01      0     73"], [0, 3]),
        ("#Date  gpu  pwr", ["20250727  0   72", "20250727  0   73"], [0, 1]),
        ("#gpu, pwr", ["0, 72", "0, 73"], [0, 1]),
    ],
)
def test_dmon_with_dates_times_or_commas(tmp_path: Path, heading: str, cells: list[str], offsets: list[int]) -> None:
    readings = replayed(tmp_path, "\n".join([heading, *cells]) + "\n")
    assert powers(readings) == [[72], [73]]
    assert [(r.time_ns - readings[0].time_ns) // SECOND for r in readings] == offsets


def test_what_no_log_can_know_and_what_this_one_lacks_are_not_blamed_on_the_card(
    tmp_path: Path, opened: Callable[..., ReplaySource]
) -> None:
    clock = FakeClock(SECOND)
    source = opened(write(tmp_path, rows(range(0, 3000, 1000))), clock)
    (first,) = source.read()
    (sample,) = first.samples
    for name in ("gpu.clock_sm", "gpu.temperature", PROCESSES):
        assert sample.device.missing[name] is Availability.NOT_RECORDED
    assert "recording" in Availability.NOT_RECORDED.reason
    assert not source.origin().ended
    clock.advance(10)
    source.read()
    assert source.origin().ended


# Real and random


@pytest.mark.parametrize(
    ("name", "gpus", "count"), [("h100x8-llama3-8b-ckpt100.csv.gz", 8, 54_432), ("titanx2-gpt350m.csv.gz", 2, 6_570)]
)
def test_every_row_of_a_real_recording_appears_once(name: str, gpus: int, count: int) -> None:
    path = RECORDINGS / name
    if not path.exists():
        pytest.skip(f"the recording {name} is not here")
    _, readings = everything(str(path))
    written = [line.split(", ") for line in gzip.decompress(path.read_bytes()).decode().splitlines()[1:]]
    shown = [sample for reading in readings for sample in reading.samples]
    assert len(written) == len(shown) == count
    assert {len(reading.samples) for reading in readings} == {gpus}
    for (_, power, utilization, memory), sample in zip(written, shown, strict=True):
        assert sample.state is Availability.OK
        assert sample.value("gpu.power") == float(power[:-2])
        assert sample.value("gpu.utilization") == pytest.approx(float(utilization[:-2]) / 100)
        assert sample.value("gpu.memory_used") == float(memory[:-4]) * MIB
    assert all(b.time_ns > a.time_ns for a, b in pairwise(readings))


FUZZ = settings(
    max_examples=examples(150),
    deadline=60_000,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
MIXED = rows([t * 100 + g for t in range(40) for g in range(4)]).encode()


def survives(folder: Path, content: bytes) -> None:
    """It replays in the order of time, or is refused in one line."""
    try:
        source, readings = everything(write(folder, content))
    except SourceError as error:
        said = str(error)
    else:
        said = source.origin().label + source.origin().problem
        assert all(b.time_ns > a.time_ns for a, b in pairwise(readings))
    assert "\n" not in said


@FUZZ
@given(text=st.text())
def test_random_text_replays_or_is_refused(tmp_path: Path, text: str) -> None:
    survives(tmp_path, text.encode("utf-8", "surrogatepass"))


@FUZZ
@given(
    content=st.sampled_from([MIXED, DMON.encode() * 9, gzip.compress(MIXED), gzip.compress(DMON.encode() * 9)]),
    damage=st.lists(st.tuples(st.integers(0, 12000), st.integers(0, 9), st.binary(max_size=12)), max_size=12),
)
def test_a_damaged_log_replays_or_is_refused(
    tmp_path: Path, content: bytes, damage: list[tuple[int, int, bytes]]
) -> None:
    for place, length, new in damage:
        at = place % len(content)
        content = content[:at] + new + content[at + length :]
    survives(tmp_path, content)


@FUZZ
@given(
    names=st.lists(st.sampled_from(["timestamp", "index", "uuid", "name", "power.draw [W]", "pstate"]), min_size=1),
    cells=st.lists(st.lists(st.sampled_from(["0", "1", "P0", "5 W", stamp(0), stamp(9), "[N/A]", "", "\U0001f600"]))),
)
def test_any_heading_with_any_cells_replays_or_is_refused(
    tmp_path: Path, names: list[str], cells: list[list[str]]
) -> None:
    survives(tmp_path, "\n".join([", ".join(names), *(", ".join(row) for row in cells)]).encode())


TABLE = """\
+-----------------------------------------------------------------------------------------+
| NVIDIA-SMI 550.54.15              Driver Version: 550.54.15      CUDA Version: 12.4     |
|-----------------------------------------+------------------------+----------------------+
"""
PMON = """\
# gpu        pid  type    sm    mem    enc    dec    jpg    ofa    command
# Idx          #   C/G     %      %      %      %      %      %    name
    0      12345     C    90     40      -      -      -      -    python
"""
APPS = "timestamp, gpu_uuid, pid, process_name, used_memory [MiB]\n2025/07/27 00:00:00.000, GPU-1, 7, python, 5 MiB\n"


class TestForeignFiles:
    """A file that has no row for each GPU is named, with the command that makes one that has."""

    @pytest.mark.parametrize(
        ("content", "what"),
        [
            (f"Sun Jul 27 00:00:00 2025\n{TABLE}", "the table of 'nvidia-smi'"),
            (f"Every 2.0s: nvidia-smi    host: Sun Jul 27\n\n{TABLE}", "'watch'"),
            ('<?xml version="1.0" ?>\n<!DOCTYPE nvidia_smi_log>\n<nvidia_smi_log>\n', "XML"),
            ("\n==============NVSMI LOG==============\n\nTimestamp : Sun Jul 27\nDriver Version : 550\n", "-q'"),
            (PMON, "processes"), (PMON.replace("# gpu", "#Date Time gpu"), "processes"), (APPS, "processes"),
            ("GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-1)\n", "-L'"),
            ("# HELP DCGM_FI_DEV_FB_USED gpu mem used\n# TYPE DCGM_FI_DEV_FB_USED gauge\nx 1\n", "Prometheus"),
            ('{"gpus": []}\n', "JSON"), ("#Entity   GPUTL  MCUTL\nGPU 0     90     40\n", "dcgmi"),
        ],
    )  # fmt: skip
    def test_is_named(self, tmp_path: Path, content: str, what: str) -> None:
        with pytest.raises(SourceError) as caught:
            ReplaySource(write(tmp_path, content), clock=FakeClock(0))
        assert what in str(caught.value)
        assert COMMAND in str(caught.value)
        assert "\n" not in str(caught.value)

    @pytest.mark.parametrize(
        "heading",
        [
            "step,epoch,loss,lr,pstate",
            "timestamp,name,loss,accuracy,lr",
            "# the gpu used mem and sm",
            "a,b,c,power.draw",
        ],
    )
    def test_some_columns_of_ours_are_not_enough(self, tmp_path: Path, heading: str) -> None:
        row = ",".join("1" * len(heading.split(",")))
        with pytest.raises(SourceError, match="no header"):
            ReplaySource(write(tmp_path, f"{heading}\n" + f"{row}\n" * 30), clock=FakeClock(0))

    def test_what_the_command_writes_is_played(self, tmp_path: Path) -> None:
        names = COMMAND.partition("--query-gpu=")[2].partition(" ")[0].split(",")
        cells = {"timestamp": stamp(0), "index": "0", "uuid": "GPU-1", "name": "NVIDIA H100"}
        row = ", ".join(cells.get(name, "5") for name in names)
        (reading,) = replayed(tmp_path, ", ".join(names) + f"\n{row}\n")
        assert len(reading.samples) == 1


class TestRepeatedRows:
    """A line that stands in a log twice is one row."""

    LOG = "\n".join(
        [
            "index, timestamp, power.draw [W]",
            *(f"{gpu}, {stamp(t * 1000 + 250)}, {100 + t}" for t in range(9) for gpu in (0, 1)),
        ]
    )

    @pytest.mark.parametrize("lines", [1, 2])
    def test_at_the_end(self, tmp_path: Path, lines: int) -> None:
        again = "\n".join([self.LOG, *self.LOG.splitlines()[-lines:], ""])
        readings = replayed(tmp_path, again)
        assert [[row.state for row in one.samples] for one in readings] == [[Availability.OK] * 2] * 9
        assert powers(readings) == powers(replayed(tmp_path, self.LOG))

    def test_in_the_middle(self, tmp_path: Path) -> None:
        lines = self.LOG.splitlines()
        assert powers(replayed(tmp_path, "\n".join([*lines[:7], lines[6], *lines[7:]]))) == powers(
            replayed(tmp_path, self.LOG)
        )

    def test_values_that_stay_are_rows_of_their_own(self, tmp_path: Path) -> None:
        still = "\n".join(["index, timestamp, power.draw [W]", *(f"0, {stamp(t * 500)}, 100" for t in range(9)), ""])
        assert len(replayed(tmp_path, still)) == 9

    def test_as_the_whole_tick_whose_rows_are_a_millisecond_apart(self, tmp_path: Path) -> None:
        head, *lines = [
            "index, timestamp, power.draw [W]",
            *(f"{gpu}, {stamp(t * 1000 + 250 + gpu)}, {100 + t}" for t in range(9) for gpu in (0, 1)),
        ]
        once = replayed(tmp_path, "\n".join([head, *lines, ""]))
        again = replayed(tmp_path, "\n".join([head, *lines[:8], *lines[6:], ""]))
        assert powers(again) == powers(once)

    @pytest.mark.parametrize("gpus", [1, 2])
    def test_where_rows_name_no_gpu(self, tmp_path: Path, gpus: int) -> None:
        head, *lines = rows([t * 1000 + 250 + gpu for t in range(9) for gpu in range(gpus)]).splitlines()
        again = replayed(tmp_path, "\n".join([head, *lines[: 4 * gpus], *lines[4 * gpus - 1 :], lines[-1], ""]))
        assert powers(again) == powers(replayed(tmp_path, "\n".join([head, *lines, ""])))


def test_gpus_of_one_number_on_two_machines_are_two(tmp_path: Path) -> None:
    log = "\n".join(
        [
            "hostname, timestamp, index, power.draw [W]",
            *(f"{host}, {stamp(t * 1000 + 250)}, 0, {watts}" for t in range(5) for host, watts in (("a", 1), ("b", 2))),
            "",
        ]
    )
    readings = replayed(tmp_path, log)
    assert powers(readings) == [[1, 2]] * 5
    assert len({sample.device.uuid for sample in readings[-1].samples}) == 2
