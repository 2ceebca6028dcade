"""The GPUs on which a process trains, with a fake torch."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from gpumon.tracking.context import detect_framework, find_devices, has_driver_numbers

ONE = "GPU-11111111-1111-1111-1111-111111111111"
TWO = "GPU-22222222-2222-2222-2222-222222222222"


class Cuda:
    """A torch.cuda whose devices are ONE and TWO."""

    def __init__(self, *, initialized: bool = True, reserved: tuple[int, int] = (0, 0), current: int = 0) -> None:
        self.initialized = initialized
        self.reserved = reserved
        self.current = current
        self.asked: list[str] = []

    def is_initialized(self) -> bool:
        return self.initialized

    def __getattr__(self, name: str) -> Any:
        self.asked.append(name)
        return {
            "device_count": lambda: 2,
            "current_device": lambda: self.current,
            "get_device_properties": lambda i: SimpleNamespace(uuid=(ONE, TWO)[i][4:]),
            "memory_stats_as_nested_dict": lambda i: {"reserved_bytes": {"all": {"current": self.reserved[i]}}},
        }[name]


def modules(cuda: Cuda) -> dict[str, Any]:
    return {"torch": SimpleNamespace(cuda=cuda)}


def test_cuda_is_never_initialized() -> None:
    cuda = Cuda(initialized=False)
    assert find_devices(modules(cuda), {}) == ()
    assert cuda.asked == []


def test_the_current_device_is_named_by_its_uuid() -> None:
    assert find_devices(modules(Cuda(current=1)), {}) == (TWO,)


def test_devices_with_memory_are_those_in_use() -> None:
    assert find_devices(modules(Cuda(reserved=(0, 1))), {}) == (TWO,)
    assert find_devices(modules(Cuda(reserved=(1, 1))), {}) == (ONE, TWO)


def test_a_mig_instance_keeps_its_uuid_from_the_environment() -> None:
    assert find_devices(modules(Cuda()), {"CUDA_VISIBLE_DEVICES": "MIG-abc"}) == ("MIG-abc",)


@pytest.mark.parametrize(
    ("visible", "alone", "expected"),
    [
        (f"{ONE},{TWO}", True, (ONE, TWO)),
        (f"{ONE},{TWO}", False, ()),
        (ONE, False, (ONE,)),
        (f"{ONE},0,{TWO}", True, (ONE,)),
        ("0,1", True, ()),
        ("", True, ()),
        ("-1", True, ()),
    ],
)
def test_without_torch_uuids_come_from_the_environment(visible: str, alone: bool, expected: tuple[str, ...]) -> None:
    assert find_devices({}, {"CUDA_VISIBLE_DEVICES": visible}, alone=alone) == expected


@pytest.mark.parametrize("torch", [None, SimpleNamespace(), SimpleNamespace(cuda=SimpleNamespace()), object()])
def test_unexpected_torch_modules_are_ignored(torch: object) -> None:
    assert find_devices({"torch": torch}, {}) == ()


@pytest.mark.parametrize(
    ("loaded", "framework"),
    [
        ([], ""),
        (["torch"], "torch"),
        (["tensorflow", "jax"], "tensorflow"),  # TensorFlow imports JAX where it is installed
        (["torch", "tensorflow"], "torch"),
        (["jax"], "jax"),
        (["torch", "jax", "jax._src.xla_bridge"], "jax"),
    ],
)
def test_the_framework_in_use_is_detected(loaded: list[str], framework: str) -> None:
    assert detect_framework({name: SimpleNamespace(_backends={"cpu": object()}) for name in loaded}) == framework


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        ({}, True),
        ({"NVIDIA_VISIBLE_DEVICES": "all"}, True),
        ({"NVIDIA_VISIBLE_DEVICES": "3"}, False),
        ({"NVIDIA_VISIBLE_DEVICES": ONE}, False),
        ({"SLURM_JOB_GPUS": "0"}, True),
        ({"SLURM_JOB_GPUS": "3"}, False),
        ({"SLURM_JOB_GPUS": "0,1,2,3", "SLURM_STEP_GPUS": "0"}, True),
        ({"SLURM_JOB_GPUS": "0,1"}, False),
    ],
)
def test_numbers_in_a_container_or_constrained_job_are_not_driver_numbers(env: dict[str, str], expected: bool) -> None:
    assert has_driver_numbers({**env, "CUDA_VISIBLE_DEVICES": "0"}) is expected
