"""A GPU as a card or as one line."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite
from typing import NamedTuple

from rich.segment import Segment
from rich.style import Style

from gpumon import units
from gpumon.analysis.clock_events import what_holds_clocks
from gpumon.analysis.gpu_state import GpuState
from gpumon.frame import Process, Run, Sample
from gpumon.history.grid import Grid
from gpumon.history.recent import RecentHistory
from gpumon.metrics import BY_NAME, Availability
from gpumon.missing import NAN
from gpumon.vendors import short_name
from gpumon_tui import theme
from gpumon_tui.gpu_status import GpuLabel, gpu_status, holders
from gpumon_tui.levels import level
from gpumon_tui.memo import Memo
from gpumon_tui.renderables.bar import bar, shared_bar
from gpumon_tui.renderables.braille import area
from gpumon_tui.renderables.buckets import columns, read
from gpumon_tui.renderables.text_width import Line, cut, length, safe, spread

WIDE_CARD = 96
"""A card with so much room has its two bars side by side."""
DETAILED_LINE = 100
"""A line with so much room has a small history."""

FEWEST_WORD_CELLS = 17
"""Of the run or the state at the end of a line; with less room, power and temperature leave before these are cut."""


class GpuCard(NamedTuple):
    """Everything that is drawn of a GPU."""

    sample: Sample
    run: Run | None
    processes: Sequence[Process]
    state: GpuState
    age: float
    """Seconds since the frame, where no newer one comes; 0 while all is well."""
    history: RecentHistory
    now: float
    window: float
    interval: float
    selected: bool
    filling: bool
    """The history is still being taken in."""
    pictures: Memo[list[Line]]
    """Of the history of each GPU, each kept until now has come to its next column."""
    begin: float = NAN
    """The oldest time of the history (s since 1970), or NaN."""

    def text(self, metric: str) -> str:
        """A metric with its unit."""
        return units.metric(self.sample.value(metric), BY_NAME[metric])

    def style(self, metric: str) -> Style:
        """By the thresholds of the table."""
        return theme.LEVELS[level(BY_NAME[metric], self.sample.value(metric), self.limit(metric))]

    def bar_style(self, metric: str) -> Style:
        """The hue of the metric, until it crosses a threshold."""
        badness = level(BY_NAME[metric], self.sample.value(metric), self.limit(metric))
        return theme.LEVELS[badness] if badness else theme.ink(theme.hue(metric))

    def limit(self, metric: str) -> float:
        """The value of the metric's full scale, or NaN."""
        limit = BY_NAME[metric].limit
        return self.sample.value(limit) if limit else float("nan")

    def share(self, metric: str) -> float:
        """The value as a share of its limit."""
        limit = self.limit(metric)
        return self.sample.value(metric) / limit if limit > 0 else float("nan")

    def status(self) -> GpuLabel:
        """One word for it."""
        return gpu_status(self.sample, self.history, self.state, self.age)


def card(gpu: GpuCard, cells: int, height: int) -> list[Line]:
    """Name, bars, history and who has it, in `height` rows of `cells` cells."""
    edge = Segment("▌", theme.TITLE) if gpu.selected else Segment("▏", theme.RULE)
    inner = cells - 3
    history_rows = height - 4
    if inner >= WIDE_CARD:
        half = (inner - 3) // 2
        bars = [[*_utilization(gpu, half), Segment("   "), *_memory(gpu, inner - half - 3)]]
        history_rows += 1
    else:
        bars = [_utilization(gpu, inner), _memory(gpu, inner)]
    body = [_name(gpu, inner), *bars, *_history(gpu, inner - 5, history_rows, 5), _who(gpu, inner)]
    return [[edge, Segment(" "), *line] for line in body]


