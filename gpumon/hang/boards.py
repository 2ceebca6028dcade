"""Reads the runs of this user from their boards, with the pids that are valid in this process."""

from __future__ import annotations

import os

from gpumon.analysis.ranks import Ranks, ranks_of
from gpumon.common.paths import Places
from gpumon.live import Live
from gpumon.model.frame import Frame
from gpumon.tracking.board_directory import name_uid
from gpumon.tracking.tag_reader import TagReader


def read_own_runs(places: Places, frame: Frame | None = None) -> list[Ranks]:
    """Return the runs of this user that are running or have ended recently.

    `frame`: a current frame, from which it is known whether a run is stalled. The boards alone do not tell it, because
    one look at them does not show how long steps usually take.
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
