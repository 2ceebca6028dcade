"""The web view with 1, 10, 50 and 200 viewers on loopback, beside a plain Dash page on the same ring.

A daemon on the stub driver samples 8 GPUs and 40 processes at 1 Hz; `gpumon web` serves its ring. Viewers
ask once a second, as the page does. CPU is the server's alone; the plain page gets as many viewers as
it can serve.
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from benchmarks.report import Budget, Result, number
from benchmarks.stage import GPUS, Effort, Place, Stage
from benchmarks.usage import ROOT, cpu_seconds, memory
from benchmarks.viewers import Load, watch
from tests.programs import command, daemon

VIEWERS = (1, 10, 50, 200)
PLAIN = (1, 10)
_CALLS = 48.0
"""Seconds in which driver calls are counted: what is read seldom is read each 2 to 24 s."""
_ALONE = 5.0
"""Seconds for which a server that nobody asks is watched."""


def measure(stage: Stage, effort: Effort) -> Result:
    """Each number of viewers for a window, one after the other."""
    place = stage.place("gpumon")
    seconds = max(6.0, effort.seconds / 4)
    result = Result(
        "The web view at 1 Hz",
        (
            "program",
            "viewers",
            "CPU ms a viewer-second",
            "share of a core",
            "p95, ms",
            "bytes/s a viewer",
            "failed",
            "RSS MB",
        ),
    )
    with ExitStack() as stack:
        stack.enter_context(daemon("--interval", "1", env=place.env))
        pid, port, token = stack.enter_context(web(place))
        idle = _cpu(pid, _ALONE) / _ALONE
        calls = {}
        measured = {}
        for viewers in (0, *VIEWERS):
            counted = viewers in (0, VIEWERS[-1])
            length = max(seconds, _CALLS) if counted else seconds
            before, begun, used = place.stub.calls(), time.monotonic(), cpu_seconds(pid)
            if viewers:
                load = watch(port, viewers, length, lambda last: question(port, token, last))
            else:
                time.sleep(length)
            passed = time.monotonic() - begun
            if counted:
                calls[viewers] = (sum(place.stub.calls().values()) - sum(before.values())) / passed / GPUS
            if viewers:
                measured[viewers] = (cpu_seconds(pid) - used) / passed
                _row(result, "gpumon web", viewers, measured[viewers], load, length, memory(pid)[0])
        plain_pid, plain_port = stack.enter_context(plain_dash(place))
        for viewers in PLAIN:
            used, begun = cpu_seconds(plain_pid), time.monotonic()
            load = watch(plain_port, viewers, seconds, lambda _: _callback(plain_port))
            passed = time.monotonic() - begun
            _row(
                result,
                "plain Dash",
                viewers,
                (cpu_seconds(plain_pid) - used) / passed,
                load,
                seconds,
                memory(plain_pid)[0],
            )
    result.budgets.append(Budget("CPU a viewer-second, 50 viewers", measured[50] / 50 * 1000, 3, " ms"))
    result.budgets.append(Budget("50 viewers, share of a core", measured[50] * 100, 15, " %", of_a_core=True))
    # The edges of a window cut through what is read seldom; one call for each viewer would be 200 more.
    result.budgets.append(
        Budget("driver calls more with 200 viewers, per GPU and second", max(0.0, calls[200] - calls[0]), 0.5)
    )
    result.notes.append(
        f"Nobody asking: {number(idle * 1000)} ms of CPU a second. Driver calls per GPU and second: "
        + ", ".join(f"{number(rate)} with {viewers}" for viewers, rate in calls.items()) + " viewers."
    )  # fmt: skip
    return result


def _row(result: Result, name: str, viewers: int, cpu: float, load: Load, seconds: float, rss: float) -> None:
    answered = len(load.took.values)
    result.rows.append(
        (
            name, str(viewers), number(cpu / viewers * 1000), f"{number(cpu * 100)} %",
            number(load.took.quantile(0.95) * 1000) if answered else "–", number(load.received / viewers / seconds),
            f"{load.failed + max(0, round(viewers * seconds * 0.9) - answered)}", f"{rss:.0f}",
        )
    )  # fmt: skip


def _cpu(pid: int, seconds: float) -> float:
    before = cpu_seconds(pid)
    time.sleep(seconds)
    return cpu_seconds(pid) - before


@contextmanager
def web(place: Place, *options: str) -> Iterator[tuple[int, int, str]]:
    """`gpumon web` on a free port: its pid, port and token."""
    words = command("web", "--port", "0", *options)
    server = subprocess.Popen(words, env=place.env, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        link = server.stdout.readline()
        yield server.pid, int(link.split(":")[2].partition("/")[0]), link.strip().partition("token=")[2]
    finally:
        server.terminate()
        server.wait(timeout=20)


@contextmanager
def plain_dash(place: Place) -> Iterator[tuple[int, int]]:
    """The plain Dash page on a free port: its pid and port."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    server = subprocess.Popen([sys.executable, "-m", "benchmarks.plain_dash", str(port)], env=place.env, cwd=ROOT)
    try:
        for _ in range(200):
            try:
                socket.create_connection(("127.0.0.1", port)).close()
                break
            except OSError:
                time.sleep(0.1)
        yield server.pid, port
    finally:
        server.terminate()
        server.wait(timeout=20)


def question(port: int, token: str, last: dict[str, object]) -> bytes:
    """Request of the page, from the state that it has."""
    query = f"page=fleet&boot={last.get('boot', '')}&since={last.get('seq', 0)}"
    return (
        f"GET /api/delta?{query} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nAuthorization: Bearer {token}\r\n"
        "Accept: application/json\r\n\r\n"
    ).encode()


def _callback(port: int) -> bytes:
    """Body that a browser posts each second for a `dcc.Interval` with four figures."""
    names = ("utilization", "memory_used", "power", "temperature")
    outputs = [{"id": name, "property": "figure"} for name in names]
    body = json.dumps(
        {
            "output": ".." + "...".join(f"{name}.figure" for name in names) + "..", "outputs": outputs,
            "inputs": [{"id": "tick", "property": "n_intervals", "value": 1}], "changedPropIds": ["tick.n_intervals"],
        }
    )  # fmt: skip
    return (
        f"POST /_dash-update-component HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n{body}"
    ).encode()
