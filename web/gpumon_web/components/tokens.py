"""Pieces of values that consist of several: lines of text, people, links, tags and bars, as the scripts show them."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence
from typing import Any
from urllib.parse import quote

from gpumon.model import units
from gpumon_web.components import levels
from gpumon_web.components.page import Cells


def line(*pieces: Cells | None, css: str = "") -> Cells:
    """A line of a `rich` value."""
    return {"line": [piece for piece in pieces if piece is not None], "css": css}


def text(words: str, css: str = "", *, is_now: bool = False) -> Cells:
    """Plain text; `is_now`: it is left out once nothing new comes."""
    return {"text": words, "css": css, **({"now": True} if is_now else {})}


def fact(name: str, words: Any, time: float | None = None) -> Cells | None:
    """A fact with its name, or the moment `time` (s since 1970), in the viewer's time zone; None where it is not."""
    return {"fact": name, "text": str(words or ""), "time": time} if words or time is not None else None


def person(name: str, href: str = "") -> Cells:
    """A user, with the color that is the user's everywhere; the whole row leads to `href` (`#/…`) where it has one."""
    return {"person": name, "link": href} if href else {"person": name}


def link(words: str, href: str, css: str = "", label: str = "") -> Cells:
    """A link to a page: `href` begins with `#/`."""
    return {"link": href, "text": words, "css": css, "label": label}


def tag(words: str, level: str = "", *, is_now: bool = False) -> Cells:
    """A label; `is_now`: it is left out once nothing new comes."""
    return {"tag": words, "level": level, "now": is_now}


def run_state(state: str) -> Cells:
    """The tag of a run's state. Once nothing new comes, one that went on was last seen so, or at a recording's end."""
    found = tag(state or units.MISSING, levels.OF_RUN.get(state, ""))
    return going_on(found) if state == "running" else found


def measured_on(label: str, others: Iterable[str]) -> Cells | None:
    """The tag of what a run was measured on, by the label of its origin; none where `others` are of the same kind."""
    kind = _kind(label)
    return None if all(_kind(other) == kind for other in others) else tag(kind or "real GPUs")


def _kind(label: str) -> str:
    """`SIMULATED` or `REPLAY`; empty for hardware."""
    return label.partition(" ")[0]


def going_on(found: Cells) -> Cells:
    """The tag of what goes on, a run or its epoch: once nothing new comes, it was last seen so."""
    return {**found, "old": "last seen running", "ended": "running at the end"}


def run_tab(run: Cells) -> Cells:
    """The title of the tab of a run: `epoch 6 (7/40) · llama-8b-sft`, of one that is over its state."""
    name = run_name(run)
    if run["state"] != "running":
        ended = f"{run['state'] or units.MISSING} · {name}"
        return {"text": ended, "old": ended}
    return {"text": f"{place(run) or 'running'} · {name}", "old": name}


def bar(*parts: Cells, css: str = "bar") -> Cells:
    """Shares of a whole, beside each other."""
    return {"bar": list(parts), "css": css}


def share(of_whole: float, *, user: str = "", color: str = "", title: str = "") -> Cells:
    """A piece of a bar, in the color of a user or of a role; in steps of a two-hundredth, so that few are news."""
    return {"share": round(min(of_whole, 1.0) * 200) / 200, "user": user, "color": color, "title": title}


def place(run: Cells) -> str:
    """Where a run is that the ring tells of: `epoch 7 (8/90)`, or of one without epochs `step 140 of 300`."""
    if run.get("epoch"):
        return f"epoch {run['epoch']}"
    return f"step {run['step_text']}" if run.get("step_text") else ""


def progress(run: Cells, where: str) -> Cells:
    """A line of how far a run is, and how long it still takes, which nobody knows of one that is not seen."""
    done = bar(share(run["progress"], user=run["user"]), css="bar thin") if run["progress"] is not None else None
    left = text(f"{units.long_duration(run['left'])} left", is_now=True) if run["left"] is not None else None
    return line(text(where), done, left, css="progress")


def pick(arg: str, title: str, chosen: str, options: Sequence[tuple[str, str]]) -> Cells | None:
    """A list of which one sets an argument of the address; None where there is nothing to choose."""
    known = [*options, *([(chosen, chosen)] if chosen and chosen not in dict(options) else [])]
    return {"arg": arg, "title": title, "chosen": chosen, "options": [list(one) for one in known]} if known else None


def energy(row: Cells) -> float | Cells | None:
    """The energy of a run or a part of it, J; `least` where readings of the counter are missing at its borders."""
    whole, least = row.get("energy"), row.get("energy_least")
    return {"least": least} if whole is None and least is not None else whole


def gpu_address(index: Any) -> str:
    """The address of a GPU's page."""
    return f"#/gpu/{index}"


def run_address(run: str) -> str:
    """The address of a run's page."""
    return f"#/run/{quote(run, safe='')}"


def run_name(run: Cells) -> str:
    """The name of a run, its id where the name shows nothing."""
    name = run["name"] or ""
    return name if any(unicodedata.category(letter)[0] in "LNPS" for letter in name) else run["id"]
