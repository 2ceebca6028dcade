"""GPUs that this process trains on, by UUID, found without waking one.

torch is asked only where the training has already imported it and CUDA is already initialized, and its
answers are bookkeeping in the process (no synchronization, no driver call that waits).
Else CUDA_VISIBLE_DEVICES, or what another maker has in its place, may name UUIDs; numbers in it are left to the daemon,
which alone can tell whether they count as the driver does
(https://docs.nvidia.com/cuda/cuda-c-programming-guide/#env-vars).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpumon.model.vendors import IDENTIFIERS, NVIDIA, PARTS, visible_devices


def find_devices(modules: Mapping[str, Any], env: Mapping[str, str], *, alone: bool = True) -> tuple[str, ...]:
    """UUIDs of the devices in use; empty as long as they are unknown.

    `modules` is `sys.modules`. `alone`: this process is the whole job, so that all visible devices
    are its own; one rank of many uses a part of them. Never raises, never initializes CUDA.
    """
    visible = visible_uuids(visible_devices(env))
    try:
        found = _from_torch(modules.get("torch"), visible)
    except Exception:  # a torch of another shape, a context that is lost: the daemon asks the driver instead
        found = ()
    if found:
        return found
    return visible if alone or len(visible) == 1 else ()


def framework_of(modules: Mapping[str, Any]) -> str:
    """The framework of a training loop by hand: the one that this process has imported; "" where there is none.

    Of several: JAX where its backend is up, since a JAX training may load its data with torch and TensorFlow imports
    JAX by itself; else torch before TensorFlow, which TensorBoard imports.
    """
    if getattr(modules.get("jax._src.xla_bridge"), "_backends", None):
        return "jax"
    return next((name for name in ("torch", "tensorflow", "jax") if name in modules), "")


def visible_uuids(visible: str) -> tuple[str, ...]:
    """The UUIDs that a variable such as CUDA_VISIBLE_DEVICES lists; empty when it lists numbers.

    As CUDA reads it, the first entry that is none ends the list.
    """
    found = []
    for entry in visible.split(","):
        if not entry.strip().startswith(IDENTIFIERS):
            break
        found.append(entry.strip())
    return tuple(found)


def torch_uuid(cuda: Any, index: int, visible: tuple[str, ...]) -> str:
    """The UUID of what torch calls device `index`; empty where torch does not report it.

    `cuda` is `torch.cuda`, initialized; `visible` is as `visible_uuids` gives it.
    """
    if index < len(visible) and visible[index].startswith(PARTS):
        return visible[index]  # what torch calls a MIG instance differs between versions
    uuid = str(getattr(cuda.get_device_properties(index), "uuid", "") or "")
    return uuid if not uuid or uuid.startswith(IDENTIFIERS) else f"{NVIDIA.whole[0]}{uuid}"


def _from_torch(torch: Any, visible: tuple[str, ...]) -> tuple[str, ...]:
    cuda = getattr(torch, "cuda", None)
    if cuda is None or not cuda.is_initialized():
        return ()
    indexes = [i for i in range(cuda.device_count()) if _reserved(cuda, i)] or [cuda.current_device()]
    found = []
    for index in indexes:
        uuid = torch_uuid(cuda, index, visible)
        if uuid:
            found.append(uuid)
    return tuple(found)


def _reserved(cuda: Any, index: int) -> bool:
    stats = cuda.memory_stats_as_nested_dict(index)
    return bool(stats and stats["reserved_bytes"]["all"]["current"] > 0)
