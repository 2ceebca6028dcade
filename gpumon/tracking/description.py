"""The description of a run, with its name, user, devices and so on. It is stored as JSON in the run's board.

The training writes it with `encode`, and the daemon reads it with `decode`. Both apply the same limits. The writer
ensures that the text fits. The reader trusts no byte of it, because the training process may be hostile.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import NamedTuple

from gpumon.common.errors import BoardError
from gpumon.common.text import clean
from gpumon.model.run import LARGEST, RunFacts, read_facts
from gpumon.tracking.wire_format import MAX_METRICS, TEXT_ROOM

NAME_LENGTH = 96
ID_LENGTH = 96
WORD_LENGTH = 40
DEVICE_LENGTH = 64
VISIBLE_LENGTH = 384
MAX_DEVICES = 16
MAX_PHASES = 12
TRAIN = "train"


class Description(NamedTuple):
    """Data that a training process publishes about itself in its board."""

    name: str
    id: str
    framework: str = ""
    rank: int = 0
    local_rank: int = 0
    world_size: int = 1
    devices: tuple[str, ...] = ()
    """UUIDs of the devices, if the training process could determine them."""
    visible: str = ""
    """Value of CUDA_VISIBLE_DEVICES; empty if not set."""
    order: str = ""
    """Value of CUDA_DEVICE_ORDER; empty if not set."""
    epochs: int = 0
    """Planned number of epochs; 0 if not specified."""
    first_epoch: int = 0
    base: int = 0
    """Number of the framework's first epoch: 0 or 1."""
    metrics: tuple[str, ...] = ()
    """Names of the metric slots in use."""
    phases: tuple[str, ...] = ("", TRAIN)
    """Names of the phases. New names are appended, so the index of a name never changes."""
    facts: RunFacts = RunFacts()


def _clean_all(texts: Iterable[object], count: int, length: int = WORD_LENGTH) -> tuple[str, ...]:
    """Return at most `count` of the strings in `texts`, each cleaned and bounded."""
    return tuple(clean(text, length) for text, _ in zip(texts, range(count), strict=False) if isinstance(text, str))


def encode(description: Description) -> bytes:
    """Return a description as JSON. Raises BoardError if it does not fit into a board."""
    bounded = description._replace(
        name=clean(description.name, NAME_LENGTH),
        id=clean(description.id, ID_LENGTH),
        devices=_clean_all(description.devices, MAX_DEVICES, DEVICE_LENGTH),
        visible=clean(description.visible, VISIBLE_LENGTH),
        order=clean(description.order, WORD_LENGTH),
        framework=clean(description.framework, WORD_LENGTH),
        metrics=_clean_all(description.metrics, MAX_METRICS),
        phases=_clean_all(description.phases, MAX_PHASES),
    )
    document = {**bounded._asdict(), **read_facts(description.facts._asdict())._asdict()}
    del document["facts"]
    text = json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()
    if len(text) > TEXT_ROOM:
        raise BoardError(f"a description of {len(text)} bytes does not fit into a board")
    return text


def decode(text: bytes) -> Description:
    """Return the description in a JSON string. Raises BoardError if it contains none.

    A field with the wrong type or a value out of range counts as missing.
    """
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BoardError("the description is not JSON") from error
    if not isinstance(document, dict):
        raise BoardError("the description is not a JSON object")

    def text_of(key: str, length: int) -> str:
        value = document.get(key)
        return clean(value, length) if isinstance(value, str) else ""

    def number_of(key: str, default: int, minimum: int = 0) -> int:
        value = document.get(key)
        return value if type(value) is int and minimum <= value <= LARGEST else default

    def list_of(key: str) -> list[object]:
        value = document.get(key)
        return value if isinstance(value, list) else []

    def slots_of(key: str, count: int) -> tuple[str, ...]:
        # An invalid name is kept as an empty one, because slots are identified by their index.
        return tuple(clean(name, WORD_LENGTH) if isinstance(name, str) else "" for name in list_of(key)[:count])

    return Description(
        name=text_of("name", NAME_LENGTH),
        id=text_of("id", ID_LENGTH),
        framework=text_of("framework", WORD_LENGTH),
        rank=number_of("rank", 0),
        local_rank=number_of("local_rank", 0),
        world_size=number_of("world_size", 1, 1),
        devices=_clean_all(list_of("devices"), MAX_DEVICES, DEVICE_LENGTH),
        visible=text_of("visible", VISIBLE_LENGTH),
        order=text_of("order", WORD_LENGTH),
        epochs=number_of("epochs", 0),
        first_epoch=number_of("first_epoch", 0, -LARGEST),
        base=min(1, number_of("base", 0)),
        metrics=slots_of("metrics", MAX_METRICS),
        phases=slots_of("phases", MAX_PHASES),
        facts=read_facts(document),
    )
