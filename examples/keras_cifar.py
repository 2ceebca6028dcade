"""A small image classifier with Keras, seen by gpumon through one callback.

    python examples/keras_cifar.py                            # on torch
    KERAS_BACKEND=tensorflow python examples/keras_cifar.py   # or on TensorFlow, or jax

Needs `pip install keras torch`; downloads nothing: the images are made up, in the shape of CIFAR-10.
While it runs, `gpumon tui` shows its epochs (counted from 1, as Keras prints them), the validation in each, and the
losses and accuracies; `gpumon runs show` prints them afterward.
"""

from __future__ import annotations

import argparse
import os

import numpy as np

os.environ.setdefault("KERAS_BACKEND", "torch")  # Keras looks at it once: before the import

import keras
from keras import layers

from gpumon.callbacks.keras import GpuMonitor

CLASSES = 10


def images(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Noise with the pattern of a class in it, of that class."""
    random = np.random.default_rng(0)
    patterns = random.normal(size=(CLASSES, 8, 8, 3)).repeat(4, axis=1).repeat(4, axis=2)
    classes = random.integers(0, CLASSES, count)
    noise = random.normal(size=(count, 32, 32, 3))
    return (patterns[classes] + 6 * noise).astype("float32"), classes


def network() -> keras.Model:
    """Three convolutions and two dense layers."""
    return keras.Sequential(
        [
            keras.Input((32, 32, 3)),
            layers.Conv2D(16, 3, strides=2, activation="relu"),
            layers.Conv2D(32, 3, strides=2, activation="relu"),
            layers.Conv2D(64, 3, strides=2, activation="relu"),
            layers.Flatten(),
            layers.Dense(64, activation="relu"),
            layers.Dense(CLASSES, activation="softmax"),
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="a small image classifier with Keras, seen by gpumon")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--images", type=int, default=2048)
    chosen = parser.parse_args()
    keras.utils.set_random_seed(0)
    model = network()
    model.compile(optimizer="adam", loss="sparse_categorical_crossentropy", metrics=["accuracy"])
    model.fit(
        *images(chosen.images),
        batch_size=64,
        epochs=chosen.epochs,
        validation_split=0.25,
        verbose=2,
        callbacks=[GpuMonitor("keras-cifar")],
    )


if __name__ == "__main__":
    main()
