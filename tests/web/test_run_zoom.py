"""Zooming into the figure of a run: finer points from the last frames and from kept history, of the run alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from gpumon.frame import RunState, Tick
from tests.builders import TIME, device, run, sample, tick
from tests.programs import until
from tests.runs import BEGAN, Book
from tests.web.conftest import PATIENCE_MS, on_a_port, visit
from tests.web.served import Served

expect.set_options(timeout=PATIENCE_MS)

NET = "net-1a2b"
KEY = "tag.1000.4711.abcd"
UUID = device().uuid
ZOOM = f"/api/run/zoom?id={NET}&gpu={UUID}"
STALL = 500
LENGTH = 600
_SEEN = """() => {
  const place = document.querySelector("#page-run .plot");
  const line = (place.data || []).find((one) => one.name === "Utilization");
  if (!line) { return null; }
  const [from, to] = place.layout.xaxis.range;
  const points = line.x.map((x, at) => [x, line.y[at]]).filter(([x, y]) => x >= from && x <= to && y !== null);
  return { from: from / 1000, to: to / 1000, points: points.length, low: Math.min(...points.map(([, y]) => y)),
           panels: Object.keys(place.layout).filter((name) => name.startsWith("yaxis")).length };
}"""


def at(second: float, *, runs: bool) -> Tick:
    """A tick `second` seconds after the run began, busy but for one of them."""
    going = run(KEY, id=NET, started=BEGAN, state=RunState.RUNNING, epoch=second // 100, epoch_started=BEGAN + 500.0,
                gpus=(UUID,))  # fmt: skip
    busy = 0.0 if second == STALL else 0.9
    one = sample(0, utilization=busy, memory_used=4e9, memory_total=8e10, run=KEY if runs else "")
    found = tick(1, [one], runs=[going] if runs else [])
    return found._replace(monotonic_ns=round(second * 1e9), time_ns=TIME + round(second * 1e9))


def served(directory: Path, state: RunState = RunState.RUNNING, missing: range = range(0)) -> Served:
    """A run of ten minutes, with the last 400 s in the ring and points of 20 s in the ledger."""
    is_over = state is not RunState.RUNNING
    with Book(directory) as book:
        ended = (BEGAN + LENGTH) * 10**9 if is_over else None
        rank = book.rank(book.run(NET, started=BEGAN * 10**9, ended=ended, state=state), key=KEY, state=state)
        book.device(rank, 0, uuid=UUID)
        for epoch in range(6):
            begun = (BEGAN + 100 * epoch) * 10**9
            book.epoch(rank, epoch, begun=begun, ended=begun + 100 * 10**9, seconds=100.0)
        points = LENGTH // 20 if is_over else 20
        book.trace(
            rank, UUID, {"gpu.utilization": [(0.8,) * 3] * points, "gpu.memory_used": [(4e9,) * 3] * points}, 20.0
        )
    ticks = [at(second, runs=not is_over) for second in range(200, LENGTH + 60 * is_over) if second not in missing]
    return Served(ticks, [str(book.path)])


def utilization(figure: dict[str, Any]) -> dict[float, float | None]:
    """The line by seconds after the run began."""
    line = next(one for one in figure["data"] if one.get("name") == "Utilization" and one["mode"] == "lines")
    return {(line["x0"] + place * line["dx"]) / 1000 - BEGAN: value for place, value in enumerate(line["y"])}


@pytest.mark.parametrize("state", [RunState.RUNNING, RunState.FINISHED, RunState.DIED])
def test_a_part_of_a_run_has_the_samples_that_are_still_in_the_ring(tmp_path: Path, state: RunState) -> None:
    found = served(tmp_path, state)
    whole = found.json(f"/api/kept?page=run&id={NET}")["figures"]["course"]
    assert (whole["step"], whole["finer"]) == (20.0, ZOOM[1:])
    part = found.json(f"{ZOOM}&from={BEGAN + 450}&to={BEGAN + 550}")["figure"]
    assert part["step"] == 1
    line = utilization(part)
    assert [second for second, value in line.items() if value == 0] == [STALL + 0.5]
    assert 450 <= min(line) <= max(line) <= 551
    assert 0.0 not in utilization(whole).values() or state is RunState.RUNNING
    for name in ("xaxis", *(name for name in whole["layout"] if name.startswith("yaxis"))):
        assert part["layout"][name].get("domain") == whole["layout"][name].get("domain"), "the same panels"
    assert part["layout"]["xaxis"]["range"] == whole["layout"]["xaxis"]["range"], "and the same whole"
    for kind in ("annotations", "shapes"):
        marks = [[one for one in each["layout"][kind] if one.get("xref") == "x"] for each in (whole, part)]
        assert marks[0] == marks[1] != [], "and the same epochs"


def test_a_gap_in_the_ring_is_a_gap_in_the_part(tmp_path: Path) -> None:
    found = served(tmp_path, RunState.FINISHED, missing=range(460, 475))
    part = found.json(f"{ZOOM}&from={BEGAN + 440}&to={BEGAN + 490}")["figure"]
    assert all(value is None for second, value in utilization(part).items() if 468 < second < 474)
    assert [shape for shape in part["layout"]["shapes"] if shape.get("fillcolor") == "@u7/0.16"]


def test_the_part_is_of_the_run_and_its_device_alone(tmp_path: Path) -> None:
    found = served(tmp_path, RunState.FINISHED)
    end = max(utilization(found.json(f"{ZOOM}&from={BEGAN + 590}&to={BEGAN + 10_000}")["figure"]))
    assert end < LENGTH + 1, "the ring has a minute more of this GPU"
    assert found.json(f"{ZOOM}&from={BEGAN + 700}&to={BEGAN + 800}") == {"figure": None}
    client = found.client()
    for gpu, name in ((device(1).uuid, NET), ("", NET), ("0", NET), (UUID, "nope"), (UUID, ""), ("x" * 500, NET)):
        assert client.get(f"/api/run/zoom?id={name}&gpu={gpu}&from={BEGAN}&to={BEGAN + 9}").status_code == 404


def test_where_history_has_nothing_the_trace_is_all_there_is(tmp_path: Path) -> None:
    found = served(tmp_path)
    assert found.json(f"{ZOOM}&from={BEGAN + 20}&to={BEGAN + 120}") == {"figure": None}


@pytest.mark.parametrize("value", ["x", "NaN", "Infinity", "-1e999", "1e12", "1;DROP", "%00", "0x10", "9" * 100])
def test_a_time_that_is_none_is_refused(tmp_path: Path, value: str) -> None:
    client = served(tmp_path).client()
    assert client.get(f"/api/gpu?gpu=0&from={value}&to=1").status_code == 400
    assert client.get(f"{ZOOM}&from={value}&to={BEGAN}").status_code == 400
    assert client.get(f"{ZOOM}&from={BEGAN}&to={value}").status_code == 400


@pytest.mark.parametrize("window", ["", f"&from={BEGAN + 9}&to={BEGAN}", "&from=-1e11&to=1e11", f"&to={BEGAN}"])
def test_a_window_that_is_none_or_beyond_the_run_is_all_of_it(tmp_path: Path, window: str) -> None:
    line = utilization(served(tmp_path).json(ZOOM + window)["figure"])
    assert len(line) <= 2000
    assert 0 <= min(line) < 2
    assert LENGTH - 2 <= max(line) <= LENGTH + 1


def test_nobody_can_write_there(tmp_path: Path) -> None:
    assert served(tmp_path).client().post(ZOOM).status_code == 405


def seen(page: Page) -> Any:
    return page.evaluate(_SEEN)


@pytest.mark.parametrize("state", [RunState.RUNNING, RunState.FINISHED])
def test_zooming_into_a_run_shows_more_points_and_a_double_click_all_of_it(
    browser: Browser, tmp_path: Path, state: RunState
) -> None:
    with on_a_port(served(tmp_path, state)) as link, visit(browser, link) as visitor:
        page = visitor.open(f"#/run/{NET}")
        until(lambda: seen(page))
        before = seen(page)
        box = page.locator("#page-run .plot .nsewdrag").first.bounding_box()
        assert box is not None
        y = box["y"] + box["height"] / 2
        ends = [box["x"] + (second / LENGTH) * box["width"] for second in (450, 540)]
        with page.expect_response(lambda answer: "/api/run/zoom?" in answer.url):
            page.mouse.move(ends[0], y)
            page.mouse.down()
            page.mouse.move(sum(ends) / 2, y, steps=3)
            page.mouse.move(ends[1], y, steps=3)
            page.mouse.up()
            page.mouse.move(5, 5)
        until(lambda: seen(page)["points"] > 60)
        now = seen(page)
        assert 80 < now["to"] - now["from"] < 100
        assert now["low"] == 0, "the second that stood still"
        assert now["panels"] == before["panels"]
        expect(page.get_by_role("button", name="Whole run")).to_be_visible()
        page.mouse.dblclick((ends[0] + ends[1]) / 2, y)
        until(lambda: seen(page)["to"] - seen(page)["from"] > 500)
        assert seen(page)["points"] == before["points"]
        expect(page.get_by_role("button", name="Whole run")).to_be_hidden()
