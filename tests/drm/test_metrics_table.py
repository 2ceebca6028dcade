"""The binary table of amdgpu: each version is laid out as C does it, and no content of the file breaks the parser."""

from __future__ import annotations

import random
import struct

import pytest

from gpumon.model.metrics import Availability
from gpumon.sources.drm.metrics_table import NAMES, parse_table, throttle_causes
from tests.drm.tables import SIZES, STRUCTURES, make_table

VERSIONS = [*STRUCTURES, (1, 9)]
VALUES = {
    "gfx_activity": 71, "umc_activity": 33, "socket_power": 413, "energy_accumulator": 2**40 + 12345,
    "temperature_hotspot": 66, "temperature_edge": 51, "temperature_mem": 58, "indep_throttle_status": 1 << 47 | 3,
    "current_gfxclk": 2100, "accumulation_counter": 777_000, "ppt_residency_acc": 123_456, "hbm_thm_residency_acc": 9,
    "apu_gfx_activity": 4200, "firmware_timestamp": 10**15,
}  # fmt: skip


@pytest.mark.parametrize("version", VERSIONS)
def test_each_field_comes_back(version: tuple[int, int]) -> None:
    data = make_table(version, VALUES)
    table = parse_table(data)
    assert (table.format, table.content, table.why) == (*version, Availability.OK)
    assert table.is_apu == (version[0] == 2)
    in_structure = {name for name, *_ in STRUCTURES[version]._fields_} if version in STRUCTURES else NAMES
    expected = {name: value for name, value in VALUES.items() if name in in_structure}
    assert {name: value for name, value in (table.values or {}).items() if name in VALUES} == {
        name: value for name, value in expected.items() if version != (1, 9) or name in (table.values or {})
    }
    assert len(expected) >= 3


@pytest.mark.parametrize("version", SIZES)
def test_the_structures_have_the_sizes_of_real_tables(version: tuple[int, int]) -> None:
    assert len(make_table(version, {})) == SIZES[version]


@pytest.mark.parametrize("version", VERSIONS)
def test_absent_fields_have_no_value(version: tuple[int, int]) -> None:
    table = parse_table(make_table(version, {"gfx_activity": 0}))
    assert table.get("energy_accumulator") is None
    assert set(table.values or {}) <= {"gfx_activity"}


@pytest.mark.parametrize("version", VERSIONS)
def test_a_table_that_is_cut_off_has_no_values(version: tuple[int, int]) -> None:
    data = make_table(version, VALUES)
    for length in (*range(60), len(data) // 2, len(data) - 1):
        assert parse_table(data[:length]).values is None
        if length > 12:  # the header says that the table ends here
            cut = struct.pack("<H", length) + data[2:length]
            assert parse_table(cut).values is None or version in ((1, 6), (2, 3))


@pytest.mark.parametrize("version", [(0, 0), (1, 0), (1, 10), (2, 0), (3, 1), (9, 9), (255, 255)])
def test_an_unknown_version_is_not_read(version: tuple[int, int]) -> None:
    table = parse_table(struct.pack("<HBB", 400, *version) + bytes(396))
    assert (table.values, table.why) == (None, Availability.NOT_SUPPORTED)


def check(data: bytes) -> None:
    table = parse_table(data)
    for name, value in (table.values or {}).items():
        assert name in NAMES
        assert -(2**63) <= value < 2**64
    assert (table.values is None) == (table.why is not Availability.OK)
    assert 0 <= throttle_causes(table.get("indep_throttle_status") or 0) < 128


def fuzz(count: int, seed: int) -> None:
    rng = random.Random(seed)
    originals = [make_table(version, VALUES) for version in VERSIONS]
    for _ in range(count):
        data = bytearray(rng.choice(originals))
        for _ in range(rng.randrange(12)):
            data[rng.randrange(len(data)) if rng.random() < 0.5 else rng.randrange(20)] = rng.randrange(256)
        if rng.random() < 0.3:
            data = data[: rng.randrange(len(data))]
        if rng.random() < 0.1:
            data = bytearray(rng.randbytes(rng.randrange(2000)))
        check(bytes(data))


def test_any_bytes_are_parsed() -> None:
    fuzz(5_000, 1)


@pytest.mark.slow
def test_a_million_tables_are_parsed() -> None:
    fuzz(1_000_000, 2)
