"""The thread that waits for keys, on a real pseudo terminal."""

from __future__ import annotations

import os
import pty
import select
import tty
from collections.abc import Iterator
from queue import Queue
from threading import Thread
from typing import Any

import pytest
from textual.drivers.headless_driver import HeadlessDriver
from textual.drivers.linux_driver import LinuxDriver
from textual.events import Key
from textual.message import Message
from textual.messages import TerminalSupportsSynchronizedOutput

from gpumon_tui._textual import INPUT_NAMES, WaitingDriver, missing, waiting_driver
from tests.programs import PATIENCE


class Keyboard(WaitingDriver):
    """The thread alone: no application, no signal handlers, a terminal of its own."""

    def __init__(self) -> None:
        self.master, self.fileno = pty.openpty()
        tty.setraw(self.fileno)
        self._debug = False
        self._wake_read, self._wake_write = os.pipe()
        self.came: Queue[Message] = Queue()
        self._key_thread = Thread(target=self.run_input_thread, daemon=True)
        self._key_thread.start()

    def process_message(self, message: Message) -> None:
        self.came.put(message)

    def type(self, typed: bytes) -> None:
        os.write(self.master, typed)

    def key(self) -> str:
        message = self.came.get(timeout=PATIENCE)
        assert isinstance(message, Key)
        return message.key

    def end(self) -> None:
        os.write(self._wake_write, b"\0")
        assert self._key_thread is not None
        self._key_thread.join(PATIENCE)
        assert not self._key_thread.is_alive()


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[int | None]:
    """How long the thread was ready to wait each time (ms); None for as long as it takes."""
    found: list[int | None] = []

    class Counted:
        def __init__(self) -> None:
            self.poller = poll()
            self.register, self.unregister = self.poller.register, self.poller.unregister

        def poll(self, timeout: int | None) -> list[tuple[int, int]]:
            found.append(timeout)
            return self.poller.poll(timeout)

    poll: Any = select.poll
    monkeypatch.setattr(select, "poll", Counted)
    return found


@pytest.fixture
def keyboard(waits: list[int | None]) -> Iterator[Keyboard]:
    made = Keyboard()
    yield made
    made.end()
    for descriptor in (made.master, made.fileno, made._wake_read, made._wake_write):
        if descriptor >= 0:
            os.close(descriptor)


def test_keys_are_handed_on_in_order(keyboard: Keyboard) -> None:
    keyboard.type("jé\x1b[A".encode())
    assert [keyboard.key() for _ in range(3)] == ["j", "é", "up"]


def test_an_escape_by_itself_becomes_a_key_without_another(keyboard: Keyboard) -> None:
    keyboard.type(b"\x1b")
    assert keyboard.key() == "escape"


def test_nothing_is_looked_for_while_nothing_comes(keyboard: Keyboard, waits: list[int | None]) -> None:
    keyboard.type(b"\x1b")
    keyboard.key()
    keyboard.type(b"j")
    keyboard.key()
    keyboard.end()
    assert waits[0] is None
    assert waits[-1] is None, "it waits for as long as it takes once no sequence is open"


@pytest.mark.parametrize("typed", [b"\x1b[?2026;2$y", b"j\x1b[?2026;2$y", b"\x1b[?2026;1$yj"])
def test_the_answer_to_the_question_behind_each_frame_is_handed_on(keyboard: Keyboard, typed: bytes) -> None:
    keyboard.type(typed)
    came = [keyboard.came.get(timeout=PATIENCE) for _ in range(1 + (b"j" in typed))]
    assert sum(isinstance(one, TerminalSupportsSynchronizedOutput) for one in came) == 1
    assert [one.key for one in came if isinstance(one, Key)] == ["j"] * (b"j" in typed)


def test_an_answer_that_is_cut_in_two_is_handed_on(keyboard: Keyboard) -> None:
    keyboard.type(b"\x1b[?2026")
    keyboard.type(b";2$y")
    assert isinstance(keyboard.came.get(timeout=PATIENCE), TerminalSupportsSynchronizedOutput)


def test_that_it_does_not_know_synchronized_output_is_not_handed_on(keyboard: Keyboard) -> None:
    keyboard.type(b"\x1b[?2026;0$y")
    keyboard.type(b"j")
    assert keyboard.key() == "j"


def test_bytes_that_are_no_text_do_not_end_it(keyboard: Keyboard) -> None:
    keyboard.type(b"\xff\xfej")
    while keyboard.key() != "j":
        pass


def test_a_terminal_that_is_gone_is_not_read_for_ever(keyboard: Keyboard, waits: list[int | None]) -> None:
    keyboard.type(b"j")
    keyboard.key()
    os.close(keyboard.master)
    keyboard.master = -1
    keyboard.end()
    assert len(waits) < 8


def test_only_the_usual_driver_is_replaced() -> None:
    assert missing(INPUT_NAMES) == [], "pin Textual, or teach gpumon_tui._textual its new names"
    assert waiting_driver(LinuxDriver) is WaitingDriver
    assert waiting_driver(HeadlessDriver) is HeadlessDriver
    assert waiting_driver(LinuxDriver, [("textual.gone", "App", ())]) is LinuxDriver
