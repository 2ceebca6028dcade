"""The top of a run's page: particulars, progress, usage, findings, and the choice of GPUs for the chart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlencode

from gpumon.common.numbers import NAN
from gpumon.diagnosis.finding import ranges
from gpumon.diagnosis.past_findings import SLOW
from gpumon.model import units
from gpumon.model.columns import BY_KEY
from gpumon.model.metrics import Unit
from gpumon.reports.figures.run_gpus import EACH, MEAN
from gpumon.reports.run_tables import program_texts, written
from gpumon_web.components import levels
from gpumon_web.components.page import Cells
from gpumon_web.components.tokens import (
    Values,
    about_share,
    bar,
    energy,
    fact,
    lacks_samples,
    line,
    person,
    share,
    tag,
    text,
)


def about(particulars: Cells) -> list[Cells]:
    """Return the lines of the card: tags, program and parameters; empty if nothing was recorded."""
    tags = [tag(name) for name in particulars["tags"]]
    program = [text(words, "fact") for words in program_texts(particulars["program"])]
    # An empty text is also a value, and shown as "".
    config = [
        {"fact": name, "text": written(value) or '""', "time": None} for name, value in particulars["config"].items()
    ]
    omitted = particulars["omitted"]
    left_out = (
        f"{units.count(omitted)} parameters and notes were not recorded: too many, or too large in total"
        if omitted
        else ""
    )
    return [
        line(*pieces, css="facts")
        for pieces in (tags, program, config, [text(left_out, "fact")] if left_out else [])
        if pieces
    ]


def notes(particulars: Cells) -> list[Cells]:
    """Return the notes, oldest first, each with author and time if it was added later."""
    return [
        {
            "text": f"{note['text']} ({note['author']})" if note["author"] else note["text"],
            **({} if note["time"] is None else {"time": note["time"]}),
        }
        for note in particulars["notes"]
    ]


def course(document: Cells) -> Cells | None:
    """Return the chart; None if there is nothing to draw.

    If the run is known, `figure` is the address of the chart as a figure of Plotly; if its GPUs are known, too, `finer`
    is the address of a part of the chart at full resolution.
    """
    chart: Cells | None = document.get("chart")
    if chart is None or not document.get("id"):
        return chart
    device = document.get("device") or ""
    address = "api/run/zoom?" + urlencode({"id": document["id"], "gpu": device})
    return {**chart, "figure": f"{address}&as=figure", **({"finer": address} if device else {})}


def gpu_choices(devices: Sequence[Cells], shown: str | None) -> list[Cells]:
    """Return the buttons for the GPUs of a run: mean, each, and every single one; empty for a single GPU."""
    if len(devices) < 2:
        return []
    return [
        _button(MEAN, f"Mean of {len(devices)} GPUs", "The mean of all GPUs of this run", shown),
        _button(EACH, "Each", "A line for each GPU", shown),
        *(_button(device["uuid"], f"GPU {device['index']}", device["name"], shown) for device in devices),
    ]


def _button(value: str, words: str, title: str, shown: str | None) -> Cells:
    return {"arg": "gpu", "value": value, "text": words, "title": title, "is_pressed": value == shown}


def live_progress(run: Values, time: float) -> Cells:
    """Return the progress of a run at `time`; epoch and phase only if the ring has them."""
    started = NAN if run["started"] is None else float(run["started"])
    steps = run.get("step_text")
    return {
        "epoch_is": "Step" if steps else "Epoch",
        "epoch": run.get("epoch") or steps or None,
        "epoch_below": run.get("phase") or None,
        "bar": _bar(run),
        "left_is": "Time left",
        "left": units.MISSING if run.get("left") is None else run["left"],
        "left_below": f"{units.long_duration(time - started)} so far",
    }


def run_progress(document: Cells, run: Cells) -> Cells:
    """Return epoch or step and time left of a running run; epochs done and duration of a finished run."""
    summary, epochs, planned = document.get("summary") or {}, document["epochs"], run.get("epochs_planned")
    if not epochs and not planned and not run.get("epoch"):
        return step_progress(document, run)
    # The number of the last epoch is not the count of epochs if numbers start at 0.
    own, earlier = document["run"].get("epochs_done"), run.get("epochs_before", 0)
    count = None if own is None else own + earlier
    done = units.count(count) + (f" of {units.count(planned)}" if planned and planned >= (count or 0) else "")
    if run["state"] == "running":
        last = units.count(epochs[-1].epoch) if epochs else units.MISSING
        values = {**live_progress(run, document["now"]), "epoch": last, "epoch_below": f"{done} done" if epochs else ""}
        # The ring has these values; stored values would remain after the run.
        return {**values, "left": units.MISSING, "left_below": ""} if document.get("live") else values
    last_epoch = summary.get("last")
    details = [
        "" if own is None or not earlier else f"{units.count(own)} in this run",
        "" if last_epoch is None else f"last: epoch {units.count(last_epoch)}",
    ]
    return {
        "epoch_is": "Epochs done",
        "epoch": done,
        "epoch_below": "; ".join(filter(None, details)),
        # Only finished epochs count: the progress in the ring includes part of an unfinished epoch.
        "bar": _bar({**run, "progress": count / planned if planned and count is not None else None}),
        **_duration(document, run),
    }


def step_progress(document: Cells, run: Cells) -> Cells:
    """Return the progress of a run without epochs: its steps, if it counts any."""
    done = (document.get("total") or {}).get("steps")
    planned = max((rank["steps_planned"] or 0 for rank in document["ranks"]), default=0)
    steps = "" if done is None else f"{units.count(done)}{f' of {units.count(round(planned))}' if planned else ''}"
    if run["state"] == "running":
        values = {
            **live_progress(run, document["now"]),
            "epoch_is": "Step",
            "epoch": steps or units.MISSING,
            "epoch_below": "",
        }
        return {**values, "left": units.MISSING, "left_below": ""} if document.get("live") else values
    return {
        "epoch_is": "Steps done", "epoch": steps or units.MISSING, "epoch_below": "", "bar": [],
        **_duration(document, run),
    }  # fmt: skip


def pace(summary: Cells, whole: Cells | None) -> Cells:
    """Return the mean epoch time, or the steps per second of `whole`, the total of a run without epochs."""
    if whole is None:
        mean = units.MISSING if summary.get("mean") is None else units.fine_duration(summary["mean"])
        return {"mean_is": "Epoch time", "mean": mean, "mean_range": length_range(summary)}
    rate, cost = whole["steps_per_second"], whole["energy_per_step"]
    return {
        "mean_is": BY_KEY["steps_per_second"].title,
        "mean": units.MISSING if rate is None else BY_KEY["steps_per_second"].write(rate),
        "mean_range": "" if cost is None else f"{BY_KEY['energy_per_step'].write(cost)} per step",
    }


def _duration(document: Cells, run: Cells) -> Cells:
    ended = run.get("ended")
    return {
        "left_is": "Took",
        "left": {"took": document["run"].get("seconds")},
        "left_below": {"text": "ended", "time": ended} if ended is not None else "end not recorded",
    }


def facts(run: Cells) -> list[Cells]:
    """Return owner, id, framework, host and start of a run."""
    label = "since" if run["state"] == "running" else "began"
    values = [
        fact("id", run["id"]), fact("with", run.get("framework")), fact("on", run.get("hostname")),
        fact(label, "", run.get("started")), fact("resumes", run.get("resumes")),
    ]  # fmt: skip
    return [person(run["user"] or ""), *(value for value in values if value is not None)]


def usage(total: Cells) -> Cells:
    """Return the usage of a whole run."""
    idle, power = total.get("idle_share"), total.get("power_mean")
    is_exact = total.get("energy") is not None or not lacks_samples(total)
    return {
        "utilization": about_share(total, "utilization_mean"),
        "idle": "" if idle is None else f"idle {about_share(total, 'idle_share')} of the time",
        "energy": energy(total),
        "power": "" if power is None else units.about(f"{power:,.0f} W on average", is_final=is_exact),
    }


def length_range(summary: Cells) -> str:
    """Return the range of epoch times: `from 420 ms to 1:42`, `each 1:42` or `of one epoch`; empty if unknown."""
    if summary.get("least") is None or summary.get("most") is None:
        return ""
    least, most = units.fine_duration(summary["least"]), units.fine_duration(summary["most"])
    if least != most:
        return f"from {least} to {most}"
    return "of one epoch" if summary["ended"] == 1 else f"each {least}"


def _bar(run: Values) -> list[Cells]:
    done = run.get("progress")
    return [] if done is None else [bar(share(done, user=run["user"] or ""))]


MAX_FAILED_ALLOCATIONS = 20
"""Most failed allocations listed, the newest first."""
MAX_NUMBERS_LENGTH = 80
"""Longest list of epoch numbers in a sentence, in characters."""
TAGS: Mapping[str, str] = {
    "failed": "failed", "died": "died", "diverged": "diverged", "input_bound": "waits for data",
    "throttled": "throttled", "mostly_idle": "mostly idle", **SLOW,
}  # fmt: skip
"""Tag for each kind of finding about a whole run."""
STATES = ("throttled", "mostly_idle")
"""Kinds of findings whose summary needs "is" or "was"."""
PREDICATES: Mapping[str, tuple[str, str]] = {
    "not_finished": ("did not finish", "did not finish"), "input_bound": ("waited for data", "waited for data"),
    "throttled": ("was throttled", "were throttled"), "mostly_idle": ("was mostly idle", "were mostly idle"),
    "diverged": ("diverged", "diverged"),
}  # fmt: skip
"""Predicates of sentences about one epoch and about several, by kind of verdict."""
_LEVELS = {severity.name.lower(): level for severity, level in levels.SEVERITY_LEVELS.items() if severity is not None}
_OOM = "out_of_memory"


def finding_notes(document: Cells, *, running: bool) -> list[Cells]:
    """Return sentences about failed allocations, the run and its epochs; each action appears only once."""
    findings, ranks = document.get("findings") or (), document["ranks"]
    remedy = next((finding["action"] for finding in findings if finding["kind"] == _OOM), "")
    marks = [mark for mark in document["marks"] if mark["mark"] == _OOM]
    allocation_notes = [_failed_allocation(mark, ranks, remedy) for mark in marks[-MAX_FAILED_ALLOCATIONS:]][::-1]
    if earlier := len(marks) - len(allocation_notes):
        sentence = f"{units.count(earlier)} earlier {'time' if earlier == 1 else 'times'}."
        allocation_notes.append({"level": "bad", "about": "out of memory", "text": sentence, "action": remedy})
    # Findings that are listed per allocation or epoch are not repeated for the run.
    of_epochs = {"diverged"} & {odd["kind"] for odd in document.get("odd") or ()}
    run_notes = [
        _run_note(finding, running=running) for finding in findings if finding["kind"] not in {_OOM, *of_epochs}
    ]
    # An epoch in progress has no verdict yet.
    done = (document.get("summary") or {}).get("ended") if running else None
    is_lower_bound = not document.get("is_judged", True)
    # The action for the whole run is more specific than the one for single epochs.
    kinds = {finding["kind"] for finding in findings}
    epoch_notes = [
        _epochs_note(
            {**odd, "action": ""} if odd["kind"] in kinds else odd,
            document["epochs_total"],
            done,
            is_lower_bound=is_lower_bound,
        )
        for odd in document.get("odd") or ()
    ]
    actions, rows = set(), []
    for note in (*allocation_notes, *run_notes, *epoch_notes):
        rows.append({**note, "action": "" if note["action"] in actions else note["action"]})
        actions.add(note["action"])
    return rows


def _failed_allocation(mark: Cells, ranks: Sequence[Cells], remedy: str) -> Cells:
    """Return a sentence about a failed allocation."""
    rank = f"rank {mark['rank']}, " if mark["rank"] is not None and len(ranks) > 1 else ""
    requested, free = (units.number(_number(mark[name]), Unit.BYTES) for name in ("asked", "free"))
    epoch = f"epoch {units.count(mark['epoch'])}, " if mark["epoch"] >= 0 else ""
    position = f"{rank}{epoch}step {units.count(mark['step'])}"
    return {
        "level": "bad", "about": "out of memory", "text": f"{position}: requested {requested}, {free} free",
        "time": mark["time"], "action": remedy,
    }  # fmt: skip


def _run_note(finding: Cells, *, running: bool) -> Cells:
    """Return a sentence about a whole run: `The run was throttled 20 % of the time.`."""
    kind = finding["kind"]
    verb = ("is " if running else "was ") if kind in STATES else ""
    return {"level": _LEVELS[finding["severity"]], "about": TAGS.get(kind, "run"),
            "text": f"The run {verb}{finding['summary']}.", "action": finding["action"] or ""}  # fmt: skip


def _epochs_note(odd: Cells, total: int, done: int | None, *, is_lower_bound: bool) -> Cells:
    """Return a sentence about epochs with the same verdict: `Epochs 3, 7–9 were throttled: 4 of 90 epochs.`.

    `done`: finished epochs of a running run; `is_lower_bound`: there may be more such epochs.
    """
    numbers, count = ranges(odd["epochs"]), len(odd["epochs"])
    if len(numbers) > MAX_NUMBERS_LENGTH:
        numbers = f"{numbers[:MAX_NUMBERS_LENGTH].rpartition(', ')[0]} …"
    singular, plural = PREDICATES[odd["kind"]]
    least = "at least " if is_lower_bound else ""
    count_text = f"{least}{units.count(count)} of {units.count(total)} epochs"
    if done is not None and odd["kind"] != "not_finished":
        count_text = f"{least}{units.count(count)} of {units.count(done)} that ended"
    judged = odd.get("of", total)
    if judged is None:
        count_text = f"{least}{units.count(count)} epochs"
    elif judged < (total if done is None else done):
        count_text = f"{least}{units.count(count)} of the {units.count(judged)} that were measured"
    sentence = f"Epochs {numbers} {plural}: {count_text}." if count > 1 else f"Epoch {numbers} {singular}."
    return {"level": odd["level"], "about": odd["text"], "text": sentence, "action": odd["action"]}


def _number(value: Any) -> float:
    return NAN if value is None else float(value)
