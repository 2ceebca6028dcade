"""The stub driver divides GPUs into MIG instances: handles of their own, whose memory adds up to that of the GPU."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.nvml import Process, Stub
from tests.unit.test_stub_driver import NOT_FOUND, NOT_SUPPORTED, Ask, client, compiled

GIB = 2**30
INSTANCES = "[n.nvmlDeviceGetMigDeviceHandleByIndex(h[1], i) for i in range({})]"
NONE = 2**32 - 1


@pytest.fixture
def stub() -> Iterator[Stub]:
    with Stub(compiled(), gpus=2) as stub:
        yield stub


@pytest.fixture
def ask(stub: Stub) -> Iterator[Ask]:
    with client(stub) as ask:
        yield ask


def test_mig_is_off_until_it_is_switched_on(stub: Stub, ask: Ask) -> None:
    assert ask("[n.nvmlDeviceGetMigMode(x)[0] for x in h]") == [0, 0]
    assert ask(INSTANCES.format(1)) == {"error": NOT_FOUND}
    stub.set_mig(1, 3)
    assert ask("[n.nvmlDeviceGetMigMode(x)[0] for x in h]") == [0, 1]
    assert ask(f"len({INSTANCES.format(3)})") == 3
    assert ask(INSTANCES.format(4)) == {"error": NOT_FOUND}


def test_an_instance_has_a_name_an_identifier_and_its_gpu(stub: Stub, ask: Ask) -> None:
    stub.set_mig(1, 2)
    names = ask(f"[n.nvmlDeviceGetName(x) for x in {INSTANCES.format(2)}]")
    assert names == ["NVIDIA H100 80GB HBM3 MIG 1g.10gb"] * 2
    uuids = ask(f"[n.nvmlDeviceGetUUID(x) for x in {INSTANCES.format(2)}]")
    assert len(set(uuids)) == 2
    assert all(uuid.startswith("MIG-") for uuid in uuids)
    assert ask(f"[n.nvmlDeviceGetGpuInstanceId(x) for x in {INSTANCES.format(2)}]") == [1, 2]
    parent = "n.nvmlDeviceGetDeviceHandleFromMigDeviceHandle"
    assert ask(f"[n.nvmlDeviceGetUUID({parent}(x)) for x in {INSTANCES.format(2)}]") == [stub.uuid(1)] * 2
    assert ask(f"[n.nvmlDeviceIsMigDeviceHandle(x).value for x in (h[1], *{INSTANCES.format(1)})]") == [0, 1]
    assert ask(f"n.nvmlDeviceGetAttributes_v2({INSTANCES.format(1)}[0]).memorySizeMB") == 10240
    assert ask("n.nvmlDeviceGetGpuInstanceId(h[1])") == {"error": NOT_SUPPORTED}


def test_memory_of_instances_adds_up_to_that_of_the_gpu(stub: Stub, ask: Ask) -> None:
    stub.set_mig(1, 3)
    used = "n.nvmlDeviceGetMemoryInfo({}, n.nvmlMemory_v2).used"
    assert ask(f"[{used.format('x')} for x in {INSTANCES.format(3)}]") == [GIB, 2 * GIB, 3 * GIB]
    assert ask(used.format("h[1]")) == 6 * GIB


def test_nobody_tells_how_busy_a_divided_gpu_or_its_instances_are(stub: Stub, ask: Ask) -> None:
    stub.set_mig(1, 1)
    for device in ("h[1]", f"{INSTANCES.format(1)}[0]"):
        for call in ("UtilizationRates({})", "EncoderUtilization({})", "ProcessUtilization({}, 0)"):
            assert ask(f"n.nvmlDeviceGet{call.format(device)}") == {"error": NOT_SUPPORTED}
    assert ask(f"n.nvmlDeviceGetPowerUsage({INSTANCES.format(1)}[0])") == {"error": NOT_SUPPORTED}
    assert ask("n.nvmlDeviceGetPowerUsage(h[1])") > 0


def test_a_process_is_listed_on_its_instance_and_on_the_gpu(stub: Stub, ask: Ask) -> None:
    stub.set_mig(1, 2)
    stub.set_processes(1, [Process(11, instance=0), Process(12, instance=1)])
    listed = "[[p.pid, p.gpuInstanceId] for p in n.nvmlDeviceGetComputeRunningProcesses({})]"
    assert ask(listed.format("h[1]")) == [[11, 1], [12, 2]]
    assert ask(f"[{listed.format('x')} for x in {INSTANCES.format(2)}]") == [[[11, 1]], [[12, 2]]]
    stub.set_mig(1, None)
    stub.set_processes(1, [Process(13)])
    assert ask(listed.format("h[1]")) == [[13, NONE]]


def test_a_handle_outlives_its_instance(stub: Stub, ask: Ask) -> None:
    stub.set_mig(1, 2)
    ask(f"globals().update(second={INSTANCES.format(2)}[1])")
    stub.set_mig(1, 1)
    assert ask("n.nvmlDeviceGetName(second)") == {"error": NOT_FOUND}
