"""Recordings: what was recorded is what plays, bit for bit; what is damaged plays up to the damage."""

from __future__ import annotations

import json
import math
import os
import random
import re
import stat
import struct
import zlib
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.common.clock import SECOND
from gpumon.common.columnar import MAX_NUMBERS, DamagedBlock, FloatPacker, PartReader, pack_integers
from gpumon.common.errors import GpumonError, SourceError, UsageError
from gpumon.common.numbers import NAN
from gpumon.model.frame import Boundary, Frame, FrameworkMemory, Mark, RunState
from gpumon.model.metrics import GPU_INDEX, GPU_METRICS, Availability
from gpumon.model.origin import HARDWARE, Driver, Origin, SourceInfo
from gpumon.recording import format as forms
from gpumon.recording.codec import BlockEncoder, RecordingSchema, decode, nanoseconds, schema_to_json
from gpumon.recording.content import TABLES, VALUES, Context, RecordedFrame
from gpumon.recording.reader import RecordingReader, is_recording
from gpumon.recording.writer import RecordingWriter
from tests import builders
from tests.recorded import add_all, bits, comparable, read, simulated, write

WHOLE = st.integers(-(1 << 63), (1 << 63) - 1)
LINES = st.builds(lambda at, step: [at + step * i for i in range(9)], st.integers(), st.integers())
WHOLES = st.lists(WHOLE, max_size=40) | LINES
SCHEMA = RecordingSchema({"tables": schema_to_json()})


@pytest.fixture(scope="module")
def frames() -> list[RecordedFrame]:
    """A minute of a simulation."""
    return simulated(60)


@pytest.fixture(scope="module")
def long() -> list[RecordedFrame]:
    """Five minutes of a simulation, which are several blocks."""
    return simulated(300)


def through_a_block(recorded: list[RecordedFrame]) -> list[RecordedFrame]:
    return decode(BlockEncoder().encode(recorded), SCHEMA, len(recorded))


@given(st.lists(st.floats() | st.integers(-1000, 1000).map(lambda number: number / 1000), max_size=40))
def test_a_column_of_floats_comes_back_bit_for_bit(values: list[float]) -> None:
    found = list(PartReader(FloatPacker().pack(values, "column")).floats(len(values)))
    assert comparable(found) == comparable(values)


@given(WHOLES)
def test_a_column_of_whole_numbers_comes_back(values: list[int]) -> None:
    if all(-(1 << 63) <= value < 1 << 63 for value in values):
        assert PartReader(pack_integers(values)).integers(len(values)) == values


@given(st.integers(0, 1 << 63))
def test_the_nanoseconds_of_a_time_give_it_back(time_ns: int) -> None:
    assert nanoseconds(time_ns / SECOND) / SECOND == time_ns / SECOND


def test_frames_of_a_simulation_come_back_bit_for_bit(frames: list[RecordedFrame]) -> None:
    found = through_a_block(frames)
    assert [bits(one.frame) for one in found] == [bits(one.frame) for one in frames]
    assert [one.context for one in found] == [one.context for one in frames]


def test_hostile_names_come_back_as_they_were_shown() -> None:
    hostile = simulated(3, "sim:hostile")
    assert [bits(one.frame) for one in through_a_block(hostile)] == [bits(one.frame) for one in hostile]


