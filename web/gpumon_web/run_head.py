"""The head of a run's page: what the run is, how far it is, and what it used."""

from __future__ import annotations

from gpumon import units
from gpumon.frame import NAN
from gpumon.metrics import Unit
from gpumon_web.page import Cells
from gpumon_web.tokens import bar, fact, person, share


def going(run: Cells, time: float) -> Cells:
    """The progress of a run at `time`; its epoch and phase only where the ring tells them."""
    started = NAN if run["started"] is None else float(run["started"])
    return {
        "epoch_is": "Epoch",
        "epoch": run.get("epoch") or None,
        "epoch_below": run.get("phase") or None,
        "bar": _bar(run),
        "left_is": "Time left",
        "left": units.MISSING if run.get("left") is None else run["left"],
        "left_below": f"{units.words(time - started)} so far",
    }


def far(document: Cells, run: Cells) -> Cells:
    """Epoch and time left of a run that goes on; of one that is over, its number of epochs and how long it took."""
    summary, found, planned = document.get("summary") or {}, document["epochs"], run.get("epochs_planned")
    # The number of the last epoch is another than how many there were, where they count from 0.
    done = f"{summary.get('done') or 0}{f' of {planned}' if planned else ''}"
    if run["state"] == "running":
        last = str(found[-1]["epoch"]) if found else units.MISSING
        kept = {**going(run, document["now"]), "epoch": last, "epoch_below": f"{done} done"}
        # The ring tells these as long as they are so; what it told once would outlast the run.
        return {**kept, "left": units.MISSING, "left_below": ""} if document.get("live") else kept
    ended = run.get("ended")
    return {
        "epoch_is": "Epochs done",
        "epoch": done,
        "epoch_below": f"last: epoch {found[-1]['epoch']}" if found else "",
        "bar": _bar(run),
        "left_is": "Took",
        "left": document["run"].get("seconds"),
        "left_below": {"text": "ended", "time": ended} if ended is not None else "end not recorded",
    }


def facts(run: Cells) -> list[Cells]:
    """The owner of a run, what it runs with, where, and since when."""
    found = [
        fact("id", run["id"]), fact("with", run.get("framework")), fact("on", run.get("hostname")),
        fact("since", "", run.get("started")), fact("resumes", run.get("resumes")),
    ]  # fmt: skip
    return [person(run["user"] or ""), *(one for one in found if one is not None)]


def usage(total: Cells) -> Cells:
    """The usage of a whole run."""
    idle, power = total.get("idle_share"), total.get("power_mean")
    return {
        "utilization": total.get("utilization_mean"),
        "idle": "" if idle is None else f"idle {units.number(idle, Unit.RATIO)} of the time",
        "energy": total.get("energy"),
        "power": "" if power is None else f"{units.number(power, Unit.WATTS)} on average",
    }


def length_range(summary: Cells) -> str:
    """The lengths of its epochs: `from 420 ms to 1:42`; empty without any."""
    least, most = summary.get("least"), summary.get("most")
    return "" if least is None or most is None else f"from {units.brief(least)} to {units.brief(most)}"


def _bar(run: Cells) -> list[Cells]:
    done = run.get("progress")
    return [] if done is None else [bar(share(done, user=run["user"] or ""))]
