"""Rules: what each finds, and that live runs, past runs and epochs are judged alike."""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Mapping
from types import ModuleType
from typing import Any

import pytest

from gpumon.analysis import thresholds
from gpumon.analysis.gpu_state import Activity
from gpumon.analysis.gpu_status import gpu_statuses
from gpumon.analysis.ranks import ranks_of
from gpumon.analysis.run_epochs import Epochs
from gpumon.common.clock import SECOND
from gpumon.diagnosis import comparison, faults, gpu, runs
from gpumon.diagnosis.context import GpuContext, LinkUnderLoad, RunContext, diagnose
from gpumon.diagnosis.faults import FAULT_RULES
from gpumon.diagnosis.finding import Finding, Severity, Subject, finding_json
from gpumon.diagnosis.gpu import GPU_RULES
from gpumon.diagnosis.live_findings import JudgedFrame, findings, live_run
from gpumon.diagnosis.past_findings import epoch_findings
from gpumon.diagnosis.runs import RUN_RULES, diverged_names
from gpumon.model import units
from gpumon.model.frame import Frame, Mark, RunState, Sample
from gpumon.model.metrics import PROCESSES, Availability, Unit
from gpumon.model.remedies import RESTART_MACHINE, advice, clause
from gpumon.model.run import RunFacts
from gpumon.model.xids import XIDS, xid_of
from gpumon.sources.nvml.return_codes import GPU_IS_LOST
from gpumon.sources.nvml.return_codes import advice as advice_of_code
from gpumon.storage.history.recent import RecentHistory
from gpumon.storage.ledger.summary import EpochSummary
from tests.builders import TIME, boundary, frame_of, process, run, sample, tick

GIB = 2.0**30
CALM = {"utilization": 0.0, "memory_used": 0.0, "memory_total": 80 * GIB, "temperature": 40.0}
RUN = Subject("run", "resnet50-1a2b", "resnet50")


def of_gpu(one: Sample, seconds: int = 1, holders: int = 0, rates: Mapping[str, float] | None = None) -> list[Finding]:
    """Findings about a GPU that has been so for some seconds."""
    activity = Activity()
    for number in range(1, seconds + 1):
        frame = frame_of(tick(number, [one], [process(user="ada")] * holders))
        activity.add(frame)
    (status,) = gpu_statuses(frame, [], activity)
    return diagnose(GPU_RULES, [GpuContext(status=status, now=frame.time, rates=rates or {})])


@pytest.mark.parametrize(
    ("values", "seconds", "holders", "kind", "severity"),
    [
        ({}, 10, 0, None, None),
        ({"temperature": 200.0}, 1, 0, "hot", Severity.CRITICAL),
        ({"temperature_memory": 200.0}, 1, 0, "hot", Severity.CRITICAL),
        ({"memory_used": 79.9 * GIB, "utilization": 0.9}, 1, 1, "memory_nearly_full", Severity.WARNING),
        ({"memory_used": 40 * GIB}, 299, 1, None, None),
        ({"memory_used": 40 * GIB}, 302, 1, "allocated_idle", Severity.WARNING),
        ({"memory_used": 40 * GIB}, 302, 0, "allocated_idle", Severity.WARNING),
        ({}, 302, 0, "free", Severity.INFO),
    ],
)
def test_a_gpu_is_judged_by_its_rules(
    values: dict[str, float], seconds: int, holders: int, kind: str | None, severity: Severity | None
) -> None:
    found = of_gpu(sample(0, **{**CALM, **values}), seconds, holders)
    assert [(finding.kind, finding.severity) for finding in found] == ([(kind, severity)] if kind else [])
    assert all(finding.subject.title == "GPU 0" for finding in found)


def test_an_idle_gpu_has_its_holder_and_duration() -> None:
    (finding,) = of_gpu(sample(0, **{**CALM, "memory_used": 40 * GIB}), 3700, 1)
    assert finding.summary == "idle for at least 1 h 1 min, 40.0 GiB held by ada"
    (finding,) = of_gpu(sample(0, **{**CALM, "memory_used": 40 * GIB}), 302)
    assert finding.summary.endswith("held by a process that the driver does not list")