def test_every_field_comes_back() -> None:
    moment = Boundary(
        "key", (1 << 64) - 1, Mark.OUT_OF_MEMORY, 7, 8, "train", 5, 6, 0.25, 2.0, 1.0, {"loss": NAN}, 9.0, 11
    )  # fmt: skip
    samples = [
        builders.sample(0, Availability.STALE, "key", power=-0.0, energy=5e-324)._replace(
            age=12.5, monotonic_ns=77, counters_monotonic_ns=5 * SECOND
        ),
        builders.sample(3)._replace(
            device=builders.device(3, missing={"gpu.fan": Availability.NO_PERMISSION}, source="sim")
        ),
    ]
    runs = [
        builders.run(
            state=RunState.DIED, epoch=-1, step=1 << 40, memory=FrameworkMemory(allocated=1.5), wait=0.1,
            metrics={"loss": 0.5, "f1": NAN}, lost_events=3, gpus=("GPU-1", "GPU-2"), started=1.5,
        )
    ]  # fmt: skip
    tick = builders.tick(
        5,
        samples,
        [
            builders.process(started=2.25),
            builders.process(1, 3, kind="graphics", encoder_utilization=0.25, container="lxc web", pod="0a1b", job="7"),
        ],
        runs,
        [moment],
    )
    parts = builders.TickParts(tick)
    frame = Frame(9, tick.monotonic_ns, tick.time_ns, 0.5, 0.004, 3, 2, parts, 1)
    origin = Origin(
        "nvml,sim",
        "A",
        "b",
        True,
        HARDWARE,
        (SourceInfo(Origin("sim"), Driver("1", "CUDA 13.0")),),
        "a",
        12.0,
        3.0,
        True,
    )
    one = RecordedFrame(frame, Context(origin, Driver("570", "CUDA 12.8"), "node1"))
    (found,) = through_a_block([one])
    assert bits(found.frame) == bits(frame)
    assert found.context == one.context


def test_devices_and_runs_may_come_and_go() -> None:
    made = []
    for i in range(20):
        samples = [builders.sample(gpu, power=i / 3) for gpu in range(1 + i % 3)]
        runs = [
            builders.run(f"key{k}", step=i * k, metrics={"loss": 1.0 / (i + 1)} if i > 4 else {}) for k in range(i % 4)
        ]
        tick = builders.tick(i + 1, samples, [builders.process(4711 + i % 5, i % 2)], runs, [builders.boundary(i + 1)])
        made.append(RecordedFrame(builders.frame_of(tick, i + 1), Context(hostname=f"node{i // 7}")))
    found = through_a_block(made)
    assert [bits(one.frame) for one in found] == [bits(one.frame) for one in made]
    assert [one.context for one in found] == [one.context for one in made]


def test_a_file_gives_back_its_frames_over_many_blocks(tmp_path: Path, long: list[RecordedFrame]) -> None:
    write(tmp_path / "a.gpumon", long)
    found, problem = read(tmp_path / "a.gpumon")
    assert [bits(one.frame) for one in found] == [bits(one.frame) for one in long]
    assert problem == ""


def test_only_the_frames_of_a_stretch_are_given(tmp_path: Path, frames: list[RecordedFrame]) -> None:
    write(tmp_path / "a.gpumon", frames)
    reader = RecordingReader(str(tmp_path / "a.gpumon"))
    begin, end = (nanoseconds(frames[i].frame.time) for i in (10, 20))
    assert [one.frame.number for one in reader.frames(begin, end)] == [one.frame.number for one in frames[10:21]]
    reader.close()


def test_a_metric_that_the_file_does_not_have_was_not_recorded(frames: list[RecordedFrame]) -> None:
    tables = schema_to_json()
    body = BlockEncoder().encode(frames[:2])
    tables["sample"] = [name.replace("gpu.clock_memory", "gpu.of_another_version") for name in tables["sample"]]
    sample = decode(body, RecordingSchema({"tables": tables}), 2)[0].frame.samples[0]
    assert math.isnan(sample.value("gpu.clock_memory"))
    assert sample.device.missing["gpu.clock_memory"] is Availability.NOT_RECORDED
    assert sample.value("gpu.power") == frames[0].frame.samples[0].value("gpu.power")


