"""Logged values are read as numbers without waiting for a GPU, which is a fake."""

from __future__ import annotations

import logging
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from gpumon.tracking.logged_values import PendingNumbers, metric_rank, number_of

pytestmark = pytest.mark.usefixtures("fresh_warnings")


def test_metrics_are_ranked_by_information() -> None:
    ranks: list[tuple[str, ...]] = [
        ("loss", "accuracy", "reward", "kl"),
        ("eval_loss", "val/acc", "test_f1"),
        ("train_loss_step", "rewards/format/mean", "perplexity", "objective/kl", "eval_entropy"),
        ("learning_rate", "grad_norm", "lr_step", "lr-AdamW", "completions/clipped_ratio", "m0", ""),
        (
            "reward_std",
            "eval_runtime",
            "completions/length/max",
            "completions/mean_length",
            "num_tokens",
            "epoch",
            "eval_num_tokens",
            "total_flos",
            "train_samples_per_second",
            "trainer/global_step",
            "eval_samples",
        ),
    ]
    assert [{metric_rank(name) for name in names} for names in ranks] == [{0}, {1}, {2}, {3}, {4}]


class Tensor:
    """A CUDA scalar whose value must not be awaited."""

    device = "cuda:0"
    is_cuda = True
    shape = ()
    dtype = "float32"

    def __init__(self, number: float, elements: int = 1) -> None:
        self.number = number
        self.elements = elements

    def numel(self) -> int:
        return self.elements

    def detach(self) -> Tensor:
        return self

    def __float__(self) -> float:
        raise AssertionError("waited for the GPU")


class Host:
    """Pinned memory."""

    def copy_(self, source: Tensor, *, non_blocking: bool) -> None:
        assert non_blocking
        self.number = source.number

    def __float__(self) -> float:
        return self.number


class Gpu:
    """The parts of torch that a copy needs. `done`: number of completed events."""

    Tensor = Tensor

    def __init__(self) -> None:
        self.done = False
        self.capturing = False
        self.cuda = SimpleNamespace(
            device=lambda _: nullcontext(),
            Event=lambda: SimpleNamespace(record=lambda: None, query=lambda: self.done),
            is_current_stream_capturing=lambda: self.capturing,
        )

    def empty(self, shape: object, dtype: object, pin_memory: bool) -> Host:
        assert pin_memory
        return Host()


@pytest.mark.parametrize(("value", "number"), [(1, 1.0), (0.5, 0.5), (True, 1.0)])
def test_numbers_are_taken(value: object, number: float) -> None:
    assert number_of("loss", value, {}) == number


def test_numpy_and_cpu_tensors_are_taken() -> None:
    numpy = pytest.importorskip("numpy")
    assert number_of("loss", numpy.float32(0.5), {}) == 0.5
    assert number_of("loss", numpy.array(0.5), {}) == 0.5
    torch = pytest.importorskip("torch")
    assert number_of("loss", torch.tensor(0.5, requires_grad=True)) == 0.5


@pytest.mark.parametrize("value", ["0.5", b"1", None, [1], {}, 10**400, object()])
def test_values_that_are_not_numbers_are_one_warning(value: object, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "gpumon"):
        assert number_of("loss", value, {}) is None
        assert number_of("loss", value, {}) is None
    assert len(caplog.records) <= 1


@pytest.mark.parametrize("kind", ["DynamicJaxprTracer", "SymbolicTensor", "Vector"])
def test_a_warning_is_one_line_without_the_text_of_a_framework(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    def refuse(_: object) -> float:
        raise TypeError("Abstract tracer value encountered\nThe problem arose with the `float` function")

    with caplog.at_level(logging.WARNING, "gpumon"):
        assert number_of("loss", type(kind, (), {"__float__": refuse})(), {}) is None
    (record,) = caplog.records
    assert len(record.getMessage().splitlines()) == 1
    assert "arose" not in record.getMessage()


def on_its_way(gpu: Gpu, number: float) -> Any:
    found = number_of("loss", Tensor(number), {"torch": gpu})
    assert not isinstance(found, float)
    assert found is not None
    return found


def test_a_cuda_value_is_taken_only_when_it_has_come() -> None:
    gpu, pending = Gpu(), PendingNumbers()
    pending.add("loss", on_its_way(gpu, 0.5))
    assert pending.collect() == {}
    assert pending
    gpu.done = True
    assert pending.collect() == {(-1, 0): {"loss": 0.5}}
    assert not pending


def test_the_oldest_and_the_newest_are_kept() -> None:
    gpu, pending = Gpu(), PendingNumbers()
    for number in (1.0, 2.0, 3.0):
        pending.add("loss", on_its_way(gpu, number))
    gpu.done = True
    assert pending.collect() == {(-1, 0): {"loss": 3.0}}


def test_the_last_value_of_an_epoch_arrives_with_its_epoch() -> None:
    gpu, pending = Gpu(), PendingNumbers()
    for epoch, number in ((0, 1.0), (0, 2.0), (1, 3.0), (1, 4.0), (1, 5.0)):
        pending.add("loss", on_its_way(gpu, number), epoch)
    gpu.done = True
    assert pending.collect() == {(0, 0): {"loss": 2.0}, (1, 0): {"loss": 5.0}}


def test_few_epochs_are_waited_for_at_once() -> None:
    gpu, pending = Gpu(), PendingNumbers()
    for epoch in range(100):
        pending.add("loss", on_its_way(gpu, float(epoch)), epoch)
    gpu.done = True
    found = pending.collect()
    assert len(found) <= 8
    assert found[99, 0] == {"loss": 99.0}


def test_nothing_is_queued_while_a_graph_is_captured() -> None:
    gpu = Gpu()
    gpu.capturing = True
    assert number_of("loss", Tensor(1.0), {"torch": gpu}) is None


def test_a_tensor_of_many_values_or_of_an_unknown_device_is_left_out() -> None:
    assert number_of("loss", Tensor(1.0, elements=2), {"torch": Gpu()}) is None
    assert number_of("loss", SimpleNamespace(device="xla:0"), {}) is None


def test_a_lost_gpu_ends_the_wait() -> None:
    class Lost:
        def ready(self) -> bool:
            raise RuntimeError("CUDA error")

        def value(self) -> float:
            return 0.0

    pending = PendingNumbers()
    pending.add("loss", Lost())
    assert pending.collect() == {}
    assert not pending