@pytest.mark.parametrize("jump", [6 * 3600, -6 * 3600])
def test_setting_the_clock_does_not_change_idle_times(jump: int) -> None:
    one, activity = sample(0, **{**CALM, "memory_used": 40 * GIB}), Activity()
    for number in range(1, 402):
        time_ns = TIME + (number + (jump if number > 200 else 0)) * SECOND
        frame = frame_of(tick(number, [one], [process(user="ada")], time_ns=time_ns))
        activity.add(frame)
    (finding,) = findings(gpu_statuses(frame, [], activity), [], None, frame.time)
    assert finding.summary == "idle for at least 6 min, 40.0 GiB held by ada"
    assert finding.evidence == {"seconds": 400.0}


def test_old_values_raise_no_findings() -> None:
    one = sample(0, **{**CALM, "utilization": 0.9, "temperature": 200.0, "memory_used": 79.9 * GIB})
    frame, rates = frame_of(tick(1, [one], [process()])), {"gpu.throttled_hw_thermal": 1.0}
    kinds = []
    for live in (True, False):
        (status,) = gpu_statuses(frame, [], live=live)
        found = diagnose(GPU_RULES, [GpuContext(status=status, now=frame.time, rates=rates)])
        kinds.append([finding.kind for finding in found])
    assert kinds == [["hot", "heat_throttled", "memory_nearly_full"], []]


def test_a_gpu_with_only_driver_errors_is_a_finding() -> None:
    errors = {f"gpu.{name}": Availability.FAILED for name in ("utilization", "memory_used", "power", "temperature")}
    broken = sample(0)._replace(device=sample(0).device._replace(missing=errors))
    (finding,) = of_gpu(broken)
    assert (finding.kind, finding.severity) == ("unavailable", Severity.CRITICAL)
    assert finding.summary == "the driver returns errors for this GPU: its state is unknown"
    still = sample(0, power=90.0)._replace(
        device=broken.device._replace(missing={"gpu.utilization": Availability.FAILED})
    )
    assert not of_gpu(still), "the rest of it is known"
    plain = broken._replace(device=broken.device._replace(missing={"gpu.utilization": Availability.NOT_SUPPORTED}))
    assert not of_gpu(plain), "which has no such sensors"


@pytest.mark.parametrize("state", [Availability.RESET_REQUIRED, Availability.LOST])
@pytest.mark.parametrize("missing", [{"gpu.utilization", "gpu.memory_used"}, {"gpu.fan"}, {"gpu.xid"}, {PROCESSES}])
def test_a_single_lost_or_reset_answer_is_sufficient(state: Availability, missing: set[str]) -> None:
    whole = sample(0, **CALM)
    part = whole._replace(device=whole.device._replace(missing=dict.fromkeys(missing, state)))
    (finding,) = of_gpu(part)
    (of_all,) = of_gpu(sample(0, state))
    assert (finding.kind, finding.severity, finding.action) == (of_all.kind, of_all.severity, of_all.action)
    assert finding.summary.startswith(state.reason)
    assert part.condition is state


@pytest.mark.parametrize("why", [Availability.FAILED, Availability.NOT_SUPPORTED, Availability.NO_PERMISSION])
def test_other_single_errors_are_no_finding(why: Availability) -> None:
    whole = sample(0, **CALM)
    part = whole._replace(device=whole.device._replace(missing={"gpu.fan": why}))
    assert (part.condition, of_gpu(part)) == (Availability.OK, [])


def test_findings_of_equal_severity_are_ordered_by_urgency() -> None:
    hot = sample(0, **{**CALM, "temperature": 200.0})
    stale, lost = silent(1), sample(2, Availability.LOST)
    full = sample(3, **{**CALM, "memory_used": 79.9 * GIB, "utilization": 0.9})
    frame = frame_of(tick(1, [hot, stale, lost, full]))
    found = findings(gpu_statuses(frame, []), [], None, frame.time)
    assert [(one.subject.title, one.kind) for one in found] == [
        ("GPU 2", "unavailable"), ("GPU 1", "unavailable"), ("GPU 0", "hot"), ("GPU 3", "memory_nearly_full"),
    ]  # fmt: skip