def line(gpu: GpuCard, cells: int) -> Line:
    """Everything of a GPU in one line; who has it gets what room is left."""
    inner = cells - 1
    mark = Segment("▌" if gpu.selected else " ", theme.TITLE)
    index = Segment(f"{gpu.sample.device.label:<3}", theme.STRONG if gpu.selected else theme.TITLE)
    bar_cells = max(0, min(30, (inner - 57) // 3))
    temperature, power = gpu.text("gpu.temperature"), gpu.text("gpu.power")
    head: Line = [mark, index]
    if cells >= DETAILED_LINE:
        head += [*_history(gpu, 16, 1, 0)[0], Segment(" ")]
        bar_cells = max(6, (inner - 87) // 3)
    head += [
        *bar(gpu.sample.value("gpu.utilization"), bar_cells, gpu.bar_style("gpu.utilization")),
        Segment(f"{units.percent(gpu.sample.value('gpu.utilization')):>5} ", theme.PLAIN),
        *bar(gpu.share("gpu.memory_used"), bar_cells, gpu.bar_style("gpu.memory_used")),
        Segment(f"{_used(gpu):>11}", gpu.style("gpu.memory_used")),
    ]
    room = cells - length(head) - 2
    if room - 7 >= FEWEST_WORD_CELLS:
        head.append(Segment(f"{temperature:>7}", gpu.style("gpu.temperature")))
    if room - 14 >= FEWEST_WORD_CELLS:
        head.append(Segment(f"{power:>7}", theme.PLAIN))
    head.append(Segment(f"{_of_limit(gpu):<6} ", theme.DIM) if cells >= DETAILED_LINE else Segment("  "))
    if length(head) > inner:
        return cut(head, cells)
    return [*head, *_brief(gpu, cells - length(head))]


def hidden(above: int, below: int, free: int) -> Line:
    """`+5 ▼ · 2 free`: GPUs that have no room on screen."""
    counts = "  ".join(f"+{many} {arrow}" for many, arrow in ((above, "▲"), (below, "▼")) if many)
    line: Line = [Segment(f"  {counts}", theme.TITLE)]
    if free:
        line += [Segment(" · ", theme.DIM), Segment(f"{free} free", theme.GOOD)]
    return [*line, Segment(" ")]


def _name(gpu: GpuCard, cells: int) -> Line:
    device = gpu.sample.device
    name = short_name(safe(device.name))
    left: Line = [Segment(f"GPU {device.label}", theme.TITLE), Segment(f"  {name}", theme.DIM)]
    right: Line = [
        Segment(f"  {gpu.text('gpu.temperature')}", gpu.style("gpu.temperature")),
        Segment(f"  {gpu.text('gpu.power'):>5}", theme.PLAIN),
        Segment(_of_limit(gpu), theme.DIM),
    ]
    if cells >= WIDE_CARD:
        held = what_holds_clocks(gpu.sample)
        clock = f"  SM {gpu.text('gpu.clock_sm')}"
        room = cells - length(left) - length(right) - len(clock) - 4
        right.insert(0, Segment(f"{clock} ({held})" if held and len(held) < room else clock, theme.DIM))
    return spread(left, right, cells)


def _utilization(gpu: GpuCard, cells: int) -> Line:
    value = gpu.sample.value("gpu.utilization")
    return [
        Segment("util ", theme.DIM),
        *bar(value, cells - 17, gpu.bar_style("gpu.utilization")),
        Segment(f"{units.percent(value):>12}", theme.STRONG),
    ]


def _memory(gpu: GpuCard, cells: int) -> Line:
    own, others = gpu.share("gpu.run_used"), theme.ink(theme.ROSE)
    return [
        Segment("mem  ", theme.DIM),
        *shared_bar(own, gpu.share("gpu.memory_used"), cells - 17, gpu.bar_style("gpu.memory_used"), others),
        Segment(f"{_used(gpu):>12}", gpu.style("gpu.memory_used")),
    ]


def _history(gpu: GpuCard, cells: int, rows: int, margin: int) -> list[Line]:
    if rows < 1 or cells < 1:
        return [[] for _ in range(rows)]
    grid = columns(gpu.window, 2 * cells, gpu.now)
    known = gpu.begin, gpu.filling and gpu.history.end
    shows = (rows, margin, grid, grid.at(gpu.now), *known, gpu.interval)
    return gpu.pictures.get(gpu.sample.device.uuid, shows, lambda: _dots(gpu, grid, rows, margin))


def _dots(gpu: GpuCard, grid: Grid, rows: int, margin: int) -> list[Line]:
    dots = read(gpu.history, gpu.sample.device.uuid, "gpu.utilization", grid, gpu.interval).mean
    label = units.ago(gpu.window).removeprefix("-")
    lines: list[Line] = []
    for row, picture in enumerate(area(dots, rows, 1.0)):
        text = (label if row == rows - 1 else "").ljust(margin)[:margin]
        ink = theme.ramp(theme.MINT, rows)[row] if rows > 1 else theme.ramp(theme.MINT, 3)[1]
        lines.append([Segment(text, theme.FAINT), Segment(picture, ink)] if margin else [Segment(picture, ink)])
    return lines


def _who(gpu: GpuCard, cells: int) -> Line:
    now = gpu.status()
    run, epoch, users = holders(gpu.sample, gpu.run, gpu.processes)
    left: Line = [Segment(run, theme.RUN if gpu.run else theme.PLAIN)] if run else []
    if epoch:
        left.append(Segment(f" {epoch}", theme.STRONG))
    if users:
        left.append(Segment(f" · {users}" if left else users, theme.DIM))
    return spread(left, [Segment(f"  {now.word}", now.style)], cells)


def _brief(gpu: GpuCard, cells: int) -> Line:
    """The end of a line: the run, and after it, if somebody should look, the word; the word alone where no run is."""
    now = gpu.status()
    run, epoch, users = holders(gpu.sample, gpu.run, gpu.processes)
    # A run says by itself that the GPU is allocated, and needs the room for its name and epoch.
    told = "idle" if gpu.run and gpu.state is GpuState.HELD else now.word
    word = [Segment(f" {told} ", now.style)]
    if not run:
        return cut(word, cells)
    parts: Line = [Segment(run, theme.RUN if gpu.run else theme.PLAIN)]
    if epoch:
        parts.append(Segment(f" {epoch}", theme.STRONG))
    if users:
        parts.append(Segment(f" · {users}", theme.DIM))
    return spread(parts, [Segment(" ")] if now.quiet else word, cells)


def _used(gpu: GpuCard) -> str:
    """At most ten cells, so that rows of cards of any size stand under each other: `72.0/79.6G`, `216/277G`."""
    used, total = (gpu.sample.value(name) for name in ("gpu.memory_used", "gpu.memory_total"))
    if gpu.sample.device.missing.get("gpu.memory_used") is Availability.SHARED_WITH_HOST:
        return "host's"
    if isfinite(total) and not gpu.sample.device.is_divided:  # the rest is free to nobody
        return f"{_gibibytes(used)}/{_gibibytes(total)}G"
    return f"{_gibibytes(used)}G" if isfinite(used) else _gibibytes(used)


def _gibibytes(value: float) -> str:
    return units.whole(value / 2**30) if value / 2**30 >= 99.95 else units.gibibytes(value)


def _of_limit(gpu: GpuCard) -> str:
    limit = gpu.limit("gpu.power")
    return f"/{units.number(limit, BY_NAME['gpu.power'].unit).removesuffix(' W')}" if limit > 0 else ""
