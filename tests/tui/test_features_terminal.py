"""What the terminal view can do, feature by feature, in a real terminal: docs/inside/peers.md has the table."""

from __future__ import annotations

import json
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.nvml import Process
from tests.programs import PATIENCE, command, until
from tests.tui.lab import GIB, SECRET, Lab, lab
from tests.tui.terminal import ESCAPE, Terminal, shown


@pytest.fixture(scope="module")
def four(driver_library: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with lab(driver_library, tmp_path_factory.mktemp("lab")) as found:
        yield found


@pytest.fixture(scope="module")
def wide(tmux: str, four: Lab) -> Iterator[Terminal]:
    """The view of four GPUs, of a daemon."""
    terminal = Terminal(tmux, four.directory, four.env, command("tui"), "200x50")
    shown(terminal, "llama-sft", "3:1", "● live")
    # The first picture comes before the toolkit, which has no place for a click until it has drawn its own.
    terminal.press("?")
    shown(terminal, "this help")
    terminal.send(ESCAPE)
    # The driver names processes in some ticks only, those of an instance last.
    terminal.press("3")
    shown(terminal, "train_sft.py", "notebook.py", "small.py")
    terminal.press("1")
    until(lambda: "K end…" not in terminal.screen())
    yield terminal
    terminal.close()


@pytest.fixture(scope="module")
def one(driver_library: Path, tmux: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Lab, Terminal]]:
    """A machine with one GPU, and the view that samples it by itself."""
    with lab(driver_library, tmp_path_factory.mktemp("one"), gpus=1) as found:
        terminal = Terminal(tmux, found.directory, found.env, command("tui"), "160x50")
        shown(terminal, "llama-sft", "own sampler")
        yield found, terminal
        terminal.close()


def matched(terminal: Terminal, pattern: str) -> str:
    """The screen, once a pattern is on it."""

    def look() -> str | None:
        screen = terminal.screen()
        return screen if re.search(pattern, screen, re.MULTILINE) else None

    try:
        return until(look)
    except AssertionError:
        raise AssertionError(f"{pattern} did not come on screen:\n{terminal.screen()}") from None


def opened(terminal: Terminal, page: str, *keys: str) -> None:
    """Close what is open, and open a page."""
    terminal.send(ESCAPE * 2)
    for key in (page, *keys):
        terminal.press(key)


def test_which_gpu_is_free_is_said_in_words(wide: Terminal) -> None:
    opened(wide, "1")
    matched(wide, r"^.   2  .* free$")
    screen = matched(wide, r"^.   1  .*root +python +allocated")
    assert "1 free" in screen.splitlines()[0]


def test_mig_instances_have_rows_of_their_own(wide: Terminal) -> None:
    opened(wide, "1")
    screen = matched(wide, r"^. 3:0 .*1\.0/10 .*root +python")
    assert re.search(r"^.   3  .*divided", screen, re.MULTILINE)
    assert re.search(r"^. 3:1 .*2\.0/10", screen, re.MULTILINE)


def test_a_run_shows_its_epoch_phase_steps_loss_and_time_left(wide: Terminal) -> None:
    opened(wide, "1")
    matched(wide, r"^.   0  .*llama-sft .*2/9.* \d+ s$")
    shown(wide, "1.961")
    wide.press("2")
    matched(wide, r"epoch 1 +step \S+ +validate")
    wide.press("4")
    shown(wide, "llama-sft-")
    wide.press("Enter")
    screen = shown(wide, "steps/s", "e1 ▸", "−20 %")
    assert re.search(r"^ +e0 .* 2\.46", screen, re.MULTILINE)


def test_memory_of_the_framework_is_told_apart(one: tuple[Lab, Terminal]) -> None:
    _, terminal = one
    opened(terminal, "1")
    screen = shown(terminal, "allocated 6.0", "cached 3.0", "context and libraries 2.0")
    assert "not of this run 3" in screen


def test_clocks_fan_state_pcie_and_video_engines_stand_on_the_overview(
    wide: Terminal, one: tuple[Lab, Terminal]
) -> None:
    _, terminal = one
    opened(wide, "1")
    screen = matched(wide, r" GHz +PCIe in +out +fan % +P +enc % +dec % +throttled")
    assert re.search(r"^.   0  .* \d\.\d\d +\d+\.\d +\d+\.\d +30 +P0 +3 +5 +power limit", screen, re.MULTILINE)
    opened(terminal, "1")
    screen = shown(terminal, "fan", "PCIe")
    assert re.search(r"\bP\d\b", screen)
    assert re.search(r"GHz", screen)
    assert re.search(r"encoder +\d+ ?%", screen)
    assert re.search(r"decoder +\d+ ?%", screen)


