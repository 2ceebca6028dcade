"""Sends one notification for each event of a user's runs and GPUs, from the event log and the newest frame."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from gpumon.analysis.ranks import Ranks, ranks_of
from gpumon.caps import CapState
from gpumon.common.config import Prices
from gpumon.common.errors import GpumonError
from gpumon.common.numbers import NAN, is_known
from gpumon.common.paths import Places, history_paths, ledger_paths, read_regular
from gpumon.common.text import clean
from gpumon.diagnosis.finding import Finding
from gpumon.launcher.notification import Notification, Target
from gpumon.model import units
from gpumon.model.frame import Frame
from gpumon.model.metrics import Unit
from gpumon.reports.caps import TITLES, prospect, share_text, usage_text
from gpumon.reports.events import details
from gpumon.storage.events.query import EventFilter, LoggedEvent, read_events
from gpumon.storage.ledger.api import PastLedger, PastRun

KINDS = ("run_ended", "run_died", "out_of_memory", "idle_began")
"""Kinds of logged events about which a user is notified."""
CAP_LEVELS = (0.8, 1.0)
"""A message is sent when this share of a cap is used."""
INTERVAL = 60.0
"""Minimum seconds between two notifications. What happens in between is sent together."""
_URGENT = ("time_limit", "stalled")
"""Kinds that do not wait for `INTERVAL` after other notifications, only after one of these kinds."""
_WINDOW = 86400.0
"""Age in seconds of the oldest event that is still sent, for example after the notifier was restarted."""
_CAP, _CAP_WINDOW = "cap", 32 * 86400.0
"""First part of the keys of caps, and seconds for which they are kept: the longest period of a cap is a month."""
_MAX_TITLES = 12
_MAX_WAITING = 1000
"""Maximum number of events that are held back while the target fails."""
_MAX_STATE = 4 << 20

Key = tuple[str, ...]
"""Identifies an event, so that it is sent only once."""


@dataclass(frozen=True, slots=True)
class Notice:
    """An event of which the user is notified."""

    key: Key
    title: str
    body: str = ""

    @property
    def is_urgent(self) -> bool:
        return self.key[0] in _URGENT


class SentEvents:
    """Keys of the events that were sent, or that were logged before the first start. Stored in a file of this user."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._times: dict[Key, float] = {}
        """Time at which each key was added (s since 1970)."""
        self.is_new = True
        """Whether there is no file of an earlier notifier."""
        with suppress(OSError, ValueError, TypeError, KeyError, ArithmeticError, RecursionError):
            saved = json.loads(read_regular(path, _MAX_STATE))
            self._times = {tuple(map(str, key)): float(time) for key, time in saved["sent"]}
            self.is_new = False

    def __contains__(self, key: Key) -> bool:
        return key in self._times

    def add(self, keys: Collection[Key], now: float) -> None:
        """Add keys, forget those whose event can no longer be found, and save the file.

        Raises GpumonError if that fails.
        """
        self._times |= dict.fromkeys(keys, now)
        self._times = {
            key: time
            for key, time in self._times.items()
            if now - time < (_CAP_WINDOW if key[0] == _CAP else 2 * _WINDOW)
        }
        self._save()

    def remove(self, keys: Collection[Key]) -> None:
        """Remove keys, and save the file. Raises GpumonError if that fails."""
        self._times = {key: time for key, time in self._times.items() if key not in keys}
        self._save()

    def _save(self) -> None:
        text = json.dumps({"sent": [[list(key), time] for key, time in self._times.items()]})
        temporary = f"{self._path}.{os.getpid()}"
        try:
            os.makedirs(os.path.dirname(self._path), mode=0o700, exist_ok=True)
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
            with open(os.open(temporary, flags, 0o600), "w", encoding="utf-8") as file:
                file.write(text)
            os.replace(temporary, self._path)
        except OSError as error:
            with suppress(OSError):
                os.unlink(temporary)
            raise GpumonError(f"cannot remember what was sent in {self._path}: {error.strerror or error}") from error