def silent(gpu: int, seconds: float = 12.0, **values: float) -> Sample:
    """A GPU of which the driver has not answered for so long."""
    return sample(gpu, Availability.STALE, **values)._replace(age=seconds)


@pytest.mark.parametrize(
    ("seconds", "summary"),
    [
        (thresholds.SILENT, "the driver has not answered for 5.0 s"),
        (12.0, "the driver has not answered for 12 s"),
        (math.nan, Availability.STALE.reason),
    ],
)
def test_a_silent_gpu_is_a_finding_with_advice(seconds: float, summary: str) -> None:
    (finding,) = of_gpu(silent(0, seconds, temperature=200.0, memory_used=80 * GIB, memory_total=80 * GIB))
    assert (finding.kind, finding.severity, finding.summary) == ("unavailable", Severity.CRITICAL, summary)
    assert "dmesg" in finding.action


def test_a_shortly_silent_gpu_is_no_finding() -> None:
    assert of_gpu(silent(0, thresholds.SILENT - 0.1, temperature=200.0)) == []


@pytest.mark.parametrize("state", [Availability.LOST, Availability.NO_PERMISSION])
def test_an_unreadable_gpu_has_one_finding(state: Availability) -> None:
    (finding,) = of_gpu(sample(0, state, temperature=200.0, memory_used=80 * GIB, memory_total=80 * GIB))
    assert (finding.kind, finding.severity, finding.summary) == ("unavailable", Severity.CRITICAL, state.reason)


@pytest.mark.parametrize(("code", "severity"), [(48, Severity.CRITICAL), (63, Severity.WARNING)])
def test_an_xid_error_is_a_finding_with_advice(code: int, severity: Severity) -> None:
    (finding,) = of_gpu(sample(0, **CALM, xid=float(code)))
    assert (finding.kind, finding.severity, finding.evidence) == ("xid_error", severity, {"xid": code})
    assert finding.summary == f"XID error {code}: {xid_of(code).meaning}"
    assert finding.action == advice(xid_of(code).action, sample(0).device)


@pytest.mark.parametrize("code", [0.0, math.nan, math.inf, -math.inf, -1.0])
def test_invalid_xid_codes_are_no_fault(code: float) -> None:
    assert of_gpu(sample(0, **CALM, xid=code)) == []


def test_silence_is_counted_from_the_unanswered_call() -> None:
    old = silent(0, 3600.0)
    assert of_gpu(old._replace(unanswered=0.0)) == of_gpu(old._replace(unanswered=4.9)) == []
    (finding,) = of_gpu(old._replace(unanswered=12.0))
    assert finding.summary == "the driver has not answered for 12 s"


@pytest.mark.parametrize("state", [Availability.LOST, Availability.STALE])
def test_an_unavailable_gpu_names_its_xid_error(state: Availability) -> None:
    (finding,) = of_gpu(sample(0, state, xid=79.0))
    assert finding.kind == "unavailable"
    assert finding.summary == f"{state.reason}, after XID error 79: {xid_of(79).meaning}"
    assert (finding.action, finding.evidence) == (advice(xid_of(79).action, sample(0).device), {"xid": 79})


def test_a_gpu_that_is_asleep_needs_no_attention() -> None:
    assert of_gpu(sample(0, Availability.ASLEEP), seconds=302) == []


def test_heat_throttling_is_found_by_rates() -> None:
    (finding,) = of_gpu(sample(0, **CALM), rates={"gpu.throttled_hw_thermal": 1.0})
    assert finding.kind == "heat_throttled"
    assert finding.evidence == {"throttled_hw_thermal": 1.0}


@pytest.mark.parametrize(
    ("known", "kinds"),
    [
        ({}, []),
        ({"wait_share": thresholds.INPUT_BOUND - 0.01}, []),
        ({"wait_share": thresholds.INPUT_BOUND}, ["input_bound"]),
        ({"throttled_share": thresholds.THROTTLED}, ["throttled"]),
        ({"idle_share": thresholds.MOSTLY_IDLE}, ["mostly_idle"]),
        ({"diverged": ["loss"]}, ["diverged"]),
        ({"ooms": 1.0, "asked": 2 * GIB, "free": GIB}, ["out_of_memory"]),
        ({"state": RunState.DIED, "epoch": "3/90"}, ["died"]),
        ({"state": RunState.FAILED}, ["failed"]),
        ({"state": RunState.INTERRUPTED}, []),
        ({"idle_share": 0.9, "wait_share": 0.9, "diverged": ["loss"]}, ["diverged", "input_bound", "mostly_idle"]),
    ],
)
def test_a_run_is_judged_by_its_rules(known: dict[str, Any], kinds: list[str]) -> None:
    found = diagnose(RUN_RULES, [RunContext(subject=RUN, **known)])
    assert [finding.kind for finding in found] == kinds


