"""Describes where a process waits in terms of its program: a collective, a loader, a line of the user's code."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from enum import IntEnum
from typing import NamedTuple

from gpumon.common.paths import open_regular
from gpumon.common.text import clean
from gpumon.hang.process_state import ProcessState
from gpumon.hang.stacks import Frame

_MAX_SOURCE = 1 << 20
_MAX_LINE = 60
_BUSY = 0.3
"""A process is busy if it uses at least this many CPUs."""


class PlaceKind(IntEnum):
    """Kinds of places, in the order in which they are likely to be the cause of a hang."""

    STOPPED = 0
    ELSEWHERE = 1  # in the user's code, a loader, a lock, a queue
    UNKNOWN = 2
    GPU = 3  # waits for the GPU, which may wait for other ranks
    COLLECTIVE = 4  # waits for other ranks


class Place(NamedTuple):
    """Where a process is."""

    kind: PlaceKind
    text: str
    """A noun phrase that fits after `waits in`. For a stopped process, a participle that fits after `has been`."""
    is_loader: bool = False
    """Whether the process waits for the workers of a DataLoader."""


_LIBRARIES = (
    "/site-packages/",
    "/dist-packages/",
    "/lib/python3",
    "<frozen ",
    "/gpumon/tracking/",
    "/gpumon/callbacks/",
)
_COLLECTIVES = (
    "torch/distributed/distributed_c10d.py", "torch/distributed/nn/functional.py",
    "torch/distributed/_functional_collectives.py", "torch/distributed/utils.py", "torch/distributed/device_mesh.py",
    "horovod/torch/mpi_ops.py",
)  # fmt: skip
_DDP = ("torch/nn/parallel/distributed.py",)
_FSDP = "torch/distributed/fsdp/"
_BACKWARD = ("torch/autograd/graph.py", "torch/autograd/__init__.py", "torch/_tensor.py")
_WRAPPERS = ("wrapper", "_wrapper", "inner", "<lambda>")
_DATALOADER = "torch/utils/data/dataloader.py"
_WORKER = "torch/utils/data/_utils/worker.py"
_GPU_CALLS = (".item()", ".cpu()", ".tolist()", ".numpy()", "synchronize(", '.to("cpu")')
"""Parts of source lines that wait for a GPU."""
_WAITING_CALLS = {
    ("multiprocessing/queues.py", "put"): "Queue.put", ("multiprocessing/queues.py", "get"): "Queue.get",
    ("queue.py", "put"): "Queue.put", ("queue.py", "get"): "Queue.get",
    ("threading.py", "join"): "Thread.join", ("threading.py", "wait"): "a threading wait",
    ("threading.py", "acquire"): "a lock", ("multiprocessing/process.py", "join"): "Process.join",
    ("multiprocessing/synchronize.py", "wait"): "a multiprocessing wait",
    ("subprocess.py", "wait"): "Popen.wait", ("subprocess.py", "communicate"): "Popen.communicate",
    ("concurrent/futures/_base.py", "result"): "Future.result", ("socket.py", "readinto"): "a read from the network",
    ("selectors.py", "select"): "a wait for input", ("ssl.py", "read"): "a read from the network",
}  # fmt: skip
"""Calls of the standard library that wait, by file and function. The value is a name, or a noun phrase with `a`."""


def place_of(state: ProcessState | None, frames: Sequence[Frame], *, is_rank: bool) -> Place:
    """Return where a process is.

    `frames`: stack of its main thread, innermost first. `is_rank`: whether the run has several ranks. A backward pass
    may then wait for other ranks.
    """
    if state is not None and state.state in ("T", "t"):
        return Place(PlaceKind.STOPPED, state.state_text)
    if not frames:
        return Place(PlaceKind.UNKNOWN, _wait_text(state))
    pid = state.pid if state is not None else 0
    if collective := _collective(frames, state, is_rank=is_rank):
        return Place(PlaceKind.COLLECTIVE, f"`{collective}`")
    user = next((index for index, frame in enumerate(frames) if is_user_code(frame)), None)
    loader = next((index for index, frame in enumerate(frames) if frame.file.endswith(_DATALOADER)), None)
    if loader is not None and (user is None or loader < user):
        return Place(PlaceKind.ELSEWHERE, "`DataLoader.__next__`", is_loader=True)
    if user is None:
        return Place(PlaceKind.ELSEWHERE, _frame_text(frames[0]))
    line = source_line(frames[user], pid)
    if user == 0 and any(call in line for call in _GPU_CALLS):
        return Place(PlaceKind.GPU, _frame_text(frames[user], line))
    text = _frame_text(frames[user], line)
    for frame in reversed(frames[:user]):
        if (call := _known_call(frame)) is not None:
            text = f"`{call}` called by {text}" if not call.startswith("a ") else f"{call} in {text}"
            break
    if loader is not None:
        text += ", called by `DataLoader.__next__`"
    return Place(PlaceKind.ELSEWHERE, text)


def is_idle_worker(frames: Sequence[Frame]) -> bool:
    """Whether a DataLoader worker waits for its next task. Its stack then contains nothing of the user's dataset."""
    return is_worker(frames) and not any(
        is_user_code(frame) or frame.file.endswith("torch/utils/data/_utils/fetch.py")
        for frame in _worker_frames(frames)
    )


