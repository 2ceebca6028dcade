"""Actions against slow trainings, in the words of the framework that the training uses."""

from __future__ import annotations

from collections.abc import Mapping

_PYTORCH = ("torch", "lightning", "accelerate", "ignite", "composer", "fabric")
"""Frameworks whose users write the DataLoader."""
_OTHERS = ""
"""Key of the action for all other frameworks."""

_WORKERS: Mapping[str, str] = {
    "torch": "Load ahead in worker processes, at most one per CPU core: DataLoader(num_workers={workers}, "
    "persistent_workers=True).",
    "transformers": "Load ahead in worker processes, at most one per CPU core: "
    "TrainingArguments(dataloader_num_workers={workers}, dataloader_persistent_workers=True).",
    "keras": "Load ahead: dataset.map(…, num_parallel_calls=tf.data.AUTOTUNE).prefetch(tf.data.AUTOTUNE), or "
    "PyDataset(workers={workers}, use_multiprocessing=True).",
    _OTHERS: "Load batches ahead in {workers} processes.",
}
_KEEP_WORKERS: Mapping[str, str] = {
    "torch": "Keep the workers alive between epochs: DataLoader(persistent_workers=True).",
    "transformers": "Keep the workers alive between epochs: TrainingArguments(dataloader_persistent_workers=True).",
    _OTHERS: "Keep the worker processes alive between epochs.",
}
_MORE_WORKERS: Mapping[str, str] = {
    "torch": "Add DataLoader workers (num_workers=), or move decoding off the CPU.",
    "transformers": "Raise TrainingArguments(dataloader_num_workers=), or move decoding off the CPU.",
    "keras": "Load ahead with .prefetch(tf.data.AUTOTUNE) or PyDataset(workers=), or move decoding off the CPU.",
    _OTHERS: "Load batches ahead in other processes, or move decoding off the CPU.",
}
_FASTER_WORKERS: Mapping[str, str] = {
    "torch": "Use {workers} workers if there are cores for them, DataLoader(num_workers={workers}), or decode less: "
    "store decoded or smaller files.",
    "transformers": "Set TrainingArguments(dataloader_num_workers={workers}) if there are cores for them, or tokenize "
    "before the training with dataset.map.",
    _OTHERS: "Use {workers} workers if there are cores for them, or decode less: store decoded or smaller files.",
}
_FASTER_STORAGE: Mapping[str, str] = {
    "torch": "Copy the data to a local disk or pack it into large files; {workers} workers overlap more of the waits: "
    "DataLoader(num_workers={workers}).",
    _OTHERS: "Copy the data to a local disk or pack it into large files; {workers} workers overlap more of the waits.",
}
_VALIDATION: Mapping[str, str] = {
    "keras": "Validate every second epoch (model.fit(validation_freq=2)) or in larger batches.",
    "lightning": "Validate every second epoch (Trainer(check_val_every_n_epoch=2)) or in larger batches.",
    "transformers": "Evaluate half as often, TrainingArguments(eval_steps=…), or raise per_device_eval_batch_size.",
    _OTHERS: "Validate every second epoch, in larger batches, or on a part of the data.",
}
_CHECKPOINT: Mapping[str, str] = {
    "keras": "Save {times} times less often: ModelCheckpoint(save_freq=…).",
    "lightning": "Save {times} times less often: ModelCheckpoint(every_n_train_steps=…).",
    "transformers": "Save {times} times less often: TrainingArguments(save_steps=…).",
    "torch": "Save {times} times less often, or in the background: torch.distributed.checkpoint.async_save.",
    _OTHERS: "Save {times} times less often, or in the background.",
}
_COMPILE: Mapping[str, str] = {
    "torch": 'Raise the batch size, or start kernels in groups: torch.compile(mode="reduce-overhead").',
    "lightning": 'Raise the batch size, or start kernels in groups: torch.compile(mode="reduce-overhead").',
    "transformers": "Raise per_device_train_batch_size, or set TrainingArguments(torch_compile=True).",
    "keras": "Raise the batch size, or set model.compile(jit_compile=True, steps_per_execution=…).",
    "jax": "Raise the batch size, or run several steps in one call: jax.lax.scan.",
    _OTHERS: "Raise the batch size.",
}
_PRECISION: Mapping[str, str] = {
    "torch": "Train in mixed precision: torch.autocast('cuda', dtype=torch.bfloat16), or at least in TF32: "
    "torch.set_float32_matmul_precision('high').",
    "lightning": "Train in mixed precision: Trainer(precision='bf16-mixed').",
    "transformers": "Train in mixed precision: TrainingArguments(bf16=True, tf32=True).",
    "accelerate": "Train in mixed precision: Accelerator(mixed_precision='bf16').",
    "keras": "Train in mixed precision: keras.mixed_precision.set_global_policy('mixed_bfloat16').",
    "jax": "Compute in jnp.bfloat16, or set jax.config.update('jax_default_matmul_precision', 'tensorfloat32').",
    _OTHERS: "Train in a 16-bit format, with sizes that are multiples of 8.",
}
_BATCH: Mapping[str, str] = {
    "transformers": "Raise per_device_train_batch_size",
    _OTHERS: "Raise the batch size",
}


