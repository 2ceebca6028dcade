"""Detects the GPUs, framework, name and rank of this training process.

Finding the UUID of a GPU never wakes the GPU. torch is queried only if the training has imported it and initialized
CUDA, and only for data that torch returns without synchronizing or waiting for the driver. Otherwise
CUDA_VISIBLE_DEVICES, or the variable of another vendor, may list UUIDs. If the variable lists numbers, the daemon
resolves them, because only the daemon can tell whether they are the driver's numbers
(https://docs.nvidia.com/cuda/cuda-c-programming-guide/#env-vars).
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from gpumon.common.procfs import read_stat
from gpumon.model.rocm_devices import address_name, hip_uuid, rocm_visible_devices
from gpumon.model.vendors import IDENTIFIERS, NVIDIA, PARTS, visible_devices
from gpumon.tracking.description import ID_LENGTH


def find_devices(modules: Mapping[str, Any], env: Mapping[str, str], *, alone: bool = True) -> tuple[str, ...]:
    """Return the UUIDs of the devices that this process uses; empty while they cannot be determined.

    `modules`: `sys.modules`. `env`: environment variables. `alone`: whether this process is the whole job, so that it
    uses all visible devices. One of several ranks uses only some of them. Never raises and never initializes CUDA.
    """
    visible = visible_uuids(visible_list(modules, env))
    try:
        uuids = _from_torch(modules.get("torch"), visible)
    except Exception:  # an unexpected version of torch, or a lost context; the daemon asks the driver instead
        uuids = ()
    if uuids:
        return uuids
    return visible if alone or len(visible) == 1 else ()


def detect_framework(modules: Mapping[str, Any]) -> str:
    """Return the framework that this process has imported, for a training loop without a callback; "" if there is none.

    If several frameworks are imported, the result is JAX if its backend is initialized. An import alone does not count,
    because TensorFlow imports JAX, and a JAX training may load its data with torch. Otherwise torch is preferred to
    TensorFlow, because TensorBoard imports TensorFlow.
    """
    if getattr(modules.get("jax._src.xla_bridge"), "_backends", None):
        return "jax"
    return next((name for name in ("torch", "tensorflow", "jax") if name in modules), "")


def visible_uuids(visible: str) -> tuple[str, ...]:
    """Return the UUIDs in the value of a variable such as CUDA_VISIBLE_DEVICES; empty if it lists numbers.

    As in CUDA, the first invalid entry ends the list.
    """
    uuids = []
    for entry in visible.split(","):
        if not entry.strip().startswith(IDENTIFIERS):
            break
        uuids.append(entry.strip())
    return tuple(uuids)


def uses_rocm(modules: Mapping[str, Any], dev: str = "/dev") -> bool:
    """Return whether this process uses GPUs through ROCm. `dev`: folder of device files."""
    version = getattr(modules.get("torch"), "version", None)
    if getattr(version, "hip", None) or getattr(version, "cuda", None):
        return bool(getattr(version, "hip", None))
    return os.path.exists(f"{dev}/kfd") and not os.path.exists(f"{dev}/nvidiactl")


def visible_list(modules: Mapping[str, Any], env: Mapping[str, str]) -> str:
    """Return the list of GPUs that this process may use, from its environment; empty if it may use all."""
    return rocm_visible_devices(env) if uses_rocm(modules) else visible_devices(env)


def has_driver_numbers(env: Mapping[str, str], variable: str = NVIDIA.numbers) -> bool:
    """Return whether the numbers in `variable` refer to all GPUs of the machine, as the driver's numbers do.

    In a container, they refer only to the container's GPUs. In a Slurm job with ConstrainDevices, they refer to the
    job's GPUs, and Slurm's own variables have different numbers (https://slurm.schedmd.com/gres.html).
    """
    if env.get("NVIDIA_VISIBLE_DEVICES", "all") not in ("", "all", "none", "void"):
        return False
    job_gpus = env.get("SLURM_STEP_GPUS") or env.get("SLURM_JOB_GPUS")
    return not job_gpus or job_gpus == env.get(variable)


def torch_uuid(cuda: Any, index: int, visible: tuple[str, ...]) -> str:
    """Return the UUID of torch's device `index`, or else its address on the PCI bus; empty if torch reports neither.

    `cuda` is the initialized module `torch.cuda`. `visible` is a result of `visible_uuids`.
    """
    if index < len(visible) and visible[index].startswith(PARTS):
        return visible[index]  # versions of torch report different UUIDs for MIG instances
    properties = cuda.get_device_properties(index)
    uuid = str(getattr(properties, "uuid", "") or "")
    if uuid.startswith(IDENTIFIERS):
        return uuid
    of_rocm = hip_uuid(uuid)
    if uuid and of_rocm is None:
        return f"{NVIDIA.whole[0]}{uuid}"
    numbers = (getattr(properties, f"pci_{part}_id", None) for part in ("domain", "bus", "device"))
    return of_rocm or address_name(*numbers)


def _from_torch(torch: Any, visible: tuple[str, ...]) -> tuple[str, ...]:
    cuda = getattr(torch, "cuda", None)
    if cuda is None or not cuda.is_initialized():
        return ()
    indexes = [i for i in range(cuda.device_count()) if _has_memory(cuda, i)] or [cuda.current_device()]
    return tuple(uuid for index in indexes if (uuid := torch_uuid(cuda, index, visible)))


def _has_memory(cuda: Any, index: int) -> bool:
    stats = cuda.memory_stats_as_nested_dict(index)
    return bool(stats and stats["reserved_bytes"]["all"]["current"] > 0)


NOTEBOOK = "notebook"
_KERNEL = "kernel_launcher"
"""Last part of the path of the scripts that start the kernels of Jupyter, VS Code, Kaggle and Colab."""


def default_name(
    argv: Sequence[str], env: Mapping[str, str] | None = None, main: Mapping[str, object] | None = None
) -> str:
    """Return the name of the script (`train` for `python train.py`) or of the notebook.

    `main` is the namespace of `__main__`, in which VS Code stores the path of a notebook. Jupyter stores the path in
    `env`.
    """
    if is_notebook(argv):
        return _notebook(env or {}, main or {})
    stem = _stem(argv)
    if stem == "__main__":  # python -m package
        stem = os.path.basename(os.path.dirname(argv[0]))
    return stem if stem not in ("", "-c", "-m", "-") else "run"


def is_notebook(argv: Sequence[str]) -> bool:
    """Whether this process is the kernel of a notebook."""
    return _stem(argv).endswith(_KERNEL)


def _stem(argv: Sequence[str]) -> str:
    return os.path.splitext(os.path.basename(argv[0]) if argv else "")[0]


def _notebook(env: Mapping[str, str], main: Mapping[str, object]) -> str:
    for path in (env.get("JPY_SESSION_NAME", ""), main.get("__vsc_ipynb_file__")):
        stem, kind = os.path.splitext(os.path.basename(path)) if isinstance(path, str) else ("", "")
        if stem and kind == ".ipynb":
            return stem
    return NOTEBOOK


class RankInfo(NamedTuple):
    """The rank of a process in its job, and the data that identifies the job."""

    rank: int = 0
    local_rank: int = 0
    world_size: int = 1
    identity: tuple[str, ...] = ()
    """Strings that identify the job and are the same in all ranks of the job; empty for a single process."""
    needs_parent: bool = False
    """Whether `identity` is unique only together with the parent process of the ranks, which all run on one machine."""
    starter: bool = False
    """Whether this rank started the other ranks, as in Lightning's `ddp`. It then counts as their parent process."""
    attempt: int = 0
    """Number of times that the launcher has restarted the ranks. The agents on different nodes may report different
    numbers."""
    spawn_group: str = ""
    """Number that distinguishes ranks that were spawned together by multiprocessing from earlier ranks of the same
    parent."""


_LOOPBACK = ("", "localhost", "127.0.0.1", "::1")


def detect_rank(env: Mapping[str, str], modules: Mapping[str, Any] | None = None, proc: str = "/proc") -> RankInfo:
    """Return the rank according to `env`, or else according to torch.distributed if it is initialized.

    If neither has a rank, the result describes a single process.

    `modules` is `sys.modules`, and `proc` is the root of procfs.
    """
    modules = modules or {}
    rank = _torch(env) or _distributed(env, modules) or _launched(env) or RankInfo()
    if not rank.needs_parent:
        return rank
    number = _number_among_siblings(modules)
    if number is None:
        return rank._replace(starter=_started_others(env, proc))
    return rank._replace(spawn_group=str(number - rank.rank))


def run_id(name: str, rank: RankInfo, earlier: int, parent: str, uid: int) -> str:
    """Return an id that is the same for all ranks of a run, and different for every other run.

    `name`: name of the run. `earlier`: number of runs that this process started before this one. `parent`: result of
    `parent_identity`. After a restart by the launcher, the id is the same, and `attempt_id` adds a suffix to it.
    """
    if rank.world_size > 1 and rank.identity:
        import hashlib  # the import takes 2 ms, and a single process does not need it

        parts = [
            str(uid),
            name,
            str(earlier),
            *rank.identity,
            *([parent, rank.spawn_group] if rank.needs_parent else []),
        ]
        suffix = hashlib.blake2b("\0".join(parts).encode("utf-8", "surrogateescape"), digest_size=4).hexdigest()
    else:
        suffix = os.urandom(4).hex()
    return f"{slug(name)}-{suffix}"


def attempt_id(id: str, attempt: int) -> str:
    """Return the id of a run in a later attempt of its launcher: `net-1f2e3d4c~2` for the second attempt."""
    suffix = f"~{attempt + 1}" if attempt else ""
    return id[: ID_LENGTH - len(suffix)] + suffix


def slug(name: str) -> str:
    """Return `name` as lower-case letters, digits and dashes, at most 40 characters."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower())[:40].strip("-") or "run"


def parent_identity(proc: str = "/proc", *, starter: bool = False) -> str:
    """Return pid and start time of the parent process, or of this process if it started the other ranks (`starter`).

    The pair is unique until the machine reboots.
    """
    parent = os.getpid() if starter else os.getppid()
    status = read_stat(parent, proc)
    return f"{parent}/{status.started}" if status else str(parent)  # /proc may hide the process


def _number(env: Mapping[str, str], *names: str) -> int | None:
    for name in names:
        text = env.get(name, "")
        if text.isascii() and text.isdigit() and len(text) < 8:
            return int(text)
    return None


TIME_LIMIT = "GPUMON_TIME_LIMIT"
"""Environment variable with the time at which `gpumon run --time-limit` expects its command to be ended."""


def time_limit(env: Mapping[str, str]) -> float:
    """Return when this process will be ended, in seconds since 1970; 0 if that is unknown.

    Slurm sets SLURM_JOB_END_TIME in the environment of a job (sbatch(1)).
    """
    texts = (env.get(TIME_LIMIT, ""), env.get("SLURM_JOB_END_TIME", ""))
    return min((float(text) for text in texts if text.isascii() and text.isdigit() and len(text) < 12), default=0.0)


def _torch(env: Mapping[str, str]) -> RankInfo | None:
    rank, size = _number(env, "RANK"), _number(env, "WORLD_SIZE")
    return None if rank is None or size is None else _torch_job(env, rank, size, _number(env, "LOCAL_RANK"))


def _distributed(env: Mapping[str, str], modules: Mapping[str, Any]) -> RankInfo | None:
    """Return the rank from torch.distributed, since torch.multiprocessing.spawn does not pass it in `env`."""
    try:
        group = modules["torch"].distributed
        if not (group.is_available() and group.is_initialized()):
            return None
        rank, size = int(group.get_rank()), int(group.get_world_size())
    except Exception:  # torch is missing, incomplete, or an unexpected version
        return None
    launched = _launched(env)
    if launched is not None and launched[:3:2] == (rank, size):
        return launched  # this also identifies the job
    return _torch_job(env, rank, size, _number(env, "LOCAL_RANK"))


def _launched(env: Mapping[str, str]) -> RankInfo | None:
    return _slurm(env) or _open_mpi(env) or _pmi(env)


def _number_among_siblings(modules: Mapping[str, Any]) -> int | None:
    """Return the 1-based index of this process among its parent's children, if multiprocessing started it."""
    try:
        process = modules["multiprocessing.process"]
        return int(process.current_process()._identity[-1]) if process.parent_process() is not None else None
    except Exception:  # multiprocessing is not loaded, or is an unexpected version
        return None


def _started_others(env: Mapping[str, str], proc: str) -> bool:
    """Whether this process is Lightning's first rank, which sets LOCAL_RANK itself instead of inheriting it."""
    if env.get("LOCAL_RANK") != "0" or "NODE_RANK" not in env or _launched(env) is not None:
        return False
    try:
        with open(f"{proc}/self/environ", "rb") as file:
            return not any(entry.startswith(b"LOCAL_RANK=") for entry in file.read().split(b"\0"))
    except OSError:
        return False


def _torch_job(env: Mapping[str, str], rank: int, size: int, local_rank: int | None) -> RankInfo:
    address, elastic = env.get("MASTER_ADDR", ""), env.get("TORCHELASTIC_RUN_ID", "")
    identity = ("torch", address, env.get("MASTER_PORT", ""), elastic, *_slurm_job(env))
    local_size = _number(env, "LOCAL_WORLD_SIZE", "LOCAL_SIZE")
    one_machine = address in _LOOPBACK or address == socket.gethostname() if local_size is None else local_size == size
    is_unique = elastic not in ("", "none")
    if local_rank is None:
        local_rank = rank if one_machine else 0
    attempt = _number(env, "TORCHELASTIC_RESTART_COUNT") or 0
    return RankInfo(rank, local_rank, size, identity, one_machine and not is_unique, attempt=attempt)


def _slurm_job(env: Mapping[str, str]) -> tuple[str, ...]:
    """Return the Slurm job id, and how often the job was requeued. Both are the same on all nodes of the job."""
    return env.get("SLURM_JOB_ID", ""), env.get("SLURM_RESTART_COUNT", "0")


def _slurm(env: Mapping[str, str]) -> RankInfo | None:
    rank, size = _number(env, "SLURM_PROCID"), _number(env, "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS")
    # Without a step id, this is the batch script itself. It is a single process, however many tasks the job has.
    if rank is None or size is None or not env.get("SLURM_STEP_ID"):
        return None
    identity = ("slurm", *_slurm_job(env), env["SLURM_STEP_ID"])
    return RankInfo(rank, _number(env, "SLURM_LOCALID") or 0, size, identity)


def _open_mpi(env: Mapping[str, str]) -> RankInfo | None:
    rank, size = _number(env, "OMPI_COMM_WORLD_RANK"), _number(env, "OMPI_COMM_WORLD_SIZE")
    if rank is None or size is None:
        return None
    job = env.get("PMIX_NAMESPACE") or env.get("OMPI_MCA_ess_base_jobid", "")
    local = _number(env, "OMPI_COMM_WORLD_LOCAL_RANK") or 0
    return RankInfo(rank, local, size, ("ompi", job, *_slurm_job(env)), not job)


def _pmi(env: Mapping[str, str]) -> RankInfo | None:
    rank, size = _number(env, "PMI_RANK"), _number(env, "PMI_SIZE")
    if rank is None or size is None:
        return None
    job = env.get("PMI_JOBID", "")
    local = _number(env, "MPI_LOCALRANKID", "PMI_LOCAL_RANK") or 0
    return RankInfo(rank, local, size, ("pmi", job, *_slurm_job(env)), not job)
