"""`gpumon web` as a person starts it: a real server, on a port or a socket, with its token."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import socket
import stat
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from gpumon.common.errors import GpumonError
from gpumon.common.net import token_from
from tests.programs import PATIENCE, Child, command, environment, gpumon, until


@contextmanager
def web(env: dict[str, str], *arguments: object) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A server and the first line that it printed."""
    server = subprocess.Popen(
        command("web", *arguments), env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert server.stdout is not None
        line = server.stdout.readline()
        assert line, server.stderr.read() if server.stderr else ""
        yield server, line.strip()
    finally:
        server.terminate()
        server.communicate(timeout=PATIENCE)


def ask(link: str, path: str, token: bool = True) -> tuple[int, bytes]:
    """Ask a path of the server whose link this is."""
    found = re.fullmatch(r"http://127\.0\.0\.1:(\d+)/\?token=(\S+)", link)
    assert found, link
    connection = http.client.HTTPConnection("127.0.0.1", int(found[1]), timeout=PATIENCE)
    connection.request("GET", path, headers={"Authorization": f"Bearer {found[2]}"} if token else {})
    answer = connection.getresponse()
    try:
        return answer.status, answer.read()
    finally:
        connection.close()


def test_the_printed_link_opens_the_page_stays_good_and_sigterm_ends_it_at_once(live_dir: Path) -> None:
    env = environment(live_dir)
    with web(env, "--source", "sim", "--port", 0) as (server, link):
        assert ask(link, "/", token=False)[0] == 401
        assert ask(link, "/")[0] == 200
        first = until(lambda: (found := json.loads(ask(link, "/api/delta")[1]))["tables"] and found)
        assert first["label"] == "SIMULATED"
        assert len(first["tables"]["gpus"]["order"]) == 8
        until(lambda: json.loads(ask(link, "/api/delta")[1])["seq"] > first["seq"])
        server.send_signal(signal.SIGTERM)
        assert server.wait(timeout=PATIENCE) == 0
    (file,) = Path(env["GPUMON_STATE_DIR"]).glob("web-token")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    with web(env, "--source", "sim:one", "--port", 0) as (_, again):
        assert again.partition("token=")[2] == link.partition("token=")[2]


def test_ctrl_c_in_a_terminal_ends_it_in_silence_with_all_that_it_started(live_dir: Path) -> None:
    """The terminal interrupts every process of the group, also the one that reads runs."""
    words = command("web", "--source", "sim:one", "--port", 0)
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with Child(words, env=environment(live_dir), text=True, start_new_session=True, **pipes) as server:
        assert server.stdout is not None
        link = server.stdout.readline().strip()
        assert ask(link, "/")[0] == 200
        address = urlsplit(link)
        connection = http.client.HTTPConnection("127.0.0.1", address.port)
        token = address.query.removeprefix("token=")
        connection.request("GET", "/api/kept?page=runs", headers={"Authorization": f"Bearer {token}"})
        until(lambda: children(server.pid))
        begun = children(server.pid)
        os.killpg(server.pid, signal.SIGINT)
        _, said = server.communicate(timeout=PATIENCE)
        connection.close()
        assert (server.returncode, said.strip()) == (0, "")
        until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in begun))


def children(pid: int) -> list[int]:
    """Processes that a process has started."""
    found = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(word) for path in found for word in path.read_text().split()]


def test_a_socket_is_for_its_owner_only_and_goes_with_the_server(live_dir: Path, tmp_path: Path) -> None:
    path = tmp_path / "web.sock"
    env = environment(live_dir)
    with web(env, "--source", "sim:one", "--socket", path) as (server, line):
        assert "ssh -L" in line
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        connection = http.client.HTTPConnection("127.0.0.1")
        connection.sock = socket.socket(socket.AF_UNIX)
        connection.sock.connect(str(path))
        connection.request("GET", "/healthz")
        assert connection.getresponse().status == 200
        connection.close()
        server.send_signal(signal.SIGINT)
        assert server.wait(timeout=PATIENCE) == 0
    assert not path.exists()