class EventNotifier:
    """Finds what happened to a user's runs and GPUs, and sends it to a target."""

    def __init__(
        self, places: Places, user: str, target: Target, sent: SentEvents, now: Callable[[], float],
        prices: Prices | None = None,
    ) -> None:  # fmt: skip
        self._prices = prices
        self._places, self._user, self._target, self._sent, self._now = places, user, target, sent, now
        self._waiting: list[Notice] = []
        self._last_sent = self._last_urgent = -INTERVAL
        self._is_first = sent.is_new

    def poll(self, frame: Frame | None, findings: Collection[Finding] = (), caps: Sequence[CapState] = ()) -> None:
        """Look for new events, and send what may be sent now.

        Raises GpumonError if sending fails; a later call tries again.

        `frame`: the newest frame; None if no daemon samples. Logged events from before the first start are not sent,
        but present conditions are: a stalled run, a used cap.
        `findings`: findings about the runs in the frame to send, at most one of a kind per run.
        `caps`: the caps that apply to the user.
        """
        self._drop_stale(frame)
        logged = [*self._logged_notices()]
        if self._is_first:
            self._is_first = False
            self._sent.add([notice.key for notice in logged], self._now())
            logged = []
        present = [*self._cap_notices(caps)]
        if frame is not None:
            present += [*self._stalled_notices(frame), *self._found_notices(frame, findings)]
        self._waiting = [*self._waiting, *logged, *present][-_MAX_WAITING:]
        is_urgent = any(notice.is_urgent for notice in self._waiting) and self._now() - self._last_urgent >= INTERVAL
        if is_urgent or self._now() - self._last_sent >= INTERVAL:
            self.flush()

    def _drop_stale(self, frame: Frame | None) -> None:
        """Drop urgent notices that are waiting, except of runs that still stall. `poll` adds what still holds."""
        stalled = set[Key]()
        if frame is not None:
            stalled = {_stalled_key(ranks) for ranks in ranks_of(frame.runs) if ranks.stalled_since < frame.time}
        self._waiting = [notice for notice in self._waiting if not notice.is_urgent or notice.key in stalled]

    def flush(self) -> None:
        """Send all events that were held back. Raises GpumonError if that fails, or if it cannot be remembered."""
        if not self._waiting:
            return
        self._waiting.sort(key=lambda notice: not notice.is_urgent)
        self._last_sent = self._now()
        if self._waiting[0].is_urgent:
            self._last_urgent = self._now()
        keys = [notice.key for notice in self._waiting]
        problem: GpumonError | None = None
        try:
            self._sent.add(keys, self._now())  # before sending: after a crash in between, nothing is sent twice
        except GpumonError as error:  # on a full disk, sent twice after a restart is better than not at all
            problem = error
        try:
            self._target.send(combined(self._waiting))
        except GpumonError:
            with suppress(GpumonError):
                self._sent.remove(keys)
            raise
        self._waiting = []
        if problem is not None:
            raise problem

    def _is_new(self, key: Key) -> bool:
        return key not in self._sent and all(notice.key != key for notice in self._waiting)

    def _logged_notices(self) -> Iterator[Notice]:
        since = self._now() - _WINDOW
        for path in history_paths(self._places):
            for event in read_events(path, since, wanted=EventFilter(KINDS, user=self._user)):
                subject = event.subject
                key = (event.kind.name, str(event.time_ns), subject.device, subject.run)
                if self._is_new(key):
                    yield Notice(key, _title(event), self._body(event))

    def _body(self, event: LoggedEvent) -> str:
        lines = [details(event)]
        if event.subject.run and event.kind.name.startswith("run_"):
            with suppress(GpumonError), PastLedger(ledger_paths(self._places)) as ledger:
                lines.append(cost_text(ledger.run(event.subject.run)))
        return "\n".join(filter(None, lines))

    def _stalled_notices(self, frame: Frame) -> Iterator[Notice]:
        for ranks in ranks_of(frame.runs):
            run, silent = ranks.slowest, frame.time - ranks.stalled_since
            if run.user != self._user or not silent > 0:
                continue
            key = _stalled_key(ranks)
            if self._is_new(key):
                position = units.epoch_position(run.epoch, run.epochs, run.base) if run.epoch >= 0 else run.step_text
                body = f"no progress for {units.duration(silent)}" + (f", at {position}" if position else "")
                yield Notice(
                    key, f"{clean(run.name, 60)}: stalled", f"{body}\n{self._why_stalled(run.id, frame)}".strip()
                )

    def _why_stalled(self, id: str, frame: Frame) -> str:
        """Return one sentence on where the processes of a stalled run wait; empty if they cannot be read."""
        from gpumon.hang.own_runs import read_own_runs  # loaded only when a run is stalled
        from gpumon.hang.report import collect

        ranks = next((ranks for ranks in read_own_runs(self._places, frame) if ranks.first.id == id), None)
        return collect(ranks, self._now()).sentence if ranks is not None else ""

    def _cap_notices(self, caps: Sequence[CapState]) -> Iterator[Notice]:
        for state in caps:
            level = max((level for level in CAP_LEVELS if state.share >= level), default=NAN)
            kind = "group" if state.is_group else "user"
            key = (_CAP, kind, state.holder, state.measure, f"{state.limit:g}", f"{state.begin:.0f}", f"{level:g}")
            if is_known(level) and self._is_new(key):
                title = f"{clean(state.holder, 60)}: {share_text(state)} of the cap on {TITLES[state.measure]} is used"
                yield Notice(key, title, ", ".join(filter(None, (usage_text(state, self._prices), prospect(state)))))

    def _found_notices(self, frame: Frame, findings: Collection[Finding]) -> Iterator[Notice]:
        own = {run.id for run in frame.runs if run.user == self._user}
        for finding in findings:
            key = (finding.kind, finding.subject.id)
            if finding.subject.id in own and self._is_new(key):
                yield Notice(key, f"{clean(finding.subject.title, 60)}: {finding.summary}", finding.action)


def _stalled_key(ranks: Ranks) -> Key:
    return ("stalled", ranks.slowest.id, str(ranks.slowest.step))


def _title(event: LoggedEvent) -> str:
    subject = clean(event.subject.run or event.device or event.subject.user, 60)
    return f"{subject}: {event.kind.label}"


def cost_text(run: PastRun) -> str:
    """Return what a run cost and its last metrics, on one line."""
    parts = [units.duration(run.seconds)] if is_known(run.seconds) else []
    if run.epochs_done is not None and run.epochs_planned:
        parts.append(f"{run.epochs_done} of {run.epochs_planned} epochs")
    if is_known(run.energy):
        parts.append(units.number(run.energy, Unit.JOULES))
    metrics: Mapping[str, float] = run.total.metrics
    parts += [f"{clean(name, 40)} {units.logged_number(value)}" for name, value in [*metrics.items()][:4]]
    return ", ".join(parts)


def combined(notices: Sequence[Notice]) -> Notification:
    """Return one notification for all notices."""
    if len(notices) == 1:
        return Notification(notices[0].title, notices[0].body, {"GPUMON_EVENT": notices[0].key[0]})
    shown = [f"{notice.title} ({notice.body.partition(chr(10))[0]})" for notice in notices[:_MAX_TITLES]]
    if len(notices) > _MAX_TITLES:
        shown.append(f"and {len(notices) - _MAX_TITLES} more")
    return Notification(f"{len(notices)} events", "\n".join(shown), {"GPUMON_EVENT": "several"})
