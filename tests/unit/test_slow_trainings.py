"""Rules about slow trainings: for each a training that raises it, one that comes close, and one that clears it."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpumon.cli import main
from gpumon.common.clock import SECOND
from gpumon.diagnosis import advice
from gpumon.diagnosis.finding import Certainty, Finding, Severity, Subject, finding_json
from gpumon.diagnosis.past_findings import findings, not_judged
from gpumon.diagnosis.slow_trainings import SLOW_RULES
from gpumon.diagnosis.training import training_of, unjudged
from gpumon.diagnosis.training_trends import COUNTER_RULES, TREND_RULES
from gpumon.model.frame import RunState
from gpumon.model.metrics import Unit
from gpumon.model.run import IN_PROCESS, KEPT_WORKERS, STARTED_WORKERS
from gpumon.reports.gains import GainComparison, compare_gains, gain_lines
from gpumon.reports.why import EVIDENCE, RATES, gain_text, lines, run_document
from gpumon.sources.sim import SimSource
from gpumon.storage.ledger import aggregate
from gpumon.storage.ledger.reader import Ledger
from gpumon.storage.ledger.recorder import LedgerRecorder
from gpumon.storage.ledger.records import Record, SettledEpochs
from gpumon.storage.ledger.writer import LedgerWriter
from tests.builders import tick
from tests.fakes import FakeClock
from tests.runs import BEGAN, GIB, Book, training

RUN = "net-1a2b"
SECONDS = 10.0
EPOCHS = 6
Change = Callable[[Book], object]


def sql(*statements: str) -> Change:
    """A change of the ledger by these statements."""

    def change(book: Book) -> None:
        for statement in statements:
            book.db.execute(statement)

    return change


def waits(share: str) -> Change:
    """Every epoch waits for data for this share of its time, an SQL expression."""
    return sql(
        f"UPDATE epoch SET wait = ({share}) * seconds",
        "UPDATE rank SET wait = (SELECT sum(wait) FROM epoch WHERE epoch.rank = rank.key)",
    )


def phase(name: str, shares: Sequence[float]) -> Change:
    """Each epoch is in a phase for its share of the time."""

    def change(book: Book) -> None:
        for (key,) in book.db.execute("SELECT key FROM rank").fetchall():
            for ordinal, share in enumerate(shares):
                book.phase(key, ordinal, name, share * SECONDS)

    return change


def gaps(seconds: float) -> Change:
    """After each epoch, so many seconds pass until the next one."""
    later = f"ordinal * {seconds} * 1e9"
    return sql(
        f"UPDATE epoch SET begun = begun + {later}, ended = ended + {later}",
        f"UPDATE run SET ended = ended + {EPOCHS * seconds} * 1e9",
    )


def usage(**values: float) -> Change:
    """The GPUs had these values in every epoch and in the whole run."""
    return sql(f"UPDATE usage SET {', '.join(f'{name} = {value}' for name, value in values.items())}")


def record_of(directory: Path, *changes: Change, epochs: int = EPOCHS, **cells: Any) -> Record:
    """The record of a training with equal epochs after these changes of its ledger."""
    with Book(directory) as book:
        training(book, RUN, epochs, seconds=SECONDS, phases=False, course=False, **cells)
        for change in changes:
            change(book)
        path = str(book.path)
    with Ledger(path) as ledger:
        return ledger.record(RUN, phases=False, times=True)


def findings_of(record: Record) -> list[Finding]:
    """The findings about a recorded training, ranked."""
    epochs = aggregate.epoch_summaries(record)
    return findings(record, aggregate.run_total(record, epochs), record.run.updated, epochs)


def kinds(directory: Path, *changes: Change, **cells: Any) -> list[str]:
    """The kinds of the findings about a training, ranked."""
    return [finding.kind for finding in findings_of(record_of(directory, *changes, **cells))]


def lengths(*factors: float) -> Change:
    """The first epochs last so many times ten seconds, and the others ten seconds."""

    def change(book: Book) -> None:
        begun = BEGAN * SECOND
        for ordinal in range(EPOCHS):
            seconds = SECONDS * (factors[ordinal] if ordinal < len(factors) else 1.0)
            ended = begun + round(seconds * SECOND)
            book.db.execute(
                "UPDATE epoch SET seconds = ?, begun = ?, ended = ? WHERE ordinal = ?", (seconds, begun, ended, ordinal)
            )
            begun = ended

    return change


def grows(*sizes: float) -> Change:
    """The tensors need so many GiB in the epochs."""

    def change(book: Book) -> None:
        for ordinal, size in enumerate(sizes):
            book.db.execute("UPDATE usage SET run_allocated_mean = ? WHERE ordinal = ?", (size * GIB, ordinal))

    return change


def peak(gib: float) -> Change:
    """The tensors need so many GiB at their peak, of 40 GiB that the allocator holds."""
    return sql(f"UPDATE epoch SET peak = {gib * GIB}", f"UPDATE usage SET run_allocated_peak = {gib * GIB}")


def loader(loading: str, workers: int = 0, *, wait: float = 0.0, cpu: float = 0.0) -> Change:
    """The training reported such a loader, and waited `wait` seconds at the start and end of each pass."""
    return sql(
        f"UPDATE rank SET loading = '{loading}', workers = {workers}, passes = {EPOCHS - 1}, "
        f"pass_waits = {wait * (EPOCHS - 1)}, worker_cpu_seconds = {cpu}, seconds = {EPOCHS * SECONDS}"
    )


RANK = "tag.1000.4712." + RUN
LATE = "ordinal >= 4"
SLOW_RANK = f"CASE rank WHEN '{RANK}' THEN 0.35 ELSE 0.03 END"
LESS_SLOW_RANK = f"CASE rank WHEN '{RANK}' THEN 0.11 ELSE 0.03 END"
CASES: dict[str, tuple[Sequence[Change], Sequence[Change], Sequence[Change], dict[str, Any]]] = {
    "input_bound": (
        [waits("0.5")], [waits("0.18")], [waits(f"CASE WHEN {LATE} THEN 0.05 ELSE 0.5 END")], {},
    ),
    "worker_start": (
        [loader(STARTED_WORKERS, 4, wait=3.0), waits("0.32")], [loader(STARTED_WORKERS, 4, wait=0.4), waits("0.06")],
        [loader(KEPT_WORKERS, 4, wait=3.0), waits("0.06")], {},
    ),
    "straggler": (
        [waits(SLOW_RANK)], [waits(LESS_SLOW_RANK)], [waits("0.03")], {"gpus": 4},
    ),
    "slow_validation": (
        [phase("validate", [0.4] * 6)], [phase("validate", [0.2] * 6)], [phase("validate", [0.4] * 4 + [0.1] * 2)], {},
    ),
    "slow_checkpoints": (
        [phase("checkpoint", [0.4] * 6)], [phase("checkpoint", [0.08] * 6)],
        [phase("checkpoint", [0.4] * 4 + [0.01] * 2)], {},
    ),
    "between_epochs": ([gaps(4.0)], [gaps(1.5)], [gaps(0.0)], {}),
    "low_utilization": (
        [usage(utilization_p95=0.5, utilization_mean=0.4, idle_share=0.1), waits("0.01")],
        [usage(utilization_p95=0.72, utilization_mean=0.6, idle_share=0.1), waits("0.01")],
        [usage(utilization_p95=0.95, utilization_mean=0.9, idle_share=0.01), waits("0.01")], {},
    ),
    "no_tensor_cores": (
        [usage(tensor_throughput_mean=0.01, sm_activity_mean=0.8, fp32_activity_mean=0.4)],
        [usage(tensor_throughput_mean=0.06, sm_activity_mean=0.8, fp32_activity_mean=0.4)],
        [usage(tensor_throughput_mean=0.4, sm_activity_mean=0.8, fp32_activity_mean=0.1)], {},
    ),
    "mostly_idle": (
        [usage(idle_share=0.6), waits("0.02")], [usage(idle_share=0.45), waits("0.02")],
        [usage(idle_share=0.02), waits("0.02")], {},
    ),
    "epoch_outlier": (
        [lengths(1.0, 1.0, 4.0)], [lengths(1.0, 1.0, 1.9)], [lengths(1.0, 1.0, 1.0)], {},
    ),
    "first_epoch": ([lengths(4.0)], [lengths(2.5)], [lengths(1.2)], {}),
    "slower_epochs": (
        [lengths(1.0, 1.1, 1.3, 1.5, 1.7, 1.9)], [lengths(1.1, 1.0, 1.03, 1.06, 1.09, 1.12)],
        [lengths(1.0, 1.5, 1.4, 1.3, 1.2, 1.1)], {},
    ),
    "memory_growth": (
        [grows(20, 22, 24, 26, 28, 30)], [grows(20, 20.1, 20.2, 20.3, 20.4, 20.5)],
        [grows(20, 22, 24, 26, 26, 26)], {},
    ),
    "shared_gpu": ([usage(memory_used_peak=60 * GIB)], [usage(memory_used_peak=42 * GIB)],
                   [usage(memory_used_peak=41.6 * GIB)], {}),
    "allocator_retries": ([sql("UPDATE rank SET retries = 9")], [sql("UPDATE rank SET retries = 2")],
                          [sql("UPDATE rank SET retries = 0")], {}),
    "fragments": ([peak(15)], [peak(22)], [peak(35)], {}),
    "throttled": ([usage(throttled_share=0.5)], [usage(throttled_share=0.08)], [usage(throttled_share=0.0)], {}),
}  # fmt: skip
"""For each kind: a training that raises it, one that comes close, one in which it has cleared while it runs."""


BELOW = ("low_utilization", "no_tensor_cores")
"""Kinds whose number is below the limit."""
UNPREDICTED = ("memory_growth", "shared_gpu", "allocator_retries", "fragments")
"""Kinds whose action saves memory, or time that nothing measures."""


@pytest.mark.parametrize("kind", CASES)
class TestRule:
    def test_raises_it_while_the_training_runs(self, kind: str, tmp_path: Path) -> None:
        raised, _, _, cells = CASES[kind]
        assert kinds(tmp_path, *raised, **cells, state=RunState.RUNNING)[:1] == [kind]

    def test_is_silent_below_its_limit(self, kind: str, tmp_path: Path) -> None:
        _, near, _, cells = CASES[kind]
        assert kinds(tmp_path, *near, **cells) == []

    def test_is_silent_once_two_epochs_are_below_it(self, kind: str, tmp_path: Path) -> None:
        _, _, cleared, cells = CASES[kind]
        assert kinds(tmp_path, *cleared, **cells, state=RunState.RUNNING) == []

    def test_is_first_with_cause_action_numbers_and_limit(self, kind: str, tmp_path: Path) -> None:
        raised, _, _, cells = CASES[kind]
        finding = findings_of(record_of(tmp_path, *raised, **cells))[0]
        assert finding.kind == kind
        assert all((finding.cause, finding.action, finding.window, finding.certainty))
        assert finding.evidence.keys() <= EVIDENCE.keys()
        assert (finding.gain is None) == (kind in UNPREDICTED)
        assert finding.gain is None or 0 <= finding.gain.low < finding.gain.high <= 1
        measured = next(iter(finding.evidence.values()))
        assert (measured - finding.threshold) * (-1 if kind in BELOW else 1) >= 0


def test_every_rule_has_a_case() -> None:
    assert {rule.__name__ for rule in (*SLOW_RULES, *TREND_RULES, *COUNTER_RULES)} <= CASES.keys()


@pytest.mark.parametrize("epochs", [1, 2, 6, 40])
@pytest.mark.parametrize("state", [RunState.RUNNING, RunState.FINISHED])
def test_a_healthy_training_has_no_finding(epochs: int, state: RunState, tmp_path: Path) -> None:
    assert kinds(tmp_path, epochs=epochs, state=state, gpus=2) == []


def test_half_an_hour_of_simulation_has_one_finding(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    recorder = LedgerRecorder(LedgerWriter(str(path), os.getuid(), pytest.fail).start())
    clock = FakeClock(5000 * SECOND)
    source = SimSource(clock=clock, seed=0, scenario="default")
    for _ in range(1800):
        for one in source.read():
            recorder.add(
                tick(samples=one.samples, processes=one.processes, runs=one.runs, boundaries=one.boundaries,
                     monotonic_ns=one.monotonic_ns, time_ns=one.time_ns)
            )  # fmt: skip
        clock.advance(1)
    recorder.close()
    with Ledger(str(path)) as ledger:
        records = [ledger.record(run.run.id, phases=False, times=True) for run in ledger.runs()]
    by_name = {record.run.name: {finding.kind for finding in findings_of(record)} for record in records}
    assert by_name == {"llama-8b-sft": set(), "resnet50": {"input_bound"}}


def test_the_gain_ranks_findings(tmp_path: Path) -> None:
    changes = [phase("validate", [0.6] * 6), phase("checkpoint", [0.12] * 6), waits("0.21")]
    ranked = findings_of(record_of(tmp_path, *changes))
    gains = [finding.gain.middle for finding in ranked if finding.gain]
    assert len(gains) == 3
    assert gains == sorted(gains, reverse=True)


class TestIdleness:
    """Idle time is not reported as such where a wait or a phase explains it."""

    @pytest.mark.parametrize(
        ("kind", "change"),
        [
            ("slow_validation", phase("validate", [0.7] * 6)),
            ("slow_checkpoints", phase("checkpoint", [0.7] * 6)),
            ("input_bound", waits("0.6")),
        ],
    )
    def test_that_is_explained_is_not_reported(self, kind: str, change: Change, tmp_path: Path) -> None:
        assert kinds(tmp_path, usage(idle_share=0.7), change) == [kind]

    def test_without_measured_waits_the_action_is_to_measure_them(self, tmp_path: Path) -> None:
        unmeasured = sql("UPDATE epoch SET wait = NULL", "UPDATE rank SET wait = NULL")
        record = record_of(tmp_path, usage(idle_share=0.7), unmeasured)
        (finding,) = findings_of(record)
        assert finding.kind == "mostly_idle"
        assert "run.steps" in finding.action
        epochs = aggregate.epoch_summaries(record)
        missing = not_judged(record, aggregate.run_total(record, epochs), epochs)
        assert [one.what for one in missing] == ["waits for data"]


class TestWaits:
    """The cause of a wait follows from how the loader loads."""

    def test_of_a_loader_without_workers_end_with_workers(self, tmp_path: Path) -> None:
        record = record_of(tmp_path, loader(IN_PROCESS), waits("0.6"))
        (finding,) = findings_of(record)
        # A batch takes 60 ms to load and 40 ms to train: two workers hide it, and one more is spare.
        assert finding.action == advice.choose(advice.ADD_WORKERS, "torch", workers=3)
        assert finding.gain is not None
        assert (finding.gain.low, finding.gain.high) == (pytest.approx(0.48, abs=0.01), pytest.approx(0.6, abs=0.01))

    @pytest.mark.parametrize(("cpus", "gpus", "workers"), [(2, 1, 2), (4, 2, 2), (1, 1, 1), (64, 1, 3)])
    def test_end_with_at_most_one_worker_per_core_of_a_rank(
        self, cpus: int, gpus: int, workers: int, tmp_path: Path
    ) -> None:
        cores = sql(f"INSERT INTO parameter VALUES ('{RUN}', 1, 'cpus', 0, '{cpus}', 0)")
        (finding,) = findings_of(record_of(tmp_path, loader(IN_PROCESS), waits("0.6"), cores, gpus=gpus))
        assert finding.action == advice.choose(advice.ADD_WORKERS, "torch", workers=workers)
        assert finding.gain is not None
        assert finding.gain.low <= finding.gain.high

    @pytest.mark.parametrize(
        ("cpu", "action"),
        [
            (4 * 6 * SECONDS * 0.9, advice.choose(advice.FASTER_WORKERS, "torch", workers=8)),
            (4 * 6 * SECONDS * 0.1, advice.choose(advice.FASTER_STORAGE, "torch", workers=8)),
            (4 * 6 * SECONDS * 0.5, advice.choose(advice.MORE_WORKERS, "torch")),
        ],
    )
    def test_of_workers_depend_on_whether_they_compute(self, cpu: float, action: str, tmp_path: Path) -> None:
        (finding,) = findings_of(record_of(tmp_path, loader(KEPT_WORKERS, 4, cpu=cpu), waits("0.6")))
        assert finding.action == action

    def test_for_the_start_of_workers_are_not_called_a_slow_loader(self, tmp_path: Path) -> None:
        changes = [loader(STARTED_WORKERS, 4, wait=4.0), waits("0.42")]
        assert kinds(tmp_path, *changes) == ["worker_start"]

    def test_that_only_begin_with_the_start_of_workers_have_both_findings(self, tmp_path: Path) -> None:
        changes = [loader(STARTED_WORKERS, 4, wait=1.0), waits("0.42")]
        assert kinds(tmp_path, *changes) == ["input_bound", "worker_start"]


def outside(name: str, times: int) -> Change:
    """The training is so many times in a phase outside its epochs, for 30 s in all."""
    return sql(
        "INSERT INTO outside (rank, phase, place, seconds, times, steps, wait) "
        f"SELECT key, '{name}', 0, 30.0, {times}, 0, 0.0 FROM rank"
    )


class TestValidation:
    def test_in_each_epoch_is_advised_in_each_second_epoch(self, tmp_path: Path) -> None:
        (finding,) = findings_of(record_of(tmp_path, phase("validate", [0.4] * 6), framework="keras"))
        assert finding.evidence["validated"] == 5
        assert finding.action == advice.choose(advice.VALIDATE_LESS, "keras", every=2)

    def test_in_some_epochs_is_counted_and_halved_from_there(self, tmp_path: Path) -> None:
        shares = [0.9 if ordinal % 3 == 2 else 0.0 for ordinal in range(20)]
        (finding,) = findings_of(record_of(tmp_path, phase("validate", shares), epochs=20, framework="keras"))
        assert finding.evidence["validated"] == 6
        assert finding.action == advice.choose(advice.VALIDATE_LESS, "keras", every=6)
        assert finding.gain is not None
        assert finding.gain.high < finding.evidence["share"]

    @pytest.mark.parametrize(("times", "gains"), [(1, False), (4, True)])
    def test_outside_epochs_is_made_less_frequent_unless_it_is_done_once(
        self, times: int, gains: bool, tmp_path: Path
    ) -> None:
        (finding,) = findings_of(record_of(tmp_path, outside("validate", times)))
        assert finding.kind == "slow_validation"
        assert (finding.gain is not None) == gains

    @pytest.mark.parametrize(("times", "found"), [(1, []), (4, ["slow_checkpoints"])])
    def test_a_single_checkpoint_cannot_be_saved_less_often(self, times: int, found: list[str], tmp_path: Path) -> None:
        assert kinds(tmp_path, outside("checkpoint", times)) == found


def outlier(finding: Finding) -> tuple[str, Certainty | None]:
    return finding.kind, finding.certainty


class TestEpochOutlier:
    @pytest.mark.parametrize(
        ("share", "of_outlier", "certainty"),
        [(0.19, 0.19, Certainty.POSSIBLE), (0.19, 0.4, Certainty.POSSIBLE), (0.0, 0.6, Certainty.POSSIBLE),
         (0.0, 0.9, Certainty.LIKELY)],
    )  # fmt: skip
    def test_is_due_to_the_clocks_only_if_they_were_lowered_for_as_long_as_it_lost(
        self, share: float, of_outlier: float, certainty: Certainty, tmp_path: Path
    ) -> None:
        clocks = sql(
            f"UPDATE usage SET throttled_share = {share} WHERE ordinal >= 0",
            f"UPDATE usage SET throttled_share = {of_outlier} WHERE ordinal = 2",
        )
        found = [outlier(one) for one in findings_of(record_of(tmp_path, lengths(1.0, 1.0, 4.0), clocks))]
        assert ("epoch_outlier", certainty) in found

    def test_is_due_to_a_phase_that_no_other_epoch_has(self, tmp_path: Path) -> None:
        changes = [lengths(1.0, 1.0, 4.0), phase("export", [0, 0, 3.0])]
        (finding,) = findings_of(record_of(tmp_path, *changes))
        assert outlier(finding) == ("epoch_outlier", Certainty.MEASURED)

    @pytest.mark.parametrize(("longest", "found"), [(3.0, False), (9.0, True)])
    def test_is_no_epoch_with_a_phase_that_recurs_unless_it_takes_longer(
        self, longest: float, found: bool, tmp_path: Path
    ) -> None:
        changes = [lengths(1.0, 1.0, 4.0, 1.0, 1.0, 1.0 + longest), phase("test", [0, 0, 3.0, 0, 0, longest])]
        assert ("epoch_outlier" in kinds(tmp_path, *changes)) == found

    def test_names_the_part_only_if_it_explains_most_of_the_excess(self, tmp_path: Path) -> None:
        changes = [lengths(1.0, 1.0, 4.0), phase("export", [0, 0, 1.4]), phase("save", [0, 0, 1.3])]
        (finding,) = findings_of(record_of(tmp_path, *changes))
        assert outlier(finding) == ("epoch_outlier", Certainty.POSSIBLE)


class TestStraggler:
    def test_is_the_rank_whose_loader_is_slow(self, tmp_path: Path) -> None:
        (finding,) = findings_of(record_of(tmp_path, waits(SLOW_RANK), gpus=4))
        assert finding.evidence["rank"] == 1
        assert finding.gain is not None
        assert finding.gain.high == pytest.approx(0.32, abs=0.01)

    def test_is_the_rank_whose_gpu_works_least(self, tmp_path: Path) -> None:
        idle = sql(f"UPDATE usage SET utilization_mean = 0.3 WHERE rank = '{RANK}'")
        (finding,) = findings_of(record_of(tmp_path, idle, gpus=4))
        assert (finding.kind, finding.evidence["rank"]) == ("straggler", 1)


def ends(*ranks: tuple[RunState, float]) -> Change:
    """The run failed, and its ranks ended in these states after so many seconds."""
    return sql(
        f"UPDATE run SET state = {int(RunState.FAILED)}",
        *(
            f"UPDATE rank SET state = {int(state)}, ended = {round((BEGAN + seconds) * SECOND)} WHERE rank = {number}"
            for number, (state, seconds) in enumerate(ranks)
        ),
    )


class TestGains:
    def compare(self, directory: Path, *changes: Change, **cells: Any) -> GainComparison:
        """What a run after these changes saved compared with one that waits for data."""
        first = record_of(directory / "first", waits("0.5"))
        return compare_gains([first, record_of(directory / "second", *changes, **cells)])[0]

    def test_of_a_run_that_became_too_short_to_be_judged_are_measured(self, tmp_path: Path) -> None:
        gain = self.compare(tmp_path, lengths(*[0.01] * EPOCHS))
        assert gain.measured == [pytest.approx(0.99, abs=0.01)]
        assert (gain.persists, gain.problems) == ([False], [""])

    def test_of_a_run_with_too_few_epochs_have_a_reason(self, tmp_path: Path) -> None:
        gain = self.compare(tmp_path, epochs=2)
        assert math.isnan(gain.measured[0])
        assert all(gain.problems)

    def test_are_not_those_of_a_run_with_the_same_finding(self, tmp_path: Path) -> None:
        assert self.compare(tmp_path, waits("0.4")).persists == [True]

    def test_may_be_a_loss(self, tmp_path: Path) -> None:
        gain = self.compare(tmp_path, lengths(*[1.1] * EPOCHS))
        (line,) = gain_lines([gain], "AB")
        assert gain.measured[0] < 0
        assert "-" not in line


class TestFailedRank:
    @pytest.mark.parametrize(
        ("ranks", "first"),
        [
            ([(RunState.FAILED, 20.0), (RunState.FAILED, 10.0)], 1.0),
            ([(RunState.FINISHED, 10.0), (RunState.FAILED, 20.0)], 1.0),
            ([(RunState.FAILED, 20.0), (RunState.FAILED, 20.0)], None),
            ([(RunState.FAILED, 20.0), (RunState.DIED, 10.0)], None),
            ([(RunState.FAILED, 20.0)], None),
        ],
    )
    def test_is_the_first_that_ended_badly(
        self, ranks: list[tuple[RunState, float]], first: float | None, tmp_path: Path
    ) -> None:
        record = record_of(tmp_path, ends(*ranks), gpus=len(ranks))
        (finding,) = [one for one in findings_of(record) if one.kind == "failed"]
        assert finding_json(finding)["evidence"].get("rank") == first


class TestEvidence:
    def test_that_is_for_programs_is_not_printed(self, tmp_path: Path) -> None:
        finding = Finding("failed", Severity.CRITICAL, Subject("run", RUN, RUN), "failed", "", {"age": 1.2})
        assert not any("because" in line for line in lines([finding], (), 0))

    def test_of_a_counter_is_a_share_of_the_time(self) -> None:
        assert {unit for _, unit in RATES.values()} == {Unit.RATIO}

    def test_of_the_newest_frame_is_part_of_the_document(self, tmp_path: Path) -> None:
        record = record_of(tmp_path, waits("0.5"), state=RunState.RUNNING)
        live = [
            Finding(kind, Severity.WARNING, Subject("run", RUN, RUN), "", "") for kind in ("time_limit", "throttled")
        ]
        document = run_document(record, record.run.updated, live)
        assert sorted(finding["kind"] for finding in document["findings"]) == ["input_bound", "time_limit"]


class TestAdvice:
    @pytest.mark.parametrize(
        ("framework", "word"),
        [("torch", "DataLoader"), ("lightning", "DataLoader"), ("transformers", "TrainingArguments"),
         ("keras/torch", "prefetch"), ("tensorflow", "prefetch"), ("xgboost", "processes"), ("", "processes")],
    )  # fmt: skip
    def test_is_in_the_words_of_the_framework(self, framework: str, word: str, tmp_path: Path) -> None:
        (finding,) = findings_of(record_of(tmp_path, waits("0.5"), framework=framework))
        assert word in finding.action

    def test_names_a_batch_that_fits(self, tmp_path: Path) -> None:
        small = usage(utilization_p95=0.5, utilization_mean=0.4, idle_share=0.1, memory_used_peak=8 * 2**30)
        (finding,) = findings_of(record_of(tmp_path, small, waits("0.01"), sql("UPDATE rank SET batch = 32")))
        assert finding.action == advice.choose(advice.RAISE_BATCH, "torch", batch=288)


class TestRunsThatCannotBeJudged:
    @pytest.mark.parametrize("epochs", [1, 0])
    def test_are_said_to_have_too_few_epochs(self, epochs: int, tmp_path: Path) -> None:
        record = record_of(tmp_path, epochs=epochs)
        summaries = aggregate.epoch_summaries(record)
        missing = not_judged(record, aggregate.run_total(record, summaries), summaries)
        assert [one.what for one in missing] == ["time of the epochs"]

    @pytest.mark.parametrize(("changes", "epochs", "number"), [
        ([], 1, 1), ([], 2, 1), ([lengths(0.01, 0.01, 0.01)], 3, 1),
        ([], 3, 0),
    ])  # fmt: skip
    def test_lack_epochs_after_the_first(
        self, changes: Sequence[Change], epochs: int, number: int, tmp_path: Path
    ) -> None:
        record = record_of(tmp_path, *changes, epochs=epochs)
        summaries = aggregate.epoch_summaries(record)
        missing = not_judged(record, aggregate.run_total(record, summaries), summaries)
        assert [one.what for one in missing] == ["time of the epochs"] * number

    def test_may_have_epochs_whose_values_are_not_complete(self, tmp_path: Path) -> None:
        record = replace(record_of(tmp_path, epochs=4), settled=SettledEpochs(limit=2))
        summaries = aggregate.epoch_summaries(record)
        training = training_of(record, summaries, aggregate.run_total(record, summaries), Subject("run", RUN, ""))
        assert (len(training.windows), training.settling, training.is_judged) == (1, 2, False)
        later = training_of(record_of(tmp_path / "later", epochs=2), summaries[:2], training.total, training.subject)
        assert unjudged(training) != unjudged(later)

    @pytest.mark.parametrize("epochs", [1, 2])
    def test_have_no_finding_about_the_start_of_the_training(self, epochs: int, tmp_path: Path) -> None:
        at_start = sql("UPDATE epoch SET wait = CASE ordinal WHEN 0 THEN 0.9 * seconds ELSE 0 END",
                       "UPDATE rank SET wait = (SELECT sum(wait) FROM epoch WHERE epoch.rank = rank.key)",
                       "UPDATE usage SET idle_share = CASE ordinal WHEN 1 THEN 0 ELSE 0.9 END")  # fmt: skip
        assert kinds(tmp_path, at_start, epochs=epochs) == []

    def test_lack_the_tensor_throughput_on_an_older_card(self, tmp_path: Path) -> None:
        record = record_of(tmp_path, sql("UPDATE usage SET tensor_throughput_mean = NULL"))
        summaries = aggregate.epoch_summaries(record)
        missing = not_judged(record, aggregate.run_total(record, summaries), summaries)
        assert [one.what for one in missing] == ["tensor cores"]

    def test_are_said_to_be_unsampled(self, tmp_path: Path) -> None:
        record = record_of(tmp_path, sql("DELETE FROM usage"))
        summaries = aggregate.epoch_summaries(record)
        missing = not_judged(record, aggregate.run_total(record, summaries), summaries)
        assert [one.what for one in missing] == ["use of the GPU"]


class TestCommand:
    def test_prints_ranked_findings_as_json(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        record_of(tmp_path, waits("0.5"))
        assert main(["why", "last", "--json", "--state-dir", str(tmp_path), "--dir", str(tmp_path)]) == 0
        document = json.loads(capsys.readouterr().out)
        assert document["run"]["id"] == RUN
        assert [finding["kind"] for finding in document["findings"]] == ["input_bound"]
        low, high = document["findings"][0]["gain"]["time"]
        assert 0 < low < high <= 0.5
        assert document["findings"][0]["threshold"] == 0.2

    def test_names_a_run_that_does_not_exist(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        record_of(tmp_path)
        assert main(["why", "nothing", "--state-dir", str(tmp_path), "--dir", str(tmp_path)]) == 1
        assert RUN in capsys.readouterr().err

    def test_needs_a_daemon_for_a_gpu(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["why", "0", "--state-dir", str(tmp_path), "--dir", str(tmp_path)]) == 1
        assert "no daemon" in capsys.readouterr().err


def test_a_gain_without_energy_is_of_the_time_only(tmp_path: Path) -> None:
    (finding,) = findings_of(record_of(tmp_path, waits("0.5"), sql("UPDATE usage SET power_mean = NULL")))
    assert finding.gain is not None
    assert math.isnan(finding.gain.energy_high)
    assert "energy" not in gain_text(finding.gain)
