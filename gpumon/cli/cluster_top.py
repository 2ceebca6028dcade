"""Pictures of a whole cluster for `gpumon top --prometheus`."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from gpumon.cli.cluster_options import open_engine
from gpumon.cli.streams import terminal_width
from gpumon.common.errors import EXIT_NO_GPU, EXIT_OK


@contextmanager
def cluster_pictures(
    arguments: argparse.Namespace, height: Callable[[], int]
) -> Iterator[Callable[[], tuple[list[str], int]]]:
    """A function that asks the engine, and returns the lines of the picture with the exit code for it.

    `height`: tells how many lines there is room for; 0 for any number.
    """
    engine, _ = open_engine(arguments)
    from gpumon.cluster.cost import cost_questions
    from gpumon.cluster.poller import ClusterPoller
    from gpumon.cluster.queries import QUESTIONS, Period, of_period, of_users
    from gpumon.reports.cluster_text import lines

    period = Period(arguments.period)
    prices, groups = arguments.prices, arguments.user_groups
    asked = (*of_period(QUESTIONS, period), *(of_users(period) if period.is_dated else ()))
    poller = ClusterPoller(engine, (*asked, *cost_questions(prices, periods=(period,))))

    def picture() -> tuple[list[str], int]:
        found = poller.round()
        answered = found.answers().get("gpus") and not found.is_old
        text = list(lines(found, engine.name, period, terminal_width(), prices, groups, height()))
        return text, EXIT_OK if answered else EXIT_NO_GPU

    try:
        yield picture
    finally:
        poller.close()
        engine.close()
