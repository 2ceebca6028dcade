"""`gpumon.run` as people use it in a loop of their own."""

from __future__ import annotations

import copy
import inspect
import math
import os
import pickle
import signal
import subprocess
import sys
import threading
from asyncio import CancelledError
from bdb import BdbQuit
from collections.abc import Callable, Iterator, Sequence
from concurrent import futures
from contextlib import suppress
from pathlib import Path
from time import monotonic, sleep
from types import ModuleType
from typing import Any
from unittest import SkipTest

import numpy as np
import pytest

import gpumon
from gpumon.model.frame import Mark, RunState
from gpumon.tracking import lifetime
from gpumon.tracking.active_run import ActiveRun
from gpumon.tracking.context import default_name
from gpumon.tracking.tag_reader import Poll
from gpumon.tracking.wire_format import EVENT_COUNT

pytestmark = pytest.mark.usefixtures("fresh_warnings")


Look = Callable[[], Poll]


def told(poll: Poll) -> list[tuple[str, int, str]]:
    return [(b.mark.name, b.epoch, b.phase) for b in poll.boundaries]


def test_epochs_count_like_range(look: Look) -> None:
    with gpumon.run("net", epochs=4) as run:
        assert list(run.epochs(start=2)) == [2, 3]
    poll = look()
    assert told(poll) == [
        ("RUN_BEGIN", -1, ""),
        ("EPOCH_BEGIN", 2, "train"),
        ("EPOCH_END", 2, ""),
        ("EPOCH_BEGIN", 3, "train"),
        ("EPOCH_END", 3, ""),
        ("RUN_END", 3, ""),
    ]
    assert (poll.runs[0].epochs, poll.runs[0].first_epoch) == (4, 2)


def test_epochs_take_nothing_a_number_or_an_iterable(look: Look) -> None:
    with gpumon.run("net") as run:
        for epoch in run.epochs(start=7):
            if epoch == 9:
                break
        assert list(run.epochs(2)) == [0, 1]
        assert list(run.epochs(["warmup", "main"])) == ["warmup", "main"]
        assert list(run.epochs(range(5, 7))) == [5, 6]
    assert [epoch for mark, epoch, _ in told(look()) if mark == "EPOCH_BEGIN"] == [7, 8, 9, 0, 1, 0, 1, 5, 6]


def raise_in(run: ActiveRun) -> None:
    for _ in run.epochs():
        raise KeyError


@pytest.mark.parametrize("leave", ["break", "raise", "close", "forget"])
def test_an_epoch_ends_however_its_loop_is_left(look: Look, leave: str) -> None:
    run = gpumon.run("net")
    epochs = run.epochs()
    if leave == "break":
        for _ in run.epochs():
            break
    elif leave == "raise":
        with pytest.raises(KeyError):
            raise_in(run)
    elif leave == "close":
        next(epochs)
        epochs.close()  # type: ignore[attr-defined]
    else:
        next(epochs)
    run.finish()
    assert [mark for mark, _, _ in told(look())] == ["RUN_BEGIN", "EPOCH_BEGIN", "EPOCH_END", "RUN_END"]


@pytest.mark.parametrize("by", ["epochs", "epoch", "by hand"])
def test_an_epoch_left_by_an_exception_is_aborted(look: Look, by: str) -> None:
    with pytest.raises(KeyError), gpumon.run("net") as run:  # noqa: PT012  # where it raises is what is tested
        if by == "epochs":
            raise_in(run)
        elif by == "epoch":
            with run.epoch(0):
                raise KeyError
        run.begin_epoch(0)
        raise KeyError
    # Only the end of the run tells an exception from `break`, where epochs are gone through.
    ends = ["EPOCH_END", "EPOCH_ABORTED"] if by == "epochs" else ["EPOCH_ABORTED"]
    assert [mark for mark, _, _ in told(look())] == ["RUN_BEGIN", "EPOCH_BEGIN", *ends, "RUN_END"]


def test_a_failure_after_break_does_not_abort_the_epoch(look: Look) -> None:
    with pytest.raises(KeyError), gpumon.run("net") as run:  # noqa: PT012
        for _ in run.epochs():
            break
        with run.phase("test"):
            raise KeyError
    assert "EPOCH_ABORTED" not in [mark for mark, _, _ in told(look())]


def test_a_training_continues_after_an_aborted_epoch(look: Look) -> None:
    with gpumon.run("net") as run:
        with suppress(KeyError), run.epoch(0):
            raise KeyError
        with run.epoch(1):
            pass
    assert [mark for mark, _, _ in told(look())] == [
        "RUN_BEGIN", "EPOCH_BEGIN", "EPOCH_ABORTED", "EPOCH_BEGIN", "EPOCH_END", "RUN_END",
    ]  # fmt: skip


def test_steps_count_over_the_whole_run_and_measure_the_wait(look: Look) -> None:
    loading = training = 0.0

    def loader() -> Iterator[int]:
        nonlocal loading
        for batch in range(3):
            began = monotonic()
            sleep(0.01)
            loading += monotonic() - began
            yield batch

    began = monotonic()
    with gpumon.run("net", epochs=2) as run:
        for _ in run.epochs():
            for _ in run.steps(loader()):
                stepping = monotonic()
                sleep(0.02)
                training += monotonic() - stepping
        (seen,) = look().runs
    assert seen.step == 6
    assert loading <= seen.wait <= monotonic() - began - training


@pytest.mark.parametrize("lengths", [(3, 3), (3, 9), (9, 3)])
def test_zipped_loaders_make_one_step_per_pair(look: Look, lengths: tuple[int, int]) -> None:
    with gpumon.run("net") as run:
        for _ in zip(run.steps(range(lengths[0])), run.steps(range(lengths[1])), strict=False):
            pass
        assert run._board.steps == min(lengths), "a batch more of the first one is no step"
        for _ in run.steps(range(2)):
            pass
        assert run._board.steps == min(lengths) + 2


def test_step_within_steps_is_not_counted(look: Look, caplog: pytest.LogCaptureFixture) -> None:
    with gpumon.run("net") as run:
        for _ in run.steps(range(3)):
            run.step()
        assert run._board.steps == 3
        run.step()
        assert run._board.steps == 4
    assert len(caplog.records) == 1


