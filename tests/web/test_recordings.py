"""Recordings of real trainings in the browser: what is shown moves, is labeled, and is what the file has."""

from __future__ import annotations

import csv
import gzip
from bisect import bisect
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.programs import until
from tests.web.conftest import PATIENCE_MS, own_places, visit, web

expect.set_options(timeout=PATIENCE_MS)

MOST = 2000
RECORDED = ("gpu.utilization", "gpu.power", "gpu.memory_used")
_LINES = """() => {
  const { doc } = document.querySelector(".page:not([hidden]) .plot").gpumonView;
  return Object.fromEntries(doc.panels.map((panel) => [panel.key, panel.lines[0].mean]));
}"""
_NOW = """() => [...gpumon.feed.feed.view.tables.get("gpus").rows.values()].map(
  (row) => [row.index, {
    "gpu.utilization": row.now, "gpu.power": row.power_watts, "gpu.memory_used": row.memory_used_bytes,
  }])"""

_POINTS = """() => {
  const view = document.querySelector(".page:not([hidden]) .plot").gpumonView;
  return view ? view.doc.panels[0].lines[0].mean.filter((value) => value !== null).length : 0;
}"""

# Both last for more than a minute: neither ends before a busy machine has looked at it. The second one is slow: that
# its rows are read as they are written is held by test_replay_truth, and its pages are in the matrix.
both = pytest.mark.parametrize(
    ("name", "gpus", "speed"),
    [
        ("h100x8-llama3-8b-ckpt100.csv.gz", 8, 10),
        pytest.param("titanx2-gpt350m.csv.gz", 2, 5, marks=pytest.mark.slow),
    ],
)


def written(path: Path, gpus: int) -> list[dict[str, list[float]]]:
    """By GPU and metric, all numbers that the file has, sorted; read here without gpumon's parser."""
    found: list[dict[str, set[float]]] = [{metric: set() for metric in RECORDED} for _ in range(gpus)]
    with gzip.open(path, "rt") as file:
        for place, (_, power, utilization, memory) in enumerate(list(csv.reader(file, skipinitialspace=True))[1:]):
            of = found[place % gpus]
            of["gpu.utilization"].add(int(utilization.split()[0]) / 100)
            of["gpu.power"].add(float(power.split()[0]))
            of["gpu.memory_used"].add(int(memory.split()[0]) * 2.0**20)
    return [{metric: sorted(values) for metric, values in of.items()} for of in found]


def is_written(value: float, known: list[float]) -> bool:
    """Whether the file has it, to the five digits that the page gets."""
    at = bisect(known, value)
    return any(value == pytest.approx(one, rel=1e-4, abs=1e-9) for one in known[max(0, at - 1) : at + 1])


def moves(page: Page, place: str) -> None:
    table = page.locator(place)
    for _ in range(3):
        seen = table.inner_text()
        until(lambda seen=seen: table.inner_text() != seen)  # type: ignore[misc]


def test_a_log_shows_how_far_it_is_and_why_nothing_moves_it(browser: Browser, tmp_path: Path) -> None:
    log = tmp_path / "gpus.csv"
    head = "timestamp, index, utilization.gpu [%]\n"
    log.write_text(head + "".join(f"2026/11/01 10:00:{second:02}.000, 0, 50 %\n" for second in range(60)))
    with (
        web("--source", f"replay:{log}", "--speed", "20", env=own_places(tmp_path)) as link,
        visit(browser, link) as visitor,
    ):
        page = visitor.open("#/")
        bar = page.locator("#player progress")
        expect(bar).to_be_visible()
        expect(page.locator("#player")).to_contain_text("'gpumon record' makes a recording of it")
        expect(page.locator("#player button")).to_have_count(0)
        until(lambda: bar.evaluate("(one) => one.value === one.max && one.max === 59"))


@both
def test_the_fleet_shows_what_the_file_has(
    browser: Browser, recordings: Path, tmp_path: Path, name: str, gpus: int, speed: int
) -> None:
    path = recordings / name
    source = ("--source", f"replay:{path}", "--speed", speed)
    with web(*source, env=own_places(tmp_path)) as link, visit(browser, link) as visitor:
        page = visitor.open("#/fleet")
        expect(page.locator("#label")).to_contain_text("REPLAY")
        expect(page.locator("#page-fleet tbody tr")).to_have_count(gpus)
        expect(page.locator("#page-fleet tbody .big").first).to_contain_text("%")
        known = written(path, gpus)
        for _ in range(3):
            before = page.evaluate("gpumon.feed.feed.seq")
            until(lambda before=before: page.evaluate("gpumon.feed.feed.seq") > before)  # type: ignore[misc]
            shown: list[tuple[int, dict[str, Any]]] = page.evaluate(_NOW)
            assert [index for index, _ in shown] == list(range(gpus))
            for index, values in shown:
                for metric in RECORDED:
                    assert is_written(values[metric], known[index][metric]), (index, metric, values[metric])
        moves(page, "#page-fleet .headlines")


@both
def test_a_gpu_shows_what_the_file_has(
    browser: Browser, recordings: Path, tmp_path: Path, name: str, gpus: int, speed: int
) -> None:
    path = recordings / name
    source = ("--source", f"replay:{path}", "--speed", speed)
    with web(*source, env=own_places(tmp_path)) as link, visit(browser, link) as visitor:
        page = visitor.open(f"#/gpu/1?window=all&panels={','.join(RECORDED)}")
        plot = page.locator("#page-gpu .plot")
        expect(plot).to_be_visible()
        until(lambda: page.evaluate(_POINTS) > 20)
        expect(page.locator("#label")).to_contain_text("REPLAY")
        known = written(path, gpus)[1]
        lines = page.evaluate(_LINES)
        for metric in RECORDED:
            values = [value for value in lines[metric] if value is not None]
            assert len(values) > 20, metric
            assert [value for value in values if not is_written(value, known[metric])] == [], metric
        moves(page, "#page-gpu .gutters")


@pytest.mark.slow
def test_no_line_has_more_points_than_a_screen_however_fast_a_recording_plays(
    browser: Browser, recordings: Path, tmp_path: Path
) -> None:
    path, longest = recordings / "h100x8-llama3-8b-ckpt100.csv.gz", 0
    # A busy machine leaves out ticks where a recording plays fast: with few of them nothing would be held.
    for speed in (100, 50, 25):
        source = ("--source", f"replay:{path}", "--speed", speed)
        places = own_places(tmp_path / str(speed))
        with web(*source, env=places) as link, visit(browser, link) as visitor:
            page = visitor.open("#/gpu/0?window=all")
            expect(page.locator("#page-gpu .plot[data-drawn]")).to_be_visible()
            for _ in range(150):
                page.wait_for_timeout(300)
                longest = max(longest, *map(len, page.evaluate(_LINES).values()))
                assert longest <= MOST
        if longest > MOST / 2:
            break
    assert longest > MOST / 2
