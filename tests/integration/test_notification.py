"""`gpumon run --notify`: what a program or a URL is told, and that a failing one costs the command nothing."""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from base64 import b64decode
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from gpumon.common.errors import GpumonError, UsageError
from gpumon.launcher import notification
from gpumon.launcher.notification import Notification, WebTarget, parse_target
from tests.nvml import Stub
from tests.programs import environment, gpumon

SECRET = "topic-7f3a91c04e"
MESSAGE = Notification("resnet50: exit code 3", "gpumon  resnet50\n  time  12 s\n")


@dataclass
class Receiver:
    """A local HTTP server that records what it gets, and responds with a status per request."""

    statuses: list[int] = field(default_factory=list)
    """Statuses of the next responses; 200 after the last one."""
    requests: list[tuple[str, dict[str, str], str]] = field(default_factory=list)
    """Path, headers and body of each request."""
    port: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/{SECRET}"


@contextmanager
def receiving() -> Iterator[Receiver]:
    receiver = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            receiver.requests.append((self.path, dict(self.headers), body))
            status = receiver.statuses.pop(0) if receiver.statuses else 200
            self.send_response(status)
            if status == 302:
                self.send_header("Location", "http://127.0.0.1:1/elsewhere")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    receiver.port = server.server_port
    thread = Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield receiver
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as receiver:
        yield receiver


def url_file(path: Path, url: str, mode: int = 0o600) -> str:
    path.write_text(f"{url}\n")
    path.chmod(mode)
    return f"@{path}"


class TestLogin:
    def test_it_is_sent_as_basic_authentication(self, receiver: Receiver, tmp_path: Path) -> None:
        url = receiver.url.replace("http://", "http://user:p%40ss@")
        parse_target(url_file(tmp_path / "url", url)).send(MESSAGE)
        ((path, headers, _),) = receiver.requests
        assert path == f"/{SECRET}"
        assert b64decode(headers["Authorization"].removeprefix("Basic ")) == b"user:p@ss"

    def test_it_is_in_no_error(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(notification, "_PAUSE", 0.0)
        target = parse_target(url_file(tmp_path / "url", "http://user:p4ss@127.0.0.1:1/x"))
        with pytest.raises(GpumonError) as caught:
            target.send(MESSAGE)
        assert "p4ss" not in f"{caught.value}{target}"


def test_a_server_that_drips_has_no_more_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notification, "_TOTAL_TIMEOUT", 1.0)
    with socket.create_server(("127.0.0.1", 0)) as server:

        def drip() -> None:
            connection, _ = server.accept()
            with connection, suppress(OSError):
                for letter in b"HTTP/1.1 200 OK\r\nX-Long: " + b"x" * 1000:
                    connection.sendall(bytes([letter]))
                    time.sleep(0.1)

        thread = Thread(target=drip, daemon=True)
        thread.start()
        began = time.monotonic()
        with pytest.raises(GpumonError):
            WebTarget(f"http://127.0.0.1:{server.getsockname()[1]}/x").send(MESSAGE)
        assert time.monotonic() - began < 20, "not the 100 s that the answer takes"


