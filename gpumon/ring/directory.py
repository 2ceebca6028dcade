"""The names to which frames refer by a small number, as readers get them: devices by row, strings, runs.

Ids are never used again within a file, so the newest directory explains every frame. JSON of a stranger is checked
field by field. `directory_writer` keeps and stores it.
"""

import json
import math
from collections.abc import Mapping, Sequence
from functools import reduce
from operator import or_
from typing import Any, NamedTuple
from zlib import crc32

from gpumon.common.errors import RingError
from gpumon.common.numbers import NAN
from gpumon.common.text import clean
from gpumon.model.device import Device
from gpumon.model.frame import Run
from gpumon.model.metrics import Availability
from gpumon.model.origin import HARDWARE, RECORDED, SIMULATED, Capability, Driver, Origin, SourceInfo
from gpumon.model.run import read_facts
from gpumon.model.vendors import NVIDIA
from gpumon.ring.believable import believable
from gpumon.ring.layout import BLOB, RUN_METRICS

_PARTS = 16
_CAPABILITIES = frozenset(Capability.__members__)
_BEFORE = {"": HARDWARE, "nvml": HARDWARE, "sim": SIMULATED}
"""Capabilities of the sources of daemons that did not write them yet; no source is added here."""


class Known(NamedTuple):
    """A directory that was read and checked."""

    version: int
    devices: Mapping[int, Device]
    strings: Mapping[int, str]
    runs: Mapping[int, Run]
    """With the lasting facts only; the keys of `metrics` in their order."""
    origin: Origin
    driver: Driver
    hostname: str
    next_ids: tuple[int, int]
    ledger: str = ""
    """Why the daemon keeps no run just now, for people; empty when it does, or has none to keep."""
    history: str = ""
    """The same of its history."""
    gpumon: str = ""
    """Version of gpumon that writes; empty where an earlier one does, which does not say so."""


NOTHING = Known(
    version=0, devices={}, strings={}, runs={}, origin=Origin(""), driver=Driver(), hostname="", next_ids=(1, 1)
)


def unpack(raw: bytes) -> Known | None:
    """One stored copy of the directory, or None when it is not whole."""
    if len(raw) < BLOB.size:
        return None
    version, length, crc, _ = BLOB.unpack_from(raw)
    body = raw[BLOB.size : BLOB.size + length]
    if version == 0 or len(body) != length or crc32(body) != crc:
        return None
    try:
        return _parse(version, json.loads(body))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, OverflowError) as error:
        raise RingError("the directory of the ring file makes no sense: restart the daemon") from error


def _parse(version: int, found: Any) -> Known:
    devices = {
        int(row): Device(
            _text(device["uuid"]),
            _whole(device["index"]),
            _text(device["name"]),
            _missing(device["missing"], found["devices"]),
            _text(device.get("source", "")),
            _text(device.get("parent", "")),
            _whole(device.get("instance", -1)),
            _text(device.get("address", "")),
            _whole(device.get("minor", -1)),
            _text(device.get("job", "")),
        )
        for row, device in found["devices"].items()
    }
    strings = {int(number): _text(text) for number, text in found["strings"].items()}
    runs = {int(number): _run(run) for number, run in found["runs"].items()}
    origin = _origin(found["origin"])
    driver = _driver(found["driver"])
    first, second = found["next"]
    return Known(
        version=version,
        devices=devices,
        strings=strings,
        runs=runs,
        origin=origin,
        driver=driver,
        hostname=_text(found["hostname"]),
        next_ids=(int(first), int(second)),
        ledger=_text(found.get("ledger", ""), 1024),
        history=_text(found.get("history", ""), 1024),
        gpumon=_text(found.get("gpumon", ""), 64),
    )


def _missing(told: Any, devices: Mapping[str, Any]) -> dict[str, Availability]:
    """Metrics that a device lacks: told, or the row of the device that lacks the same."""
    found = devices[str(told)]["missing"] if isinstance(told, int) else told
    return {_text(metric): Availability(why) for metric, why in found.items()}


def _origin(told: Mapping[str, Any]) -> Origin:
    # A daemon of an earlier version does not write whether a recording has ended, nor capabilities.
    source, label, problem = (_text(told[name], 1024) for name in ("source", "label", "problem"))
    capabilities = _BEFORE.get(source, RECORDED)
    if "capabilities" in told:
        named = [Capability[name] for text in told["capabilities"] if (name := _text(text).upper()) in _CAPABILITIES]
        capabilities = reduce(or_, named, Capability(0))
    given = list(told.get("parts", ()))[:_PARTS]
    parts = tuple(SourceInfo(_origin({**part, "parts": ()}), _driver(part["driver"])) for part in given)
    return Origin(
        source,
        label,
        problem,
        ended=told.get("ended") is True,
        capabilities=capabilities,
        parts=parts,
        notice=_text(told.get("notice", ""), 1024),
        unanswered=believable((float(told.get("unanswered", 0.0)),))[0],
        speed=_speed(told.get("speed", 1.0)),
    )


def _speed(told: Any) -> float:
    value = float(told)
    return value if math.isfinite(value) and value > 0 else 1.0


def _driver(told: Mapping[str, Any]) -> Driver:
    cuda = _text(told["cuda"])
    return Driver(_text(told["version"]), _text(told.get("runtime", cuda and f"{NVIDIA.runtime} {cuda}")))


def _run(run: Mapping[str, Any]) -> Run:
    names: Sequence[str] = run["metrics"]
    return Run(
        key=_text(run["key"]), id=_text(run["id"]), name=_text(run["name"]), pid=_whole(run["pid"]),
        user=_text(run["user"]), rank=_whole(run["rank"]), local_rank=_whole(run["local_rank"]),
        world_size=_whole(run["world_size"]),
        framework=_text(run["framework"]), epochs=_whole(run["epochs"]), first_epoch=_whole(run["first_epoch"]),
        base=_whole(run["base"]), facts=read_facts(run),
        gpus=tuple(_text(uuid) for uuid in run["gpus"]),
        started=NAN if run["started"] is None else believable((float(run["started"]),))[0],
        metrics={_text(name): NAN for name in names[:RUN_METRICS]},
    )  # fmt: skip


def _text(value: Any, limit: int = 256) -> str:
    if not isinstance(value, str):
        raise TypeError("not a text")
    return clean(value, limit)


def _whole(value: Any) -> int:
    number = int(value)
    if not -(1 << 63) <= number < 1 << 63:
        raise ValueError("beyond 64 bits")
    return number
