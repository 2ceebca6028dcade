"""A real Prometheus that scrapes simulated nodes with our rules, for the length of a block."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.client import HTTPConnection
from pathlib import Path
from typing import NamedTuple

import httpx

from benchmarks.usage import ROOT
from tests.engines.programs import UNPACKED, program

INTERVAL = 30
"""Seconds between scrapes."""
MEMORY = {"GOGC": "50", "GOMEMLIMIT": "1600MiB"}
"""Garbage collection of Prometheus: less memory for some more CPU; by default Go waits until it has doubled."""
_PATIENCE = 60.0
_RULES = ("rules.yml", "cluster.yml", "hours.yml")
_CONFIG = """\
global: {{scrape_interval: {interval}s, scrape_timeout: {timeout}s, evaluation_interval: 60s}}
rule_files: [{rules}]
scrape_configs:
  - job_name: gpumon
    http_sd_configs: [{{url: "http://127.0.0.1:{port}/targets"}}]
"""


class RunningEngine(NamedTuple):
    """A Prometheus server that runs."""

    pid: int
    url: str
    began: float
    """Monotonic."""

    def age(self) -> float:
        """Seconds since it was started."""
        return time.monotonic() - self.began

    def samples_read(self, expression: str) -> int:
        """Samples that it reads to evaluate an expression now."""
        answer = httpx.post(f"{self.url}/api/v1/query", data={"query": expression, "stats": "all"}, timeout=_PATIENCE)
        return int(answer.raise_for_status().json()["data"]["stats"]["samples"]["totalQueryableSamples"])

    def memory_peak(self) -> float:
        """Bytes that it had in memory at most."""
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return float(line.split()[1]) * 1024
        raise RuntimeError("this kernel does not tell the peak of a process's memory")


def missing() -> str:
    """Why there is no engine here; empty where there is one."""
    return "" if program("prometheus") else "apt-get install prometheus"


@contextmanager
def simulated(nodes: int, gpus: int) -> Iterator[int]:
    """So many simulated nodes, and their port."""
    words = [sys.executable, "-m", "benchmarks.nodes", "--nodes", str(nodes), "--gpus", str(gpus)]
    process = subprocess.Popen([*words, "--listen", "127.0.0.1:0"], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield int(process.stdout.readline().partition("127.0.0.1:")[2].partition("/")[0])
    finally:
        process.terminate()
        process.wait(_PATIENCE)


@contextmanager
def scraping(scratch: Path, port: int, interval: int = INTERVAL, timeout: int = 10) -> Iterator[RunningEngine]:
    """A Prometheus that scrapes the simulated nodes of a port each so many seconds, with our rules."""
    rules = ", ".join(str(ROOT / "deploy" / "prometheus" / name) for name in _RULES)
    (scratch / "prometheus.yml").write_text(_CONFIG.format(interval=interval, timeout=timeout, rules=rules, port=port))
    with socket.create_server(("127.0.0.1", 0)) as free:
        own = free.getsockname()[1]
    began = time.monotonic()
    server = subprocess.Popen([
        program("prometheus"), f"--config.file={scratch}/prometheus.yml", f"--storage.tsdb.path={scratch}/data",
        f"--web.listen-address=127.0.0.1:{own}", "--log.level=error",
    ], env={**os.environ, **MEMORY}, cwd=UNPACKED.parents[1] if UNPACKED.is_dir() else None)  # fmt: skip
    try:
        while server.poll() is None and time.monotonic() < began + _PATIENCE and not _is_ready(own):
            time.sleep(0.2)
        yield RunningEngine(server.pid, f"http://127.0.0.1:{own}", began)
    finally:
        server.terminate()
        server.wait(_PATIENCE)


def _is_ready(port: int) -> bool:
    connection = HTTPConnection("127.0.0.1", port, timeout=5)
    with suppress(OSError):
        connection.request("GET", "/-/ready")
        return connection.getresponse().status == 200
    return False