class TestCommand:
    def test_a_url_is_told_once_and_stays_secret(self, receiver: Receiver, tmp_path: Path, live_dir: Path) -> None:
        target = url_file(tmp_path / "url", receiver.url)
        script = "cat /proc/$PPID/cmdline /proc/self/environ; exit 3"
        done = gpumon("run", "--notify", target, "--", "sh", "-c", script, env=environment(live_dir))
        assert done.returncode == 3
        ((path, headers, body),) = receiver.requests
        assert path == f"/{SECRET}"
        assert headers["Title"] == "sh: exit code 3"
        assert body == done.stderr[done.stderr.index("gpumon  ") :]
        assert SECRET not in done.stdout + done.stderr
        for file in live_dir.rglob("*"):
            assert not file.is_file() or SECRET.encode() not in file.read_bytes(), file

    def test_a_program_gets_the_text_and_facts(self, tmp_path: Path, live_dir: Path) -> None:
        program = tmp_path / "tell"
        program.write_text(f"#!/bin/sh\n{{ echo $GPUMON_EXIT_CODE $GPUMON_SIGNAL; cat; }} > '{tmp_path}/told'\n")
        program.chmod(0o755)
        done = gpumon("run", "--notify", program, "--name", "mine", "--", "true", env=environment(live_dir))
        assert done.returncode == 0
        first, title, *summary = (tmp_path / "told").read_text().splitlines()
        assert (first, title) == ("0 0", "mine: finished")
        assert summary == done.stderr.splitlines()

    def test_it_leaves_sampling_and_settings_as_they_are(self, receiver: Receiver, tmp_path: Path, stub: Stub) -> None:
        live_dir = tmp_path / "live"
        live_dir.mkdir(mode=0o700)
        script = "import os, time; from pathlib import Path; from tests.nvml import Process, Stub\n"
        script += (
            "Stub.attach(Path(os.environ['GPUMON_STUB_FILE'])).set_processes(0, [Process(os.getpid())]); time.sleep(4)"
        )
        env = environment(live_dir, stub.env()) | {"PYTHONPATH": str(Path(__file__).parents[2])}
        target = url_file(tmp_path / "url", receiver.url)
        done = gpumon("run", "--notify", target, "--", sys.executable, "-c", script, env=env)
        ((_, _, body),) = receiver.requests
        assert done.returncode == 0
        assert "energy" in body
        assert "GPU memory" in body

    def test_a_failure_changes_no_exit_code(self, receiver: Receiver, tmp_path: Path, live_dir: Path) -> None:
        receiver.statuses = [404]
        target = url_file(tmp_path / "url", receiver.url)
        done = gpumon("run", "--notify", target, "--", "sh", "-c", "exit 5", env=environment(live_dir))
        assert done.returncode == 5
        assert "HTTP 404" in done.stderr.splitlines()[-1]
        assert SECRET not in done.stderr

    @pytest.mark.parametrize("target", ["no-such-program", "https://ntfy.sh/topic", "@nowhere", ""])
    def test_an_invalid_target_is_refused_before_the_command(self, tmp_path: Path, live_dir: Path, target: str) -> None:
        done = gpumon("run", "--notify", target, "--", "touch", tmp_path / "ran", env=environment(live_dir))
        assert done.returncode == 2
        assert done.stderr.count("\n") == 1
        assert not (tmp_path / "ran").exists()


class TestUrl:
    @pytest.mark.parametrize(
        ("text", "mode"),
        [("https://ntfy.sh/x", 0o644), ("", 0o600), ("ftp://x/y", 0o600), ("https://", 0o600), ("a b", 0o600),
         ("https://x/ y", 0o600), ("https://[::1", 0o600), ("https://x/é", 0o600), ("https://x/" + "y" * 5000, 0o600)],
    )  # fmt: skip
    def test_invalid_files(self, tmp_path: Path, text: str, mode: int) -> None:
        with pytest.raises(UsageError) as raised:
            parse_target(url_file(tmp_path / "url", text, mode))
        assert "\n" not in str(raised.value)

    def test_a_fifo_is_not_waited_for(self, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / "url", 0o600)
        with pytest.raises(UsageError):
            parse_target(f"@{tmp_path / 'url'}")

    def test_the_url_is_in_no_repr(self, tmp_path: Path) -> None:
        assert SECRET not in repr(parse_target(url_file(tmp_path / "url", f"https://ntfy.sh/{SECRET}")))

    @pytest.mark.parametrize(("host", "key"), notification._JSON_KEYS.items())
    def test_services_with_json(self, receiver: Receiver, monkeypatch: pytest.MonkeyPatch, host: str, key: str) -> None:
        monkeypatch.setattr(notification, "_JSON_KEYS", {"127.0.0.1": key})
        WebTarget(receiver.url).send(MESSAGE)
        ((_, headers, body),) = receiver.requests
        assert headers["Content-Type"] == "application/json"
        assert json.loads(body) == {key: f"{MESSAGE.title}\n{MESSAGE.body}"}

    @pytest.mark.parametrize(("statuses", "requests"), [([500, 503], 3), ([429], 2), ([403], 1), ([302], 1)])
    def test_attempts(
        self, receiver: Receiver, monkeypatch: pytest.MonkeyPatch, statuses: list[int], requests: int
    ) -> None:
        monkeypatch.setattr(notification, "_PAUSE", 0.01)
        receiver.statuses = list(statuses)
        send: Callable[[], None] = lambda: WebTarget(receiver.url).send(MESSAGE)  # noqa: E731
        if statuses[0] in (403, 302):
            with pytest.raises(GpumonError) as raised:
                send()
            assert SECRET not in str(raised.value)
        else:
            send()
        assert len(receiver.requests) == requests

    def test_a_server_that_hangs(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(notification, "_TIMEOUT", 0.05)
        monkeypatch.setattr(notification, "_PAUSE", 0.01)
        with socket.create_server(("127.0.0.1", 0)) as silent, pytest.raises(GpumonError):
            WebTarget(f"http://127.0.0.1:{silent.getsockname()[1]}/{SECRET}").send(MESSAGE)

    def test_a_title_in_another_script(self, receiver: Receiver) -> None:
        WebTarget(receiver.url).send(Notification("模型: finished", "body\n"))
        ((_, headers, _),) = receiver.requests
        assert headers["Title"] == "??: finished"