def is_worker(frames: Sequence[Frame]) -> bool:
    """Whether this is the stack of a DataLoader worker."""
    return any(frame.file.endswith(_WORKER) for frame in frames)


def _worker_frames(frames: Sequence[Frame]) -> Sequence[Frame]:
    """Return the frames inside the loop of a worker, without the frames that a forked worker has from its parent."""
    index = next((index for index, frame in enumerate(frames) if frame.file.endswith(_WORKER)), len(frames))
    return frames[:index]


def worker_place(state: ProcessState, frames: Sequence[Frame]) -> str:
    """Return where a DataLoader worker is, as a phrase that fits after `worker 123`: `in state D, reading /data/x`."""
    if state.state in ("T", "t"):
        return f"is {state.state_text}"
    if state.state in ("Z", "X"):
        return "has ended"
    user = next((frame for frame in _worker_frames(frames) if is_user_code(frame)), None)
    parts = [f"in {_frame_text(user, source_line(user, state.pid))}"] if user is not None else []
    if state.state == "D" or not parts:
        parts.append(f"in state {state.state}" if state.state else "in an unknown state")
    if action := _file_action(state):
        parts.append(action)
    elif _is_busy(state):
        parts.append(_cpu_text(state))
    return ", ".join(parts)


def is_user_code(frame: Frame) -> bool:
    """Whether a frame belongs to the user's program, and not to a library."""
    return not any(part in frame.file for part in _LIBRARIES)


def activity_text(state: ProcessState | None) -> str:
    """Return what a process does according to the kernel, such as `using 98 % of a CPU`; empty if unknown."""
    if state is None or state.state in ("T", "t"):
        return ""
    if action := _file_action(state):
        return f"in state D, {action}" if state.state == "D" else action
    if state.state == "D":
        return f"in state D ({state.wait_channel or 'uninterruptible wait'})"
    if _is_busy(state):
        return _cpu_text(state)
    return ""


def _is_busy(state: ProcessState) -> bool:
    """Whether a process computes. On a busy machine, a process that computes may get only a small part of a CPU."""
    return state.cpu >= _BUSY or state.state == "R"


def _cpu_text(state: ProcessState) -> str:
    return f"using {state.cpu * 100:.0f} % of a CPU"


def _file_action(state: ProcessState) -> str:
    if not state.path.startswith("/"):
        return ""
    verb = {"read": "reading", "pread64": "reading", "readv": "reading", "write": "writing", "pwrite64": "writing"}
    return f"{verb.get(state.syscall, f'in {state.syscall} of')} {state.path}"


def _wait_text(state: ProcessState | None) -> str:
    if state is None:
        return "an unknown place"
    wait = state.syscall or state.wait_channel
    return f"{wait} (state {state.state})" if wait else f"state {state.state} ({state.state_text})"


def _collective(frames: Sequence[Frame], state: ProcessState | None, *, is_rank: bool) -> str:
    """Return the name of the collective in which a rank waits for the others; empty if it waits in no collective."""
    name = ""
    for frame in frames:
        if is_user_code(frame):
            break
        if frame.file.endswith(_COLLECTIVES) and frame.function not in _WRAPPERS:
            name = frame.function
        elif frame.file.endswith("torch/distributed/rendezvous.py"):
            name = "init_process_group"
        elif frame.file.endswith(_DDP) and frame.function != "forward":
            name = "DistributedDataParallel" if frame.function == "__init__" else name or "forward of DDP"
        elif _FSDP in frame.file:
            name = name or "FSDP"
        elif is_rank and frame.function == "backward" and frame.file.endswith(_BACKWARD):
            waits = state is not None and not _is_busy(state)
            name = name or ("all_reduce of the gradients in backward" if waits else "")
    return name


def _known_call(frame: Frame) -> str | None:
    for (file, function), name in _WAITING_CALLS.items():
        if frame.function == function and frame.file.endswith(f"/{file}"):
            return name
    return None


def _frame_text(frame: Frame, line: str = "") -> str:
    where = f"{os.path.basename(frame.file)}:{frame.line}" + (f", `{line}`" if line else "")
    return f"`{frame.function}` ({where})"


def source_line(frame: Frame, pid: int) -> str:
    """Return the source line of a frame, shortened; empty if it cannot be read. `pid`: process with this frame."""
    if frame.line < 1 or frame.file.startswith("<") or not pid:
        return ""
    base = "root" if frame.file.startswith("/") else "cwd"
    with suppress(OSError, ValueError):
        fd = open_regular(f"/proc/{pid}/{base}/{frame.file}", follow=True)
        with os.fdopen(fd, "rb") as file:
            lines = file.read(_MAX_SOURCE).split(b"\n")
        if frame.line <= len(lines):
            line = clean(lines[frame.line - 1].decode("utf-8", "replace").strip(), _MAX_LINE + 1)
            return line if len(line) <= _MAX_LINE else line[: _MAX_LINE - 1] + "…"
    return ""
