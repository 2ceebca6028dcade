"""Trainings by Lightning, one run of gpumon for each case; prints as JSON what the framework's own hooks saw.

Beside each `GpuMonitor` stand two neighbors: Lightning calls one just before it and one just after it.
"""

from __future__ import annotations

import json
import pickle
import sys
import time
import warnings
from contextlib import suppress
from typing import Any

warnings.filterwarnings("ignore")

from gpumon.callbacks.lightning import GpuMonitor  # noqa: E402

assert not {"torch", "lightning", "pytorch_lightning"} & set(sys.modules), "the import alone loads no framework"

import lightning.pytorch as lightning  # noqa: E402
import torch  # noqa: E402
from lightning.pytorch.callbacks import ModelCheckpoint  # noqa: E402
from torch.utils.data import DataLoader, Dataset  # noqa: E402

HOOKS = (
    "setup", "on_validation_start", "on_validation_end", "on_train_epoch_start", "on_train_epoch_end", "on_test_start",
    "on_test_end", "on_predict_start", "on_predict_end", "on_exception", "teardown",
)  # fmt: skip
told: dict[str, dict[str, Any]] = {}


def neighbor(base: Any, times: list[tuple[str, int]], save: str = "") -> Any:
    """A callback that takes the time in each hook, and saves a checkpoint after the third batch where asked."""

    def hook(name: str) -> Any:
        return lambda self, *_, **__: times.append((name, time.monotonic_ns()))

    class Neighbor(base):  # type: ignore[misc]
        def on_train_batch_end(self, trainer: Any, module: Any, outputs: Any, batch: Any, number: int) -> None:
            if save and number == 2:
                trainer.save_checkpoint(save)
                trainer.should_stop = True
                raise KeyboardInterrupt

    for name in HOOKS:
        setattr(Neighbor, name, hook(name))
    return Neighbor()


class Points(Dataset[Any]):
    """Points that take a while to read."""

    def __init__(self, count: int, pause: float = 0) -> None:
        self.points = torch.randn(count, 4)
        self.pause = pause
        self.slept = 0

    def __len__(self) -> int:
        return len(self.points)

    def __getitem__(self, index: int) -> torch.Tensor:
        began = time.monotonic_ns()
        time.sleep(self.pause)
        self.slept += time.monotonic_ns() - began
        return self.points[index]


def model(package: Any, *, fail: BaseException | None = None, pause: float = 0, optimizers: int = 1) -> Any:
    class Net(package.LightningModule):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.net = torch.nn.Linear(4, 1)
            self.automatic_optimization = optimizers == 1
            self.slept = 0
            self.fail_test: BaseException | None = None

        def loss(self, batch: Any) -> Any:
            return self.net(batch).pow(2).mean()

        def training_step(self, batch: Any, number: int) -> Any:
            if fail is not None and number == 3:
                raise fail
            began = time.monotonic_ns()
            time.sleep(pause)
            self.slept += time.monotonic_ns() - began
            loss = self.loss(batch)
            self.log("train_loss", loss, on_step=True, on_epoch=True)
            if optimizers > 1:
                for optimizer in self.optimizers():
                    optimizer.zero_grad()
                    self.manual_backward(self.loss(batch))
                    optimizer.step()
            return loss

        def validation_step(self, batch: Any, number: int, dataloader_idx: int = 0) -> None:
            began = time.monotonic_ns()
            time.sleep(pause)
            self.slept += time.monotonic_ns() - began
            self.log("val_loss", self.loss(batch))

        def test_step(self, batch: Any, number: int) -> None:
            if self.fail_test is not None:
                raise self.fail_test
            self.log("test_loss", self.loss(batch))

        def predict_step(self, batch: Any, number: int) -> Any:
            return self.net(batch)

        def on_train_epoch_end(self) -> None:
            self.log("epoch_squared", float(self.current_epoch**2))

        def configure_optimizers(self) -> Any:
            made = [torch.optim.SGD(self.parameters(), 0.1) for _ in range(optimizers)]
            return made if optimizers > 1 else made[0]

    return Net()


def trainer(case: str, package: Any = lightning, save: str = "", **settings: Any) -> Any:
    """A trainer whose run is called `case`."""
    before: list[tuple[str, int]] = []
    after: list[tuple[str, int]] = []
    told[case] = {"before": before, "after": after}
    callbacks = [
        neighbor(package.Callback, before), GpuMonitor(case), neighbor(package.Callback, after, save),
    ]  # fmt: skip
    return package.Trainer(callbacks=callbacks, **QUIET, **settings)


