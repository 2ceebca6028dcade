"""The native dialect: names from the table of metrics, nothing that is not known, and hostile text that stays text."""

from __future__ import annotations

import hashlib
import os
import pwd
import re
from collections.abc import Iterator
from math import inf, nan

import pynvml
import pytest

from gpumon.common.clock import SECOND
from gpumon.export import scrape
from gpumon.export.family import EXPORTED, MAX_BYTES, MAX_LETTERS, gauge
from gpumon.export.native import STATES
from gpumon.export.scrape import MAX_FAMILY_SERIES, limit_series
from gpumon.export.snapshot import UserNames
from gpumon.model.device import Device
from gpumon.model.frame import Run, RunState, Sample, XidEvent
from gpumon.model.metrics import GPU_METRICS, HOST_METRICS, METRICS, PROCESSES, Availability, Kind
from gpumon.model.origin import RECORDED, Driver, Origin
from gpumon.ring.layout import STOPPED
from gpumon.sources.nvml.return_codes import advice
from tests.builders import TIME, device, process, run, sample, tick
from tests.exported import Node, scraped

GIB = 2.0**30
ME = pwd.getpwuid(os.getuid()).pw_name
HOSTILE = 'a"b\\c\nd\x1b[31me\u202ef\ud800' + "x" * 10_000
LEGAL = re.compile(r"gpumon(_[a-z0-9]+)+")
OF_A_SCRAPE = {"job", "instance", "pod", "namespace", "container", "type", "hostname"}
"""Labels that Prometheus or its users put on what they scrape."""


@pytest.fixture
def node() -> Iterator[Node]:
    found = Node()
    yield found
    found.close()


def whole(index: int = 0) -> dict[str, float]:
    """A value for every metric of a GPU, each another one."""
    return {metric.name.removeprefix("gpu."): 1.0 + place + 100 * index for place, metric in enumerate(GPU_METRICS)}


def held(index: int = 0, **values: float) -> Sample:
    return sample(index, **{"utilization": 0.9, "memory_used": 8 * GIB, "memory_total": 80 * GIB, **values})


def test_every_metric_of_the_table_is_exported_by_its_name(node: Node) -> None:
    node.add([tick(1, [sample(0, **whole()), sample(1, **whole(1))])])
    page = scraped(node)
    for place, metric in enumerate(GPU_METRICS):
        name = EXPORTED[metric.name]
        for index in (0, 1):
            assert page.value(name, gpu=str(index), uuid=device(index).uuid) == 1.0 + place + 100 * index, name
        family = page.families[name.removesuffix("_total")] if name.endswith("_total") else page.families[name]
        assert family.type == ("counter" if metric.kind is Kind.COUNTER else "gauge")
        assert family.documentation == metric.help.replace("\n", " ")
    for place, metric in enumerate(HOST_METRICS):
        assert page.value(EXPORTED[metric.name]) == float(place)


def test_names_follow_one_rule_and_none_is_there_twice() -> None:
    assert len(set(EXPORTED.values())) == len(METRICS)
    for metric in METRICS:
        name = EXPORTED[metric.name]
        assert LEGAL.fullmatch(name), name
        assert name.startswith("gpumon_" + metric.name.replace(".", "_"))
        assert name.endswith("_total") is (metric.kind is Kind.COUNTER)
    assert EXPORTED["gpu.power"] == "gpumon_gpu_power_watts"
    assert EXPORTED["gpu.utilization"] == "gpumon_gpu_utilization_ratio"
    assert EXPORTED["gpu.throttled_hw_thermal"] == "gpumon_gpu_throttled_hw_thermal_seconds_total"


def test_labels_are_not_those_of_whoever_scrapes(node: Node) -> None:
    event = XidEvent(device().uuid, 79, SECOND, TIME)
    node.add([tick(n, [held(0, **whole()), held(1)], [process()], [run(gpus=(device().uuid,), epoch=3)], xids=[event])
              for n in (1, 2)])  # fmt: skip
    page = scraped(node)
    assert not {label for name in page.samples for labels in page.labels(name) for label in labels} & OF_A_SCRAPE
    for metric in GPU_METRICS:
        assert all(labels.keys() == {"gpu", "uuid"} for labels in page.labels(EXPORTED[metric.name]))