def test_waits_of_a_live_run_count_after_its_first_epoch() -> None:
    started = TIME / SECOND
    for epoch, kinds in ((0, []), (1, ["input_bound"])):
        one = run(epoch=epoch, started=started, wait=42.0)
        frame = frame_of(tick(100, [sample(0, utilization=0.9)], runs=[one]))
        found = findings([], ranks_of(frame.runs), Epochs(), frame.time)
        assert [finding.kind for finding in found] == kinds
    assert found[0].summary == f"waits for data {units.number(0.42, Unit.RATIO)} of the time"
    assert live_run(ranks_of(frame.runs)[0], Epochs(), frame.time).wait_share == pytest.approx(0.42)


@pytest.mark.parametrize(("seconds", "of"), [(10.0, "the time"), (20.0, "the training time")])
def test_a_wait_share_names_the_time_it_refers_to(seconds: float, of: str) -> None:
    epoch = EpochSummary(0, 0, seconds, 40, wait=4.8, wait_of=10.0, ranks=1, utilization_from="", ended=seconds)
    share = units.number(0.48, Unit.RATIO)
    assert [found.summary for found in epoch_findings(epoch)] == [f"waits for data {share} of {of}"]


@pytest.mark.parametrize("set_by", [3600.0, -3600.0])
def test_setting_the_clock_does_not_change_shares(set_by: float) -> None:
    began = 50.0
    one = run(epoch=1, started=TIME / SECOND, wait=42.0, facts=RunFacts(begun=began))
    now, ranks = TIME / SECOND + 100 + set_by, ranks_of([one])
    (found,) = findings([], ranks, Epochs(), now, monotonic_ns=round((began + 100) * SECOND))
    assert found.evidence["wait_share"] == pytest.approx(0.42)


def watched(seconds: int, busy: float, counter: str = "", rate: float = 0.0) -> tuple[RecentHistory, Frame]:
    """The history of a run that works for a share `busy` of each ten seconds, and its newest frame."""
    history = RecentHistory()
    one = run(epoch=3, started=TIME / SECOND, gpus=(sample(0).device.uuid,))
    for second in range(1, seconds + 1):
        values = {
            "utilization": 0.9 if second % 10 < 10 * busy else 0.0,
            **({counter: rate * second} if counter else {}),
        }
        frame = frame_of(tick(second, [sample(0, **values)], runs=[one]), second)
        history.add(frame)
    return history, frame


@pytest.mark.parametrize(
    ("seconds", "busy", "counter", "rate", "kinds"),
    [
        (400, 0.4, "", 0.0, ["mostly_idle"]),
        (400, 0.6, "", 0.0, []),
        (250, 0.4, "", 0.0, []),
        (400, 1.0, "throttled_sw_thermal", 0.2, ["throttled"]),
        (400, 1.0, "throttled_hw_power_brake", 0.2, ["throttled"]),
        (400, 1.0, "throttled_sw_power", 0.9, []),
        (250, 1.0, "throttled_sw_thermal", 0.2, []),
    ],
)
def test_shares_of_a_live_run_are_judged(
    seconds: int, busy: float, counter: str, rate: float, kinds: list[str]
) -> None:
    history, frame = watched(seconds, busy, counter, rate)
    found = findings([], ranks_of(frame.runs), Epochs(), frame.time, history)
    assert [finding.kind for finding in found] == kinds
    assert findings([], ranks_of(frame.runs), Epochs(), frame.time) == [], "who has no history judges no share"


