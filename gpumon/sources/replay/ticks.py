"""Groups the rows of a log into ticks, and stores the last values of each GPU in the log."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice, pairwise
from math import isqrt
from statistics import median

from gpumon.common.clock import SECOND
from gpumon.common.numbers import NAN, UNKNOWN_MODEL, is_known
from gpumon.common.text import clean
from gpumon.model.device import REPLAY_PREFIX, Device
from gpumon.model.frame import Sample
from gpumon.model.metrics import GPU_INDEX, Availability
from gpumon.model.origin import Driver
from gpumon.sources.replay.format import NOT_RECORDED, Row, is_duplicate

_MAX_DEVICES = 256


class LogDevice:
    """A GPU of a log: its identity, its last sample, and the sums of its rates."""

    def __init__(self, uuid: str, index: int, model: str) -> None:
        self.device = Device(uuid, index, model or UNKNOWN_MODEL, dict(NOT_RECORDED))
        self._totals: dict[str, float] = {}
        self._time = -1
        self._last: Sample | None = None

    def update(self, row: Row, time_ns: int) -> Sample:
        """Return the sample of a row at `time_ns` (ns)."""
        device = self.device
        if row.model and row.model != device.name:
            device = device._replace(name=row.model)
        if device.missing != row.missing:
            device = device._replace(missing=row.missing)
        self.device = device
        values = list(row.values)
        for metric in row.rates:
            # A rate covers the time since the previous row, so the first row has no duration.
            rate = values[GPU_INDEX[metric]]
            elapsed = (time_ns - self._time) / SECOND if self._time >= 0 else 0.0
            if is_known(rate):
                self._totals[metric] = self._totals.get(metric, 0.0) + rate * elapsed
            values[GPU_INDEX[metric]] = self._totals[metric] if is_known(rate) else NAN
        self._time = time_ns
        state = Availability.LOST if row.is_lost else Availability.OK
        self._last = Sample(device, state, values)
        return self._last

    def stale_sample(self, time_ns: int) -> Sample | None:
        """Return the last sample, marked as stale, for a tick without a row of this GPU; None if there is no sample."""
        if self._last is None or self._last.state is Availability.LOST:
            return self._last
        return self._last._replace(state=Availability.STALE, age=(time_ns - self._time) / SECOND)


class LogDevices:
    """All GPUs of a log.

    GPUs are identified by the first of these that exists: UUID, PCI address, index, position in the tick.
    """

    def __init__(self) -> None:
        self._by_name: dict[str, LogDevice] = {}
        self._devices: list[LogDevice] = []
        self.driver = Driver()

    def samples(self, rows: Sequence[Row], time_ns: int) -> list[Sample]:
        """Return a sample for each GPU found so far, sorted by index, for the tick at `time_ns` (ns)."""
        updated: dict[int, Sample] = {}
        for index, row in enumerate(rows):
            if row.is_broken:
                continue
            device = self._find(row, index)
            if device is not None:
                updated[id(device)] = device.update(row, time_ns)
            if row.driver and row.driver != self.driver.version:
                self.driver = Driver(row.driver)
        samples = (updated.get(id(device)) or device.stale_sample(time_ns) for device in self._devices)
        return [sample for sample in samples if sample is not None]

    def _find(self, row: Row, index: int) -> LogDevice | None:
        names = row.names or (f"place {index}",)
        # Only the most reliable identifier is used, because an index may later belong to another card.
        device = self._by_name.get(names[0])
        if device is None:
            if len(self._devices) >= _MAX_DEVICES:
                return None
            device = self._add(
                row, row.gpu_index if row.gpu_index >= 0 else index if not row.names else len(self._devices)
            )
        for name in names:
            if len(self._by_name) < 4 * _MAX_DEVICES or name in self._by_name:
                self._by_name[name] = device
        return device

    def _add(self, row: Row, index: int) -> LogDevice:
        uuids = {device.device.uuid for device in self._devices}
        uuid = clean(row.uuid) or f"{REPLAY_PREFIX}{index}"
        while uuid in uuids:
            index += 1
            uuid = f"{REPLAY_PREFIX}{index}"
        device = LogDevice(uuid, index, row.model)
        self._devices.append(device)
        self._devices.sort(key=lambda device: device.device.index)
        return device


LOOKAHEAD = 4096
"""Maximum number of rows that are stored and analyzed before the first row is shown."""
_MS = SECOND // 1000
_STALL = 50 * _MS
"""Rows of one tick are usually less than this many ns apart, because the driver answers for a GPU in 1 to 10 ms."""
_MAX_ROWS = 1024
"""Maximum rows in a tick."""
_COUNTS = (2, 3, 4, 5, 6, 7, 8, 10, 12, 16, 20, 24, 32, 48, 64)
"""Numbers of GPUs to try. A gap length that is found with one of these numbers usually also separates the ticks in logs
with other numbers of GPUs.
"""
_LEAST_TICKS = 8
"""A pattern must be confirmed by at least this many ticks."""


@dataclass(frozen=True, slots=True)
class LogLayout:
    """Grouping of the rows of a log into ticks."""

    has_ids: bool
    """Whether rows identify their GPU."""
    gpus: int
    """Number of rows in a tick. Used if rows do not identify their GPU."""
    gap_ns: int
    """Rows that are more than this many ns apart belong to different ticks. If 0, every row is a tick."""
    interval_ns: int = SECOND
    """Median ns between two ticks."""
    is_certain: bool = True
    """False if the rows may come from several GPUs that cannot be distinguished. All rows are then shown as one GPU."""


def detect_layout(rows: Sequence[Row], has_ids: bool, is_complete: bool) -> LogLayout:
    """Detect the layout of a log from its first rows. `is_complete`: whether `rows` are the whole log.

    If rows do not identify their GPU, the number of GPUs is the most common number of rows between two large gaps.
    nvidia-smi writes the rows of a tick within milliseconds and then sleeps.
    """
    if not has_ids:
        layout = _layout_by_gaps(rows, is_complete)
    else:
        times: dict[str, int] = {}
        spacing = []
        for row in rows:
            name = row.names[0] if row.names else ""
            if row.time_ns is not None:
                if name in times:
                    spacing.append(row.time_ns - times[name])
                times[name] = row.time_ns
        interval = int(median(spacing)) if spacing else SECOND
        layout = LogLayout(True, 0, interval // 2, interval)
    starts = [tick[0].time_ns for tick in group_ticks(rows, layout)]
    steps = [b - a for a, b in pairwise(starts) if a is not None and b is not None]
    return replace(layout, interval_ns=max(_MS, int(median(steps))) if steps else SECOND)


def group_ticks(rows: Iterable[Row], layout: LogLayout) -> Iterator[list[Row]]:
    """Yield the rows of each tick in order. Every row is in exactly one tick."""
    return _group_by_name(rows, layout) if layout.has_ids else _group_by_gap(rows, layout)


def _group_by_name(rows: Iterable[Row], layout: LogLayout) -> Iterator[list[Row]]:
    """Yield ticks.

    A new tick starts when a GPU occurs again, or when a GPU with a lower position follows after a pause.
    """
    order: dict[str, int] = {}
    tick: list[Row] = []
    highest = 0
    names_in_tick: set[str] = set()
    for row in rows:
        names = row.names or ("",)
        is_full = len(tick) >= _MAX_ROWS or not names_in_tick.isdisjoint(names)
        name = names[0]
        index = order.setdefault(name, len(order)) if len(order) < _MAX_ROWS else order.get(name, 0)
        if tick and (is_full or (index < highest and _is_apart(tick[-1], row, layout.gap_ns))):
            yield tick
            tick, names_in_tick = [], set()
        highest = index if not tick else max(highest, index)
        tick.append(row)
        names_in_tick.update(names)
    if tick:
        yield tick


def _group_by_gap(rows: Iterable[Row], layout: LogLayout) -> Iterator[list[Row]]:
    """Yield ticks of `layout.gpus` rows. The rows after a gap show whether a tick was shorter or the driver stalled."""
    source = iter(rows)
    ahead: deque[Row] = deque()

    def fill(count: int) -> int:
        ahead.extend(islice(source, count - len(ahead)) if count > len(ahead) else ())
        return len(ahead)

    while fill(1):
        tick = [ahead.popleft()]
        while len(tick) < layout.gpus and fill(1) and not ahead[0].is_first:
            if _is_apart(tick[-1], ahead[0], layout.gap_ns):
                # The rows up to the next gap either complete this tick or form a whole tick.
                fill(layout.gpus)
                following = next(
                    (i for i, (a, b) in enumerate(pairwise(ahead), 1) if b.is_first or _is_apart(a, b, layout.gap_ns)),
                    len(ahead),
                )
                if len(tick) + following > layout.gpus:
                    break
            tick.append(ahead.popleft())
        while len(tick) >= layout.gpus and fill(1) and any(is_duplicate(ahead[0], row, follows=False) for row in tick):
            ahead.popleft()
        yield tick


def _is_apart(a: Row, b: Row, gap_ns: int) -> bool:
    return a.time_ns is None or b.time_ns is None or b.time_ns - a.time_ns > gap_ns


def _layout_without_ids(gpus: int = 1, gap_ns: int = 0, *, is_certain: bool = True) -> LogLayout:
    return LogLayout(False, gpus, gap_ns, is_certain=is_certain)


def _layout_by_gaps(rows: Sequence[Row], is_complete: bool) -> LogLayout:
    """Detect the number of GPUs from the gaps between rows, which are short within a tick and long between ticks."""
    if not rows or rows[0].time_ns is None:
        lengths = _tick_lengths(rows, 0, only_first=True)
        if len(lengths) > 1:
            return _layout_without_ids(Counter(lengths).most_common(1)[0][0])
        return _layout_without_ids(is_certain=len(rows) < 2)
    gaps = sorted(
        b.time_ns - a.time_ns
        for a, b in pairwise(rows)
        if a.time_ns is not None and b.time_ns is not None and not b.is_first
    )
    restarts = sum(row.is_first for row in rows[1:])
    layout = _layout_by_steps(rows, gaps, restarts) or _layout_by_upper_half(rows, gaps)
    if layout is not None:
        return layout
    is_close = not gaps or gaps[-1] <= 20 * _MS
    if is_close and (restarts or (is_complete and len(rows) <= 64)):
        return _layout_without_ids(_most_common(_tick_lengths(rows, 20 * _MS))[0], 20 * _MS)
    return _layout_without_ids(is_certain=_is_regular(gaps))


def _layout_by_steps(rows: Sequence[Row], gaps: Sequence[int], restarts: int) -> LogLayout | None:
    """Find the largest step in the sorted gap lengths that divides the rows into ticks of equal length."""
    # Only few of the shorter gaps are nearly as long as the gaps between ticks.
    fewest = max(1, len(rows) // 130)
    steps = sorted(
        ((gaps[i + 1] + _MS) / (gaps[i] + _MS), i)
        for i in range(len(gaps) - 1) if len(gaps) - 1 - i + restarts >= fewest
    )  # fmt: skip
    for ratio, i in reversed(steps[-16:]):
        if ratio < 1.8:
            break
        gap = isqrt((gaps[i] + _MS) * (gaps[i + 1] + _MS))
        length, share, count = _most_common(_tick_lengths(rows, gap))
        is_close = gaps[i // 2] < _STALL
        if 1 < length <= _MAX_ROWS and (share >= 0.5 if is_close else share >= 0.8 and count >= _LEAST_TICKS):
            return _layout_without_ids(length, gap)
    return None


def _layout_by_upper_half(rows: Sequence[Row], gaps: Sequence[int]) -> LogLayout | None:
    """Use half of the typical longest gap as the limit.

    Used if the driver sometimes stalls, so that there is no clear step.

    In a log of N GPUs, every Nth gap is between ticks. All possible N are tried, and the clearest result is used.
    """
    best: tuple[float, LogLayout] | None = None
    for gpus in _COUNTS:
        upper = gaps[-(len(gaps) // gpus) :] if len(gaps) >= _LEAST_TICKS * gpus else ()
        gap = upper[len(upper) // 2] // 2 if upper else 0
        if not gap:
            break
        length, share, count = _most_common(_tick_lengths(rows, gap))
        if length > 1 and count >= _LEAST_TICKS and share >= 0.8 and (best is None or share > best[0]):
            best = share, _layout_without_ids(length, gap)
    return best[1] if best else None


def _is_regular(gaps: Sequence[int]) -> bool:
    """Return whether nearly all rows are evenly spaced, as in a log of a single GPU."""
    if not gaps:
        return True
    typical = gaps[len(gaps) // 2]
    return sum(typical <= 2 * gap + _MS and gap <= 2 * typical + _MS for gap in gaps) >= 0.9 * len(gaps)


def _tick_lengths(rows: Sequence[Row], gap_ns: int, only_first: bool = False) -> list[int]:
    """Return the number of rows in each tick.

    A tick begins where nvidia-smi started, and after a gap longer than `gap_ns` unless `only_first`. The last tick may
    be incomplete, and is left out if there are at least three.
    """
    lengths = [1] if rows else []
    for a, b in pairwise(rows):
        if b.is_first or (not only_first and _is_apart(a, b, gap_ns)):
            lengths.append(1)
        else:
            lengths[-1] += 1
    # The last tick may be incomplete.
    return lengths[:-1] if len(lengths) > 2 else lengths


def _most_common(lengths: Sequence[int]) -> tuple[int, float, int]:
    """Return the most common tick length, the share of rows in ticks of this length, and the number of such ticks.

    If several lengths are equally common, the longest is used.
    """
    counts = Counter(lengths)
    length = max(counts, key=lambda length: (counts[length], length))
    return length, length * counts[length] / sum(lengths), counts[length]
