"""The head of a run's page: what the run is, how far it is, and what it used."""

from __future__ import annotations

from gpumon.common.numbers import NAN
from gpumon.model import units
from gpumon.model.columns import BY_KEY
from gpumon.model.metrics import Unit
from gpumon_web.page import Cells
from gpumon_web.tokens import bar, energy, fact, person, share


def going(run: Cells, time: float) -> Cells:
    """The progress of a run at `time`; its epoch and phase only where the ring tells them."""
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


def far(document: Cells, run: Cells) -> Cells:
    """Epoch, or step, and time left of a run that goes on; of one that is over, how many it did, and how long."""
    summary, found, planned = document.get("summary") or {}, document["epochs"], run.get("epochs_planned")
    if not found and not planned and not run.get("epoch"):
        return by_steps(document, run)
    # The number of the last epoch is another than how many there were, where they count from 0.
    own = summary.get("done", 0) + summary.get("unseen", 0) or (None if _began_unseen(document) else 0)
    before = run.get("epochs_before", 0)
    count = None if own is None else own + before
    done = (units.MISSING if count is None else units.count(count)) + (f" of {units.count(planned)}" if planned else "")
    if run["state"] == "running":
        last = units.count(found[-1]["epoch"]) if found else units.MISSING
        kept = {**going(run, document["now"]), "epoch": last, "epoch_below": f"{done} done" if found else ""}
        # The ring tells these as long as they are so; what it told once would outlast the run.
        return {**kept, "left": units.MISSING, "left_below": ""} if document.get("live") else kept
    ended = summary.get("last")
    below = [
        "" if own is None or not before else f"{units.count(own)} in this run",
        "" if ended is None else f"last: epoch {units.count(ended)}",
    ]
    return {
        "epoch_is": "Epochs done",
        "epoch": done,
        "epoch_below": "; ".join(filter(None, below)),
        # As far as the epochs that are counted: the ring also has the part of one that did not finish.
        "bar": _bar({**run, "progress": count / planned if planned and count is not None else None}),
        **_took(document, run),
    }


def _began_unseen(document: Cells) -> bool:
    """Whether nobody knows how many epochs it did: it took steps before it was seen, and none has begun since."""
    return not document["epochs"] and any(rank["steps"] for rank in document["ranks"])


def by_steps(document: Cells, run: Cells) -> Cells:
    """The same of a run without epochs: its steps, where it counts any."""
    done = (document.get("total") or {}).get("steps")
    planned = max((rank["steps_planned"] or 0 for rank in document["ranks"]), default=0)
    steps = "" if done is None else f"{units.count(done)}{f' of {units.count(round(planned))}' if planned else ''}"
    if run["state"] == "running":
        kept = {**going(run, document["now"]), "epoch_is": "Step", "epoch": steps or units.MISSING, "epoch_below": ""}
        return {**kept, "left": units.MISSING, "left_below": ""} if document.get("live") else kept
    return {
        "epoch_is": "Steps done", "epoch": steps or units.MISSING, "epoch_below": "", "bar": [], **_took(document, run),
    }  # fmt: skip


def pace(summary: Cells, whole: Cells | None) -> Cells:
    """The mean length of the epochs of a run; of `whole`, the total of a run without epochs, its steps per second."""
    if whole is None:
        mean = units.MISSING if summary.get("mean") is None else units.fine_duration(summary["mean"])
        return {"mean_is": "Epoch time", "mean": mean, "mean_range": length_range(summary)}
    rate, cost = whole["steps_per_second"], whole["energy_per_step"]
    return {
        "mean_is": BY_KEY["steps_per_second"].title,
        "mean": units.MISSING if rate is None else BY_KEY["steps_per_second"].write(rate),
        "mean_range": "" if cost is None else f"{BY_KEY['energy_per_step'].write(cost)} per step",
    }


def _took(document: Cells, run: Cells) -> Cells:
    ended = run.get("ended")
    return {
        "left_is": "Took",
        "left": {"took": document["run"].get("seconds")},
        "left_below": {"text": "ended", "time": ended} if ended is not None else "end not recorded",
    }


def facts(run: Cells) -> list[Cells]:
    """The owner of a run, what it runs with, where, and when it began."""
    since = "since" if run["state"] == "running" else "began"
    found = [
        fact("id", run["id"]), fact("with", run.get("framework")), fact("on", run.get("hostname")),
        fact(since, "", run.get("started")), fact("resumes", run.get("resumes")),
    ]  # fmt: skip
    return [person(run["user"] or ""), *(one for one in found if one is not None)]


def usage(total: Cells) -> Cells:
    """The usage of a whole run."""
    idle, power = total.get("idle_share"), total.get("power_mean")
    return {
        "utilization": total.get("utilization_mean"),
        "idle": "" if idle is None else f"idle {units.number(idle, Unit.RATIO)} of the time",
        "energy": energy(total),
        "power": "" if power is None else f"{power:,.0f} W on average",
    }


def length_range(summary: Cells) -> str:
    """The lengths of its epochs: `from 420 ms to 1:42`, or that there is but one, or one length; empty without any."""
    if summary.get("least") is None or summary.get("most") is None:
        return ""
    least, most = units.fine_duration(summary["least"]), units.fine_duration(summary["most"])
    if least != most:
        return f"from {least} to {most}"
    return "of one epoch" if summary["done"] == 1 else f"each {least}"


def _bar(run: Cells) -> list[Cells]:
    done = run.get("progress")
    return [] if done is None else [bar(share(done, user=run["user"] or ""))]
