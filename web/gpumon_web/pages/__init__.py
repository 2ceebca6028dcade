"""The pages in the order of their tabs. A new page is a module here, and a name in `PAGES`."""

from __future__ import annotations

from gpumon_web.page import Page
from gpumon_web.pages import fleet, runs

_BY_SCRIPTS = (
    Page("gpu", "GPU", without_gpus="none"),
    Page("run", "Run", is_tab=False, tab="runs", needs_id=True),
    Page("none", "No GPU", is_tab=False, tab="fleet"),
)
"""Pages that scripts of their own still draw (assets/61-gpu.js, 63-run.js and 64-none.js)."""

PAGES: dict[str, Page] = {
    page.name: page for page in (fleet.PAGE, _BY_SCRIPTS[0], runs.PAGE, *_BY_SCRIPTS[1:])
}  # fmt: skip
