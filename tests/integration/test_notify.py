"""`gpumon notify`: each event of a user's runs is sent once, also over restarts."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpumon.caps import CapState
from gpumon.common.errors import EXIT_FAILED, EXIT_OK, GpumonError
from gpumon.common.paths import Places
from gpumon.cost import Amount
from gpumon.diagnosis.finding import Finding, Severity, Subject
from gpumon.launcher.event_notifier import INTERVAL, EventNotifier, Notice, SentEvents, combined
from gpumon.launcher.notification import Notification
from gpumon.model.frame import Run
from gpumon.model.run import RunFacts
from gpumon.storage.ledger.change import user_name
from tests.builders import TIME, frame_of, run, tick
from tests.nvml import Stub
from tests.programs import PATIENCE, command, daemon, environment, gpumon, until

FAILING = "import gpumon\nwith gpumon.run('net', epochs=2) as run:\n  for _ in run.epochs(): raise ValueError"
WHOLE = "import gpumon\nwith gpumon.run('whole', epochs=2) as run:\n  for _ in run.epochs(): run.log(loss=0.25)"


class Receiver:
    """A program that appends each message to a file."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "messages"
        self.program = folder / "receive"
        self.program.write_text(f'#!/bin/sh\n{{ cat; echo "event=$GPUMON_EVENT"; echo ---; }} >> "{self._file}"\n')
        self.program.chmod(0o755)

    @property
    def messages(self) -> list[str]:
        return self._file.read_text().split("---\n")[:-1] if self._file.exists() else []


@pytest.fixture
def receiver(tmp_path: Path) -> Receiver:
    return Receiver(tmp_path)


@pytest.fixture
def env(stub: Stub, live_dir: Path) -> Iterator[dict[str, str]]:
    variables = environment(live_dir, stub.env())
    with daemon("--interval", "0.2", env=variables):
        yield variables


@contextmanager
def notifying(receiver: Receiver, env: dict[str, str]) -> Iterator[None]:
    process = subprocess.Popen(command("notify", str(receiver.program)), env=env)
    try:
        until(lambda: list((Path(env["GPUMON_STATE_DIR"])).glob("notified-*.json")))
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == EXIT_OK


def train(code: str, env: dict[str, str]) -> None:
    subprocess.run([sys.executable, "-c", code], env=env, check=False, stderr=subprocess.DEVNULL, timeout=PATIENCE)


def test_a_run_that_failed_is_told_once_over_restarts(env: dict[str, str], receiver: Receiver) -> None:
    train(WHOLE, env)
    until(lambda: "whole" in gpumon("history", "events", env=env).stdout)
    with notifying(receiver, env):
        train(FAILING, env)
        (message,) = until(lambda: receiver.messages)
    assert message.startswith("net-"), "no message for the run before the first start"
    assert "event=run_ended" in message
    with notifying(receiver, env):
        train(FAILING.replace("net", "other"), env)
        _, second = until(lambda: receiver.messages[1:] and receiver.messages)
    assert second.startswith("other-"), "the first run is not reported again"
    assert "event=run_ended" in second


LONG = """
import gpumon, time
with gpumon.run("long", epochs=100_000) as run:
    for _ in run.epochs():
        time.sleep(0.2)
"""


def test_a_run_that_will_exceed_its_time_limit_is_told_once(env: dict[str, str], receiver: Receiver) -> None:
    words = command("run", "--time-limit", "1h", "--", sys.executable, "-c", LONG)
    with notifying(receiver, env), subprocess.Popen(words, env=env, stderr=subprocess.DEVNULL) as training:
        (message,) = until(lambda: receiver.messages)
        training.terminate()
    assert "event=time_limit" in message
    assert len(receiver.messages) == 1


def test_a_test_message_shows_that_the_target_works(env: dict[str, str], receiver: Receiver, tmp_path: Path) -> None:
    assert gpumon("notify", "--test", str(receiver.program), env=env).returncode == EXIT_OK
    assert "event=test" in receiver.messages[0]
    receiver.program.write_text("#!/bin/sh\nexit 3\n")
    assert gpumon("notify", "--test", str(receiver.program), env=env).returncode == EXIT_FAILED


def test_two_notifiers_for_one_target_would_send_twice(env: dict[str, str], receiver: Receiver) -> None:
    with notifying(receiver, env):
        second = gpumon("notify", str(receiver.program), env=env)
    assert second.returncode == EXIT_FAILED


class Sent:
    """A target that keeps what it gets."""

    def __init__(self) -> None:
        self.notifications: list[Notification] = []
        self.fails = False

    def send(self, notification: Notification) -> None:
        if self.fails:
            raise GpumonError("the target failed")
        self.notifications.append(notification)


