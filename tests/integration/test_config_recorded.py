"""A real training that tells its parameters, beside a real daemon: what is recorded, and what reaches no file."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.nvml import Stub
from tests.programs import daemon, environment, gpumon, until

TRAINING = """
import argparse, gpumon
parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float)
parser.add_argument("--hub-token")
with gpumon.run("net", epochs=2, tags=["sweep"]) as run:
    run.config(parser.parse_args(), optimizer={"name": "sgd", "momentum": 0.9})
    run.note("with the new loader")
    for epoch in run.epochs():
        for step in run.steps(range(3)):
            pass
"""
SECRETS = ("swordfish", "hf_SECRETabc123456")


def test_a_training_tells_its_parameters_and_no_secret(stub: Stub, live_dir: Path, tmp_path: Path) -> None:
    env = {**environment(live_dir, stub.env()), "SOME_TOKEN": SECRETS[0]}
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "train.py").write_text(TRAINING)
    git = ["git", "-C", str(tree), "-c", "user.name=a", "-c", "user.email=a@b.example"]
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "first"]):
        subprocess.run([*git, *words], check=True)
    commit = subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout.strip()
    with daemon("--interval", "0.1", env=env):
        for lr in ("0.1", "0.5"):
            words = [sys.executable, str(tree / "train.py"), "--lr", lr, "--hub-token", SECRETS[1]]
            subprocess.run(words, env=env, check=True)
        until(lambda: gpumon("runs", env=env).stdout.count("finished") == 2)
        shown = json.loads(gpumon("runs", "show", "last", "--json", env=env).stdout)["run"]
        assert shown["config"] == {
            "lr": 0.5, "hub_token": "***", "optimizer.name": "sgd", "optimizer.momentum": 0.9,
        }  # fmt: skip
        assert (shown["program"]["script"], shown["program"]["commit"]) == ("train.py", commit)
        assert shown["program"].get("dirty") in (None, False), "unknown where git was not done in time"
        assert (shown["tags"], [note["text"] for note in shown["notes"]]) == (["sweep"], ["with the new loader"])

        assert gpumon("runs", "list", "--where", "lr=0.1", env=env).stdout.count("finished") == 1
        (first,) = json.loads(gpumon("runs", "list", "--where", "lr=0.1", "--json", env=env).stdout)["runs"]
        compared = gpumon("runs", "compare", "last", first["id"], env=env).stdout.splitlines()
        assert [line.split() for line in compared if line.startswith("lr ")] == [["lr", "0.5", "0.1"]]

        # While the daemon runs: what people change stays as they changed it.
        assert gpumon("runs", "tag", "last", "best", env=env).stdout.strip().endswith("best, sweep")
        assert gpumon("runs", "tag", "last", "sweep", "--remove", env=env).returncode == 0
        assert gpumon("runs", "rename", "last", "better", env=env).returncode == 0
        shown = json.loads(gpumon("runs", "show", "last", "--json", env=env).stdout)["run"]
        assert (shown["name"], shown["tags"]) == ("better", ["best"])
        assert gpumon("runs", "delete", "last", "--yes", env=env).returncode == 0
    with daemon("--interval", "0.1", env=env):
        # Its board still lies there, and is not taken for a new run.
        until(lambda: gpumon("status", env=env).returncode == 0)
        assert len(json.loads(gpumon("runs", "list", "--json", env=env).stdout)["runs"]) == 1
    kept = [path for path in Path(env["GPUMON_STATE_DIR"]).iterdir() if path.is_file()]
    kept += [path for path in live_dir.rglob("*") if path.is_file()]
    assert kept
    for path in kept:
        assert not [secret for secret in SECRETS if secret.encode() in path.read_bytes()], path
