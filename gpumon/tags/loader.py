"""Samples per step, from the attributes of a loader: nothing is fetched from it."""

from __future__ import annotations

from typing import Any, NamedTuple

from gpumon.tags.values import whole

_WRAPPED = 4
"""Wrappers around a loader that are looked through."""


class Samples(NamedTuple):
    """Samples of a step."""

    batch: int
    """Of each but the last."""
    mean: float = 0.0
    """Over a whole pass, where the last batch is short; 0 where all are alike, or where this is unknown."""


def samples_of(loader: Any, times: int = 1) -> Samples | None:
    """Samples of a step that takes `times` batches of `loader`; None where it does not say.

    Looks through `enumerate` and tqdm, also at the iterator of a DataLoader. Raises whatever the attributes of a
    loader of the user's own raise.
    """
    loader = _unwrapped(loader)
    # `or` would ask for the length of the sampler, and that of an IterableDataset has none.
    batches = getattr(loader, "batch_sampler", None)
    if batches is None:
        batches = getattr(loader, "_index_sampler", None)
    size = getattr(loader, "batch_size", None)
    batch = whole(getattr(batches, "batch_size", None) if size is None else size)
    if batch is None or batch <= 0:
        return None
    sampler = getattr(batches, "sampler", None)
    alike = sampler is None or getattr(batches, "drop_last", True)
    samples, steps = (0, 0) if alike else (_length(sampler), _length(batches))
    return counted(batch, samples, steps, times)


def counted(batch: int, samples: int, batches: int, times: int = 1) -> Samples:
    """Of steps that take `times` batches, where a pass has so many samples in so many batches (0: unknown)."""
    # Shards of several ranks say how many samples all of them have together: then the numbers do not fit.
    if 0 < samples < batch * batches and -(-samples // batch) == batches:
        return Samples(batch * times, samples / -(-batches // times))
    return Samples(batch * times)


def _unwrapped(loader: Any) -> Any:
    for _ in range(_WRAPPED):
        if type(loader) is enumerate:
            loader = loader.__reduce__()[1][0]  # (enumerate, (iterator, next number))
        elif not hasattr(loader, "batch_size") and getattr(loader, "iterable", None) is not None:
            loader = loader.iterable  # tqdm
    return loader


def _length(of: Any) -> int:
    try:
        return len(of)
    except Exception:  # a sampler without end, or one of the user's own
        return 0
