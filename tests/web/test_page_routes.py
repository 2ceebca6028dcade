"""The routes of the pages: whatever is asked, no answer is an error of ours, and each is of a kind that pages know."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpumon_web.pages import PAGES
from gpumon_web.routes.pages import PREFIX
from tests.builders import device
from tests.fuzzing import examples
from tests.web.api import NOW, RUN, make
from tests.web.served import Served

STATUSES = {"application/json": {200, 400, 404}, "text/csv": {200}}
"""What an answer of each type may say."""
_PAGES = [*PAGES, "", "nothing"]
_NAMES = sorted({
    "page", "boot", "since", "rest", "id", "gpu", "from", "to", "window", "points", "panels", "at",
    *(name for page in PAGES.values() for name in (*page.args, *page.kept_args)),
})  # fmt: skip
_NUMBERS = st.one_of(
    st.sampled_from([NOW, NOW + 60, NOW - 3600, 0, -1, 1e11, 1e12, 2**63, 1e-300]), st.floats(), st.integers()
).map(str)
_WORDS = st.sampled_from([
    RUN, "vit-2b3c", f"{RUN},vit-2b3c", "evil-3c4d", "each", "0", "3", device().uuid, "bob", "all", "day", "week",
    "month", "2026-10-25", "9999-12-31", "0001-01-01", "Europe/Berlin", "../../etc/localtime", "UTC", "24h", "31d",
    "health", "epoch", "step", "time", "gpu.power,gpu.fan", "running", "x" * 300, "%00", "\x00", "é" * 60,
])  # fmt: skip
VALUES = st.one_of(_WORDS, _NUMBERS, st.text(max_size=30))


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Served:
    return make(tmp_path_factory.mktemp("routes"), days=2)


def routes() -> list[str]:
    """Those of the pages, without those for programs."""
    found = [route for route in Served().app.server.routes if route.name.startswith(PREFIX)]
    return sorted(route.path for route in found if not route.path.startswith("/api/v1"))


def test_the_routes_are_found_by_asking_the_app() -> None:
    assert {"/api/delta", "/api/kept", "/api/gpu", "/api/run/zoom", "/api/run.csv", "/api/users.csv"} <= set(routes())


@pytest.mark.parametrize("path", routes())
def test_whatever_is_asked_no_answer_is_an_error_of_ours(served: Served, path: str) -> None:
    client = served.client()

    @settings(max_examples=examples(120), deadline=None, suppress_health_check=list(HealthCheck), database=None)
    @given(st.sampled_from(_PAGES), st.dictionaries(st.sampled_from(_NAMES), VALUES, max_size=6))
    def whatever(page: str, query: dict[str, str]) -> None:
        answer = client.get(path, query_string={"page": page, **query})
        assert answer.status_code in STATUSES[answer.mimetype], (answer.status_code, answer.mimetype)
        if answer.mimetype == "application/json":
            json.loads(answer.get_data(as_text=True), parse_constant=pytest.fail)
        if answer.mimetype == "text/csv":
            assert list(csv.reader(io.StringIO(answer.get_data(as_text=True)), strict=True))

    whatever()


@pytest.mark.parametrize("page", PAGES)
def test_no_argument_of_a_page_leads_out_of_its_values(served: Served, page: str) -> None:
    """Whatever an address names: the page answers, with the values that it always has."""
    usual = set(served.json(f"/api/delta?page={page}")["values"])

    @settings(max_examples=examples(60), deadline=None, suppress_health_check=list(HealthCheck), database=None)
    @given(st.dictionaries(st.sampled_from([*PAGES[page].args, "id", "nothing"]), VALUES, max_size=3))
    def whatever(query: dict[str, str]) -> None:
        answer = served.client().get("/api/delta", query_string={**query, "page": page})
        assert answer.status_code == 200
        assert set(answer.get_json()["values"]) == usual

    whatever()


def test_the_ledger_is_read_only_for_the_runs_that_it_has(tmp_path: Path) -> None:
    found = make(tmp_path, days=1)
    answer = found.client().get("/api/run.csv?id=../../../etc/passwd")
    assert answer.status_code == 404
