"""The place for sums at the end of a ring: whole or not there, over layouts with and without it, and hostile bytes."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.common.clock import SECOND
from gpumon.ring import takeover
from gpumon.ring.layout import Layout
from gpumon.ring.reader import RingReader
from gpumon.ring.sums import HEAD, SumNames, SumPlace, Sums, SumTimes, hand_over, read_sums, write_sums
from gpumon.ring.writer import RingWriter
from tests.builders import sample, tick

LAYOUT = takeover.plan(rows=1, frames=8)
NAMES = SumNames(
    {"devices": (("observed", "busy"), [("GPU-0",), ("GPU-1",)]), "users": (("held",), [("GPU-0", "ann")])}
)
TIMES = SumTimes(5 * SECOND, 6 * SECOND, 7 * SECOND, 2)
ROWS = ((1.0, 0.5), (2.0, 0.25), (3.0,))


@pytest.fixture
def fd() -> Iterator[int]:
    found = os.memfd_create("ring")
    os.ftruncate(found, LAYOUT.size)
    yield found
    os.close(found)


def put(fd: int, number: int, factor: float = 1.0) -> None:
    write_sums(fd, SumPlace.of(LAYOUT), number, NAMES, TIMES, [[factor * value for value in row] for row in ROWS])


def test_a_record_comes_back_as_it_was_written(fd: int) -> None:
    put(fd, 1)
    found = read_sums(fd, LAYOUT)
    assert found is not None
    assert found[:5] == (1, *TIMES)
    assert found.tables["devices"].columns == ("observed", "busy")
    assert found.tables["devices"].rows == {("GPU-0",): (1.0, 0.5), ("GPU-1",): (2.0, 0.25)}
    assert found.tables["users"].rows == {("GPU-0", "ann"): (3.0,)}


def test_an_empty_place_has_no_sums(fd: int) -> None:
    assert read_sums(fd, LAYOUT) is None


def test_the_newer_copy_counts_and_the_older_one_where_that_is_torn(fd: int) -> None:
    for number in (1, 2, 3):
        put(fd, number, float(number))
    found = read_sums(fd, LAYOUT)
    assert found is not None
    assert (found.number, found.tables["users"].rows["GPU-0", "ann"]) == (3, (9.0,))
    os.pwrite(fd, b"\xff", LAYOUT.sums_at + LAYOUT.sums + HEAD.size + 3)
    found = read_sums(fd, LAYOUT)
    assert found is not None
    assert (found.number, found.tables["users"].rows["GPU-0", "ann"]) == (2, (6.0,))


def test_a_record_without_room_is_refused_before_anything_is_written(fd: int) -> None:
    put(fd, 1)
    narrow = LAYOUT._replace(sums=HEAD.size + 8)
    before = os.pread(fd, LAYOUT.size, 0)
    with pytest.raises(OSError, match="No space"):
        write_sums(fd, SumPlace.of(narrow), 2, NAMES, TIMES, ROWS)
    assert os.pread(fd, LAYOUT.size, 0) == before


@given(at=st.integers(4, HEAD.size + len(NAMES.raw) + 40 - 1), byte=st.integers(0, 255))
def test_any_changed_byte_is_no_record(at: int, byte: int) -> None:
    fd = os.memfd_create("ring")
    try:
        put(fd, 1)
        where = LAYOUT.sums_at + LAYOUT.sums + at
        if os.pread(fd, 1, where) != bytes([byte]):
            os.pwrite(fd, bytes([byte]), where)
            assert read_sums(fd, LAYOUT) is None
    finally:
        os.close(fd)


def forged(fd: int, raw: bytes, values: int = 5) -> Sums | None:
    """What is read of a record whose CRC is right and whose names are `raw`."""
    names = SumNames({})
    names.raw = raw
    write_sums(fd, SumPlace.of(LAYOUT), 1, names, TIMES, [[1.0] * values])
    return read_sums(fd, LAYOUT)


@pytest.mark.parametrize(
    "names",
    [
        b"{",
        b"[]",
        b"\xff\xfe\xfd",
        b'{"a": 1}',
        b'{"a": {}}',
        b'{"a": {"columns": [], "keys": [["x"]]}}',
        b'{"a": {"columns": ["c"], "keys": {"x": 1}}}',
        b'{"a": {"columns": ["c"], "keys": [[1]]}}',
        b'{"a": {"columns": [1], "keys": [["x"]]}}',
        b'{"a": {"columns": ["c"], "keys": [[]]}}',
        b'{"a": {"columns": ["c"], "keys": [["x"], ["y"], ["z"], ["x1"], ["x2"], ["x3"]]}}',
        json.dumps({"a": {"columns": ["c"] * 65, "keys": [["x"]]}}).encode(),
        b"[" * 5000,
    ],
)
def test_names_that_make_no_sense_are_no_sums(fd: int, names: bytes) -> None:
    assert forged(fd, names) is None


def test_a_length_beyond_the_place_is_not_read(fd: int) -> None:
    put(fd, 1)
    os.pwrite(fd, (1 << 31).to_bytes(4, "little"), LAYOUT.sums_at + LAYOUT.sums + 4)
    assert read_sums(fd, LAYOUT) is None


def test_sums_are_handed_over_where_they_have_room(fd: int) -> None:
    put(fd, 3)
    new = os.memfd_create("ring")
    os.ftruncate(new, LAYOUT.size)
    hand_over(fd, LAYOUT, new, LAYOUT._replace(sums=64))
    assert read_sums(new, LAYOUT._replace(sums=64)) is None
    hand_over(fd, LAYOUT, new, LAYOUT)
    assert read_sums(new, LAYOUT) == read_sums(fd, LAYOUT)
    os.close(new)


@pytest.fixture
def before(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rings of minor version 0, which had no place for sums."""
    plan = takeover.plan

    def without(rows: int, frames: int) -> Layout:
        found = plan(rows, frames)
        schema = json.loads(found.schema)
        del schema["sums"]
        return found._replace(schema=json.dumps(schema, separators=(",", ":")).encode(), sums=0)

    monkeypatch.setattr("gpumon.ring.writer.plan", without)


