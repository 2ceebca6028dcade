"""GPUs of a window: those that a user names, and those that only the history knows."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from gpumon.errors import UsageError
from gpumon.frame import Device, Frame
from gpumon.text import clean

NAMELESS = "unknown model"
"""The name of a GPU that is in the history alone, which keeps no names."""
Wanted = int | str | Device
"""A GPU by its index, by its UUID, or as itself."""


def devices_of(frames: Iterable[Frame]) -> dict[str, Device]:
    """Return every GPU of some frames by UUID."""
    return {sample.device.uuid: sample.device for frame in frames for sample in frame.samples}


def chosen(
    wanted: Wanted | Iterable[Wanted] | None, known: Mapping[str, Device], kept: Callable[[], Collection[str] | None]
) -> list[str]:
    """Return the UUIDs of the requested GPUs; none where none is named. Raises UsageError for one that is not known.

    `kept` gives the UUIDs of which there is history, or None where that cannot be read: then any may be.
    """
    if wanted is None:
        return []
    names = [wanted] if isinstance(wanted, int | str | Device) else list(wanted)
    by_index = {device.index: device.uuid for device in known.values()}
    found = []
    for name in names:
        if isinstance(name, int):
            if name not in by_index:
                listed = (
                    ", ".join(map(str, sorted(by_index))) or "none, because no daemon has run since the machine started"
                )
                raise UsageError(f"no such GPU: {name}. GPUs known by index: {listed}")
            found.append(by_index[name])
            continue
        uuid = name.uuid if isinstance(name, Device) else name
        if isinstance(name, str) and name not in known:
            others = kept()
            if others is not None and name not in others:
                raise unknown_gpu(name, [*known, *others])
        found.append(uuid)
    return list(dict.fromkeys(found))


def unknown_gpu(name: str, known: Iterable[str]) -> UsageError:
    """Return the error for an unknown GPU, with the names of those that are `known`."""
    listed = ", ".join(clean(one, 100) for one in dict.fromkeys(known))
    return UsageError(f"no such GPU: '{clean(name, 100)}'. GPUs known: {listed or 'none'}")


def named(subjects: Iterable[str], known: Mapping[str, Device]) -> Sequence[Device]:
    """Return devices in the order of their indexes; one that only the history knows comes behind them."""
    there = sorted((known[uuid] for uuid in subjects if uuid in known), key=lambda device: device.index)
    strangers = sorted(set(subjects) - set(known))
    behind = max((device.index for device in known.values()), default=-1) + 1
    return [*there, *(Device(uuid, behind + place, NAMELESS) for place, uuid in enumerate(strangers))]
