"""Notebooks for tests: cells that run in a real kernel of Jupyter."""

from __future__ import annotations

import ast
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.conftest import ROOT
from tests.programs import PATIENCE, Child

SOURCES = ":".join(map(str, (ROOT, ROOT / "tui", ROOT / "web")))


class Notebook:
    """A notebook whose cells run one after the other in one kernel."""

    def __init__(self, env: Mapping[str, str], directory: Path) -> None:
        self.pid = 0
        """The pid of the kernel."""
        self.updates: list[dict[str, str]] = []
        """Texts by MIME type that replaced an output of the last cell while it ran."""
        own = {"PYTHONPATH": SOURCES, "IPYTHONDIR": str(directory / "ipython"), "JUPYTER_NO_CONFIG": "1"}
        self._env = {**env, **own}
        self._directory = directory
        self._host: subprocess.Popen[str] | None = None

    @contextmanager
    def started(self) -> Iterator[Notebook]:
        words = [sys.executable, "-m", "tests.kernel_host", str(round(2 * PATIENCE))]
        with Child(
            words, env=self._env, cwd=self._directory, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True,
        ) as self._host:  # fmt: skip
            self.pid = self._answer()
            yield self
            assert self._host.stdin is not None
            self._host.stdin.close()
            self._host.wait(timeout=PATIENCE)

    def interrupt(self) -> None:
        """Press the stop button: what jupyter_client does to a kernel of its own. Another thread may call this."""
        os.killpg(os.getpgid(self.pid), signal.SIGINT)

    def run(self, source: str) -> list[dict[str, Any]]:
        """Run a cell to its end, and return its outputs."""
        assert self._host is not None
        assert self._host.stdin is not None
        self._host.stdin.write(json.dumps(source) + "\n")
        self._host.stdin.flush()
        answer = self._answer()
        self.updates = answer["updates"]
        return list(answer["outputs"])

    def value(self, expression: str) -> Any:
        """Return the value of an expression of plain Python in the kernel."""
        (output,) = without_tables(self.run(f"print(repr({expression}))"))
        return ast.literal_eval(output["text"])

    def _answer(self) -> Any:
        assert self._host is not None
        assert self._host.stdout is not None
        assert self._host.stderr is not None
        line = self._host.stdout.readline()
        assert line, self._host.stderr.read()
        return json.loads(line)


def tables(outputs: list[dict[str, Any]]) -> list[dict[str, str]]:
    """Return the outputs of a cell that gpumon drew, as texts by MIME type."""
    return [output["data"] for output in outputs if 'class="gpumon"' in output.get("data", {}).get("text/html", "")]


def without_tables(outputs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the outputs of a cell without those of gpumon."""
    return [output for output in outputs if not tables([output])]
