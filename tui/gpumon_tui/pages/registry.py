"""All pages, by name; a new one is one row here. A page is imported when it is opened first: most starts need one."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING

from gpumon_tui.keys import CHART, EVENTS, OVERVIEW, PROCESSES, RUNS

if TYPE_CHECKING:
    from gpumon_tui.pages.page import TerminalPage

Pages = Mapping[str, str]
"""Modules and classes, by the names of pages that keys know."""
REGISTERED: Pages = {
    OVERVIEW: "gpumon_tui.pages.overview:OverviewPage",
    CHART: "gpumon_tui.pages.chart.page:ChartPage",
    PROCESSES: "gpumon_tui.pages.processes:ProcessesPage",
    RUNS: "gpumon_tui.pages.runs:RunsPage",
    EVENTS: "gpumon_tui.pages.events:EventsPage",
}


def page_class(name: str, pages: Pages = REGISTERED) -> type[TerminalPage]:
    """Return the class of a page."""
    module, _, of = pages[name].partition(":")
    found: type[TerminalPage] = getattr(import_module(module), of)
    return found