def test_heat_throttling_needs_a_gpu_that_answers() -> None:
    history, frame = watched(20, 1.0, "throttled_hw_thermal", 0.5)
    (found,) = findings(gpu_statuses(frame, []), [], None, frame.time, history)
    assert (found.kind, found.severity) == ("heat_throttled", Severity.CRITICAL)
    late = frame_of(tick(21, [silent(0)]))
    assert [one.kind for one in findings(gpu_statuses(late, []), [], None, late.time, history)] == ["unavailable"]


def test_a_run_that_claims_gpus_without_a_process_there_is_a_finding() -> None:
    ranks = [run(f"tag.{rank}", rank=rank, facts=RunFacts(claimed=2)) for rank in (0, 1)]
    found = diagnose(RUN_RULES, [live_run(ranks_of(ranks)[0], Epochs(), TIME)])
    assert [(one.kind, one.evidence) for one in found] == [("claimed", {"gpus": 4.0})]
    over = [rank._replace(state=RunState.FINISHED) for rank in ranks]
    assert not diagnose(RUN_RULES, [live_run(ranks_of(over)[0], Epochs(), TIME)])


@pytest.mark.parametrize("dead", [0, 1])
@pytest.mark.parametrize("state", [RunState.RUNNING, RunState.FINISHED])
def test_a_dead_rank_does_not_hide_the_values_of_the_others(dead: int, state: RunState) -> None:
    other = run(f"tag.{1 - dead}", rank=1 - dead, epoch=3, epochs=4, step=20, state=state, metrics={"loss": 0.25})
    died = other._replace(
        key=f"tag.{dead}", rank=dead, epoch=1, step=10, state=RunState.DIED, metrics={"loss": 0.5, "only": 1.0}
    )
    (ranks,) = ranks_of([other, died])
    assert (ranks.slowest.epoch, ranks.metrics) == (3, {"loss": 0.25, "only": 1.0})
    (finding,) = diagnose(RUN_RULES, [live_run(ranks, Epochs(), TIME)])
    assert (finding.kind, finding.summary) == ("died", f"died in epoch {died.epoch_text}")


def test_the_lowest_rank_has_the_values_and_the_slowest_the_epoch() -> None:
    fast = run("tag.0", epoch=3, step=16, metrics={"loss": 0.3})
    (ranks,) = ranks_of([fast, run("tag.1", rank=1, epoch=2, step=15, metrics={"loss": 0.4})])
    assert (ranks.slowest.epoch, ranks.metrics) == (2, {"loss": 0.3})


def test_a_run_that_logs_nan_has_diverged() -> None:
    for logged, kinds in (
        ({"loss": math.nan, "val_loss": math.inf}, ["diverged"]),
        ({"loss": 0.5, "best_loss": math.inf, "loss_scale": math.inf, "bleu": math.nan}, []),
    ):
        one = run(epoch=3, started=TIME / SECOND, metrics=logged)
        frame = frame_of(tick(100, [sample(0, utilization=0.9)], runs=[one]))
        assert [found.kind for found in findings([], ranks_of(frame.runs), Epochs(), frame.time)] == kinds


@pytest.mark.parametrize(
    ("name", "course", "diverged"),
    [
        ("loss", [1.0, math.nan], {"loss": True}),
        ("Loss/train", [math.inf, math.inf], {"Loss/train": False}),
        ("loss", [1.0, math.nan, 0.9], {}),
        ("val_loss", [math.nan, 0.3, math.nan, 0.4, math.nan], {}),
        ("loss", [1.0, math.nan, 0.9, math.nan, math.nan], {"loss": True}),
        ("accuracy", [0.5, math.nan, math.nan], {"accuracy": True}),
        ("accuracy", [0.5, math.nan], {}),
        ("bleu", [math.nan, math.nan, math.nan], {}),
        ("best", [math.inf, 0.7, 0.6], {}),
        ("best_loss", [math.inf, math.inf], {}),
        ("grad_scale", [math.inf, math.inf], {}),
        ("loss", [1.0, 0.5], {}),
    ],
)
def test_a_metric_has_diverged_if_it_becomes_no_number_and_stays_so(
    name: str, course: list[float], diverged: dict[str, bool]
) -> None:
    assert diverged_names([{name: value} for value in course]) == diverged


