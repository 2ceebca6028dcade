"""The walk of docs/operate/prometheus.md, line by line, as a new operator types it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.engines.programs import UNPACKED, free_port
from tests.programs import PATIENCE, environment, until

pytestmark = [pytest.mark.engine, pytest.mark.slow]
GUIDE = (ROOT / "docs" / "operate" / "prometheus.md").read_text(encoding="utf-8")
WALK = GUIDE[GUIDE.index("## The walk") : GUIDE.index("## What an exporter tells")]
NODE, SERVER, ASK = re.findall(r"```sh\n(.*?)```", WALK, re.DOTALL)


class Shell:
    """A shell of an operator, whose ports are free ones."""

    def __init__(self, directory: Path) -> None:
        (directory / "deploy").symlink_to(ROOT / "deploy")
        self.ports = {"9401": str(free_port()), "9090": str(free_port())}
        base = environment(directory / "live")
        path = os.pathsep.join((str(Path(sys.executable).parent), str(UNPACKED), base["PATH"]))
        (directory / "live").mkdir(mode=0o700)
        self.env = {**base, "PATH": path}
        self.directory = directory
        self.running: list[subprocess.Popen[bytes]] = []

    def type(self, line: str) -> str:
        """Run a line to its end, or in the background where it says so; return what it prints."""
        for usual, free in self.ports.items():
            line = line.replace(f"127.0.0.1:{usual}", f"127.0.0.1:{free}")
        if "gpumon export" in line:
            line = line.replace("gpumon export", f"gpumon export --listen 127.0.0.1:{self.ports['9401']}")
        words, _, _ = line.partition("  #")
        if words.rstrip().endswith("&"):
            words = f"exec {words.rstrip().rstrip('&')}"
            self.running.append(
                subprocess.Popen(["bash", "-c", words], env=self.env, cwd=self.directory, stdout=subprocess.DEVNULL)
            )
            return ""
        done = subprocess.run(
            ["bash", "-o", "pipefail", "-c", words], env=self.env, cwd=self.directory, capture_output=True, text=True,
            check=False, timeout=PATIENCE,
        )  # fmt: skip
        return done.stdout if done.returncode == 0 else ""

    def close(self) -> None:
        for process in self.running:
            process.send_signal(signal.SIGTERM)
            process.wait(timeout=PATIENCE)
        self.type("gpumon daemon stop")


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    found = Shell(tmp_path)
    yield found
    found.close()


def test_the_walk_leads_from_a_daemon_to_a_cluster_in_a_terminal(shell: Shell) -> None:
    begin, export, scrape = NODE.strip().splitlines()
    assert shell.type(begin.replace("--detach", "--detach --source sim"))
    shell.type(export)
    told = until(lambda: shell.type(scrape))
    assert len(told.splitlines()) == 5
    assert 'gpumon_gpus{state="free"}' in told
    copy, edit, check, serve = SERVER.strip().splitlines()
    shell.type(copy)
    shell.type(edit)
    assert f"127.0.0.1:{shell.ports['9401']}" in (shell.directory / "prometheus.yml").read_text()
    assert "SUCCESS" in shell.type(check)
    shell.type(serve)
    query, top = ASK.strip().splitlines()
    until(lambda: '"state":"busy"' in shell.type(query))
    told = until(lambda: shell.type(top))
    assert "GPUs free" in told
    assert "1 node SIMULATED" in told
