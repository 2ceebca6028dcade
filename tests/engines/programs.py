"""Engines as processes of a test, each on a free port and with its data in a directory of the test."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from tests.programs import PATIENCE, until

UNPACKED = Path(sys.prefix) / "engines" / "usr" / "bin"
"""Where tests/setup.sh puts them."""
_TRIES = 3
"""Ports to try: another program may take one that was free."""
_FOREVER = "100y"
Found = list[tuple[dict[str, str], float]]
"""Labels and value of each series of an answer."""


def program(name: str) -> str:
    """Return the path of a program of a Prometheus server; empty where it is not to be had."""
    return shutil.which(name, path=os.pathsep.join((str(UNPACKED), os.environ.get("PATH", "")))) or ""


class Backend(NamedTuple):
    """A Prometheus server that runs."""

    url: str
    logged: Path

    def get(self, path: str, **parameters: object) -> Any:
        """Return the JSON of an answer. Raises AssertionError with Prometheus's own words for an error."""
        query = urllib.parse.urlencode({name: str(value) for name, value in parameters.items()}, doseq=True)
        return self._asked(f"{self.url}/{path}?{query}", None)

    def post(self, path: str, body: bytes = b"") -> Any:
        """Send bytes."""
        return self._asked(f"{self.url}/{path}", body)

    def ask(self, expression: str, at: float | None = None) -> Found:
        """Evaluate an expression at a moment (s since 1970); now without one."""
        when = {} if at is None else {"time": at}
        data = self.get("api/v1/query", query=expression, **when)["data"]
        if data["resultType"] == "scalar":
            return [({}, float(data["result"][1]))]
        return [(dict(one["metric"]), float(one["value"][1])) for one in data["result"]]

    def one(self, expression: str, at: float | None = None) -> float:
        """Evaluate an expression that has one value."""
        ((_, value),) = self.ask(expression, at)
        return value

    def comes_to(self, expression: str, value: float) -> None:
        """Wait until an expression has this one value: on a busy machine a scrape is late, and what it has is gone."""
        found: Found = []

        def is_there() -> bool:
            found[:] = self.ask(expression)
            return [one for _, one in found] == [value]

        try:
            until(is_there)
        except AssertionError as error:
            raise AssertionError(f"{expression} has not come to {value}: {found}") from error

    def soon(self, expression: str) -> Found:
        """Wait until an expression has any series, and return them."""
        return until(lambda: self.ask(expression))

    def _asked(self, url: str, body: bytes | None) -> Any:
        try:
            with urllib.request.urlopen(urllib.request.Request(url, data=body), timeout=PATIENCE) as answer:
                raw = answer.read()
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{url}: {error.code} {error.read().decode(errors='replace')[:500]}") from error
        try:
            return json.loads(raw)
        except ValueError:
            return raw.decode()


@contextmanager
def prometheus(
    directory: Path, scrapes: Sequence[Mapping[str, Any]] = (), *, rules: Sequence[Path] = (), interval: str = "1s",
    alertmanager: str = "", data: Path | None = None,
) -> Iterator[Backend]:  # fmt: skip
    """A Prometheus that scrapes and evaluates each `interval`; `data`: blocks that it begins with."""
    directory.mkdir(parents=True, exist_ok=True)
    config: dict[str, Any] = {
        "global": {"scrape_interval": interval, "scrape_timeout": interval, "evaluation_interval": interval},
        "scrape_configs": list(scrapes),
        "rule_files": [str(path) for path in rules],
    }
    if alertmanager:
        target = {"static_configs": [{"targets": [alertmanager.removeprefix("http://")]}]}
        config["alerting"] = {"alertmanagers": [target]}
    file = directory / "prometheus.yml"
    file.write_text(yaml.safe_dump(config))
    words = [
        f"--config.file={file}", f"--storage.tsdb.path={data or directory / 'data'}",
        f"--storage.tsdb.retention.time={_FOREVER}", "--web.enable-lifecycle", "--log.level=warn",
    ]  # fmt: skip
    with _started("prometheus", words, "--web.listen-address={}", "-/ready", directory) as running:
        yield running