def test_json_omits_unknown_numbers() -> None:
    (finding,) = diagnose(RUN_RULES, [RunContext(subject=RUN, ooms=1.0)])
    assert finding_json(finding) == {
        "kind": "out_of_memory",
        "severity": "critical",
        "subject": {"kind": "run", "id": "resnet50-1a2b", "title": "resnet50"},
        "summary": "out of memory",
        "action": finding.action,
        "evidence": {"ooms": 1.0},
        "cause": None,
        "certainty": None,
        "gain": None,
        "window": None,
        "threshold": None,
    }


@pytest.mark.parametrize(
    ("module", "rules"),
    [
        (gpu, tuple(rule for rule in GPU_RULES if rule not in FAULT_RULES)),
        (faults, FAULT_RULES),
        (runs, RUN_RULES),
        (comparison, (*comparison.COMPARISON_RULES, *comparison.COMPARED_RUN_RULES)),
    ],
)
def test_every_rule_is_in_its_table(module: ModuleType, rules: tuple[Any, ...]) -> None:
    written = {
        function
        for name, function in inspect.getmembers(module, inspect.isgeneratorfunction)
        if function.__module__ == module.__name__ and not name.startswith("_")
    }
    assert written == set(rules), "a rule outside the table is never asked"
    assert set(FAULT_RULES) <= set(GPU_RULES)


# Faults ---------------------------------------------------------------------------------------------------

HEALTHY = {
    **CALM, "ecc_corrected": 900.0, "ecc_uncorrected": 0.0, "ecc_uncorrected_lifetime": 3.0, "remapping_pending": 0.0,
    "remapping_failed": 0.0, "retirement_pending": 0.0, "recovery_action": 0.0, "pcie_generation": 4.0,
    "pcie_generation_max": 4.0, "pcie_width": 16.0, "pcie_width_max": 16.0, "nvlink_links": 18.0, "nvlink_active": 18.0,
}  # fmt: skip


def test_corrected_and_past_errors_are_no_fault() -> None:
    assert of_gpu(sample(0, **HEALTHY)) == []


@pytest.mark.parametrize(
    ("fault", "kind", "severity", "says"),
    [
        ({"ecc_uncorrected": 1.0}, "uncorrected_errors", Severity.CRITICAL, "1 uncorrected memory error since"),
        ({"ecc_uncorrected": 12.0}, "uncorrected_errors", Severity.CRITICAL, "12 uncorrected memory errors since"),
        ({"remapping_failed": 1.0}, "remapping_failed", Severity.CRITICAL, "could not be remapped"),
        ({"remapping_pending": 1.0}, "memory_repair_pending", Severity.WARNING, "until the GPU is reset"),
        ({"retirement_pending": 1.0}, "memory_repair_pending", Severity.WARNING, "until the GPU is reset"),
        ({"recovery_action": 1.0}, "recovery_required", Severity.CRITICAL, "requires a reset of the GPU"),
        ({"recovery_action": 2.0}, "recovery_required", Severity.CRITICAL, "requires a restart of the machine"),
        ({"recovery_action": 4.0}, "recovery_required", Severity.WARNING, "requires a reset of the GPU when it is f"),
        ({"recovery_action": 6.0}, "recovery_required", Severity.WARNING, "requires recovery action 6"),
    ],
)
def test_a_fault_is_a_finding_with_advice(fault: dict[str, float], kind: str, severity: Severity, says: str) -> None:
    (finding,) = of_gpu(sample(0, **{**HEALTHY, **fault}))
    assert (finding.kind, finding.severity) == (kind, severity)
    assert says in finding.summary
    assert finding.action.endswith(".")
    assert set(finding.evidence.items()) == set(fault.items())


def test_a_replaced_gpu_is_named_by_uuid() -> None:
    gone = sample(7, Availability.LOST)
    gone = gone._replace(device=gone.device._replace(uuid="GPU-ff"))
    (found,) = [
        one for one in JudgedFrame(frame_of(tick(1, [sample(7), gone]))).findings() if one.kind == "unavailable"
    ]
    assert found.subject == ("gpu", "GPU-ff", "GPU 7")
    assert found.summary == "the driver lost this GPU: GPU-ff; another GPU now has its index"
    (found,) = JudgedFrame(frame_of(tick(1, [sample(6), gone]))).findings()
    assert found.summary == "the driver lost this GPU"


