"""The words for who holds a GPU: one name for one holder, and none for what nobody was asked."""

from __future__ import annotations

from math import nan
from typing import Any

import pytest
from playwright.sync_api import Browser

from gpumon.model import units
from gpumon.model.metrics import Availability, Unit
from gpumon_web.components.fleet_summary import idle_text
from gpumon_web.components.gpu_rows import holder_lines as row_of
from gpumon_web.components.gpu_rows import search_text
from gpumon_web.components.holders import memory_parts
from gpumon_web.health import checks
from gpumon_web.pages import PAGES
from gpumon_web.pages.gpu import holder_lines as head_of
from gpumon_web.pages.gpu import memory_split, memory_values, no_processes_text
from tests.builders import TIME, boundary, device, process, run, sample, tick
from tests.web.conftest import on_a_port, visit
from tests.web.served import Served


def words(lines: list[dict[str, Any]]) -> list[str]:
    return [" ".join(str(one.get("text") or one.get("tag") or one.get("person")) for one in line["line"])
            for line in lines]  # fmt: skip


def known(*ticks: Any) -> tuple[Any, Any]:
    now = Served(ticks, devices=4).known()
    return now, now.gpus[0]


def test_a_holder_whose_user_is_unknown_has_one_name_on_every_page() -> None:
    for fields, said in (({"name": ""}, "unknown (pid 6607)"), ({"name": "python"}, "unknown python (pid 6607)")):
        busy = sample(0, utilization=0.9, memory_used=4e9, memory_total=8e10)
        now, gpu = known(tick(1, [busy], processes=[process(6607, user="", **fields)]))
        assert words(row_of(gpu, (), now.time))[0] == said
        assert words(head_of(gpu, ())) == [said]


def test_of_a_gpu_whose_driver_does_not_answer_nobody_says_that_it_lists_no_process() -> None:
    silent = sample(0, Availability.STALE, memory_used=4e9, memory_total=8e10)._replace(age=6.0)
    now, gpu = known(tick(1, [silent]))
    assert gpu.state.value == "stale"
    said = [*words(row_of(gpu, (), now.time)), no_processes_text(gpu, now)]
    assert not any("lists no process" in str(one) for one in said)
    assert str(said[-1]) == f"The process list is unknown: {Availability.STALE.reason}."
    now, gpu = known(tick(1, [sample(0, utilization=0.9, memory_used=4e9, memory_total=8e10)]))
    assert "unknown: the driver lists no process" in words(row_of(gpu, (), now.time))


def test_one_row_of_memory_is_a_row() -> None:
    for count, said in ((0.0, "0 rows remapped"), (1.0, "1 row remapped"), (2.0, "2 rows remapped")):
        of = sample(0, ecc_corrected=1.0, ecc_uncorrected=0.0, rows_remapped_corrected=count,
                    rows_remapped_uncorrected=0.0)  # fmt: skip
        (ecc,) = (one for one in checks(of) if one["title"] == "ECC")
        assert said in ecc["more"]


def test_idle_gpus_whose_holder_is_unknown_are_not_laid_to_the_holders_of_others() -> None:
    held = [sample(gpu, utilization=0.0, memory_used=used * 2**30, memory_total=80 * 2**30)
            for gpu, used in ((2, 40), (3, 4), (4, 4), (5, 4))]  # fmt: skip
    root, other = process(70, 2, user="root"), process(71, 5, user="")
    now, _ = known(*(tick(number, held, processes=[root, other]) for number in range(1, 90)))
    assert PAGES["fleet"].live(now, {})["idle_below"] == "root on GPU 2, 40.0 GiB; unknown on GPU 3–5, 12.0 GiB"
    assert idle_text(now.gpus[:1], now).startswith("root, 40.0 GiB for ")
    assert idle_text(now.gpus[1:3], now) == "unknown, 8.0 GiB"


def test_while_it_is_not_known_whether_allocated_gpus_are_idle_nobody_says_that_none_is_or_that_all_are_used() -> None:
    """It was at work before half a minute without a daemon; since then it does nothing, in whoever's hands."""
    before = [tick(number, [sample(0, utilization=0.9, memory_used=4e9, memory_total=8e10)]) for number in (1, 2, 3)]
    after = [tick(number, [sample(0, utilization=0.0, memory_used=4e9, memory_total=8e10)])
             for number in range(33, 100)]  # fmt: skip

    def on_button(count: int) -> Any:
        found = PAGES["fleet"].live(known(*before, *after[:count])[0], {})
        return {one["value"]: one["count"] for one in found["shows"]}["held"]

    def told(count: int) -> tuple[str, str, str]:
        now, gpu = known(*before, *after[:count])
        found = PAGES["fleet"].live(now, {})
        return gpu.state.value, found["idle"], found["idle_below"] + found["others"]

    assert told(24) == ("allocated", "–", "not known yet: GPU 0all are allocated")
    assert on_button(24) == "–", "the button that shows them says no more"
    state, idle, below = told(len(after))
    assert (state, idle, on_button(len(after))) == ("held", "1", "1")
    assert below.startswith("unknown, 3.7 GiB for ")


