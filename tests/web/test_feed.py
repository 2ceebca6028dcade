"""What browsers get of the ring: each frame once, encoded once, and a new beginning when it begins anew."""

from __future__ import annotations

import gzip
import json
import math
import time
from collections.abc import Sequence
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from gpumon.analysis.processes import TITLE
from gpumon.common.clock import SECOND
from gpumon.model.frame import Sample
from gpumon.model.metrics import PROCESSES, Availability
from gpumon.model.origin import RECORDED, Origin
from gpumon.storage.history.tiers import SHAPES
from gpumon_web.components import fleet_summary
from gpumon_web.components.machine import Gpu, Holder
from gpumon_web.feed import AT_ONCE, FIRST_WINDOW, POINTS, SPARK, ring_reader, shown
from gpumon_web.pages import fleet
from tests.builders import TIME, device, process, run, sample, tick
from tests.months import fill
from tests.programs import until
from tests.web.served import Served


def sparks(told: dict[str, Any]) -> Any:
    """The line of the first GPU, as far as it was sent."""
    return told["series"]["lines"][device().uuid]


def test_before_the_first_frame_there_is_nothing_and_after_it_something() -> None:
    served = Served()
    first = served.told()
    assert (first["seq"], first["series"]["t"], first["series"]["lines"]) == (0, [], {})
    served.writer.append(tick(1))
    assert served.told(boot=first["boot"])["series"]["t"] == [TIME / 1e9 + 1]


def test_a_viewer_gets_every_frame_once() -> None:
    served = Served([tick(1)])
    seen = served.told()
    times = seen["series"]["t"]
    for number in range(2, 30):
        served.writer.append(tick(number, [sample(0, utilization=number / 100)]))
        if number % 3 == 0:
            seen = served.told(boot=seen["boot"], since=seen["seq"])
            times += seen["series"]["t"]
            assert not seen["series"]["whole"]
    assert times == [TIME / 1e9 + number for number in range(1, 28)]
    assert sparks(seen) == [0.25, 0.26, 0.27]


def test_a_pause_is_null_for_who_comes_later_and_for_who_was_there() -> None:
    served = Served([tick(number) for number in (1, 2, 3)])
    seen = served.told()
    for number in (22, 23):
        served.writer.append(tick(number))
    late, early = served.told(), served.told(boot=seen["boot"], since=seen["seq"])
    assert late["series"]["t"] == [TIME / 1e9 + at for at in (1, 2, 3, 12.5, 22, 23)]
    assert sparks(late) == [0.5, 0.5, 0.5, None, 0.5, 0.5]
    assert early["series"]["t"] == [TIME / 1e9 + at for at in (12.5, 22, 23)]
    assert sparks(early) == [None, 0.5, 0.5]


def test_viewers_of_one_tick_get_the_same_bytes() -> None:
    served = Served([tick(1), tick(2)])
    first = served.told()
    served.writer.append(tick(3))
    one = served.pages.answer("fleet", {}, first["boot"], first["seq"])
    two = served.pages.answer("fleet", {}, first["boot"], first["seq"])
    assert one is two
    assert gzip.decompress(one.packed) == one.plain


def test_a_missing_value_is_null_and_never_zero() -> None:
    served = Served([tick(1, [sample(0, utilization=0.5), sample(1, power=0.0)])])
    first, second = (served.told("gpu", id=device(index).uuid) for index in (0, 1))
    assert first["series"]["lines"]["gpu.power"] == [None]
    assert second["series"]["lines"]["gpu.power"] == [0]
    assert second["series"]["lines"]["gpu.utilization"] == [None]
    rows = served.told()["tables"]["gpus"]["cells"]
    assert [rows[device(index).uuid]["now"] for index in (0, 1)] == [0.5, None]
    assert [rows[device(index).uuid]["power_watts"] for index in (0, 1)] == [None, 0]