@pytest.mark.parametrize("value", [nan, inf, -inf])
def test_a_value_that_is_not_known_is_absent_and_says_why(node: Node, value: float) -> None:
    lacking = sample(0, power=value, temperature=40.0)
    lacking = lacking._replace(device=device(missing={"gpu.power": Availability.NO_PERMISSION}))
    node.add([tick(1, [lacking])])
    page = scraped(node)
    assert page.values("gpumon_gpu_power_watts") == []
    assert page.value("gpumon_gpu_temperature_celsius") == 40.0
    why = {"gpu": "0", "uuid": device().uuid, "metric": "gpumon_gpu_power_watts", "reason": "no_permission"}
    assert page.labels("gpumon_gpu_unavailable") == [why]


@pytest.mark.parametrize("state", [Availability.LOST, Availability.STALE, Availability.NO_PERMISSION])
def test_a_gpu_that_does_not_answer_has_no_values_and_is_counted(node: Node, state: Availability) -> None:
    node.add([tick(1, [sample(0, state, **whole()), sample(1, utilization=0.9)])])
    page = scraped(node)
    for metric in GPU_METRICS:
        assert page.values(EXPORTED[metric.name], gpu="0") == []
    assert page.value("gpumon_gpu_unavailable", gpu="0", metric="all", reason=state.name.lower()) == 1
    assert page.value("gpumon_gpus", state="lost" if state is Availability.LOST else "unknown") == 1
    assert len(page.labels("gpumon_gpu_info")) == 2, "it keeps its row"


def test_what_is_no_hardware_of_now_says_so(node: Node) -> None:
    node.add([tick(1, [held()])])
    assert scraped(node).labels("gpumon_source_info") == [{"source": "nvml"}]
    node.add([tick(2, [held()], origin=Origin("replay", "REPLAY a.gpumon", capabilities=RECORDED))])
    assert scraped(node).labels("gpumon_source_info") == [{"source": "replay", "label": "REPLAY a.gpumon"}]
    assert scraped(node, "dcgm").labels("gpumon_source_info") == [{"source": "replay", "label": "REPLAY a.gpumon"}]


def test_gpus_are_counted_by_state(node: Node) -> None:
    idle = {"utilization": 0.0, "memory_total": 80 * GIB}
    busy = [sample(0, utilization=0.9, memory_used=8 * GIB, memory_total=80 * GIB)]
    node.add([tick(n, [*busy, sample(1, memory_used=0.0, **idle)], [process()]) for n in (1, 2)])
    page = scraped(node)
    assert {labels["state"] for labels in page.labels("gpumon_gpus")} == set(STATES)
    assert [page.value("gpumon_gpus", state=state) for state in STATES] == [1, 1, 0, 0, 0]
    node.add([tick(n, [sample(0, memory_used=8 * GIB, **idle)], [process()]) for n in range(3, 120)])
    page = scraped(node)
    assert page.value("gpumon_gpus", state="held_idle") == 1
    assert page.value("gpumon_gpu_idle_seconds", gpu="0") == pytest.approx(117, abs=1)
    assert page.value("gpumon_gpu_user_idle_seconds", gpu="0") == pytest.approx(117, abs=1)
    node.add([tick(n, [sample(0, memory_used=0.0, **idle)]) for n in range(120, 180)])
    page = scraped(node)
    assert page.value("gpumon_gpu_idle_seconds", gpu="0") == pytest.approx(177, abs=1)
    assert page.values("gpumon_gpu_user_idle_seconds") == [], "nobody holds it"
    node.add([tick(n, [sample(0, memory_used=8 * GIB, **idle)], [process(user="bob")]) for n in range(180, 190)])
    page = scraped(node)
    assert page.value("gpumon_gpu_user_idle_seconds", gpu="0", user="bob") == pytest.approx(9, abs=1)


def test_a_lost_gpu_counts_once_whatever_instances_it_was_divided_into(node: Node) -> None:
    parts = [
        sample(1, Availability.LOST)._replace(
            device=device(1)._replace(uuid=f"MIG-{place}", parent=device(1).uuid, instance=place)
        )
        for place in range(2)
    ]
    node.add([tick(1, [held(0), sample(1, Availability.LOST), *parts])])
    page = scraped(node)
    assert page.value("gpumon_gpus", state="lost") == 1
    assert sum(page.values("gpumon_gpus")) == 2


