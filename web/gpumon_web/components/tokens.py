"""Building blocks of composite values: lines of text, users, links, tags and bars, in the format of the scripts."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import quote

from gpumon.analysis.thresholds import SAMPLED
from gpumon.common.numbers import NAN
from gpumon.model import units
from gpumon.model.metrics import Unit
from gpumon_web.components import levels
from gpumon_web.components.page import Cells

Values = Mapping[str, Any]
"""A run, or a part of one, by the names of `LiveRun` or of the JSON of reports."""


def line(*pieces: Cells | None, css: str = "") -> Cells:
    """Create a line of a `rich` value."""
    return {"line": [piece for piece in pieces if piece is not None], "css": css}


def text(words: str, css: str = "", *, is_now: bool = False) -> Cells:
    """Create a plain text; `is_now`: hidden when data stops coming."""
    return {"text": words, "css": css, **({"now": True} if is_now else {})}


def fact(name: str, words: Any, time: float | None = None) -> Cells | None:
    """Create a named fact: words, or a time (s since 1970) shown in the viewer's time zone; None without a value."""
    return {"fact": name, "text": str(words or ""), "time": time} if words or time is not None else None


def person(name: str, href: str = "") -> Cells:
    """Create a user's name in the user's color; `href` (`#/…`) makes the whole row a link."""
    return {"person": name, "link": href} if href else {"person": name}


def link(words: str, href: str, css: str = "", label: str = "") -> Cells:
    """Create a link to a page; `href` begins with `#/`."""
    return {"link": href, "text": words, "css": css, "label": label}


def tag(words: str, level: str = "", *, is_now: bool = False) -> Cells:
    """Create a label; `is_now`: hidden when data stops coming."""
    return {"tag": words, "level": level, "now": is_now}


def run_state(state: str) -> Cells:
    """Create the tag of a run's state. When data stops coming, a running run becomes "last seen running"."""
    label = tag(state or units.MISSING, levels.RUN_LEVELS.get(state, ""))
    return running_tag(label) if state == "running" else label


def origin_tag(label: str, others: Iterable[str]) -> Cells | None:
    """Return the tag that shows a run's origin (real, simulated, replayed).

    `label`: begins with the origin. Return None if all `others`, the labels of the other runs, have the same origin.
    """
    kind = _kind(label)
    return None if all(_kind(other) == kind for other in others) else tag(kind or "real GPUs")


def _kind(label: str) -> str:
    """Return `SIMULATED` or `REPLAY`; empty for hardware."""
    return label.partition(" ")[0]


def running_tag(label: Cells) -> Cells:
    """Add the texts that replace the tag of a running run or epoch when data stops coming."""
    return {**label, "old": "last seen running", "ended": "running at the end"}


def run_tab(run: Values) -> Cells:
    """Create the title of a run's browser tab: `epoch 6 (7/40) · llama-8b-sft`, or with the state if it is over."""
    name = run_name(run)
    if run["state"] != "running":
        title = f"{run['state'] or units.MISSING} · {name}"
        return {"text": title, "old": title}
    return {"text": f"{run_position(run) or 'running'} · {name}", "old": name}


def bar(*parts: Cells, css: str = "bar") -> Cells:
    """Create a bar of shares side by side."""
    return {"bar": list(parts), "css": css}


def share(of_whole: float, *, user: str = "", color: str = "", title: str = "") -> Cells:
    """Create a part of a bar, in the color of a user or a role; rounded to 0.5 %, so that it rarely changes."""
    return {"share": round(min(of_whole, 1.0) * 200) / 200, "user": user, "color": color, "title": title}


def run_position(run: Values) -> str:
    """Return the position of a live run: `epoch 7 (8/90)`, or `step 140 of 300` without epochs."""
    if run.get("epoch"):
        return f"epoch {run['epoch']}"
    return f"step {run['step_text']}" if run.get("step_text") else ""


def progress(run: Values, position: str) -> Cells:
    """Create a line with a run's progress and its time left, which is hidden when data stops coming."""
    done = bar(share(run["progress"], user=run["user"]), css="bar thin") if run["progress"] is not None else None
    left = text(f"{units.long_duration(run['left'])} left", is_now=True) if run["left"] is not None else None
    return line(text(position), done, left, css="progress")


def pick(arg: str, title: str, chosen: str, options: Sequence[tuple[str, str]]) -> Cells | None:
    """Create a drop-down list that sets an argument of the address; None if there is nothing to choose."""
    choices = [*options, *([(chosen, chosen)] if chosen and chosen not in dict(options) else [])]
    if not choices:
        return None
    return {"arg": arg, "title": title, "chosen": chosen, "options": [list(option) for option in choices]}


def energy(row: Values) -> float | Cells | None:
    """Return the energy of a run or part of it (J), or a lower bound as `least` if readings at its ends are missing."""
    whole, least = row.get("energy"), row.get("energy_least")
    return {"least": least} if whole is None and least is not None else whole


def about_share(row: Values, key: str) -> str:
    """Return a share of a run or part of it as text, with `≈` if too little of its time was sampled."""
    value = row.get(key)
    return units.about(units.number(NAN if value is None else value, Unit.RATIO), is_final=not lacks_samples(row))


def lacks_samples(row: Values) -> bool:
    """Whether too little of the time of a run or part of it was sampled for its means."""
    sampled = row.get("sampled_share")
    return sampled is not None and sampled < SAMPLED


def gpu_address(index: Any) -> str:
    """Return the address of a GPU's page."""
    return f"#/gpu/{index}"


def run_address(run: str) -> str:
    """Return the address of a run's page."""
    return f"#/run/{quote(run, safe='')}"


def run_name(run: Values) -> str:
    """Return the name of a run, or its id if the name has no visible characters."""
    name = run["name"] or ""
    return name if any(unicodedata.category(letter)[0] in "LNPS" for letter in name) else run["id"]
