"""Reads the batch size and the workers from the attributes of a loader, without fetching a batch."""

from __future__ import annotations

from typing import Any, NamedTuple

from gpumon.model.run import IN_PROCESS, KEPT_WORKERS, STARTED_WORKERS
from gpumon.tracking.logged_values import whole

_MAX_WRAPPERS = 4


class BatchSize(NamedTuple):
    """Number of samples per step."""

    batch: int
    """Samples of each step except perhaps the last one."""
    mean: float = 0.0
    """Mean samples per step over a whole pass, if the last batch is smaller. 0 if all batches have the same size, or if
    the mean cannot be determined."""


def read_batch_size(loader: Any, times: int = 1) -> BatchSize | None:
    """Return the samples per step if a step takes `times` batches of `loader`; None if the loader does not report its
    batch size.

    Also finds the loader inside `enumerate`, tqdm and the iterator of a DataLoader. If an attribute of the user's
    loader raises an exception, it is not caught here.
    """
    loader = _unwrap(loader)
    # `or` would call `len()` of the sampler, which the sampler of an IterableDataset does not have.
    batches = getattr(loader, "batch_sampler", None)
    if batches is None:
        batches = getattr(loader, "_index_sampler", None)
    size = getattr(loader, "batch_size", None)
    batch = whole(getattr(batches, "batch_size", None) if size is None else size)
    if batch is None or batch <= 0:
        return None
    sampler = getattr(batches, "sampler", None)
    is_even = sampler is None or getattr(batches, "drop_last", True)
    samples, count = (0, 0) if is_even else (_length(sampler), _length(batches))
    return batch_size_of_pass(batch, samples, count, times)


def read_workers(loader: Any) -> tuple[str, int]:
    """Return how a DataLoader loads batches, and its number of workers; an empty text if it does not report it.

    If an attribute of the user's loader raises an exception, it is not caught here.
    """
    loader = _unwrap(loader)
    workers = whole(getattr(loader, "num_workers", None))
    if workers is None or workers < 0:
        return "", 0
    if not workers:
        return IN_PROCESS, 0
    return KEPT_WORKERS if getattr(loader, "persistent_workers", False) is True else STARTED_WORKERS, workers


def batch_size_of_pass(batch: int, samples: int, batches: int, times: int = 1) -> BatchSize:
    """Return the samples per step if a step takes `times` batches.

    `batch`: samples in a full batch. `samples`, `batches`: number of samples and of batches in one pass over the data;
    0 if not available.
    """
    # The shard of one rank may report the samples of all ranks. Then the numbers do not match, and no mean is given.
    if 0 < samples < batch * batches and -(-samples // batch) == batches:
        return BatchSize(batch * times, samples / -(-batches // times))
    return BatchSize(batch * times)


def _unwrap(loader: Any) -> Any:
    for _ in range(_MAX_WRAPPERS):
        if type(loader) is enumerate:
            loader = loader.__reduce__()[1][0]  # (enumerate, (iterator, next number))
        elif not hasattr(loader, "batch_size") and getattr(loader, "iterable", None) is not None:
            loader = loader.iterable  # tqdm
    return loader


def _length(sampler: Any) -> int:
    try:
        return len(sampler)
    except Exception:  # such as an endless sampler, or a user's class, which may raise anything
        return 0
