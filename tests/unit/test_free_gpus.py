"""Which GPUs `gpumon wait` takes, and that two of it never take the same one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from gpumon.launcher.free_gpus import Claims, FreeTimes, Request, allowed_uuids, visible_devices
from gpumon.model.device import Device
from gpumon.model.frame import Sample
from gpumon.model.metrics import Availability
from tests.builders import device, frame_of, process, sample, tick

GIB = 2.0**30


def free(index: int, **values: float) -> Sample:
    return sample(index, **{"utilization": 0.0, "memory_used": 0.0, "memory_total": 80 * GIB, **values})


def add(times: FreeTimes, number: int, samples: Sequence[Sample], **fields: object) -> None:
    times.add(frame_of(tick(number, samples, **fields)))


def indexes(devices: Sequence[Device]) -> list[int]:
    return [device.index for device in devices]


class TestCandidates:
    def test_a_gpu_must_have_been_free_long_enough(self) -> None:
        times, request = FreeTimes(), Request(free_for=5.0)
        for number in range(1, 6):
            add(times, number, [free(0)])
            assert not times.candidates(request)
        add(times, 6, [free(0)])
        assert indexes(times.candidates(request)) == [0]

    def test_a_process_begins_the_time_again(self) -> None:
        times, request = FreeTimes(), Request(free_for=2.0)
        add(times, 1, [free(0), free(1)])
        add(times, 2, [free(0), free(1)], processes=[process(index=0)])
        add(times, 3, [free(0), free(1)])
        assert indexes(times.candidates(request)) == [1]
        add(times, 4, [free(0), free(1)])
        assert indexes(times.candidates(request)) == [1]
        add(times, 5, [free(0), free(1)])
        assert indexes(times.candidates(request)) == [0, 1]

    def test_a_gap_begins_the_time_again(self) -> None:
        times, request = FreeTimes(), Request(free_for=2.0)
        for number in (1, 2, 3, 60, 61):
            add(times, number, [free(0)])
        assert not times.candidates(request)
        times.clear()
        assert not times.candidates(Request(free_for=0.0))

    @pytest.mark.parametrize(
        "other",
        [
            sample(0, Availability.LOST), sample(0, Availability.STALE), sample(0), free(0, utilization=0.5),
            free(0)._replace(device=device(0)._replace(job="4242 1000")),
        ],
        ids=["lost", "stale", "unknown", "busy", "allocated by a scheduler"],
    )  # fmt: skip
    def test_what_is_not_proven_free_is_not_taken(self, other: Sample) -> None:
        times = FreeTimes()
        for number in (1, 2, 3):
            add(times, number, [other, free(1)])
        assert indexes(times.candidates(Request(free_for=1.0))) == [1]

    def test_memory_and_allowed_gpus_limit_the_choice(self) -> None:
        times = FreeTimes()
        for number in (1, 2, 3):
            add(times, number, [free(0, memory_total=24 * GIB), free(1), free(2), sample(3, utilization=0.0)])
        request = Request(memory=40 * GIB, free_for=1.0)
        assert indexes(times.candidates(request)) == [1, 2]
        assert indexes(times.candidates(request, {device(2).uuid})) == [2]


@pytest.fixture
def devices() -> list[Device]:
    return [Device(f"GPU-test-wait-{index}", index, "NVIDIA H100") for index in range(4)]


@pytest.fixture
def claims() -> Iterator[tuple[Claims, Claims]]:
    both = Claims(), Claims()
    yield both
    for one in both:
        one.release()


class TestClaims:
    def test_no_gpu_is_claimed_twice(self, devices: list[Device], claims: tuple[Claims, Claims]) -> None:
        first, second = claims
        assert indexes(first.claim(devices, 2)) == [0, 1]
        assert indexes(second.claim(devices, 2)) == [2, 3]
        first.release()
        assert indexes(first.claim(devices, 1)) == [0]

    def test_too_few_gpus_leave_none_claimed(self, devices: list[Device], claims: tuple[Claims, Claims]) -> None:
        first, second = claims
        assert indexes(first.claim(devices, 1)) == [0]
        assert second.claim(devices, 4) == []
        assert indexes(second.claim(devices, 3)) == [1, 2, 3]


@pytest.mark.parametrize(
    ("value", "indexes"),
    [("", []), ("0", [0]), ("2,1", [1, 2]), ("1,9,2", [1]), ("-1", []), ("GPU-0000000", []), (None, None)],
)
def test_only_visible_devices_are_used(value: str | None, indexes: list[int] | None) -> None:
    devices = [device(index) for index in range(4)]
    allowed = allowed_uuids({} if value is None else {"CUDA_VISIBLE_DEVICES": value}, devices)
    expected = None if indexes is None else {device(index).uuid for index in indexes}
    assert allowed == expected


def test_a_command_sees_its_gpus_by_number_and_instances_by_uuid() -> None:
    assert visible_devices([device(1), device(3)]) == {
        "CUDA_VISIBLE_DEVICES": "1,3", "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
    }  # fmt: skip
    instance = Device("MIG-1", 0, "NVIDIA H100", parent="GPU-0", instance=1)
    assert visible_devices([instance]) == {"CUDA_VISIBLE_DEVICES": "MIG-1"}