def test_a_stretch_of_values_alone_says_so(frames: list[RecordedFrame]) -> None:
    values = [one._replace(context=replace(one.context, part=VALUES)) for one in frames[:2]]
    full, alone = through_a_block([frames[2], values[0]])
    assert (full.frame.is_full, full.context.part) == (True, "frames")
    assert (alone.frame.is_full, alone.context.part) == (False, "values")
    assert {sample.device.missing["gpu.processes"] for sample in alone.frame.samples} == {Availability.NOT_RECORDED}
    assert all("gpu.processes" not in sample.device.missing for sample in full.frame.samples)


def test_a_table_of_columns_names_each_field_that_changes() -> None:
    assert {column.name for column in TABLES["sample"]} >= {metric.name for metric in GPU_METRICS}


def test_a_recording_is_for_its_user_alone_and_replaces_nothing(tmp_path: Path, frames: list[RecordedFrame]) -> None:
    path = tmp_path / "a.gpumon"
    write(path, frames)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with pytest.raises(UsageError, match="exists: choose another name, or add --force"):
        RecordingWriter.create(str(path), {})
    RecordingWriter.create(str(path), {}, force=True).close()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize("force", [False, True])
def test_a_link_is_never_written_through(tmp_path: Path, force: bool) -> None:
    (tmp_path / "precious").write_text("mine")
    (tmp_path / "link").symlink_to("precious")
    (tmp_path / "pipe").symlink_to("nowhere")
    for name in ("link", "pipe"):
        with pytest.raises(UsageError, match="choose another name"):
            RecordingWriter.create(str(tmp_path / name), {}, force=force)
    assert (tmp_path / "precious").read_text() == "mine"
    assert not (tmp_path / "nowhere").exists()


def test_what_is_open_is_on_disk_after_ten_seconds(tmp_path: Path, frames: list[RecordedFrame]) -> None:
    writer = RecordingWriter.create(str(tmp_path / "a.gpumon"), {})
    for i, one in enumerate(frames):
        writer.add(one)
        found, problem = read(tmp_path / "a.gpumon")
        assert len(found) >= i + 1 - 10
        assert bits(found[-1].frame) == bits(frames[len(found) - 1].frame)
        assert "has no end marker" in problem
    writer.close()


def test_a_disk_without_room_for_the_header_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def pwrite(fd: int, data: bytes, at: int) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "pwrite", pwrite)
    with pytest.raises(GpumonError, match=r"^a.gpumon: the disk is full: nothing was recorded$"):
        RecordingWriter.create(str(tmp_path / "a.gpumon"), {})
    assert not list(tmp_path.iterdir())


def test_a_full_disk_leaves_what_was_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recorded, path, room = simulated(200, "sim:one"), tmp_path / "a.gpumon", 15_000
    write_there = os.pwrite

    def pwrite(fd: int, data: bytes, at: int) -> int:
        if at >= room:
            raise OSError(28, "No space left on device")
        return write_there(fd, data[: room - at], at)

    monkeypatch.setattr(os, "pwrite", pwrite)
    writer = RecordingWriter.create(str(path), {})
    sentence = r"^a.gpumon: the disk is full: the recording ends at \S+ and plays up to there$"
    with pytest.raises(GpumonError, match=sentence):
        add_all(writer, recorded)
    writer.close()
    found, problem = read(path)
    assert len(found) == writer.frames > 50
    assert [bits(one.frame) for one in found] == [bits(one.frame) for one in recorded[: len(found)]]
    assert problem.count("\n") == 0
    assert path.stat().st_size <= room


def in_short_blocks(recorded: list[RecordedFrame], length: int) -> tuple[bytes, bytes]:
    """Header and file of frames in blocks of so many, as a recorder makes them where processes are many."""
    blocks = []
    for number, i in enumerate(range(0, len(recorded), length), 1):
        part = recorded[i : i + length]
        first, *_, last = (nanoseconds(one.frame.time) for one in part)
        body = BlockEncoder().encode(part)
        blocks.append(
            forms.pack_block(forms.FRAMES, body, frames=len(part), number=number, first_ns=first, last_ns=last)
        )
    header = forms.pack_header({"tables": schema_to_json()})
    end = forms.pack_block(forms.END, b"{}", frames=0, number=len(blocks) + 1, first_ns=0, last_ns=0)
    return header, header + b"".join(blocks) + end


