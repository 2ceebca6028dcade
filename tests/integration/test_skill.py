"""The text for coding agents: each of its commands and its Python run, in their order, on a machine with GPUs."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

from tests.documented import SKILL, blocks, commands
from tests.nvml import Stub
from tests.programs import PATIENCE, command, daemon, environment


def test_every_command_and_the_loop_of_the_skill_run(stub: Stub, tmp_path: Path) -> None:
    env = environment(tmp_path / "live", stub.env())
    (loop,) = blocks(SKILL, "python")
    (tmp_path / "train.py").write_text(loop)
    (tmp_path / "again.py").write_text(loop.replace('"before"', '"after"'))
    with daemon(env=env):
        subprocess.run([sys.executable, "again.py"], env=env, cwd=tmp_path, check=True, timeout=PATIENCE)
        for line in commands(SKILL):
            _, *words = shlex.split(line)
            words = [sys.executable if word == "python" else word for word in words]
            done = subprocess.run(
                command(*words), env=env, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE, check=False
            )
            assert done.returncode == 0 or "--fail-if" in words, (line, done.stderr)
            assert done.returncode in (0, 4), "two runs of two short epochs may be too few to compare"
