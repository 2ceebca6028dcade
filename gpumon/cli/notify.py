"""Tell TARGET when something happens to your runs, until Ctrl-C.

TARGET is a program, which gets the text on its standard input, or @FILE. The file must have mode 0600 and contain a URL
that accepts POST (ntfy, Slack, Discord, ...). A message is sent when a run of yours ends, fails or dies, with its cost
and last metrics. Messages are also sent when a run of yours runs out of memory, stalls, or will not be done before its
time limit, when a GPU that you hold stays idle, and when 80 % or all of a cap on your usage is used. Each event is sent
once, even if this command is restarted, and there is at most one message per minute. Needs a running daemon.

  gpumon notify @$HOME/.config/gpumon/notify
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import os
import time

from gpumon.caps import CapState, read_cap_states
from gpumon.cli.options import add_places, resolve_options
from gpumon.cli.signals import EndSignal
from gpumon.cli.streams import print_message
from gpumon.common.errors import EXIT_OK, GpumonError
from gpumon.common.paths import Places, history_paths
from gpumon.common.text import clean
from gpumon.diagnosis.finding import Finding
from gpumon.diagnosis.live_findings import JudgedFrame, epochs_from_boundaries
from gpumon.launcher.notification import Notification, Target, parse_target
from gpumon.live import Live, follow
from gpumon.model.frame import Frame
from gpumon.storage.ledger.change import user_name

FINDINGS = ("time_limit",)
"""Kinds of findings about runs for which a message is sent. Others are sent when they are logged as events."""
_CAPS_EVERY = 60.0
"""Seconds between two readings of the caps on usage. The daemon writes usage once a minute."""
_POLL = 2.0
"""Seconds between two readings of the event log."""


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("target", metavar="TARGET", help="a program, or @FILE with a URL")
    parser.add_argument("--test", action="store_true", help="send one message now, and exit")
    add_places(parser)


def run(arguments: argparse.Namespace) -> int:
    places, arguments = resolve_options(arguments)
    target = parse_target(arguments.target, "TARGET")
    if arguments.test:
        target.send(Notification("gpumon: test", "Notifications of gpumon arrive here.", {"GPUMON_EVENT": "test"}))
        print_message("gpumon: sent")
        return EXIT_OK
    if not places.state:
        raise GpumonError("no directory persists across restarts: set HOME, or pass --state-dir")
    # One state per target, so that each of two targets gets every event. The name does not reveal the target.
    path = f"{places.state}/notified-{hashlib.sha256(arguments.target.encode()).hexdigest()[:12]}.json"
    lock = _lock(path)
    try:
        with EndSignal() as stop:
            _follow(places, target, path, stop, arguments)
    finally:
        os.close(lock)
    return EXIT_OK


def _lock(path: str) -> int:
    """Lock the state of this target and return the descriptor. Raises GpumonError if another process has locked it."""
    try:
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        lock = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise GpumonError(f"cannot write to {os.path.dirname(path)}: {error.strerror}") from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        raise GpumonError("another 'gpumon notify' already sends to this target") from None
    return lock


def _follow(places: Places, target: Target, path: str, stop: EndSignal, settings: argparse.Namespace) -> None:
    from gpumon.launcher.event_notifier import EventNotifier, SentEvents

    user = user_name(places.uid)
    notifier = EventNotifier(places, user, target, SentEvents(path), time.time, settings.prices)
    live = follow(places)
    last_topic = ""
    caps, caps_read = list[CapState](), -_CAPS_EVERY
    try:
        while True:
            state = live.state()
            topic, problem = ("", "") if state.live else ("daemon", f"nothing is sampled: {state.text}")
            try:
                frame = live.latest() if state.live else None
                findings = _run_findings(live, frame) if frame is not None else ()
                if time.monotonic() - caps_read >= _CAPS_EVERY:
                    caps_read, caps = time.monotonic(), own_caps(places, user, settings)
                notifier.poll(frame, findings, caps)
            except GpumonError as error:
                topic = problem = clean(str(error), 300)
            if topic and topic != last_topic:  # the text about a silent daemon has its age, which changes all the time
                print_message(f"gpumon: {problem}")
            last_topic = topic
            if stop.wait(_POLL):
                notifier.flush()
                return
    finally:
        live.close()


def _run_findings(live: Live, frame: Frame) -> list[Finding]:
    """Return the findings about runs whose kind is in `FINDINGS`."""
    if not any(run.facts.time_limit for run in frame.runs):  # without a limit, there is nothing to estimate
        return []
    judged = JudgedFrame(frame, epochs=epochs_from_boundaries(live, frame))
    return [finding for finding in judged.findings() if finding.kind in FINDINGS]


def own_caps(places: Places, user: str, settings: argparse.Namespace) -> list[CapState]:
    """Return the caps that apply to a user. Empty if none are configured, or without a history."""
    paths = history_paths(places) if settings.caps else []
    if not paths:
        return []
    return read_cap_states(paths[0], settings.caps, settings.user_groups, settings.prices, time.time(), user)
