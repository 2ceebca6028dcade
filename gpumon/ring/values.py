"""Slots of values: what stays of a frame for an hour, in a tenth of the room of a full one.

    `SLOT` and rows[R], as in a full frame,
    f4: narrow GPU metrics[M][R], narrow host metrics[H]
    f8: wide GPU metrics[M][R], wide host metrics[H]

Wide are those that the schema names so: counters, whose differences count, and bit masks. A frame that is read from
such a slot (`Frame.is_full` is false) has no processes, and only the runs that began or ended with it.
"""

import struct
from collections.abc import Sequence
from functools import lru_cache
from operator import itemgetter
from typing import NamedTuple

from gpumon.model.frame import Boundary, Frame, Run, Sample
from gpumon.model.process import Process
from gpumon.ring.believable import believable, is_doubtful, is_doubtful_single
from gpumon.ring.directory import Known
from gpumon.ring.layout import SLOT, Layout, slot_head
from gpumon.ring.rows import read_host, read_samples


class ValueForm(NamedTuple):
    """Where the values of a layout are in their slots."""

    gpu: tuple[str, ...]
    """Metrics of each row in the order of the slot: the narrow, then the wide ones."""
    host: tuple[str, ...]
    single: struct.Struct
    """All f4."""
    double: struct.Struct
    """All f8, behind them."""
    all: struct.Struct
    narrow: int
    """Narrow metrics of a row."""
    narrow_host: int
    order: tuple[int, ...]
    """Of each value its place among those of a full frame, the host's behind those of the GPUs."""


@lru_cache(maxsize=8)
def value_form(layout: Layout) -> ValueForm:
    """The form of a layout's slots of values."""
    rows, wide = layout.rows, set(layout.wide)
    gpu = sorted(range(len(layout.gpu)), key=lambda place: layout.gpu[place] in wide)
    host = sorted(range(len(layout.host)), key=lambda place: layout.host[place] in wide)
    narrow = sum(name not in wide for name in layout.gpu)
    narrow_host = sum(name not in wide for name in layout.host)
    first, order = len(gpu) * rows, []
    for metrics, others in ((gpu[:narrow], host[:narrow_host]), (gpu[narrow:], host[narrow_host:])):
        order += [place * rows + row for place in metrics for row in range(rows)]
        order += [first + place for place in others]
    singles = narrow * rows + narrow_host
    doubles = first + len(host) - singles
    return ValueForm(
        gpu=tuple(layout.gpu[place] for place in gpu),
        host=tuple(layout.host[place] for place in host),
        single=struct.Struct(f"<{singles}f"),
        double=struct.Struct(f"<{doubles}d"),
        all=struct.Struct(f"<{singles}f{doubles}d"),
        narrow=narrow,
        narrow_host=narrow_host,
        order=tuple(order),
    )


class ValueEncoder:
    """Packs the values of ticks into one private buffer that is used again and again."""

    def __init__(self, layout: Layout) -> None:
        self._form = value_form(layout)
        self._at = layout.metrics_at
        self._pick = itemgetter(*self._form.order)
        self.buffer = bytearray(layout.value_size)
        self.end = self._at + self._form.all.size
        """Bytes used in all."""

    def encode(self, states: bytes | bytearray, grid: Sequence[float], host: Sequence[float]) -> None:
        """Fill the buffer behind the slot's header: rows, metrics of all rows and of the host."""
        form = self._form
        self.buffer[SLOT.size : self._at] = states
        values = self._pick([*grid, *host])
        try:
            form.all.pack_into(self.buffer, self._at, *values)
        except OverflowError:  # no f4 holds it, and no metric comes near it
            form.all.pack_into(self.buffer, self._at, *believable(values))


def value_column(layout: Layout, metric: str) -> tuple[int, struct.Struct]:
    """Where in a slot of values a GPU metric stands, and what it is. Raises ValueError for an unknown one."""
    form = value_form(layout)
    place, rows = form.gpu.index(metric), layout.rows
    if place < form.narrow:
        return layout.metrics_at + 4 * rows * place, struct.Struct(f"<{rows}f")
    return layout.metrics_at + form.single.size + 8 * rows * (place - form.narrow), struct.Struct(f"<{rows}d")


class ValueParts:
    """The parts of one whole slot of values; `raw` has passed its CRC, but may be a stranger's all the same."""

    __slots__ = ("_boundaries", "_known", "_layout", "_raw", "_runs")

    def __init__(
        self, raw: bytes, layout: Layout, known: Known, runs: tuple[Run, ...], boundaries: tuple[Boundary, ...]
    ) -> None:
        self._raw = raw
        self._layout = layout
        self._known = known
        self._runs = runs
        self._boundaries = boundaries

    def samples(self) -> tuple[Sample, ...]:
        form, layout = value_form(self._layout), self._layout
        single, double = self._values(form)
        grid = single[: form.narrow * layout.rows] + double[: (len(form.gpu) - form.narrow) * layout.rows]
        rows = list(layout.row.iter_unpack(self._raw[SLOT.size : layout.metrics_at]))
        return read_samples(rows, grid, form.gpu, self._known)

    def host(self) -> tuple[float, ...]:
        form, rows = value_form(self._layout), self._layout.rows
        single, double = self._values(form)
        values = single[form.narrow * rows :] + double[(len(form.gpu) - form.narrow) * rows :]
        return read_host(values, form.host)

    def processes(self) -> tuple[Process, ...]:
        return ()

    def runs(self) -> tuple[Run, ...]:
        return self._runs

    def boundaries(self) -> tuple[Boundary, ...]:
        return self._boundaries

    def _values(self, form: ValueForm) -> tuple[tuple[float, ...], tuple[float, ...]]:
        raw, at = self._raw, self._layout.metrics_at
        between = at + form.single.size
        single, double = form.single.unpack_from(raw, at), form.double.unpack_from(raw, between)
        return (
            believable(single) if is_doubtful_single(raw[at:between]) else single,
            believable(double) if is_doubtful(raw[between : between + form.double.size]) else double,
        )


def decode_values(
    raw: bytes, layout: Layout, known: Known, runs: tuple[Run, ...], boundaries: tuple[Boundary, ...]
) -> Frame:
    """The frame in a slot of values that `layout.frame_number` has accepted."""
    head = slot_head(raw)
    return Frame(
        number=head.number,
        monotonic_ns=head.monotonic_ns,
        time_ns=head.time_ns,
        interval=head.interval_us / 1e6,
        sample_duration=head.sample_duration_us / 1e6,
        skipped_ticks=head.skipped_ticks,
        dropped=0,
        parts=ValueParts(raw, layout, known, runs, boundaries),
        is_full=False,
    )
