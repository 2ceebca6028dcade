"""Tables, budgets, and the measured part of README.md."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

README = Path(__file__).with_name("README.md")
BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"
_HEADING = "### "
PEERS = ("nvitop", "gpustat", "nvidia-ml-py", "psutil", "textual", "dash", "uvicorn")


_TIMES = (" µs", " ms", " s")


class Budget(NamedTuple):
    """A promise, and what was measured. Lower is better for all of them."""

    what: str
    measured: float
    limit: float
    unit: str = ""
    """Such as ` ms`; `×` for a ratio."""
    of_a_core: bool = False
    """The figure is a time of a core in another unit, such as a share of it."""

    def scaled(self, scale: float) -> float:
        """The figure for the reference core; ratios, bytes and counts are the same on every core."""
        return self.measured * scale if self.of_a_core or self.unit in _TIMES else self.measured

    def is_kept(self, scale: float = 1.0) -> bool:
        return self.scaled(scale) <= self.limit

    def cells(self, scale: float = 1.0) -> tuple[str, ...]:
        verdict = "ok" if self.is_kept(scale) else "**over**"
        figures = number(self.measured) + self.unit, number(self.scaled(scale)) + self.unit
        return self.what, *figures, f"≤ {number(self.limit)}{self.unit}", verdict


@dataclass
class Result:
    """Results of one program."""

    title: str
    columns: Sequence[str]
    rows: list[Sequence[str]] = field(default_factory=list)
    budgets: list[Budget] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    scale: float = 1.0
    """Factor for times of the core on which this was measured; see `benchmarks.core`."""

    @property
    def over(self) -> list[str]:
        """The budgets that are missed."""
        return [budget.what for budget in self.budgets if not budget.is_kept(self.scale)]

    def text(self) -> str:
        """As Markdown that reads well in a terminal too."""
        parts = [_HEADING + self.title, table(self.columns, self.rows)]
        if self.budgets:
            heads = ("budget", "measured", "on the reference core", "limit", "")
            parts.append(table(heads, [budget.cells(self.scale) for budget in self.budgets]))
        return "\n\n".join(parts + self.notes)


def number(value: float) -> str:
    """Three digits, or whole from 100 on."""
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"


def times(value: float, ours: float) -> str:
    """Ratio of a peer's cost to ours."""
    return f"{number(value / ours)}×" if ours else "–"


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table with columns of one width."""
    lines = [list(columns), *map(list, rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(columns))]
    lines.insert(1, ["-" * width for width in widths])
    return "\n".join("| " + " | ".join(map(str.ljust, line, widths)) + " |" for line in lines)


def machine(date: str, *, quick: bool = False) -> str:
    """Where and with what this was measured."""
    peers = []
    for name in PEERS:
        try:
            peers.append(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            peers.append(f"no {name}")
    return (
        f"Measured {date}{', by `--quick`,' if quick else ''} "
        f"on {os.cpu_count()} cores of {_processor()}, Linux {platform.release()}, "
        f"{platform.python_implementation()} {platform.python_version()}; {', '.join(peers)}; "
        "stub driver with 8 GPUs and 40 sleeping processes."
    )


def write(results: Sequence[Result], where: str, readme: Path = README) -> None:
    """Put results into README.md, between its markers: each in place of the section of its title, or behind the last.

    Each section ends with `where`, the line of `machine`, so that one program can be measured anew by itself. Raises
    ValueError when the markers are not there.
    """
    text = readme.read_text()
    before, begin, rest = text.partition(BEGIN)
    old, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{readme.name} has no '{BEGIN}' and '{END}' to write between")
    sections = {one.partition("\n")[0]: one.strip() for one in old.split("\n" + _HEADING)[1:]}
    for result in results:
        sections[result.title] = f"{result.text().removeprefix(_HEADING)}\n\n{where}"
    measured = "\n\n".join(_HEADING + section for section in sections.values())
    readme.write_text(f"{before}{BEGIN}\n\n{measured}\n\n{END}{after}")


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()
