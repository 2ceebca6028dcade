"""Looks for GPUs that take their time to say what they are: they are found all the same, and their age is known."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gpumon.common.clock import SECOND
from gpumon.model.device import Device
from gpumon.model.frame import Sample
from gpumon.model.metrics import Availability
from gpumon.sources.base import NO_VALUES
from gpumon.sources.executor import AnyCall
from gpumon.sources.nvml import discovery
from gpumon.sources.nvml.discovery import NAMELESS, Discovery, Identity, identify
from gpumon.sources.nvml.return_codes import NOT_SUPPORTED
from tests.builders import sample
from tests.fakes import FakeClock
from tests.nvml.signatures import CheckedLibrary

LATE = 1
"""The GPU that is late."""


class Machine(CheckedLibrary):
    """A driver with two GPUs."""

    def count(self) -> tuple[int, int]:
        return 0, 2

    def find(self, *names: str) -> Any:
        """As that of a driver without events, for which a thread would wait."""
        return None if any("Event" in name for name in names) else super().find(*names)

    def close(self) -> None:
        """Stops nothing."""


class Waiting:
    """Asks as threads do, but leaves it to the test when a call of the second GPU comes back."""

    def __init__(self, clock: FakeClock) -> None:
        self.clock = clock
        self.left: list[AnyCall] = []

    def run(self, calls: Sequence[AnyCall], timeout: int) -> None:
        for call in calls:
            call.is_running, call.started_at = True, self.clock.monotonic()
            function: Any = call._function
            if function.args[1] == LATE:
                self.left.append(call)
            else:
                call.execute(self.clock, timeout)

    def answer(self) -> None:
        for call in self.left:
            call.execute(self.clock, SECOND)
        self.left.clear()

    def close(self) -> None:
        """There are no threads to end."""


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def executor(clock: FakeClock) -> Waiting:
    return Waiting(clock)


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, clock: FakeClock, executor: Waiting) -> Discovery:
    def identify(library: Any, index: int, known: int | None) -> Identity:
        handle = ctypes.c_void_p(index + 1)
        if handle.value == known:
            return Identity(0, is_known=True)
        return Identity(0, handle, f"GPU-{index}", "H100", f"0000:0{index}:00.0")

    library: Any = Machine()
    monkeypatch.setattr(discovery, "identify", identify)
    return Discovery(clock, lambda: library, str(tmp_path), executor)


def test_a_gpu_that_answers_between_two_looks_is_found_by_the_second(
    looks: Discovery, clock: FakeClock, executor: Waiting
) -> None:
    first = looks.scan()
    assert [device.uuid for device in first.devices] == ["GPU-0"]
    assert [(sample.device.index, sample.state) for sample in first.absent] == [(LATE, Availability.STALE)]
    executor.answer()
    clock.advance(2)
    second = looks.scan()
    assert [device.uuid for device in second.devices] == ["GPU-0", "GPU-1"]
    assert second.absent == ()


def test_a_number_of_gpus_that_no_machine_has_is_no_answer(looks: Discovery, executor: Waiting) -> None:
    looks.scan()
    executor.answer()
    before = looks.scan().devices
    looks._library.count = lambda: (0, 2**32 - 1)  # type: ignore[union-attr, method-assign]
    assert looks.scan().devices == before
    assert "nvidia-smi" in looks.reopen().problem


@pytest.mark.parametrize("code", [0, NOT_SUPPORTED])
def test_a_card_without_a_uuid_has_its_place_as_its_name(code: int) -> None:
    library: Any = SimpleNamespace(
        handle=lambda index: (0, ctypes.c_void_p(index + 1)), text=lambda name, handle: (code, ""),
        bus_address=lambda handle: "0000:01:00.0", minor=lambda handle: 1,
    )  # fmt: skip
    assert identify(library, 1, None).uuid == "PCI-0000:01:00.0"
    library.bus_address = lambda handle: ""
    assert (identify(library, 1, None).uuid, identify(library, 1, None).code) == ("", NOT_SUPPORTED)


def test_a_gpu_that_has_never_answered_is_as_old_as_the_question(looks: Discovery, clock: FakeClock) -> None:
    looks.scan()
    for seconds in (2.0, 4.0, 6.0):
        clock.advance(2)
        (sample,) = looks.scan().absent_at(clock.monotonic())
        assert (sample.state, sample.age) == (Availability.STALE, seconds)


def test_a_look_that_finds_nothing_new_says_so_by_giving_what_the_last_one_gave(
    looks: Discovery, clock: FakeClock, executor: Waiting
) -> None:
    looks.scan()
    executor.answer()
    clock.advance(2)
    found = looks.scan()
    assert looks.scan() is found
    assert looks.reopen() is not found


def test_an_answer_of_a_driver_that_was_opened_anew_meanwhile_is_forgotten(looks: Discovery, executor: Waiting) -> None:
    looks.scan()
    executor.answer()
    assert [device.uuid for device in looks.reopen().devices] == ["GPU-0"]


def sample_of(device: Device, state: Availability = Availability.OK) -> Sample:
    return Sample(device, state, NO_VALUES)


@pytest.mark.parametrize("others_first", [False, True])
def test_a_card_that_was_taken_out_keeps_no_gpu_from_its_name(looks: Discovery, others_first: bool) -> None:
    there = [sample_of(Device(f"GPU-{index}", index, "H100", {})) for index in range(2)]
    out = [sample_of(Device(f"GPU-{9 - index}", index, "H100", {}), Availability.LOST) for index in range(2)]
    looks.restore([*out, *there] if others_first else [*there, *out])
    (sample,) = looks.scan().absent
    assert sample.device.uuid == "GPU-1"


@pytest.mark.parametrize("state", [Availability.LOST, Availability.NO_DRIVER])
def test_of_two_cards_that_had_a_place_and_are_both_gone_none_gives_its_name(
    looks: Discovery, state: Availability
) -> None:
    both = [sample_of(Device(f"GPU-{index}", 1, "H100", {}), state) for index in (1, 2)]
    looks.restore([sample_of(Device("GPU-0", 0, "H100", {})), *both])
    (sample,) = looks.scan().absent
    assert (sample.device.uuid, sample.device.name) == ("index-1", NAMELESS)


def test_a_gpu_that_is_lost_at_the_start_is_the_one_that_had_its_place_where_all_others_have_theirs(
    looks: Discovery,
) -> None:
    before = [Device(f"GPU-{index}", index, "H100", {"gpu.fan_speed": Availability.OK}) for index in range(2)]
    looks.restore([sample_of(device) for device in before])
    (sample,) = looks.scan().absent
    assert (sample.device.uuid, sample.device.name) == ("GPU-1", "H100")
    assert "gpu.utilization" in sample.device.missing, "nothing of it is known now"


def test_a_gpu_that_is_lost_at_the_start_keeps_the_error_before(looks: Discovery) -> None:
    before = [sample(0)._replace(device=Device("GPU-0", 0, "H100")), sample(1, xid=79.0)]
    looks.restore([before[0], before[1]._replace(device=Device("GPU-1", 1, "H100"))])
    (absent,) = looks.scan().absent
    assert (absent.device.uuid, absent.value("gpu.xid")) == ("GPU-1", 79)
    assert "gpu.xid" not in absent.device.missing


def test_a_card_whose_address_answers_is_not_the_lost_one(looks: Discovery) -> None:
    looks.restore([sample_of(Device("PCI-0000:00:00.0", 1, "H100", address="0000:00:00.0"))])
    (absent,) = looks.scan().absent
    assert (absent.device.uuid, absent.device.name) == ("index-1", NAMELESS)


@pytest.mark.parametrize(
    "places",
    [
        pytest.param({0: "GPU-9", 1: "GPU-1"}, id="another GPU has its place"),
        pytest.param({0: "GPU-1", 1: "GPU-0"}, id="the one of that place is another now"),
        pytest.param({0: "GPU-0"}, id="nobody had its place"),
    ],
)
def test_a_gpu_that_may_be_another_one_has_no_name(looks: Discovery, places: dict[int, str]) -> None:
    looks.restore([sample_of(Device(uuid, index, "H100", {})) for index, uuid in places.items()])
    (sample,) = looks.scan().absent
    assert (sample.device.uuid, sample.device.name) == ("index-1", NAMELESS)
