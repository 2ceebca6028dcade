"""The pages in the order of their tabs. A new page is a module here, and a name in `PAGES`."""

from __future__ import annotations

from gpumon_web.page import Page
from gpumon_web.pages import fleet, gpu, none, runs

_BY_SCRIPTS = (Page("run", "Run", is_tab=False, tab="runs", needs_id=True),)
"""Pages that scripts of their own still draw (assets/63-run.js)."""

PAGES: dict[str, Page] = {
    page.name: page for page in (fleet.PAGE, gpu.PAGE, runs.PAGE, *_BY_SCRIPTS, none.PAGE)
}  # fmt: skip
