"""Rows into ticks: which rows of a log were taken together."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice, pairwise
from math import isqrt
from statistics import median
from typing import NamedTuple

from gpumon.common.clock import SECOND
from gpumon.common.numbers import NAN, UNKNOWN_MODEL, is_known
from gpumon.common.text import clean
from gpumon.model.device import MADE_UP, Device
from gpumon.model.frame import Sample
from gpumon.model.metrics import GPU_INDEX, Availability
from gpumon.model.origin import Driver
from gpumon.sources.replay.format import NOT_RECORDED, Row, is_repeated

_MAX_NAME_LENGTH = 256


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
            if len(self._devices) >= _MAX_NAME_LENGTH:
                return None
            found = self._new(row, row.number if row.number >= 0 else place if not row.names else len(self._devices))
        for name in names:
            if len(self._known) < 4 * _MAX_NAME_LENGTH or name in self._known:
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


LOOKAHEAD = 4096
"""Rows that are looked at before the first is shown; no more are ever held."""
_MS = SECOND // 1000
_STALL = 50 * _MS
"""Rows of one tick are hardly ever so far apart: the driver answers for a GPU in 1 to 10 ms."""
_MAX_PATTERN = 1024
_COUNTS = (2, 3, 4, 5, 6, 7, 8, 10, 12, 16, 20, 24, 32, 48, 64)
"""Numbers of GPUs that are tried; the gap that is found by one of them parts the ticks of others too."""
_LEAST = 8
"""Ticks from which on a pattern is one."""


class LogLayout(NamedTuple):
    """The arrangement of the rows of a log in ticks."""

    identified: bool
    """Whether rows name their GPU."""
    gpus: int
    """Rows in a tick, where rows do not name their GPU."""
    gap_ns: int
    """ns; rows further apart than this seem to be of two ticks."""
    interval_ns: int
    """ns from tick to tick: the median."""
    sure: bool = True
    """False where the rows may be of several GPUs and nothing tells: they are shown as one."""


def layout(rows: Sequence[Row], identified: bool, whole: bool) -> LogLayout:
    """Return the layout of `rows`, the beginning of a log; `whole` if they are all of it.

    Without a name in the rows, the number of GPUs is the commonest number of rows between two
    large gaps: nvidia-smi writes the rows of a tick within milliseconds and then sleeps.
    """
    if not identified:
        by_runs = _by_runs(rows, whole)
        found = LogLayout(False, by_runs.gpus, by_runs.gap_ns, SECOND, by_runs.sure)
    else:
        seen: dict[str, int] = {}
        spacing = []
        for row in rows:
            name = row.names[0] if row.names else ""
            if row.time_ns is not None:
                if name in seen:
                    spacing.append(row.time_ns - seen[name])
                seen[name] = row.time_ns
        interval = int(median(spacing)) if spacing else SECOND
        found = LogLayout(True, 0, interval // 2, interval)
    starts = [tick[0].time_ns for tick in ticks(rows, found)]
    steps = [b - a for a, b in pairwise(starts) if a is not None and b is not None]
    return found._replace(interval_ns=max(_MS, int(median(steps))) if steps else SECOND)


def ticks(rows: Iterable[Row], layout: LogLayout) -> Iterator[list[Row]]:
    """The rows of each tick, in their order; every row is in exactly one."""
    return _by_name(rows, layout) if layout.identified else _by_gap(rows, layout)


def _by_name(rows: Iterable[Row], layout: LogLayout) -> Iterator[list[Row]]:
    """A GPU that comes again begins a new tick, and so does a step back to an earlier GPU after a pause."""
    order: dict[str, int] = {}
    tick: list[Row] = []
    highest = 0
    seen: set[str] = set()
    for row in rows:
        names = row.names or ("",)
        again = len(tick) >= _MAX_PATTERN or not seen.isdisjoint(names)
        name = names[0]
        place = order.setdefault(name, len(order)) if len(order) < _MAX_PATTERN else order.get(name, 0)
        if tick and (again or (place < highest and _apart(tick[-1], row, layout.gap_ns))):
            yield tick
            tick, seen = [], set()
        highest = place if not tick else max(highest, place)
        tick.append(row)
        seen.update(names)
    if tick:
        yield tick


def _by_gap(rows: Iterable[Row], layout: LogLayout) -> Iterator[list[Row]]:
    """So many rows are a tick; a shorter one is told from a stall by what comes after the gap."""
    source = iter(rows)
    ahead: deque[Row] = deque()

    def fill(count: int) -> int:
        ahead.extend(islice(source, count - len(ahead)) if count > len(ahead) else ())
        return len(ahead)

    while fill(1):
        tick = [ahead.popleft()]
        while len(tick) < layout.gpus and fill(1) and not ahead[0].first:
            if _apart(tick[-1], ahead[0], layout.gap_ns):
                # The rows up to the next gap either complete this tick, or are a whole one of their own.
                fill(layout.gpus)
                following = next(
                    (i for i, (a, b) in enumerate(pairwise(ahead), 1) if b.first or _apart(a, b, layout.gap_ns)),
                    len(ahead),
                )
                if len(tick) + following > layout.gpus:
                    break
            tick.append(ahead.popleft())
        while len(tick) >= layout.gpus and fill(1) and any(is_repeated(ahead[0], row, follows=False) for row in tick):
            ahead.popleft()
        yield tick


def _apart(a: Row, b: Row, gap_ns: int) -> bool:
    return a.time_ns is None or b.time_ns is None or b.time_ns - a.time_ns > gap_ns


class _Found(NamedTuple):
    """Arrangement in ticks of rows that do not name a GPU."""

    gpus: int = 1
    gap_ns: int = 0
    """ns; 0 where every row is a tick."""
    sure: bool = True


def _by_runs(rows: Sequence[Row], whole: bool) -> _Found:
    """Tell the GPUs apart by the gaps between rows: short within a tick, long between two."""
    if not rows or rows[0].time_ns is None:
        lengths = _lengths(rows, 0, only_first=True)
        if len(lengths) > 1:
            return _Found(Counter(lengths).most_common(1)[0][0])
        return _Found(sure=len(rows) < 2)
    gaps = sorted(
        b.time_ns - a.time_ns
        for a, b in pairwise(rows)
        if a.time_ns is not None and b.time_ns is not None and not b.first
    )
    restarts = sum(row.first for row in rows[1:])
    found = _by_steps(rows, gaps, restarts) or _by_upper_half(rows, gaps)
    if found is not None:
        return found
    together = not gaps or gaps[-1] <= 20 * _MS
    if together and (restarts or (whole and len(rows) <= 64)):
        return _Found(_commonest(_lengths(rows, 20 * _MS))[0], 20 * _MS)
    return _Found(sure=_is_regular(gaps))


def _by_steps(rows: Sequence[Row], gaps: Sequence[int], restarts: int) -> _Found | None:
    """The widest step in the sorted gaps that makes ticks of one length."""
    # A gap that parts ticks has few of smaller size near it.
    fewest = max(1, len(rows) // 130)
    steps = sorted(
        ((gaps[i + 1] + _MS) / (gaps[i] + _MS), i)
        for i in range(len(gaps) - 1) if len(gaps) - 1 - i + restarts >= fewest
    )  # fmt: skip
    for ratio, i in reversed(steps[-16:]):
        if ratio < 1.8:
            break
        gap = isqrt((gaps[i] + _MS) * (gaps[i + 1] + _MS))
        usual, share, times = _commonest(_lengths(rows, gap))
        close = gaps[i // 2] < _STALL
        if 1 < usual <= _MAX_PATTERN and (share >= 0.5 if close else share >= 0.8 and times >= 8):
            return _Found(usual, gap)
    return None


def _by_upper_half(rows: Sequence[Row], gaps: Sequence[int]) -> _Found | None:
    """Half of what the longest gaps usually are, where a driver that stalls now and then leaves no clear step.

    Of a log of N GPUs, every Nth gap is one between ticks. N is not known: each is tried, and the surest counts.
    """
    best: tuple[float, _Found] | None = None
    for gpus in _COUNTS:
        upper = gaps[-(len(gaps) // gpus) :] if len(gaps) >= _LEAST * gpus else ()
        gap = upper[len(upper) // 2] // 2 if upper else 0
        if not gap:
            break
        usual, share, times = _commonest(_lengths(rows, gap))
        if usual > 1 and times >= _LEAST and share >= 0.8 and (best is None or share > best[0]):
            best = share, _Found(usual, gap)
    return best[1] if best else None


def _is_regular(gaps: Sequence[int]) -> bool:
    """Whether nearly all rows come evenly, as those of one GPU do."""
    if not gaps:
        return True
    usual = gaps[len(gaps) // 2]
    return sum(usual <= 2 * gap + _MS and gap <= 2 * usual + _MS for gap in gaps) >= 0.9 * len(gaps)


def _lengths(rows: Sequence[Row], gap_ns: int, only_first: bool = False) -> list[int]:
    """Rows from one large gap to the next."""
    lengths = [1] if rows else []
    for a, b in pairwise(rows):
        if b.first or (not only_first and _apart(a, b, gap_ns)):
            lengths.append(1)
        else:
            lengths[-1] += 1
    # The last may have been cut, by the end of the log or of what was looked at.
    return lengths[:-1] if len(lengths) > 2 else lengths


def _commonest(lengths: Sequence[int]) -> tuple[int, float, int]:
    """The commonest length (of equals the longest), the share of rows in such runs, and how many there are."""
    counts = Counter(lengths)
    usual = max(counts, key=lambda length: (counts[length], length))
    return usual, usual * counts[usual] / sum(lengths), counts[usual]