def damage(way: int, header: bytes, whole: bytes, chance: random.Random) -> bytes:
    """A copy of a file that is cut, has other bits, another header, another version or other bytes."""
    damaged = bytearray(whole)
    if way == 0:
        del damaged[chance.randrange(len(whole)) :]
    elif way == 1:
        for _ in range(chance.randint(1, 8)):
            damaged[chance.randrange(len(damaged))] ^= 1 << chance.randrange(8)
    elif way == 2:
        damaged[chance.randrange(len(header))] ^= 1 << chance.randrange(8)
    elif way == 3:
        version, body = chance.choice((0, 2, 3, 77, 65535)), header[forms.HEAD.size :]
        crc = forms._header_crc(version, 0, body)
        damaged[: forms.HEAD.size] = forms.HEAD.pack(forms.MAGIC, version, 0, len(body), crc)
    else:
        at = chance.randrange(len(damaged))
        damaged[at : at + chance.randint(1, 2000)] = chance.randbytes(chance.randint(0, 2000))
    return bytes(damaged)


def test_of_500_damaged_copies_each_plays_up_to_the_damage(tmp_path: Path) -> None:
    path, length, recorded = tmp_path / "a.gpumon", 3, simulated(24, "sim:one")
    header, whole = in_short_blocks(recorded, length)
    expected = [bits(one.frame) for one in recorded]
    chance, played, sentences = random.Random(7), 0, []
    for copy in range(500):
        path.write_bytes(damage(copy % 5, header, whole, chance))
        found: list[RecordedFrame] = []
        try:
            found, sentence = read(path)
        except SourceError as error:
            sentence = str(error)
        assert [bits(one.frame) for one in found] == expected[: len(found)]
        assert len(found) % length == 0
        if sentence or len(found) < len(recorded):
            sentences.append(sentence)
        played += 0 < len(found) < len(recorded)
    assert all(re.fullmatch(r"a\.gpumon[ :][^\n]{10,180}", sentence) for sentence in sentences), sentences
    assert played > 100
    assert len(sentences) > 450


def test_a_sentence_says_where_a_recording_is_damaged(tmp_path: Path, long: list[RecordedFrame]) -> None:
    path = tmp_path / "a.gpumon"
    whole = bytearray(write(path, long))
    whole[-3000] ^= 1
    path.write_bytes(whole)
    found, problem = read(path)
    assert len(found) == 270
    assert "is damaged: it plays up to " in problem
    assert problem.endswith("(270 frames)")


def test_the_version_of_a_later_format_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forms, "MAJOR", 7)
    write(tmp_path / "a.gpumon", [])
    monkeypatch.undo()
    with pytest.raises(SourceError, match="written in format 7, but this gpumon reads format 1: "):
        read(tmp_path / "a.gpumon")


def block(body: bytes, frames: int = 1) -> bytes:
    return forms.pack_block(forms.FRAMES, body, frames=frames, number=1, first_ns=0, last_ns=1)


def body_of(change: dict[str, object], recorded: list[RecordedFrame]) -> bytes:
    """The body of frames in which tables are others."""
    body = BlockEncoder().encode(recorded)
    (length,) = struct.unpack_from("<I", body)
    tables = json.dumps(json.loads(body[4 : 4 + length]) | change).encode()
    return struct.pack("<I", len(tables)) + tables + body[4 + length :]


HOSTILE = [
    {"texts": []}, {"contexts": []}, {"contexts": [7]}, {"devices": []}, {"devices": [{}]}, {"devices": None},
    {"lists": 5}, {"lists": {}}, {"lists": {"sample": [[99]], "process": [[]], "run": [[]]}},
    {"lists": {"sample": [[0] * 5000], "process": [[]], "run": [[]]}}, {"processes": [[1]]}, {"runs": [[1, 2]]},
    {"processes": [[-1, "u", "compute", "n", "me", None, ""]]}, {"texts": [5]}, {"logged": [["a", "a"]]},
]  # fmt: skip


