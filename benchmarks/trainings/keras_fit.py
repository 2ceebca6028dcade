"""`model.fit` of Keras on the torch backend."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks.trainings.case import EMPTY, Case, Loader, batches


def prepare() -> Case:
    """Compile a tiny model."""
    import keras
    from torch.utils.data import DataLoader

    from gpumon.callbacks.keras import GpuMonitor

    class Batches(DataLoader):  # type: ignore[misc]  # typed or not, by what is installed
        """Data that Keras takes for a loader of torch."""

        def __init__(self, loader: Loader) -> None:
            super().__init__(loader.batches, batch_size=None)
            self.timed = loader

        def __iter__(self) -> Any:
            return iter(self.timed)

    model = keras.Sequential([keras.layers.Input((16,)), keras.layers.Dense(1)])
    model.compile(optimizer="sgd", loss="mse")

    def train(who: str, loader: Loader, epochs: int) -> None:
        callbacks: dict[str, Callable[[], list[Any]]] = {
            "gpumon": lambda: [GpuMonitor("benchmark")], EMPTY: lambda: [keras.callbacks.Callback()],
        }  # fmt: skip
        model.fit(Batches(loader), epochs=epochs, callbacks=callbacks[who]() if who else [], verbose=0)

    return Case(train, ["gpumon", EMPTY], batches())