def test_history_of_hours_and_of_every_metric(wide: Terminal) -> None:
    opened(wide, "2")
    shown(wide, "10 min", "All GPUs")
    for _ in range(5):
        wide.press("+")
    screen = shown(wide, "history begins here")  # five hours ago
    assert re.search(r"− \d h (\d+ min )?\+", screen)
    assert len(re.findall("[⠁-⣿]", screen)) > 400, "a line through the hours that were kept"
    wide.press("Enter")
    screen = shown(wide, "Metric", "enter shows it")
    for title in ("Utilization", "Memory", "Power", "Temperature", "SM clock", "PCIe received", "Throttled by heat"):
        assert title in screen
    wide.send(ESCAPE)
    for _ in range(5):
        wide.press("-")
    shown(wide, "10 min")


def test_processes_are_sorted_by_any_column_and_filtered(wide: Terminal) -> None:
    opened(wide, "3", "M")
    screen = shown(wide, "GPU GiB▼", "notebook.py", "K end…")
    assert programs(screen) == ["train_sft.py", "notebook.py", "small.py"]
    wide.click_on("PID")
    screen = shown(wide, "PID▲")
    assert [int(pid) for pid in re.findall(r"^. +(\d+) +\S+ +root", screen, re.MULTILINE)] == sorted(
        int(pid) for pid in re.findall(r"^. +(\d+) +\S+ +root", screen, re.MULTILINE)
    )
    wide.press("o")
    shown(wide, "Sort by")
    wide.press("End", "Enter")
    assert programs(shown(wide, "program▲")) == ["notebook.py", "small.py", "train_sft.py"]
    wide.press("M")
    shown(wide, "GPU GiB▼")
    wide.press("/")
    wide.type("mem>2 !run:llama")
    assert programs(shown(wide, "1 of 3")) == ["notebook.py"]
    wide.press("C-u", "Enter")
    shown(wide, "small.py")


def programs(screen: str) -> list[str]:
    """The programs in the rows of the page of processes, from above."""
    return re.findall(r"(\w+\.py) *$", screen, re.MULTILINE)


def test_memory_bandwidth_stands_beside_each_process(wide: Terminal) -> None:
    opened(wide, "3", "M")
    screen = shown(wide, "bw %", "train_sft.py")
    assert re.search(r" 11\.0 +71 +37 .*train_sft\.py", screen)


def test_processes_stand_below_those_that_started_them(wide: Terminal) -> None:
    opened(wide, "3", "t")
    screen = shown(wide, "└ train_sft.py", "└ notebook.py")
    wide.press("u")
    assert "train_sft.py" not in shown(wide, "processes", "GPUs")
    wide.press("u", "t")
    assert "└" not in matched(wide, r"  train_sft\.py *$")
    assert SECRET not in screen


def test_a_process_opens_with_its_history_and_an_own_command_line(wide: Terminal) -> None:
    opened(wide, "3", "M", "g", "Enter")
    screen = shown(wide, "started by", "peak 11.0 GiB", "0–100 %", "train_sft.py", "--token=***", "Esc close")
    assert "hunter2" not in screen
    assert re.search("[⠁-⣿]", screen), "its history"
    wide.send(ESCAPE)
    until(lambda: "Esc close" not in wide.screen())


def test_sets_of_metrics_windows_and_layouts_turn_by_keys(wide: Terminal) -> None:
    opened(wide, "2")
    shown(wide, "All GPUs")
    wide.press("f")
    shown(wide, "layout: without small charts")
    wide.press("f")
    shown(wide, "layout: one chart")
    assert "All GPUs" not in wide.screen()
    wide.press("f")
    shown(wide, "layout: all charts", "All GPUs")
    wide.press("p")
    shown(wide, "charts: memory")
    wide.press("P")
    shown(wide, "charts: training")
    wide.press("w")
    matched(wide, r"− \d h .*\+")
    wide.press("W")
    shown(wide, "10 min", "? help")


