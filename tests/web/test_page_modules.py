"""Facts of every page, without a browser: a new page is tested by being in PAGES."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

import gpumon_web
from gpumon.analysis.gpu_state import GpuState
from gpumon.common.clock import SECOND
from gpumon.diagnosis.finding import Severity
from gpumon.model.frame import RunState
from gpumon.model.metrics import BY_NAME, PROCESSES, Availability
from gpumon_web.components import levels
from gpumon_web.components.machine import Now
from gpumon_web.components.page import KINDS, Args, Page, Rows, StoredSubject
from gpumon_web.document import skeleton
from gpumon_web.live.values import PageFeed
from gpumon_web.markup import to_html
from gpumon_web.pages import PAGES, none
from gpumon_web.stored import run_page
from gpumon_web.stored.events import EventChoice, read_window
from gpumon_web.stored.holder_strips import LastDay
from gpumon_web.stored.run_list import RunFilter
from gpumon_web.stored.user_hours import read_hours
from tests.activity import keep
from tests.builders import TIME, device, process, run, sample, tick
from tests.runs import BEGAN, Book, training
from tests.web.served import Served

MOST_PARTS = 100
"""Dash components in a layout: each is sent, put up and laid out before a page shows its first number."""
ASSETS = Path(gpumon_web.__file__).parent / "assets"
NAMING = (
    "data-bind", "data-show", "data-unless", "data-dim", "data-empty-from", "data-searched", "data-subject",
    "data-outline",
    "data-columns", "data-most", "data-titled", "data-needs", "data-ready", "data-period",
)  # fmt: skip
"""Attributes that name a value."""
GIB = 2.0**30
RUN = run().id
"""A run that both the ring and the ledger know."""
FINISHED = {
    "id": "net-1a2b", "name": "net", "user": "alice", "state": "finished", "started": 1.0, "seconds": 60.0,
    "epoch": "3/4", "epochs_done": 3, "epochs_before": 0, "epochs_planned": 4, "utilization_mean": 0.5, "energy": 9.0,
    "gpus": 2, "framework": "keras",
}  # fmt: skip
"""A run of the ledger, as its list has it."""
RUNNING = {
    "id": "new-3c4d", "name": " ", "user": "bob", "state": "running", "started": 1.0, "framework": "",
    "live": {"epoch": "2 (3/4)", "progress": 0.5, "left": 30.0, "gpus": ["GPU-1"]},
}  # fmt: skip
"""A run of which only the ring tells."""


def fleet() -> Now:
    """A busy GPU with a run, a free one, one that does not answer, and one that is unknown."""
    key = "tag.1000.11.aaaa"
    idle = {"utilization": 0.0, "memory_used": 0.0, "memory_total": 80 * GIB, "memory_reserved": GIB}
    samples = [
        sample(0, utilization=0.7, memory_used=20 * GIB, memory_total=80 * GIB, power=300.0, temperature=60.0,
               run=key),
        sample(1, **idle),
        sample(2, Availability.STALE)._replace(age=12.0),
        sample(3)._replace(device=device(3, missing={PROCESSES: Availability.NO_PERMISSION})),
    ]  # fmt: skip
    working = run(key, gpus=(device(0).uuid,), epoch=3, state=RunState.RUNNING)
    people = [process(11, 0, user="alice", run=key, memory_used=5 * GIB), process(12, 0, user="", memory_used=GIB)]
    served = Served([tick(number, samples, people, [working]) for number in range(1, 9)], devices=4)
    views = PageFeed(served.feed)
    with served.feed.lock:
        served.feed.refresh()
        return views.now()


def document(page: Page) -> Any:
    """What the ledger has for a page: the list of runs, or one that goes on and runs out of memory."""
    if page.kept_of is StoredSubject.ACCOUNTS:
        with TemporaryDirectory() as directory:
            path = Path(directory) / "history.sqlite"
            keep(path, [tick(number, [sample(0, utilization=0.5)], [process(1)]) for number in range(1, 99)])
            return read_hours(
                [str(path)], "week", "", "UTC", "", TIME / SECOND + 99, {"alice": ("0–2", ("GPU-1",)), "bob": ("3", ())}
            )
    if page.kept_of is StoredSubject.DAY:
        return LastDay(0.0, 3600.0)
    if page.kept_of is StoredSubject.EVENTS:
        with TemporaryDirectory() as directory:
            path = Path(directory) / "history.sqlite"
            keep(path, [tick(number, [sample(0, utilization=0.5)], [process(1)]) for number in range(1, 99)])
            return read_window([str(path)], EventChoice(), TIME / SECOND + 99)
    if page.kept_of is StoredSubject.RUNS:
        return {
            "runs": [FINISHED, RUNNING], "total": 3011, "kept": [FINISHED["id"]], "not_kept": "", "problem": "",
            "choice": RunFilter(user="bob"), "users": ["alice", "bob"], "frameworks": ["keras"],
        }  # fmt: skip
    with TemporaryDirectory() as directory, Book(Path(directory)) as book:
        training(book, RUN, 3, gpus=2)
        book.out_of_memory(f"tag.1000.4711.{RUN}")
        found, _ = run_page.run_document([str(book.path)], RUN, "", None, None, BEGAN + 90, None)
    assert found
    return {**found, "id": RUN, "now": BEGAN + 90}


def kept(page: Page) -> dict[str, Any]:
    """What a page shows of the ledger."""
    return page.kept(document(page)).values if page.kept else {}


def args(page: Page) -> Args:
    """Arguments of an address that names something."""
    return {**page.args, "id": RUN} if page.kept_of is StoredSubject.RUN else page.args


def parts(component: Any, attribute: str = "") -> list[Any]:
    """A layout's components, or those with an attribute."""
    assert page_layout_is_tree(component)
    found = [component, *component._traverse()]
    found = [one for one in found if hasattr(one, "to_plotly_json")]
    return [one for one in found if not attribute or getattr(one, attribute, None) is not None]