_LEAK: Mapping[str, str] = {
    "keras": "Look for tensors that are kept over epochs, such as lists of losses or of outputs in a callback.",
    _OTHERS: "Look for tensors that are kept over epochs: add loss.item() to sums and lists, never loss itself.",
}
_FRAGMENTS: Mapping[str, str] = {
    "keras": "Set TF_GPU_ALLOCATOR=cuda_malloc_async, or train with smaller batches.",
    _OTHERS: "Set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, or train with smaller batches.",
}
_FIRST_EPOCH: Mapping[str, str] = {
    "torch": "Keep compiled code between runs: TORCHINDUCTOR_CACHE_DIR on a disk that stays, or compile fewer shapes.",
    "jax": 'Keep compiled code between runs: jax.config.update("jax_compilation_cache_dir", …).',
    _OTHERS: "Start fewer, longer runs, or keep compiled code and read files between runs.",
}


def _choose(texts: Mapping[str, str], framework: str) -> str:
    if framework in texts:
        return texts[framework]
    family = "torch" if framework in _PYTORCH else "keras" if framework == "tensorflow" else _OTHERS
    return texts.get(family, texts[_OTHERS])


def add_workers(framework: str, workers: int) -> str:
    """Return how to load batches in this number of worker processes."""
    return _choose(_WORKERS, framework).format(workers=workers)


def keep_workers(framework: str) -> str:
    """Return how to keep worker processes alive between epochs."""
    return _choose(_KEEP_WORKERS, framework)


def more_workers(framework: str) -> str:
    """Return how to load batches faster if nothing is known about the loader."""
    return _choose(_MORE_WORKERS, framework)


def faster_workers(framework: str, workers: int) -> str:
    """Return how to relieve workers that compute all the time."""
    return _choose(_FASTER_WORKERS, framework).format(workers=workers)


def faster_storage(framework: str, workers: int) -> str:
    """Return how to relieve workers that wait for files."""
    return _choose(_FASTER_STORAGE, framework).format(workers=workers)


def validate_less(framework: str) -> str:
    """Return how to spend less time in validation."""
    return _choose(_VALIDATION, framework)


def save_less(framework: str, times: int) -> str:
    """Return how to save checkpoints less often by this factor."""
    return _choose(_CHECKPOINT, framework).format(times=times)


def fill_steps(framework: str) -> str:
    """Return how to give the GPU more work per step."""
    return _choose(_COMPILE, framework)


def lower_precision(framework: str) -> str:
    """Return how to use the tensor cores."""
    return _choose(_PRECISION, framework)


def raise_batch(framework: str, batch: int) -> str:
    """Return how to raise the batch size. `batch`: samples per step that certainly fit; 0 if not known."""
    fits = f": {batch} samples per step fit" if batch else ""
    return f"{_choose(_BATCH, framework)}{fits}."


def free_tensors(framework: str) -> str:
    """Return where to look for memory that grows."""
    return _choose(_LEAK, framework)


def avoid_fragments(framework: str) -> str:
    """Return how to avoid fragments in the memory of the allocator."""
    return _choose(_FRAGMENTS, framework)


def shorten_first_epoch(framework: str) -> str:
    """Return how to keep what the first epoch compiles."""
    return _choose(_FIRST_EPOCH, framework)
