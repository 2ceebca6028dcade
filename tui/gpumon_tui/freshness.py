"""Freshness of the picture: one judgment for the header, the charts and the whole screen."""

from __future__ import annotations

import math
from typing import NamedTuple

from rich.style import Style

from gpumon import units
from gpumon.frame import Frame, Origin
from gpumon.live import WAITING, LiveState
from gpumon.metrics import Availability
from gpumon_tui import theme

NOW = "now"
PATIENCE = 5.0
"""Seconds without a first frame after which it is told how long that has been."""
_KNOWN = (Availability.OK, Availability.ASLEEP)
"""States of a GPU of which it is known how it is."""


class Freshness(NamedTuple):
    """The age of the data on screen, in words and as data."""

    text: str
    """For the header."""
    style: Style
    edge: str = NOW
    """At the right edge of every chart."""
    age: float = 0.0
    """Seconds since the picture was true, where nothing newer comes; 0 otherwise. Above 0 the screen is dimmed."""

    @property
    def seconds(self) -> int:
        """The age as far as it is shown."""
        return int(min(self.age, 1e9))


def freshness(
    state: LiveState, origin: Origin, frame: Frame | None, paused: bool, silence: float, behind: float = 0.0
) -> Freshness:
    """Judge the frame on screen; `silence` is how long no frame has come, in seconds.

    Only data that are of now, of GPUs that answer, are called live. A picture that the user holds is of the moment
    at which it was held, `behind` seconds before the newest frame.
    """
    if frame is None:
        return _waiting(state, silence)
    found = _judged(state, origin, frame, silence)
    if not paused:
        return found
    at = units.clock(frame.time)
    if found.style is theme.GOOD:
        return Freshness(f"paused at {at}", theme.BAR, at)
    return found._replace(text=f"paused at {at} · {found.text}", edge=at, age=found.age and found.age + behind)


def _judged(state: LiveState, origin: Origin, frame: Frame, silence: float) -> Freshness:
    """Freshness of the newest frame."""
    if origin.ended:
        return Freshness(state.text, theme.BAR, "end")
    if not state.live:
        return _silent(state, frame, silence)
    samples = frame.samples
    if not samples and origin.problem:
        return Freshness("no GPU can be read", theme.WARN)
    if samples and not any(sample.state in (*_KNOWN, Availability.STALE) for sample in samples):
        reasons = ", ".join(dict.fromkeys(sample.state.reason for sample in samples))
        return Freshness(f"no GPU can be read: {origin.problem or reasons}", theme.CRITICAL)
    if samples and not any(sample.state in _KNOWN for sample in samples):
        age = min(sample.age for sample in samples if sample.state is Availability.STALE)
        return Freshness(f"the driver does not answer · last seen {ago(age)}", theme.WARN, ago(age), age)
    return Freshness(state.text, theme.GOOD)


def ago(seconds: float) -> str:
    """`15 s ago`, `4 min ago`, `3 h ago`: in steps that repaint little."""
    if seconds < 60:
        return f"{seconds:.0f} s ago"
    if seconds < 3600:
        return f"{seconds // 60:.0f} min ago"
    return f"{seconds // 3600:.0f} h ago"


def _waiting(state: LiveState, silence: float) -> Freshness:
    """No frame has come yet; for how long, where that is long, as with a driver that does not answer."""
    text = WAITING if state.live else state.text
    if text != WAITING or silence < PATIENCE:
        return Freshness(text, theme.WARN)
    return Freshness(f"{text} for {units.duration(silence)}: the driver may hang", theme.WARN, NOW, silence)


def _silent(state: LiveState, frame: Frame, silence: float) -> Freshness:
    """Nothing comes any more; the writer's last sign of life tells since when, else the last frame that came."""
    seen = f"last seen {units.clock(frame.time)}"
    if math.isinf(state.age):  # written before the machine was restarted
        return Freshness(f"{state.text} · {seen}", theme.WARN, seen, state.age)
    age = state.age or max(silence, 1.0)
    if "last seen" in state.text:
        return Freshness(state.text, theme.WARN, ago(age), age)
    told = seen if state.age else f"{seen} ({ago(age)})"  # the state itself says how long
    return Freshness(f"{state.text} · {told}", theme.WARN, ago(age), age)
