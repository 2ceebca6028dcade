"""Zooming into the figure of a run: finer points from the last frames and from kept history, of the run alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

from gpumon.model.frame import RunState, Tick
from tests.builders import TIME, device, run, sample, tick
from tests.programs import until
from tests.runs import BEGAN, Book
from tests.web import charted
from tests.web.conftest import PATIENCE_MS, on_a_port, visit
from tests.web.served import Served

expect.set_options(timeout=PATIENCE_MS)

NET = "net-1a2b"
KEY = "tag.1000.4711.abcd"
UUID = device().uuid
ZOOM = f"/api/run/zoom?id={NET}&gpu={UUID}"
STALL = 500
LENGTH = 600


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


def utilization(chart: dict[str, Any]) -> dict[float, float | None]:
    """The line by seconds after the run began."""
    return {time - BEGAN: value for time, value in charted.points(chart, "gpu.utilization")}


@pytest.mark.parametrize("state", [RunState.RUNNING, RunState.FINISHED, RunState.DIED])
def test_a_part_of_a_run_has_the_samples_that_are_still_in_the_ring(tmp_path: Path, state: RunState) -> None:
    found = served(tmp_path, state)
    whole = found.json(f"/api/kept?page=run&id={NET}")["figures"]["course"]
    assert (whole["step"], whole["finer"]) == (20.0, ZOOM[1:])
    part = found.json(f"{ZOOM}&from={BEGAN + 450}&to={BEGAN + 550}")["chart"]
    assert part["step"] == 1
    line = utilization(part)
    assert [second for second, value in line.items() if value == 0] == [STALL + 0.5]
    assert 450 <= min(line) <= max(line) <= 551
    assert 0.0 not in utilization(whole).values() or state is RunState.RUNNING
    assert [one["key"] for one in part["panels"]] == [one["key"] for one in whole["panels"]], "the same panels"
    assert part["runs"] == whole["runs"] != [], "and the same epochs"
    assert [band[:3] for band in part["runs"][0]["bands"]] == [
        [BEGAN + 100 * epoch, BEGAN + 100 * (epoch + 1), epoch] for epoch in range(6)
    ]


def test_a_gap_in_the_ring_is_a_gap_in_the_part(tmp_path: Path) -> None:
    found = served(tmp_path, RunState.FINISHED, missing=range(460, 475))
    part = found.json(f"{ZOOM}&from={BEGAN + 440}&to={BEGAN + 490}")["chart"]
    assert all(value is None for second, value in utilization(part).items() if 468 < second < 474)
    assert any(value is None for value in utilization(part).values())


def test_the_part_is_of_the_run_and_its_device_alone(tmp_path: Path) -> None:
    found = served(tmp_path, RunState.FINISHED)
    end = max(utilization(found.json(f"{ZOOM}&from={BEGAN + 590}&to={BEGAN + 10_000}")["chart"]))
    assert end < LENGTH + 1, "the ring has a minute more of this GPU"
    assert found.json(f"{ZOOM}&from={BEGAN + 700}&to={BEGAN + 800}") == {"chart": None}
    client = found.client()
    for gpu, name in ((device(1).uuid, NET), ("", NET), ("0", NET), (UUID, "nope"), (UUID, ""), ("x" * 500, NET)):
        assert client.get(f"/api/run/zoom?id={name}&gpu={gpu}&from={BEGAN}&to={BEGAN + 9}").status_code == 404


def test_where_history_has_nothing_the_trace_is_all_there_is(tmp_path: Path) -> None:
    found = served(tmp_path)
    assert found.json(f"{ZOOM}&from={BEGAN + 20}&to={BEGAN + 120}") == {"chart": None}


@pytest.mark.parametrize("value", ["x", "NaN", "Infinity", "-1e999", "1e12", "1;DROP", "%00", "0x10", "9" * 100])
def test_a_time_that_is_none_is_refused(tmp_path: Path, value: str) -> None:
    client = served(tmp_path).client()
    assert client.get(f"/api/gpu?gpu=0&from={value}&to=1").status_code == 400
    assert client.get(f"{ZOOM}&from={value}&to={BEGAN}").status_code == 400
    assert client.get(f"{ZOOM}&from={BEGAN}&to={value}").status_code == 400


@pytest.mark.parametrize("window", ["", f"&from={BEGAN + 9}&to={BEGAN}", "&from=-1e11&to=1e11", f"&to={BEGAN}"])
def test_a_window_that_is_none_or_beyond_the_run_is_all_of_it(tmp_path: Path, window: str) -> None:
    line = utilization(served(tmp_path).json(ZOOM + window)["chart"])
    assert len(line) <= 2000
    assert 0 <= min(line) < 2
    assert LENGTH - 2 <= max(line) <= LENGTH + 1


def test_nobody_can_write_there(tmp_path: Path) -> None:
    assert served(tmp_path).client().post(ZOOM).status_code == 405


@pytest.mark.parametrize("state", [RunState.RUNNING, RunState.FINISHED])
def test_zooming_into_a_run_shows_more_points_and_a_double_click_all_of_it(
    browser: Browser, tmp_path: Path, state: RunState
) -> None:
    with on_a_port(served(tmp_path, state)) as link, visit(browser, link) as visitor:
        page = visitor.open(f"#/run/{NET}")
        until(lambda: charted.seen(page, "run"))
        before = charted.seen(page, "run")
        with page.expect_response(lambda answer: "/api/run/zoom?" in answer.url):
            charted.drag(page, "run", 450 / LENGTH, 540 / LENGTH)
        until(lambda: len(charted.seen(page, "run")["points"]) > 60)
        now = charted.seen(page, "run")
        assert 80 < now["to"] - now["from"] < 100
        assert min(now["values"]) == 0, "the second that stood still"
        assert now["panels"] == before["panels"]
        expect(page.get_by_role("button", name="Whole run")).to_be_visible()
        page.mouse.dblclick(*charted.across(page, "run", 0.5))
        until(lambda: charted.seen(page, "run")["to"] - charted.seen(page, "run")["from"] > 500)
        assert len(charted.seen(page, "run")["points"]) == len(before["points"])
        expect(page.get_by_role("button", name="Whole run")).to_be_hidden()
