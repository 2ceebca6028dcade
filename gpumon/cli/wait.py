"""Wait until GPUs are free, then run a command on them.

A GPU counts as free if no process has used it for the given time, without a gap in the samples. Two waiting commands
never get the same GPU, even if they belong to different users. The command replaces this process and sees only its GPUs
(CUDA_VISIBLE_DEVICES). It keeps them until it and all processes that it leaves running have ended. Needs a running
daemon. If CUDA_VISIBLE_DEVICES is set, only GPUs in it are used.

  gpumon wait -- python train.py
  gpumon wait --gpus 2 --memory 40G -- gpumon run -- torchrun --nproc-per-node 2 train.py
"""

from __future__ import annotations

import argparse
import errno
import os
import re
import shutil
import signal
import time
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from gpumon.cli.options import add_places, resolve_options
from gpumon.cli.streams import print_message
from gpumon.common.clock import positive_seconds
from gpumon.common.errors import EXIT_FAILED, GpumonError, UsageError
from gpumon.common.text import clean
from gpumon.launcher.child_process import start_error
from gpumon.live import Live, follow
from gpumon.model.origin import Capability
from gpumon.model.units import bytes_binary, counted, duration

if TYPE_CHECKING:
    from gpumon.launcher.free_gpus import Claims, FreeTimes, Request
    from gpumon.model.device import Device

_POLL = 0.25
"""Seconds between two reads of new frames."""
_MAX_GPUS = 64
_SIZE_UNITS = {"M": 10**6, "G": 10**9, "T": 10**12, "Mi": 1 << 20, "Gi": 1 << 30, "Ti": 1 << 40}
"""Bytes by unit. M, G and T are decimal, because cards are sold so: a card of 80 GB has more than 80 GB, but less than
80 GiB."""


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
    if not words or not words[0]:
        raise UsageError("no command to run. Example: gpumon wait --gpus 2 -- python train.py")
    if shutil.which(words[0]) is None and not os.path.exists(words[0]):  # said before a wait of hours
        message, code = start_error(FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT)), words[0])
        print_message(f"gpumon: {clean(message, 1024)}")
        return code
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
    from gpumon.launcher.free_gpus import allowed_uuids

    deadline = time.monotonic() + timeout if timeout is not None else None
    number, last_topic, is_checked = 0, "", False
    while deadline is None or time.monotonic() < deadline:
        state = live.state()
        if not state.live:
            if not is_checked and not live.has_writer():
                raise GpumonError(state.text)
            times.clear()
            topic, message = "daemon", f"waiting: {state.text}"
        else:
            for frame in live.since(number):
                number = frame.number
                times.add(frame)
            allowed = allowed_uuids(os.environ, [status.sample.device for status in times.statuses])
            if number and not is_checked:
                _check(live, times, request, allowed)
                is_checked = True
            candidates = times.candidates(request, allowed)
            if len(candidates) >= request.gpus and (devices := claims.claim(candidates, request.gpus)):
                return devices
            topic = message = _waiting(times, claims, request, allowed)
        if topic != last_topic:  # the text about a silent daemon has its age, which changes all the time
            print_message(f"gpumon: {message}")
            last_topic = topic
        time.sleep(_POLL)
    return ()


def _check(live: Live, times: FreeTimes, request: Request, allowed: Collection[str] | None) -> None:
    """Check that waiting can succeed. Raises GpumonError if this machine has too few GPUs that match the request."""
    if Capability.LIVE not in live.origin().capabilities:
        raise GpumonError("the daemon does not sample this machine: it plays a simulation or a recording")
    if len(times.suitable(request, allowed)) >= request.gpus:
        return
    if not times.statuses:
        raise GpumonError(live.origin().problem or "this machine has no GPU")
    limits = [f"at least {bytes_binary(request.memory)}"] if request.memory else []
    limits += ["in CUDA_VISIBLE_DEVICES"] if allowed is not None else []
    which = f" with {' and '.join(limits)}".replace("with in", "in") if limits else ""
    number = len(times.suitable(request, allowed))
    raise GpumonError(f"{request.gpus} were asked for, but this machine has {counted(number, 'GPU')}{which}")


def _waiting(times: FreeTimes, claims: Claims, request: Request, allowed: Collection[str] | None) -> str:
    """Return what the command waits for, as text."""
    from gpumon.launcher.free_gpus import is_free

    suitable = times.suitable(request, allowed)
    free = {status.sample.device.uuid for status in suitable if is_free(status)}
    text = (
        f"waiting for {_wanted(request)}: {len(free)} of {len(suitable)} {'is' if len(free) == 1 else 'are'} free now"
    )
    claimed = len(claims.of_others(free))
    return f"{text}, {claimed} of them claimed by other 'gpumon wait' commands" if claimed else text


def _wanted(request: Request) -> str:
    return counted(request.gpus, "GPU")


def _gpus(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and 1 <= int(text) <= _MAX_GPUS):
        raise argparse.ArgumentTypeError(f"'{text}' is not a number of GPUs from 1 to {_MAX_GPUS}")
    return int(text)


def _size(text: str) -> int:
    match = re.fullmatch(r"(\d{1,6})([MGT]i?)B?", text)
    if match is None:
        raise argparse.ArgumentTypeError(f"'{text}' is not a size: write 40G, 24000M or 40GiB")
    return int(match[1]) * _SIZE_UNITS[match[2]]


def _time(text: str) -> float:
    try:
        return positive_seconds(text)
    except UsageError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