def test_a_viewer_of_another_server_or_of_a_ring_that_began_anew_starts_over() -> None:
    served = Served([tick(number) for number in range(1, 20)])
    first = served.told()
    assert served.told(boot="another", since=15)["series"]["whole"]
    assert served.told(boot=first["boot"], since=first["seq"] + 100)["series"]["whole"]
    old, served.writer = served.writer, Served().writer
    old.close()
    served.live.close()
    served.writer.append(tick(1, [sample(0, utilization=0.9)]))
    after = served.told(boot=first["boot"], since=first["seq"])
    assert after["boot"] != first["boot"]
    assert after["series"]["t"] == [TIME / 1e9 + 1]
    assert after["reset"]
    assert after["tables"]["gpus"]["order"] == [device().uuid]


def test_who_is_there_is_sent_only_when_it_changed() -> None:
    served = Served([tick(1, processes=[process()])])
    seen = served.told()
    (holder,) = served.known().gpus[0].holders
    assert holder == Holder("alice", None, ["python"], 1, 4711, 2**30)
    served.writer.append(tick(2, processes=[process()]))
    seen = served.told(boot=seen["boot"], since=seen["seq"])
    assert "who" not in seen["tables"].get("gpus", {"cells": {}})["cells"].get(device().uuid, {})
    assert "server" not in seen or seen["server"] == {}
    served.writer.append(tick(3, processes=[process(), process(5, user="bob")]))
    seen = served.told(boot=seen["boot"], since=seen["seq"])
    assert {holder.user for holder in served.known().gpus[0].holders} == {"alice", "bob"}
    said = json.dumps(seen["tables"]["gpus"]["cells"][device().uuid]["who"])
    assert '"alice"' in said
    assert '"bob"' in said


def test_no_command_line_and_no_key_beyond_those_that_are_named_leaves_the_server() -> None:
    served = Served([tick(1, processes=[process(run=run().key)], runs=[run(gpus=(device().uuid,))])])
    (sent,) = served.told("gpu")["tables"]["processes"]["cells"].values()
    assert set(sent) == {
        "key", "pid", "user", "name", "kind", "memory", "sm", "cpu", "started", "running", "run", "run_name", "video",
        "where",
    }  # fmt: skip
    assert sent["run_name"] == run().name


def test_jobs_and_containers_have_a_column_where_a_process_is_in_one() -> None:
    served = Served([tick(1, processes=[process(1), process(2, container="lxc web", job="7")])])
    seen = served.told("gpu")
    cells = seen["tables"]["processes"]["cells"]
    assert seen["values"]["where_titles"] == [TITLE]
    assert [cells[pid]["where"] for pid in "12"] == [{TITLE: "–"}, {TITLE: "job 7 · lxc web"}]
    assert Served([tick(1, processes=[process(1)])]).told("gpu")["values"]["where_titles"] == []


def test_video_engines_have_columns_where_a_process_uses_one_and_no_sample_is_not_0() -> None:
    people = [process(1), process(2, encoder_utilization=0.25, decoder_utilization=0.0)]
    seen = Served([tick(1, processes=people)]).told("gpu")
    cells = seen["tables"]["processes"]["cells"]
    assert seen["values"]["video_titles"] == ["Encoder", "Decoder"]
    assert [list(cells[pid]["video"].values()) for pid in "12"] == [[None, None], [0.25, 0.0]]
    trained = [process(1, encoder_utilization=0.0, decoder_utilization=0.0)]
    assert Served([tick(1, processes=trained)]).told("gpu")["values"]["video_titles"] == []


def test_the_first_window_is_bounded_however_fast_the_ring_is() -> None:
    step = 100_000_000
    ticks = [
        tick(1)._replace(monotonic_ns=step * number, time_ns=TIME + step * number, interval_ns=step)
        for number in range(1, 601)
    ]
    times = Served(ticks).told()["series"]["t"]
    assert len(times) <= POINTS
    assert 55 <= times[-1] - times[0] <= FIRST_WINDOW


