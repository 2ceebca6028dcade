"""Out-of-memory errors of the training's framework: reported to the runs of this process, each once.

torch has an observer that its allocator calls at the moment itself, before anything unwinds, with what was asked
for and what was free (`OutOfMemoryObserver` in c10/cuda/CUDACachingAllocator.h). It is private, and another
allocator than torch's own has none; then, and with TensorFlow and JAX, the error itself reports it, once it has come
to the end of a run.
"""

from __future__ import annotations

import atexit
import re
import sys
import weakref
from collections.abc import Mapping
from typing import Any, NamedTuple

from gpumon.tracking.board import Board
from gpumon.tracking.context import torch_uuid
from gpumon.tracking.warn import warn_once
from gpumon.tracking.wire import NOT_KNOWN

_TOLD = "_gpumon_told"
_DEEPEST = 8
"""Errors that led to an error, as far as they are looked at."""
_LONGEST = 4096
"""Characters of a message that are read."""
_UNITS = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}
_AMOUNT = r"([0-9]+(?:\.[0-9]+)?) ?(?:bytes?|([KMGT])?i?B)\b"
_ASKED = re.compile(r"(?:tried to allocate|trying to allocate|allocating) " + _AMOUNT, re.IGNORECASE)
_FREE = re.compile(_AMOUNT + r" (?:is )?free\b", re.IGNORECASE)
_OLDER_TORCH = re.compile(r"(?:CUDA|HIP) (error: )?out of memory\b")
"""Beginning of the message of a plain RuntimeError: `OutOfMemoryError` is of torch 1.13, `AcceleratorError` of 2.8."""
_TORCH_DEVICE = re.compile(r"\bGPU ([0-9]{1,4})\b")


class _Failure(NamedTuple):
    """An out-of-memory error as its message reports it: bytes, or `NOT_KNOWN`."""

    torch: bool
    asked: int
    free: int
    message: str


class Failures:
    """The out-of-memory errors of a process, and the boards they are reported to. Nothing here raises."""

    def __init__(self) -> None:
        # Replaced as a whole: the observer runs on whatever thread allocates.
        self._boards: tuple[weakref.ref[Board], ...] = ()
        self._asked: Any = None
        self._observed = False
        """Whether torch has reported one by itself: then it reports all."""

    def watch(self, board: Board) -> None:
        """Report to `board`, for as long as it is referenced and on."""
        alive = [ref for ref in self._boards if (held := ref()) is not None and held.on]
        self._boards = (*alive, weakref.ref(board))

    def observe(self, torch: Any, visible: tuple[str, ...]) -> None:
        """Have torch's allocator report its errors; once for each process. CUDA must be initialized."""
        if self._asked is torch:
            return
        self._asked = torch
        try:
            attach = getattr(getattr(torch, "_C", None), "_cuda_attach_out_of_memory_observer", None)
            if attach is None:
                return

            def failed(device: int, asked: int, _total: int = 0, free: int = NOT_KNOWN, *_: object) -> None:
                # Whatever is raised here would stand in place of torch's own error.
                self._observed = True
                try:
                    self._tell(asked, free, _uuid(torch, device, visible))
                except Exception as error:
                    warn_once("out of memory", f"an out-of-memory error is not shown: {type(error).__name__}: {error}")

            attach(failed)
        except Exception:  # an allocator without observers, such as cudaMallocAsync: then the error reports it
            return

    def raised(self, error: BaseException | None, modules: Mapping[str, Any] | None = None) -> None:
        """Report `error`, with which a run ends, if it is or comes of one that was not reported yet."""
        modules = sys.modules if modules is None else modules
        try:
            for _ in range(_DEEPEST):
                if error is None or getattr(error, _TOLD, False):
                    return
                failure = _recognized(error, modules)
                if failure is not None:
                    setattr(error, _TOLD, True)
                    if not (failure.torch and self._observed):
                        self._tell(failure.asked, failure.free, _named(failure, modules))
                    return
                error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
        except Exception as problem:
            warn_once("out of memory", f"an out-of-memory error is not shown: {type(problem).__name__}: {problem}")

    def _tell(self, asked: object, free: object, uuid: str) -> None:
        for ref in self._boards:
            board = ref()
            if board is not None:
                board.out_of_memory(count_of(asked), count_of(free), uuid)


PROCESS = Failures()
"""Those of this process."""


def count_of(value: object) -> int:
    """Return a framework's number of bytes or of times; `NOT_KNOWN` if it is not one (some report -1)."""
    return value if isinstance(value, int) and 0 <= value < NOT_KNOWN else NOT_KNOWN


def _recognized(error: BaseException, modules: Mapping[str, Any]) -> _Failure | None:
    kinds = [(kind.__module__.partition(".")[0], kind.__name__) for kind in type(error).__mro__]
    names = {name for package, name in kinds if package in ("torch", "tensorflow", "jax", "jaxlib")}
    if not names and not (type(error) is RuntimeError and "torch" in modules):
        return None
    message = str(error)[:_LONGEST]
    if not names:
        older = _OLDER_TORCH.match(message)
        return _failure(message, torch=older[1] is None) if older else None
    torch = "OutOfMemoryError" in names
    if not torch:
        lower = message.lower()
        if "AcceleratorError" in names:  # outside torch's allocator, as when a context or a library takes memory
            found = "out of memory" in lower
        elif "ResourceExhaustedError" in names:  # also what a full host, or too long a message to a server, is called
            on_gpu = "device:cpu" not in lower and "by allocator cpu" not in lower
            found = on_gpu and any(words in lower for words in ("oom when", "out of memory", "failed to allocate"))
        else:
            backends = getattr(modules.get("jax._src.xla_bridge"), "_backends", {})
            on_gpu = any(name in backends for name in ("cuda", "rocm", "gpu"))
            found = bool(names & {"XlaRuntimeError", "JaxRuntimeError"}) and on_gpu and "resource_exhausted" in lower
        if not found:
            return None
    return _failure(message, torch=torch)


def _failure(message: str, *, torch: bool) -> _Failure:
    return _Failure(torch, _bytes(_ASKED.search(message)), _bytes(_FREE.search(message)), message)


def _bytes(found: re.Match[str] | None) -> int:
    if found is None:
        return NOT_KNOWN
    amount = float(found[1]) * _UNITS[(found[2] or "").lower()]
    return round(amount) if amount < NOT_KNOWN else NOT_KNOWN


def _named(failure: _Failure, modules: Mapping[str, Any]) -> str:
    device = _TORCH_DEVICE.search(failure.message) if failure.torch else None
    if device is None:
        return ""
    return _uuid(modules.get("torch"), int(device[1]), ())


def _uuid(torch: Any, device: int, visible: tuple[str, ...]) -> str:
    try:
        return torch_uuid(torch.cuda, device, visible)
    except Exception:  # no such device, a context that is lost: the mark stands without it
        return ""


@atexit.register
def _brought_down() -> None:
    # Before the boards are closed at the end of the process: what ended it may have passed by every run.
    if not hasattr(sys, "ps1"):  # an interactive session outlives its exceptions
        PROCESS.raised(getattr(sys, "last_value", None))