def test_the_framework_may_be_imported_after_the_run_began(look: Look, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("torch", "tensorflow", "jax", "jax._src.xla_bridge"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    with gpumon.run("net") as run, gpumon.run("other", framework="") as other:
        assert run._board.description.framework == ""
        monkeypatch.setitem(sys.modules, "tensorflow", ModuleType("tensorflow"))
        run.begin_epoch(0)
        other.begin_epoch(0)
        assert sorted(one.framework for one in look().runs) == ["", "tensorflow"]


@pytest.mark.parametrize("within", [0, 1, 2, 5])
def test_nested_loaders_count_their_own_steps(look: Look, within: int) -> None:
    with gpumon.run("net") as run:
        for _ in run.steps(range(3)):
            with run.phase("validate"):
                assert len(list(run.steps(range(within)))) == within
        assert run._board.steps == 3 + 3 * within


def test_an_open_loop_does_not_change_later_counts(look: Look) -> None:
    with gpumon.run("net") as run:
        open_loop = iter(run.steps(range(5)))
        next(open_loop)
        for _ in range(2):
            assert len(list(run.steps(range(4)))) == 4
        assert run._board.steps == 1 + 2 * 4


def test_the_end_of_an_epoch_has_the_wait(look: Look) -> None:
    with gpumon.run("net", epochs=1) as run:
        for _ in run.epochs():
            for _ in run.steps(iter([1])):
                pass
            run._board.wait_ns = 3_000_000_000
    (end,) = (b for b in look().boundaries if b.mark == Mark.EPOCH_END)
    assert (end.wait, end.step) == (3.0, 1)


def test_a_loader_keeps_length_order_and_exceptions(look: Look) -> None:
    with gpumon.run("net") as run:
        assert len(run.steps([1, 2, 3])) == 3
        with pytest.raises(TypeError, match="has no len"):
            len(run.steps(iter([])))
        assert list(run.steps([])) == []
        assert list(run.steps(["a", "b"])) == ["a", "b"]

        def broken() -> Iterator[int]:
            yield 1
            raise OSError("disk")

        with pytest.raises(OSError, match="disk"):
            list(run.steps(broken()))
        with pytest.raises(TypeError):
            list(run.steps(5))  # type: ignore[arg-type]
    assert look().runs[0].step == 3


def test_phases_nest(look: Look) -> None:
    with gpumon.run("net", epochs=1) as run:
        for _ in run.epochs():
            with run.phase("validate"), run.phase("checkpoint"):
                pass
            with pytest.raises(KeyError), run.phase("test"):
                raise KeyError
    assert told(look())[2:] == [
        ("PHASE", 0, "validate"),
        ("CHECKPOINT", 0, "checkpoint"),
        ("PHASE", 0, "validate"),
        ("PHASE", 0, "train"),
        ("PHASE", 0, "test"),
        ("PHASE", 0, "train"),
        ("EPOCH_END", 0, ""),
        ("RUN_END", 0, ""),
    ]


def test_too_many_phases_show_as_training(look: Look) -> None:
    with gpumon.run("net") as run:
        for number in range(40):
            with run.phase(f"p{number}"):
                pass
        with run.phase("p39"):
            assert look().runs[0].phase == "train"


def test_hand_written_loops_have_epoch_and_step(look: Look) -> None:
    run = gpumon.run("net")
    with run.epoch(3):
        run.step()
        run.step(4)
    run.finish()
    run.finish()
    poll = look()
    assert (poll.runs[0].epoch, poll.runs[0].step) == (3, 5)
    assert not run.on


def test_more_than_eight_metrics_are_one_warning(look: Look, caplog: pytest.LogCaptureFixture) -> None:
    with gpumon.run("net") as run:
        run.log(loss=1, accuracy=0.5)
        run.log({"loss": 0.25})
        run.log({f"m{i}": i for i in range(10)})
        run.log({f"m{i}": i for i in range(10)})
        (seen,) = look().runs
        assert {"loss", "accuracy"} < set(seen.metrics)
        assert len(seen.metrics) < 8, "others wait for what may come with the first evaluation"
    (seen,) = look().runs
    assert seen.metrics == {"loss": 0.25, "accuracy": 0.5, **{f"m{i}": float(i) for i in range(6)}}
    assert len(caplog.records) == 1


def test_informative_metrics_have_slots_although_others_came_first(look: Look) -> None:
    details = {f"completions/length_{i}": float(i) for i in range(12)}
    with gpumon.run("grpo") as run:
        run.log(details)
        run.log({**details, "kl": 0.1, "reward": 0.5, "reward_std": 0.1, "rewards/format/mean": 0.2})
        run.log({"eval_loss": 0.3, "eval_reward": 0.4, "loss": 0.2})
    shown = look().runs[0].metrics
    assert {"reward", "rewards/format/mean", "eval_loss", "eval_reward", "loss"} <= set(shown)
    assert len(shown) == 8


GRPO = (
    "loss", "grad_norm", "learning_rate", "num_tokens", "completions/mean_length", "completions/min_length",
    "completions/max_length", "completions/clipped_ratio", "completions/mean_terminated_length",
    "completions/min_terminated_length", "completions/max_terminated_length", "rewards/accuracy_reward/mean",
    "rewards/accuracy_reward/std", "rewards/format_reward/mean", "rewards/format_reward/std", "reward", "reward_std",
    "frac_reward_zero_std", "kl", "entropy", "clip_ratio/low_mean", "clip_ratio/low_min", "clip_ratio/high_mean",
    "clip_ratio/high_max", "clip_ratio/region_mean", "epoch",
)  # fmt: skip
"""Names that TRL's GRPOTrainer logs, in its order. An evaluation logs some of them with the prefix eval_."""


@pytest.mark.parametrize(
    ("logs", "watched"),
    [
        ([GRPO], "loss grad_norm learning_rate rewards/accuracy_reward/mean rewards/format_reward/mean reward kl"),
        ([GRPO, *[[f"eval_{name}" for name in ("loss", "runtime", "samples_per_second", *GRPO[3:])]]],
         "loss rewards/accuracy_reward/mean rewards/format_reward/mean reward kl entropy eval_loss eval_reward"),
        ([["loss", "grad_norm", "learning_rate", "num_input_tokens_seen", "train_tokens_per_second", "epoch"],
          ["eval_loss", "eval_accuracy", "eval_f1", "eval_runtime", "eval_samples_per_second", "eval_steps_per_second",
           "epoch", "num_input_tokens_seen"],
          ["train_runtime", "train_samples_per_second", "train_steps_per_second", "total_flos", "train_loss", "epoch"]],
         "loss grad_norm learning_rate eval_loss eval_accuracy eval_f1 train_loss"),
        ([["epoch", "step", "lr-AdamW", "train_loss_step", "train_loss", "train_acc_step", "train_acc_epoch"],
          ["val_loss", "val_acc", "train_loss_epoch", "epoch", "step"]],
         "lr-AdamW train_loss train_loss_step train_acc_step val_loss val_acc"),
    ],
    ids=["TRL", "TRL with evaluation", "Transformers", "Lightning"],
)  # fmt: skip
def test_measures_have_slots_before_counters_and_times(look: Look, logs: list[list[str]], watched: str) -> None:
    with gpumon.run("net", epochs=2) as run:
        for _ in run.epochs():
            for names in logs:
                run.log(dict.fromkeys(names, 1.0))
    shown = set(look().runs[0].metrics)
    assert set(watched.split()) - shown == set()
    assert len(shown) == 8


def test_a_late_validation_has_slots(look: Look) -> None:
    with gpumon.run("net", epochs=6) as run:
        for epoch in run.epochs():
            run.log({f"layer{i}/norm": 10.0 * epoch + i for i in range(12)})
            if epoch == 4:
                run.log({"val/loss": 0.5, "val/mIoU": 0.25})
        poll = look()
    assert {"val/loss", "val/mIoU"} < set(poll.runs[0].metrics)
    assert len(look().runs[0].metrics) == 8
    kept = {b.epoch: b.metrics for b in poll.boundaries if b.mark is Mark.EPOCH_END}
    assert [len(metrics) for metrics in kept.values()][1:] == [6, 6, 6, 8, 6]
    assert all(value // 10 == epoch for epoch, row in kept.items() for name, value in row.items() if "norm" in name)


def test_details_get_the_slots_that_no_validation_uses(look: Look) -> None:
    with gpumon.run("net", epochs=3) as run:
        for epoch in run.epochs():
            run.log({f"layer{i}/norm": 10.0 * epoch + i for i in range(12)})
    assert look().runs[0].metrics == {f"layer{i}/norm": 20.0 + i for i in range(8)}


def test_waiting_metrics_are_stored_with_their_own_epoch(look: Look) -> None:
    with gpumon.run("net") as run:
        for epoch in run.epochs(2):
            run.log({f"m{i}": 10.0 * epoch + i for i in range(8)})
        marked = [b for b in look().boundaries if b.metrics]
    kept = {epoch: {} for epoch in (0, 1)}  # type: dict[int, dict[str, float]]
    for boundary in marked:
        kept[boundary.epoch].update(boundary.metrics)
    assert kept == {epoch: {f"m{i}": 10.0 * epoch + i for i in range(8)} for epoch in (0, 1)}


@pytest.mark.parametrize("metrics", [["kl", "rewards/*"], "kl"])
def test_only_chosen_metrics_are_shown(look: Look, metrics: Any) -> None:
    with gpumon.run("grpo", metrics=metrics) as run:
        run.log({"loss": 1.0, "kl": 0.1, "rewards/a": 0.2, "rewards/b": 0.3})
        expected = {"kl"} if metrics == "kl" else {"kl", "rewards/a", "rewards/b"}
        assert set(look().runs[0].metrics) == expected


def test_an_invalid_choice_of_metrics_is_a_warning(look: Look, caplog: pytest.LogCaptureFixture) -> None:
    with gpumon.run("net", metrics=7) as run:  # type: ignore[arg-type]
        run.log(loss=1.0)
        assert set(look().runs[0].metrics) == {"loss"}
    assert len(caplog.records) == 1


def test_wrong_use_in_a_running_training_never_raises(look: Look, caplog: pytest.LogCaptureFixture) -> None:
    with gpumon.run("net", epochs=2) as run:
        for _ in run.epochs():
            for _ in run.epochs():
                run.log(5)  # type: ignore[arg-type]
                run.log(loss="much", note=object())
                run.step("x")  # type: ignore[arg-type]
                with run.phase(None), run.epoch(2**70), run.epoch("x"):  # type: ignore[arg-type]
                    run.step(2**70)
        run.log(loss=10**500)
    assert look().runs


@pytest.mark.parametrize("number", [10**30, -(10**30), 2**31, 1.5, None, "7", math.nan, True])
def test_an_invalid_epoch_number_becomes_the_next_one(
    look: Look, caplog: pytest.LogCaptureFixture, number: Any
) -> None:
    with gpumon.run("net") as run:
        for each in (number, 4, number, number, 2.0, np.int64(9), 2**31 - 1):
            with run.epoch(each):
                pass
    begun = [b.epoch for b in look().boundaries if b.mark is Mark.EPOCH_BEGIN]
    assert begun == [0, 4, 5, 6, 2, 9, 2**31 - 1]
    assert len(caplog.records) == 1


@pytest.mark.parametrize("steps", [1.5, 0.5, "3", True, 2**70, -1, None])
def test_an_invalid_number_of_steps_is_a_warning(look: Look, caplog: pytest.LogCaptureFixture, steps: Any) -> None:
    with gpumon.run("net") as run:
        run.step(2)
        run.step(steps)
        run.step(np.int64(3))
        run.log({"loss": 1.0}, step=5)
        assert look().runs[0].step == 5
    assert len(caplog.records) == 1


@pytest.mark.parametrize("value", [1.5, "3", 2**70, -1])
def test_an_invalid_step_of_a_log_is_a_warning(look: Look, caplog: pytest.LogCaptureFixture, value: Any) -> None:
    with gpumon.run("net") as run:
        run.log({"loss": 1.0}, step=value)
        assert look().runs[0].step == 0
    assert len(caplog.records) == 1


class Odd:
    """An object whose methods raise."""

    def __str__(self) -> str:
        raise RuntimeError("no text")

    __repr__ = __index__ = __float__ = __iter__ = __len__ = __fspath__ = __str__  # type: ignore[assignment]


ODD = (
    -1,
    1.5,
    2**70,
    True,
    math.nan,
    math.inf,
    "x",
    "",
    b"\xff",
    "\ud800é\x1b[31m",
    [0],
    [None],
    {"a": 1},
    object(),
    Odd(),
)


class Iterable:
    """An iterable of two items, whose other methods raise or return wrong values."""

    def __init__(self, length: Callable[[], int]) -> None:
        self._length = length

    def __iter__(self) -> Iterator[str]:
        return iter("ab")

    def __len__(self) -> int:
        return self._length()

    @property
    def shape(self) -> object:
        raise RuntimeError("no shape")


@pytest.fixture(params=["published", "not loaded"])
def any_run(request: pytest.FixtureRequest, look: Look) -> Any:
    """A run, or its replacement if gpumon cannot be loaded."""
    return gpumon.run("net") if request.param == "published" else gpumon._UntaggedRun()


@pytest.mark.parametrize("length", [lambda: 1 // 0, lambda: -1, lambda: 2**70, lambda: 0, lambda: 99])
def test_a_loop_does_not_use_the_length_of_its_iterable(any_run: Any, length: Callable[[], int]) -> None:
    assert [item for item in any_run.epochs(Iterable(length))] == ["a", "b"]  # noqa: C416  list() asks for it
    assert [item for item in any_run.steps(Iterable(length))] == ["a", "b"]  # noqa: C416


class Scalar:
    """A tensor with a single number on a GPU. `range` accepts it and waits for it."""

    shape = ()
    device = "cuda:0"

    def __index__(self) -> int:
        return 2

    def __iter__(self) -> Iterator[int]:
        raise TypeError("iteration over a 0-d tensor")


@pytest.mark.parametrize("over", [True, 2, np.int64(2), np.array(2), Scalar()])
def test_whatever_range_accepts_is_a_number_of_epochs(any_run: Any, over: Any) -> None:
    assert list(any_run.epochs(over)) == list(range(over))


@pytest.mark.parametrize("over", [2.5, math.nan, -math.inf, object(), 1j])
def test_neither_number_nor_iterable_raises_at_the_call(any_run: Any, over: Any) -> None:
    with pytest.raises(TypeError):
        any_run.epochs(over)


def test_infinitely_many_epochs_go_on(any_run: Any) -> None:
    assert [epoch for epoch, _ in zip(any_run.epochs(math.inf, start=3), "ab", strict=False)] == [3, 4]


def test_exceptions_of_an_iterable_pass_through(any_run: Any) -> None:
    with pytest.raises(RuntimeError, match="no text"):
        list(any_run.epochs(Odd()))


ARGUMENTS = [name for name in inspect.signature(gpumon.run).parameters if name not in ("directory", "env")]


@pytest.mark.parametrize("argument", ARGUMENTS)
def test_no_argument_of_run_raises(look: Look, argument: str) -> None:
    for value in ODD:
        with gpumon.run(**{argument: value}) as run:  # type: ignore[arg-type]
            assert run.on
            assert list(run.steps([1])) == [1]


@pytest.mark.parametrize("argument", ["directory", "env"])
def test_an_invalid_directory_or_environment_does_not_raise(
    argument: str, tmp_path: Path, look: Look, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for value in [one for one in ODD if not isinstance(one, dict)]:  # an environment, with the usual directory
        gpumon.run(**{argument: value}).finish()  # type: ignore[arg-type]
    with gpumon.run(directory=tmp_path / "another") as run:  # type: ignore[arg-type]
        assert run.on


@pytest.mark.parametrize("method", ["log", "config", "note", "tag", "step", "plan", "epoch", "phase", "begin_phase"])
def test_no_method_of_a_run_raises(look: Look, method: str) -> None:
    with gpumon.run("net") as run:
        for value in ODD:
            call = getattr(run, method)
            made = call(steps=value) if method == "plan" else call(value)
            if method in ("epoch", "phase"):
                with made:
                    pass
        if method == "log":
            for value in ODD:
                run.log({"loss": value}, step=value)
        assert run.on


@pytest.mark.parametrize(
    ("given", "listed", "devices", "visible"),
    [
        (0, "", (), "0"),
        ("cuda:1", "", (), "1"),
        ([0, np.int64(2)], "", (), "0,2"),
        ("0,1", "", (), "0,1"),
        (1, "3,5", (), "5"),
        (1, "GPU-aaaa,GPU-bbbb", ("GPU-bbbb",), "GPU-aaaa,GPU-bbbb"),
        ("GPU-aaaa", "3", ("GPU-aaaa",), "3"),
        (7, "3,5", (), "3,5"),  # there is no such device
        (-1, "3", (), "3"),
        ("first", "", (), ""),
    ],
)
def test_devices_may_be_cuda_numbers(
    look: Look, given: Any, listed: str, devices: tuple[str, ...], visible: str, caplog: pytest.LogCaptureFixture
) -> None:
    env = {**os.environ, "CUDA_VISIBLE_DEVICES": listed}
    run = gpumon.run("net", devices=given, env=env)
    described = run._board.description
    assert described.visible == visible
    if devices:
        assert described.devices == devices
    assert bool(caplog.records) == (given in (7, -1, "first"))
    run.finish()


FULL = """
import sys
import gpumon
if sys.argv[1] == "loaded":
    gpumon.run
    import numpy
files = []
try:
    while True:
        files.append(open("/dev/null"))
except OSError:
    pass
with gpumon.run("ünlesbar", epochs=2, tags=["a"], log_to="csv:x.csv", devices=0) as run:
    for epoch in run.epochs():
        for batch in run.steps([1, 2]):
            run.step()
        with run.phase("prüfen"):
            run.log(loss=1.0, größe=2)
        run.note("ü"), run.tag("é"), run.config(lr=0.1)
    with run.epoch(7):
        pass
assert not run.on and epoch == 1
@gpumon.run("again")
def train():
    return 5
assert train() == 5
del files[:]
with gpumon.run("later") as run:
    assert run.on
print("trained")
"""


@pytest.mark.parametrize("when", ["loaded", "not loaded"])
def test_a_training_without_free_descriptors_continues_with_a_warning(tmp_path: Path, when: str) -> None:
    limited = ["/bin/sh", "-c", 'ulimit -n 40; exec "$0" "$@"', sys.executable, "-c", FULL, when]
    done = subprocess.run(
        limited, env={**os.environ, "GPUMON_DIR": str(tmp_path)}, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "trained\n"), done.stderr
    assert done.stderr.count("this training will not show in gpumon") == 1
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("where", ["/proc/nowhere", "/dev/null", ""])
def test_without_a_board_everything_works_the_same(where: str, caplog: pytest.LogCaptureFixture) -> None:
    env = {"GPUMON_DIR": where} if where else {"XDG_RUNTIME_DIR": "/proc/nowhere"}
    with gpumon.run("net", epochs=2, directory=where or "/proc/nowhere", env=env) as run:
        assert not run.on
        for _ in run.epochs():
            assert list(run.steps([1, 2])) == [1, 2]
            with run.phase("validate"):
                run.log(loss=1.0)
    assert len(caplog.records) == 1


def test_no_room_turns_the_board_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(fd: int, offset: int, size: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with gpumon.run("net", directory=str(tmp_path)) as run:
        run.step()
        assert not run.on
    assert list((tmp_path / "tags").iterdir()) == []


def test_a_pickled_or_copied_run_is_switched_off(look: Look) -> None:
    run = gpumon.run("net", epochs=3)
    run.step(2)
    for other in (pickle.loads(pickle.dumps(run)), copy.deepcopy(run), copy.copy(run)):
        assert isinstance(other, ActiveRun)
        assert (other.name, other.id, other.on) == ("net", run.id, False)
        other.step()
        assert list(other.epochs()) == [0, 1, 2]
        other.finish()
    assert run.on
    run.finish()
    assert look().runs[0].step == 2


def test_a_forgotten_run_ends(look: Look) -> None:
    gpumon.run("net").step()
    assert look().runs[0].state.name == "FINISHED"


def test_an_unassigned_run_lasts_for_the_program_with_a_warning(look: Look, caplog: pytest.LogCaptureFixture) -> None:
    gpumon.run("net", epochs=3)
    assert look().runs[0].state.name == "RUNNING"
    assert [record.getMessage() for record in caplog.records] == [
        "gpumon: write 'run = gpumon.run(…)': 'net' was not assigned to a variable, so its epochs cannot be recorded"
    ]
    lifetime.close_all()
    assert look().runs[0].state.name == "FINISHED"


def test_each_call_of_a_decorated_function_is_a_run(look: Look) -> None:
    begun = gpumon.run("net", epochs=3)

    @begun
    def train(loss: float) -> str:
        """Train."""
        if loss < 0:
            raise KeyError
        return "trained"

    assert look().runs == [], "it begins when it is called"
    assert (train(1.0), train.__doc__) == ("trained", "Train.")
    with pytest.raises(KeyError):
        train(-1.0)
    assert sorted(run.state.name for run in look().runs) == ["FAILED", "FINISHED"]


@pytest.mark.parametrize("by", ["with", "finish", "process"])
def test_a_keyboard_interrupt_ends_a_run_as_interrupted(look: Look, by: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if by == "with":
        with suppress(KeyboardInterrupt), gpumon.run("net"):
            raise KeyboardInterrupt
    elif by == "finish":
        run = gpumon.run("net")
        try:
            signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt:
            run.finish()
    else:
        run = gpumon.run("net")
        monkeypatch.setattr(sys, "last_value", KeyboardInterrupt(), raising=False)
        lifetime.close_all()
    assert look().runs[0].state.name == "INTERRUPTED"
    assert look().boundaries == []


TrialPruned = type("TrialPruned", (Exception,), {"__module__": "optuna.exceptions"})


@pytest.mark.parametrize(
    "error",
    [
        TrialPruned(), type("Mine", (TrialPruned,), {})(), StopIteration(), GeneratorExit(), CancelledError(),
        futures.CancelledError(), SkipTest(), BaseExceptionGroup("tasks", [CancelledError(), CancelledError()]),
        type("SIGTERMException", (SystemExit,), {"__module__": "lightning.pytorch.utilities.exceptions"})(),
    ],
)  # fmt: skip
def test_an_exception_that_stops_on_purpose_is_no_failure(look: Look, error: BaseException) -> None:
    with suppress(type(error)), gpumon.run("net") as run:
        run.begin_epoch(0)
        raise error
    assert (look().runs[0].state, look().runs[0].epoch) == (RunState.STOPPED, 0)


def click_error(name: str, **fields: object) -> Exception:
    """An exception that click and typer raise."""
    error: Exception = type(name, (RuntimeError,), {"__module__": "click.exceptions", **fields})()
    return error


@pytest.mark.parametrize(
    ("error", "state"),
    [
        (click_error("Exit", exit_code=0), RunState.FINISHED),
        (click_error("Exit", exit_code=3), RunState.FAILED),
        (click_error("Abort"), RunState.INTERRUPTED),
        (BdbQuit(), RunState.INTERRUPTED),
        (BaseExceptionGroup("tasks", [KeyboardInterrupt(), CancelledError()]), RunState.INTERRUPTED),
        (BaseExceptionGroup("tasks", [KeyboardInterrupt(), ValueError()]), RunState.FAILED),
        (ExceptionGroup("tasks", [ValueError()]), RunState.FAILED),
    ],
)
def test_exceptions_of_libraries_end_a_run_as_intended(look: Look, error: BaseException, state: RunState) -> None:
    with suppress(type(error)), gpumon.run("net"):
        raise error
    assert look().runs[0].state is state


def test_an_uncaught_stop_is_a_failure(look: Look, monkeypatch: pytest.MonkeyPatch) -> None:
    run = gpumon.run("net")
    monkeypatch.setattr(sys, "last_value", TrialPruned(), raising=False)
    lifetime.close_all()
    assert (look().runs[0].state, run.on) == (RunState.FAILED, False)


def test_a_stopped_run_ignores_later_calls(look: Look) -> None:
    with suppress(TrialPruned), gpumon.run("net", epochs=9) as run:
        for epoch in run.epochs():
            for _ in run.steps([1, 2, 3]):
                pass
            if epoch == 1:
                run.stop()
                raise TrialPruned
    poll = look()
    assert poll.runs[0].state is RunState.STOPPED
    assert [mark for mark, *_ in told(poll)].count("EPOCH_END") == 2, "it was stopped at the end of one"


def by_return(run: ActiveRun, batches: int, at: int) -> None:
    for epoch in run.epochs():
        for number, _ in enumerate(run.steps(range(batches))):
            if (epoch, number) == (1, at):
                return


def by_break(run: ActiveRun, batches: int, at: int) -> None:
    for epoch in run.epochs():
        for number, _ in enumerate(run.steps(range(batches))):
            if (epoch, number) == (1, at):
                break
        if epoch == 1:
            break


def by_interrupt(run: ActiveRun, batches: int, at: int) -> None:
    with suppress(KeyboardInterrupt):
        for epoch in run.epochs():
            for number, _ in enumerate(run.steps(range(batches))):
                if (epoch, number) == (1, at):
                    signal.raise_signal(signal.SIGINT)


def by_step(run: ActiveRun, batches: int, at: int) -> None:
    for epoch in run.epochs():
        for number in range(batches):
            if (epoch, number) == (1, at):
                return
            run.step()


def by_return_in_validation(run: ActiveRun, batches: int, at: int) -> None:
    for epoch in run.epochs():
        for _ in run.steps(range(batches)):
            pass
        with run.phase("validate"):
            for number, _ in enumerate(run.steps(range(batches))):
                if (epoch, number) == (1, at):
                    return


def by_finish(run: ActiveRun, batches: int, at: int) -> None:
    for epoch in run.epochs():
        for number, _ in enumerate(run.steps(range(batches))):
            if (epoch, number) == (1, at):
                run.finish()


def by_stop(run: ActiveRun, batches: int, at: int) -> None:
    for epoch in run.epochs():
        for number, _ in enumerate(run.steps(range(batches))):
            if (epoch, number) == (1, at):
                run.stop()


@pytest.mark.parametrize(
    "leave", [by_return, by_break, by_interrupt, by_step, by_return_in_validation, by_finish, by_stop]
)
def test_an_epoch_left_in_its_middle_is_aborted(look: Look, leave: Callable[[ActiveRun, int, int], None]) -> None:
    with gpumon.run("net", epochs=3) as run:
        leave(run, 10, 4)
    assert [mark for mark, *_ in told(look()) if mark.startswith("EPOCH_")] == [
        "EPOCH_BEGIN", "EPOCH_END", "EPOCH_BEGIN", "EPOCH_ABORTED",
    ]  # fmt: skip


def stops_without_steps(run: ActiveRun) -> None:
    for epoch in run.epochs():
        if epoch == 1:
            run.stop()


def stops_in_first_steps(run: ActiveRun) -> None:
    for epoch in run.epochs():
        for number in range(10):
            if (epoch, number) == (1, 4):
                run.stop()
            run.step()


@pytest.mark.parametrize("train", [stops_without_steps, stops_in_first_steps])
def test_an_epoch_in_which_the_run_is_stopped_is_aborted(look: Look, train: Callable[[ActiveRun], None]) -> None:
    with gpumon.run("net", epochs=3) as run:
        train(run)
    poll = look()
    assert [mark for mark, *_ in told(poll) if mark.startswith("EPOCH_")] == [
        "EPOCH_BEGIN", "EPOCH_END", "EPOCH_BEGIN", "EPOCH_ABORTED",
    ]  # fmt: skip
    assert poll.runs[0].state is RunState.STOPPED


IN_A_FUNCTION = """
import sys, gpumon
def train():
    run = gpumon.run("net", epochs=4)
    {loop}:
        {body}
train()
"""
AT_THE_TOP = """
import sys, gpumon
run = gpumon.run("net", epochs=4)
{loop}:
    {body}
"""
OVER_EPOCHS = "for epoch in run.epochs()"
EXITS = "if epoch == 1: sys.exit({})"


def marks_of_program(look: Look, tmp_path: Path, source: str) -> tuple[list[str], RunState]:
    environment = {**os.environ, "GPUMON_DIR": str(tmp_path)}
    subprocess.run([sys.executable, "-c", source], env=environment, capture_output=True, check=False)
    poll = look()
    return [mark for mark, *_ in told(poll) if mark.startswith("EPOCH_")], poll.runs[0].state


@pytest.mark.parametrize("program", [IN_A_FUNCTION, AT_THE_TOP], ids=["in a function", "at the top"])
@pytest.mark.parametrize(
    ("code", "body"),
    [
        ("2", EXITS), ("0", EXITS), ("'no data'", EXITS), ("2", "len([]) if epoch < 1 else sys.exit({})"),
        ("2", "with run.phase('x'): " + EXITS),
        ("2", "for b in run.steps([1, 2, 3]): " + EXITS.replace("epoch == 1", "(epoch, b) == (1, 2)")),
    ],
    ids=["2", "0", "text", "expression", "phase", "steps"],
)  # fmt: skip
def test_an_epoch_left_by_sys_exit_is_aborted(look: Look, tmp_path: Path, program: str, code: str, body: str) -> None:
    if body.startswith(("with", "for")):
        body = body.replace(": if", ":\n            if")
    marks, state = marks_of_program(look, tmp_path, program.format(loop=OVER_EPOCHS, body=body.format(code)))
    assert state is RunState.STOPPED
    assert (marks.count("EPOCH_BEGIN"), marks[-1]) == (2, "EPOCH_ABORTED")


@pytest.mark.parametrize("program", [IN_A_FUNCTION, AT_THE_TOP], ids=["in a function", "at the top"])
def test_an_epoch_left_by_an_uncaught_exception_is_aborted(look: Look, tmp_path: Path, program: str) -> None:
    marks, state = marks_of_program(
        look, tmp_path, program.format(loop=OVER_EPOCHS, body="if epoch == 1: raise KeyError")
    )
    assert state is RunState.FAILED
    assert (marks.count("EPOCH_BEGIN"), marks[-1]) == (2, "EPOCH_ABORTED")


def test_sys_exit_within_a_with_epoch_stops_the_run(look: Look, tmp_path: Path) -> None:
    source = IN_A_FUNCTION.format(loop="with run.epoch(0)", body="sys.exit(2)")
    assert marks_of_program(look, tmp_path, source) == (["EPOCH_BEGIN", "EPOCH_ABORTED"], RunState.STOPPED)


@pytest.mark.parametrize("program", [IN_A_FUNCTION, AT_THE_TOP], ids=["in a function", "at the top"])
@pytest.mark.parametrize(
    ("loop", "body"),
    [
        (OVER_EPOCHS, "if epoch == 1: break"),
        ("epochs = run.epochs()\n    for epoch in epochs", "if epoch == 1: break"),
        ("for epoch in (items := run.epochs())", "if epoch == 1: break"),
        (OVER_EPOCHS, "if epoch == 1: len([0 for _ in [1]]); break"),
    ],
    ids=["break", "variable", "walrus", "after a call"],
)
def test_an_epoch_left_by_break_has_ended(look: Look, tmp_path: Path, program: str, loop: str, body: str) -> None:
    if program is AT_THE_TOP:
        loop = loop.replace("\n    ", "\n")
    marks, state = marks_of_program(look, tmp_path, program.format(loop=loop, body=body))
    if marks[-1] != "EPOCH_BEGIN":  # a loop that the end of the program closes
        assert marks == ["EPOCH_BEGIN", "EPOCH_END"] * 2
    assert state is RunState.FINISHED


def test_more_planned_epochs_than_any_training_has_are_refused(look: Look, caplog: pytest.LogCaptureFixture) -> None:
    with gpumon.run("net", epochs=7) as run:
        next(iter(run.epochs(2**70)))
        assert look().runs[0].epochs == 0
    with gpumon.run("net", epochs=2**70):
        pass
    assert len(caplog.records) == 1, "both with the same warning"


def with_return(run: ActiveRun, lengths: Sequence[int], at: int) -> None:
    for epoch, batches in enumerate(lengths):
        with run.epoch(epoch):
            for number, _ in enumerate(run.steps(range(batches))):
                if epoch == len(lengths) - 1 and number == at:
                    return


def with_break(run: ActiveRun, lengths: Sequence[int], at: int) -> None:
    for epoch, batches in enumerate(lengths):
        with run.epoch(epoch):
            for number in range(batches):
                if epoch == len(lengths) - 1 and number == at:
                    break
                run.step()
            else:
                continue
            break


@pytest.mark.parametrize("leave", [with_return, with_break])
@pytest.mark.parametrize(
    ("lengths", "at", "is_left"),
    [((10, 10, 10), 4, True), ((10, 10, 10), -1, False), ((10, 8, 10), 4, False), ((10,), 4, False)],
    ids=["left", "not left", "of no fixed length", "nothing to compare it with"],
)
def test_a_with_epoch_with_too_few_steps_is_aborted(
    look: Look, leave: Callable[[ActiveRun, Sequence[int], int], None], lengths: Sequence[int], at: int, is_left: bool
) -> None:
    with gpumon.run("net", epochs=len(lengths)) as run:
        leave(run, lengths, at)
    assert ("EPOCH_ABORTED" in [mark for mark, *_ in told(look())]) is is_left


def test_a_first_with_epoch_that_left_its_loader_is_aborted(look: Look) -> None:
    with gpumon.run("net", epochs=2) as run:
        with_return(run, (10,), 4)
    assert "EPOCH_ABORTED" in [mark for mark, *_ in told(look())]


def test_with_epochs_that_become_shorter_have_ended(look: Look) -> None:
    with gpumon.run("net") as run:
        for epoch, batches in enumerate((10, 10, 5, 5, 5)):
            with run.epoch(epoch):
                for _ in run.steps(range(batches)):
                    pass
    assert "EPOCH_ABORTED" not in [mark for mark, *_ in told(look())]


def ends_early(run: ActiveRun) -> None:
    """Early stopping at the end of an epoch that trains only a part of its batches."""
    for epoch in run.epochs():
        for number, _ in enumerate(run.steps(range(10))):
            if number == 4:
                break
        if epoch == 1:
            break


def logs_then_ends(run: ActiveRun) -> None:
    for _ in run.epochs(2):
        for number, _ in enumerate(run.steps(range(10))):
            if number == 4:
                break
        run.log(loss=1.0)
        with run.phase("validate"):
            pass
        if run._board.epoch:
            break


def at_the_last_batch(run: ActiveRun) -> None:
    for epoch in run.epochs():
        for number, _ in enumerate(run.steps(range(10))):
            if number == 9:
                break
        if epoch == 1:
            break


@pytest.mark.parametrize("train", [ends_early, logs_then_ends, at_the_last_batch])
def test_an_epoch_left_at_its_end_has_ended(look: Look, train: Callable[[ActiveRun], None]) -> None:
    with gpumon.run("net", epochs=3) as run:
        train(run)
    assert [mark for mark, *_ in told(look()) if mark.startswith("EPOCH_")] == ["EPOCH_BEGIN", "EPOCH_END"] * 2


@pytest.mark.parametrize("at", [(3, 6), (3, 0)])
def test_a_loop_left_by_break_is_the_end_of_its_run(look: Look, at: tuple[int, int]) -> None:
    with gpumon.run("net", epochs=10) as run:
        for epoch in run.epochs():
            for step in run.steps(range(20)):
                if (epoch, step) == at:
                    break
            if epoch == at[0]:
                break
    assert look().runs[0].state is RunState.FINISHED


@pytest.mark.parametrize("end", ["dropped", "at exit", "finally", "finish"])
def test_a_run_without_with_is_stopped_by_an_exception(look: Look, end: str) -> None:
    kept: list[ActiveRun] = []

    def train() -> None:
        run = gpumon.run("net", epochs=3)
        if end != "dropped":
            kept.append(run)
        try:
            for _ in run.epochs():
                for batch in run.steps([1, 2, 3]):
                    if batch == 2:
                        raise KeyError
        finally:
            if end == "finally":
                run.finish()

    with suppress(KeyError):
        train()
    if end == "at exit":
        lifetime.close_all()
    elif end == "finish":
        kept[0].finish()  # its user says that this is the end
    assert look().runs[0].state is (RunState.FINISHED if end == "finish" else RunState.STOPPED)


def test_an_exception_before_the_run_is_entered_is_a_failure(look: Look, tmp_path: Path) -> None:
    source = "import gpumon\n@gpumon.run('net')\ndef train(): pass\nrun = gpumon.run('late')\nraise KeyError"
    environment = {**os.environ, "GPUMON_DIR": str(tmp_path)}
    subprocess.run([sys.executable, "-c", source], env=environment, capture_output=True, check=False)
    assert [(run.name, run.state.name) for run in look().runs] == [("late", "FAILED")]


def test_an_epoch_left_by_an_out_of_memory_error_is_aborted(look: Look) -> None:
    # Told by its message, as of cudaMallocAsync, TensorFlow and JAX: nobody told of it before it was raised.
    kind = type("OutOfMemoryError", (RuntimeError,), {"__module__": "torch"})

    def train() -> None:
        with gpumon.run("net") as run:
            for _ in run.epochs():
                raise kind("CUDA out of memory. Tried to allocate 2.00 GiB")

    with pytest.raises(kind):
        train()
    marks = [mark for mark, _, _ in told(look())]
    assert marks == ["RUN_BEGIN", "EPOCH_BEGIN", "EPOCH_END", "OUT_OF_MEMORY", "EPOCH_ABORTED", "RUN_END"]


def test_an_epoch_left_by_exit_0_is_aborted_and_the_run_finished(look: Look) -> None:
    def train() -> None:
        with gpumon.run("net") as run:
            for _ in run.epochs():
                raise SystemExit(0)

    with pytest.raises(SystemExit):
        train()
    poll = look()
    assert [mark for mark, _, _ in told(poll)] == ["RUN_BEGIN", "EPOCH_BEGIN", "EPOCH_END", "EPOCH_ABORTED", "RUN_END"]
    assert poll.runs[0].state is RunState.FINISHED


@pytest.mark.parametrize("number", [np.int64(3), np.float32(3.0), np.array(3), 3.0])
def test_a_number_may_be_of_any_numeric_type(look: Look, number: Any) -> None:
    with gpumon.run("net", epochs=number, batch=number) as run:
        assert list(run.epochs()) == [0, 1, 2]
        assert list(run.epochs(number)) == [0, 1, 2]
        assert list(run.epochs(start=number)) == []
        assert list(run.epochs(np.arange(4, 6))) == [4, 5]
        run.step(number)
        (seen,) = look().runs
    assert (seen.epochs, seen.facts.batch, seen.step) == (3, 3, 3)
    assert [epoch for mark, epoch, _ in told(look()) if mark == "EPOCH_BEGIN"] == []
    assert seen.epoch == 5


def test_invalid_numbers_in_a_running_training_are_ignored(look: Look, caplog: pytest.LogCaptureFixture) -> None:
    with gpumon.run("net", epochs=math.inf) as run:
        assert [epoch for epoch, _ in zip(run.epochs(start="1"), range(2), strict=False)] == [0, 1]  # type: ignore[call-overload]
        for steps in (math.inf, math.nan, 1 << 70, -3, None):
            run.step(steps)  # type: ignore[arg-type]
        assert look().runs[0].step == 0
        run.log({"loss": 1.0}, 3)
        run.log({"loss": 0.5, "step": 7}, step=4)
        (seen,) = look().runs
        assert run.on
    assert seen.metrics == {"loss": 0.5, "step": 7.0}
    assert seen.step in (3, 4), "as other loggers take it; published within 50 ms"
    assert all(record.getMessage().startswith("gpumon: ") for record in caplog.records)


def test_numbers_of_a_constrained_slurm_job_are_not_published(look: Look) -> None:
    env = {**os.environ, "SLURM_JOB_GPUS": "3", "CUDA_VISIBLE_DEVICES": "0"}
    run = gpumon.run("net", devices=[0], env=env)
    assert run._board.description.visible == ""
    run.finish()


def test_device_objects_of_a_framework_are_a_warning(look: Look, caplog: pytest.LogCaptureFixture) -> None:
    torch = pytest.importorskip("torch", reason="the CPU build of torch is not installed")
    with gpumon.run("net", devices=torch.device("cuda")):
        assert look().runs
    assert len(caplog.records) == 1


def test_a_thousand_names_are_one_short_warning(look: Look, caplog: pytest.LogCaptureFixture) -> None:
    with gpumon.run("net") as run:
        run.log({f"metric_{i}": i for i in range(1000)})
    assert len(look().runs[0].metrics) == 8
    (record,) = caplog.records
    assert len(record.getMessage()) < 200


def test_several_threads_leave_a_consistent_board(look: Look) -> None:
    with gpumon.run("net") as run:

        def work(number: int) -> None:
            for i in range(300):
                run.step()
                run.log({f"loss_{number}": i})
                with run.phase(f"p{number}"):
                    pass

        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert run.on
        poll = look()
    assert poll.runs[0].metrics == {f"loss_{number}": 299.0 for number in range(4)}
    numbers = [b.number for b in poll.boundaries]
    assert numbers == list(range(numbers[-1] + 1 - EVENT_COUNT, numbers[-1] + 1))
    assert numbers[-1] >= 2401, "a begin, and two for each phase; round numbers of steps come on top"


def test_ranks_of_a_launcher_share_the_id_of_each_run(tmp_path: Path) -> None:
    source = "import gpumon\nfor i in range(2):\n    with gpumon.run('net') as run: print(run.id)"
    env = {
        **os.environ, "GPUMON_DIR": str(tmp_path), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "29500", "LOCAL_WORLD_SIZE": "2",
    }  # fmt: skip
    said = [
        subprocess.run(
            [sys.executable, "-c", source],
            env={**env, "RANK": rank, "LOCAL_RANK": rank},
            capture_output=True,
            check=True,
        ).stdout
        for rank in "01"
    ]
    assert said[0] == said[1]
    assert len(set(said[0].split())) == 2


@pytest.mark.parametrize(
    ("argv", "name"),
    [(["/x/train.py"], "train"), (["-c"], "run"), ([""], "run"), ([], "run"), (["/x/pkg/__main__.py"], "pkg")],
)
def test_a_run_is_named_after_its_script(argv: list[str], name: str) -> None:
    assert default_name(argv) == name


@pytest.mark.parametrize(
    ("env", "main", "name"),
    [
        ({"JPY_SESSION_NAME": "/home/ada/cifar 10.ipynb"}, {}, "cifar 10"),
        ({}, {"__vsc_ipynb_file__": "/home/ada/vgg.ipynb"}, "vgg"),
        ({"JPY_SESSION_NAME": "console-1-1b4e"}, {"__vsc_ipynb_file__": 7}, "notebook"),
        ({}, {}, "notebook"),
    ],
)
@pytest.mark.parametrize("kernel", ["ipykernel_launcher.py", "colab_kernel_launcher.py"])
def test_a_run_in_a_notebook_is_named_after_it(
    kernel: str, env: dict[str, str], main: dict[str, object], name: str
) -> None:
    assert default_name([f"/usr/lib/python3/{kernel}", "-f", "kernel.json"], env, main) == name


def test_a_system_without_locks_or_proc_trains_with_one_warning(tmp_path: Path) -> None:
    # As Windows: what Python does not have there is taken away before gpumon is imported.
    source = """
import os, sys
for name in ("fcntl", "pwd", "grp", "resource", "posix_missing"): sys.modules[name] = None
for name in ("getuid", "geteuid", "register_at_fork", "posix_fallocate", "fchmod", "O_NOFOLLOW", "O_NONBLOCK",
             "O_CLOEXEC", "O_NOCTTY"): delattr(os, name)
import gpumon
with gpumon.run("net", epochs=2) as run:
    for epoch in run.epochs():
        for batch in run.steps([1, 2]): pass
        with run.phase("validate"): run.log(loss=1.0)
@gpumon.run()
def train(): return 5
assert train() == 5 and not run.on
gpumon.run()
from gpumon.callbacks.hook import Hook
hook = Hook("keras")
hook.begin(3, 1); hook.begin_epoch(1); hook.log({"loss": 1.0}); hook.end_epoch(); hook.end()
"""
    done = subprocess.run(
        [sys.executable, "-c", source], env={**os.environ, "GPUMON_DIR": str(tmp_path)}, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == "gpumon: gpumon shows trainings on Linux only: it requires /proc\n"


def test_a_training_loads_little_of_gpumon(tmp_path: Path) -> None:
    source = (
        "import sys, gpumon\n"
        "assert {m for m in sys.modules if m.startswith('gpumon.')} == {'gpumon.common', 'gpumon.common.errors'}\n"
        "with gpumon.run('net', epochs=1) as run:\n    for _ in run.epochs(): run.log(loss=1.0)\n"
        "print(*sys.modules)"
    )
    loaded = subprocess.run(
        [sys.executable, "-S", "-c", source],
        env={"GPUMON_DIR": str(tmp_path), "PYTHONPATH": str(Path(gpumon.__file__).parents[1])},
        capture_output=True, text=True, check=True,
    ).stdout.split()  # fmt: skip
    heavy = {
        "numpy",
        "psutil",
        "pynvml",
        "asyncio",
        "torch",
        "logging",
        "sqlite3",
        "ctypes",
        "ssl",
        "hashlib",
        "inspect",
    }
    assert not heavy & set(loaded)
    ours = {name for name in loaded if name.startswith("gpumon.")}
    assert ours <= {
        "gpumon.common", "gpumon.common.errors", "gpumon.common.paths", "gpumon.common.procfs", "gpumon.common.text",
        "gpumon.common.clock", "gpumon.model.rocm_devices", "gpumon.tracking.stack_dump",
        "gpumon.model", "gpumon.model.run", "gpumon.model.steps", "gpumon.model.vendors", "gpumon.tracking",
        "gpumon.tracking.active_run", "gpumon.tracking.board", "gpumon.tracking.context",
        "gpumon.tracking.batch_size", "gpumon.tracking.cpu_time", "gpumon.tracking.data_wait",
        "gpumon.tracking.description", "gpumon.tracking.git",
        "gpumon.tracking.lifetime", "gpumon.tracking.logged_values", "gpumon.tracking.memory",
        "gpumon.tracking.metadata",
        "gpumon.tracking.out_of_memory", "gpumon.tracking.parameters",
        "gpumon.tracking.run_tags", "gpumon.tracking.stale_boards", "gpumon.tracking.warn",
        "gpumon.tracking.wire_format",
    }  # fmt: skip


def test_public_names_are_found_and_others_are_not() -> None:
    assert {"run", "connect", "__version__"} <= set(dir(gpumon))
    with pytest.raises(AttributeError):
        gpumon.nothing  # noqa: B018


def test_a_torch_training_is_tagged_and_its_workers_do_not_write(look: Look) -> None:
    torch = pytest.importorskip("torch", reason="the CPU build of torch is not installed")
    from torch.utils.data import DataLoader, TensorDataset

    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    data = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
    with gpumon.run("linear", epochs=2) as run:
        loader = DataLoader(data, batch_size=16, num_workers=2, worker_init_fn=Meddle(run))
        for _ in run.epochs():
            for x, y in run.steps(loader):
                loss = torch.nn.functional.mse_loss(model(x), y)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            with run.phase("validate"), torch.no_grad():
                accuracy = model(data.tensors[0]).mean()
            run.log(loss=loss, accuracy=accuracy)
        poll = look()
    (seen,) = poll.runs
    assert (seen.framework, seen.epoch, seen.step) == ("torch", 1, 8)
    assert seen.metrics == {"loss": loss.item(), "accuracy": accuracy.item()}
    assert seen.wait > 0
    assert "meddled" not in {b.phase for b in poll.boundaries}


class Meddle:
    """A worker that writes to the inherited run. It is at module level so that it can be pickled."""

    def __init__(self, run: ActiveRun) -> None:
        self.run = run

    def __call__(self, worker: int) -> None:
        assert not self.run.on
        self.run.step(1000)
        with self.run.phase("meddled"):
            self.run.log(loss=-1.0)
        self.run.finish(failed=True)


def test_a_step_is_cheap(look: Look) -> None:
    with gpumon.run("net") as run:
        times = []
        for _ in range(2000):
            began = monotonic()
            run.step()
            times.append(monotonic() - began)
        # The benchmark has the real bound; this only catches a system call that waits.
        assert sorted(times)[1000] < 200e-6


class _Loader:
    """A loader with a batch size, like torch's."""

    def __init__(self, size: object) -> None:
        self.batch_size = size

    def __iter__(self) -> Iterator[int]:
        return iter(range(2))


@pytest.mark.parametrize(("size", "told"), [(32, 32), (None, 0), ("32", 0), (0, 0), (-1, 0), (1 << 40, 0), (True, 0)])
def test_the_batch_size_comes_from_the_loader(size: object, told: int) -> None:
    with gpumon.run("net") as run:
        assert list(run.steps(_Loader(size))) == [0, 1]
        assert run._board.description.facts.batch == told


class _Bar:
    """The part of tqdm's wrapper that gpumon reads."""

    def __init__(self, iterable: Any) -> None:
        self.iterable = iterable

    def __iter__(self) -> Iterator[Any]:
        return iter(self.iterable)


@pytest.mark.parametrize("wrap", [list, enumerate, iter, lambda loader: enumerate(_Bar(loader)), _Bar])
def test_the_mean_batch_size_is_read_through_wrappers(look: Look, wrap: Callable[[Any], Any]) -> None:
    pytest.importorskip("torch", reason="the CPU build of torch is not installed")
    from torch.utils.data import DataLoader

    loader: Any = DataLoader(range(100), batch_size=64)  # type: ignore[arg-type,var-annotated]
    with gpumon.run("net") as run:
        assert len(list(run.steps(wrap(loader)))) == 2
        told = look().runs[0].facts.batch
    assert told == (0 if wrap is list else 50), "a list of batches does not say"
    with gpumon.run("whole") as run:
        run.steps(DataLoader(range(100), batch_size=64, drop_last=True))  # type: ignore[arg-type,var-annotated]
        assert {one.name: one.facts.batch for one in look().runs}["whole"] == 64


def test_a_loader_whose_attributes_raise_is_iterated_silently(caplog: pytest.LogCaptureFixture) -> None:
    class Odd(_Loader):
        @property
        def batch_sampler(self) -> object:
            raise ValueError("not now")

    with gpumon.run("net") as run:
        assert list(run.steps(Odd(None))) == [0, 1]
        assert run._board.description.facts.batch == 0
    assert not caplog.records


class _Endless:
    """The sampler and batch sampler of a stream. Neither has a length."""

    batch_size = 4
    drop_last = False

    def __len__(self) -> int:
        raise TypeError("object of type '_InfiniteConstantSampler' has no len()")


def test_the_batch_size_of_a_stream_is_read(caplog: pytest.LogCaptureFixture) -> None:
    class Stream(_Loader):
        def __init__(self) -> None:
            super().__init__(4)
            self.batch_sampler = _Endless()
            self.batch_sampler.sampler = _Endless()  # type: ignore[attr-defined]

    with gpumon.run("net") as run:
        assert list(run.steps(Stream())) == [0, 1]
        assert run._board.description.facts.batch == 4
    assert not caplog.records


def test_the_batch_size_can_be_passed() -> None:
    with gpumon.run("net", batch=64) as run:
        assert list(run.steps(_Loader(32))) == [0, 1]
        assert run._board.description.facts.batch == 64
    with gpumon.run("net", batch=-1) as run:
        assert run._board.description.facts.batch == 0