Polled = tuple[EventNotifier, Sent, Callable[[float, int], None]]
"""A notifier, its target, and a function that lets seconds pass and polls while a number of runs is stalled."""


class TestRate:
    """Messages for four stalled runs, which are found one after the other."""

    @pytest.fixture
    def notifier(self, tmp_path: Path) -> Polled:
        path = tmp_path / "sent.json"
        path.write_text('{"sent": []}')
        target, clock = Sent(), [TIME / 1e9 + 1000]
        places = Places(explicit=str(tmp_path / "live"), state=str(tmp_path / "state"))
        notifier = EventNotifier(places, "alice", target, SentEvents(str(path)), lambda: clock[0])

        def poll(seconds: float, runs: int) -> None:
            """Let time pass, and poll while this many runs are stalled."""
            clock[0] += seconds
            frame = frame_of(tick(1000, runs=[stalled_run(f"net-{number}") for number in range(runs)]))
            notifier.poll(frame)

        return notifier, target, poll

    def test_events_within_a_minute_are_sent_together(self, notifier: Polled) -> None:
        _, target, poll = notifier
        poll(0, 1)
        for runs in (2, 3, 3):
            poll(10, runs)
        assert len(target.notifications) == 1
        poll(INTERVAL, 3)
        assert [sent.facts["GPUMON_EVENT"] for sent in target.notifications] == ["stalled", "several"]

    def test_a_full_disk_stops_no_message(self, notifier: Polled, monkeypatch: pytest.MonkeyPatch) -> None:
        def full(*_: object) -> None:
            raise OSError(28, "No space left on device")

        _, target, poll = notifier
        monkeypatch.setattr("gpumon.launcher.event_notifier.os.replace", full)
        with pytest.raises(GpumonError):
            poll(0, 1)
        assert len(target.notifications) == 1
        poll(INTERVAL, 1)
        assert len(target.notifications) == 1

    def test_what_was_held_back_is_sent_at_the_end(self, notifier: Polled) -> None:
        held, target, poll = notifier
        poll(0, 1)
        poll(1, 2)
        held.flush()
        assert len(target.notifications) == 2

    def test_a_target_that_fails_gets_it_later(self, notifier: Polled) -> None:
        _, target, poll = notifier
        target.fails = True
        with pytest.raises(GpumonError):
            poll(0, 1)
        target.fails = False
        poll(1, 1)
        assert not target.notifications, "not at once"
        poll(INTERVAL, 1)
        assert len(target.notifications) == 1


class TestUrgent:
    @pytest.fixture
    def now(self) -> list[float]:
        return [TIME / 1e9 + 1000]

    @pytest.fixture
    def target(self) -> Sent:
        return Sent()

    @pytest.fixture
    def poll(self, tmp_path: Path, target: Sent, now: list[float]) -> Callable[[float, bool, float], None]:
        path = tmp_path / "sent.json"
        path.write_text('{"sent": []}')
        notifier = EventNotifier(Places(explicit=str(tmp_path), state=str(tmp_path)), "alice", target,
                                 SentEvents(str(path)), lambda: now[0])  # fmt: skip

        def poll(seconds: float, is_late: bool, cap: float) -> None:
            now[0] += seconds
            one = run(id="net", user="alice")
            subject = Subject("run", "net", "net")
            late = Finding("time_limit", Severity.WARNING, subject, f"{now[0]:.0f}", "")
            state = CapState("alice", False, "hours", 3600.0, Amount(cap * 3600.0), "month", 0.0, 30 * 86400.0)
            notifier.poll(frame_of(tick(1000, runs=[one])), [late] if is_late else [], [state])

        return poll

    def test_does_not_wait_after_another_message(self, poll: Callable[..., None], target: Sent) -> None:
        poll(0, False, 0.9)
        poll(5, True, 0.9)
        assert [sent.facts["GPUMON_EVENT"] for sent in target.notifications] == ["cap", "time_limit"]

    def test_is_first_and_current_when_it_had_to_wait(
        self, poll: Callable[..., None], target: Sent, now: list[float]
    ) -> None:
        target.fails = True
        with pytest.raises(GpumonError):
            poll(0, True, 0.9)
        target.fails = False
        poll(INTERVAL, True, 0.9)
        assert f"{now[0]:.0f}" in target.notifications[0].body.splitlines()[0]

    def test_is_dropped_when_it_no_longer_holds(self, poll: Callable[..., None], target: Sent) -> None:
        target.fails = True
        with pytest.raises(GpumonError):
            poll(0, True, 0.0)
        target.fails = False
        poll(INTERVAL, False, 0.0)
        assert not target.notifications