def test_a_gpu_of_which_nobody_knows_whether_it_works_is_not_told_as_busy(node: Node) -> None:
    idle = held(0, utilization=0.0)
    part = Device("MIG-1", 1, "NVIDIA H100 MIG 1g.10gb", parent=device(1).uuid, instance=3)
    instance = sample(1, memory_used=8 * GIB, memory_total=80 * GIB)._replace(device=part)
    holders = [process(), process(2)._replace(uuid=part.uuid)]

    def told(seconds: range) -> list[float]:
        node.add([tick(n, [idle, instance], holders) for n in seconds])
        return [scraped(node).value("gpumon_gpus", state=state) for state in ("busy", "held_idle", "unknown")]

    assert told(range(1, 30)) == [0, 0, 2], "it may have done nothing for a day"
    assert told(range(30, 80)) == [0, 1, 1], "of an instance that is never known without GPM"


def test_a_gpu_that_was_taken_just_now_is_told_as_busy(node: Node) -> None:
    empty = {"utilization": 0.0, "memory_total": 80 * GIB}
    node.add([tick(n, [sample(0, memory_used=0.0, **empty)]) for n in range(1, 100)])
    node.add([tick(n, [sample(0, memory_used=8 * GIB, **empty)], [process()]) for n in range(100, 120)])
    assert scraped(node).value("gpumon_gpus", state="busy") == 1


def test_who_holds_a_gpu_that_lists_no_process_is_told_without_a_name(node: Node) -> None:
    node.add([tick(n, [held(0), held(1), sample(2, memory_used=0.0, memory_total=80 * GIB)], [process()])
              for n in (1, 2, 3)])  # fmt: skip
    page = scraped(node)
    assert {(labels["gpu"], labels.get("user")) for labels in page.labels("gpumon_gpu_user_info")} == {
        ("0", "alice"), ("1", None)
    }  # fmt: skip
    assert {labels.get("user") for labels in page.labels("gpumon_user_held_seconds_total")} == {"alice", None}
    assert len(page.values("gpumon_gpu_user_memory_bytes")) == 1


def test_the_counters_of_use_are_those_of_the_meter(node: Node) -> None:
    both = [process(1, sm_utilization=0.3), process(2, user="bob", sm_utilization=0.1)]
    node.add(tick(n, [held(0, energy=300.0 * n)], both) for n in range(1, 202))
    page = scraped(node)
    gpu = {"gpu": "0", "uuid": device().uuid}
    for name, value in {
        "gpumon_gpu_observed_seconds_total": 200,
        "gpumon_gpu_judged_seconds_total": 200,
        "gpumon_gpu_busy_seconds_total": 200,
        "gpumon_gpu_held_seconds_total": 200,
        "gpumon_gpu_idle_held_seconds_total": 0,
        "gpumon_gpu_utilization_seconds_total": 180,
        "gpumon_gpu_utilization_observed_seconds_total": 200,
        "gpumon_gpu_accounted_energy_joules_total": 60_000,
    }.items():
        assert page.value(name, **gpu) == pytest.approx(value), name
    for user, busy in (("alice", 150), ("bob", 50)):
        who = {"uuid": device().uuid, "user": user}
        assert page.value("gpumon_user_held_seconds_total", **who) == 200
        assert page.value("gpumon_user_busy_seconds_total", **who) == pytest.approx(busy)
        assert page.value("gpumon_user_idle_held_seconds_total", **who) == 0
        assert page.value("gpumon_user_energy_joules_total", **who) == pytest.approx(300 * busy)
        assert page.value("gpumon_gpu_user_memory_bytes", **gpu, user=user) == GIB
    assert page.value("gpumon_gpu_processes", **gpu) == 2


def test_a_user_without_energy_that_is_known_has_no_zero(node: Node) -> None:
    """Nobody knows the parts of two users where the driver does not tell their kernel time."""
    both = [process(1), process(2, user="bob")]
    node.add(tick(n, [held(0, energy=300.0 * n)], both) for n in range(1, 151))
    page = scraped(node)
    assert page.values("gpumon_user_energy_joules_total") == []
    assert page.values("gpumon_user_busy_seconds_total") == []
    assert page.values("gpumon_user_held_seconds_total") == [149, 149]