def test_the_mouse_works_on_every_page(wide: Terminal) -> None:
    opened(wide, "1")
    matched(wide, r"^.   2  .* free$")
    row = next(at for at, line in enumerate(wide.screen().splitlines()) if re.match(".   2  ", line))
    wide.click(30, row)
    matched(wide, "^▌   2  ")
    wide.wheel(30, row, down=False)
    wide.click(30, row - 2)
    matched(wide, "^▌   0  ")
    wide.click_on("2 Chart", -1)
    shown(wide, "Utilization   GPU 0", "10 min")
    wide.wheel(60, 12)
    until(lambda: "10 min" not in wide.screen())
    wide.wheel(60, 12, down=False)
    shown(wide, "10 min")
    wide.drag(60, 12, to=90)
    matched(wide, r"PAST .*")
    assert "│" not in wide.screen().splitlines()[12][20:150], "no cursor is set where the window is dragged"
    wide.press("0")
    until(lambda: "PAST" not in wide.screen())
    wide.click_on("3 Processes")
    shown(wide, "by user   t tree")
    wide.click_on("u by user")
    shown(wide, "GPUs", "processes ")
    wide.click_on("u by user")
    shown(wide, "small.py")
    wide.click_on("small.py")
    matched(wide, r"^▌.*small\.py")
    wide.wheel(20, 5, down=False)
    matched(wide, r"^▌.*train_sft\.py")
    wide.click_on("4 Runs")
    shown(wide, "started", "llama-sft-")
    wide.click_on("energy", 1)  # the title of the list names it first
    matched(wide, r"energy *[▼▲]")
    wide.click_on("started")
    wide.click_on("5 Events")
    screen = shown(wide, "run began", "daemon started")
    wide.click_on("daemon started")
    matched(wide, "^▌.*daemon started")
    assert screen
    wide.click_on("? help")
    shown(wide, "this help")
    wide.click(3, 3)
    until(lambda: "this help" not in wide.screen())


MOVES = (
    ("G", "last"), ("g", "first"), ("j", "next"), ("k", "first"), ("C-d", "last"), ("C-u", "first"), ("n", "next"),
    ("N", "first"), ("NPage", "last"), ("PPage", "first"), ("End", "last"), ("Home", "first"),
)  # fmt: skip


def test_keys_of_vim_htop_nvtop_and_nvitop_move_sort_filter_and_end(wide: Terminal) -> None:
    opened(wide, "3", "M")
    shown(wide, "GPU GiB▼")
    place = {"first": "train_sft", "next": "notebook", "last": "small"}
    for key, to in MOVES:
        wide.press(key)
        matched(wide, rf"^▌.*{place[to]}\.py")
    for keys, sign in (
        (("F6",), "Sort by"), (("q",), "GPU GiB▼"), (("P",), "CPU %▼"), (("T",), "time▼"), (("M",), "GPU GiB▼"),
        ((".",), "SM %▼"), ((",",), "GPU GiB▼"), (("I",), "GPU GiB▲"), (("I",), "GPU GiB▼"),
        (("F5",), "└ small.py"), (("F5",), "by user"), (("F4", "x", "C-u", "Enter"), "Processes  3"),
        (("F3", "x", "C-u", "Enter"), "Processes  3"), (("F9",), "End process"), (("n",), "Processes  3"),
        (("F1",), "this help"), (("G",), "any other key closes"), (("C-u", "k", "g"), "this help"),
        (("q",), "Processes  3"),
    ):  # fmt: skip
        wide.press(*keys)
        shown(wide, sign)
    until(lambda: "End process" not in wide.screen() and "└" not in wide.screen())
    wide.press("5")
    shown(wide, "run began")
    for key in ("G", "g", "j", "k", "C-d", "C-u"):
        wide.press(key)
    wide.press("1")
    for key, row in (("j", 1), ("k", 0), ("C-d", 3), ("C-u", 0), ("g", 1), ("G", 0)):
        wide.press(key)
        matched(wide, rf"^▌ +{row}:?\d? " if key == "C-d" else rf"^▌ +{row} ")


def test_a_screen_that_another_program_wrote_on_is_drawn_again(wide: Terminal) -> None:
    opened(wide, "3")
    shown(wide, "train_sft.py")
    name = wide("display", "-p", "#{pane_tty}").strip()

    def spoils() -> bool:  # the view may draw that row at the same moment
        Path(name).write_text("\x1b[20;10Hwall: the machine goes down")
        return "wall: the machine" in wide.screen()

    until(spoils)
    wide.press("C-l")
    until(lambda: "wall: the machine" not in wide.screen())


