"""Finds out in the background why a run is stalled, for the event log of a daemon."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from threading import Thread

from gpumon.analysis.ranks import Ranks
from gpumon.tracking.board_directory import name_uid


def explain_in_background(ranks: Ranks) -> Callable[[], str | None]:
    """Begin to find out why a run is stalled, and return a function that gives the sentence, or None until it is there.

    The sentence is empty for runs of other users. `ranks`: the run, with pids that are valid in this process.
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