def test_what_is_told_of_a_run_and_of_power_is_told_of_now_or_not_at_all() -> None:
    going = run("tag.1.1.a", id="net-1", name="net", user="alice", gpus=(device(0).uuid,), epoch=3, epochs=9,
                started=TIME / 1e9 - 900, epoch_started=TIME / 1e9)  # fmt: skip
    marks = [boundary(number, number - 1, key=going.key)._replace(time_ns=TIME + (number - 4) * 10**11)
             for number in (1, 2, 3)]  # fmt: skip
    busy = sample(0, utilization=0.9, power=500.0)._replace(run=going.key)
    now, gpu = known(*(tick(number, [busy], runs=[going], boundaries=marks if number == 1 else [])
                       for number in range(1, 40)))  # fmt: skip
    told = PAGES["fleet"].live(now, {})
    assert told["energy"] == {"text": "12.0 kWh per day at this rate", "old": ""}
    (progress,) = (one for one in row_of(gpu, now.runs_of(gpu), now.time) if one["css"] == "progress")
    (left,) = (one for one in progress["line"] if "left" in one.get("text", ""))
    assert left["now"]
    mine = told["mine"]["users"]["alice"]
    assert mine["below"].startswith("net, ")
    assert mine["last"] == "net"


def test_a_gpu_that_works_little_or_pauses_is_called_so_as_in_the_status() -> None:
    for use, word in ((0.9, "busy"), (0.1, "light load"), (0.0, "pausing")):
        values = {"memory_used": 4e9, "memory_total": 8e10}
        ticks = [tick(1, [sample(0, utilization=0.9, **values)], [process(7, user="alice")]),
                 *(tick(second, [sample(0, utilization=use, **values)], [process(7, user="alice")])
                   for second in range(2, 6))]  # fmt: skip
        now, gpu = known(*ticks)
        assert gpu.state.value == "busy"
        found = PAGES["gpu"].live(now, {"gpu": "0"})
        assert (found["state"]["text"], found["tab"]["text"]) == (word, f"GPU 0 {word}")
        assert next(iter(PAGES["fleet"].live(now, {})["gpus"]))["gpu"]["title"] == word
        assert {"busy", *word.split()} <= set(search_text(gpu, now).split())


def test_the_row_of_a_faulty_gpu_says_what_is_wrong() -> None:
    faulty = sample(0, utilization=0.9, ecc_uncorrected=1.0, remapping_pending=1.0)
    now, gpu = known(tick(1, [faulty, sample(1, utilization=0.9, ecc_uncorrected=0.0)]))
    said, what = row_of(gpu, (), now.time)[-1]["line"]
    assert (said["tag"], said["level"], said["now"]) == ("2 faults", "bad", True)
    assert (what["text"], what["now"]) == ("1 uncorrected memory error since the driver was loaded", True)
    assert now.gpus[1].fault is None


def test_the_page_of_a_faulty_gpu_says_what_to_do_as_the_fleet_does_and_only_of_itself() -> None:
    faulty = sample(0, utilization=0.9, ecc_uncorrected=1.0, remapping_pending=1.0)
    now, _ = known(tick(1, [faulty, sample(1, utilization=0.9, ecc_uncorrected=0.0)]))
    told = [(one["text"], one["action"]) for one in PAGES["fleet"].live(now, {})["look"]]
    own = [PAGES["gpu"].live(now, {"id": index})["look"] for index in ("0", "1")]
    assert [[(one["text"], one["action"]) for one in found] for found in own] == [told, []]
    assert len(told) == 2
    assert all(action for _, action in told)


@pytest.mark.parametrize("width", [1440, 400])
def test_what_is_wrong_with_a_gpu_is_whole_in_its_row(browser: Browser, width: int) -> None:
    served = Served([tick(1, [sample(0, utilization=0.9, ecc_uncorrected=1.0), sample(1, utilization=0.9)])])
    with on_a_port(served) as link, visit(browser, link, viewport={"width": width, "height": 900}) as visitor:
        said = visitor.open("#/fleet").get_by_text("1 uncorrected memory error since the driver was loaded").first
        row = said.evaluate("one => [one, one.closest('td')].map((it) => it.getBoundingClientRect().right)")
        assert row[0] <= row[1]
        assert said.evaluate("one => one.closest('td').scrollWidth <= one.closest('td').clientWidth + 1")