def page_layout_is_tree(component: Any) -> bool:
    return hasattr(component, "_traverse")


@pytest.fixture(params=PAGES.values(), ids=PAGES)
def page(request: pytest.FixtureRequest) -> Page:
    found: Page = request.param
    return found


def test_layout_and_values_name_the_same(page: Page) -> None:
    layout = page.layout()
    told = {**page.live(fleet(), args(page)), **kept(page)}
    bound = {getattr(one, name) for name in NAMING for one in parts(layout, name)} - {""}
    tables = {
        getattr(one, name) for name in ("data-rows", "data-within", "data-folds") for one in parts(layout, name)
    } - {""}
    assert bound == {name for name, value in told.items() if not isinstance(value, Rows)} - {
        "tab"
    }  # the title of the browser's tab, which no element shows
    assert tables == {name for name, value in told.items() if isinstance(value, Rows)}


def test_every_kind_is_one_that_the_scripts_know(page: Page) -> None:
    assert {getattr(one, "data-kind") for one in parts(page.layout(), "data-kind")} <= KINDS


def test_every_row_has_every_column_and_a_key(page: Page) -> None:
    told = {**page.live(fleet(), args(page)), **kept(page)}
    for table in parts(page.layout(), "data-rows"):
        columns = {getattr(one, name) for one in parts(table, "data-col") for name in ("data-col", "data-by")}
        rows = told[getattr(table, "data-rows")]
        assert rows
        assert len({row["key"] for row in rows}) == len(rows)
        for row in rows:
            assert columns <= set(row), row["key"]
        orders = {getattr(one, "data-col") for one in parts(table, "data-col")}
        assert getattr(table, "data-order") in orders


def test_values_are_json_and_name_the_same_whatever_is_known(page: Page) -> None:
    full, nothing = page.live(fleet(), args(page)), page.live(Now(), args(page))
    assert set(full) == set(nothing)
    json.dumps([full, nothing, kept(page)], allow_nan=False)


