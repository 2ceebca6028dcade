"""Findings for people: one line for what is the same of several GPUs, and what could not be judged."""

from __future__ import annotations

from gpumon.diagnosis.finding import Finding, Severity, Subject, group_findings, one_per_subject_first, ranges
from gpumon.diagnosis.gpu import not_judged, nothing_found
from gpumon.model.device import Device
from gpumon.model.frame import Sample
from gpumon.model.metrics import GPU_METRICS, Availability


def gone(gpu: str, summary: str = "no GPU driver answers", kind: str = "gpu") -> Finding:
    title = f"GPU {gpu}" if kind == "gpu" else gpu
    return Finding("unavailable", Severity.CRITICAL, Subject(kind, f"id-{gpu}", title), summary, "")


def test_equal_findings_of_gpus_are_one_group() -> None:
    (group,) = group_findings(gone(str(gpu)) for gpu in range(8))
    assert group.title == "GPU 0–7"
    assert group.ids == {f"id-{gpu}" for gpu in range(8)}


def test_different_findings_are_separate_groups() -> None:
    found = [gone("3"), gone("1", "the GPU must be reset"), gone("0"), gone("5")]
    assert [group.title for group in group_findings(found)] == ["GPU 0, 3, 5", "GPU 1"]


def test_instances_are_named_after_whole_gpus() -> None:
    assert [group.title for group in group_findings([gone("0:1"), gone("2"), gone("1")])] == ["GPU 1–2, 0:1"]


def test_findings_about_runs_are_not_grouped() -> None:
    assert [group.title for group in group_findings([gone("a", kind="run"), gone("b", kind="run")])] == ["a", "b"]


def test_consecutive_numbers_are_a_range() -> None:
    assert ranges([7, 0, 1, 2, 5]) == "0–2, 5, 7"
    assert ranges([]) == ""


def sample(missing: tuple[str, ...] = (), state: Availability = Availability.OK) -> Sample:
    device = Device("GPU-0", 0, "GPU", dict.fromkeys(missing, Availability.NOT_RECORDED))
    return Sample(device, state, [1.0] * len(GPU_METRICS))


HEAT = ("gpu.temperature", "gpu.temperature_memory")
CAUSES = ("gpu.throttled_hw_thermal", "gpu.throttled_sw_thermal")


def test_complete_data_leaves_nothing_unjudged() -> None:
    assert not_judged([sample()], tells_processes=True) == []


def test_facts_missing_on_all_gpus_are_listed() -> None:
    few = sample((*HEAT, *CAUSES, "gpu.memory_total"))
    assert not_judged([few], tells_processes=False) == [
        "temperature",
        "throttling",
        "memory limit",
        "processes",
        "runs",
    ]
    assert not_judged([few, sample(HEAT[:1])], tells_processes=True) == []


def test_silent_gpus_are_not_listed_as_unjudged() -> None:
    assert not_judged([sample(HEAT, Availability.LOST)], tells_processes=True) == []


def test_without_gpus_nothing_is_judged() -> None:
    assert not_judged([], tells_processes=True) == ["GPUs"]
    assert nothing_found(not_judged([], tells_processes=True)) == "No findings; not available here: GPUs."


def test_a_group_has_the_action_for_each_gpu() -> None:
    found = [gone(gpu)._replace(action=f"Reset {gpu}.") for gpu in ("1", "4")]
    (group,) = group_findings(found)
    assert group.action == "GPU 1: Reset 1. GPU 4: Reset 4."
    (same,) = group_findings(one._replace(action="Wait.") for one in found)
    assert same.action == "Wait."


def test_one_finding_of_each_gpu_and_run_comes_first() -> None:
    found = [gone("3", "hot"), gone("3", "slow link"), gone("3", "full"), gone("1", "hot"), gone("net", kind="run")]
    ordered = one_per_subject_first(group_findings(found))
    assert [(group.title, group.first.summary) for group in ordered] == [
        ("GPU 1, 3", "hot"), ("net", "no GPU driver answers"), ("GPU 3", "slow link"), ("GPU 3", "full"),
    ]  # fmt: skip
