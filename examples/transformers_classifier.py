"""A tiny text classifier trained by the Trainer of Transformers, seen by gpumon through one callback.

    python examples/transformers_classifier.py

Needs `pip install transformers accelerate`; downloads nothing: the model is made from a configuration and the texts are
made up. While it runs, `gpumon tui` shows its epochs (counted from 1, as in the Trainer's table), the evaluation after
each, loss, learning rate and accuracy; `gpumon runs show` prints them afterward.
"""

from __future__ import annotations

import argparse
import tempfile

import torch
from transformers import BertConfig, BertForSequenceClassification, EvalPrediction, Trainer, TrainingArguments

from gpumon.callbacks.transformers import GpuMonitor

WORDS, LENGTH = 100, 16


def texts(count: int, seed: int) -> list[dict[str, torch.Tensor]]:
    """Texts of random words; those with more words of the upper half are of class 1."""
    words = torch.randint(0, WORDS, (count, LENGTH), generator=torch.Generator().manual_seed(seed))
    classes = ((words >= WORDS // 2).sum(1) > LENGTH // 2).long()
    return [{"input_ids": text, "labels": kind} for text, kind in zip(words, classes, strict=True)]


def accuracy(told: EvalPrediction) -> dict[str, float]:
    return {"accuracy": float((told.predictions.argmax(1) == told.label_ids).mean())}


def main() -> None:
    parser = argparse.ArgumentParser(description="a text classifier by the Trainer of Transformers, seen by gpumon")
    parser.add_argument("--epochs", type=int, default=4)
    chosen = parser.parse_args()
    model = BertForSequenceClassification(
        BertConfig(
            vocab_size=WORDS, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64,
            max_position_embeddings=LENGTH,
        )
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as directory:
        settings = TrainingArguments(
            directory, num_train_epochs=chosen.epochs, per_device_train_batch_size=32, gradient_accumulation_steps=2,
            learning_rate=3e-3, eval_strategy="epoch", logging_strategy="epoch", save_strategy="no", report_to=[],
            disable_tqdm=True,
        )  # fmt: skip
        Trainer(
            model, settings, train_dataset=texts(2048, seed=0), eval_dataset=texts(256, seed=1),
            compute_metrics=accuracy, callbacks=[GpuMonitor("transformers-classifier")],
        ).train()  # fmt: skip


if __name__ == "__main__":
    main()
