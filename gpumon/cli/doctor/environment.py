"""Checks of environment variables that hide GPUs from programs, or slow programs down."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator

from gpumon.cli.doctor.machine import Machine
from gpumon.common.check_result import Check, Condition
from gpumon.model.cuda_devices import VARIABLE, as_cuda_reads, named_devices
from gpumon.model.device import Device

_NOT_SHELL_STATE = "remove it from the shell's start-up files and job scripts: 'unset {name}'"
_TRUE = frozenset({"1", "true", "yes", "on"})

_SLOW = {
    "CUDA_LAUNCH_BLOCKING": "kernels run one by one, which is meant for debugging and slows training down",
    "PYTORCH_NO_CUDA_MEMORY_CACHING": "PyTorch asks the driver for the memory of each tensor, which is slow",
    "NCCL_P2P_DISABLE": "NCCL copies between GPUs through host memory",
    "NCCL_SHM_DISABLE": "NCCL copies between processes of this machine over the network",
    "NCCL_IB_DISABLE": "NCCL does not use InfiniBand",
}
"""Variables that slow programs down if they are set to a true value, with their effect.

Sources: CUDA C++ Programming Guide "CUDA Environment Variables", PyTorch "CUDA Environment Variables", NCCL
"Environment Variables".
"""


def environment_checks(machine: Machine) -> Iterator[Check]:
    """Check the environment of this command, which programs that are started from the same shell share."""
    yield from _visible_devices(machine)
    yield from _container_devices(machine)
    yield from _slow_variables(machine)
    yield from _jax_platform(machine)
    yield from _other_driver_library(machine)
    yield from _mps_directory(machine)


def _warning(name: str, text: str, remedy: str = "", *, condition: Condition = Condition.WARNING) -> Check:
    return Check(name, condition, text, remedy or _NOT_SHELL_STATE.format(name=name))


def _visible_devices(machine: Machine) -> Iterator[Check]:
    """Yield a fault if CUDA_VISIBLE_DEVICES hides all GPUs, and a warning if those after an invalid entry."""
    value = machine.environ.get(VARIABLE)
    if value is None:
        return
    entries = [entry.strip() for entry in value.split(",")]
    if not value.strip() or entries[0] in ("-1", "NoDevFiles"):
        yield _warning(VARIABLE, f"{VARIABLE}={value} hides all GPUs from programs", condition=Condition.FAULT)
        return
    devices = [Device(uuid, index, "") for index, uuid in enumerate(machine.gpus.uuids)]
    if not devices or any(entry.startswith("MIG-") for entry in entries):
        return  # MIG instances are not among the GPUs that were read
    named = named_devices(value, devices)
    if None in named:
        position = named.index(None)
        effect = "all GPUs" if not position else f"all GPUs after {', '.join(entries[:position])}"
        text = f"{VARIABLE}={value} hides {effect} from programs: '{entries[position]}' names no GPU of this machine"
        yield _warning(VARIABLE, text, condition=Condition.WARNING if position else Condition.FAULT)
    elif not as_cuda_reads(named):
        text = f"{VARIABLE}={value} hides all GPUs from programs: it names a GPU twice"
        yield _warning(VARIABLE, text, condition=Condition.FAULT)


def _container_devices(machine: Machine) -> Iterator[Check]:
    """Yield a warning if the container was started without GPUs: NVIDIA Container Toolkit, "Enumerating GPUs"."""
    name = "NVIDIA_VISIBLE_DEVICES"
    value = machine.environ.get(name)
    if machine.is_container and value in ("none", "void", ""):
        yield _warning(name, f"{name}={value}: this container was started without GPUs", "start it with '--gpus all'")


def _slow_variables(machine: Machine) -> Iterator[Check]:
    for name, effect in _SLOW.items():
        value = machine.environ.get(name, "")
        if value.strip().lower() in _TRUE:
            yield _warning(name, f"{name}={value}: {effect}")


def _jax_platform(machine: Machine) -> Iterator[Check]:
    name = "JAX_PLATFORMS"
    value = machine.environ.get(name, "")
    if value and machine.gpus.names and not {"cuda", "gpu"} & set(value.lower().split(",")):
        yield _warning(name, f"{name}={value}: JAX uses no GPU")


def _other_driver_library(machine: Machine) -> Iterator[Check]:
    """Yield a warning for a libcuda in LD_LIBRARY_PATH that is not the driver's.

    Such a library comes from the CUDA compatibility package, or from a container image. On a card for which NVIDIA does
    not support it, CUDA fails with error 804 (CUDA Compatibility, "Forward Compatibility").
    """
    module = machine.line("/sys/module/nvidia/version")
    for folder in filter(os.path.isabs, machine.environ.get("LD_LIBRARY_PATH", "").split(":")):
        for library in sorted(glob.glob(machine.path(f"{folder}/libcuda.so.[0-9]*.*"))):
            version = os.path.basename(library).removeprefix("libcuda.so.")
            if module and version != module:
                text = (
                    f"LD_LIBRARY_PATH has libcuda {version} in {folder}, but the driver is version {module}: CUDA may "
                    "fail with error 803 or 804"
                )
                yield Check("LD_LIBRARY_PATH", Condition.WARNING, text, f"remove {folder} from LD_LIBRARY_PATH")
                return


def _mps_directory(machine: Machine) -> Iterator[Check]:
    name = "CUDA_MPS_PIPE_DIRECTORY"
    folder = machine.environ.get(name, "")
    if folder and not machine.exists(f"{folder}/control"):
        text = f"{name}={folder}, but no MPS daemon listens there: CUDA programs fail with error 805, or do not share"
        yield _warning(name, text, f"start one with 'nvidia-cuda-mps-control -d', or 'unset {name}'")