def test_cells_of_minutes_are_level_in_the_first_window_and_end_where_samples_begin(tmp_path: Path) -> None:
    path, now = str(tmp_path / "history.sqlite"), time.time() // 300 * 300
    recent = [tick(n, [sample(0, utilization=0.1)], time_ns=round((now + n) * SECOND)) for n in range(1, 60)]
    served = Served(recent, devices=1)
    fill(path, [device().uuid], now, lambda _, __, at: (at % 3600 / 3600,) * 3, [SHAPES[-1]])
    served.live.history = path
    told = served.told()
    points = list(zip(told["series"]["t"], sparks(told), strict=True))
    assert points[0][0] == pytest.approx(now + 59 - FIRST_WINDOW, abs=1)
    kept = {value for time, value in points if time < now}
    assert len(kept) == 2, "of the two cells of five minutes"
    assert {value for time, value in points if time > now + 1} == {0.1}
    assert max(after - before for (before, _), (after, _) in pairwise(points)) <= 1


def test_the_label_and_the_problem_of_a_source_are_told() -> None:
    served = Served([tick(1, [], origin=Origin("sim", "SIMULATED", "no driver"))])
    first = served.told()
    assert (first["label"], first["problem"]) == ("SIMULATED", "no driver")


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        (math.nan, None),
        (math.inf, None),
        (0.0, 0),
        (1.0, 1),
        (0.123456789, 0.12346),
        (72_000_123_456.0, 72_000_123_456),
        (72_000_123_456.5, 72000000000),
    ],
)
def test_numbers_have_as_many_digits_as_a_screen_shows_and_whole_ones_all(value: float, wanted: float | None) -> None:
    assert shown(value) == wanted


def since_of(gpu: Gpu) -> float:
    assert gpu.status.since is not None
    return gpu.status.since.time


def about(*ticks: Any) -> Sequence[Gpu]:
    return Served(ticks).known().gpus


def test_a_gpu_with_nobody_on_it_is_free_since_it_was_last_busy() -> None:
    busy = [tick(n, [sample(0, utilization=0.9, memory_used=0.0, memory_total=8e10)]) for n in range(1, 5)]
    idle = [tick(n, [sample(0, utilization=0.0, memory_used=0.0, memory_total=8e10)]) for n in range(5, 200)]
    (row,) = about(*busy, *idle)
    assert (row.state.value, since_of(row)) == ("free", TIME / 1e9 + 5)


def test_memory_that_is_held_for_nothing_is_idle_after_a_minute_and_not_before() -> None:
    def held(until: int) -> Gpu:
        ticks = [tick(1, [sample(0, utilization=0.5)], [process()])]
        ticks += [tick(n, [sample(0, utilization=0.0)], [process()]) for n in range(2, until)]
        return about(*ticks)[0]

    assert held(30).state.value == "busy"
    assert (held(100).state.value, since_of(held(100))) == ("held", TIME / 1e9 + 2)


def test_memory_that_nobody_known_holds_is_not_free() -> None:
    hidden = [tick(n, [sample(0, utilization=0.0, memory_used=4e10, memory_total=8e10)]) for n in range(1, 100)]
    assert about(*hidden)[0].state.value == "held"


def without_processes(**values: float) -> Sample:
    one = sample(0, **values)
    return one._replace(device=one.device._replace(missing={PROCESSES: Availability.NOT_SUPPORTED}))


def test_in_a_recording_nobody_is_known_so_nothing_is_called_free() -> None:
    ticks = [
        tick(n, [without_processes(utilization=0.0, memory_used=0.0, memory_total=8e10)], origin=Origin("replay", "R"))
        for n in range(1, 100)
    ]
    assert about(*ticks)[0].state.value == "idle"


def test_a_lost_gpu_keeps_its_row_and_says_why() -> None:
    (row,) = about(tick(1, [sample(0, Availability.LOST)]))
    assert row.state.value == "lost"
    assert "lost" in row.reason


def test_what_a_frame_has_no_room_for_is_told_beside_what_is_wrong() -> None:
    served = Served([tick(1, unread=3)])
    found = served.told()
    assert (found["problem"], found["left_out"]) == ("", "3 runs left out: more than a frame can hold")
    served.writer.append(tick(2))
    assert served.told()["left_out"] == ""


def test_every_run_on_a_gpu_is_told_of_the_one_in_force_first() -> None:
    first, second = run(), run("tag.1000.4712.abcd", id="vit-9f9f", name="vit", pid=4712, user="bob")
    told = about(
        tick(1, [sample(0, utilization=0.5, run=second.key)], runs=[first, second], processes=[
            process(4711, run=first.key), process(4712, user="bob", run=second.key, memory_used=2.0**31),
        ])
    )  # fmt: skip
    assert told[0].runs == ["vit-9f9f", "resnet50-1a2b"]
    assert [(one.user, one.run) for one in told[0].holders] == [
        ("bob", "vit-9f9f"),
        ("alice", "resnet50-1a2b"),
    ]


