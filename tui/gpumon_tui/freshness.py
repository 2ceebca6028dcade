"""Freshness of the picture: one judgment for the header, the charts and the whole screen."""

from __future__ import annotations

import math
from typing import NamedTuple

from rich.style import Style

from gpumon.live import WAITING, LiveState
from gpumon.model import units
from gpumon.model.frame import Frame
from gpumon.model.metrics import Availability
from gpumon.model.origin import Capability, Origin
from gpumon_tui import theme

NOW, END = "now", "end"
"""At the right edge of charts: of what goes on, and of a recording that has been played."""
PATIENCE = 5.0
"""Seconds without a first frame after which it is told how long that has been; without a newer one, after which what
is on screen is no longer of now, whatever its writer says."""
_LATE = 3
"""Intervals without a frame after which that holds at long ones."""
FOLLOWED = "live"
"""The text of a state whose frames come from a daemon, as `Live` gives it."""
NO_SAMPLE = "no new sample comes"
_KNOWN = (Availability.OK, Availability.ASLEEP)
"""States of a GPU of which it is known how it is."""


class Freshness(NamedTuple):
    """The age of the data on screen, in words and as data."""

    text: str
    """In full."""
    style: Style
    edge: str = NOW
    """At the right edge of every chart."""
    age: float = 0.0
    """Seconds since the picture was true, where nothing newer comes; 0 otherwise. Above 0 the screen is dimmed."""
    mark: str = "○"
    """For the header: a glyph that says the same as the style."""
    word: str = ""
    """For the header: the state in a word, with the age where that is known."""
    reason: str = ""
    """For a line of its own below the header: why nothing newer comes; empty where there is nothing to explain."""
    frame_age: float = 0.0
    """Seconds since the frame came, where no newer one comes: 0 where frames come and the driver tells nothing new."""
    read_before: float = 0.0
    """Seconds before its frame at which the values on screen were read: above 0 where the driver tells nothing new,
    NaN where it never told any."""

    is_leaving: bool = False
    """Whether another place of a recording is about to take the place of what is on screen."""

    @property
    def is_faded(self) -> bool:
        """Whether the screen is dimmed."""
        return self.age > 0 or self.is_leaving

    @property
    def seconds(self) -> int:
        """The age as far as it is shown."""
        return int(min(self.age, 1e9))


def freshness(
    state: LiveState, origin: Origin, frame: Frame | None, paused: bool, silence: float, behind: float = 0.0, *,
    remedy: str = "",
) -> Freshness:  # fmt: skip
    """Judge the frame on screen; `silence` is how long no frame has come, in seconds.

    Only data that are of now, of GPUs that answer, are called live. A picture that the user holds is of the moment
    at which it was held, `behind` seconds before the newest frame. `remedy` is what to do where a daemon is silent.
    """
    if frame is None:
        return _waiting(state, silence)
    found = _judged(state, origin, frame, silence)
    if remedy and found.frame_age > 0:
        found = found._replace(reason=f"{found.reason} · {remedy}")
    if not paused:
        return found
    at = units.clock(frame.time)
    held = found._replace(
        style=theme.WARN, edge=at, mark="‖", word=f"paused {_whole(behind)}" if behind >= 1.0 else "paused"
    )
    if not found.reason:
        return held._replace(text=f"paused at {at}", age=0.0)
    text, reason = (f"paused at {at} · {part}" for part in (found.text, found.reason))
    age, frame_age = (seconds and seconds + behind for seconds in (found.age, found.frame_age))
    return held._replace(text=text, reason=reason, age=age, frame_age=frame_age)


def is_of_daemon(state: LiveState) -> bool:
    """Whether frames come from a daemon, which writes a log, rather than from a sampler of the view's own."""
    return state.live and state.text == FOLLOWED


def window_texts(span: str, edge: str) -> tuple[str, ...]:
    """Say which time a chart shows that ends at `edge`, at length and ever shorter."""
    if edge == NOW:
        return f"last {span}", span
    if edge == END:
        return f"{span} up to the end", span
    return f"{span} until {edge}", f"until {edge}", edge


def _judged(state: LiveState, origin: Origin, frame: Frame, silence: float) -> Freshness:
    """Freshness of the newest frame."""
    if origin.ended:
        return Freshness(state.text, theme.RECORDED, END, mark="▸", word="ended", reason="")
    if not state.live:
        return _silent(state, frame, silence)
    if Capability.NOW in origin.capabilities and silence > max(PATIENCE, _LATE * state.interval):
        return _silent(state._replace(live=False, text=NO_SAMPLE, age=0.0), frame, silence)
    samples = frame.samples
    if not samples and origin.problem:
        return Freshness("no GPU can be read", theme.WARN, word="no GPU")
    if samples and not any(sample.state in (*_KNOWN, Availability.STALE) for sample in samples):
        reasons = ", ".join(dict.fromkeys(sample.state.reason for sample in samples))
        text = f"no GPU can be read: {origin.problem or reasons}"
        gone = all(sample.state is Availability.NO_DRIVER for sample in samples)
        return Freshness(text, theme.CRITICAL, mark="▲", word="no driver" if gone else "no GPU", reason=text)
    if samples and not any(sample.state in _KNOWN for sample in samples):
        silent = [sample for sample in samples if sample.state is Availability.STALE]
        age = min(sample.age for sample in silent)
        has_values = any(any(map(math.isfinite, sample.values)) for sample in silent)
        text = f"last seen {ago(age)}" if has_values else f"asked {ago(age)}, never seen"
        text = f"the driver does not answer · {text}"
        before = age if has_values else math.nan
        return Freshness(text, theme.WARN, ago(age), age, word=_stale_for(age), reason=text, read_before=before)
    return _well(state, origin)


def _well(state: LiveState, origin: Origin) -> Freshness:
    """Data as they should be: of now, or of a recording that plays."""
    if not origin.capabilities & Capability.NOW:
        word = "replay" if origin.speed == 1 else f"replay {origin.speed:.4g}×"
        return Freshness(state.text, theme.RECORDED, mark="▸", word=word)
    return Freshness(state.text, theme.GOOD, mark="●", word=FOLLOWED if is_of_daemon(state) else "own sampler")


def _stale_for(age: float) -> str:
    return f"stale {_whole(age)}" if math.isfinite(age) else "stale"


def _whole(seconds: float) -> str:
    """A duration in whole seconds."""
    return f"{seconds:.0f} s" if seconds < 59.5 else units.duration(seconds)


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
        return Freshness(text, theme.WARN, word="waiting")
    told, word = units.duration(silence), f"waiting {_whole(silence)}"
    return Freshness(f"{text} for {told}: the driver may hang", theme.WARN, NOW, silence, word=word)


def _silent(state: LiveState, frame: Frame, silence: float) -> Freshness:
    """Nothing comes any more; the writer's last sign of life tells since when, else the last frame that came."""
    seen = f"last seen {units.clock(frame.time)}"
    if math.isinf(state.age):  # written before the machine was restarted
        text = f"{state.text} · {seen}"
        return Freshness(text, theme.WARN, seen, state.age, word="stale", reason=text, frame_age=state.age)
    age = state.age or max(silence, 1.0)
    text = state.text
    if "last seen" not in state.text:
        text += f" · {seen}" if state.age else f" · {seen} ({ago(age)})"  # the state itself says how long
    return Freshness(text, theme.WARN, ago(age), age, word=_stale_for(age), reason=text, frame_age=age)
