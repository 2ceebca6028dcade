"""Both views with much data: 5,000 runs, one of them of 10,000 epochs, 10,000 events, 32 GPUs and 2,048 processes.

Each key is timed from the byte written to the last byte of the next frame, on every page of the terminal view; details
of rows that the ledger is still asked for follow in later frames. The pages of the browser view are opened in a browser
that was nowhere yet, from the navigation to the frame in which the page shows its data. CPU is that of each program
while nothing is pressed. Everything is measured with little data and as many GPUs as well, in the same run: what grows
with data shows by the difference.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

from benchmarks.browser import chromium, load, missing, visitor
from benchmarks.ledger import fill
from benchmarks.report import Budget, Result, number
from benchmarks.stage import Effort, Place, Stage, tool
from benchmarks.terminal import Terminal, in_terminal
from benchmarks.usage import Figures, watch_cpu
from benchmarks.web import web
from gpumon.common.clock import SECOND
from gpumon.common.paths import HISTORY, LEDGER
from gpumon.model.events import Event, EventSubject
from gpumon.storage.events.log import EventBatch, write_events
from gpumon.storage.history.schema import HISTORY_FILE
from gpumon.storage.sqlite.write import open_to_write, transaction
from tests.nvml import sleepers
from tests.programs import daemon

RUNS, EPOCHS, EVENTS, GPUS, PROCESSES = 5000, 10_000, 10_000, 32, 2048
FEW_RUNS, FEW_EPOCHS, FEW_EVENTS, FEW_PROCESSES = 50, 100, 100, 40
LONG_RUN = f"net-{RUNS:08x}"
_EVENT_INTERVAL = 60
"""Seconds between two events."""
_PAGES = {b"1": b"jk?:", b"2": b"j-[0wc", b"3": b"jkGgot", b"4": b"jkGgo\r", b"5": b"jkn\t"}
"""Keys to press on each page of the terminal view. Escape follows a key that opens something."""
_SHOWN = {
    "fleet": 'document.querySelector("#page-fleet tbody .big")',
    "gpu/0": 'document.querySelector("#page-gpu .plot[data-drawn]")',
    "runs": 'document.querySelector("#page-runs tbody tr")',
    f"run/{LONG_RUN}": 'document.querySelector("#page-run .plot[data-drawn]")',
    "events": 'document.querySelector("#page-events tbody tr")',
    "users": 'document.querySelector("#page-users tbody tr")',
}
_WARM = 8.0


def measure(stage: Stage, effort: Effort) -> Result:
    """The terminal, then the browser, each with little data and with much."""
    result = Result("The views with much data", ("what", "little data, median", "most", "much data, median", "most"))
    rows: dict[str, list[str]] = {}
    with ExitStack() as stack:
        few = _place(stage, "few", GPUS, stack.enter_context(sleepers(FEW_PROCESSES)), FEW_RUNS, FEW_EPOCHS,
                     FEW_EVENTS)  # fmt: skip
        many = _place(stage, "many", GPUS, stack.enter_context(sleepers(PROCESSES)), RUNS, EPOCHS, EVENTS)
        for place in (few, many):
            keys, cpu = _terminal(place, effort)
            for key, figures in keys.items():
                rows.setdefault(f"key {key}, ms", []).extend(_cells(figures, 1000))
            rows.setdefault("CPU of the terminal, s a minute", []).extend(_cells(cpu, 1))
            worst = max(figures.median for figures in keys.values())
        result.budgets.append(Budget("slowest key with much data", 1000 * worst, 100, " ms"))
        if why := missing():
            result.notes.append(f"The browser is not measured: {why}.")
        else:
            for place in (few, many):
                pages, cpu = _browser(place, effort)
                for page, figures in pages.items():
                    rows.setdefault(f"page {page}, s", []).extend(_cells(figures, 1))
                rows.setdefault("CPU of the server with a viewer of the fleet, s a minute", []).extend(_cells(cpu, 1))
                slowest = max(figures.median for figures in pages.values())
            result.budgets.append(Budget("slowest page with much data", slowest, 1.5, " s"))
    result.rows += [(name, *cells) for name, cells in rows.items()]
    result.notes.append(
        f"{RUNS:,} runs, {EPOCHS:,} epochs of one, {EVENTS:,} events, {GPUS} GPUs, {PROCESSES:,} processes; "
        f"little data: {FEW_RUNS}, {FEW_EPOCHS}, {FEW_EVENTS}, {GPUS}, {FEW_PROCESSES}"
    )
    return result


def _place(stage: Stage, name: str, gpus: int, pids: list[int], runs: int, epochs: int, events: int) -> Place:
    place = stage.place(name, gpus=gpus)
    place.stub.spread(pids)
    state = Path(place.env["GPUMON_STATE_DIR"])
    state.mkdir(parents=True, exist_ok=True)
    fill(state / LEDGER, runs, 3)
    fill(state / LEDGER, 1, epochs, first=RUNS)
    _fill_events(state / HISTORY, events)
    return place


def _fill_events(path: Path, count: int) -> None:
    log = [*_events(count)]
    batch = EventBatch(log, [], time.time_ns(), is_settled=False)
    with (
        closing(open_to_write(str(path), HISTORY_FILE, shared=False, uid=os.getuid(), log=print)) as file,
        transaction(file),
    ):
        write_events(file, batch, "boot")


def _events(count: int) -> Iterator[Event]:
    first = time.time_ns() - count * _EVENT_INTERVAL * SECOND
    for index in range(count):
        subject = EventSubject(f"GPU-{index % 8:08d}", user=f"user{index % 5}", cause="31")
        yield Event(first + index * _EVENT_INTERVAL * SECOND, "xid", subject, {"code": 31})


def _terminal(place: Place, effort: Effort) -> tuple[dict[str, Figures], Figures]:
    """Seconds from each key to the end of its answer, by page and key; seconds of CPU a minute without keys."""
    gpumon = tool("gpumon")
    command = [gpumon, "tui"] if gpumon else [sys.executable, "-m", "gpumon", "tui"]
    keys: dict[str, Figures] = {}
    with daemon(env=place.env), in_terminal(command, place) as terminal:
        time.sleep(_WARM)
        cpu = watch_cpu({"tui": terminal.process.pid}, effort.seconds / 2, 3)["tui"]
        for turn in range(effort.rounds // 2 + 1):
            for page, letters in _PAGES.items():
                _press(terminal, keys if turn else {}, page, page)
                for letter in letters:
                    key = bytes((letter,))
                    _press(terminal, keys if turn else {}, page, key)
                    if key in b"?:o\r":
                        terminal.press(b"\x1b")
    return keys, cpu


def _press(terminal: Terminal, keys: dict[str, Figures], page: bytes, key: bytes) -> None:
    name = f"{page.decode()} {key.decode()!r}" if key != page else f"{page.decode()}: open"
    keys.setdefault(name, Figures()).add(terminal.press(key, whole=True))


def _browser(place: Place, effort: Effort) -> tuple[dict[str, Figures], Figures]:
    """Seconds to the first paint of each page; seconds of CPU a minute of the server, with a viewer of the fleet."""
    pages: dict[str, Figures] = {}
    with daemon(env=place.env), web(place) as (pid, port, token), chromium() as browser:
        link = f"http://127.0.0.1:{port}/?token={token}"
        for turn in range(max(3, effort.rounds // 2)):
            for page, shown in _SHOWN.items():
                with visitor(browser, shown) as context:
                    painted = load(context, f"{link}#/{page}").painted
                if turn:
                    pages.setdefault(page.partition("-")[0], Figures()).add(painted)
        with visitor(browser, _SHOWN["fleet"]) as context:
            context.new_page().goto(link)
            time.sleep(_WARM / 2)
            return pages, watch_cpu({"web": pid}, effort.seconds / 2, 3)["web"]


def _cells(figures: Figures, scale: float) -> tuple[str, str]:
    return number(scale * figures.median), number(scale * max(figures.values))
