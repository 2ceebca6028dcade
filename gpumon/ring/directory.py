"""The names to which frames refer by a small number, as readers get them: devices by row, strings, runs.

Ids are never used again within a file, so the newest directory explains every frame. JSON of a stranger is checked
field by field. `directory_writer` keeps and stores it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import reduce
from operator import or_
from typing import Any, NamedTuple
from zlib import crc32

from gpumon import __version__
from gpumon.common.errors import RingError
from gpumon.common.numbers import NAN, is_known
from gpumon.common.text import clean
from gpumon.model.device import Device
from gpumon.model.frame import Run, Sample
from gpumon.model.metrics import Availability
from gpumon.model.origin import Capability, Driver, Origin, SourceInfo
from gpumon.model.run import RunFacts, read_facts
from gpumon.ring.layout import BLOB, RUN_METRICS, believable

_PARTS = 16
_CAPABILITIES = frozenset(Capability.__members__)


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
    """Version of gpumon that writes."""


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
            _text(device["source"]),
            _text(device["parent"]),
            _whole(device["instance"]),
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
        ledger=_text(found["ledger"], 1024),
        history=_text(found["history"], 1024),
        gpumon=_text(found["gpumon"], 64),
    )


def _missing(told: Any, devices: Mapping[str, Any]) -> dict[str, Availability]:
    """Metrics that a device lacks: told, or the row of the device that lacks the same."""
    found = devices[str(told)]["missing"] if isinstance(told, int) else told
    return {_text(metric): Availability(why) for metric, why in found.items()}


def _origin(told: Mapping[str, Any]) -> Origin:
    source, label, problem = (_text(told[name], 1024) for name in ("source", "label", "problem"))
    named = [Capability[name] for text in told["capabilities"] if (name := _text(text).upper()) in _CAPABILITIES]
    given = list(told["parts"])[:_PARTS]
    parts = tuple(SourceInfo(_origin({**part, "parts": ()}), _driver(part["driver"])) for part in given)
    return Origin(
        source,
        label,
        problem,
        ended=told["ended"] is True,
        capabilities=reduce(or_, named, Capability(0)),
        parts=parts,
        notice=_text(told["notice"], 1024),
        unanswered=believable((float(told["unanswered"]),))[0],
        speed=_speed(told["speed"]),
    )


def _speed(told: Any) -> float:
    value = float(told)
    return value if math.isfinite(value) and value > 0 else 1.0


def _driver(told: Mapping[str, Any]) -> Driver:
    return Driver(_text(told["version"]), _text(told["runtime"]))


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


# Beyond so much, what no frame of now refers to is forgotten.
_STRING_BYTES = 64 * 1024
_RUN_BYTES = 64 * 1024
_KEEP_RUNS = 64
# Beyond so much nothing is taken in: users choose their names, and `sizes.DIR_CAPACITY` is to hold them all.
_MOST_STRING_BYTES = 120 * 1024
_MOST_RUN_BYTES = 88 * 1024
_TEXT = 96
_GPUS = 16
_ID_ROOM = 16
"""Bytes of an id and what stands around it."""

_STATIC = (
    "key", "id", "name", "pid", "user", "rank", "local_rank", "world_size", "framework", "epochs",
    "first_epoch", "base", "gpus", "started",
)  # fmt: skip
"""Fields of a `Run` that are the same in many frames."""

_UNTOLD = {name: Device._field_defaults[name] for name in ("address", "minor", "job")}
"""Facts of a device that readers do not need, and which cost room for nothing where they are not known."""


class RowsExhausted(RingError):
    """More devices than rows: a new generation is needed."""


class Directory:
    """The names of one ring file."""

    def __init__(self, rows: int) -> None:
        self.devices: list[Device | None] = [None] * rows
        self.origin = Origin("")
        self.driver = Driver()
        self.hostname = ""
        self.ledger = self.history = ""
        self.dirty = True
        self._rows: dict[str, int] = {}
        self._last: list[Device] = []
        """Devices of the last tick, with `_last_rows`."""
        self._last_rows: Sequence[int] = ()
        self._strings: dict[str, int] = {}
        self._string_bytes = 0
        self._runs: dict[str, tuple[int, tuple[Any, ...]]] = {}
        self._run_bytes = 0
        self._next_string = 1
        self._next_run = 1

    def row(self, device: Device) -> int:
        """The row of a device for the life of this file. Raises RowsExhausted."""
        row = self._rows.get(device.uuid)
        if row is None:
            row = len(self._rows)
            if row >= len(self.devices):
                raise RowsExhausted(f"more than {len(self.devices)} devices")
            self._rows[device.uuid] = row
        if self.devices[row] is not device:
            if self.devices[row] != device:
                self.dirty = True
            self.devices[row] = device
        return row

    def rows(self, samples: Sequence[Sample]) -> Sequence[int]:
        """The rows of the devices of a tick, which mostly are those of the tick before. Raises RowsExhausted."""
        devices = [sample.device for sample in samples]
        if devices != self._last:  # lists of the same objects are equal without a look at them
            self._last_rows = [self.row(device) for device in devices]
            self._last = devices
        return self._last_rows

    def has_rows_of(self, known: Known) -> bool:
        """Whether every device has the row that it has there."""
        return all(row in known.devices and known.devices[row].uuid == uuid for uuid, row in self._rows.items())

    def row_of(self, uuid: str) -> int:
        """The row of a known device; -1 for an unknown one."""
        return self._rows.get(uuid, -1)

    def string(self, text: str) -> int:
        """The id of a text; 0 is the empty one, and one without room."""
        if not text:
            return 0
        text = text[:_TEXT]
        found = self._strings.get(text)
        if found is None:
            size = _string_size(text)
            if self._string_bytes + size > _MOST_STRING_BYTES:
                return 0
            found = self._strings[text] = self._next_string
            self._next_string += 1
            self._string_bytes += size
            self.dirty = True
        return found

    def run(self, run: Run) -> int:
        """The id of a run, whose lasting facts are stored when they are new; 0 where there is no room for them."""
        facts = _facts(run)
        known = self._runs.get(run.key)
        if known is not None and known[1] == facts:
            return known[0]
        size = self._run_bytes + _run_size(facts) - (_run_size(known[1]) if known else 0)
        if size > _MOST_RUN_BYTES:
            return known[0] if known else 0
        self._run_bytes = size
        number = known[0] if known else self._next_run
        self._next_run += not known
        self._runs[run.key] = (number, facts)
        self.dirty = True
        return number

    def run_id(self, key: str) -> int:
        """The id of a known run; 0 for an unknown one or none."""
        return self._runs[key][0] if key in self._runs else 0

    def tell(self, origin: Origin, driver: Driver, hostname: str) -> None:
        """Store where the numbers come from."""
        if (origin, driver, hostname) != (self.origin, self.driver, self.hostname):
            self.origin, self.driver, self.hostname = origin, driver, hostname
            self.dirty = True

    def tell_kept(self, ledger: str, history: str) -> None:
        """Store why no run is kept, and why no history."""
        if (ledger, history) != (self.ledger, self.history):
            self.ledger, self.history, self.dirty = ledger, history, True

    @property
    def is_crowded(self) -> bool:
        """Whether there is more of it than is worth keeping."""
        is_long = self._string_bytes > _STRING_BYTES or self._run_bytes > _RUN_BYTES
        return is_long or len(self._runs) > _KEEP_RUNS

    def forget(self, strings: Iterable[str], runs: Iterable[str]) -> None:
        """Drop what neither of these names, when there is too much of it."""
        before = len(self._strings), len(self._runs)
        if self._string_bytes > _STRING_BYTES:
            used = {text[:_TEXT] for text in strings}
            self._strings = {text: number for text, number in self._strings.items() if text in used}
            self._string_bytes = sum(map(_string_size, self._strings))
        if self._run_bytes > _RUN_BYTES or len(self._runs) > _KEEP_RUNS:
            used = set(runs)
            self._runs = {key: known for key, known in self._runs.items() if key in used}
            self._run_bytes = sum(_run_size(facts) for _, facts in self._runs.values())
        self.dirty = self.dirty or before != (len(self._strings), len(self._runs))

    def pack(self, version: int, capacity: int) -> bytes:
        """The stored form. Raises RingError when it does not fit."""
        body = json.dumps(
            {
                "devices": _written_devices(self.devices),
                "strings": {str(number): text for text, number in self._strings.items()},
                "runs": {str(number): _told(facts) for number, facts in self._runs.values()},
                "origin": _written(self.origin),
                "driver": self.driver._asdict(),
                "hostname": self.hostname,
                "ledger": self.ledger,
                "history": self.history,
                "gpumon": __version__,
                "next": [self._next_string, self._next_run],
            },
            separators=(",", ":"),
            ensure_ascii=False,
        ).encode("utf-8", "replace")
        if len(body) > capacity - BLOB.size:
            raise RingError("too many names for the ring's directory")
        return BLOB.pack(version, len(body), crc32(body), 0) + body

    @classmethod
    def resume(cls, rows: int, known: Known, kept: Collection[int]) -> Directory:
        """Continue the directory of a predecessor, with its devices in the rows `kept`."""
        directory = cls(rows)
        # Of the frames that it continues, and so from the first: a daemon may be killed before it has one of its own.
        directory.origin, directory.driver, directory.hostname = known.origin, known.driver, known.hostname
        for row, device in enumerate(device for row, device in sorted(known.devices.items()) if row in kept):
            directory.devices[row] = device
            directory._rows[device.uuid] = row
        directory._strings = {text: number for number, text in known.strings.items()}
        directory._string_bytes = sum(map(_string_size, directory._strings))
        directory._runs = {run.key: (number, _facts(run)) for number, run in known.runs.items()}
        directory._run_bytes = sum(_run_size(facts) for _, facts in directory._runs.values())
        directory._next_string, directory._next_run = known.next_ids
        return directory


def _facts(run: Run) -> tuple[Any, ...]:
    """Facts that many frames share, within bounds; NaN as None, so that facts compare."""
    bounded: list[Any] = []
    for field in _STATIC:
        value = getattr(run, field)
        if isinstance(value, str):
            value = value[:_TEXT]
        elif isinstance(value, float):
            value = None if not is_known(value) else value
        elif isinstance(value, tuple):
            value = value[:_GPUS]
        bounded.append(value)
    return (*bounded, *run.facts, tuple(name[:_TEXT] for name in tuple(run.metrics)[:RUN_METRICS]))


def _told(facts: tuple[Any, ...]) -> dict[str, Any]:
    named = zip((*_STATIC, *RunFacts._fields, "metrics"), facts, strict=True)
    return {name: fact for name, fact in named if fact or name not in RunFacts._fields}  # others cost room for nothing


def _run_size(facts: tuple[Any, ...]) -> int:
    """Bytes that a run takes, with its id."""
    return _size(_told(facts)) + _ID_ROOM


def _string_size(text: str) -> int:
    return _size(text) + _ID_ROOM


def _size(value: object) -> int:
    return len(json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "replace"))


def _written_devices(devices: Iterable[Device | None]) -> dict[str, Any]:
    """The stored form of devices by row. What one lacks is written once: dozens of MIG instances lack the same."""
    rows: dict[frozenset[tuple[str, int]], int] = {}
    written = {}
    for row, device in enumerate(devices):
        if device is not None:
            first = rows.setdefault(frozenset(device.missing.items()), row)
            missing = first if first != row else {name: int(why) for name, why in device.missing.items()}
            told = {name: fact for name, fact in device._asdict().items() if fact != _UNTOLD.get(name)}
            written[str(row)] = {**told, "missing": missing}
    return written


def _written(origin: Origin) -> dict[str, Any]:
    """The stored form of an origin."""
    capabilities = [capability.name.lower() for capability in origin.capabilities if capability.name]
    parts = [{**_written(part.origin), "driver": part.driver._asdict()} for part in origin.parts]
    return {**origin._asdict(), "capabilities": capabilities, "parts": parts}
