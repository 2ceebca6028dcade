"""Columnar blocks: what was packed comes back, and damaged bytes are refused or give numbers."""

from __future__ import annotations

import zlib
from array import array
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.common.columnar import (
    HEAD,
    VERSION,
    ColumnarBlock,
    DamagedBlock,
    FloatPacker,
    PartReader,
    decompress,
    doubles,
    pack_block,
    pack_columns,
    pack_integers,
    pack_part,
    singles,
)

ANY = st.floats(allow_nan=True, allow_infinity=True)
NARROW = st.floats(allow_nan=True, allow_infinity=True, width=32)
WHOLE = st.integers(-(2**63), 2**63 - 1)
REPEATED = st.sampled_from([0.0, -0.0, 1.5, 0.1, 1e300])


@st.composite
def tables(draw: st.DrawFn) -> list[array[Any]]:
    rows = draw(st.integers(0, 40))
    columns: list[array[Any]] = []
    for kind in draw(st.lists(st.sampled_from("fdqcs"), max_size=6)):
        if kind == "s" and columns:
            columns.append(columns[-1][:])
        elif kind == "q":
            columns.append(array("q", draw(st.lists(WHOLE, min_size=rows, max_size=rows))))
        elif kind == "f":
            columns.append(singles(draw(st.lists(NARROW, min_size=rows, max_size=rows))))
        else:
            numbers = REPEATED if kind == "c" else ANY
            columns.append(doubles(draw(st.lists(numbers, min_size=rows, max_size=rows))))
    return columns


def bits(values: Any) -> bytes:
    return array("d", values).tobytes()


class TestColumns:
    @given(tables())
    def test_are_restored(self, columns: list[array[Any]]) -> None:
        part = ColumnarBlock(pack_block([b"", pack_part(pack_columns(columns))])).open(1, 1 << 20)
        for column in columns:
            if column.typecode == "q":
                assert part.integers(len(column)) == column.tolist()
            else:
                assert bits(part.floats(len(column))) == bits(column)
        with pytest.raises(DamagedBlock):
            part.read(1)

    @given(st.lists(st.one_of(REPEATED, ANY), max_size=40))
    def test_of_exact_floats_are_restored(self, values: list[float]) -> None:
        packed = FloatPacker().pack(values, "column")
        assert bits(PartReader(packed).floats(len(values))) == bits([v if v == v else float("nan") for v in values])

    def test_that_are_constant_or_equal_need_few_bytes(self) -> None:
        constant, other = doubles([5.0]) * 10_000, singles([float(n) for n in range(100)])
        assert len(pack_columns((constant, constant))) == 10
        assert len(pack_columns((other, other, other))) == 1 + 400 + 2
        assert len(pack_integers(range(10, 10_000, 7))) == 17


class TestDamage:
    @given(st.binary(max_size=200), st.integers(0, 50), st.sampled_from(["floats", "integers"]))
    def test_of_a_part_is_an_error_or_gives_numbers(self, raw: bytes, count: int, kind: str) -> None:
        part = PartReader(raw)
        with suppress(DamagedBlock):
            for _ in range(4):
                assert len(getattr(part, kind)(count)) == count

    @given(st.integers(0, 10_000), st.integers(1, 255))
    def test_of_any_byte_is_noticed(self, place: int, change: int) -> None:
        data = bytearray(pack_block([pack_part(pack_columns([doubles([1.0, 2.0, 3.0])])), b"", pack_part(b"abc")]))
        data[place % len(data)] ^= change
        if place % len(data) != 1:  # reserved
            with pytest.raises(DamagedBlock):
                ColumnarBlock(bytes(data))

    @pytest.mark.parametrize("size", range(0, 60, 7))
    def test_by_cutting_is_noticed(self, size: int) -> None:
        data = pack_block([pack_part(pack_columns([doubles([float(n) ** 0.5 for n in range(50)])]))])
        with pytest.raises(DamagedBlock):
            ColumnarBlock(data[:size])

    def test_by_a_false_directory_is_noticed(self) -> None:
        body = b"\xff" * 8
        crc = zlib.crc32(body, zlib.crc32(HEAD.pack(VERSION, 2, 0)[:4]))
        block = ColumnarBlock(HEAD.pack(VERSION, 2, crc) + body)
        for part in (0, 1, 2, -1):
            with pytest.raises(DamagedBlock):
                block.open(part, 1000)

    def test_by_a_part_that_is_larger_than_allowed_is_noticed(self) -> None:
        with pytest.raises(DamagedBlock):
            decompress(zlib.compress(b"\0" * 10_000_000), 1000)
        with pytest.raises(DamagedBlock):
            PartReader(b"\x01" + b"\0" * 8).floats(1 << 30)

    def test_by_another_version_is_noticed(self) -> None:
        data = pack_block([])
        assert ColumnarBlock(data).parts == 0
        with pytest.raises(DamagedBlock):
            ColumnarBlock(bytes((VERSION + 1,)) + data[1:])
