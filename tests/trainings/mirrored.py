"""A Keras training under TensorFlow's MirroredStrategy, on two logical devices of the CPU: both in one process."""

from __future__ import annotations

import warnings

warnings.filterwarnings("ignore")

import keras  # noqa: E402
import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402

from gpumon.callbacks.keras import GpuMonitor  # noqa: E402


def main() -> None:
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    x = np.random.default_rng(0).normal(size=(64, 4)).astype("float32")
    with strategy.scope():
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
        model.compile(optimizer="sgd", loss="mse")
    model.fit(x, x.sum(axis=1), batch_size=8, epochs=2, validation_data=(x, x.sum(axis=1)), verbose=0,
              callbacks=[GpuMonitor("mirrored")])  # fmt: skip
    print(strategy.num_replicas_in_sync)


if __name__ == "__main__":
    main()