def test_an_out_of_memory_error_is_marked(wide: Terminal, four: Lab) -> None:
    assert four.training.go_on() == "in epoch 2"
    opened(wide, "2")
    matched(wide, r"▲( OOM)? .*now")  # three more letters where an epoch leaves room
    shown(wide, "requested 2.0 GiB", "train in lower precision")
    wide.press("5")
    matched(wide, r"out of memory +GPU 0")


def test_tagged_processes_are_ended_by_one_signal_after_one_question(one: tuple[Lab, Terminal]) -> None:
    found, terminal = one
    sleeping = [subprocess.Popen(["sleep", "86400"], stdin=subprocess.DEVNULL) for _ in range(2)]
    try:
        pids = [process.pid for process in sleeping]
        found.stub.set_processes(0, [Process(found.training.pid, 11 * GIB), *map(Process, pids)])
        opened(terminal, "3", "M")
        shown(terminal, "GPU GiB▼", *map(str, pids))
        terminal.press("g", "j", "Space", "Space")
        shown(terminal, "2 tagged")
        terminal.press("K")
        shown(terminal, "End 2 processes?", *(f"{pid}  sleep, GPU 0, yours" for pid in pids))
        terminal.press("Enter")
        until(lambda: "End 2" not in terminal.screen())
        assert [process.poll() for process in sleeping] == [None, None], "No is the default"
        terminal.press("F9", "Tab", "Enter")
        assert [process.wait(PATIENCE) for process in sleeping] == [-signal.SIGTERM] * 2
        shown(terminal, "2 processes ended")
        assert found.training.program.poll() is None
    finally:
        found.stub.set_processes(0, [Process(found.training.pid, memory=11 * GIB, sm=71, mem=37)])
        for process in sleeping:
            process.kill()
            process.wait()


def test_it_is_compact_where_there_is_little_room(one: tuple[Lab, Terminal]) -> None:
    _, terminal = one
    opened(terminal, "1")
    for columns, rows, texts in ((40, 20, ("root", "llama-sft")), (20, 5, ("gpumon",)), (80, 24, ("llama-sft",))):
        terminal.resize(columns, rows)
        until(lambda columns=columns: max(map(len, terminal.screen().splitlines())) <= columns)  # type: ignore[misc]
        shown(terminal, *texts)
    terminal.resize(160, 50)
    shown(terminal, "allocated 6.0")


def test_theme_order_and_chart_are_kept_for_the_next_time(tmux: str, one: tuple[Lab, Terminal]) -> None:
    found, terminal = one
    opened(terminal, "2")
    shown(terminal, "Utilization   GPU 0")
    terminal.press("m")
    shown(terminal, "Memory   GPU 0")
    opened(terminal, "3", "P")
    shown(terminal, "CPU %▼")
    terminal.press("F2")
    shown(terminal, "theme: light")
    until(lambda: LIGHT in terminal("capture-pane", "-p", "-e"))
    kept = Path(found.env["HOME"], ".config", "gpumon", "tui.json")
    until(lambda: kept.exists() and json.loads(kept.read_text()).get("theme") == "light")
    terminal.press("q")
    until(terminal.is_over)
    again = Terminal(tmux, found.directory, found.env, command("tui"), "160x50")
    try:
        shown(again, "Attention")
        until(lambda: LIGHT in again("capture-pane", "-p", "-e"))
        again.press("3")
        shown(again, "CPU %▼", "train_sft.py")
        again.press("2")
        shown(again, "Memory   GPU 0")
    finally:
        again.close()


def test_every_feature_on_the_page_is_shown_by_a_test_that_there_is() -> None:
    root = Path(__file__).parents[2]
    rows = re.findall(
        r"^\| ([^|]+) \| ([^|]+) \|.*\|([^|]*)\|$", (root / "docs" / "inside" / "peers.md").read_text(), re.MULTILINE
    )
    shown_by = {name: by for name, has, by in rows if has.split(";")[0] not in ("gpumon", "no", "never", "---")}
    assert len(shown_by) > 15
    for name, by in shown_by.items():
        tests = re.findall(r"(?:`([\w/]+\.py)`: )?`(test_\w+)`", by)
        assert tests, name
        for file, test in tests:
            where = root / (file or "tests/tui/test_features_terminal.py")
            assert f"def {test}(" in where.read_text(), test


LIGHT = "48;5;230"
"""The ground of the light theme, as a terminal of 256 colors is told."""
