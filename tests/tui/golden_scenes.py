"""The screens that are kept as golden ones: on which machine, and which keys lead to them; its time stands still."""

from __future__ import annotations

import atexit
import tempfile
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from textual.events import Key
from textual.pilot import Pilot

from gpumon.common.clock import SECOND
from gpumon.common.config import Prices
from gpumon.common.paths import HISTORY
from gpumon.live import LiveState
from gpumon.model.frame import Frame, Run
from gpumon.model.metrics import Availability
from gpumon.model.process import Process
from gpumon.storage.ledger.reader import Ledgers
from gpumon_tui.app import GpumonApp
from gpumon_tui.screens.processes import ProcessesPage
from tests.fakes import FakeClock
from tests.tui.fakes import LIVE, FakeFeed
from tests.tui.golden_cells import GoldenScreen, screen_of
from tests.tui.kept_accounts import accounts_until
from tests.tui.screen import play
from tests.tui.test_events_page import logged
from tests.tui.test_processes_page import Confined
from tests.tui.test_runs_page import NOW, five_runs

SIZES = ((40, 20), (80, 24), (120, 40), (200, 50))
COUNTS = (0, 1, 2, 8, 16, 32)
SECONDS = 660
"""For which the machine has been watched."""
SILENT = LiveState(False, "stale: last seen 14:24:27 (15 s ago)", 1.0, 15.0)


class Scene(NamedTuple):
    """Keys from one screen to the next; or what happens to the machine."""

    file: str
    """The golden file, without the size."""
    name: str
    """Of a screen of that file."""
    keys: str = ""
    """As Textual names them."""
    happens: Callable[[FakeFeed], None] | None = None


class Session(NamedTuple):
    """Screens of one machine, one after the other."""

    feed: Callable[[], FakeFeed]
    scenes: tuple[Scene, ...]
    has_kept: bool = False
    """Whether there is a ledger of past runs, and a log of events."""
    prices: Prices | None = None


def _overview(gpus: int) -> Session:
    problem = "" if gpus else "the NVIDIA driver is not loaded"
    return Session(lambda: machine(gpus, problem=problem), (Scene("overview", f"{gpus} GPUs"),))


def _silent(feed: FakeFeed) -> None:
    feed.live = SILENT


class Log(FakeFeed):
    """A recording that knows no process and no run."""

    def processes(self, second: int) -> tuple[Process, ...]:
        return ()

    def runs(self, second: int) -> tuple[Run, ...]:
        return ()


def _log(gpus: int) -> FakeFeed:
    ended = LiveState(False, "ended", 1.0)
    return Log(gpus=gpus, seconds=SECONDS, source="replay", label="REPLAY x.csv.gz", live=ended, ended=True)


def _without_driver(feed: FakeFeed) -> None:
    feed.live, feed.state_of_all = LIVE, Availability.NO_DRIVER
    feed.advance()


SESSIONS: Mapping[str, Session] = {
    **{f"{gpus} GPUs": _overview(gpus) for gpus in COUNTS},
    "8 GPUs": Session(
        lambda: machine(8),
        (
            Scene("overview", "8 GPUs"),
            Scene("chart", "cursor", "2" + 9 * " left"),
            Scene("chart", "all GPUs laid over, of the past", "escape c c minus left_square_bracket"),
            Scene("chart", "metrics", "escape c enter"),
        ),
    ),
    "processes": Session(
        lambda: Confined(processes_count=30, seconds=SECONDS, label=""),
        (
            Scene("processes", "rows", "3 down down"),
            Scene("processes", "tree", "t"),
            Scene("processes", "by user", "t u"),
            Scene("processes", "filter", "u slash a l i"),
            Scene("process", "opened", "ctrl+u p i d : 1 0 3 7 enter enter"),
        ),
    ),
    "what is kept": Session(
        lambda: machine(8, source="nvml"),
        (
            Scene("runs", "list", "4"),
            Scene("runs-opened", "table", "down down down down down enter down"),
            Scene("runs-opened", "curves", "c"),
            Scene("runs-compared", "verdict", "escape v enter"),
            Scene("events", "rows", "5 down down"),
            Scene("events", "filter", "slash c a r o l enter"),
        ),
        has_kept=True,
    ),
    "accounts": Session(
        lambda: machine(4, source="nvml", kept_in=_accounts()),
        (
            Scene("accounts", "week", "3 A"),
            Scene("accounts", "month of one user, by GPU", "m down down enter"),
            Scene("accounts", "by day", "tab"),
        ),
        prices=Prices("EUR", {"default": 2.5}, (0.34,) * 24, co2=380.0),
    ),
    "states": Session(
        lambda: machine(8),
        (
            Scene("windows", "attention", "exclamation_mark"),
            Scene("windows", "help", "x question_mark"),
            Scene("windows", "commands", "x colon t h"),
            Scene("states", "paused", "escape space", lambda feed: feed.advance(8)),
            Scene("states", "stale", "space", _silent),
            Scene("states", "no driver", "", _without_driver),
        ),
    ),
    "replay": Session(
        lambda: machine(
            2, source="replay", label="REPLAY x.csv.gz ×4", speed=4.0, live=LiveState(True, "replayed", 1.0)
        ),
        (Scene("states", "replay"),),
    ),
    "log": Session(lambda: _log(8), (Scene("states", "log of nvidia-smi"),)),
}


