"""A session of the terminal view: from the first look at the terminal to the exit code."""

from __future__ import annotations

import gc
import os
import sys
from typing import TYPE_CHECKING

from gpumon_tui.app import GpumonApp
from gpumon_tui.data.events import OpenEvents
from gpumon_tui.data.run_ledger import OpenLedgers
from gpumon_tui.feed import FindDaemon, FrameFeed, Past, Player, Simulation
from gpumon_tui.guard import Guard
from gpumon_tui.look import of_terminal
from gpumon_tui.notifications import TerminalNews, to_terminal
from gpumon_tui.preferences import Remembered, path_of
from gpumon_tui.themes import BY_NAME as THEMES

if TYPE_CHECKING:
    from gpumon.common.config import Prices

GARBAGE = 10_000
"""New objects after which garbage is looked for: a tick makes and drops hundreds, hardly any of them in a cycle."""


def run(
    feed: FrameFeed,
    *,
    interval: float = 1.0, simulation: Simulation | None = None, past: Past | None = None, player: Player | None = None,
    ledgers: OpenLedgers | None = None,
    simulated_ledgers: OpenLedgers | None = None,
    readonly: bool = False,
    read_events: OpenEvents | None = None,
    remembered: Remembered | None = None,
    notify: bool = False,
    daemon: FindDaemon | None = None,
    prices: Prices | None = None,
) -> int:  # fmt: skip
    """Show `feed` until the user quits, or until a signal or the end of the terminal ends it; the exit code.

    `simulated_ledgers` opens what a simulation keeps of its runs while it is shown.
    `readonly`: no signal is sent to a process.
    `daemon` finds one that begins later: from then on it is shown.
    `prices`: what runs cost, where that is configured.
    `notify`: the terminal is asked to notify of runs that end and GPUs that become free.
    Raises what crashed the view; the terminal is given back before.
    """
    gc.set_threshold(GARBAGE)
    app = GpumonApp(
        feed, interval=interval, simulation=simulation, past=past, player=player, ledgers=ledgers,
        read_events=read_events, daemon=daemon,
    )  # fmt: skip
    app.view.kept.prices, app.view.kept.simulated = prices, simulated_ledgers
    app.view.is_readonly = readonly
    encoding = sys.__stderr__.encoding if sys.__stderr__ is not None else ""
    app.view.remembered = remembered or Remembered(path_of(os.environ))
    look = of_terminal(os.environ, app.console.color_system, encoding)
    app.view.look = look._replace(theme=THEMES.get(app.view.remembered.get("theme"), look.theme))
    app.news = TerminalNews(os.environ, app.write_aside, notifies=notify)
    gc.freeze()  # modules stay: to walk through them again and again would find nothing, and hold up the keys
    with Guard(app.end).watching():
        app.run()
    app.news.end(to_terminal)
    app.instead.close()
    app.view.remembered.close()
    if app.failure is not None:
        raise app.failure
    return app.return_code or 0
