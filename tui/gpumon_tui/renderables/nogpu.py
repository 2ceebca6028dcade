"""What stands in the place of the GPUs where none can be read: what was looked for, what to do, and past runs.

For many this is the first screen they see.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.segment import Segment
from rich.style import Style

from gpumon.frame import Origin
from gpumon_tui import theme
from gpumon_tui.renderables.cells import Line, cut, rule, safe

if TYPE_CHECKING:
    from gpumon.runs.rows import Listed

LOOKED_FOR = "looked for NVIDIA GPUs through the driver's library libnvidia-ml.so.1; looks again every few seconds"
TO_DO = (
    "with an NVIDIA GPU: install its driver; 'sudo modprobe nvidia' loads one that is installed",
    "in a container: pass the GPUs in, as with 'docker run --gpus all'",
)
MOST_PAST = 6
"""Past runs shown."""


def problem(origin: Origin, simulation: bool) -> list[Line]:
    """Why there is no GPU; `simulation`: whether a key shows one."""
    texts: list[tuple[str, Style]] = [("No GPU can be read here", theme.STRONG)]
    if origin.problem:
        texts.append((safe(origin.problem), theme.PLAIN))
    if origin.source in ("nvml", ""):
        texts += [(text, theme.DIM) for text in (LOOKED_FOR, *TO_DO)]
    lines: list[Line] = [[Segment("  ▌ ", theme.WARN), Segment(text, style)] for text, style in texts]
    if simulation:
        lines.append(
            [
                Segment("  ▌ ", theme.WARN), Segment("press ", theme.PLAIN), Segment("s", theme.TITLE),
                Segment(" for a simulation; below are the host and the trainings on it", theme.PLAIN),
            ]
        )  # fmt: skip
    return lines


def waiting(text: str) -> list[Line]:
    """Before the first frame."""
    return [[Segment("  ▌ ", theme.WARN), Segment(safe(text), theme.PLAIN)]]


def past(runs: Sequence[Listed], now: float, cells: int) -> list[Line]:
    """The newest runs of the ledger, under a title; nothing where there is none."""
    if not runs:
        return []
    from gpumon.runs.lists import lines

    head, *rows = lines(runs[:MOST_PAST], now, cells - 2)
    title: Line = [Segment("Past runs", theme.TITLE), Segment("  gpumon runs", theme.DIM)]
    count: Line = [Segment(str(len(runs)), theme.DIM)]
    texts = [Segment(f"  {head}", theme.DIM), *(Segment(f"  {row}", theme.PLAIN) for row in rows)]
    return [rule(title, count, cells, theme.RULE), *(cut([text], cells) for text in texts)]