def test_processes_of_one_user_are_one_holder_and_all_are_counted() -> None:
    people = [process(100 + at, name=f"worker-{at}") for at in range(9)]
    (holder,) = about(tick(1, processes=people))[0].holders
    assert (holder.count, holder.names) == (9, ["worker-0", "worker-1", "worker-2"])
    assert holder.memory == 9 * 2**30


def test_a_process_that_cannot_be_seen_has_its_pid_and_no_user() -> None:
    (holder,) = about(tick(1, processes=[process(17049, user="", name="")]))[0].holders
    assert (holder.user, holder.names, holder.pid) == ("", [], 17049)


def test_holders_beyond_the_eighth_are_one_with_all_their_processes() -> None:
    people = [process(100 + at, user=f"user{at}", memory_used=2.0**30 * (20 - at)) for at in range(12)]
    *known, rest = about(tick(1, processes=people))[0].holders
    assert len(known) == 8
    assert (rest.user, rest.count) == (None, 4)


def test_a_process_list_that_cannot_be_read_is_unknown_and_says_why() -> None:
    blind = sample(0, utilization=0.0, memory_used=0.0, memory_total=8e10)
    blind = blind._replace(device=device(missing={PROCESSES: Availability.NO_PERMISSION}))
    (row,) = about(tick(1, [blind]))
    assert row.processes_unknown == Availability.NO_PERMISSION.reason
    assert row.state.value != "free"


def test_a_gpu_that_does_not_answer_has_its_last_values_apart_and_their_age() -> None:
    served = Served([tick(1, [sample(0, utilization=0.9)]), tick(
        2, [sample(0, Availability.STALE, utilization=0.9)._replace(age=12.0)]
    )])  # fmt: skip
    (gpu,) = served.known().gpus
    assert (gpu.age, gpu.values["gpu.utilization"], gpu.values["gpu.power"]) == (12.0, 0.9, None)
    assert gpu.counted["gpu.utilization"] is None
    assert served.told("gpu")["series"]["lines"]["gpu.utilization"] == [None]


def test_a_machine_without_a_gpu_shows_its_own_numbers() -> None:
    host = Served([tick(1, [])]).known().host
    assert host["cpu_utilization"] == 0
    assert host["disk_read"] is None, "of a counter its rate, which one sample does not tell"
    assert Served([tick(1), tick(2)]).known().host["disk_read"] == 0


def looks(*ticks: Any, devices: int = 4) -> list[dict[str, str]]:
    return list(Served(ticks, devices=devices).known().findings)


def idle(index: int, **fields: Any) -> Any:
    return sample(index, **{"utilization": 0.0, "memory_used": 0.0, "memory_total": 8e10, **fields})


def test_gpus_that_are_free_for_long_are_one_sentence() -> None:
    notes = looks(*(tick(n, [idle(at) for at in (0, 1, 2)] + [idle(3, utilization=0.9)]) for n in range(1, 400)))
    assert [(note["about"], note["text"]) for note in notes] == [("GPU 0–2", "free for at least 6 min")]


def test_a_sentence_of_an_idle_gpu_says_at_least_and_who_is_unknown() -> None:
    held = [process(17049, user="", name="")]
    (note,) = looks(*(tick(n, [idle(0, memory_used=4e10)], held) for n in range(1, 400)))
    assert note["text"] == "idle for at least 6 min, 37.3 GiB held by an unknown user"


def test_a_share_in_a_sentence_is_written_as_everywhere() -> None:
    waiting = run(epoch=3, wait=40.0, started=TIME / 1e9 - 60)
    notes = looks(tick(35, [idle(0, utilization=0.9, run=waiting.key)], runs=[waiting]))
    assert [note["text"] for note in notes] == ["waits for data 42 % of the time"]


