"""The examples as people see them in `gpumon tui`, in a real terminal beside a daemon on the stub driver."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.programs import command, environment, until
from tests.trainings import need, train

EXAMPLES = ROOT / "examples"
TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", 2)

# By the packages it needs: the command, and of each run that it makes the name and the last of its epochs.
SHOWN = [
    (("torch",), (EXAMPLES / "pytorch_tabular.py", "--epochs", 5, "--events", 2048), {"pytorch-tabular": "5/5"}),
    (("torch", "keras"), (EXAMPLES / "keras_cifar.py", "--images", 256), {"keras-cifar": "10/10"}),
    (("torch", "lightning"), (EXAMPLES / "lightning_regression.py", "--epochs", 3), {"lightning-regression": "3/3"}),
    (
        ("torch", "transformers", "accelerate"),
        (EXAMPLES / "transformers_classifier.py", "--epochs", 2),
        {"transformers-classifier": "2/2"},
    ),
    (("torch",), (*TORCHRUN, EXAMPLES / "torchrun_ddp.py", "--epochs", 2), {"torchrun-ddp": "2/2"}),
    (
        ("torch",),
        (EXAMPLES / "loader_workers.py", "--epochs", 2, "--rows", 128),
        {"loader-0-workers": "2/2", "loader-2-workers": "2/2"},
    ),
]


@pytest.mark.parametrize(("packages", "words", "runs"), SHOWN, ids=[next(iter(runs)) for *_, runs in SHOWN])
def test_an_example_shows_with_its_epochs_and_its_loss(
    tmux: str,
    watched: Path,
    tmp_path: Path,
    packages: tuple[str, ...],
    words: tuple[object, ...],
    runs: dict[str, str],
) -> None:
    need(*packages)
    env = {**environment(watched), "LANG": "C.UTF-8", "TERM": "xterm-256color"}
    server = [tmux, "-u", "-S", str(tmp_path / "tmux"), "-f", os.devnull]
    view = shlex.join(command("tui"))

    def ask(*arguments: str) -> str:
        done = subprocess.run([*server, *arguments], env=env, capture_output=True, text=True, check=False)
        return done.stdout

    ask("new-session", "-d", "-x", "240", "-y", "50", view)
    try:
        train(words, watched, may_abort="torchrun-ddp" in runs)
        for name, epoch in runs.items():
            # A long name is cut to its column.
            row = re.compile(rf"{name[:15]}.* {epoch} .*loss [\d.].*finished")

            def seen(row: re.Pattern[str] = row) -> bool:
                return bool(row.search(ask("capture-pane", "-p")))

            try:
                until(seen)
            except AssertionError:
                raise AssertionError(f"{name} {epoch} did not come on screen:\n{ask('capture-pane', '-p')}") from None
    finally:
        ask("kill-server")
