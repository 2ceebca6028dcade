"""The description in a board: the JSON next to its numbers.

The training writes it with `encode`, the daemon reads it with `decode`, and the bounds of both
stand here once. The writer keeps them so that the text always fits; the reader because every byte
may come from a hostile process.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import NamedTuple

from gpumon.common.errors import BoardError
from gpumon.common.text import clean
from gpumon.model.run import LARGEST, RunFacts, read_facts
from gpumon.tracking.wire import MAX_METRICS, TEXT_ROOM

NAME_LENGTH = 96
ID_LENGTH = 96
WORD_LENGTH = 40
DEVICE_LENGTH = 64
VISIBLE_LENGTH = 384
MAX_DEVICES = 16
MAX_PHASES = 12
TRAIN = "train"


class Description(NamedTuple):
    """Description of a training: user, name, devices."""

    name: str
    id: str
    framework: str = ""
    rank: int = 0
    local_rank: int = 0
    world_size: int = 1
    devices: tuple[str, ...] = ()
    """UUIDs, as far as the training knows them."""
    visible: str = ""
    """CUDA_VISIBLE_DEVICES as it is; empty when not set."""
    order: str = ""
    """CUDA_DEVICE_ORDER as it is."""
    epochs: int = 0
    """Planned; 0 where unknown."""
    first_epoch: int = 0
    base: int = 0
    """Where the framework begins to count epochs: 0 or 1."""
    metrics: tuple[str, ...] = ()
    """Names of the metric slots in use."""
    phases: tuple[str, ...] = ("", TRAIN)
    """Names of the phases; grows only at its end, so that an index never changes its meaning."""
    facts: RunFacts = RunFacts()


def words(texts: Iterable[object], count: int, length: int = WORD_LENGTH) -> tuple[str, ...]:
    """At most `count` strings, each cleaned and bounded."""
    return tuple(clean(text, length) for text, _ in zip(texts, range(count), strict=False) if isinstance(text, str))


def encode(description: Description) -> bytes:
    """The JSON of a description. Raises BoardError when it cannot fit."""
    bounded = description._replace(
        name=clean(description.name, NAME_LENGTH),
        id=clean(description.id, ID_LENGTH),
        devices=words(description.devices, MAX_DEVICES, DEVICE_LENGTH),
        visible=clean(description.visible, VISIBLE_LENGTH),
        order=clean(description.order, WORD_LENGTH),
        framework=clean(description.framework, WORD_LENGTH),
        metrics=words(description.metrics, MAX_METRICS),
        phases=words(description.phases, MAX_PHASES),
    )
    written = {**bounded._asdict(), **read_facts(description.facts._asdict())._asdict()}
    del written["facts"]
    text = json.dumps(written, ensure_ascii=False, separators=(",", ":")).encode()
    if len(text) > TEXT_ROOM:
        raise BoardError(f"a description of {len(text)} bytes has no room in a board")
    return text


def decode(text: bytes) -> Description:
    """The description in `text`. Raises BoardError when it is none.

    A field of the wrong type or size reads as if it were absent.
    """
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BoardError("the description is no JSON") from error
    if not isinstance(found, dict):
        raise BoardError("the description is no object")

    def text_of(key: str, length: int) -> str:
        value = found.get(key)
        return clean(value, length) if isinstance(value, str) else ""

    def number_of(key: str, otherwise: int, least: int = 0) -> int:
        value = found.get(key)
        return value if type(value) is int and least <= value <= LARGEST else otherwise

    def list_of(key: str) -> list[object]:
        value = found.get(key)
        return value if isinstance(value, list) else []

    def slots_of(key: str, count: int) -> tuple[str, ...]:
        # A slot with a broken name keeps its place: the others are found by their index.
        return tuple(clean(name, WORD_LENGTH) if isinstance(name, str) else "" for name in list_of(key)[:count])

    return Description(
        name=text_of("name", NAME_LENGTH),
        id=text_of("id", ID_LENGTH),
        framework=text_of("framework", WORD_LENGTH),
        rank=number_of("rank", 0),
        local_rank=number_of("local_rank", 0),
        world_size=number_of("world_size", 1, 1),
        devices=words(list_of("devices"), MAX_DEVICES, DEVICE_LENGTH),
        visible=text_of("visible", VISIBLE_LENGTH),
        order=text_of("order", WORD_LENGTH),
        epochs=number_of("epochs", 0),
        first_epoch=number_of("first_epoch", 0, -LARGEST),
        base=min(1, number_of("base", 0)),
        metrics=slots_of("metrics", MAX_METRICS),
        phases=slots_of("phases", MAX_PHASES),
        facts=read_facts(found),
    )