def test_a_run_whose_name_shows_nothing_is_called_by_its_id() -> None:
    (told,) = Served([tick(1, runs=[run(name="   ")])]).known().runs.values()
    assert told["name"] == "resnet50-1a2b"


def test_an_ended_recording_is_said_to_have_ended_and_is_not_live() -> None:
    found = Served([tick(1, origin=Origin("replay", "REPLAY x ended", ended=True))]).told()
    assert (found["live"], found["ended"]) == (False, True)


def test_a_viewer_who_slept_for_longer_than_points_are_kept_begins_anew() -> None:
    served = Served([tick(1)])
    asleep = served.told()
    for number in range(2, 500):
        served.writer.append(tick(number))
    behind = served.told(boot=asleep["boot"], since=asleep["seq"])
    assert not behind["series"]["whole"]
    assert behind["series"]["t"][0] == TIME / 1e9 + 2
    for number in range(500, 1500):
        served.writer.append(tick(number))
        if number % 250 == 0:
            awake = served.told(boot=behind["boot"], since=behind["seq"])
    late, steady = (served.told(boot=one["boot"], since=one["seq"]) for one in (asleep, awake))
    assert late["series"]["whole"]
    assert late["series"]["t"][-1] == TIME / 1e9 + 1499
    assert served.told("gpu", asleep["boot"], asleep["seq"])["series"]["t"] == [TIME / 1e9 + 1499]
    assert not steady["series"]["whole"]


@pytest.mark.parametrize(
    ("values", "is_empty"),
    [
        ({"utilization": 0.0, "memory_used": 0.0, "memory_total": 8e10}, True),
        ({"memory_used": 0.0, "memory_total": 8e10}, True),
        ({"utilization": 0.9, "memory_used": 0.0, "memory_total": 8e10}, False),
        ({"utilization": 0.9, "memory_used": 2e10}, False),
        ({"utilization": 0.0}, False),
    ],
)
def test_a_gpu_without_a_listed_process_is_empty_only_where_its_values_prove_it(
    values: dict[str, float], is_empty: bool
) -> None:
    served = Served([tick(1, [sample(0, **values)])])
    (row,) = served.known().gpus
    assert row.status.is_empty is is_empty


def test_heat_that_lowers_the_clocks_needs_attention() -> None:
    ticks = [tick(n, [sample(0, utilization=0.9, throttled_hw_thermal=0.5 * n)]) for n in range(1, 10)]
    told = Served(ticks).known().findings
    assert [(note["kind"], note["level"], note["about"]) for note in told] == [("heat_throttled", "bad", "GPU 0")]


def test_what_needs_attention_beyond_the_sixth_is_behind_a_row_that_counts_it_and_opens() -> None:
    hot = [sample(at, utilization=0.9, temperature=90.0 + at) for at in range(9)]  # equal findings would be one
    notes = looks(*(tick(n, hot) for n in range(1, 10)), devices=9)
    assert [note.get("about") for note in notes] == [*(f"GPU {at}" for at in range(6)), None, "GPU 6", "GPU 7", "GPU 8"]
    assert notes[6]["text"] == "and 3 more"


def test_what_no_rule_could_judge_is_said_in_place_of_nothing() -> None:
    gone = dict.fromkeys(("gpu.temperature", "gpu.temperature_memory"), Availability.NOT_SUPPORTED)
    reported = dict.fromkeys(("event_reasons", "ecc_uncorrected", "xid"), 0.0)
    known = Served([tick(1, [sample(0, utilization=0.0, **reported)])])
    assert fleet.live(known.known(), {})["look"] == [{"text": "Nothing needs attention."}]
    blind = Served([tick(1, [sample(0, utilization=0.0)._replace(device=device(missing=gone))])])
    assert fleet.live(blind.known(), {})["look"] == [{"text": "No findings; not available here: temperature."}]


def test_faults_that_gpus_do_not_report_are_named_where_nothing_needs_attention() -> None:
    silent = Served([tick(1, [sample(0, utilization=0.0)])])
    assert fleet.live(silent.known(), {})["look"] == [
        {"text": "Nothing needs attention, as far as known; not reported: throttling, ECC, XID."}
    ]
    one = Served([tick(1, [sample(0, ecc_uncorrected=0.0, xid=0.0), sample(1, xid=0.0)])], devices=2)
    assert fleet.live(one.known(), {})["look"] == [
        {"text": "Nothing needs attention, as far as known; not reported: throttling, ECC of some GPUs."}
    ]


