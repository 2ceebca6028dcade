"""What the driver refuses, forgets or cannot do: never shown as if all were well, and asked for again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from gpumon.model.metrics import PROCESSES, Availability
from gpumon.model.remedies import AFTER_LOSS
from tests.nvml import Process, Stub, of_a_first_read
from tests.programs import environment, gpumon, status
from tests.sourced import Gpu, Source, nvml_source

NOT_SUPPORTED, NO_PERMISSION, TIMEOUT = 3, 4, 10
LOST, RESET_REQUIRED, VERSION_MISMATCH, OTHER_VERSION, UNKNOWN = 15, 16, 18, 25, 999
UNSPOKEN = [NOT_SUPPORTED, OTHER_VERSION]
"""What drivers answer to a call, or a version of it, that they do not have."""
COMPUTE, GRAPHICS = "nvmlDeviceGetComputeRunningProcesses", "nvmlDeviceGetGraphicsRunningProcesses"
MEMORY = "nvmlDeviceGetMemoryInfo"
LOOK = 2
"""Seconds from one look for GPUs to the next."""


@pytest.fixture
def source(stub: Stub, tmp_path: Path) -> Iterator[Source]:
    with nvml_source(stub, tmp_path) as read:
        yield read


def fail(stub: Stub, code: int, gpu: int | None = None) -> None:
    """Let every call of a device answer with an error."""
    stub.set_error(None, code, gpu)


# A GPU that answers nothing --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "state"),
    [
        (RESET_REQUIRED, Availability.RESET_REQUIRED),
        (UNKNOWN, Availability.FAILED),
        (TIMEOUT, Availability.FAILED),
        (NO_PERMISSION, Availability.NO_PERMISSION),
        (NOT_SUPPORTED, Availability.NOT_SUPPORTED),
    ],
)
def test_a_gpu_of_which_nothing_can_be_read_is_not_ok(
    source: Source, stub: Stub, code: int, state: Availability
) -> None:
    assert source(1.0).gpus[1].state is Availability.OK
    fail(stub, code, gpu=1)
    first, second = source(2.0).gpus
    assert (first.state, second.state) == (Availability.OK, state)
    assert second.values == {}, "values of before would look like values of now"
    fail(stub, 0, gpu=1)
    well = source(63.0).gpus[1]
    assert (well.state, of_a_first_read(well.missing)) == (Availability.OK, {})
    assert of_a_first_read(well.values).keys() == of_a_first_read(first.values).keys(), "also what is else read seldom"


def test_a_gpu_that_falls_silent_again_and_again_is_not_ok_any_of_these_times(source: Source, stub: Stub) -> None:
    source(1.0)
    for second in range(2, 20, 2):
        fail(stub, NO_PERMISSION, gpu=1)
        assert source(float(second)).gpus[1].state is Availability.NO_PERMISSION
        fail(stub, 0, gpu=1)
        assert source(second + 1.0).gpus[1].state is Availability.OK


def test_a_state_is_that_of_the_errors_of_now(source: Source, stub: Stub) -> None:
    source(1.0)
    stub.set_lost(1)
    assert source(2.0).gpus[1].state is Availability.LOST
    stub.set_lost(1, False)
    fail(stub, RESET_REQUIRED, gpu=1)
    assert source(3.0).gpus[1].state is Availability.RESET_REQUIRED
    stub.set_lost(1)
    assert source(4.0).gpus[1].state is Availability.LOST


def test_a_dead_gpu_costs_no_more_calls_than_one_that_is_well(source: Source, stub: Stub) -> None:
    fail(stub, UNKNOWN, gpu=1)
    source(1.0)
    stub.reset_calls()
    for second in range(2, 62):
        source(float(second))
    well, dead = (sum(stub.calls(gpu).values()) / 60 for gpu in (0, 1))
    assert dead <= well <= 6


def test_a_gpu_of_which_some_calls_fail_is_ok_and_says_what_is_missing(source: Source, stub: Stub) -> None:
    stub.set_error("nvmlDeviceGetFieldValues", RESET_REQUIRED, gpu=1)
    for second in range(1, 8):
        gpu = source(float(second)).gpus[1]
        assert gpu.state is Availability.OK
        assert gpu.missing["gpu.energy"] is Availability.RESET_REQUIRED
        assert gpu["power"] > 0, "from a call of its own"


@pytest.mark.parametrize("code", [RESET_REQUIRED, LOST])
@pytest.mark.parametrize(
    "functions",
    [
        ("nvmlDeviceGetUtilizationRates", MEMORY, f"{MEMORY}_v2"), ("nvmlDeviceGetFieldValues",),
        ("nvmlDeviceGetFanSpeed",), ("nvmlDeviceGetSamples",), ("nvmlDeviceGetMigMode",),
        (COMPUTE, f"{COMPUTE}_v2", f"{COMPUTE}_v3"),
    ],
    ids=lambda functions: functions[0],
)  # fmt: skip
def test_status_names_a_gpu_that_is_lost_or_needs_a_reset_whichever_call_says_so(
    stub: Stub, live_dir: Path, functions: tuple[str, ...], code: int
) -> None:
    for function in functions:
        stub.set_error(function, code, gpu=1)
    found = status(environment(live_dir, stub.env()))["findings"]
    named = [finding["subject"]["id"] for finding in found if finding["kind"] == "unavailable"]
    assert named == [stub.uuid(1)]


@pytest.mark.parametrize("at_start", [True, False])
def test_a_gpu_that_needs_a_reset_says_so_though_a_few_calls_still_answer(
    source: Source, stub: Stub, at_start: bool
) -> None:
    if not at_start:
        assert source(1.0).gpus[1].state is Availability.OK
    refused = ("UtilizationRates", "MemoryInfo", "MemoryInfo_v2", "FieldValues", "PowerUsage", "Temperature")
    for name in refused:
        stub.set_error(f"nvmlDeviceGet{name}", RESET_REQUIRED, gpu=1)
    for second in range(2, 40):
        gpu = source(float(second)).gpus[1]
        assert (gpu.state, gpu.values) == (Availability.RESET_REQUIRED, {})
    for name in refused:
        stub.set_error(f"nvmlDeviceGet{name}", 0, gpu=1)
    gpu = source(40.0).gpus[1]
    assert gpu.state is Availability.OK
    assert {"gpu.energy", "gpu.temperature", "gpu.fan"} <= gpu.values.keys()


def test_a_gpu_that_answers_only_a_seldom_call_does_not_change_its_state_with_each_tick(
    source: Source, stub: Stub
) -> None:
    source(1.0)
    fail(stub, UNKNOWN, gpu=1)
    stub.set_error("nvmlDeviceGetTemperature", 0, gpu=1)
    states = {source(float(second)).gpus[1].state for second in range(2, 40)}
    assert states == {Availability.OK}, "its temperature is known"
    stub.set_error("nvmlDeviceGetTemperature", UNKNOWN, gpu=1)
    assert [source(float(second)).gpus[1].state for second in range(44, 60)] == [Availability.FAILED] * 16


def test_no_gpu_that_answers_is_a_problem_with_what_to_do(source: Source, stub: Stub) -> None:
    assert source(1.0).problem == ""
    fail(stub, RESET_REQUIRED, gpu=0)
    assert source(2.0).problem == "", "the other one can be read"
    fail(stub, RESET_REQUIRED, gpu=1)
    assert "must be reset" in source(3.0).problem
    fail(stub, 0, gpu=1)
    assert source(4.0).problem == ""


def test_gpus_that_all_went_have_the_remedy_of_lost_ones_however_the_driver_says_so(source: Source, stub: Stub) -> None:
    source(1.0)
    stub.gpus = 0
    assert AFTER_LOSS in source(1.0 + LOOK).problem
    stub.gpus = 2
    assert source(1.0 + 2 * LOOK).problem == ""
    stub.set_lost(0)
    stub.set_lost(1)
    assert AFTER_LOSS in source(1.0 + 3 * LOOK).problem


def test_a_library_that_no_longer_fits_its_driver_is_said_so_while_running_too(source: Source, stub: Stub) -> None:
    source(1.0)
    stub.driver_error = VERSION_MISMATCH
    read = source(2.0)
    assert {gpu.state for gpu in read.gpus} == {Availability.NO_DRIVER}
    assert "was updated without restarting the machine" in read.problem
    assert "was updated without restarting the machine" in source(8.0).problem
    stub.driver_error = 0
    assert {gpu.state for gpu in source(14.0).gpus} == {Availability.OK}


@pytest.mark.parametrize("code", [RESET_REQUIRED, VERSION_MISMATCH, UNKNOWN])
def test_status_says_that_no_gpu_can_be_read_and_exits_with_3(stub: Stub, live_dir: Path, code: int) -> None:
    for gpu in (0, 1):
        fail(stub, code, gpu)
        for name in ("nvmlDeviceGetUUID", "nvmlDeviceGetName"):
            stub.set_error(name, 0, gpu)
    done = gpumon("status", env=environment(live_dir, stub.env()))
    assert done.returncode == 3, done.stdout + done.stderr
    assert "free" not in done.stdout
    found = status(environment(live_dir, stub.env()))
    assert {gpu["state"] for gpu in found["gpus"]} <= {"reset_required", "no_driver", "failed"}


# A GPU that is not there when the daemon starts ------------------------------------------------------


def test_a_gpu_that_is_lost_at_the_start_has_a_row_with_the_reason_and_is_found_later(
    source: Source, stub: Stub
) -> None:
    stub.set_lost(1)
    first, second = source(1.0).gpus
    assert (first.state, second.state) == (Availability.OK, Availability.LOST)
    assert (second.uuid, second.index) == ("index-1", 1)
    assert set(second.missing) >= {"gpu.utilization", PROCESSES}
    stub.set_lost(1, False)
    after = source(1.0 + LOOK).gpus
    assert [(gpu.uuid, gpu.state) for gpu in after] == [(stub.uuid(gpu), Availability.OK) for gpu in (0, 1)]


@pytest.mark.parametrize("function", ["nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetUUID"])
@pytest.mark.parametrize("code", [NO_PERMISSION, UNKNOWN])
def test_gpus_that_are_refused_at_the_start_are_counted_and_found_when_they_are_not(
    source: Source, stub: Stub, function: str, code: int
) -> None:
    stub.set_error(function, code)
    read = source(1.0)
    assert [(gpu.uuid, gpu.index) for gpu in read.gpus] == [("index-0", 0), ("index-1", 1)]
    reason = Availability.NO_PERMISSION if code == NO_PERMISSION else Availability.FAILED
    assert {gpu.state for gpu in read.gpus} == {reason}
    assert read.problem, "no GPU can be read, and why"
    stub.set_error(function, 0)
    after = source(1.0 + LOOK)
    assert [gpu.uuid for gpu in after.gpus] == [stub.uuid(0), stub.uuid(1)]
    assert after.problem == ""


def test_status_lists_a_lost_gpu_beside_one_that_is_well(stub: Stub, live_dir: Path) -> None:
    stub.set_lost(1)
    found = status(environment(live_dir, stub.env()))
    assert [(gpu["index"], gpu["state"]) for gpu in found["gpus"]] == [(0, "ok"), (1, "lost")]


def test_a_card_without_a_uuid_goes_by_its_pci_address(source: Source, stub: Stub) -> None:
    stub.set_error("nvmlDeviceGetUUID", NOT_SUPPORTED, gpu=1)
    second = source(1.0).gpus[1]
    assert second.uuid.startswith("PCI-00000000:")
    assert second["utilization"] == pytest.approx(stub.truth("gpu.utilization", 1))


# What is not supported --------------------------------------------------------------------------------


@pytest.mark.parametrize("code", UNSPOKEN)
def test_what_is_not_supported_is_asked_again_each_minute(source: Source, stub: Stub, code: int) -> None:
    with stub.fault("nvmlDeviceGetUtilizationRates", code, gpu=0):
        assert source(1.0).gpus[0].missing["gpu.utilization"] is Availability.NOT_SUPPORTED
        stub.reset_calls()
        for second in range(2, 61):
            source(float(second))
        assert "nvmlDeviceGetUtilizationRates" not in stub.calls(0)
    gpu = source(61.001).gpus[0]  # not at the minute itself: as a sum of floats that may be a bit later
    assert of_a_first_read(gpu.missing) == {}
    assert gpu["utilization"] == pytest.approx(stub.truth("gpu.utilization", 0))


@pytest.mark.parametrize("code", UNSPOKEN)
def test_memory_is_asked_for_the_old_way_where_the_new_one_is_refused(source: Source, stub: Stub, code: int) -> None:
    with stub.fault(f"{MEMORY}_v2", code):
        for second in (1.0, 2.0, 3.0):
            gpu = source(second).gpus[0]
            # The old way does not tell what the driver reserves, and counts it as used.
            assert gpu["memory_used"] == stub.truth("gpu.memory_used", 0) + stub.truth("gpu.memory_reserved", 0)
            assert of_a_first_read(gpu.missing) == dict.fromkeys(
                ("gpu.memory_reserved", "gpu.memory_unattributed"), Availability.NOT_SUPPORTED
            )
        assert stub.calls(0)[f"{MEMORY}_v2"] == 1, "and the new way not at each tick"
    gpu = source(64.0).gpus[0]
    assert of_a_first_read(gpu.missing) == {}
    assert gpu["memory_used"] == stub.truth("gpu.memory_used", 0)


@pytest.mark.parametrize("code", UNSPOKEN)
@pytest.mark.parametrize("refused", [("_v3",), ("_v3", "_v2")])
def test_processes_are_asked_for_the_old_way_where_the_new_one_is_refused(
    source: Source, stub: Stub, code: int, refused: tuple[str, ...]
) -> None:
    stub.set_processes(0, [Process(41, 2**30), Process(42, 2**31, "graphics")])
    for version in refused:
        stub.set_error(COMPUTE + version, code)
        stub.set_error(GRAPHICS + version, code)
    read = source(1.0)
    assert [(pid, memory) for pid, _, _, memory, _ in read.processes] == [(42, 2**31), (41, 2**30)]
    assert PROCESSES not in read.gpus[0].missing
    source(4.0)
    assert stub.calls(0)[f"{COMPUTE}_v3"] == 1, "what answered is kept"


# Processes ---------------------------------------------------------------------------------------------


def listed(gpu: Gpu) -> Availability:
    return gpu.missing.get(PROCESSES, Availability.OK)


@pytest.mark.parametrize("code", [UNKNOWN, NO_PERMISSION])
def test_a_process_list_that_fails_is_unknown_and_not_empty(source: Source, stub: Stub, code: int) -> None:
    stub.set_processes(0, [Process(41)])
    read = source(1.0)
    assert [pid for pid, *_ in read.processes] == [41]
    with stub.fault(f"{COMPUTE}_v3", code):
        read = source(5.0)
        assert read.processes == [], "what was known is not true any more"
        assert listed(read.gpus[0]) is (Availability.NO_PERMISSION if code == NO_PERMISSION else Availability.FAILED)
        assert read.gpus[0].state is Availability.OK
        assert listed(source(6.0).gpus[0]) is not Availability.OK, "and stays so until the next list"
    read = source(10.0)
    assert ([pid for pid, *_ in read.processes], listed(read.gpus[0])) == ([41], Availability.OK)


def test_a_list_of_which_a_part_fails_gives_that_part_away_as_unknown(source: Source, stub: Stub) -> None:
    stub.set_processes(0, [Process(41), Process(42, kind="graphics")])
    stub.set_error(f"{GRAPHICS}_v3", UNKNOWN)
    read = source(1.0)
    assert [pid for pid, *_ in read.processes] == [41]
    assert listed(read.gpus[0]) is Availability.FAILED
    stub.set_error(f"{GRAPHICS}_v3", 0)
    read = source(12.0)
    assert sorted(pid for pid, *_ in read.processes) == [41, 42]
    assert listed(read.gpus[0]) is Availability.OK


def test_memory_of_no_listed_process_is_told_apart(source: Source, stub: Stub) -> None:
    """As of one that was killed, whose pid the driver does not list any more."""
    stub.set_processes(0, [Process(41, memory=2**30)])
    gpu = source(1.0).gpus[0]
    assert gpu["memory_unattributed"] == gpu["memory_used"] - 2**30
    stub.set_processes(0, [Process(41, memory=2**30), Process(42, memory=None)])
    gpu = source(5.0).gpus[0]
    assert gpu.missing["gpu.memory_unattributed"] is Availability.NOT_SUPPORTED, "one may hold all of it"
    with stub.fault(f"{COMPUTE}_v3", NO_PERMISSION):
        assert source(9.0).gpus[0].missing["gpu.memory_unattributed"] is Availability.NO_PERMISSION


def test_a_driver_without_any_list_of_processes_leaves_them_unknown(source: Source, stub: Stub) -> None:
    for version in ("", "_v2", "_v3"):
        stub.set_error(COMPUTE + version, NOT_SUPPORTED)
    assert listed(source(1.0).gpus[0]) is Availability.NOT_SUPPORTED


def test_a_card_that_cannot_draw_has_nothing_that_draws(source: Source, stub: Stub) -> None:
    for version in ("", "_v2", "_v3"):
        stub.set_error(GRAPHICS + version, NOT_SUPPORTED)
    assert listed(source(1.0).gpus[0]) is Availability.OK


def test_nobody_knows_who_is_on_a_gpu_that_does_not_answer(source: Source, stub: Stub) -> None:
    stub.set_processes(0, [Process(41)])
    assert source(1.0).processes
    stub.set_lost(0)
    read = source(2.0)
    assert read.processes == []
    assert listed(read.gpus[0]) is Availability.LOST
    stub.set_lost(0, False)
    read = source(3.0)
    assert ([pid for pid, *_ in read.processes], listed(read.gpus[0])) == ([41], Availability.OK)


def test_nobody_is_left_on_a_gpu_that_is_not_there_any_more(source: Source, stub: Stub) -> None:
    stub.set_processes(1, [Process(41)])
    assert source(1.0).processes
    stub.gpus = 1
    read = source(1.0 + LOOK)
    assert read.processes == []
    assert [gpu.state for gpu in read.gpus] == [Availability.OK, Availability.LOST]


# When ----------------------------------------------------------------------------------------------------


def test_no_value_waits_longer_for_its_second_read_than_for_every_other(source: Source, stub: Stub) -> None:
    stub.gpus = 8
    source(1.0)
    stub.reset_calls()
    for quarter in range(1, 121):
        source(1.0 + quarter / 4)
    for gpu in range(8):
        assert stub.calls(gpu)["nvmlDeviceGetFanSpeed"] >= 1, "each 30 s, as docs/inside/driver-calls.md says"
        assert stub.calls(gpu)["nvmlDeviceGetTemperature"] >= 9
    assert stub.calls(0)["nvmlDeviceGetFanSpeed"] == 1


# Two GPUs that the driver takes for one --------------------------------------------------------------


def test_two_gpus_with_one_uuid_are_two_gpus_however_often_they_are_looked_for(source: Source, stub: Stub) -> None:
    stub.set_uuid(1, stub.uuid(0))
    before = [gpu.uuid for gpu in source(1.0).gpus]
    assert len(set(before)) == 2
    assert all(uuid.startswith("PCI-") for uuid in before), "the UUID names none of them"
    stub.set_lost(1)
    source(2.0)
    stub.set_lost(1, False)
    assert [gpu.uuid for gpu in source(2.0 + LOOK).gpus] == before
    stub.gpus = 1
    source(2.0 + 2 * LOOK)
    stub.set_uuid(1, "GPU-of-its-own")
    stub.gpus = 2
    after = source(2.0 + 3 * LOOK).gpus
    assert [(gpu.uuid, gpu.state) for gpu in after] == [
        (before[0], Availability.OK), ("GPU-of-its-own", Availability.OK),
    ], "it is the card that was known by its address"  # fmt: skip


def test_a_gpu_that_comes_with_the_uuid_of_another_one_leaves_it_to_none(source: Source, stub: Stub) -> None:
    stub.gpus = 1
    assert [gpu.uuid for gpu in source(1.0).gpus] == [stub.uuid(0)]
    stub.set_uuid(1, stub.uuid(0))
    stub.gpus = 2
    both = source(1.0 + LOOK).gpus
    assert [(gpu.uuid[:4], gpu.state) for gpu in both] == [("PCI-", Availability.OK)] * 2
    assert len({gpu.uuid for gpu in both}) == 2
    assert [gpu.uuid for gpu in source(1.0 + 2 * LOOK).gpus] == [gpu.uuid for gpu in both]


def test_gpus_that_were_never_seen_are_read_within_3_s_behind_those_that_were(source: Source, stub: Stub) -> None:
    first = [gpu.uuid for gpu in source(1.0).gpus]
    stub.gpus = 5
    read = [source(1.0 + tick / 10) for tick in range(1, 31)][-1]
    assert [(gpu.uuid, gpu.state) for gpu in read.gpus] == [(stub.uuid(gpu), Availability.OK) for gpu in range(5)]
    assert [gpu.uuid for gpu in read.gpus][: len(first)] == first
    stub.gpus = 2
    read = [source(4.0 + tick / 10) for tick in range(1, 31)][-1]
    assert {gpu.uuid: gpu.state for gpu in read.gpus} == {
        stub.uuid(gpu): Availability.OK if gpu < 2 else Availability.LOST for gpu in range(5)
    }