@pytest.mark.parametrize("change", HOSTILE, ids=str)
def test_a_block_that_makes_no_sense_is_no_crash(
    change: dict[str, object], tmp_path: Path, frames: list[RecordedFrame]
) -> None:
    path = tmp_path / "a.gpumon"
    path.write_bytes(forms.pack_header({"tables": schema_to_json()}) + block(body_of(change, frames[:1])))
    found, problem = read(path)
    assert found == []
    assert "not written by gpumon" in problem


def test_a_decompression_bomb_is_refused_at_its_declared_length(tmp_path: Path) -> None:
    path = tmp_path / "a.gpumon"
    stored = zlib.compress(bytes(1 << 26), 9)
    head = forms.BLOCK.pack(forms.MARKER, forms.FRAMES, len(stored), 1000, zlib.crc32(stored), 1, 1, 0, 1)
    path.write_bytes(
        forms.pack_header({"tables": schema_to_json()}) + head + zlib.crc32(head).to_bytes(4, "little") + stored
    )
    assert read(path)[0] == []


def test_numbers_are_counted_before_they_are_made() -> None:
    part = PartReader(b"")
    with pytest.raises(DamagedBlock):
        part.count(MAX_NUMBERS + 1)


def test_columns_that_a_file_does_not_have_are_no_bomb(frames: list[RecordedFrame]) -> None:
    body = bytearray(BlockEncoder().encode(frames[:1]))
    (length,) = struct.unpack_from("<I", body)
    tables = schema_to_json() | {"boundary": []}
    at = 4 + length + sum(17 for _ in range(10))  # the eleventh column of the frame is how many boundaries it has
    assert body[at] == 0
    body[at : at + 17] = struct.pack("<Bqq", 0, 1 << 20, 0)
    with pytest.raises(forms.DamagedRecording):
        decode(bytes(body), RecordingSchema({"tables": tables}), 1)


def test_lengths_beyond_the_limits_are_refused() -> None:
    for stored, raw, count in (
        (forms.MAX_STORED + 1, 1, 1),
        (1, forms.MAX_RAW + 1, 1),
        (1, 1, forms.MAX_FRAMES + 1),
    ):
        head = forms.BLOCK.pack(forms.MARKER, forms.FRAMES, stored, raw, 0, count, 1, 0, 1)
        with pytest.raises(forms.DamagedRecording):
            forms.unpack_block_head(head + zlib.crc32(head).to_bytes(4, "little"))


def test_random_bodies_are_refused_and_never_crash(frames: list[RecordedFrame]) -> None:
    chance = random.Random(3)
    body = BlockEncoder().encode(frames[:4])
    (length,) = struct.unpack_from("<I", body)
    for _ in range(300):
        broken = bytearray(body)
        for _ in range(chance.randint(1, 5)):
            broken[chance.randrange(4 + length, len(broken))] = chance.randrange(256)
        try:
            found = decode(bytes(broken), SCHEMA, 4)
        except (ValueError, LookupError, ArithmeticError, TypeError, struct.error):
            continue
        for one in found:
            assert 0 <= one.frame.samples[0].age <= 1e9
            assert one.frame.interval >= 0
            assert len(one.frame.samples[0].values) == len(GPU_INDEX)


def test_a_file_that_is_none_is_not_taken_for_a_recording(tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text("timestamp, index\n")
    os.mkfifo(tmp_path / "pipe")
    assert not any(is_recording(str(tmp_path / name)) for name in ("log.csv", "pipe", "absent", ""))
    write(tmp_path / "a.gpumon", [])
    assert is_recording(str(tmp_path / "a.gpumon"))
