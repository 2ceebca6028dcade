"""The directory of a ring: devices by row, and the strings and runs to which frames refer by number.

No number is used twice in a file, so the newest directory is valid for every frame. The JSON is untrusted, and each
field is checked. A `StoredDirectory` was read from a file. A `Directory` is being built, and can be encoded.
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

_MAX_PARTS = 16
_CAPABILITIES = frozenset(Capability.__members__)


class StoredDirectory(NamedTuple):
    """A directory that was read from a file and checked."""

    version: int
    devices: Mapping[int, Device]
    strings: Mapping[int, str]
    runs: Mapping[int, Run]
    """Runs by number. They contain only the facts that rarely change. The keys of `metrics` are in the order of the
    slots."""
    origin: Origin
    driver: Driver
    hostname: str
    next_ids: tuple[int, int]
    ledger: str = ""
    """Reason why the daemon is not recording runs at present; empty if it is, or if there is no run to record."""
    history: str = ""
    """Reason why the daemon is not recording history at present; empty if it is."""
    gpumon: str = ""
    """Version of gpumon that wrote the ring."""


EMPTY = StoredDirectory(
    version=0, devices={}, strings={}, runs={}, origin=Origin(""), driver=Driver(), hostname="", next_ids=(1, 1)
)


def unpack(raw: bytes) -> StoredDirectory | None:
    """Decode a stored directory. Returns None if its bytes are incomplete. Raises RingError if it is invalid."""
    if len(raw) < BLOB.size:
        return None
    version, length, crc, _ = BLOB.unpack_from(raw)
    body = raw[BLOB.size : BLOB.size + length]
    if version == 0 or len(body) != length or crc32(body) != crc:
        return None
    try:
        return _parse(version, json.loads(body))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, OverflowError) as error:
        raise RingError("the directory of the ring file is invalid: restart the daemon") from error


def _parse(version: int, document: Any) -> StoredDirectory:
    devices = {
        int(row): Device(
            _text(device["uuid"]),
            _int(device["index"]),
            _text(device["name"]),
            _missing(device["missing"], document["devices"]),
            _text(device["source"]),
            _text(device["parent"]),
            _int(device["instance"]),
            _text(device.get("address", "")),
            _int(device.get("minor", -1)),
            _text(device.get("job", "")),
        )
        for row, device in document["devices"].items()
    }
    strings = {int(number): _text(text) for number, text in document["strings"].items()}
    runs = {int(number): _run(run) for number, run in document["runs"].items()}
    origin = _origin(document["origin"])
    driver = _driver(document["driver"])
    next_string, next_run = document["next"]
    return StoredDirectory(
        version=version,
        devices=devices,
        strings=strings,
        runs=runs,
        origin=origin,
        driver=driver,
        hostname=_text(document["hostname"]),
        next_ids=(int(next_string), int(next_run)),
        ledger=_text(document["ledger"], 1024),
        history=_text(document["history"], 1024),
        gpumon=_text(document["gpumon"], 64),
    )


def _missing(value: Any, devices: Mapping[str, Any]) -> dict[str, Availability]:
    """Return the metrics that a device lacks, with the reasons.

    `value`: either these metrics, or the row of another device that lacks the same metrics. `devices`: all devices by
    row.
    """
    missing = devices[str(value)]["missing"] if isinstance(value, int) else value
    return {_text(metric): Availability(why) for metric, why in missing.items()}


def _origin(document: Mapping[str, Any]) -> Origin:
    source, label, problem = (_text(document[name], 1024) for name in ("source", "label", "problem"))
    capabilities = [
        Capability[name] for text in document["capabilities"] if (name := _text(text).upper()) in _CAPABILITIES
    ]
    parts = tuple(
        SourceInfo(_origin({**part, "parts": ()}), _driver(part["driver"]))
        for part in list(document["parts"])[:_MAX_PARTS]
    )
    return Origin(
        source,
        label,
        problem,
        ended=document["ended"] is True,
        capabilities=reduce(or_, capabilities, Capability(0)),
        parts=parts,
        notice=_text(document["notice"], 1024),
        unanswered=believable((float(document["unanswered"]),))[0],
        speed=_speed(document["speed"]),
        lacks_card=document["lacks_card"] is True,
    )


def _speed(value: Any) -> float:
    value = float(value)
    return value if math.isfinite(value) and value > 0 else 1.0


def _driver(document: Mapping[str, Any]) -> Driver:
    return Driver(_text(document["version"]), _text(document["runtime"]))


def _run(run: Mapping[str, Any]) -> Run:
    names: Sequence[str] = run["metrics"]
    return Run(
        key=_text(run["key"]), id=_text(run["id"]), name=_text(run["name"]), pid=_int(run["pid"]),
        user=_text(run["user"]), rank=_int(run["rank"]), local_rank=_int(run["local_rank"]),
        world_size=_int(run["world_size"]),
        framework=_text(run["framework"]), epochs=_int(run["epochs"]), first_epoch=_int(run["first_epoch"]),
        base=_int(run["base"]), facts=read_facts(run),
        gpus=tuple(_text(uuid) for uuid in run["gpus"]),
        started=NAN if run["started"] is None else believable((float(run["started"]),))[0],
        metrics={_text(name): NAN for name in names[:RUN_METRICS]},
    )  # fmt: skip


def _text(value: Any, limit: int = 256) -> str:
    if not isinstance(value, str):
        raise TypeError("not a text")
    return clean(value, limit)


def _int(value: Any) -> int:
    number = int(value)
    if not -(1 << 63) <= number < 1 << 63:
        raise ValueError("beyond 64 bits")
    return number


# Above these limits, texts and runs that the current frame does not use are evicted.
_STRING_BYTES = 64 * 1024
_RUN_BYTES = 64 * 1024
_KEEP_RUNS = 64
# Above these limits, nothing is added. Users choose the names, and everything must fit into `takeover.DIR_CAPACITY`.
_MAX_STRING_BYTES = 120 * 1024
_MAX_RUN_BYTES = 88 * 1024
_LONGEST_TEXT = 96
_MAX_GPUS = 16
_ID_ROOM = 16
"""Bytes that an id takes in JSON, including the punctuation."""

_STATIC = (
    "key", "id", "name", "pid", "user", "rank", "local_rank", "world_size", "framework", "epochs",
    "first_epoch", "base", "gpus", "started",
)  # fmt: skip
"""Fields of a `Run` that rarely change."""

_OPTIONAL = {name: Device._field_defaults[name] for name in ("address", "minor", "job")}
"""Fields of a device that readers do not require, with their defaults. A field with its default is not stored."""


class RowsExhausted(RingError):
    """Raised if there are more devices than rows. A new ring file is then needed."""


class Directory:
    """Assigns rows to devices and numbers to strings and runs of one ring file, and encodes the result."""

    def __init__(self, rows: int) -> None:
        self.devices: list[Device | None] = [None] * rows
        self.origin = Origin("")
        self.driver = Driver()
        self.hostname = ""
        self.ledger = self.history = ""
        self.dirty = True
        self._rows: dict[str, int] = {}
        self._last: list[Device] = []
        """Devices of the last tick. Their rows are in `_last_rows`."""
        self._last_rows: Sequence[int] = ()
        self._strings: dict[str, int] = {}
        self._string_bytes = 0
        self._runs: dict[str, tuple[int, tuple[Any, ...]]] = {}
        self._run_bytes = 0
        self._next_string = 1
        self._next_run = 1

    def row(self, device: Device) -> int:
        """Return the row of a device, which never changes within a file. Raises RowsExhausted."""
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
        """Return the rows of the devices of a tick. Raises RowsExhausted."""
        devices = [sample.device for sample in samples]
        if devices != self._last:  # fast, because identical objects are not compared field by field
            self._last_rows = [self.row(device) for device in devices]
            self._last = devices
        return self._last_rows

    def has_rows_of(self, stored: StoredDirectory) -> bool:
        """Return whether all devices have the same rows as in `stored`."""
        return all(row in stored.devices and stored.devices[row].uuid == uuid for uuid, row in self._rows.items())

    def row_of(self, uuid: str) -> int:
        """Return the row of the device with this UUID; -1 if there is none."""
        return self._rows.get(uuid, -1)

    def string(self, text: str) -> int:
        """Add a string if it is new, and return its number. Returns 0 if it is empty or the directory is full."""
        if not text:
            return 0
        text = text[:_LONGEST_TEXT]
        string_id = self._strings.get(text)
        if string_id is None:
            size = _string_size(text)
            if self._string_bytes + size > _MAX_STRING_BYTES:
                return 0
            string_id = self._strings[text] = self._next_string
            self._next_string += 1
            self._string_bytes += size
            self.dirty = True
        return string_id

    def run(self, run: Run) -> int:
        """Store the facts of a run that rarely change, and return the run's number; 0 if there is no space for it."""
        facts = _facts(run)
        known = self._runs.get(run.key)
        if known is not None and known[1] == facts:
            return known[0]
        size = self._run_bytes + _run_size(facts) - (_run_size(known[1]) if known else 0)
        if size > _MAX_RUN_BYTES:
            return known[0] if known else 0
        self._run_bytes = size
        number = known[0] if known else self._next_run
        self._next_run += not known
        self._runs[run.key] = (number, facts)
        self.dirty = True
        return number

    def run_id(self, key: str) -> int:
        """Return the number of the run with this key; 0 if there is none."""
        return self._runs[key][0] if key in self._runs else 0

    def set_origin(self, origin: Origin, driver: Driver, hostname: str) -> None:
        """Store the source, the driver and the machine of the values."""
        if (origin, driver, hostname) != (self.origin, self.driver, self.hostname):
            self.origin, self.driver, self.hostname = origin, driver, hostname
            self.dirty = True

    def set_storage_problems(self, ledger: str, history: str) -> None:
        """Store why runs are not recorded (`ledger`) and why history is not.

        A string is empty if there is no problem.
        """
        if (ledger, history) != (self.ledger, self.history):
            self.ledger, self.history, self.dirty = ledger, history, True

    @property
    def is_crowded(self) -> bool:
        """Whether there are so many entries that unused ones should be removed."""
        is_long = self._string_bytes > _STRING_BYTES or self._run_bytes > _RUN_BYTES
        return is_long or len(self._runs) > _KEEP_RUNS

    def evict(self, strings: Iterable[str], runs: Iterable[str]) -> None:
        """If there are too many entries, remove all but these `strings` and the runs with the keys `runs`."""
        before = len(self._strings), len(self._runs)
        if self._string_bytes > _STRING_BYTES:
            used = {text[:_LONGEST_TEXT] for text in strings}
            self._strings = {text: number for text, number in self._strings.items() if text in used}
            self._string_bytes = sum(map(_string_size, self._strings))
        if self._run_bytes > _RUN_BYTES or len(self._runs) > _KEEP_RUNS:
            used = set(runs)
            self._runs = {key: known for key, known in self._runs.items() if key in used}
            self._run_bytes = sum(_run_size(facts) for _, facts in self._runs.values())
        self.dirty = self.dirty or before != (len(self._strings), len(self._runs))

    def pack(self, version: int, capacity: int) -> bytes:
        """Return the encoded directory. Raises RingError if it does not fit into `capacity` bytes."""
        body = json.dumps(
            {
                "devices": _devices_to_json(self.devices),
                "strings": {str(number): text for text, number in self._strings.items()},
                "runs": {str(number): _facts_to_json(facts) for number, facts in self._runs.values()},
                "origin": _origin_to_json(self.origin),
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
    def resume(cls, rows: int, stored: StoredDirectory, kept: Collection[int]) -> Directory:
        """Return a directory that continues the one of the previous ring file.

        Of the devices in the previous directory, only those in the rows `kept` get a row.
        """
        directory = cls(rows)
        # The origin of the copied frames is kept, because the daemon may be killed before it writes its first frame.
        directory.origin, directory.driver, directory.hostname = stored.origin, stored.driver, stored.hostname
        for row, device in enumerate(device for row, device in sorted(stored.devices.items()) if row in kept):
            directory.devices[row] = device
            directory._rows[device.uuid] = row
        directory._strings = {text: number for number, text in stored.strings.items()}
        directory._string_bytes = sum(map(_string_size, directory._strings))
        directory._runs = {run.key: (number, _facts(run)) for number, run in stored.runs.items()}
        directory._run_bytes = sum(_run_size(facts) for _, facts in directory._runs.values())
        directory._next_string, directory._next_run = stored.next_ids
        return directory


def _facts(run: Run) -> tuple[Any, ...]:
    """Return the facts of a run that rarely change, truncated.

    NaN is replaced with None, so that facts can be compared.
    """
    bounded: list[Any] = []
    for field in _STATIC:
        value = getattr(run, field)
        if isinstance(value, str):
            value = value[:_LONGEST_TEXT]
        elif isinstance(value, float):
            value = None if not is_known(value) else value
        elif isinstance(value, tuple):
            value = value[:_MAX_GPUS]
        bounded.append(value)
    return (*bounded, *run.facts, tuple(name[:_LONGEST_TEXT] for name in tuple(run.metrics)[:RUN_METRICS]))


def _facts_to_json(facts: tuple[Any, ...]) -> dict[str, Any]:
    named = zip((*_STATIC, *RunFacts._fields, "metrics"), facts, strict=True)
    return {name: fact for name, fact in named if fact or name not in RunFacts._fields}  # defaults are not stored


def _run_size(facts: tuple[Any, ...]) -> int:
    """Return the number of bytes that a run and its id take in JSON."""
    return _size(_facts_to_json(facts)) + _ID_ROOM


def _string_size(text: str) -> int:
    return _size(text) + _ID_ROOM


def _size(value: object) -> int:
    return len(json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "replace"))


def _devices_to_json(devices: Iterable[Device | None]) -> dict[str, Any]:
    """Return devices by row for JSON.

    If several devices have an equal `missing`, it is stored only once. Dozens of MIG instances may lack the same
    metrics.
    """
    rows: dict[frozenset[tuple[str, int]], int] = {}
    document = {}
    for row, device in enumerate(devices):
        if device is not None:
            first = rows.setdefault(frozenset(device.missing.items()), row)
            missing = first if first != row else {name: int(why) for name, why in device.missing.items()}
            facts = {name: fact for name, fact in device._asdict().items() if fact != _OPTIONAL.get(name)}
            document[str(row)] = {**facts, "missing": missing}
    return document


def _origin_to_json(origin: Origin) -> dict[str, Any]:
    capabilities = [capability.name.lower() for capability in origin.capabilities if capability.name]
    parts = [{**_origin_to_json(part.origin), "driver": part.driver._asdict()} for part in origin.parts]
    return {**origin._asdict(), "capabilities": capabilities, "parts": parts}