@contextmanager
def victoria_metrics(
    directory: Path, scrapes: Sequence[Mapping[str, Any]] = (), *, interval: str = "1s"
) -> Iterator[Backend]:
    """A VictoriaMetrics that scrapes each `interval`; it shows the newest samples, and no answer of before."""
    directory.mkdir(parents=True, exist_ok=True)
    file = directory / "scrapes.yml"
    file.write_text(yaml.safe_dump({"global": {"scrape_interval": interval}, "scrape_configs": list(scrapes)}))
    words = [
        f"-promscrape.config={file}", f"-storageDataPath={directory / 'data'}", f"-retentionPeriod={_FOREVER}",
        "-search.latencyOffset=0s", "-search.disableCache", "-memory.allowedBytes=64MiB", "-loggerLevel=WARN",
    ]  # fmt: skip
    with _started("victoria-metrics", words, "-httpListenAddr={}", "health", directory) as running:
        yield running


@contextmanager
def vmalert(directory: Path, engine: Backend, rules: Sequence[Path]) -> Iterator[Backend]:
    """What evaluates rules for a VictoriaMetrics, and stores there what they record."""
    directory.mkdir(parents=True, exist_ok=True)
    words = [
        f"-datasource.url={engine.url}", f"-remoteWrite.url={engine.url}", "-remoteWrite.flushInterval=100ms",
        "-evaluationInterval=1s", *(f"-rule={path}" for path in rules),
    ]  # fmt: skip
    with _started("vmalert", words, "-httpListenAddr={}", "health", directory) as running:
        yield running


@contextmanager
def alertmanager(directory: Path, webhook: str) -> Iterator[Backend]:
    """An Alertmanager that sends each group at once to a webhook."""
    directory.mkdir(parents=True, exist_ok=True)
    file = directory / "alertmanager.yml"
    route = {"receiver": "test", "group_by": ["alertname"], "group_wait": "0s", "group_interval": "1s"}
    receiver = {"name": "test", "webhook_configs": [{"url": webhook}]}
    file.write_text(yaml.safe_dump({"route": route, "receivers": [receiver]}))
    words = [f"--config.file={file}", f"--storage.path={directory / 'data'}", "--cluster.listen-address="]
    with _started("prometheus-alertmanager", words, "--web.listen-address={}", "-/ready", directory) as running:
        yield running


def promtool(*words: object, cwd: Path | None = None, given: str = "") -> subprocess.CompletedProcess[str]:
    """Run promtool to its end; `given` comes to its standard input."""
    return ran(program("promtool"), *words, cwd=cwd, given=given)


def ran(*words: object, cwd: Path | None = None, given: str = "") -> subprocess.CompletedProcess[str]:
    """Run a program to its end."""
    return subprocess.run(
        [str(word) for word in words], capture_output=True, text=True, check=False, cwd=cwd, input=given,
        timeout=10 * PATIENCE,  # it computes a month of rules, on a machine that does other work too
    )  # fmt: skip


@contextmanager
def _started(name: str, words: Sequence[str], listen: str, ready: str, directory: Path) -> Iterator[Backend]:
    logged = directory / "log.txt"
    for _ in range(_TRIES):
        address = f"127.0.0.1:{free_port()}"
        with logged.open("wb") as log:
            process = subprocess.Popen(
                [program(name), *words, listen.format(address)], stdout=log, stderr=log, cwd=_root()
            )
        running = Backend(f"http://{address}", logged)
        try:
            until(lambda: process.poll() is not None or _answers(f"{running.url}/{ready}"))  # noqa: B023
            if process.poll() is None:
                yield running
                return
        finally:
            process.terminate()
            process.wait(timeout=PATIENCE)
    raise AssertionError(f"{name} does not start: {logged.read_text(errors='replace')[-2000:]}")


def _root() -> Path | None:
    """Where what was unpacked looks for its own files."""
    return UNPACKED.parents[1] if UNPACKED.is_dir() else None


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=1.0) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
    return port
