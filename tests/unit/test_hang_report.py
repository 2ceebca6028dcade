"""The sentence about a run that hangs: which rank is the cause, where it is, and what the others do."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from gpumon.analysis.ranks import Ranks
from gpumon.cli.hang import choose
from gpumon.common.errors import GpumonError, UsageError
from gpumon.hang.output import as_json, lines
from gpumon.hang.own_runs import explain_in_background
from gpumon.hang.places import PlaceKind, is_idle_worker, place_of, source_line, worker_place
from gpumon.hang.process_state import ProcessState
from gpumon.hang.report import HangReport, RankReport, WorkerReport, collect, with_sentence
from gpumon.hang.stacks import Frame, Stacks, ThreadStack
from gpumon.model.frame import RunState
from gpumon.model.run import RunFacts
from tests.builders import TIME, run
from tests.programs import until

SITE = "/venv/lib/python3.11/site-packages"
C10D = f"{SITE}/torch/distributed/distributed_c10d.py"
LOADER = f"{SITE}/torch/utils/data/dataloader.py"
WORKER = f"{SITE}/torch/utils/data/_utils/worker.py"
FETCH = f"{SITE}/torch/utils/data/_utils/fetch.py"
LIB = "/usr/lib/python3.11"
TRAIN = Frame("train_step", "/home/x/train.py", 20)
MAIN = Frame("<module>", "/home/x/train.py", 40)
SLEEPS = ProcessState(7, state="S", cpu=0.0)
SPINS = SLEEPS._replace(state="R", cpu=0.98)
ALL_REDUCE = (
    Frame("all_reduce", C10D, 2), Frame("wrapper", f"{SITE}/torch/distributed/c10d_logger.py", 83), TRAIN, MAIN,
)  # fmt: skip
LOADING = (
    Frame("wait", f"{LIB}/selectors.py", 3), Frame("_get_data", LOADER, 2), Frame("__next__", LOADER, 3), TRAIN, MAIN,
)  # fmt: skip
IDLE_WORKER = (
    Frame("poll", f"{LIB}/multiprocessing/connection.py", 5), Frame("get", f"{LIB}/multiprocessing/queues.py", 4),
    Frame("_worker_loop", WORKER, 9), Frame("run", f"{LIB}/multiprocessing/process.py", 9), TRAIN, MAIN,
)  # fmt: skip
BUSY_WORKER = (
    Frame("__getitem__", "/home/x/data.py", 5), Frame("fetch", FETCH, 5), Frame("_worker_loop", WORKER, 9), TRAIN, MAIN,
)  # fmt: skip


class TestPlace:
    def place(self, *frames: Frame, state: ProcessState = SLEEPS, is_rank: bool = True) -> tuple[PlaceKind, str]:
        return place_of(state, frames, is_rank=is_rank)[:2]

    def test_collectives_are_waits_for_others(self) -> None:
        assert self.place(*ALL_REDUCE) == (PlaceKind.COLLECTIVE, "`all_reduce`")
        rendezvous = Frame("_create_c10d_store", f"{SITE}/torch/distributed/rendezvous.py", 1)
        assert self.place(rendezvous, MAIN) == (PlaceKind.COLLECTIVE, "`init_process_group`")

    def test_a_backward_pass_of_ranks_that_uses_no_cpu_is_one(self) -> None:
        backward = (Frame("_engine_run_backward", f"{SITE}/torch/autograd/graph.py", 1),
                    Frame("backward", f"{SITE}/torch/_tensor.py", 2), TRAIN)  # fmt: skip
        assert self.place(*backward)[0] is PlaceKind.COLLECTIVE
        assert self.place(*backward, state=SPINS)[0] is PlaceKind.ELSEWHERE
        assert self.place(*backward, is_rank=False)[0] is PlaceKind.ELSEWHERE

    def test_a_wait_for_workers_is_one_of_the_loader(self) -> None:
        place = place_of(SLEEPS, LOADING, is_rank=False)
        assert (place.text, place.is_loader) == ("`DataLoader.__next__`", True)

    def test_a_dataset_in_the_same_process_is_user_code(self) -> None:
        frames = (Frame("__getitem__", "/home/x/data.py", 5), Frame("fetch", FETCH, 5), *LOADING[2:])
        place = place_of(SLEEPS, frames, is_rank=False)
        assert not place.is_loader
        assert place.text.startswith("`__getitem__` (data.py:5")

    def test_calls_that_wait_are_named(self) -> None:
        put = Frame("put", f"{LIB}/multiprocessing/queues.py", 89)
        assert self.place(put, TRAIN, MAIN)[1].startswith("`Queue.put` called by `train_step`")

    def test_without_a_stack_the_kernel_tells(self) -> None:
        assert self.place(state=SLEEPS._replace(syscall="futex")) == (PlaceKind.UNKNOWN, "futex (state S)")
        assert self.place(*ALL_REDUCE, state=SLEEPS._replace(state="T"))[0] is PlaceKind.STOPPED

    def test_workers_that_wait_for_tasks_are_idle(self) -> None:
        assert is_idle_worker(IDLE_WORKER)
        assert not is_idle_worker(BUSY_WORKER)
        assert not is_idle_worker(ALL_REDUCE)

    def test_a_worker_in_state_d_names_its_file(self) -> None:
        state = ProcessState(9, state="D", syscall="read", path="/data/shard", cpu=0.0)
        assert worker_place(state, BUSY_WORKER).endswith("in state D, reading /data/shard")
        assert worker_place(state, ()) == "in state D, reading /data/shard"


class TestSourceLine:
    def test_is_read_from_the_file_of_the_process(self, tmp_path: Path) -> None:
        (tmp_path / "train.py").write_text("one\n    with lock:\x1b[31m\n" + "x" * 200)
        frame = Frame("f", str(tmp_path / "train.py"), 2)
        assert source_line(frame, os.getpid()) == r"with lock:\x1b[31m"
        assert len(source_line(frame._replace(line=3), os.getpid())) == 60

    def test_is_empty_where_it_cannot_be_read(self, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / "fifo")  # opening it for reading would wait for ever
        assert stat.S_ISFIFO((tmp_path / "fifo").stat().st_mode)
        for name, line in ((str(tmp_path / "fifo"), 1), ("<stdin>", 1), (str(tmp_path / "no"), 1), (__file__, 99999)):
            assert source_line(Frame("f", name, line), os.getpid()) == ""


def rank(
    number: int, frames: tuple[Frame, ...] = (), state: ProcessState = SLEEPS, *, of: int = 4, silent: float = 240.0,
    workers: tuple[WorkerReport, ...] = (), run_state: RunState = RunState.RUNNING, step: int = 100,
    phase: str = "train",
) -> RankReport:  # fmt: skip
    process = run(key=f"tag.1.{number}.a", rank=number, world_size=of, epoch=1, step=step, phase=phase, state=run_state)
    stacks, pid = Stacks((ThreadStack(frames, is_main=True),)), 100 + number
    place = place_of(state, frames, is_rank=of > 1)
    return RankReport(process, pid, silent, state._replace(pid=pid), stacks, workers, place)


def report(*ranks: RankReport, missing: tuple[int, ...] = ()) -> HangReport:
    return with_sentence(HangReport(ranks[0].run, 240.0, is_stalled=True, ranks=ranks, missing=missing))


def worker(pid: int, frames: tuple[Frame, ...], **fields: object) -> WorkerReport:
    state = ProcessState(pid, state="S", cpu=0.0)._replace(**fields)  # type: ignore[arg-type]
    return WorkerReport(state, Stacks((ThreadStack(frames, is_main=True),)))


OTHERS = [rank(number, ALL_REDUCE) for number in range(3)]


class TestSentence:
    def test_names_rank_loader_worker_and_file(self) -> None:
        idle, reads = worker(41212, IDLE_WORKER), worker(41213, BUSY_WORKER, state="D", syscall="read", path="/data/x")
        result = report(*OTHERS, rank(3, LOADING, workers=(idle, reads)))
        assert result.culprits == (3,)
        assert result.sentence == (
            "Rank 3 has been in `DataLoader.__next__` for 4 min (worker 41213 in `__getitem__` (data.py:5), in state "
            "D, reading /data/x); the other 3 wait in `all_reduce`."
        )

    def test_a_stopped_rank_comes_first(self) -> None:
        stopped = rank(2, ALL_REDUCE, SLEEPS._replace(state="T"))
        assert report(*OTHERS[:2], stopped, rank(3, LOADING)).culprits == (2,)

    def test_a_rank_that_failed_is_the_cause(self) -> None:
        failed = rank(3, run_state=RunState.FAILED, silent=300.0)
        assert report(*OTHERS, failed).culprits == (3,)

    def test_a_rank_that_is_missing_is_the_cause_if_all_others_wait(self) -> None:
        assert report(*OTHERS, missing=(3,)).culprits == (3,)
        assert report(*OTHERS[:2], rank(2, LOADING), missing=(3,)).culprits == (2,)

    def test_of_ranks_that_all_wait_the_one_behind_or_elsewhere_is_named(self) -> None:
        behind = rank(3, ALL_REDUCE, step=99)
        assert report(*OTHERS, behind).culprits == (3,)
        barrier = rank(3, (Frame("barrier", C10D, 2), *ALL_REDUCE[1:]))
        assert report(*OTHERS, barrier).culprits == (3,)

    def test_a_phase_is_named(self) -> None:
        validating = rank(3, (Frame("validate", "/home/x/train.py", 9), MAIN), phase="validate")
        assert "(phase validate)" in report(*OTHERS, validating).sentence

    def test_a_single_process_is_named_by_its_pid(self) -> None:
        result = report(rank(0, (TRAIN, MAIN), SPINS, of=1))
        assert result.sentence.startswith("Process 100 has been in `train_step`")
        assert "98 % of a CPU" in result.sentence
        starved = report(rank(0, (TRAIN, MAIN), SPINS._replace(cpu=0.1), of=1))
        assert "10 % of a CPU" in starved.sentence

    def test_a_run_that_has_ended_has_no_cause(self) -> None:
        assert report(rank(0, run_state=RunState.FINISHED, of=1)).culprits == ()

    def test_text_and_json_have_each_rank(self) -> None:
        result = report(*OTHERS, rank(3, LOADING, workers=(worker(9, BUSY_WORKER),)))
        text = "\n".join(lines(result, 100))
        assert all(f"process {100 + number}" in text for number in range(4))
        assert max(map(len, text.splitlines())) <= 100
        document = as_json(result)
        assert [entry["rank"] for entry in document["ranks"]] == [0, 1, 2, 3]
        assert document["ranks"][3]["children"][0]["suspect"]


class TestCollect:
    def test_reads_only_processes_of_the_user(self) -> None:
        own = run(pid=os.getpid(), facts=RunFacts(stalled_since=TIME / 1e9))
        (reported,) = collect(Ranks((own,)), TIME / 1e9 + 100, uid=os.geteuid() + 1, over=0.01).ranks
        assert (reported.pid, reported.state) == (0, None)
        found = collect(Ranks((own,)), TIME / 1e9 + 100, over=0.01)
        assert (found.ranks[0].pid, found.silent) == (os.getpid(), pytest.approx(100.0))


class TestInBackground:
    def test_gives_a_sentence_for_own_runs_only(self) -> None:
        own = Ranks((run(key=f"tag.{os.geteuid()}.1.a", pid=os.getpid()),))
        sentence = explain_in_background(own)
        assert str(os.getpid()) in until(sentence)
        other = Ranks((run(key=f"tag.{os.geteuid() + 1}.1.a", pid=os.getpid()),))
        assert explain_in_background(other)() == ""


class TestChoice:
    A = Ranks((run(key="tag.0.1.a", id="net-1", name="net"),))
    B = Ranks((run(key="tag.0.2.a", id="net-2", name="net"),))
    STALLED = Ranks((run(key="tag.0.3.a", id="gan-3", name="gan", facts=RunFacts(stalled_since=TIME / 1e9)),))
    ENDED = Ranks((run(key="tag.0.4.a", id="old-4", name="old", state=RunState.FINISHED),))

    def test_is_the_stalled_run_or_the_only_one(self) -> None:
        assert choose([self.A, self.STALLED, self.B], "") is self.STALLED
        assert choose([self.A, self.ENDED], "") is self.A

    def test_is_by_id_name_or_prefix(self) -> None:
        assert choose([self.A, self.B, self.STALLED], "net-2") is self.B
        assert choose([self.A, self.B, self.STALLED], "ga") is self.STALLED

    @pytest.mark.parametrize("wanted", ["", "net", "old-4"])
    def test_of_several_or_none_is_an_error(self, wanted: str) -> None:
        with pytest.raises(UsageError):
            choose([self.A, self.B, self.ENDED], wanted)

    def test_without_any_run_is_an_error(self) -> None:
        with pytest.raises(GpumonError):
            choose([self.ENDED], "")