def test_time_in_which_nobody_knows_whether_a_gpu_is_busy_is_in_no_share_of_it(node: Node) -> None:
    node.add(tick(n, [held(0)], [process()]) for n in range(1, 12))
    node.add(tick(n, [held(0, utilization=nan)], [process()]) for n in range(12, 22))
    page = scraped(node)
    assert page.value("gpumon_gpu_observed_seconds_total") == 20
    assert page.value("gpumon_gpu_judged_seconds_total") == page.value("gpumon_gpu_busy_seconds_total") == 11
    assert page.value("gpumon_gpu_held_seconds_total") == 20


def test_busy_time_that_cannot_be_divided_among_users_is_not_judged_of_any(node: Node) -> None:
    both = [process(1), process(2, user="bob", sm_utilization=0.5)]
    node.add(tick(n, [held(0)], both) for n in range(1, 202))
    node.add(tick(n, [held(0, utilization=0.0)], both) for n in range(202, 302))
    page = scraped(node)
    for user in ("alice", "bob"):
        told = [page.value(f"gpumon_user_{name}_seconds_total", user=user) for name in ("held", "judged", "busy")]
        assert told[0] == 300
        assert told[1] < 100, "of the others nobody knows whose work it was"
        assert told[2] == 0


def test_a_process_list_that_cannot_be_read_is_no_list_of_none(node: Node) -> None:
    hidden = held(0)._replace(device=device(missing={PROCESSES: Availability.NO_PERMISSION}))
    node.add([tick(1, [hidden])])
    page = scraped(node)
    assert page.values("gpumon_gpu_processes") == []
    assert page.value("gpumon_gpu_unavailable", gpu="0", metric="gpumon_gpu_processes", reason="no_permission") == 1
    node.add([tick(2, [held(0)])])
    page = scraped(node)
    assert page.values("gpumon_gpu_processes") == [0]
    assert page.values("gpumon_gpu_unavailable", metric="gpumon_gpu_processes") == []


def test_why_no_gpu_can_be_read_is_told_also_where_all_of_them_hang(node: Node) -> None:
    node.add([tick(1, [sample(0, Availability.STALE, **whole()), sample(1, Availability.STALE, **whole())])])
    assert scraped(node).labels("gpumon_problem_info") == [
        {"problem": "no GPU can be read: the driver does not answer"}
    ]
    node.add([tick(2, [sample(0, Availability.STALE, **whole()), held(1)])])
    assert scraped(node).labels("gpumon_problem_info") == []


def test_a_problem_is_told_in_whole_words_with_what_to_do(node: Node) -> None:
    problem = advice(int(pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH))
    node.add([tick(1, [sample(0, Availability.NO_DRIVER)], origin=Origin("nvml", problem=problem))])
    (told,) = scraped(node).labels("gpumon_problem_info")
    assert told["problem"] == problem
    node.add([tick(2, [], origin=Origin("nvml", problem="näher " * 100))])
    (told,) = scraped(node).labels("gpumon_problem_info")
    assert re.fullmatch("(näher ){20,}näher…", told["problem"])
    assert len(told["problem"].encode()) <= MAX_BYTES


@pytest.mark.parametrize("state", [Availability.LOST, Availability.STALE, Availability.NO_PERMISSION])
def test_processes_that_a_gpu_listed_before_it_stopped_answering_are_not_told_as_now(
    node: Node, state: Availability
) -> None:
    on_it = process(job="4242", pod="0123abcd-0000-4000-8000-000000000000 ml/train-0")
    node.add([tick(1, [held(0)], [on_it]), tick(2, [sample(0, state, **whole())], [on_it])])
    page = scraped(node)
    for name in ("processes", "user_info", "user_memory_bytes", "job_info", "pod_info"):
        assert page.labels(f"gpumon_gpu_{name}") == [], name
    node.add([tick(3, [held(0)], [on_it])])
    assert scraped(node).labels("gpumon_gpu_user_info") != []


