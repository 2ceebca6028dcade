"""Wait until GPUs are free, then run a command on them.

A GPU counts as free if no process has used it for the given time, without a gap in the samples. Two waiting commands
never get the same GPU, even if they belong to different users. The command replaces this process and sees only its GPUs
(CUDA_VISIBLE_DEVICES). Needs a running daemon. If CUDA_VISIBLE_DEVICES is set, only GPUs in it are used.

  gpumon wait -- python train.py
  gpumon wait --gpus 2 --memory 40G -- gpumon run -- torchrun --nproc-per-node 2 train.py
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from gpumon.cli.options import add_places, resolve_options
from gpumon.cli.streams import print_message
from gpumon.common.clock import positive_seconds
from gpumon.common.errors import EXIT_FAILED, GpumonError, UsageError
from gpumon.common.text import clean
from gpumon.launcher.child_process import start_error
from gpumon.live import Live, follow
from gpumon.model.units import counted, duration

if TYPE_CHECKING:
    from gpumon.launcher.free_gpus import Claims, FreeTimes, Request
    from gpumon.model.device import Device

_POLL = 0.25
"""Seconds between two looks for a new frame."""
_MAX_GPUS = 64
_SIZE_UNITS = {"M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.usage = "gpumon wait [options] -- COMMAND ..."
    parser.add_argument(
        "command", metavar="COMMAND", nargs=argparse.REMAINDER, help="command to run, with its arguments"
    )
    parser.add_argument("--gpus", metavar="N", type=_gpus, default=1, help="number of GPUs (default: 1)")
    parser.add_argument(
        "--memory", metavar="SIZE", type=_size, default=0, help="minimum device memory of each GPU, such as 40G"
    )
    parser.add_argument(
        "--free-for", metavar="TIME", type=_time, default=30.0,
        help="time for which a GPU must have been free, such as 90s or 10m (default: 30s)",
    )  # fmt: skip
    parser.add_argument("--timeout", metavar="TIME", type=_time, help="exit with 1 after this time, such as 2h")
    add_places(parser)


def run(arguments: argparse.Namespace) -> int:
    words = arguments.command[1:] if arguments.command[:1] == ["--"] else arguments.command
    if not words:
        raise UsageError("no command to run. Example: gpumon wait --gpus 2 -- python train.py")
    places, arguments = resolve_options(arguments)
    from gpumon.launcher.free_gpus import Claims, FreeTimes, Request, visible_devices

    request, claims = Request(arguments.gpus, arguments.memory, arguments.free_for), Claims()
    live = follow(places)
    try:
        devices = _wait(live, FreeTimes(), claims, request, arguments.timeout)
    finally:
        live.close()
    if not devices:
        print_message(f"gpumon: gave up after {duration(arguments.timeout)}: {_wanted(request)} did not become free")
        return EXIT_FAILED
    print_message(f"gpumon: starting on GPU {', '.join(device.label or device.uuid for device in devices)}")
    claims.inherit()
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them, and the command would inherit that
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execvpe(words[0], words, {**os.environ, **visible_devices(devices)})
    except OSError as error:
        message, code = start_error(error, words[0])
        print_message(f"gpumon: {clean(message, 1024)}")
        return code


def _wait(live: Live, times: FreeTimes, claims: Claims, request: Request, timeout: float | None) -> Sequence[Device]:
    """Return the claimed GPUs; none after `timeout` s. Raises GpumonError if there is no daemon or no such GPU."""
    deadline = time.monotonic() + timeout if timeout is not None else None
    number, last_message, has_sampled = 0, "", False
    while deadline is None or time.monotonic() < deadline:
        state = live.state()
        if not state.live:
            if not has_sampled and live.latest() is None and not live.has_writer():
                raise GpumonError(state.text)
            times.clear()
            message = f"waiting: {state.text}"
        else:
            has_sampled = True
            for frame in live.since(number):
                number = frame.number
                times.add(frame)
            if devices := _claim(times, claims, request):
                return devices
            message = _waiting(times, request)
        if message != last_message:
            print_message(f"gpumon: {message}")
            last_message = message
        time.sleep(_POLL)
    return ()


def _claim(times: FreeTimes, claims: Claims, request: Request) -> Sequence[Device]:
    from gpumon.launcher.free_gpus import allowed_uuids

    devices = [status.sample.device for status in times.statuses]
    candidates = times.candidates(request, allowed_uuids(os.environ, devices))
    return claims.claim(candidates, request.gpus) if len(candidates) >= request.gpus else ()


def _waiting(times: FreeTimes, request: Request) -> str:
    """Return what is waited for, as text. Raises GpumonError if this machine has too few such GPUs."""
    from gpumon.launcher.free_gpus import is_free

    total, free = len(times.statuses), sum(map(is_free, times.statuses))
    if times.statuses and total < request.gpus:
        raise GpumonError(f"this machine has only {counted(total, 'GPU')}, and {request.gpus} were asked for")
    return f"waiting for {_wanted(request)}: {free} of {total} {'is' if free == 1 else 'are'} free now"


def _wanted(request: Request) -> str:
    return counted(request.gpus, "GPU")


def _gpus(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and 1 <= int(text) <= _MAX_GPUS):
        raise argparse.ArgumentTypeError(f"'{text}' is not a number of GPUs from 1 to {_MAX_GPUS}")
    return int(text)


def _size(text: str) -> int:
    match = re.fullmatch(r"(\d{1,6})(?:([MGT])(?:i?B)?)", text)
    if match is None:
        raise argparse.ArgumentTypeError(f"'{text}' is not a size: write 40G or 24000M")
    return int(match[1]) * _SIZE_UNITS[match[2]]


def _time(text: str) -> float:
    try:
        return positive_seconds(text)
    except UsageError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
