"""`gpumon tui` as a person has it: in a real terminal, beside a real training, on a real recording."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.integration.test_replay_truth import rows_of
from tests.nvml import Stub
from tests.programs import PATIENCE, command, daemon, environment, until
from tests.runs import Book, training
from tests.trainings import need
from tests.tui.terminal import Terminal, shown


@pytest.fixture
def open_terminal(tmux: str, tmp_path: Path) -> Iterator[object]:
    opened: list[Terminal] = []

    def make(env: Mapping[str, str], *options: object, size: str = "160x50") -> Terminal:
        terminal = Terminal(tmux, tmp_path, env, command("tui", *options), size)
        opened.append(terminal)
        return terminal

    yield make
    for terminal in opened:
        terminal.close()


def test_eight_gpus_at_every_size_then_quit(open_terminal, stub: Stub, live_dir: Path) -> None:  # type: ignore[no-untyped-def]
    stub.gpus = 8
    terminal = open_terminal(environment(live_dir, stub.env()), size="200x50")
    screen = shown(terminal, "utilization, last", "Processes", "own sampler")
    assert all(re.search(rf"^.   {index}  ", screen, re.MULTILINE) for index in range(8))
    for columns, rows in ((80, 24), (40, 10), (200, 50), (80, 24)):
        terminal.resize(columns, rows)
        before = terminal.screen()

        def drawn(before: str = before, columns: int = columns) -> bool:
            lines = (screen := terminal.screen()).splitlines()
            return screen != before and "gpumon" in lines[0] and max(map(len, lines)) <= columns

        until(drawn)  # it is drawn anew each second
    terminal.press("?")
    shown(terminal, "or previous GPU")
    terminal.press("G")
    shown(terminal, "any other key closes")
    terminal.press("Escape")
    until(lambda: "any other key closes" not in terminal.screen())
    terminal.press("g")
    shown(terminal, "▌  1  ")
    terminal.press("j")
    shown(terminal, "▌  2  ")
    terminal.press("q")
    until(terminal.is_over)


def test_a_simulation_that_a_daemon_plays_has_the_losses_of_its_past_epochs_and_begins_anew_with_it(  # type: ignore[no-untyped-def]
    open_terminal, live_dir: Path
) -> None:
    env = environment(live_dir)
    for _ in range(2):
        with daemon("--source", "sim", env=env):
            terminal = open_terminal(env, size="200x50")
            shown(terminal, "● live", "val_loss")
            row = re.compile(r" e5 +1:35 .*%.*%.* 1\.0\d+ +1\.0\d+ *$", re.MULTILINE)
            until(lambda terminal=terminal, row=row: row.search(terminal.screen()) is not None)
            terminal.press("4")
            screen = shown(terminal, "2 running  0 past", "val_loss")
            newest = next(line.split()[0] for line in screen.splitlines() if re.match(r" +e\d", line))
            assert newest == "e6", "no epoch of the simulation before it"
            terminal.close()
    assert not (live_dir / "state").exists(), "what is played is no run of this machine"


def test_the_runs_of_a_simulation_have_none_of_this_machine_among_them(open_terminal, live_dir: Path) -> None:  # type: ignore[no-untyped-def]
    env = environment(live_dir)
    with Book(Path(env["GPUMON_STATE_DIR"])) as book:
        training(book, "a-real-run-1a2b", 3, began=time.time() - 4000, course=False)
    terminal = open_terminal(env, "--source", "sim", size="160x40")
    shown(terminal, "● live")
    terminal.press("4")
    screen = shown(terminal, "llama-8b-sft", "verdict")
    until(lambda: "…  past" not in terminal.screen() and "… past" not in terminal.screen())
    assert "a-real-run" not in screen + terminal.screen()


def test_a_view_that_goes_over_to_a_simulating_daemon_has_its_runs_and_none_of_this_machine(  # type: ignore[no-untyped-def]
    open_terminal, live_dir: Path
) -> None:
    env = environment(live_dir)
    with Book(Path(env["GPUMON_STATE_DIR"])) as book:
        training(book, "a-real-run-1a2b", 3, began=time.time() - 4000, course=False)
    terminal = open_terminal(env, size="200x50")
    shown(terminal, "No GPU can be read")
    terminal.press("4")
    shown(terminal, "a-real-run", "1 past")
    with daemon("--source", "sim", env=env):
        screen = shown(terminal, "SIMULATED", "llama-8b-sft", "2 running  0 past", "val_loss")
        assert "a-real-run" not in screen
        terminal.press("Enter")
        shown(terminal, "sim-0-0", "of 40 epochs done")


def test_a_recording_shows_what_its_rows_say(open_terminal, recordings: Path, live_dir: Path) -> None:  # type: ignore[no-untyped-def]
    log = recordings / "h100x8-llama3-8b-ckpt100.csv.gz"
    terminal = open_terminal(environment(live_dir), "--source", f"replay:{log}", "--speed", "10", size="200x50")
    screen = shown(terminal, "REPLAY", "    7  ", "100%")
    rows = [row for tick in rows_of(log, 8) for row in tick]
    watts = {f"{row[1]:.0f}" for row in rows}
    gibibytes = {f"{row[2] / 2**30:.1f}" for row in rows}
    lines = re.findall(r"^.   \d  \S+ +\d+% +(\d+\.\d) +(\d+) ", screen, re.MULTILINE)
    seen_watts, seen_gibibytes = [watt for _, watt in lines], [size for size, _ in lines]
    assert len(seen_watts) == len(seen_gibibytes) == 8, screen
    assert set(seen_watts) <= watts
    assert set(seen_gibibytes) <= gibibytes


def test_a_log_that_is_read_up_to_a_later_moment_says_so_meanwhile(
    open_terminal, recordings: Path, live_dir: Path
) -> None:  # type: ignore[no-untyped-def]
    log = recordings / "h100x8-llama3-8b-ckpt100.csv.gz"
    terminal = open_terminal(environment(live_dir), "--source", f"replay:{log}", "--from", "00:45", size="80x24")
    assert f"reading {log.name} up to 00:45" in shown(terminal, "up to 00:45").replace("\n", "")
    shown(terminal, "REPLAY", "00:45:")


def test_a_gpu_less_machine_says_so_and_still_shows_a_training(open_terminal, live_dir: Path) -> None:  # type: ignore[no-untyped-def]
    """A real PyTorch training on the CPU, with its epochs as they pass."""
    need("torch")
    env = environment(live_dir)
    terminal = open_terminal(env)
    if "No GPU can be read" not in shown(terminal, "q quit"):
        pytest.skip("this machine has a GPU")
    shown(terminal, "a simulation: GPUs", " host ")
    pipe = subprocess.PIPE
    training = subprocess.Popen([sys.executable, "-c", TRAINING], env=env, stdin=pipe, stdout=pipe, text=True)
    try:
        shown(terminal, "tabular", "1 running", "loss", timeout=2 * PATIENCE)
        epoch = next(int(line) for line in training.stdout or () if int(line) == 2)
        shown(terminal, "epochs of tabular", f"{epoch + 1}/6")  # it waits in this epoch
    finally:
        training.communicate("go on\n", timeout=PATIENCE)
    shown(terminal, "finished", "6/6")


TRAINING = """
import torch, gpumon, time
torch.manual_seed(0)
x = torch.randn(512, 20); y = (x.sum(1) > 0).long()
loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), batch_size=64)
model = torch.nn.Linear(20, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
with gpumon.run("tabular", epochs=6) as run:
    for epoch in run.epochs():
        print(epoch, flush=True)
        if epoch == 2:
            input()
        for features, labels in run.steps(loader):
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(features), labels)
            loss.backward()
            optimizer.step()
            time.sleep(0.05)
        run.log(loss=loss)
"""


def test_a_view_outlives_its_daemon_and_finds_the_next_one(open_terminal, stub: Stub, live_dir: Path) -> None:  # type: ignore[no-untyped-def]
    env = environment(live_dir, stub.env())
    with daemon("--interval", "0.2", env=env):
        terminal = open_terminal(env, size="120x40")
        shown(terminal, "● live")
    shown(terminal, "stopped")
    with daemon("--interval", "0.2", env=env):
        shown(terminal, "● live")


def test_without_a_terminal_it_says_what_to_use(live_dir: Path) -> None:
    done = subprocess.run(command("tui"), env=environment(live_dir), capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "gpumon status" in done.stderr
