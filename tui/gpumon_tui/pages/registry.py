"""All pages, by name; a new one is one row here."""

from __future__ import annotations

from gpumon_tui.pages.overview import OverviewPage
from gpumon_tui.pages.page import TerminalPage

REGISTERED: tuple[type[TerminalPage], ...] = (OverviewPage,)
BY_NAME: dict[str, type[TerminalPage]] = {page.name_shown: page for page in REGISTERED}