def test_the_mean_lately_is_of_as_long_as_anybody_saw() -> None:
    served = Served(tick(number, [sample(0, utilization=1.0 if number <= 30 else 0.5)]) for number in range(1, 41))
    served.told()
    with served.feed.lock:
        mean, known = served.feed.mean(device().uuid, SPARK, FIRST_WINDOW) or (math.nan, math.nan)
    assert mean == pytest.approx(0.875, abs=0.02)
    assert known == pytest.approx(40, abs=1)
    assert fleet_summary.gpu_sums(served.known().gpus)["past"] == "88 % over 39 s"


def long_ring() -> list[Any]:
    """More frames than a question takes in itself: a GPU that worked, then was held idle, with a pause in between."""
    return [
        tick(n + 20 * (n > 200), [sample(0, utilization=0.5 if n < 300 else 0.0, energy=100.0 * n)], [process()])
        for n in range(1, 400)
    ]


class TestFullRing:
    def test_first_answer_does_not_read_it_all_and_says_so(self) -> None:
        feed = Served(long_ring()).feed
        with ExitStack() as stack:
            feed.lock.acquire()  # the thread waits
            stack.enter_context(ring_reader(feed))
            stack.callback(feed.lock.release)
            feed.refresh()
            times = feed.history.sampled()
            assert len(times) == AT_ONCE
            assert times[-1] == TIME / 1e9 + 419
            assert feed.known()["begin"] == TIME / 1e9 + 1
            assert feed.head()["left_out"] == feed.reading != ""
            (gpu,) = feed.about.gpus
            assert (gpu.status.since.time, gpu.status.since.at_least) == (times[0], True)

    def test_what_is_answered_then_is_the_same_as_if_it_was_read_at_once(self) -> None:
        at_once, served = Served(long_ring()), Served(long_ring())
        wanted = at_once.told("gpu", id=device().uuid)
        with ring_reader(served.feed):
            before = served.told("gpu", id=device().uuid)
            until(lambda: not served.told()["left_out"])
            found = served.told("gpu", boot=before["boot"], since=before["seq"], id=device().uuid)
            assert found["series"]["whole"] or before["series"] == wanted["series"]
            assert served.told("gpu", id=device().uuid)["series"] == wanted["series"]
            assert served.told("fleet")["tables"] == at_once.told("fleet")["tables"]
            assert served.feed.known() == at_once.feed.known()

    def test_frames_that_come_while_older_ones_are_read_are_not_lost(self) -> None:
        served = Served(long_ring())
        feed = served.feed
        with ring_reader(feed):
            for n in range(420, 440):
                served.writer.append(tick(n, [sample(0, utilization=0.25)]))
                served.told()
            until(lambda: not served.told()["left_out"])
            with feed.lock:
                times = feed.history.sampled()
            assert times == [TIME / 1e9 + n for n in (*range(1, 201), *range(221, 440))]

    def test_new_frames_are_read_while_nobody_asks(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("gpumon_web.feed.KEEPS_UP", 0.01)
        served = Served([tick(1)])
        with ring_reader(served.feed):
            served.writer.append(tick(2))
            until(lambda: served.feed.newest == 2)

    def test_new_frames_of_a_recording_are_read_while_nobody_asks(self) -> None:
        played = Origin("replay", "R", capabilities=RECORDED, speed=1000.0)
        served = Served([tick(1, origin=played)])
        with ring_reader(served.feed):
            served.writer.append(tick(2, origin=played))
            until(lambda: served.feed.newest == 2)

    def test_what_is_played_is_read_at_once(self) -> None:
        ticks = [one._replace(origin=Origin("replay", "R", capabilities=RECORDED)) for one in long_ring()]
        served = Served(ticks)
        with ring_reader(served.feed):
            assert served.told()["left_out"] == ""
            with served.feed.lock:
                assert served.feed.history.first_frame == TIME / 1e9 + 1
