"""Sentences about a run on its page: what failed, what was found of all of it and of its epochs, and what to do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gpumon.common.numbers import NAN
from gpumon.diagnosis.finding import ranges
from gpumon.model import units
from gpumon.model.metrics import Unit
from gpumon_web import levels
from gpumon_web.page import Cells

NOTED = 20
"""Failed allocations told of, the newest."""
NUMBERED = 80
"""Letters of the numbers of epochs in a sentence."""
TAGS: Mapping[str, str] = {
    "failed": "failed", "died": "died", "input_bound": "waits for data", "throttled": "throttled",
    "mostly_idle": "mostly idle",
}  # fmt: skip
"""A word for each kind of finding about a whole run."""
STATES = ("throttled", "mostly_idle")
"""Kinds whose words say how a run is, and not what it does."""
PREDICATES: Mapping[str, tuple[str, str]] = {
    "not_finished": ("did not finish", "did not finish"), "input_bound": ("waited for data", "waited for data"),
    "throttled": ("was throttled", "were throttled"), "mostly_idle": ("was mostly idle", "were mostly idle"),
    "diverged": ("diverged", "diverged"),
}  # fmt: skip
"""Predicates of one epoch and of several with a verdict."""
_LEVELS = {severity.name.lower(): level for severity, level in levels.OF_SEVERITY.items() if severity is not None}
_OOM = "out_of_memory"


def noted(document: Cells, *, running: bool) -> list[Cells]:
    """Sentences about failed allocations, the whole run and its epochs; each remedy stands at the first of them."""
    found, ranks = document.get("findings") or (), document["ranks"]
    remedy = next((one["action"] for one in found if one["kind"] == _OOM), "")
    marks = [mark for mark in document["marks"] if mark["mark"] == _OOM]
    failed = [_failed(mark, ranks, remedy) for mark in marks[-NOTED:]][::-1]
    if earlier := len(marks) - len(failed):
        text = f"{units.count(earlier)} earlier {'time' if earlier == 1 else 'times'}."
        failed.append({"level": "bad", "about": "out of memory", "text": text, "action": remedy})
    # What is said of single allocations and epochs is not said of the run once more.
    wrong = [_of_run(one, running=running) for one in found if one["kind"] not in (_OOM, "diverged")]
    # Nobody has judged an epoch that goes on.
    done = (document.get("summary") or {}).get("done") if running else None
    is_least = not document.get("is_judged", True)
    odd = [_of_epochs(one, document["epochs_total"], done, is_least=is_least) for one in document.get("odd") or ()]
    said, told = set(), []
    for one in (*failed, *wrong, *odd):
        told.append({**one, "action": "" if one["action"] in said else one["action"]})
        said.add(one["action"])
    return told


def _failed(mark: Cells, ranks: Sequence[Cells], remedy: str) -> Cells:
    """A sentence about a failed allocation."""
    who = f"rank {mark['rank']}, " if mark["rank"] is not None and len(ranks) > 1 else ""
    asked, free = (units.number(_number(mark[name]), Unit.BYTES) for name in ("asked", "free"))
    epoch = f"epoch {units.count(mark['epoch'])}, " if mark["epoch"] >= 0 else ""
    where = f"{who}{epoch}step {units.count(mark['step'])}"
    return {
        "level": "bad", "about": "out of memory", "text": f"{where}: requested {asked}, {free} free",
        "time": mark["time"], "action": remedy,
    }  # fmt: skip


def _of_run(finding: Cells, *, running: bool) -> Cells:
    """A sentence about a whole run: `The run was throttled 20 % of the time.`."""
    kind = finding["kind"]
    verb = ("is " if running else "was ") if kind in STATES else ""
    return {"level": _LEVELS[finding["severity"]], "about": TAGS.get(kind, "run"),
            "text": f"The run {verb}{finding['summary']}.", "action": finding["action"] or ""}  # fmt: skip


def _of_epochs(odd: Cells, total: int, done: int | None, *, is_least: bool) -> Cells:
    """A sentence about epochs of one verdict: `Epochs 3, 7–9 were throttled: 4 of 90 epochs.`; one is not counted.

    `done`: how many ended of a run that goes on; `is_least`: there may be more of them.
    """
    numbers, count = ranges(odd["epochs"]), len(odd["epochs"])
    cut = numbers if len(numbers) <= NUMBERED else f"{numbers[:NUMBERED].rpartition(', ')[0]} …"
    one, several = PREDICATES[odd["kind"]]
    least = "at least " if is_least else ""
    of = f"{least}{units.count(count)} of {units.count(total)} epochs"
    if done is not None and odd["kind"] != "not_finished":
        of = f"{least}{units.count(count)} of {units.count(done)} that ended"
    said = f"Epochs {cut} {several}: {of}." if count > 1 else f"Epoch {cut} {one}."
    return {"level": odd["level"], "about": odd["text"], "text": said, "action": odd["action"]}


def _number(value: Any) -> float:
    return NAN if value is None else float(value)
