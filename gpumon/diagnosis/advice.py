"""Actions against slow trainings, in the words of the framework that the training uses."""

from __future__ import annotations

from collections.abc import Mapping

_PYTORCH = ("torch", "lightning", "accelerate", "ignite", "composer", "fabric")
"""Frameworks whose users create the DataLoader themselves."""
_OTHERS = ""
Texts = Mapping[str, str]
"""An action in the words of each framework. The key `""` stands for all other frameworks. Values are filled in by
`choose`."""

ADD_WORKERS: Texts = {
    "torch": "Load ahead in worker processes, at most one per CPU core: DataLoader(num_workers={workers}, "
    "persistent_workers=True).",
    "transformers": "Load ahead in worker processes, at most one per CPU core: "
    "TrainingArguments(dataloader_num_workers={workers}, dataloader_persistent_workers=True).",
    "keras": "Load ahead: dataset.map(…, num_parallel_calls=tf.data.AUTOTUNE).prefetch(tf.data.AUTOTUNE), or "
    "PyDataset(workers={workers}, use_multiprocessing=True).",
    _OTHERS: "Load batches ahead in {workers} processes.",
}
KEEP_WORKERS: Texts = {
    "torch": "Keep the workers alive between epochs: DataLoader(persistent_workers=True).",
    "transformers": "Keep the workers alive between epochs: TrainingArguments(dataloader_persistent_workers=True).",
    _OTHERS: "Keep the worker processes alive between epochs.",
}
MORE_WORKERS: Texts = {
    "torch": "Add DataLoader workers (num_workers=), or move decoding off the CPU.",
    "transformers": "Raise TrainingArguments(dataloader_num_workers=), or move decoding off the CPU.",
    "keras": "Load ahead with .prefetch(tf.data.AUTOTUNE) or PyDataset(workers=), or move decoding off the CPU.",
    _OTHERS: "Load batches ahead in other processes, or move decoding off the CPU.",
}
"""If nothing is known about the loader."""
FASTER_WORKERS: Texts = {
    "torch": "Use {workers} workers if there are cores for them, DataLoader(num_workers={workers}), or decode less: "
    "store decoded or smaller files.",
    "transformers": "Set TrainingArguments(dataloader_num_workers={workers}) if there are cores for them, or tokenize "
    "before the training with dataset.map.",
    _OTHERS: "Use {workers} workers if there are cores for them, or decode less: store decoded or smaller files.",
}
"""If the workers compute all the time."""
FASTER_STORAGE: Texts = {
    "torch": "Copy the data to a local disk or pack it into large files; {workers} workers overlap more of the waits: "
    "DataLoader(num_workers={workers}).",
    _OTHERS: "Copy the data to a local disk or pack it into large files; {workers} workers overlap more of the waits.",
}
"""If the workers wait for files."""
VALIDATE_LESS: Texts = {
    "keras": "Validate half as often (model.fit(validation_freq={every})) or in larger batches.",
    "lightning": "Validate half as often (Trainer(check_val_every_n_epoch={every})) or in larger batches.",
    "transformers": "Evaluate half as often, TrainingArguments(eval_steps=…), or raise per_device_eval_batch_size.",
    _OTHERS: "Validate half as often, in larger batches, or on a part of the data.",
}
VALIDATE_FASTER: Texts = {_OTHERS: "Validate in larger batches, or on a part of the data."}
"""If the training validates once."""
SAVE_LESS: Texts = {
    "keras": "Save {times} times less often: ModelCheckpoint(save_freq=…).",
    "lightning": "Save {times} times less often: ModelCheckpoint(every_n_train_steps=…).",
    "transformers": "Save {times} times less often: TrainingArguments(save_steps=…).",
    "torch": "Save {times} times less often, or in the background: torch.distributed.checkpoint.async_save.",
    _OTHERS: "Save {times} times less often, or in the background.",
}
FILL_STEPS: Texts = {
    "torch": 'Raise the batch size, or start kernels in groups: torch.compile(mode="reduce-overhead").',
    "lightning": 'Raise the batch size, or start kernels in groups: torch.compile(mode="reduce-overhead").',
    "transformers": "Raise per_device_train_batch_size, or set TrainingArguments(torch_compile=True).",
    "keras": "Raise the batch size, or set model.compile(jit_compile=True, steps_per_execution=…).",
    "jax": "Raise the batch size, or run several steps in one call: jax.lax.scan.",
    _OTHERS: "Raise the batch size.",
}
"""Gives the GPU more work per step."""
LOWER_PRECISION: Texts = {
    "torch": "Train in mixed precision: torch.autocast('cuda', dtype=torch.bfloat16), or at least in TF32: "
    "torch.set_float32_matmul_precision('high').",
    "lightning": "Train in mixed precision: Trainer(precision='bf16-mixed').",
    "transformers": "Train in mixed precision: TrainingArguments(bf16=True, tf32=True).",
    "accelerate": "Train in mixed precision: Accelerator(mixed_precision='bf16').",
    "keras": "Train in mixed precision: keras.mixed_precision.set_global_policy('mixed_bfloat16').",
    "jax": "Compute in jnp.bfloat16, or set jax.config.update('jax_default_matmul_precision', 'tensorfloat32').",
    _OTHERS: "Train in a 16-bit format, with sizes that are multiples of 8.",
}
RAISE_BATCH: Texts = {
    "transformers": "Raise per_device_train_batch_size: {batch} samples per step fit.",
    _OTHERS: "Raise the batch size: {batch} samples per step fit.",
}
FREE_TENSORS: Texts = {
    "keras": "Look for tensors that are kept over epochs, such as lists of losses or of outputs in a callback.",
    _OTHERS: "Look for tensors that are kept over epochs: add loss.item() to sums and lists, never loss itself.",
}
AVOID_FRAGMENTS: Texts = {
    "keras": "Set TF_GPU_ALLOCATOR=cuda_malloc_async, or train with smaller batches.",
    _OTHERS: "Set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, or train with smaller batches.",
}
SHORTEN_FIRST_EPOCH: Texts = {
    "torch": "Keep compiled code between runs: TORCHINDUCTOR_CACHE_DIR on a disk that stays, or compile fewer shapes.",
    "jax": 'Keep compiled code between runs: jax.config.update("jax_compilation_cache_dir", …).',
    _OTHERS: "Start fewer, longer runs, or keep compiled code and read files between runs.",
}


def choose(texts: Texts, framework: str, **values: object) -> str:
    """Return the text for a framework, with `values` filled in."""
    family = "torch" if framework in _PYTORCH else "keras" if framework == "tensorflow" else _OTHERS
    text = texts.get(framework) or texts.get(family) or texts[_OTHERS]
    return text.format(**values)
