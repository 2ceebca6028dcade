"""`gpumon tui` in a real terminal, beside a training."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from pathlib import Path

from tests.programs import command, environment, until


class Terminal:
    """A tmux, in which the terminal view of a daemon runs."""

    def __init__(self, tmux: str, live_dir: Path, directory: Path) -> None:
        self._env = {**environment(live_dir), "LANG": "C.UTF-8", "TERM": "xterm-256color"}
        self._server = [tmux, "-u", "-S", str(directory / "tmux"), "-f", os.devnull]
        self._ask("new-session", "-d", "-x", "240", "-y", "50", shlex.join(command("tui")))

    def _ask(self, *arguments: str) -> str:
        words = [*self._server, *arguments]
        return subprocess.run(words, env=self._env, capture_output=True, text=True, check=False).stdout

    def close(self) -> None:
        self._ask("kill-server")

    def shows(self, run: str, epochs: str) -> None:
        """Wait until a run stands on the page of runs as finished, with `epochs` as "3/3" or "2 (3/3)", and a loss."""
        self._ask("send-keys", "4")
        # ● ended well; a long name is cut to its column
        row = re.compile(rf"● +{run[:15]}.* \(?{epochs}\)? .*loss [\d.]")
        try:
            until(lambda: row.search(self._ask("capture-pane", "-p")))
        except AssertionError:
            raise AssertionError(f"{run} {epochs} did not come on screen:\n{self._ask('capture-pane', '-p')}") from None
