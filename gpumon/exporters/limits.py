"""Limits of a scrape, against a node that makes more series than a server wants."""

from __future__ import annotations

from collections.abc import Iterable

from gpumon.exporters.family import Family

MOST_SERIES = 512
"""Series of a family: more than GPUs, users and runs of any node come to."""
MOST_OF_ALL = 4500
"""Series of a scrape: a server with the settings that we ship takes a few more, and of too many none."""
_LAST = "gpumon_gpu_unavailable"
"""The family that gets what the others leave: it may be as long as all of them, and is missed least."""


def bounded(families: Iterable[Family]) -> tuple[list[Family], int]:
    """Return families with at most so many series each and in all, and how many series were left out."""
    found = list(families)
    room, dropped = MOST_OF_ALL, 0
    for place in sorted(range(len(found)), key=lambda place: found[place].name == _LAST):
        family = found[place]
        most = room if family.name == _LAST else min(room, MOST_SERIES)
        kept = family.series[:most]
        dropped += len(family.series) - len(kept)
        room -= len(kept)
        found[place] = family._replace(series=kept)
    return [family for family in found if family.series], dropped
