"""A Prometheus TSDB, from `apt-get install prometheus`, and a server of it on loopback.

It reads the blocks that its own tool makes; that the server merges them later saved 1 % of the bytes, and no time.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from http.client import HTTPConnection
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import urlencode

from benchmarks.history_peer import GPU, METRIC, Answer, Ask, Peer, Question
from benchmarks.month_values import Array, Hour
from benchmarks.stage import GPUS
from benchmarks.usage import cpu_seconds
from gpumon.model.metrics import GPU_METRICS, HOST_METRICS

_PATIENCE = 120.0


def _missing_prometheus() -> str:
    return "" if shutil.which("prometheus") and shutil.which("promtool") else "apt-get install prometheus"


def _keep_prometheus(directory: Path, month: float, hours: Iterator[Hour]) -> None:
    """Blocks made by promtool from OpenMetrics, of two hours each: it reads all its input anew for each block."""
    text = directory / "hours.om"
    while some := list(islice(hours, 2)):
        with text.open("w") as file:
            for place, metric in enumerate(GPU_METRICS):
                for gpu in range(GPUS):
                    series = f'{metric.name.replace(".", "_")}{{gpu="{gpu}"}} '
                    for hour in some:
                        _lines(file.write, series, hour.gpus[:, gpu, place], round(month) + hour.first)
            for place, metric in enumerate(HOST_METRICS):
                for hour in some:
                    series = f"{metric.name.replace('.', '_')} "
                    _lines(file.write, series, hour.host[:, place], round(month) + hour.first)
            file.write("# EOF\n")
        command = ["promtool", "tsdb", "create-blocks-from", "openmetrics", str(text), str(directory)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    text.unlink()


def _lines(write: Callable[[str], object], series: str, values: Array, begin: int) -> None:
    known = ((at, value) for at, value in enumerate(values.tolist(), begin) if value == value)
    write("".join([f"{series}{value!r} {at}\n" for at, value in known]))


@contextmanager
def _open_prometheus(directory: Path) -> Iterator[Ask]:
    """A server on loopback, for the length of a block, on links to the blocks: what it adds is not kept."""
    with TemporaryDirectory(prefix="gpumon-prometheus-", dir=directory.parent) as scratch:
        shutil.copytree(directory, f"{scratch}/data", copy_function=os.link)
        Path(scratch, "none.yml").write_text("global: {}\n")
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        server = subprocess.Popen(
            [
                "prometheus", f"--config.file={scratch}/none.yml", f"--storage.tsdb.path={scratch}/data",
                "--storage.tsdb.retention.time=10y", f"--web.listen-address=127.0.0.1:{port}", "--log.level=error",
            ]
        )  # fmt: skip
        try:
            _ready(server, port)
            yield lambda question: _ask_prometheus(server.pid, port, question)
        finally:
            server.terminate()
            server.wait(_PATIENCE)


def _ready(server: subprocess.Popen[bytes], port: int) -> None:
    deadline = time.monotonic() + _PATIENCE
    while server.poll() is None and time.monotonic() < deadline:
        with suppress(OSError):
            if _get(port, "/-/ready")[0] == 200:
                return
        time.sleep(0.1)
    raise RuntimeError(f"prometheus is not ready (exit code {server.poll()})")


def _ask_prometheus(pid: int, port: int, question: Question) -> Answer:
    """The server's CPU; that of reading its answers is not counted."""
    before, points = cpu_seconds(pid), 0
    for function in ("min", "avg", "max"):
        query = f'{function}_over_time({METRIC.replace(".", "_")}{{gpu="{GPU}"}}[{question.step}s])'
        window = {"start": question.begin, "end": question.end, "step": question.step}
        status, body = _get(port, "/api/v1/query_range?" + urlencode({"query": query, **window}))
        if status != 200:
            raise RuntimeError(f"prometheus answers {status}: {body[:300].decode()}")
        points = len(json.loads(body)["data"]["result"][0]["values"])
    return Answer(points, cpu_seconds(pid) - before)


def _get(port: int, path: str) -> tuple[int, bytes]:
    connection = HTTPConnection("127.0.0.1", port, timeout=_PATIENCE)
    with closing(connection):
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read()


PROMETHEUS = Peer("Prometheus", _missing_prometheus, _keep_prometheus, _open_prometheus)
