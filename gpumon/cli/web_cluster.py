"""The pages of a whole cluster for `gpumon web --prometheus`."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from gpumon.cli.cluster_options import open_engine

if TYPE_CHECKING:
    from dash import Dash

    from gpumon_web.gate import Gate
    from gpumon_web.person_colors import PersonColors


@contextmanager
def cluster_app(arguments: argparse.Namespace, colors: PersonColors) -> Iterator[Callable[[Gate], Dash]]:
    """Yield what makes the app of the cluster of `--prometheus`; its one poller asks while somebody looks."""
    engine, access = open_engine(arguments)
    from gpumon.cluster.cost import cost_questions
    from gpumon.cluster.poller import ClusterPoller
    from gpumon.cluster.queries import OF_GPUS, QUESTIONS
    from gpumon_web.app import make_cluster_app
    from gpumon_web.cluster.pages import CLUSTER_PAGES
    from gpumon_web.cluster.views import ClusterViews

    poller = ClusterPoller(engine, (*QUESTIONS, *OF_GPUS, *cost_questions(arguments.prices)))
    views = ClusterViews(poller, engine.name, arguments.prices, access.node_page, arguments.user_groups)
    views.colors = colors
    try:
        poller.start()
        yield lambda gate: make_cluster_app(views, CLUSTER_PAGES, gate)
    finally:
        poller.close()
        engine.close()
