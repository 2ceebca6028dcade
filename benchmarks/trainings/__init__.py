"""The trainings that `callbacks` times: each framework in a file and a process of its own."""

from __future__ import annotations

from typing import NamedTuple


class Training(NamedTuple):
    """Where a training is, and what it requires."""

    module: str
    """In this package; its `prepare` makes a `case.Case`."""
    package: str
    """To be installed, besides torch, by which a step of 10 ms is made."""
    has_epochs: bool = True
    """Without, 100 steps count as one: what follows them says nothing about an epoch."""


TRAININGS = {
    "plain loop": Training("plain", "torch"),
    "Keras on torch": Training("keras_fit", "keras"),
    "Lightning": Training("lightning_fit", "lightning"),
    "Transformers": Training("transformers_fit", "transformers"),
    "Ignite": Training("ignite_run", "ignite"),
    "Accelerate": Training("accelerate_log", "accelerate"),
    "XGBoost": Training("xgboost_train", "xgboost", has_epochs=False),
    "LightGBM": Training("lightgbm_train", "lightgbm", has_epochs=False),
    "scikit-learn": Training("sklearn_search", "sklearn", has_epochs=False),
}