@pytest.mark.parametrize("one", [silent(0), sample(0, Availability.LOST)], ids=["silent", "lost"])
def test_old_values_are_no_fault(one: Sample) -> None:
    faults = {"ecc_uncorrected": 9.0, "recovery_action": 2.0, "remapping_failed": 1.0, "remapping_pending": 1.0}
    values = sample(0, **{**HEALTHY, **faults}).values
    assert [found.kind for found in of_gpu(one._replace(values=values))] == ["unavailable"]


def down(*links: float, names: str = "") -> list[str]:
    """GPUs whose NVLink links are down, where so many are up; a letter for each model, all alike without."""
    samples = [sample(index, **{**HEALTHY, "nvlink_active": up}) for index, up in enumerate(links)]
    for index, name in enumerate(names):
        samples[index] = samples[index]._replace(device=samples[index].device._replace(name=f"NVIDIA {name}"))
    frame = frame_of(tick(1, samples))
    found = findings(gpu_statuses(frame, []), [], None, frame.time)
    return [one.subject.title for one in found if one.kind == "nvlink_down"]


def test_links_are_compared_within_a_model() -> None:
    assert down(18, 18, 16, 18) == ["GPU 2"]
    assert down(18, 18, 18) == []
    assert down(4, 4, 0) == [], "a card without a bridge"
    assert down(12) == down(math.nan, 12) == down(12, math.nan) == []
    assert down(18, 12, names="AB") == []


def loaded(busy: float, seconds: int = 60, **link: float) -> list[str]:
    """The kinds of findings about a GPU that has been so busy for so many seconds."""
    one, history = sample(0, **{**HEALTHY, **link, "utilization": busy, "memory_used": GIB}), RecentHistory()
    for number in range(1, seconds + 1):
        frame = frame_of(tick(number, [one], [process()]))
        history.add(frame)
    found = findings(gpu_statuses(frame, []), [], None, frame.time, history)
    return [finding.kind for finding in found]


def test_a_pcie_link_is_judged_only_under_known_load() -> None:
    assert loaded(0.9, pcie_width=8.0) == ["slow_link"]
    assert loaded(0.9, pcie_generation=1.0) == ["slow_link"]
    assert loaded(0.9) == []
    assert loaded(0.1, pcie_generation=1.0) == [], "an idle link steps down"
    assert loaded(0.9, seconds=20, pcie_generation=1.0) == [], "it may have been read before the load began"
    assert loaded(0.9, pcie_generation=1.0, pcie_generation_max=math.nan) == []
    assert loaded(math.nan, pcie_generation=1.0) == []


def test_a_slow_link_has_value_and_maximum() -> None:
    one = sample(0, **{**HEALTHY, "pcie_generation": 3.0, "pcie_width": 8.0, "utilization": 0.9})
    (status,) = gpu_statuses(frame_of(tick(1, [one])), [])
    loaded = LinkUnderLoad(0.9, {"gpu.pcie_generation": 3.0, "gpu.pcie_width": 8.0})
    (finding,) = diagnose(GPU_RULES, [GpuContext(status=status, now=0.0, loaded=loaded)])
    assert finding.summary == "under load, the PCIe link runs at generation 3 instead of 4 and with 8 of 16 lanes"
    assert finding.evidence == {"utilization": 0.9, "pcie_generation": 3.0, "pcie_width": 8.0}


def test_the_wait_share_of_a_live_run_equals_that_of_the_ledger() -> None:
    epochs, told, wait = Epochs(), [], 0.0
    for epoch in range(2):  # 10 s of training, 4 s of which it waits; 3 s of validation; 7 s between epochs
        marks = ((0, Mark.EPOCH_BEGIN, "train"), (10, Mark.PHASE, "validate"), (13, Mark.EPOCH_END, ""))
        for second, mark, phase in marks:
            wait += 4.0 * (second == 10)
            told.append(
                boundary(len(told) + 1, epoch, mark)._replace(
                    phase=phase, wait=wait, monotonic_ns=(20 * epoch + second) * SECOND,
                )
            )  # fmt: skip
    begun = boundary(len(told) + 1, 2)._replace(wait=wait, monotonic_ns=40 * SECOND)
    one = run(epoch=2, started=TIME / SECOND, wait=10.0)
    epochs.add(frame_of(tick(45, runs=[one], boundaries=[*told, begun])))
    (found,) = findings([], ranks_of([one]), epochs, TIME / SECOND + 45, monotonic_ns=45 * SECOND)
    assert found.evidence["wait_share"] == pytest.approx(10 / 25)
    assert found.summary == f"waits for data {units.number(0.4, Unit.RATIO)} of the training time"


