"""The place for sums at the end of a ring: whole or not there, and hostile bytes."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.common.clock import SECOND
from gpumon.ring import takeover
from gpumon.ring.sums import HEAD, SumLocation, SumNames, Sums, SumTimes, copy_sums, read_sums, write_sums

LAYOUT = takeover.plan_layout(rows=1, frames=8)
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
    write_sums(
        fd, SumLocation.from_layout(LAYOUT), number, NAMES, TIMES, [[factor * value for value in row] for row in ROWS]
    )


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
        write_sums(fd, SumLocation.from_layout(narrow), 2, NAMES, TIMES, ROWS)
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
    write_sums(fd, SumLocation.from_layout(LAYOUT), 1, names, TIMES, [[1.0] * values])
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
    copy_sums(fd, LAYOUT, new, LAYOUT._replace(sums=64))
    assert read_sums(new, LAYOUT._replace(sums=64)) is None
    copy_sums(fd, LAYOUT, new, LAYOUT)
    assert read_sums(new, LAYOUT) == read_sums(fd, LAYOUT)
    os.close(new)