@pytest.mark.parametrize("users", [("alice",), ("alice", "bob"), ()])
def test_memory_is_divided_among_the_same_holders_on_the_fleet_page_and_on_the_page_of_a_gpu(users: Any) -> None:
    gib = 2.0**30
    busy = sample(0, utilization=0.9, memory_used=32 * gib, memory_total=64 * gib)
    there = [process(7 + at, user=user, memory_used=8 * gib) for at, user in enumerate(users)]
    _, gpu = known(tick(1, [busy], processes=there))
    row = [(part["user"], part["color"], part["share"]) for part in memory_parts(gpu.holders, 64 * gib, 32 * gib)]
    page = memory_split(gpu)
    assert [(one["user"], one["color"], one["share"]) for one in page if one["title"] != "free"] == row
    named = dict.fromkeys(users, "8.0 GiB")
    rest = {"no listed process" if users else "in use": units.number(32 * gib - 8 * gib * len(users), Unit.BYTES)}
    assert {one["title"]: one["size"] for one in page} == {**named, **rest, "free": "32.0 GiB"}
    assert memory_values(gpu)["holders"] == ("" if users else "holder unknown")


def test_memory_of_a_process_that_is_not_told_is_not_said_to_be_of_no_process() -> None:
    busy = sample(0, utilization=0.9, memory_used=16e9, memory_total=64e9)
    _, gpu = known(tick(1, [busy], processes=[process(7, user="ada"), process(8, user="bob", memory_used=nan)]))
    assert [one["title"] for one in memory_split(gpu)] == ["ada", "unknown", "free"]


@pytest.mark.parametrize("without", [0, 3])
def test_processes_of_runs_that_are_counted_are_not_counted_again(without: int) -> None:
    keys = [f"tag.1000.{number}.abcd" for number in range(18)]
    runs = [run(key, id=f"net-{at}", user=f"user{at}", gpus=(device().uuid,)) for at, key in enumerate(keys)]
    there = [process(100 + at, user=f"user{at}", run=key, memory_used=2e9) for at, key in enumerate(keys)]
    there += [process(200 + at, user="zoe", name=f"other{at}", memory_used=1e8) for at in range(without)]
    now, gpu = known(tick(1, [sample(0, utilization=0.9, memory_used=40e9, memory_total=80e9)], there, runs))
    for said in (row_of(gpu, now.runs_of(gpu), now.time), head_of(gpu, now.runs_of(gpu))):
        words = str(said)
        assert "more run" in words
        assert ("more process" in words) == bool(without)
        assert without == 0 or f"and {without} more processes" in words


@pytest.mark.parametrize("reported", [{}, {"run_reserved": 6.0, "run_allocated": 4.0}])
@pytest.mark.parametrize("others", [("bob",), ("bob", "carol"), ("",), ("ada",)])
def test_memory_beside_a_run_is_divided_by_user(others: Any, reported: dict[str, float]) -> None:
    gib = 2.0**30
    training = run("tag.1000.7.abcd", id="net-1a2b", user="ada", gpus=(device().uuid,))
    metrics = {name: value * gib for name, value in reported.items()}
    busy = sample(0, run=training.key, utilization=0.9, memory_used=16 * gib, memory_total=64 * gib, run_used=8 * gib,
                  **metrics)  # fmt: skip
    there = [process(7, user="ada", run=training.key, memory_used=8 * gib),
             *(process(8 + at, user=user, memory_used=2 * gib) for at, user in enumerate(others))]  # fmt: skip
    _, gpu = known(tick(1, [busy], there, [training]))
    fleet = memory_parts(gpu.holders, 64 * gib, 16 * gib)
    found = [part for part in memory_split(gpu) if part["title"] != "free"]
    assert [(part["user"], part["color"]) for part in found] == [(part["user"], part["color"]) for part in fleet]
    assert [part["share"] for part in found] == pytest.approx([part["share"] for part in fleet], abs=0.005)
    assert {part["user"] for part in found} == {"ada", *others, ""}


def test_memory_of_one_run_is_divided_as_its_framework_reports_in_the_color_of_its_user() -> None:
    gib = 2.0**30
    training = run("tag.1000.7.abcd", id="net-1a2b", user="ada", gpus=(device().uuid,))
    busy = sample(0, run=training.key, utilization=0.9, memory_used=16 * gib, memory_total=64 * gib, run_used=8 * gib,
                  run_reserved=6 * gib, run_allocated=4 * gib)  # fmt: skip
    _, gpu = known(tick(1, [busy], [process(7, user="ada", run=training.key, memory_used=8 * gib)], [training]))
    found = {one["title"]: (one["size"], one["user"], one["color"]) for one in memory_split(gpu)}
    assert found.pop("free")[0] == "48.0 GiB"
    assert found == {
        "allocated": ("4.0 GiB", "ada", ""), "cached": ("2.0 GiB", "ada", ""),
        "context and libraries": ("2.0 GiB", "ada", ""), "no listed process": ("8.0 GiB", "", "rest"),
    }  # fmt: skip
