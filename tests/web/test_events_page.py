"""The page of events: what a history has of a day, narrowed by the address, and the way to each moment."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser

from gpumon.common.clock import SECOND
from gpumon.model.frame import RunState, Tick
from gpumon.model.metrics import Availability
from gpumon_web.pages import events as events_page
from gpumon_web.stored import events
from tests.activity import keep
from tests.builders import TIME, device, process, run, sample, tick
from tests.web.conftest import on_a_port, visit
from tests.web.served import Served

GIB = 2.0**30
HOUR = 3600
STEP = 60
GPUS = 10
BEGAN = TIME // SECOND
DOWN = range(2 * HOUR, 3 * HOUR)


def ticks(seconds: range) -> Iterator[Tick]:
    """dave holds GPU 1 and does nothing, bob works on GPU 0."""
    for second in seconds:
        yield tick(
            1,
            [sample(0, utilization=0.8, memory_used=GIB, memory_total=80 * GIB),
             sample(1, utilization=0.0, memory_used=GIB, memory_total=80 * GIB)],
            [process(1, 0, user="bob", sm_utilization=0.8), process(2, 1, user="dave", sm_utilization=0.0)],
            time_ns=(BEGAN + second) * SECOND, monotonic_ns=(50 + second) * SECOND, interval_ns=STEP * SECOND,
        )  # fmt: skip


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Served:
    """A machine whose daemon was killed for an hour."""
    path = tmp_path_factory.mktemp("history") / "history.sqlite"
    keep(path, ticks(range(0, DOWN.start, STEP)), kill=True)
    keep(path, ticks(range(DOWN.stop, 4 * HOUR, STEP)), kill=True)
    now = [tick(second, [sample(gpu, utilization=0.5) for gpu in range(2)]) for second in range(1, 9)]
    found = Served(now, histories=[str(path)])
    found.now = BEGAN + 4.0 * HOUR
    return found


def shown(served: Served, query: str = "") -> dict[str, Any]:
    found: dict[str, Any] = served.json(f"/api/kept?page=events&{query}")
    return found


def kinds(found: dict[str, Any]) -> list[str]:
    return [row["kind"] for row in found["tables"]["events"]["cells"].values()]


def test_time_that_nobody_watched_is_said_and_hatched(served: Served) -> None:
    found = shown(served)
    [row] = [row for row in found["tables"]["events"]["cells"].values() if "not sampled" in row["took"]]
    assert row["kind"] == "daemon stopped"
    assert row["took"] in ("not sampled for 1 h", "not sampled for 1 h 1 min")
    strip = found["tables"]["lanes"]["cells"][device(0).uuid]["strip"]
    assert [share for _, share, *_ in strip["unseen"]], "the hours without a daemon"
    assert strip["parts"]


def test_an_outage_within_an_hour_has_its_place_in_that_hour(tmp_path: Path) -> None:
    path = tmp_path / "history.sqlite"
    down = range(HOUR + 900, HOUR + 2100, STEP)
    keep(path, ticks(range(0, down.start, STEP)), kill=True)
    keep(path, ticks(range(down.stop, 3 * HOUR, STEP)), kill=True)
    served = Served(ticks(range(3)), histories=[str(path)])
    served.now = BEGAN + 3.0 * HOUR
    strip = shown(served)["tables"]["lanes"]["cells"][device(0).uuid]["strip"]
    begin = served.now // HOUR * HOUR - 23 * HOUR  # of the window: 24 hours of the clock with this one
    [(slot, share, at)] = [one for one in strip["unseen"] if len(one) == 3]
    since = begin + (slot + at / 100) * HOUR
    assert since == pytest.approx(BEGAN + down.start, abs=60)
    assert share == pytest.approx(100 * len(down) * STEP / HOUR, abs=2)


def test_a_gpu_that_did_not_answer_is_hatched_when_that_was_and_no_other_gpu_is(tmp_path: Path) -> None:
    path = tmp_path / "history.sqlite"
    lost = range(HOUR + 600, HOUR + 1800, STEP)
    at = [
        one._replace(samples=(one.samples[0], sample(1, Availability.LOST))) if second in lost else one
        for second, one in zip(range(0, 3 * HOUR, STEP), ticks(range(0, 3 * HOUR, STEP)), strict=True)
    ]
    keep(path, at, kill=True)
    served = Served(ticks(range(3)), histories=[str(path)])
    served.now = BEGAN + 3.0 * HOUR
    cells = shown(served)["tables"]["lanes"]["cells"]
    begin = served.now // HOUR * HOUR - 23 * HOUR
    placed = {index: [one for one in cells[device(index).uuid]["strip"]["unseen"] if len(one) == 3] for index in (0, 1)}
    [(slot, share, part)] = placed[1]
    assert begin + (slot + part / 100) * HOUR == pytest.approx(BEGAN + lost.start, abs=60)
    assert share == pytest.approx(100 * len(lost) * STEP / HOUR, abs=3)
    assert placed[0] == []


def test_events_are_narrowed_by_kind_gpu_and_user(served: Served) -> None:
    assert set(kinds(shown(served, "group=idle"))) == {"allocated but idle"}
    assert set(kinds(shown(served, "group=daemon"))) >= {"daemon started", "daemon stopped"}
    assert "allocated but idle" not in kinds(shown(served, "gpu=0"))
    assert "allocated but idle" in kinds(shown(served, "gpu=1"))
    assert kinds(shown(served, "user=bob")) == []
    assert "allocated but idle" in kinds(shown(served, "user=dave"))
    assert shown(served, "user=bob")["values"]["nothing"] == "No matching events."


def test_a_run_that_failed_needs_attention_and_one_that_finished_does_not(tmp_path: Path) -> None:
    path = tmp_path / "history.sqlite"
    ends = {"crasher": RunState.FAILED, "good": RunState.FINISHED}

    def at(second: int) -> Tick:
        states = {name: state if second > 60 else RunState.RUNNING for name, state in ends.items()}
        runs = [
            run(name, id=name, name=name, started=BEGAN + 5, updated=BEGAN + 60, state=state)
            for name, state in states.items()
        ]
        return tick(1, [sample(0, utilization=0.8)], runs=runs, time_ns=(BEGAN + second) * SECOND,
                    monotonic_ns=(50 + second) * SECOND, interval_ns=STEP * SECOND)  # fmt: skip

    keep(path, map(at, range(0, HOUR, STEP)))
    served = Served([tick(1, [sample(0, utilization=0.5)])], histories=[str(path)])
    served.now = BEGAN + float(HOUR)
    ended = [row for row in shown(served)["tables"]["events"]["cells"].values() if row["kind"].startswith("run ")]
    shapes = {(row["kind"], row["event"][0]["line"][0]["css"]) for row in ended}
    assert {("run failed", "state lost"), ("run ended", "state unknown")} <= shapes
    attention = shown(served, "group=attention")["tables"]["events"]["cells"].values()
    assert [row["kind"] for row in attention] == ["run failed"]


def test_an_event_leads_to_its_moment_on_the_chart_of_its_gpu(served: Served) -> None:
    row = next(iter(shown(served, "group=idle")["tables"]["events"]["cells"].values()))
    where = row["event"][0]["line"][1]["link"]
    begin, end = (float(part.partition("=")[2]) for part in where.partition("?")[2].split("&"))
    assert where.startswith(f"#/gpu/{device(1).uuid}?from=")
    assert begin < row["time"] < end <= served.now


def test_without_a_history_the_page_says_so() -> None:
    served = Served([tick(second) for second in range(1, 3)], devices=1)
    values = shown(served)["values"]
    assert "'gpumon daemon'" in values["nothing"]
    assert values["is_without"], "nothing to choose from"


def test_the_choice_the_order_and_the_search_are_in_the_link(browser: Browser, served: Served) -> None:
    with on_a_port(served) as link, visit(browser, link) as visitor:
        page = visitor.open("#/events")
        page.locator("#page-events tbody tr").first.wait_for()
        page.locator("#page-events button", has_text="Daemon").click()
        page.locator("#page-events .search").fill("stopped")
        page.locator("#page-events th[data-col=event] button").click()
        assert page.evaluate("location.hash") == "#/events?group=daemon&q=stopped&sort=event"
        page.reload()
        page.locator("#page-events table.events tbody tr", has_text="daemon stopped").first.wait_for()
        assert page.locator("#page-events .search").input_value() == "stopped"
        assert page.locator("#page-events th[data-col=event]").get_attribute("aria-sort") == "ascending"
        found = page.locator("#page-events table.events tbody .c-event").all_inner_texts()
        assert {text.strip() for text in found} == {"daemon stopped"}


def test_what_had_not_ended_goes_on_only_while_the_log_is_of_now(served: Served) -> None:
    """On a page that gets nothing new, and by a log that nobody writes any more, the last look is what is known."""
    found = shown(served)
    served.now += 600.0
    later = shown(served)
    served.now -= 600.0
    rows, old = ([row for row in one["tables"]["events"]["cells"].values() if isinstance(row["took"], dict)]
                 for one in (found, later))  # fmt: skip
    assert [row["kind"] for row in rows] == [row["kind"] for row in old] == ["allocated but idle", "daemon started"]
    for now, then in zip(rows, old, strict=True):
        assert now["took"]["time"] == now["time"], "since when it is so"
        assert now["took"]["old"] == then["took"], "when it was last seen"
        assert "old" not in then["took"]
        assert BEGAN + DOWN.stop < then["took"]["time"] <= served.now
    assert found["values"]["summary"]["old"] == later["values"]["summary"]


@pytest.mark.parametrize("state", [RunState.RUNNING, RunState.FINISHED, None])
def test_a_run_is_ongoing_only_while_the_ring_has_it_running(tmp_path: Path, state: RunState | None) -> None:
    path = tmp_path / "history.sqlite"
    going = run(started=BEGAN + 1, updated=BEGAN + 4)
    keep(path, [tick(second, runs=[going]) for second in range(1, 5)], kill=True)
    runs = [] if state is None else [going._replace(state=state)]
    served = Served([tick(5, runs=runs)], histories=[str(path)])
    served.now = BEGAN + 6.0
    found = shown(served)
    (row,) = [row for row in found["tables"]["events"]["cells"].values() if row["kind"] == "run began"]
    is_running = state is RunState.RUNNING
    assert (row["took"]["text"] == "ongoing since") is is_running
    assert found["again"] == (events_page.AGAIN if is_running else events_page.SOON)


def test_what_was_seen_at_one_moment_has_no_length_and_lasted_at_least_until_then(tmp_path: Path) -> None:
    path = tmp_path / "history.sqlite"
    keep(path, ticks(range(1)), kill=True)
    served = Served(ticks(range(3)), histories=[str(path)])
    served.now = BEGAN + 12.0
    (row,) = shown(served)["tables"]["events"]["cells"].values()
    assert row["kind"] == "daemon started"
    assert row["took"]["old"] == {"text": "at least until", "time": pytest.approx(BEGAN, abs=1)}


def test_since_when_nobody_watched_is_there_to_read(browser: Browser, tmp_path: Path) -> None:
    path = tmp_path / "history.sqlite"
    keep(path, ticks(range(0, HOUR, STEP)), kill=True)
    keep(path, ticks(range(HOUR + STEP, 2 * HOUR, STEP)), kill=True)
    found = Served(ticks(range(3)), histories=[str(path)])
    found.now = BEGAN + 2.0 * HOUR
    with on_a_port(found) as link, visit(browser, link) as visitor:
        page = visitor.open("#/events")
        for width in (1440, 1024, 768, 400):
            page.set_viewport_size({"width": width, "height": 800})
            cell = page.locator("#page-events .c-took", has_text="not sampled for")
            cell.wait_for()
            assert cell.evaluate("(cell) => cell.scrollWidth <= cell.clientWidth"), f"cut at {width}"


def test_runs_that_finished_are_not_in_the_row_of_those_that_failed(tmp_path: Path) -> None:
    """All of them ended within a minute, three each way."""
    states = {f"net-{n}": RunState.FAILED if n < 3 else RunState.FINISHED for n in range(6)}

    def look(second: int) -> Tick:
        def state(n: int, name: str) -> RunState:
            return states[name] if second >= 3 * n + 10 else RunState.RUNNING

        runs = [run(f"tag.1000.{n}.a", id=name, name=name, state=state(n, name)) for n, name in enumerate(states)]
        return tick(1, [sample(0, utilization=0.9)], runs=runs, time_ns=(BEGAN + second) * SECOND,
                    monotonic_ns=(50 + second) * SECOND, interval_ns=SECOND)  # fmt: skip

    path = tmp_path / "history.sqlite"
    keep(path, (look(second) for second in range(50)))
    found = Served([look(50)], histories=[str(path)])
    found.now = BEGAN + 50.0
    tables = shown(found)["tables"]
    bundles = {one["kind"]: one["members"] for one in tables["bundles"]["cells"].values()}
    assert {"run failed", "run ended"} <= bundles.keys()
    for kind, members in bundles.items():
        assert {tables["events"]["cells"][key]["kind"] for key in members} == {kind}


def test_a_minute_in_which_all_gpus_were_throttled_is_one_row_that_opens(browser: Browser, tmp_path: Path) -> None:
    def hot(second: int) -> Tick:
        samples = [sample(gpu, utilization=0.9, throttled_hw_thermal=0.5 * max(0, second - 30)) for gpu in range(GPUS)]
        return tick(1, samples, time_ns=(BEGAN + second) * SECOND, monotonic_ns=(50 + second) * SECOND,
                    interval_ns=SECOND)  # fmt: skip

    path = tmp_path / "history.sqlite"
    keep(path, (hot(second) for second in range(90)))
    found = Served([hot(90)], devices=GPUS, histories=[str(path)])
    found.now = BEGAN + 90.0
    tables = shown(found)["tables"]
    [bundle] = [one for one in tables["bundles"]["cells"].values() if one["kind"] == "throttling began"]
    began = [key for key, row in tables["events"]["cells"].items() if row["kind"] == "throttling began"]
    assert sorted(bundle["members"]) == sorted(began)
    assert bundle["gpu"] == "GPU 0–9"
    with on_a_port(found) as link, visit(browser, link) as visitor:
        page = visitor.open("#/events")
        rows = page.locator("#page-events .events tbody tr")
        opener = page.get_by_role("button", name="throttling began, 10 events")
        opener.wait_for()
        assert opener.get_attribute("aria-expanded") == "false"
        before = rows.count()
        opener.click()
        counted = "document.querySelectorAll('#page-events .events tbody tr').length"
        page.wait_for_function(f"(before) => Math.abs({counted} - before) === 10", arg=before)


def test_strips_of_events_have_a_key(browser: Browser, served: Served) -> None:
    with on_a_port(served) as link, visit(browser, link) as visitor:
        for width in (1440, 400):
            page = visitor.open("#/events")
            page.set_viewport_size({"width": width, "height": 800})
            key = page.locator("#page-events .key")
            key.wait_for()
            assert key.inner_text().split() == ["held", "used", "not", "seen"], width


def test_words_are_looked_for_in_all_events_of_the_window_not_in_the_rows_alone(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    every = [*shown(served)["tables"]["events"]["cells"].values()]
    other = next(row for row in every if row["kind"] != every[0]["kind"])
    monkeypatch.setattr(events_page, "MAX_ROWS", 1)
    assert kinds(shown(served)) == [every[0]["kind"]]
    found = shown(served, f"q={other['kind'].upper()}")
    assert kinds(found) == [other["kind"]]
    assert found["values"]["searched"] == other["kind"]


def test_events_that_were_not_read_are_not_said_to_be_none(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "MAX_EVENTS", 1)
    assert "newest 1" in shown(served, "q=dave")["values"]["nothing"]
