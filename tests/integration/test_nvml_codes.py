"""Each error code on each driver call: the other GPUs are read on, nothing is made up, and all is back within 3 s."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from gpumon.model.metrics import PROCESSES, Availability
from gpumon.sources.nvml.readings import CALLS, FALLBACKS
from tests.faulty import OF_THE_BUFFER
from tests.nvml import METRICS, Process, Stub
from tests.sourced import Gpu, Read, Source, nvml_source

CODES = (*range(1, 30), 77, 999)
"""Of nvml.h, one that no version has, and NVML_ERROR_UNKNOWN."""
NO_DRIVER = {1, 9, 12, 18}
NO_FAULT = {("nvmlDeviceGetSamples", 6)}
"""Not found: there are no samples, as where nothing runs."""
WELL = 0
"""The GPU that has no fault; of the others each answers with a code of its own."""
DURING = (0.1, 1.0, 2.0, 34.0)
"""Seconds after a fault began: at once, and when each call has been due."""
AFTER = (0.1, 1.0, 2.0, 3.0)
"""Seconds after it was over; with the last, all is well."""
PERIODS = {metric: call.period for call in (*FALLBACKS, *CALLS) for metric in call.metrics}
COUNT, HANDLE = "nvmlDeviceGetCount_v2", "nvmlDeviceGetHandleByIndex_v2"


class Watched:
    """Reads a source, and holds each of its values against what the driver had at the moments of its reads."""

    def __init__(self, source: Source, stub: Stub) -> None:
        self._source, self._stub = source, stub
        self.now = 0.0
        self._moments: list[float] = []
        self._truth = functools.cache(stub.truth)

    def read(self, after: float) -> Read:
        """Read, so many seconds after the read before."""
        self.now += after
        self._moments = [*self._moments[-40:], self.now]
        found = self._source(self.now)
        for gpu in found.gpus:
            self._check(gpu)
        return found

    def _check(self, gpu: Gpu) -> None:
        for metric, value in gpu.values.items():
            if metric in METRICS:
                oldest = self.now - PERIODS.get(metric, 0.0) - 0.01
                true = [self._truth(metric, gpu.index, self._stub.t0 + at) for at in self._moments if at >= oldest]
                near = any(math.isclose(value, one, rel_tol=1e-6, abs_tol=1e-9) for one in true)
                assert near, f"GPU {gpu.index}: {metric} is {value}, and was {true} since it was due"
        if gpu.state is not Availability.OK:
            assert gpu.values == {}


@pytest.fixture
def watched(stub: Stub, tmp_path: Path) -> Iterator[Watched]:
    stub.gpus = len(CODES) + 1
    for gpu in range(stub.gpus):
        stub.set_processes(gpu, [Process(100 + gpu), Process(200 + gpu, kind="graphics")])
    with nvml_source(stub, tmp_path) as source:
        yield Watched(source, stub)


def pids(read: Read, gpu: Gpu) -> set[int]:
    return {pid for pid, uuid, *_ in read.processes if uuid == gpu.uuid}


def all_of(gpu: Gpu) -> set[int]:
    return {100 + gpu.index, 200 + gpu.index}


def assert_well(read: Read, gpus: Sequence[Gpu], missing: Sequence[dict[str, Availability]]) -> None:
    """These GPUs are OK, lack nothing that they had, and their processes are known."""
    for gpu in gpus:
        assert gpu.state is Availability.OK
        # Events of faults come from a thread of its own, by the real clock: on a busy machine it may be late.
        assert gpu.missing.items() - {("gpu.xid", Availability.STALE)} <= missing[gpu.index].items()
        assert pids(read, gpu) == all_of(gpu)


def test_each_code_on_each_call_of_a_gpu_is_that_gpus_alone_and_over_within_3_s(watched: Watched, stub: Stub) -> None:
    stub.set_gpm(True)
    watched.read(1.0)
    for _ in range(20):
        first = watched.read(3.0)
    missing = [gpu.missing for gpu in first.gpus]
    uuids = [gpu.uuid for gpu in first.gpus]
    assert_well(first, first.gpus, missing)
    called = [name for name in stub.calls(WELL) if name not in ("nvmlDeviceGetUUID", "nvmlDeviceGetName")]
    assert len(called) > 15
    for function in called:
        for gpu, code in enumerate(CODES, 1):
            if (function, code) not in NO_FAULT:
                stub.set_error(function, code, gpu)
        before = 0.0
        for moment in DURING:
            read = watched.read(moment - before)
            before = moment
            assert [gpu.uuid for gpu in read.gpus] == uuids
            assert_well(read, [read.gpus[WELL]], missing)
            for gpu in read.gpus:
                known = pids(read, gpu)
                assert known <= (all_of(gpu) if gpu.state is Availability.OK else set())
                if gpu.state is Availability.OK and PROCESSES not in gpu.missing:
                    assert known == all_of(gpu), f"{function}: {CODES[gpu.index - 1]}"
        stub.set_error(function, 0)
        for gpu in range(1, stub.gpus):
            stub.set_error(function, 0, gpu)
        before = 0.0
        for moment in AFTER:
            read = watched.read(moment - before)
            before = moment
            assert [gpu.uuid for gpu in read.gpus] == uuids
        assert_well(read, read.gpus, missing)


def test_the_largest_number_of_each_type_is_no_value_and_its_end_is_seen_within_3_s(
    watched: Watched, stub: Stub
) -> None:
    stub.gpus = 2
    for _ in range(20):
        first = watched.read(3.0)
    missing = [gpu.missing for gpu in first.gpus]
    assert_well(first, first.gpus, missing)
    # A margin of -1 °C is one, and what is asked each ten minutes is of before.
    filled = [metric for metric in METRICS if metric != "gpu.temperature_margin" and PERIODS.get(metric, 0.0) < 600]
    for metric in filled:
        stub.set_value(metric, 2**64 - 1, 1)
    for _ in range(2):
        read = watched.read(61.0)
    assert_well(read, [read.gpus[WELL]], missing)
    assert set(read.gpus[1].values) & set(filled) == set()
    for metric in filled:
        stub.set_value(metric, None, 1)
    for _ in range(3):
        read = watched.read(1.0)
    of_the_buffer = dict.fromkeys(OF_THE_BUFFER, Availability.UNRELIABLE)  # until the driver has filled it anew
    assert_well(read, read.gpus, [one | of_the_buffer for one in missing])


@pytest.mark.parametrize("function", [COUNT, HANDLE])
def test_each_code_of_a_look_for_gpus_leaves_those_that_are_known(watched: Watched, stub: Stub, function: str) -> None:
    stub.gpus = 4
    first = watched.read(1.0)
    missing = [gpu.missing for gpu in first.gpus]
    for code in CODES:
        stub.set_error(function, code)
        for _ in range(2):
            read = watched.read(2.0)
            if function == COUNT and code in NO_DRIVER:
                assert {gpu.state for gpu in read.gpus} == {Availability.NO_DRIVER}
            else:
                assert {gpu.state for gpu in read.gpus} == {Availability.OK}
        stub.set_error(function, 0)
        read = watched.read(2.0)
        assert [gpu.uuid for gpu in read.gpus] == [gpu.uuid for gpu in first.gpus]
        assert_well(read, read.gpus, missing)


def test_each_code_while_gpus_are_looked_for_first_keeps_that_gpu_alone_away(watched: Watched, stub: Stub) -> None:
    for gpu, code in enumerate(CODES, 1):
        for function in ("nvmlDeviceGetUUID", "nvmlDeviceGetName", "nvmlDeviceGetPciInfo_v3"):
            stub.set_error(function, code, gpu)
    first = watched.read(1.0)
    assert first.gpus[WELL].state is Availability.OK
    assert all(gpu.state is not Availability.OK for gpu in first.gpus[1:])
    assert [gpu.index for gpu in sorted(first.gpus, key=lambda gpu: gpu.index)] == list(range(stub.gpus))
    stub.clear_faults()
    after = watched.read(2.0)
    assert [(gpu.uuid, gpu.state) for gpu in after.gpus] == [
        (stub.uuid(gpu), Availability.OK) for gpu in range(stub.gpus)
    ]


def test_each_code_of_the_start_is_a_problem_with_no_gpu_and_found_out_of(watched: Watched, stub: Stub) -> None:
    stub.gpus = 2
    for code in CODES:
        stub.set_error("nvmlInitWithFlags", code)
        read = watched.read(2.0)
        assert (read.gpus, bool(read.problem)) == ([], True), code
    stub.set_error("nvmlInitWithFlags", 0)
    read = watched.read(2.0)
    assert ({gpu.state for gpu in read.gpus}, read.problem) == ({Availability.OK}, "")