def test_lines_have_names_that_the_page_shows(page: Page) -> None:
    lines = page.series(fleet(), args(page))
    told = json.dumps(page.live(fleet(), args(page)))
    figures = parts(page.layout(), "data-figure")
    assert all(f'"series": ["{name}"' in told or (figures and name in BY_NAME) for name in lines)


def test_a_page_has_few_components(page: Page) -> None:
    assert len(parts(page.layout())) <= MOST_PARTS


def test_every_module_of_a_page_is_in_the_list() -> None:
    modules = {path.stem for path in (ASSETS.parent / "pages").glob("*.py")} - {"__init__"}
    assert modules == set(PAGES)


def test_each_name_is_an_address_and_a_place_that_exists() -> None:
    for name, page in PAGES.items():
        assert name == page.name
        assert name.isidentifier()
        assert not page.tab or PAGES[page.tab].is_tab
        assert not page.without_gpus or page.without_gpus in PAGES


def test_the_tabs_and_places_of_the_skeleton_are_the_pages() -> None:
    layout = skeleton(PAGES, signs_out=True)
    assert [getattr(one, "data-page") for one in parts(layout, "data-page")] == list(PAGES)
    assert [getattr(one, "data-tab") for one in parts(layout, "data-tab")] == [
        page.name for page in PAGES.values() if page.is_tab
    ]


def test_no_script_knows_a_page_that_has_a_module() -> None:
    scripts = list(ASSETS.glob("*.js"))
    assert len(scripts) > 8
    for path in scripts:
        text = path.read_text()
        for page in PAGES.values():
            for mention in (f'=== "{page.name}"', f"#/{page.name}", f"page-{page.name}", f"pages.{page.name}"):
                assert mention not in text, f"{path.name} names {mention}"


def test_reading_the_modules_of_pages_loads_no_dash() -> None:
    code = "import sys, gpumon_web.live.stored_values; print({'dash', 'fastapi', 'plotly'} & set(sys.modules))"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "set()"


def test_every_state_and_every_severity_has_a_level_that_the_style_knows() -> None:
    style = (ASSETS / "gpumon.css").read_text()
    assert set(levels.GPU_LEVELS) == set(GpuState)
    assert set(levels.RUN_LEVELS) == {state.name.lower() for state in RunState}
    assert set(levels.SEVERITY_LEVELS) == {None, *Severity}
    for level in {*levels.GPU_LEVELS.values(), *levels.RUN_LEVELS.values(), *levels.SEVERITY_LEVELS.values()} - {""}:
        assert f".tag.{level} " in style


def test_the_document_asks_for_no_script_of_components_that_no_page_has() -> None:
    text = Served([tick(1)]).client().get("/").get_data(as_text=True)
    asked = re.findall(r'<script src="[^"]*_dash-component-suites/([\w./@-]+?)\.', text)
    assert asked == [
        "dash/deps/polyfill@7", "dash/deps/react@18", "dash/deps/react-dom@18", "dash/deps/prop-types@15",
        "dash/dash-renderer/build/dash_renderer", "dash/dcc/dash_core_components",
        "dash/dcc/dash_core_components-shared", "dash/html/dash_html_components",
    ]  # fmt: skip
    assert {one.to_plotly_json()["namespace"] for one in parts(skeleton(PAGES, signs_out=True))} == {
        "dash_html_components"
    }


def test_the_document_has_the_layout_of_every_page() -> None:
    text = Served([tick(1)]).client().get("/").get_data(as_text=True)
    for page in PAGES.values():
        assert page.is_dash or to_html(page.layout()) in text


def test_no_driver_is_advised_where_there_is_no_card() -> None:
    drivers = [none.live(Now(problem="no driver", lacks_card=lacks), {})["remedy"] for lacks in (False, True)]
    assert ["driver" in text for text in drivers] == [True, False]
    assert all(drivers)
