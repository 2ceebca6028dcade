"""Freshness of the data on screen, as shown by the header, the charts and the screen as a whole."""

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
"""Label of the right edge of charts: for live data, and for a recording that has been played to its end."""
PATIENCE = 5.0
"""Seconds of silence that are tolerated.

Without a first frame, the waiting time is shown after this many seconds; without a newer frame, the data are no longer
called current, whatever the writer reports.
"""
_LATE = 3
"""With long sampling intervals, data are no longer called current after this many intervals without a frame."""
FOLLOWING = "live"
"""Text of the state of a feed that a daemon supplies, as set by `Live`."""
NO_SAMPLE = "no new samples"
_KNOWN = (Availability.OK, Availability.ASLEEP)
"""GPU states with current values."""


class Freshness(NamedTuple):
    """Age of the data on screen, as text and as numbers."""

    text: str
    """Long form."""
    style: Style
    edge: str = NOW
    """Label of the right edge of every chart."""
    age: float = 0.0
    """Seconds since the data were last current; 0 while newer data arrive. The screen is dimmed if greater than 0."""
    mark: str = "○"
    """Glyph for the header; it has the same meaning as the style."""
    word: str = ""
    """One-word state for the header, with the age if available."""
    reason: str = ""
    """Explanation for a separate line below the header; empty if there is nothing to explain."""
    frame_age: float = 0.0
    """Seconds since the last frame arrived; 0 while frames arrive, even if the driver reports no new values."""
    read_before: float = 0.0
    """Seconds between reading the values on screen and the time of their frame: greater than 0 if the driver reports
    no new values, NaN if it never reported any.
    """

    is_seeking: bool = False
    """Whether a seek is in progress, so that the data on screen will soon be replaced."""

    @property
    def is_faded(self) -> bool:
        """Whether the screen is dimmed."""
        return self.age > 0 or self.is_seeking

    @property
    def seconds(self) -> int:
        """The age in whole seconds, as displayed."""
        return int(min(self.age, 1e9))


def freshness(
    state: LiveState, origin: Origin, frame: Frame | None, paused: bool, silence: float, behind: float = 0.0, *,
    remedy: str = "",
) -> Freshness:  # fmt: skip
    """Return the freshness of the frame on screen; `silence` is the time without a new frame, in seconds.

    Only current data of GPUs that respond are called live. A paused view shows the moment at which it was paused,
    `behind` seconds before the newest frame. `remedy` is the advice to show when a daemon is silent.
    """
    if frame is None:
        return _waiting(state, silence)
    current = _frame_freshness(state, origin, frame, silence)
    if remedy and current.frame_age > 0:
        current = current._replace(reason=f"{current.reason} · {remedy}")
    if not paused:
        return current
    time_text = units.clock(frame.time)
    paused_state = current._replace(
        style=theme.WARN,
        edge=time_text,
        mark="‖",
        word=f"paused {_seconds_text(behind)}" if behind >= 1.0 else "paused",
    )
    if not current.reason:
        return paused_state._replace(text=f"paused at {time_text}", age=0.0)
    text, reason = (f"paused at {time_text} · {part}" for part in (current.text, current.reason))
    age, frame_age = (seconds and seconds + behind for seconds in (current.age, current.frame_age))
    return paused_state._replace(text=text, reason=reason, age=age, frame_age=frame_age)


def is_of_daemon(state: LiveState) -> bool:
    """Whether frames come from a daemon, which also writes the event log, and not from this view's own sampler."""
    return state.live and state.text == FOLLOWING


def window_texts(span: str, edge: str) -> tuple[str, ...]:
    """Return descriptions of the time a chart shows up to `edge`, the longest first."""
    if edge == NOW:
        return f"last {span}", span
    if edge == END:
        return f"{span} up to the end", span
    return f"{span} until {edge}", f"until {edge}", edge


def _frame_freshness(state: LiveState, origin: Origin, frame: Frame, silence: float) -> Freshness:
    """Return the freshness of the newest frame."""
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
        has_no_driver = all(sample.state is Availability.NO_DRIVER for sample in samples)
        return Freshness(text, theme.CRITICAL, mark="▲", word="no driver" if has_no_driver else "no GPU", reason=text)
    if samples and not any(sample.state in _KNOWN for sample in samples):
        silent = [sample for sample in samples if sample.state is Availability.STALE]
        age = min(sample.age for sample in silent)
        has_values = any(any(map(math.isfinite, sample.values)) for sample in silent)
        text = f"last seen {ago(age)}" if has_values else f"asked {ago(age)}, never seen"
        text = f"the driver does not answer · {text}"
        read_before = age if has_values else math.nan
        return Freshness(text, theme.WARN, ago(age), age, word=_stale_text(age), reason=text, read_before=read_before)
    return _current(state, origin)


def _current(state: LiveState, origin: Origin) -> Freshness:
    """Return the freshness of current data, or of a recording that is playing."""
    if not origin.capabilities & Capability.NOW:
        word = "replay" if origin.speed == 1 else f"replay {origin.speed:.4g}×"
        return Freshness(state.text, theme.RECORDED, mark="▸", word=word)
    return Freshness(state.text, theme.GOOD, mark="●", word=FOLLOWING if is_of_daemon(state) else "own sampler")


def _stale_text(age: float) -> str:
    return f"stale {_seconds_text(age)}" if math.isfinite(age) else "stale"


def _seconds_text(seconds: float) -> str:
    """Format a duration in whole seconds."""
    return f"{seconds:.0f} s" if seconds < 59.5 else units.duration(seconds)


def ago(seconds: float) -> str:
    """Format an age as `15 s ago`, `4 min ago`, `3 h ago`; the coarse steps avoid needless redraws."""
    if seconds < 60:
        return f"{seconds:.0f} s ago"
    if seconds < 3600:
        return f"{seconds // 60:.0f} min ago"
    return f"{seconds // 3600:.0f} h ago"


def _waiting(state: LiveState, silence: float) -> Freshness:
    """Return the state before the first frame, with the waiting time if it is long, for example because the driver
    does not respond.
    """
    text = WAITING if state.live else state.text
    if text != WAITING or silence < PATIENCE:
        return Freshness(text, theme.WARN, word="waiting")
    duration, word = units.duration(silence), f"waiting {_seconds_text(silence)}"
    return Freshness(f"{text} for {duration}: the driver may hang", theme.WARN, NOW, silence, word=word)


def _silent(state: LiveState, frame: Frame, silence: float) -> Freshness:
    """Return the state of a silent source.

    Its age counts from the writer's last heartbeat if available, else from the last frame.
    """
    last_seen = f"last seen {units.clock(frame.time)}"
    if math.isinf(state.age):  # written before the machine was rebooted
        text = f"{state.text} · {last_seen}"
        return Freshness(text, theme.WARN, last_seen, state.age, word="stale", reason=text, frame_age=state.age)
    age = state.age or max(silence, 1.0)
    text = state.text
    if "last seen" not in state.text:
        text += f" · {last_seen}" if state.age else f" · {last_seen} ({ago(age)})"  # the state already contains the age
    return Freshness(text, theme.WARN, ago(age), age, word=_stale_text(age), reason=text, frame_age=age)
