"""The GPUs of a log, from tick to tick."""

from __future__ import annotations

from collections.abc import Sequence

from gpumon.common.clock import SECOND
from gpumon.common.numbers import NAN, UNKNOWN_MODEL, is_known
from gpumon.common.text import clean
from gpumon.model.device import MADE_UP, Device
from gpumon.model.frame import Sample
from gpumon.model.metrics import GPU_INDEX, Availability
from gpumon.model.origin import Driver
from gpumon.sources.replay.form import NOT_RECORDED, Row

_MOST = 256


class LogDevice:
    """A GPU of a log: who it is, its latest values, and what its rates have added up to."""

    def __init__(self, uuid: str, index: int, model: str) -> None:
        self.device = Device(uuid, index, model or UNKNOWN_MODEL, dict(NOT_RECORDED))
        self._counted: dict[str, float] = {}
        self._time = -1
        self._latest: Sample | None = None

    def take(self, row: Row, time_ns: int) -> Sample:
        """The sample of `row` at `time_ns` (ns)."""
        device = self.device
        if row.model and row.model != device.name:
            device = device._replace(name=row.model)
        if device.missing != row.missing:
            device = device._replace(missing=row.missing)
        self.device = device
        values = list(row.values)
        for metric in row.rates:
            # The log tells the rate over the time up to a row; before the first nobody knows.
            rate = values[GPU_INDEX[metric]]
            since = (time_ns - self._time) / SECOND if self._time >= 0 else 0.0
            if is_known(rate):
                self._counted[metric] = self._counted.get(metric, 0.0) + rate * since
            values[GPU_INDEX[metric]] = self._counted[metric] if is_known(rate) else NAN
        self._time = time_ns
        state = Availability.LOST if row.lost else Availability.OK
        self._latest = Sample(device, state, values)
        return self._latest

    def keep(self, time_ns: int) -> Sample | None:
        """The last sample again, as stale, at a tick for which the log has no row of it."""
        if self._latest is None or self._latest.state is Availability.LOST:
            return self._latest
        return self._latest._replace(state=Availability.STALE, age=(time_ns - self._time) / SECOND)


class LogDevices:
    """All GPUs of a log: known by UUID, else bus, else index, else by their place in a tick."""

    def __init__(self) -> None:
        self._known: dict[str, LogDevice] = {}
        self._devices: list[LogDevice] = []
        self.driver = Driver()

    def samples(self, rows: Sequence[Row], time_ns: int) -> list[Sample]:
        """One sample for each GPU seen so far, by index, at the tick at `time_ns` (ns)."""
        taken: dict[int, Sample] = {}
        for place, row in enumerate(rows):
            if row.broken:
                continue
            found = self._find(row, place)
            if found is not None:
                taken[id(found)] = found.take(row, time_ns)
            if row.driver and row.driver != self.driver.version:
                self.driver = Driver(row.driver)
        samples = (taken.get(id(device)) or device.keep(time_ns) for device in self._devices)
        return [sample for sample in samples if sample is not None]

    def _find(self, row: Row, place: int) -> LogDevice | None:
        names = row.names or (f"place {place}",)
        # Only the surest name counts: another card may have come to the same index.
        found = self._known.get(names[0])
        if found is None:
            if len(self._devices) >= _MOST:
                return None
            found = self._new(row, row.number if row.number >= 0 else place if not row.names else len(self._devices))
        for name in names:
            if len(self._known) < 4 * _MOST or name in self._known:
                self._known[name] = found
        return found

    def _new(self, row: Row, index: int) -> LogDevice:
        taken = {device.device.uuid for device in self._devices}
        uuid = clean(row.uuid) or f"{MADE_UP}{index}"
        while uuid in taken:
            index += 1
            uuid = f"{MADE_UP}{index}"
        device = LogDevice(uuid, index, row.model)
        self._devices.append(device)
        self._devices.sort(key=lambda device: device.device.index)
        return device