@pytest.mark.parametrize(
    "broken", [
        sample(3, Availability.RESET_REQUIRED),
        *(sample(3, **{**HEALTHY, name: 1.0}) for name in ("ecc_uncorrected", "remapping_pending", "recovery_action")),
        sample(3, **{**HEALTHY, "recovery_action": 4.0}),
    ],
)  # fmt: skip
def test_advice_to_reset_a_gpu_names_it_by_its_uuid(broken: Sample) -> None:
    broken = broken._replace(device=broken.device._replace(name="NVIDIA H100", uuid="GPU-3c"))
    (finding,) = of_gpu(broken)
    assert "'sudo nvidia-smi -i GPU-3c --gpu-reset'" in finding.action


@pytest.mark.parametrize("state", [Availability.LOST, Availability.NO_DRIVER])
@pytest.mark.parametrize("xid", [math.nan, *(float(xid.code) for xid in XIDS if xid.is_repair)])
def test_an_unreachable_gpu_is_not_to_be_reset(state: Availability, xid: float) -> None:
    (finding,) = of_gpu(sample(3, state, xid=xid))
    assert not re.search(r"\breset\b", finding.action)
    is_urgent = state is Availability.LOST or (xid > 0 and xid_of(int(xid)).severity == "critical")
    assert (RESTART_MACHINE[1:] in finding.action) is is_urgent


def test_a_lost_gpu_has_the_remedy_of_a_lost_driver() -> None:
    (finding,) = of_gpu(sample(3, Availability.LOST))
    assert advice_of_code(GPU_IS_LOST).partition(": ")[2] == clause(finding.action)
    (finding,) = of_gpu(sample(3, Availability.LOST, xid=48.0))
    assert clause(finding.action).startswith(RESTART_MACHINE)
    assert finding.evidence == {"xid": 48.0}


def limited(epochs: int, epoch: int, limit_in: float, seconds: float = 100.0, rate: float = 1.0) -> RunContext:
    """A run whose epochs take `seconds`, at the end of one, with a time limit in `limit_in` seconds."""
    begin = TIME / SECOND
    now = begin + epoch * seconds
    one = run(
        epoch=epoch, epochs=epochs, started=begin, epoch_started=now, updated=now, step=10 * epoch,
        facts=RunFacts(time_limit=now + limit_in),
    )  # fmt: skip
    return live_run(ranks_of([one])[0], Epochs(), now)


@pytest.mark.parametrize(
    ("limit_in", "found"),
    [
        (500.0, True), (790.0, True), (839.0, True), (841.0, False), (2000.0, False),
    ],
)  # fmt: skip
def test_a_run_that_exceeds_its_time_limit_is_a_finding(limit_in: float, found: bool) -> None:
    findings = diagnose(RUN_RULES, [limited(epochs=10, epoch=1, limit_in=limit_in)])
    assert [(one.kind, one.evidence) for one in findings] == (
        [("time_limit", {"left": pytest.approx(900.0), "limit_in": pytest.approx(limit_in)})] if found else []
    )


def test_a_run_past_its_limit_is_a_finding_while_it_runs() -> None:
    context = limited(epochs=10, epoch=1, limit_in=-30.0)
    assert [(one.kind, one.evidence) for one in diagnose(RUN_RULES, [context])] == [
        ("time_limit", {"limit_in": pytest.approx(-30.0)})
    ]
    assert not diagnose(RUN_RULES, [context._replace(state=RunState.FINISHED)])


def test_without_an_estimate_the_time_limit_is_not_judged() -> None:
    assert not diagnose(RUN_RULES, [limited(epochs=0, epoch=3, limit_in=10.0)])
    assert not diagnose(RUN_RULES, [limited(epochs=10, epoch=0, limit_in=10.0)])
