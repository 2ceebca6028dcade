"""The runs of this user, which are the only ones whose processes may be examined."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from threading import Thread

from gpumon.analysis.ranks import Ranks, ranks_of
from gpumon.common.paths import Places
from gpumon.live import Live
from gpumon.model.frame import Frame
from gpumon.tracking.board_directory import name_uid
from gpumon.tracking.tag_reader import TagReader


def read_own_runs(places: Places, frame: Frame | None = None) -> list[Ranks]:
    """Read the boards, and return the runs of this user that are running or have ended recently.

    Their pids are valid in this process. `frame`: a current frame, which contains the stalled runs. The boards alone do
    not show which runs are stalled, because one read does not show how long steps usually take.
    """
    reader = TagReader(places)
    try:
        runs = reader.poll().runs
    finally:
        reader.close()
    since = {run.key: run.facts.stalled_since for run in frame.runs} if frame is not None else {}
    own = [run for run in runs if name_uid(run.key) == os.geteuid()]
    return ranks_of(
        run._replace(facts=run.facts._replace(stalled_since=since.get(run.key) or run.facts.stalled_since))
        for run in own
    )


def current_frame(live: Live) -> Frame | None:
    """Return the newest frame; None if no sampler is running."""
    return live.latest() if live.state().live else None


def explain_in_background(ranks: Ranks) -> Callable[[], str | None]:
    """Start to find out why a run is stalled, for the event log of a daemon.

    Return a function that returns the sentence, or None while it is not available yet. The sentence is empty for runs
    of other users. `ranks`: the run, with pids that are valid in this process.
    """
    if any(name_uid(run.key) != os.geteuid() for run in ranks.all):
        return lambda: ""
    sentences: list[str] = []

    def explain() -> None:
        try:
            from gpumon.hang.report import collect  # loaded only when a run is stalled

            sentences.append(collect(ranks, time.time()).sentence)
        finally:
            sentences.append("")  # after an unexpected error, the event is logged without a sentence

    # A daemon thread, because a process that does not answer must not keep this process from ending.
    Thread(target=explain, name="gpumon-hang", daemon=True).start()
    return lambda: sentences[0] if sentences else None