def test_a_socket_that_a_killed_server_left_is_taken_over_and_a_file_is_not(live_dir: Path, tmp_path: Path) -> None:
    path = tmp_path / "web.sock"
    env = environment(live_dir)
    with web(env, "--source", "sim:one", "--socket", path) as (server, _):
        server.kill()
        server.wait()
    assert path.exists()
    with web(env, "--source", "sim:one", "--socket", path):
        refused = gpumon("web", "--source", "sim:one", "--socket", path, env=env)
        assert refused.returncode == 1, "one that is served is left alone"
    path.write_text("a file of the user's")
    refused = gpumon("web", "--source", "sim:one", "--socket", path, env=env)
    assert refused.returncode == 1
    assert "pass another --socket" in refused.stderr
    assert path.read_text() == "a file of the user's"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--host", "0.0.0.0", "--no-token"], "whole network"),
        (["--host", "::", "--no-token"], "whole network"),
        (["--no-token", "--token-file", "x"], "conflict"),
        (["--token-file", "/nowhere/token"], "no such token file"),
        (["--port", "99999"], "--port must be 0 to 65535"),
        (["--host", "no.such.host.invalid"], "cannot listen"),
    ],
)  # fmt: skip
def test_what_makes_no_sense_or_is_not_safe_is_refused_in_one_line(
    live_dir: Path, arguments: list[str], said: str
) -> None:
    answer = gpumon("web", "--source", "sim:one", *arguments, env=environment(live_dir))
    assert answer.returncode in (1, 2)
    assert said in answer.stderr
    assert answer.stderr.count("\n") == 1


def test_a_port_that_is_taken_says_what_to_do(live_dir: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        answer = gpumon("web", "--source", "sim:one", "--port", taken.getsockname()[1], env=environment(live_dir))
    assert answer.returncode == 1
    assert "another --port" in answer.stderr


def test_a_token_that_others_can_read_or_that_is_too_short_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("0123456789abcdef0123")
    file.chmod(0o644)
    with pytest.raises(GpumonError, match="other users can read"):
        token_from(str(file), make=False)
    file.chmod(0o600)
    assert token_from(str(file), make=False) == "0123456789abcdef0123"
    for bad in ("short", "", "has some spaces in it", "é" * 20):
        file.write_text(bad)
        with pytest.raises(GpumonError, match="at least"):
            token_from(str(file), make=False)
    link = tmp_path / "link"
    os.symlink(file, link)
    with pytest.raises(GpumonError, match="is a symbolic link"):
        token_from(str(link), make=True)


def test_large_requests_are_refused_and_slow_clients_keep_nobody_waiting(live_dir: Path) -> None:
    """More connections than there are threads, each in the middle of a request or of an answer."""
    with web(environment(live_dir), "--source", "sim:one", "--port", 0) as (_, link):
        port = int(link.split(":")[2].partition("/")[0])
        token = link.partition("token=")[2]

        def twenty() -> float:
            """Seconds that as many answers take."""
            began = time.monotonic()
            for _ in range(20):
                assert ask(link, "/api/delta")[0] == 200
            return time.monotonic() - began

        for request in (
            b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX: " + b"a" * 100_000 + b"\r\n\r\n",
            b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1000000000\r\n\r\n",
        ):
            with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as one:
                one.sendall(request)
                assert one.recv(64).startswith((b"HTTP/1.1 431", b"HTTP/1.1 413", b"HTTP/1.0 431", b"HTTP/1.0 413"))
        usual = twenty()
        slow = [socket.create_connection(("127.0.0.1", port)) for _ in range(40)]
        for i, one in enumerate(slow):
            if i % 2:
                one.sendall(b"GET /api/delta HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: ")
            else:  # asks for a quarter of a megabyte and reads none of it
                one.sendall(
                    b"GET /_dash-component-suites/dash/dash-renderer/build/dash_renderer.min.js HTTP/1.1\r\n"
                    b"Host: 127.0.0.1\r\nAuthorization: Bearer "
                    + token.encode() + b"\r\n\r\n"
                )  # fmt: skip
        assert twenty() < 25 + 2 * usual, "seconds; one stuck thread would be 30"
        for one in slow:
            one.close()
