"""Detects out-of-memory errors of the training's framework, and reports each once to the runs of this process.

When an allocation fails, torch's allocator calls an observer with the requested and the free bytes before it raises the
exception (`OutOfMemoryObserver` in c10/cuda/CUDACachingAllocator.h). The observer is a private API, and only torch's
own allocator has it. With other allocators of torch, and in TensorFlow and JAX, an error is detected only if it ends a
run.
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
from gpumon.tracking.wire_format import NOT_KNOWN

_REPORTED = "_gpumon_reported"
"""Name of the attribute that is set on an error that has been reported."""
_MAX_CAUSES = 8
"""Maximum number of causes and contexts of an error to check."""
_MAX_LENGTH = 4096
"""Maximum number of characters to read from a message."""
_UNITS = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}
_AMOUNT = r"([0-9]+(?:\.[0-9]+)?) ?(?:bytes?|([KMGT])?i?B)\b"
_ASKED = re.compile(r"(?:tried to allocate|trying to allocate|allocating) " + _AMOUNT, re.IGNORECASE)
_FREE = re.compile(_AMOUNT + r" (?:is )?free\b", re.IGNORECASE)
_OLDER_TORCH = re.compile(r"(?:CUDA|HIP) (error: )?out of memory\b")
"""Message of the plain RuntimeError that earlier versions of torch raise. torch 1.13 introduced `OutOfMemoryError`, and
torch 2.8 introduced `AcceleratorError`.
"""
_TORCH_DEVICE = re.compile(r"\bGPU ([0-9]{1,4})\b")


class _Failure(NamedTuple):
    """An out-of-memory error, parsed from its message.

    Amounts are in bytes; `NOT_KNOWN` if the message does not contain them.
    """

    torch: bool
    asked: int
    free: int
    message: str


class OutOfMemoryReporter:
    """Reports out-of-memory errors of this process to its boards. Never raises."""

    def __init__(self) -> None:
        # Replaced as a whole, because the observer may run on any thread that allocates memory.
        self._boards: tuple[weakref.ref[Board], ...] = ()
        self._observed_torch: Any = None
        self._has_observed = False
        """Whether torch's observer has reported an error. If so, it reports all errors of torch."""

    def add(self, board: Board) -> None:
        """Report later errors to `board`, as long as the board exists and is on."""
        alive = [ref for ref in self._boards if (other := ref()) is not None and other.on]
        self._boards = (*alive, weakref.ref(board))

    def observe(self, torch: Any, visible: tuple[str, ...]) -> None:
        """Attach the observer to torch's allocator, once per process. CUDA must be initialized already."""
        if self._observed_torch is torch:
            return
        self._observed_torch = torch
        try:
            attach = getattr(getattr(torch, "_C", None), "_cuda_attach_out_of_memory_observer", None)
            if attach is None:
                return

            def failed(device: int, asked: int, _total: int = 0, free: int = NOT_KNOWN, *_: object) -> None:
                # An exception raised here would replace torch's own error.
                self._has_observed = True
                try:
                    self._report(asked, free, _uuid(torch, device, visible))
                except Exception as error:
                    warn_once("out of memory", f"an out-of-memory error is not shown: {type(error).__name__}: {error}")

            attach(failed)
        except (
            Exception
        ):  # for an allocator without observers, such as cudaMallocAsync, `report_error` recognizes the error
            return

    def report_error(self, error: BaseException | None, modules: Mapping[str, Any] | None = None) -> None:
        """Report the exception that ends a run if it is an out-of-memory error, or was caused by one.

        Does nothing if this error was already reported.
        """
        modules = sys.modules if modules is None else modules
        try:
            for _ in range(_MAX_CAUSES):
                if error is None or getattr(error, _REPORTED, False):
                    return
                failure = _recognize(error, modules)
                if failure is not None:
                    setattr(error, _REPORTED, True)
                    if not (failure.torch and self._has_observed):
                        self._report(failure.asked, failure.free, _device_uuid(failure, modules))
                    return
                error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
        except Exception as problem:
            warn_once("out of memory", f"an out-of-memory error is not shown: {type(problem).__name__}: {problem}")

    def _report(self, asked: object, free: object, uuid: str) -> None:
        for ref in self._boards:
            board = ref()
            if board is not None:
                board.out_of_memory(count_of(asked), count_of(free), uuid)


REPORTER = OutOfMemoryReporter()
"""The reporter of this process."""


def count_of(value: object) -> int:
    """Return `value` if it is a valid count or number of bytes, else `NOT_KNOWN`. Some frameworks report -1."""
    return value if isinstance(value, int) and 0 <= value < NOT_KNOWN else NOT_KNOWN


def _recognize(error: BaseException, modules: Mapping[str, Any]) -> _Failure | None:
    kinds = [(kind.__module__.partition(".")[0], kind.__name__) for kind in type(error).__mro__]
    names = {name for package, name in kinds if package in ("torch", "tensorflow", "jax", "jaxlib")}
    if not names and not (type(error) is RuntimeError and "torch" in modules):
        return None
    message = str(error)[:_MAX_LENGTH]
    if not names:
        older = _OLDER_TORCH.match(message)
        return _parse(message, torch=older[1] is None) if older else None
    torch = "OutOfMemoryError" in names
    if not torch:
        lower = message.lower()
        if "AcceleratorError" in names:  # not raised by torch's allocator, but for example by a context or a library
            is_out_of_memory = "out of memory" in lower
        elif "ResourceExhaustedError" in names:  # also raised if host memory is short, or if a message is too long
            on_gpu = "device:cpu" not in lower and "by allocator cpu" not in lower
            phrases = ("oom when", "out of memory", "failed to allocate")
            is_out_of_memory = on_gpu and any(phrase in lower for phrase in phrases)
        else:
            backends = getattr(modules.get("jax._src.xla_bridge"), "_backends", {})
            on_gpu = any(name in backends for name in ("cuda", "rocm", "gpu"))
            is_xla = bool(names & {"XlaRuntimeError", "JaxRuntimeError"})
            is_out_of_memory = is_xla and on_gpu and "resource_exhausted" in lower
        if not is_out_of_memory:
            return None
    return _parse(message, torch=torch)


def _parse(message: str, *, torch: bool) -> _Failure:
    return _Failure(torch, _bytes(_ASKED.search(message)), _bytes(_FREE.search(message)), message)


def _bytes(match: re.Match[str] | None) -> int:
    if match is None:
        return NOT_KNOWN
    amount = float(match[1]) * _UNITS[(match[2] or "").lower()]
    return round(amount) if amount < NOT_KNOWN else NOT_KNOWN


def _device_uuid(failure: _Failure, modules: Mapping[str, Any]) -> str:
    device = _TORCH_DEVICE.search(failure.message) if failure.torch else None
    if device is None:
        return ""
    return _uuid(modules.get("torch"), int(device[1]), ())


def _uuid(torch: Any, device: int, visible: tuple[str, ...]) -> str:
    try:
        return torch_uuid(torch.cuda, device, visible)
    except Exception:  # no such device, or a lost context; the error is reported without a device
        return ""


@atexit.register
def _report_uncaught() -> None:
    # This runs before the boards are closed, because the exception that ends the process may not have passed through a
    # run.
    if not hasattr(sys, "ps1"):  # an interactive session continues after an exception
        REPORTER.report_error(getattr(sys, "last_value", None))