QUIET: dict[str, Any] = {
    "accelerator": "cpu", "logger": False, "enable_checkpointing": False, "enable_progress_bar": False,
    "enable_model_summary": False,
}  # fmt: skip


def loader(count: int = 64, pause: float = 0) -> Any:
    return DataLoader(Points(count, pause), batch_size=8)


class Saving(ModelCheckpoint):
    """Takes the time of what it saves."""

    def __init__(self, *given: Any, **settings: Any) -> None:
        super().__init__(*given, **settings)
        self.saved: list[tuple[int, int]] = []

    def on_save_checkpoint(self, trainer: Any, module: Any, checkpoint: Any) -> None:
        began = time.monotonic_ns()
        time.sleep(0.005)
        self.saved.append((began, time.monotonic_ns()))


def saving(directory: str) -> None:
    """Checkpoints in mid-epoch and at the end of each epoch, in a training that plans steps."""
    kept: dict[str, Any] = {"dirpath": f"{directory}/kept", "save_top_k": -1}
    savers = [Saving(**kept, filename="{step}", every_n_train_steps=4), Saving(**kept, filename="e{epoch}")]
    usual: dict[str, Any] = {**QUIET, "enable_checkpointing": True}
    made = lightning.Trainer(callbacks=[GpuMonitor("saves", config={"given": 3}), *savers], max_steps=16, **usual)
    made.fit(model(lightning), loader())
    told["saves"] = {
        "saved": sorted(savers[0].saved), "left as it was": "save_checkpoint" not in vars(made),
    }  # fmt: skip


def main(directory: str) -> None:
    whole = trainer("whole", max_epochs=2, val_check_interval=4, accumulate_grad_batches=2)
    whole.fit(model(lightning), loader(), loader(16))
    told["whole"]["metrics"] = {name: float(value) for name, value in whole.callback_metrics.items()}

    whole.save_checkpoint(f"{directory}/two.ckpt")
    trainer("resumed", max_epochs=4).fit(model(lightning), loader(), loader(16), ckpt_path=f"{directory}/two.ckpt")

    with suppress(SystemExit):
        trainer("interrupted", save=f"{directory}/middle.ckpt", max_epochs=2).fit(model(lightning), loader())
    trainer("middle", max_epochs=2).fit(model(lightning), loader(), ckpt_path=f"{directory}/middle.ckpt")

    with suppress(ValueError):
        trainer("failed", max_epochs=2).fit(model(lightning, fail=ValueError("boom")), loader())

    with suppress(SystemExit):
        trainer("left", max_epochs=2).fit(model(lightning, fail=SystemExit(0)), loader())

    trainer("optimizers", max_epochs=1).fit(model(lightning, optimizers=2), loader(), [loader(8), loader(8)])

    slow, module = loader(16, pause=0.005), model(lightning, pause=0.03)
    trainer("waits", max_epochs=2, num_sanity_val_steps=0).fit(module, slow, loader(16, pause=0.005))
    told["waits"] |= {"slept": slow.dataset.slept, "worked": module.slept}

    tested = lightning.Trainer(callbacks=[GpuMonitor("then tested")], max_epochs=1, num_sanity_val_steps=0, **QUIET)
    net = model(lightning)
    tested.fit(net, loader(16), loader(8))
    tested.validate(net, loader(8), verbose=False)
    tested.test(net, loader(8), verbose=False)
    tested.predict(net, loader(8))

    failing = lightning.Trainer(callbacks=[GpuMonitor("then failed")], max_epochs=1, **QUIET)
    failing.fit(net, loader(16))
    net.fail_test = ValueError("boom")
    with suppress(ValueError):
        failing.test(net, loader(8), verbose=False)
    saving(directory)

    one = trainer("alone")
    one.validate(model(lightning), loader(8), verbose=False)
    one.test(model(lightning), loader(8), verbose=False)
    one.predict(model(lightning), loader(8))

    import pytorch_lightning

    other = pickle.loads(pickle.dumps(GpuMonitor("other")))  # as a strategy hands it to the ranks that it spawns
    assert isinstance(other, lightning.Callback)
    assert isinstance(other, pytorch_lightning.Callback)
    # Not in a list: then the Trainer looks whose Callback it is.
    pytorch_lightning.Trainer(callbacks=other, max_epochs=1, **QUIET).fit(model(pytorch_lightning), loader())
    lightning.Trainer(callbacks=other, max_epochs=1, **QUIET).fit(model(lightning), loader())
    assert other.state_dict() == {}
    print(json.dumps(told))


if __name__ == "__main__":
    main(sys.argv[1])
