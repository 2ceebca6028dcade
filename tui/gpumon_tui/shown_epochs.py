"""Epoch marks for the charts of a GPU or the host: one run at a time, with its name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gpumon.analysis.run_epochs import EpochMarks, Epochs
from gpumon.storage.history.query import HOST
from gpumon_tui.render.text_width import safe

Groups = Mapping[str, Sequence[str]]
"""Keys of the ranks of each run, by run id."""


def told_epochs(epochs: Epochs, subject: str, selected: str, newest: str) -> tuple[EpochMarks, str]:
    """Return the epoch marks for a subject's charts, and the name of their run if several runs are possible.

    On the host, the marks belong to the run `selected` in the table (an id). On a GPU shared by several runs, they
    belong to the selected run if it uses the GPU, otherwise to the `newest` run there (a key). Runs that ended before
    it began are included.
    """
    groups: dict[str, list[str]] = {}
    for key in epochs.runs_on(subject):
        run = epochs.run(key)
        groups.setdefault(run.id if run else key, []).append(key)
    chosen = selected if selected in groups else ""
    if subject == HOST:
        groups = {chosen: groups[chosen]} if chosen else {}
    elif len(groups) > 1:
        run = epochs.run(newest) if newest else None
        return _one_at_a_time(epochs, groups, chosen or (run.id if run else list(groups)[-1]))
    keys = [key for group in groups.values() for key in group]
    return epochs.chart_marks(keys), _name_of(epochs, chosen, groups) if subject == HOST else ""


def _one_at_a_time(epochs: Epochs, groups: Groups, chosen: str) -> tuple[EpochMarks, str]:
    """Return the marks of the chosen run, and of other runs that ended before the next one began."""
    taken = [epochs.time_range(groups[chosen])]
    kept = list(groups[chosen])
    for name, keys in reversed([*groups.items()]):
        begin, end = epochs.time_range(keys)
        if name != chosen and all(end <= other[0] or begin >= other[1] for other in taken):
            taken.append((begin, end))
            kept += keys
    return epochs.chart_marks(kept), _name_of(epochs, chosen, groups) if len(taken) < len(groups) else ""


def _name_of(epochs: Epochs, chosen: str, groups: Groups) -> str:
    run = epochs.run(groups[chosen][0]) if chosen else None
    return safe(run.name) if run else ""
