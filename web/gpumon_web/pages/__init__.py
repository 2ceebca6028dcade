"""The pages in the order of their tabs. To add one, add a module here and its page to `PAGES`."""

from __future__ import annotations

from gpumon_web.components.page import Page
from gpumon_web.pages import (
    compare,
    events,
    fleet,
    gpu,
    none,
    run,
    runs,
    users,
)

PAGES: dict[str, Page] = {
    page.name: page
    for page in (
        fleet.PAGE,
        gpu.PAGE,
        runs.PAGE,
        run.PAGE,
        compare.PAGE,
        users.PAGE,
        events.PAGE,
        none.PAGE,
    )
}
