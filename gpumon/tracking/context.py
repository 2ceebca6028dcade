"""GPUs that this process trains on, by UUID, found without waking one.

torch is asked only where the training has already imported it and CUDA is already initialized, and its
answers are bookkeeping in the process (no synchronization, no driver call that waits).
Else CUDA_VISIBLE_DEVICES, or what another maker has in its place, may name UUIDs; numbers in it are left to the daemon,
which alone can tell whether they count as the driver does
(https://docs.nvidia.com/cuda/cuda-c-programming-guide/#env-vars).
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from gpumon.common.procfs import read_stat
from gpumon.model.vendors import IDENTIFIERS, NVIDIA, PARTS, visible_devices
from gpumon.tracking.description import ID_LENGTH


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


def are_numbered_here(env: Mapping[str, str]) -> bool:
    """Whether numbers in CUDA_VISIBLE_DEVICES count all GPUs of the machine, as the driver does.

    Those in a container count the GPUs that it was given. Those in a Slurm job with ConstrainDevices count the job's,
    whose own numbers are others then (https://slurm.schedmd.com/gres.html).
    """
    if env.get("NVIDIA_VISIBLE_DEVICES", "all") not in ("", "all", "none", "void"):
        return False
    of_job = env.get("SLURM_STEP_GPUS") or env.get("SLURM_JOB_GPUS")
    return not of_job or of_job == env.get(NVIDIA.numbers)


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


NOTEBOOK = "notebook"
_KERNEL = "kernel_launcher"
"""Endings of the scripts that start the kernels of Jupyter, VS Code, Kaggle and Colab."""


def default_name(
    argv: Sequence[str], env: Mapping[str, str] | None = None, main: Mapping[str, object] | None = None
) -> str:
    """Return the name of the script, `train` for `python train.py`, or of the notebook.

    `main` is the namespace of `__main__`, in which VS Code leaves the path of a notebook; Jupyter leaves it in `env`.
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


class RankPlace(NamedTuple):
    """Where a process stands among those of its job."""

    rank: int = 0
    local_rank: int = 0
    world_size: int = 1
    identity: tuple[str, ...] = ()
    """Text that all ranks of this job share and no other job has; empty for a single process."""
    needs_parent: bool = False
    """Whether the identity needs the process that started the ranks to be unique; all of them are on one machine."""
    starter: bool = False
    """Whether this rank itself started the others (Lightning's `ddp`): it stands for their parent."""
    attempt: int = 0
    """How often a launcher has started the ranks anew; agents of different nodes may count differently."""
    spawn_group: str = ""
    """Tells ranks that multiprocessing began together from those that the same parent began before."""


_LOOPBACK = ("", "localhost", "127.0.0.1", "::1")


def place(env: Mapping[str, str], modules: Mapping[str, Any] | None = None, proc: str = "/proc") -> RankPlace:
    """Return the place that `env` names, or torch.distributed where it is up already; else that of a single process.

    `modules` is `sys.modules`, `proc` the root of procfs.
    """
    modules = modules or {}
    where = _torch(env) or _distributed(env, modules) or _launched(env) or RankPlace()
    if not where.needs_parent:
        return where
    number = _number_among_siblings(modules)
    if number is None:
        return where._replace(starter=_started_others(env, proc))
    return where._replace(spawn_group=str(number - where.rank))


def run_id(name: str, where: RankPlace, begun: int, parent: str, uid: int) -> str:
    """An id that all ranks of a run share, and no other run has but for later attempts (see `of_attempt`).

    `begun` counts the runs that this process began before; `parent` names the process that started
    the ranks for ever, see `parent_identity`.
    """
    if where.world_size > 1 and where.identity:
        import hashlib  # 2 ms that a single process need not pay

        parts = [
            str(uid),
            name,
            str(begun),
            *where.identity,
            *([parent, where.spawn_group] if where.needs_parent else []),
        ]
        mark = hashlib.blake2b("\0".join(parts).encode("utf-8", "surrogateescape"), digest_size=4).hexdigest()
    else:
        mark = os.urandom(4).hex()
    return f"{slug(name)}-{mark}"


def of_attempt(id: str, attempt: int) -> str:
    """The id of a run in a later attempt of its launcher: `net-1f2e3d4c~2` in the second one."""
    behind = f"~{attempt + 1}" if attempt else ""
    return id[: ID_LENGTH - len(behind)] + behind


def slug(name: str) -> str:
    """`name` as lower-case letters, digits and dashes, at most 40 characters."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower())[:40].strip("-") or "run"


def parent_identity(proc: str = "/proc", *, starter: bool = False) -> str:
    """Pid and start time of the parent, or of this process as the `starter` of the other ranks.

    Together they never come again while the machine is up.
    """
    parent = os.getpid() if starter else os.getppid()
    found = read_stat(parent, proc)
    return f"{parent}/{found.started}" if found else str(parent)  # hidden from us: the pid alone


def _number(env: Mapping[str, str], *names: str) -> int | None:
    for name in names:
        text = env.get(name, "")
        if text.isascii() and text.isdigit() and len(text) < 8:
            return int(text)
    return None


def _torch(env: Mapping[str, str]) -> RankPlace | None:
    rank, size = _number(env, "RANK"), _number(env, "WORLD_SIZE")
    return None if rank is None or size is None else _torch_job(env, rank, size, _number(env, "LOCAL_RANK"))


def _distributed(env: Mapping[str, str], modules: Mapping[str, Any]) -> RankPlace | None:
    """Ranks that torch.multiprocessing.spawn began: they get their rank as an argument."""
    try:
        group = modules["torch"].distributed
        if not (group.is_available() and group.is_initialized()):
            return None
        rank, size = int(group.get_rank()), int(group.get_world_size())
    except Exception:  # no torch, half a torch, one of another shape
        return None
    launched = _launched(env)
    if launched is not None and launched[:3:2] == (rank, size):
        return launched  # it also knows which job this is
    return _torch_job(env, rank, size, _number(env, "LOCAL_RANK"))


def _launched(env: Mapping[str, str]) -> RankPlace | None:
    return _slurm(env) or _open_mpi(env) or _pmi(env)


def _number_among_siblings(modules: Mapping[str, Any]) -> int | None:
    """1-based index among its parent's children, if multiprocessing started it."""
    try:
        process = modules["multiprocessing.process"]
        return int(process.current_process()._identity[-1]) if process.parent_process() is not None else None
    except Exception:  # not loaded, or of another shape
        return None


def _started_others(env: Mapping[str, str], proc: str) -> bool:
    """Whether this process is Lightning's first rank: it gave itself the variables that it was not born with."""
    if env.get("LOCAL_RANK") != "0" or "NODE_RANK" not in env or _launched(env) is not None:
        return False
    try:
        with open(f"{proc}/self/environ", "rb") as file:
            return not any(entry.startswith(b"LOCAL_RANK=") for entry in file.read().split(b"\0"))
    except OSError:
        return False


def _torch_job(env: Mapping[str, str], rank: int, size: int, local_rank: int | None) -> RankPlace:
    address, elastic = env.get("MASTER_ADDR", ""), env.get("TORCHELASTIC_RUN_ID", "")
    identity = ("torch", address, env.get("MASTER_PORT", ""), elastic, *_slurm_job(env))
    local_size = _number(env, "LOCAL_WORLD_SIZE", "LOCAL_SIZE")
    one_machine = address in _LOOPBACK or address == socket.gethostname() if local_size is None else local_size == size
    strong = elastic not in ("", "none")
    if local_rank is None:
        local_rank = rank if one_machine else 0
    attempt = _number(env, "TORCHELASTIC_RESTART_COUNT") or 0
    return RankPlace(rank, local_rank, size, identity, one_machine and not strong, attempt=attempt)


def _slurm_job(env: Mapping[str, str]) -> tuple[str, ...]:
    """The job, and how often it was requeued: all its nodes count alike."""
    return env.get("SLURM_JOB_ID", ""), env.get("SLURM_RESTART_COUNT", "0")


def _slurm(env: Mapping[str, str]) -> RankPlace | None:
    rank, size = _number(env, "SLURM_PROCID"), _number(env, "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS")
    # Without a step this is the batch script itself: one process, however many tasks the job may start.
    if rank is None or size is None or not env.get("SLURM_STEP_ID"):
        return None
    identity = ("slurm", *_slurm_job(env), env["SLURM_STEP_ID"])
    return RankPlace(rank, _number(env, "SLURM_LOCALID") or 0, size, identity)


def _open_mpi(env: Mapping[str, str]) -> RankPlace | None:
    rank, size = _number(env, "OMPI_COMM_WORLD_RANK"), _number(env, "OMPI_COMM_WORLD_SIZE")
    if rank is None or size is None:
        return None
    job = env.get("PMIX_NAMESPACE") or env.get("OMPI_MCA_ess_base_jobid", "")
    local = _number(env, "OMPI_COMM_WORLD_LOCAL_RANK") or 0
    return RankPlace(rank, local, size, ("ompi", job, *_slurm_job(env)), not job)


def _pmi(env: Mapping[str, str]) -> RankPlace | None:
    rank, size = _number(env, "PMI_RANK"), _number(env, "PMI_SIZE")
    if rank is None or size is None:
        return None
    job = env.get("PMI_JOBID", "")
    local = _number(env, "MPI_LOCALRANKID", "PMI_LOCAL_RANK") or 0
    return RankPlace(rank, local, size, ("pmi", job, *_slurm_job(env)), not job)