@cache
def _frames(gpus: int, seconds: int) -> tuple[Frame, ...]:
    return tuple(FakeFeed(gpus=gpus, seconds=seconds).frames)


@cache
def _accounts() -> str:
    """A file of history with accounts."""
    directory = tempfile.TemporaryDirectory()
    atexit.register(directory.cleanup)
    return str(accounts_until(Path(directory.name) / HISTORY, NOW))


def machine(gpus: int, **options: Any) -> FakeFeed:
    """Return a machine of so many GPUs that has been watched for a while."""
    feed = FakeFeed(gpus=gpus, seconds=0, **{"label": "", **options})
    feed.frames = list(_frames(gpus, SECONDS))
    return feed


@cache
def screens(name: str, size: tuple[int, int]) -> dict[Scene, GoldenScreen]:
    """Return the screens of a session."""
    session = SESSIONS[name]
    found: dict[Scene, GoldenScreen] = {}
    feed = session.feed()

    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        for scene in session.scenes:
            for key in scene.keys.split():
                await _press(app, pilot, key)
            if scene.happens:
                scene.happens(feed)
                app.poll()
            await settle(app, pilot)
            found[scene] = screen_of(app)

    with tempfile.TemporaryDirectory() as directory:
        kept: dict[str, Any] = {}
        if session.has_kept:
            path = five_runs(Path(directory))
            kept = {"ledgers": lambda: Ledgers([path]), "read_events": logged}
        clock = FakeClock(start=SECONDS * SECOND, time=NOW * SECOND)

        def before(app: GpumonApp) -> None:
            app.view.ledger_runs.prices = session.prices

        play(feed, size, script, before=before, clock=clock, **kept)
    return found


def of_file(file: str, size: tuple[int, int]) -> dict[str, GoldenScreen]:
    """Return the screens of a golden file, by name."""
    return {
        scene.name: screen
        for name, session in SESSIONS.items()
        if any(scene.file == file for scene in session.scenes)
        for scene, screen in screens(name, size).items()
        if scene.file == file
    }


def all_screens(size: tuple[int, int]) -> Iterator[tuple[Scene, GoldenScreen]]:
    """Yield every screen of a size."""
    for name in SESSIONS:
        yield from screens(name, size).items()


def files() -> tuple[str, ...]:
    """Return the names of all golden files, without sizes."""
    return tuple(dict.fromkeys(scene.file for session in SESSIONS.values() for scene in session.scenes))


async def _press(app: GpumonApp, pilot: Pilot[Any], key: str) -> None:
    """Press a key, and wait for what it asks for where it opens something."""
    if app.screen is not app.screen_stack[0] or key in ("exclamation_mark", "question_mark", "colon"):
        await pilot.press(key)
        return
    await app.on_event(Key(key, key if len(key) == 1 else None))
    if key in (*"12345v", "enter", "escape"):
        await settle(app, pilot)


async def settle(app: GpumonApp, pilot: Pilot[Any]) -> None:
    """Wait until all has been read that is on screen, and is drawn."""
    app.draw()
    await pilot.pause()
    while not all(_idle(app)):
        await pilot.pause(0.005)
        app.draw()
    app.draw()
    await pilot.pause()


def _idle(app: GpumonApp) -> Iterator[bool]:
    yield app.view.ledger_runs.queries.is_idle
    if isinstance(app.page, ProcessesPage):
        yield app.page.detail.trail.asked.is_idle
