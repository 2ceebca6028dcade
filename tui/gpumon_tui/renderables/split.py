"""Memory breakdown of a GPU: one bar of all parts, and a legend below it."""

from __future__ import annotations

from collections.abc import Sequence

from rich.segment import Segment

from gpumon import units
from gpumon.analysis.memory import PARTS, MemoryBreakdown, breakdown_of, known_parts
from gpumon.frame import Run, Sample
from gpumon.missing import is_known
from gpumon_tui import theme
from gpumon_tui.renderables.text_width import Line, cut, length, rule, spread

TITLED_ROWS = 3


def strip(sample: Sample, run: Run | None, cells: int, rows: int) -> list[Line]:
    """Bar and legend; of three rows or more the first is a title."""
    divided = breakdown_of(sample)
    used, total = sample.value("gpu.memory_used"), sample.value("gpu.memory_total")
    index = f"GPU {sample.device.label}"
    lines: list[Line] = []
    if rows >= TITLED_ROWS:
        title: Line = [Segment("Memory breakdown", theme.TITLE), Segment(f"  {index}", theme.PLAIN)]
        lines.append(rule(title, _pressure(sample, run), cells, theme.RULE))
    head: Line = [Segment(f"  {index} memory " if rows < TITLED_ROWS else "  ", theme.DIM)]
    amount = units.bytes_binary(used) if sample.device.is_divided else units.of_total(used, total)
    tail: Line = [Segment(f" {amount:>14} ", theme.STRONG)]
    room = max(0, cells - length(head) - length(tail))
    lines.append(spread([*head, *stacked(divided, room)], tail, cells))
    if sample.device.is_divided:
        lines.append(cut([Segment("  divided by MIG: its instances have the memory", theme.DIM)], cells))
    else:
        lines.append(legend(divided, cells))
    return lines[:rows]


def stacked(divided: MemoryBreakdown | None, cells: int) -> Line:
    """All parts side by side; dots where the driver does not tell."""
    if divided is None or cells <= 0:
        return [Segment("┈" * max(0, cells), theme.TRACK)]
    line: Line = []
    for part, many in zip(PARTS, shares(divided, cells), strict=True):
        if many:
            letter, style = theme.PARTS[part.name]
            line.append(Segment(letter * many, style))
    return line


def shares(amounts: Sequence[float], cells: int) -> list[int]:
    """Whole cells that add up to `cells`, in proportion; what is there at all has one, as long as there is room."""
    known = [max(0.0, amount) if is_known(amount) else 0.0 for amount in amounts]
    total = sum(known)
    if not total > 0:
        return [0] * len(known)
    exact = [amount * cells / total for amount in known]
    found = [max(int(share), int(share > 0)) for share in exact]
    while (over := sum(found) - cells) != 0:
        # The part that has most more (or less) than its share gives (or gets) a cell.
        gaps = [(have - share) * (1 if over > 0 else -1) for have, share in zip(found, exact, strict=True)]
        places = [place for place, have in enumerate(found) if known[place] and (over < 0 or have > 1)]
        if not places:
            places = [place for place, have in enumerate(found) if have]
        best = max(places, key=lambda place: gaps[place])
        found[best] += -1 if over > 0 else 1
    return found


def legend(divided: MemoryBreakdown | None, cells: int) -> Line:
    """Letter, name and size of each part, shorter where there is less room."""
    if divided is None:
        return cut([Segment("  breakdown unknown", theme.DIM)], cells)
    all_known = known_parts(divided)
    line: Line = []
    for gap, full, most in (("    ", True, len(PARTS)), ("  ", False, len(PARTS)), ("  ", False, 5), (" ", False, 5)):
        known = all_known if len(all_known) <= most else [part for part in all_known if part[0].name != "driver"]
        line = [Segment("  " if full else " ", theme.DIM)]
        for part, value in known:
            letter, style = theme.PARTS[part.name]
            size = units.bytes_binary(value) if full else units.gibibytes(value)
            line += [
                Segment(letter, style), Segment(f" {part.title if full else part.name} ", theme.DIM),
                Segment(size, theme.PLAIN), Segment(gap, theme.DIM),
            ]  # fmt: skip
        line[-1] = Segment("" if full else " GiB", theme.DIM)
        if length(line) <= cells:
            return line
    return cut(line, cells)


def _pressure(sample: Sample, run: Run | None) -> Line:
    """Memory pressure of a run: fragments, retries and out-of-memory errors."""
    if run is None:
        return []
    fragments, held = sample.value("gpu.run_inactive_split"), sample.value("gpu.run_reserved")
    told: list[str] = []
    if held > 0 and is_known(fragments):
        told.append(f"fragments {units.bytes_binary(fragments)} ({units.percent(fragments / held)} of reserved)")
    for count, what in ((run.memory.retries, "retries"), (run.memory.ooms, "out of memory")):
        if count > 0:
            told.append(f"{what} {units.whole(count)}×")
    return [Segment("  ".join(told), theme.WARN if run.memory.retries > 0 else theme.DIM)] if told else []
