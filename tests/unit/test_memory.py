"""How device memory divides: whatever is known, the parts add up."""

from __future__ import annotations

from itertools import product
from math import isnan, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.analysis.memory import PARTS, MemoryBreakdown, breakdown_of, fragmentation, known_parts
from gpumon.model.device import Device
from gpumon.model.frame import FrameworkMemory, Sample
from gpumon.model.metrics import GPU_METRICS, Availability
from gpumon.reports import status_json

TOTAL = 80.0


def sample(**known: float) -> Sample:
    values = [known.get(metric.key, nan) for metric in GPU_METRICS]
    return Sample(Device("GPU-0", 0, "H100"), Availability.OK, values)


def parts(**known: float) -> MemoryBreakdown:
    divided = breakdown_of(sample(memory_total=TOTAL, memory_used=50.0, **known))
    assert divided is not None
    return divided


def test_all_parts_of_a_run_among_others() -> None:
    found = parts(memory_reserved=0.5, run_allocated=20.0, run_reserved=30.0, run_used=31.0)
    assert found == (20.0, 10.0, 1.0, 19.0, 29.5, 0.5)


def test_without_a_run_all_that_is_used_is_others() -> None:
    assert str(parts()) == str(MemoryBreakdown(nan, nan, nan, 50.0, 30.0, nan))


def test_without_reserved_memory_the_rest_of_the_processes_is_cache() -> None:
    assert str(parts(run_allocated=20.0, run_used=45.0)) == str(MemoryBreakdown(20.0, 25.0, nan, 5.0, 30.0, nan))


def test_without_listed_processes_the_framework_values_remain() -> None:
    assert str(parts(run_allocated=20.0, run_reserved=25.0)) == str(MemoryBreakdown(20.0, 5.0, nan, 25.0, 30.0, nan))


def test_without_framework_values_memory_is_of_this_run() -> None:
    def named(**known: float) -> dict[str, float]:
        return {part.title: value for part, value in known_parts(parts(**known))}

    assert named(run_used=45.0) == {"this run": 45.0, "not of this run": 5.0, "free": 30.0}
    assert named(run_allocated=20.0, run_reserved=30.0, run_used=31.0) == {
        "allocated": 20.0, "cached": 10.0, "context and libraries": 1.0, "not of this run": 19.0, "free": 30.0,
    }  # fmt: skip
    assert named(run_allocated=20.0, run_reserved=30.0) == {
        "allocated": 20.0, "cached": 10.0, "context and others": 20.0, "free": 30.0,
    }  # fmt: skip
    assert named() == {"in use": 50.0, "free": 30.0}, "nobody has said that it is of processes"


def test_json_separates_tensors_from_libraries() -> None:
    def made(**known: float) -> dict[str, float | None]:
        found = status_json._memory_split(sample(memory_total=TOTAL, memory_used=50.0, **known))
        assert found is not None
        return {name: value for name, value in found.items() if name in ("context", "run", "allocated")}

    assert made(run_used=45.0) == {"allocated": None, "context": None, "run": 45}
    assert made(run_allocated=20.0, run_reserved=30.0, run_used=31.0) == {"allocated": 20, "context": 1, "run": None}
    assert made() == {"allocated": None, "context": None, "run": None}


def test_unknown_use_does_not_divide() -> None:
    assert breakdown_of(sample(memory_total=TOTAL)) is None
    assert breakdown_of(sample(memory_used=3.0)) is None


@pytest.mark.parametrize("used", [0.0, 7.0, TOTAL])
def test_the_parts_add_up_with_any_missing_or_old_values(used: float) -> None:
    amounts = (nan, 0.0, 5.0, 90.0)
    for kept, allocated, held, own in product((nan, 0.5, 90.0), amounts, amounts, amounts):
        known = {"memory_reserved": kept, "run_allocated": allocated, "run_reserved": held, "run_used": own}
        found = breakdown_of(sample(memory_total=TOTAL, memory_used=used, **known))
        assert found is not None
        assert sum(value for value in found if not isnan(value)) == pytest.approx(TOTAL), known
        assert all(isnan(value) or value >= 0 for value in found), known


AMOUNTS = st.integers(0, 2**48).map(float)


@given(total=AMOUNTS, share=st.floats(0, 1), told_of=st.lists(AMOUNTS | st.just(nan), min_size=4, max_size=4))
def test_whole_bytes_add_up_exactly(total: float, share: float, told_of: list[float]) -> None:
    names = ("memory_reserved", "run_allocated", "run_reserved", "run_used")
    used = float(int(total * share))
    divided = breakdown_of(sample(memory_total=total, memory_used=used, **dict(zip(names, told_of, strict=True))))
    assert divided is not None
    amounts = [value for _, value in known_parts(divided)]
    assert all(value >= 0 for value in amounts)
    assert sum(amounts) == total
    assert divided.free == total - used - (0.0 if isnan(divided.driver) else divided.driver)


@given(st.lists(st.floats() | AMOUNTS, min_size=6, max_size=6))
def test_impossible_numbers_make_no_part_negative(numbers: list[float]) -> None:
    names = ("memory_total", "memory_used", "memory_reserved", "run_allocated", "run_reserved", "run_used")
    divided = breakdown_of(sample(**dict(zip(names, numbers, strict=True))))
    assert divided is None or all(value >= 0 for _, value in known_parts(divided))


def test_without_a_run_all_memory_is_in_use() -> None:
    assert [(part.title, value) for part, value in known_parts(parts())] == [("in use", 50.0), ("free", 30.0)]


def test_each_part_has_a_row_in_the_order_of_the_split() -> None:
    assert [part.name for part in PARTS] == list(MemoryBreakdown._fields)


def test_fragmentation_is_a_share_of_reserved_memory() -> None:
    held = FrameworkMemory(allocated=6.0, reserved=8.0, inactive_split=1.0, requested=5.0)
    assert fragmentation(held)[:3] == (0.25, 0.125, pytest.approx(1 / 6))
    assert isnan(fragmentation(held).scattered), "torch keeps many pools"
    assert fragmentation(FrameworkMemory(allocated=6.0, reserved=14.0, largest_free=2.0)).scattered == 0.75
    assert fragmentation(FrameworkMemory(allocated=6.0, reserved=8.0, largest_free=3.0)).scattered == 0.0, "read later"
    assert all(isnan(share) for share in fragmentation(FrameworkMemory()))
    assert all(isnan(share) for share in fragmentation(FrameworkMemory(allocated=0.0, reserved=0.0)))