def test_runs_tell_who_they_are_in_one_family_and_what_changes_as_values(node: Node) -> None:
    training = run(gpus=(device().uuid,), epoch=3, step=120, started=1.79e9)
    on_it = process(run=training.key, job="4242", pod="0123abcd-0000-4000-8000-000000000000 ns/train-0")
    node.add([tick(1, [held(0)._replace(run=training.key), held(1)], [on_it], [training])])
    page = scraped(node)
    (who,) = page.labels("gpumon_run_info")
    assert who["uuid"] == device().uuid
    assert (who["run"], who["name"], who["user"], who["slurm_job"]) == ("resnet50-1a2b", "resnet50", "alice", "4242")
    of = {"uuid": device().uuid, "run": "resnet50-1a2b"}
    assert page.value("gpumon_run_epoch", **of) == 3
    assert page.value("gpumon_run_epochs", **of) == 90
    assert page.value("gpumon_run_step", uuid=device().uuid) == 120
    assert page.value("gpumon_run_start_timestamp_seconds", uuid=device().uuid) == 1.79e9


def test_a_run_that_is_over_and_an_epoch_that_has_not_begun_are_absent(node: Node) -> None:
    uuid = device().uuid
    node.add([tick(1, [held(0)], [process()], [run(gpus=(uuid,), epoch=-1)])])
    page = scraped(node)
    assert page.values("gpumon_run_epoch") == []
    assert len(page.labels("gpumon_run_info")) == 1
    node.add([tick(2, [held(0)], [process()], [run(gpus=(uuid,), epoch=3, state=RunState.FINISHED)])])
    page = scraped(node)
    assert page.values("gpumon_run_epoch") == []
    assert page.labels("gpumon_run_info") == []


def test_of_several_runs_on_a_gpu_one_is_told_so_that_joins_find_one(node: Node) -> None:
    uuid = device().uuid
    runs = [run(f"tag.1000.{pid}.abcd", id=f"run-{pid}", pid=pid, gpus=(uuid,), epoch=1) for pid in (1, 2, 3)]
    node.add([tick(1, [held(0)], [process(1), process(2), process(3)], runs)])
    page = scraped(node)
    assert len(page.labels("gpumon_run_info")) == 1
    assert len(page.labels("gpumon_run_epoch")) == 1


def test_xid_errors_are_told_by_code_with_their_time(node: Node) -> None:
    node.add([tick(1, [held(0)], xids=[XidEvent(device().uuid, 79, SECOND, TIME + 5 * SECOND)]), tick(2, [held(0)])])
    page = scraped(node)
    which = {"gpu": "0", "uuid": device().uuid, "xid": "79"}
    assert page.value("gpumon_gpu_xid_errors_total", **which) == 1
    assert page.value("gpumon_gpu_xid_last_timestamp_seconds", **which) == (TIME + 5 * SECOND) / SECOND


def test_a_silent_node_says_so_and_nothing_that_was(node: Node) -> None:
    node.add([tick(n, [held(0, **whole()), held(1)], [process()]) for n in (1, 2)])
    node.ring.heartbeat(STOPPED)
    page = scraped(node)
    assert page.value("gpumon_up") == 0
    assert page.value("gpumon_last_sample_timestamp_seconds") == TIME / SECOND + 2
    assert [page.value("gpumon_gpus", state=state) for state in STATES] == [0, 0, 0, 0, 2]
    told = {name for name in page.samples if not name.startswith(("gpumon_gpus", "gpumon_up", "gpumon_exporter"))}
    assert told == {"gpumon_last_sample_timestamp_seconds", "gpumon_sample_interval_seconds", "gpumon_build_info"}


def test_a_node_without_a_daemon_says_that_it_is_down() -> None:
    node = Node()
    os.ftruncate(node.ring.fd, 0)
    page = scraped(node)
    assert page.value("gpumon_up") == 0
    assert page.values("gpumon_last_sample_timestamp_seconds") == []
    assert page.values("gpumon_gpus") == [], "nobody knows how many it has"


def test_counters_that_nobody_sums_up_any_more_are_not_told(node: Node) -> None:
    """The sums in the ring are older than its newest frames."""
    node.add([tick(1, [held(0)], [process()]), tick(2, [held(0)], [process()])])
    for number in range(3, 30):
        node.ring.append(tick(number, [held(0)], [process()]))
    page = scraped(node)
    assert page.values("gpumon_gpu_busy_seconds_total") == []
    assert page.value("gpumon_gpu_utilization_ratio", gpu="0") == 0.9


