"""One frame as text and as JSON: what is not known is not claimed, whatever stands in the frame."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpumon.common.clock import SECOND
from gpumon.common.numbers import NAN
from gpumon.model.frame import Frame, Run, RunState, Sample
from gpumon.model.metrics import GPU_METRICS, HOST_METRICS, PROCESS_SHARES, PROCESSES, Availability
from gpumon.model.origin import Driver, Origin
from gpumon.reports.status_details import process_lines
from gpumon.reports.status_json import document
from gpumon.reports.status_text import bar, lines
from tests.builders import TIME, device, frame_of, process, run, sample, tick

ODD = st.sampled_from([float("nan"), float("inf"), float("-inf"), -1.0, 0.0, 0.5, 1e300, 2.0**64, 1e-320])
STATES = st.sampled_from([state for state in Availability if state is not Availability.ABSENT])
NUMBERS = re.compile(r"(?<![\w.])(?:nan|inf|-inf)(?![a-z])", re.IGNORECASE)


@st.composite
def samples(draw: st.DrawFn) -> Sample:
    missing = {PROCESSES: Availability.FAILED} if draw(st.booleans()) else {}
    values = draw(st.lists(ODD, min_size=len(GPU_METRICS), max_size=len(GPU_METRICS)))
    key = draw(st.sampled_from(["", "tag.1000.4711.abcd", "unknown"]))
    return Sample(device(missing=missing), draw(STATES), values, key, age=draw(ODD))


def shown(of: Frame, **options: object) -> list[str]:
    return list(lines(of, Origin("nvml"), Driver(), "node1", "no daemon", **options))  # type: ignore[arg-type]


@settings(deadline=None)
@given(
    st.lists(samples(), max_size=3), st.lists(ODD, min_size=len(HOST_METRICS), max_size=len(HOST_METRICS)), ODD,
    st.booleans(), ODD,
)  # fmt: skip
def test_whatever_a_frame_holds_is_shown_without_an_exception_and_without_a_number_that_is_none(
    given: list[Sample], host: list[float], memory: float, live: bool, age: float
) -> None:
    runs = [run(metrics={"loss": memory}, started=age, wait=memory)]
    of = frame_of(tick(1, given, [process(memory_used=memory)], runs, host=host))
    text = shown(of, live=live, age=age)
    for line in text[: 1 + 2 * len(given)]:
        if not line.startswith(("run  ", "critical  resnet50: diverged")):  # a NaN that was logged is a fact
            assert not NUMBERS.search(line), line
    told = document(of, Origin("nvml"), Driver(), "node1", None, live=live, age=age)
    json.loads(json.dumps(told, allow_nan=False))
    for one, written in zip(given, told["gpus"], strict=True):
        if not live:
            assert written["state"] != "ok"
        if one.state is not Availability.OK or not live:
            assert not any(line.rstrip().endswith("free") for line in text if line.startswith("  0  H100"))


def test_verbose_lists_processes_with_their_engines_and_no_sample_is_not_0() -> None:
    people = [
        process(7, 1, memory_used=NAN, encoder_utilization=0.25, decoder_utilization=0.0, container="lxc web"),
        process(8, 0, sm_utilization=NAN, memory_used=NAN),
    ]
    heading, names, *rows = process_lines(frame_of(tick(1, [sample(0), sample(1)], people)))
    assert heading.startswith("processes")
    of = [dict(zip(names.replace("GPU MEM", "MEM").split()[:10], row.split(), strict=False)) for row in rows]
    assert [(one["GPU"], one["PID"], one["SM"], one["ENC"], one["DEC"]) for one in of] == [
        ("0", "8", "–", "–", "–"), ("1", "7", "–", "25%", "0%"),
    ]  # fmt: skip
    assert rows[1].endswith("lxc web")
    assert list(process_lines(frame_of(tick(1, [sample(0)])))) == []


def test_a_process_says_in_json_why_values_of_it_are_null() -> None:
    known = {"sm_utilization": 0.5, "cpu_utilization": 0.5, "memory_used": 1.0, "started": 1.0}
    people = [
        process(pid, 0, **{**known, **odd})
        for pid, odd in ((1, {}), (2, {"sm_utilization": NAN}), (3, {"started": NAN}))
    ]
    told = document(frame_of(tick(1, [sample(0)], people)), Origin("nvml"), Driver(), "node1", None)
    problems = {one["pid"]: one["problem"] for one in told["gpus"][0]["processes"]}
    assert problems == {
        1: None,
        2: "the driver has no utilization sample of the process",
        3: "the process has ended, or is not visible to gpumon, possibly because of a container",
    }


@pytest.mark.parametrize("why", [Availability.NO_PERMISSION, Availability.NOT_SUPPORTED, Availability.FAILED])
def test_utilization_of_processes_that_the_driver_does_not_give_has_its_reason(why: Availability) -> None:
    gpu = sample(0)._replace(device=device(0)._replace(missing={PROCESS_SHARES: why}))
    people = [process(), process(2, sm_utilization=0.5)]
    (told,) = document(frame_of(tick(1, [gpu], people)), Origin("nvml"), Driver(), "node1", None)["gpus"]
    problems = {one["pid"]: one["problem"] or "" for one in told["processes"]}
    assert [why.reason in problems[one.pid] for one in people] == [True, False]
    assert told["missing"][PROCESS_SHARES] == why.name.lower()


def test_what_cannot_be_seen_is_one_line_at_the_end_and_a_key() -> None:
    of, origin = frame_of(tick(1, [sample(0, utilization=0.97)])), Origin("nvml", notice="a container")
    assert list(lines(of, origin, Driver(), "node1", ""))[-1] == "note  a container"
    assert document(of, origin, Driver(), "node1", None)["notice"] == "a container"
    assert document(of, Origin("nvml"), Driver(), "node1", None)["notice"] is None
    assert not any(line.startswith("note") for line in shown(of))


def test_infinity_in_a_ring_is_no_bar() -> None:
    assert bar(float("inf")) == bar(float("nan")) == "·" * 10


def test_values_that_stand_still_say_since_when() -> None:
    of = frame_of(tick(1, [sample(0, utilization=0.97)]))
    assert "stale 12 s" in shown(of, live=False, age=12.0)[1]
    assert "stale" not in shown(of)[1]
    late = sample(0, Availability.STALE, utilization=0.97)._replace(age=7.0)
    assert "stale 7.0 s" in shown(frame_of(tick(1, [late])))[1]


def test_a_stale_gpu_has_its_age_in_json_whether_its_driver_or_the_daemon_is_silent() -> None:
    late = sample(1, Availability.STALE, utilization=0.97)._replace(age=7.0)
    of = frame_of(tick(1, [sample(0, utilization=0.97), late, sample(2, Availability.LOST)]))

    def ages(**options: Any) -> list[float | None]:
        return [gpu["age"] for gpu in document(of, Origin("nvml"), Driver(), "node1", None, **options)["gpus"]]

    assert ages(age=0.2) == [None, 7.0, None]
    asked = frame_of(tick(1, [sample(0, Availability.STALE)]))
    (gpu,) = document(asked, Origin("nvml"), Driver(), "node1", None, age=0.6)["gpus"]
    assert gpu["age"] == 0.6, "asked with this frame, which has waited for it"
    assert "stale 0.6 s" in shown(asked, age=0.6)[1]
    assert ages(age=12.0, live=False) == [12.0, 19.0, None]
    assert ages(live=False) == [None, 7.0, None], "as of a recording that has ended"


def test_the_utilization_of_a_gpu_that_hangs_is_not_told_as_one_of_now() -> None:
    late = sample(0, Availability.STALE, utilization=0.96)._replace(age=7.0)
    line = shown(frame_of(tick(1, [late])))[1]
    assert "96" not in line
    assert "·" * 10 + "    –" in line
    assert "96%" in shown(frame_of(tick(1, [sample(0, utilization=0.96)])))[1]


NOW = TIME / SECOND


def test_of_a_run_that_nobody_watches_no_time_left_is_told() -> None:
    of = frame_of(tick(1, [sample(0)], [], [run(epoch=5, epochs=10, started=NOW - 500, epoch_started=NOW - 10)]))
    assert any("left" in line for line in shown(of))
    assert not any("left" in line for line in shown(of, live=False, age=12.0))


def test_a_gpu_names_all_runs_on_it() -> None:
    one, other = run(), run(key="second", id="second", name="victim")
    on = sample(0, run=one.key)
    held = [process(pid=1, run=one.key), process(pid=2, run=other.key)]
    line = shown(frame_of(tick(1, [on], held, [one, other])))[1]
    assert one.name in line
    assert "victim" in line
    assert "victim" not in shown(frame_of(tick(1, [on], held[:1], [one])))[1]
    served = one._replace(epoch=-1, epochs=0)  # as any program without epochs
    assert f"{one.name}, " in shown(frame_of(tick(1, [on], held, [served, other])))[1]


@pytest.mark.parametrize("state", [Availability.LOST, Availability.FAILED, Availability.NO_PERMISSION])
def test_a_gpu_that_cannot_be_read_has_its_reason_in_place_of_numbers(state: Availability) -> None:
    _, line, *_ = shown(frame_of(tick(1, [sample(0, state, utilization=0.97)])))
    assert state.reason in line
    assert "97" not in line


@pytest.mark.parametrize(
    ("state", "words"), [(Availability.NO_DRIVER, "no driver: "), (Availability.RESET_REQUIRED, "reset required: ")]
)
def test_the_state_of_a_gpu_that_cannot_be_read_is_said_in_words(state: Availability, words: str) -> None:
    _, line, *_ = shown(frame_of(tick(1, [sample(0, state)])))
    assert words in line


def test_of_an_instance_that_is_lost_its_gpu_is_not_called_lost() -> None:
    lost = sample(0, Availability.LOST)
    part = lost._replace(device=lost.device._replace(uuid="MIG-1", parent=lost.device.uuid, instance=1))
    text = "\n".join(shown(frame_of(tick(1, [sample(0), part]))))
    assert "the driver lost this instance" in text
    assert "lost this GPU" not in text


def test_what_to_do_about_a_gpu_that_cannot_be_read_stands_below_it() -> None:
    now = [
        sample(0),
        sample(1, Availability.STALE, utilization=0.97)._replace(age=7.0),
        sample(2, Availability.LOST, xid=79.0),
        sample(3, Availability.NO_PERMISSION),
    ]
    below = [line for line in shown(frame_of(tick(1, now))) if line.startswith("critical")]
    assert len(below) == 2, "where nothing is to be done, the line of the GPU has said all"
    lost, hung = below
    assert lost.startswith("critical  GPU 2: the driver lost this GPU")
    assert "Restart the machine" in lost
    assert hung.startswith("critical  GPU 1: the driver has not answered for 7.0 s. Check 'dmesg'")


def test_the_line_of_a_gpu_names_other_users_beside_its_run() -> None:
    mine = run(gpus=(device().uuid,))
    held = [process(run=mine.key), process(pid=9, user="dave", memory_used=30 * 2.0**30), process(pid=10, user="")]
    now = frame_of(tick(1, [sample(0, utilization=0.9, run=mine.key)], held, [mine]))
    line = list(lines(now, Origin("nvml"), Driver(), "node1", ""))[1]
    assert line.endswith("busy  alice: resnet50 before its first epoch, dave: python 30.0 GiB")


@pytest.mark.parametrize("changed", [{"state": RunState.DIED}, {"state": RunState.FAILED}, {"epoch": 1, "step": 5}])
def test_the_rank_that_matters_is_shown_however_many_there_are(changed: dict[str, object]) -> None:
    def rank(number: int) -> Run:
        own = {"epoch": 3, "step": 50, **(changed if number == 20 else {})}
        key = f"tag.1000.{number}.abcd"
        return run(key, pid=100 + number, rank=number, world_size=24, epochs=10, gpus=(device(0).uuid,), **own)

    lines_of_ranks = [line.split()[1] for line in shown(frame_of(tick(1, [sample(0)], [], [*map(rank, range(24))])))
                      if line.startswith("     rank ")]  # fmt: skip
    assert lines_of_ranks == [*map(str, range(15)), "20"]


def test_the_line_of_a_run_of_which_a_rank_died_has_the_epoch_and_the_values_of_the_other() -> None:
    over = run("tag.1", rank=1, world_size=2, epoch=3, epochs=4, state=RunState.FINISHED, metrics={"loss": 0.25})
    died = over._replace(key="tag.0", rank=0, epoch=1, state=RunState.DIED, metrics={"loss": 0.5})
    (line,) = (line for line in shown(frame_of(tick(1, runs=[over, died]))) if line.startswith("run  "))
    assert {"epoch 3 (4/4)", "loss 0.25", "2 of 2 ranks on this host"} < {*line.split("  ·  ")}