def stalled_run(id: str) -> Run:
    facts = RunFacts(stalled_since=TIME / 1e9 + 900)
    return run(key=f"tag.{id}", id=id, user="alice", step=100, phase="train", epoch=1, facts=facts)


class TestStalledRun:
    @pytest.fixture
    def target(self) -> Sent:
        return Sent()

    def poll(self, tmp_path: Path, target: Sent, since: float, user: str = "", step: int = 100) -> None:
        places = Places(explicit=str(tmp_path / "live"), state=str(tmp_path / "state"))
        path = tmp_path / "state" / "sent.json"
        if not path.exists():
            path.parent.mkdir()
            path.write_text(json.dumps({"sent": []}))
        name = user_name(0)
        second = 1000
        now = TIME / 1e9 + second
        stalled = run(user=user or name, step=step, phase="train", epoch=1, facts=RunFacts(stalled_since=since))
        notifier = EventNotifier(places, name, target, SentEvents(str(path)), lambda: now)
        notifier.poll(frame_of(tick(second, runs=[stalled])))

    def test_is_told_once_until_it_moves(self, tmp_path: Path, target: Sent) -> None:
        for _ in range(3):  # each with a notifier of its own, as after a restart
            self.poll(tmp_path, target, TIME / 1e9)
        assert [sent.facts["GPUMON_EVENT"] for sent in target.notifications] == ["stalled"]
        self.poll(tmp_path, target, TIME / 1e9, step=101)
        assert len(target.notifications) == 2

    def test_of_others_and_a_run_that_moves_are_not_told(self, tmp_path: Path, target: Sent) -> None:
        self.poll(tmp_path, target, TIME / 1e9, user="mallory")
        self.poll(tmp_path, target, 0.0)
        assert not target.notifications


def test_many_events_are_one_message(tmp_path: Path) -> None:
    notices = [Notice(("run_ended", str(number)), f"net-{number}: run ended", "body\nmore") for number in range(30)]
    message = combined(notices)
    assert message.title.startswith("30 ")
    assert len(message.body.splitlines()) < 15


def test_a_damaged_state_begins_anew(tmp_path: Path) -> None:
    path = tmp_path / "sent.json"
    for text in ("", "[]", '{"sent": 3}', '{"sent": [[1, 2, 3]]}', "\x00", "[" * 100_000):
        path.write_text(text)
        assert SentEvents(str(path)).is_new
    sent = SentEvents(str(path))
    sent.add([("run_ended", "1")], 10.0)
    assert path.stat().st_mode & 0o777 == 0o600
    assert ("run_ended", "1") in SentEvents(str(path))
    sent.add([], 10.0 + 3 * 86400)
    assert ("run_ended", "1") not in SentEvents(str(path))


class TestCaps:
    @pytest.fixture
    def target(self) -> Sent:
        return Sent()

    def poll(self, directory: Path, target: Sent, uses: Sequence[float], begin: float = 0.0, **fields: Any) -> None:
        """Poll once for each used number of hours, a minute apart, with a notifier of its own, as after a restart."""
        now = [begin]
        places = Places(explicit=str(directory), state=str(directory))
        notifier = EventNotifier(places, "ada", target, SentEvents(str(directory / "sent.json")), lambda: now[0])
        for used in uses:
            now[0] += INTERVAL
            state = CapState("ada", False, "hours", 3600.0, Amount(used * 3600.0), "month", 0.0, 30 * 86400.0)
            notifier.poll(None, caps=[replace(state, **fields)])

    def test_each_level_is_sent_once(self, tmp_path: Path, target: Sent) -> None:
        self.poll(tmp_path, target, (0.5, 0.79, 0.85, 0.9, 1.0, 1.2))
        assert [message.facts for message in target.notifications] == [{"GPUMON_EVENT": "cap"}] * 2
        self.poll(tmp_path, target, (1.2, 1.3), begin=20 * 86400.0)
        assert len(target.notifications) == 2, "it is the same month"

    def test_a_cap_that_is_used_up_at_the_first_start_is_sent(self, tmp_path: Path, target: Sent) -> None:
        self.poll(tmp_path, target, (1.2,))
        assert len(target.notifications) == 1

    @pytest.mark.parametrize("other", [{"limit": 3000.0}, {"is_group": True}])
    def test_another_cap_is_another_message(self, tmp_path: Path, target: Sent, other: dict[str, Any]) -> None:
        self.poll(tmp_path, target, (1.2,))
        self.poll(tmp_path, target, (1.2,), begin=600.0, **other)
        assert len(target.notifications) == 2