def test_a_ring_of_before_is_read_and_taken_over(tmp_path: Path, before: None, monkeypatch: pytest.MonkeyPatch) -> None:
    path = str(tmp_path / "ring")
    old = RingWriter.create(path, 1, SECOND, continues="nvml")
    old.append(tick(1, [sample(0, power=7.0)]))
    old.close()
    with closing(RingReader.open(path)) as reader:
        assert reader.layout.sums == 0
        assert reader.sums() is None
        newest = reader.newest()
        assert newest is not None
    monkeypatch.undo()
    ring = RingWriter.create(path, 1, SECOND, continues="nvml")
    assert ring.layout.sums == takeover.SUMS_ROOM
    with closing(RingReader.open(path)) as reader:
        assert [frame.samples[0].value("gpu.power") for frame in reader.since(0)] == [7.0]
        assert reader.sums() is None
    ring.close()


def test_who_does_not_know_of_sums_reads_all_frames_and_takes_them_over(tmp_path: Path, before: None) -> None:
    """A daemon of before that starts after one of this version: the same layout, and no word of sums in it."""
    path = str(tmp_path / "ring")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("gpumon.ring.writer.plan", takeover.plan)
        new = RingWriter.create(path, 1, SECOND, continues="nvml")
    new.append(tick(1, [sample(0, power=7.0)]))
    write_sums(new.fd, SumPlace.of(new.layout), 1, NAMES, TIMES, ROWS)
    new.close()
    old = RingWriter.create(path, 1, SECOND, continues="nvml")
    old.append(tick(2, [sample(0, power=8.0)]))
    old.close()
    with closing(RingReader.open(path)) as reader:
        assert [frame.samples[0].value("gpu.power") for frame in reader.since(0)] == [7.0, 8.0]
        assert reader.sums() is None
