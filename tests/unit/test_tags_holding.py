"""The memory of a run on a device: the records of its processes, matched and summed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isnan, nan

from gpumon.model.frame import Run, RunState
from gpumon.model.metrics import PROCESSES, Availability
from gpumon.model.process import Process
from gpumon.tracking.matching import memory_entry, with_run_memory
from gpumon.tracking.wire_format import NOT_KNOWN, Memory, device_mark
from tests import builders

ONE, TWO = builders.device(0).uuid, builders.device(1).uuid
KEYS = ("allocated", "reserved", "inactive_split", "used")


def told_of(uuid: str, *amounts: int, number: int = 0) -> Memory:
    """An entry of a board: allocated, reserved and inactive split."""
    allocated, reserved, split = (*amounts, *[NOT_KNOWN] * 3)[:3]
    return Memory(number, device_mark(uuid), allocated, reserved, inactive_split=split)


def holder(pid: int, used: float, uuid: str = ONE) -> Process:
    return builders.process(pid)._replace(uuid=uuid, memory_used=used)


def training(key: str, pid: int, *gpus: str, **more: object) -> Run:
    return builders.run(key, pid=pid, gpus=gpus or (ONE,))._replace(**{"id": "one", **more})  # type: ignore[arg-type]


def values(
    runs: Sequence[Run], told: Mapping[str, Sequence[Memory]], processes: Sequence[Process] = (), gpu: int = 0
) -> list[float]:
    """What the sample of this GPU has of `KEYS`; the first run is the one in force."""
    (filled,) = with_run_memory([builders.sample(gpu, run=runs[0].key)], runs, told, processes)
    return [filled.value(f"gpu.run_{key}") for key in KEYS]


def test_memory_of_one_process_is_copied() -> None:
    found = values([training("a", 1)], {"a": [told_of(ONE, 5, 7, 2)]}, [holder(1, 9.0), holder(2, 100.0)])
    assert found == [5.0, 7.0, 2.0, 9.0]


def test_used_memory_is_unknown_with_an_incomplete_process_list() -> None:
    run = training("a", 1)
    sample = builders.sample(0, run=run.key)
    device = sample.device._replace(missing={PROCESSES: Availability.FAILED})
    told = {"a": [told_of(ONE, 5, 7, 2)]}
    (filled,) = with_run_memory([sample._replace(device=device)], [run], told, [holder(1, 9.0)])
    assert isnan(filled.value("gpu.run_used"))
    assert filled.value("gpu.run_allocated") == 5.0, "that was told by the run itself"


def test_a_sample_without_a_run_is_unchanged() -> None:
    sample = builders.sample(0)
    assert with_run_memory([sample], [training("a", 1)], {"a": [told_of(ONE, 5)]}, ())[0] is sample


def test_memory_is_summed_over_the_processes_of_the_run() -> None:
    runs = [
        training("a", 1), training("b", 2), training("elsewhere", 3, TWO), training("over", 4, state=RunState.DIED),
        training("other", 5, id="two"),
    ]  # fmt: skip
    told = {run.key: [told_of(run.gpus[0], 5, 7, 2)] for run in runs}
    found = values(runs, told, [holder(pid, 9.0) for pid in (1, 2, 4, 5)])
    assert found == [10.0, 14.0, 4.0, 18.0]


def test_a_run_of_another_user_with_the_same_id_is_not_added() -> None:
    runs = [training("a", 1, user="alice"), training("b", 2, user="mallory")]
    told = {run.key: [told_of(ONE, 5, 7, 2)] for run in runs}
    assert values(runs, told, [holder(1, 9.0), holder(2, 100.0)]) == [5.0, 7.0, 2.0, 9.0]


def test_a_process_that_reports_the_run_twice_counts_once() -> None:
    runs = [training("a", 1), training("b", 1)]
    told = {run.key: [told_of(ONE, 5, 7, 2)] for run in runs}
    assert values(runs, told, [holder(1, 9.0)]) == [5.0, 7.0, 2.0, 9.0]


def test_a_sum_with_an_unknown_value_is_unknown() -> None:
    runs = [training("a", 1), training("b", 2)]
    allocated, reserved, split, used = values(
        runs, {"a": [told_of(ONE, 5, 7, 2)], "b": [told_of(ONE, 5)]}, [holder(1, 9.0), holder(2, nan)]
    )
    assert allocated == 10.0
    assert all(isnan(value) for value in (reserved, split, used))
    assert all(isnan(value) for value in values(runs, {"a": [told_of(ONE, 5, 7, 2)]})[:3]), "b told nothing"


def test_used_memory_of_an_unlisted_process_is_unknown() -> None:
    runs = [training("a", 1), training("b", 2)]
    told = {"a": [told_of(ONE, 5, 7, 2)], "b": [told_of(ONE, 1, 1, 0)]}
    assert isnan(values(runs, told, [holder(1, 9.0)])[3])
    told["b"] = [told_of(ONE, 0, 0, 0)]
    assert values(runs, told, [holder(1, 9.0)])[3] == 9.0


def test_used_memory_is_unknown_while_the_framework_reports_more() -> None:
    run = training("a", 1)
    assert isnan(values([run], {"a": [told_of(ONE, 5, 12, 2)]}, [holder(1, 9.0)])[3])
    assert values([run], {"a": [told_of(ONE, 5, 9, 2)]}, [holder(1, 9.0)])[3] == 9.0


def test_no_data_is_unknown_and_not_zero() -> None:
    assert all(isnan(value) for value in values([training("a", 1)], {}))
    assert all(isnan(value) for value in values([training("a", 0)], {}, [holder(0, 9.0)])[:3])


def test_an_entry_is_matched_by_device_mark() -> None:
    told = [told_of(TWO, 2), told_of(ONE, 1)]
    assert memory_entry(ONE, (ONE, TWO), told) == told[1]
    assert memory_entry(ONE, (ONE, TWO), told[:1]) is None


def test_entries_without_marks_are_matched_by_order() -> None:
    told = [told_of("", 2, number=1), told_of("", 1, number=0)]
    assert memory_entry(ONE, (ONE, TWO), told) == told[1]
    assert memory_entry(TWO, (ONE, TWO), told) == told[0]
    assert memory_entry(ONE, (ONE,), told[:1]) == told[0], "the one device that it can be"
    assert memory_entry(ONE, (ONE,), told) is None
    assert memory_entry(ONE, (ONE, TWO), told[:1]) is None
    assert memory_entry(ONE, (ONE, TWO), [told[0], told_of(TWO, 3)]) is None


def test_a_mig_uuid_with_the_prefix_of_a_gpu_is_matched() -> None:
    told = [told_of("GPU-0a", 1)]
    assert memory_entry("MIG-0a", ("MIG-0a",), told) == told[0]