def test_hostile_texts_stay_texts_of_limited_length(node: Node) -> None:
    evil: Run = run(id=HOSTILE, name=HOSTILE, user=HOSTILE, gpus=(device().uuid,), epoch=1)
    named = held(0)._replace(device=device()._replace(name=HOSTILE))
    on_it = process(user=HOSTILE, job=HOSTILE, name=HOSTILE, run=evil.key)
    node.add(tick(n, [named], [on_it], [evil], driver=Driver(version=HOSTILE)) for n in (1, 2))
    exporter = node.exporter()
    body = exporter.scrape()
    assert not re.search(rb"[\x00-\x09\x0b-\x1f\x7f]", body), "control characters"
    body.decode("utf-8", "strict")
    page = scraped(node)
    texts = [text for name in page.samples for labels in page.labels(name) for text in labels.values()]
    assert max(map(len, texts)) <= MAX_LETTERS
    assert all(text.isprintable() for text in texts)
    assert len(page.labels("gpumon_run_info")) == 1
    assert 'a"b\\c' in page.labels("gpumon_run_info")[0]["name"], "what is harmless stays"


@pytest.mark.parametrize(
    ("policy", "told"),
    [
        (UserNames.NAME, ME),
        (UserNames.UID, str(os.getuid())),
        (UserNames.HASH, hashlib.sha256(ME.encode()).hexdigest()[:12]),
        (UserNames.OFF, None),
    ],
)
def test_users_are_told_as_the_policy_says(node: Node, policy: UserNames, told: str | None) -> None:
    training = run(gpus=(device().uuid,), user=ME, epoch=1, id=f"{ME}-1a2b", name=f"net of {ME}")
    node.add(tick(n, [held(0, energy=1.0 * n)], [process(user=ME, pod=f"0 ns/{ME}-0")], [training]) for n in (1, 2, 3))
    page = scraped(node, users=policy)
    (who,) = page.labels("gpumon_run_info")
    told_id = policy.run_id(f"{ME}-1a2b", ME)
    assert (ME in told_id) is (policy is UserNames.NAME)
    assert (who["run"], who["name"]) == (told_id, f"net of {ME}" if policy is UserNames.NAME else "hidden")
    assert page.value("gpumon_run_epoch", run=told_id) == 1
    assert bool([labels for labels in page.labels("gpumon_gpu_pod_info") if ME in labels["pod_name"]]) is (
        policy is UserNames.NAME
    )
    users = {labels["user"] for name in page.samples for labels in page.labels(name) if "user" in labels}
    assert users == ({told} if told else set())
    assert bool(page.values("gpumon_user_held_seconds_total")) is (told is not None)
    assert page.value("gpumon_run_epoch") == 1, "a run is told in any case"


def test_users_whose_numbers_nobody_knows_are_told_as_one(node: Node) -> None:
    both = [process(1, user="no-such-user-1"), process(2, user="no-such-user-2")]
    node.add(tick(n, [held(0)], both) for n in range(1, 152))
    page = scraped(node, users=UserNames.UID)
    assert page.values("gpumon_user_held_seconds_total") == [300]
    assert page.value("gpumon_gpu_user_memory_bytes") == 2 * GIB


def test_a_family_without_end_is_cut_and_what_is_cut_is_counted(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    wide = gauge("gpumon_wide", "Many.", ("n",), [((str(n),), 1.0) for n in range(MAX_FAMILY_SERIES + 7)])
    found, dropped = limit_series([wide])
    assert (len(found[0].series), dropped) == (MAX_FAMILY_SERIES, 7)
    monkeypatch.setattr(scrape, "MAX_FAMILY_SERIES", 10)
    node.add([tick(1, [held(0)], [process(n, user=f"user{n}") for n in range(40)])])
    exporter = node.exporter()
    exporter.scrape()
    page = scraped(node)
    assert len(page.labels("gpumon_gpu_user_info")) == 10
    once = page.value("gpumon_exporter_dropped_series_total")
    assert once >= 30
    assert f"gpumon_exporter_dropped_series_total {2 * once}".encode() in exporter.scrape()
