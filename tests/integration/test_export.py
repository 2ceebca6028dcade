"""`gpumon export` beside a daemon on the stub driver: what it serves, what it costs the driver, and how it ends."""

from __future__ import annotations

import ctypes
import http.client
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.exported import Page
from tests.nvml import Stub
from tests.nvml.stub import Process
from tests.programs import PATIENCE, command, daemon, environment, gpumon, in_process, until


@contextmanager
def exporting(*arguments: object, env: Mapping[str, str]) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """An exporter, and the line that it began with."""
    process = subprocess.Popen(
        command("export", *arguments), env=dict(env), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        line = process.stdout.readline()
        assert line.startswith("gpumon export: "), process.stderr.read()
        yield process, line
    finally:
        if process.poll() is None:
            process.terminate()
        process.wait(timeout=PATIENCE)
        process.stdout.close()
        process.stderr.close()


def port_of(line: str) -> int:
    return int(line.split("/metrics")[0].rpartition(":")[2])


def scrape(port: int) -> Page:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    connection.request("GET", "/metrics")
    answer = connection.getresponse()
    assert answer.status == 200
    try:
        return Page(answer.read())
    finally:
        connection.close()


def test_a_scrape_asks_no_driver_and_tells_what_the_driver_said(stub: Stub, live_dir: Path) -> None:
    stub.set_processes(0, [Process(os.getpid(), memory=2**30, sm=70)])
    env = environment(live_dir, stub.env())
    with daemon("--interval", "0.1", env=env) as running, exporting("--listen", "127.0.0.1:0", env=env) as (_, line):
        port = port_of(line)
        page = until(lambda: page if (page := scrape(port)).values("gpumon_user_held_seconds_total") else None)
        assert page.value("gpumon_up") == 1
        assert len(page.values("gpumon_gpu_power_watts")) == 2
        assert page.value("gpumon_gpu_processes", gpu="0") == 1
        running.send_signal(signal.SIGSTOP)  # else its own calls would be counted, too
        before = stub.calls()
        for _ in range(20):
            scrape(port)
        assert stub.calls() == before
        page = until(lambda: page if (page := scrape(port)).value("gpumon_up") == 0 else None)
        assert page.values("gpumon_gpu_power_watts") == [], "a value of before is no value of now"
        assert page.value("gpumon_gpus", state="unknown") == 2
        running.send_signal(signal.SIGCONT)
        until(lambda: scrape(port).value("gpumon_up") == 1)


def test_a_signal_that_another_thread_is_given_ends_an_exporter(tmp_path: Path, live_dir: Path) -> None:
    where = tmp_path / "socket"
    with exporting("--socket", where, env=environment(live_dir, {})) as (process, _):
        other = until(lambda: next((int(task) for task in os.listdir(f"/proc/{process.pid}/task")
                                    if int(task) != process.pid), 0))  # fmt: skip
        assert ctypes.CDLL(None).tgkill(process.pid, other, signal.SIGTERM) == 0
        assert process.wait(PATIENCE) == 0
    assert not where.exists()


def test_an_exporter_outlives_daemons_and_their_counters_go_on(stub: Stub, live_dir: Path) -> None:
    env = environment(live_dir, stub.env())

    def observed() -> float:
        return sum(scrape(port).values("gpumon_gpu_observed_seconds_total"))

    with exporting("--listen", "127.0.0.1:0", env=env) as (_, line):
        port = port_of(line)
        assert scrape(port).value("gpumon_up") == 0
        with daemon("--interval", "0.1", env=env) as running:
            first = until(observed)
            running.kill()
            running.wait()
        until(lambda: scrape(port).value("gpumon_up") == 0)
        assert scrape(port).values("gpumon_gpu_observed_seconds_total") == []
        with daemon("--interval", "0.1", env=env):
            until(lambda: observed() > first)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_an_exporter_ends_when_it_is_told_to(live_dir: Path, tmp_path: Path, number: signal.Signals) -> None:
    path = tmp_path / "socket"
    with exporting("--socket", path, env=environment(live_dir)) as (process, _):
        assert os.stat(path).st_mode & 0o777 == 0o600
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(str(path))
            connection.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
            with connection.makefile("rb") as answer:
                assert b"gpumon_up 0.0" in answer.read()
        process.send_signal(number)
        assert process.wait(timeout=PATIENCE) == 0
        assert not path.exists()


@pytest.mark.parametrize("is_another_there", [False, True])
def test_an_exporter_whose_socket_is_gone_ends_without_a_fault(
    live_dir: Path, tmp_path: Path, is_another_there: bool
) -> None:
    path = tmp_path / "socket"
    with exporting("--socket", path, env=environment(live_dir)) as (process, _):
        path.unlink()
        if is_another_there:
            path.write_text("of another program")
        process.terminate()
        assert process.wait(timeout=PATIENCE) == 0
        assert process.stderr is not None
        assert process.stderr.read() == ""
    assert path.exists() is is_another_there


def test_a_text_file_is_there_while_it_is_written(live_dir: Path, tmp_path: Path) -> None:
    file = tmp_path / "gpumon.prom"
    env = environment(live_dir)
    assert gpumon("export", "--once", "--textfile", file, env=env).returncode == 0
    assert Page(file.read_bytes()).value("gpumon_up") == 0
    file.unlink()
    process = subprocess.Popen(command("export", "--textfile", file), env=env)
    try:
        until(file.exists)
    finally:
        process.terminate()
        assert process.wait(timeout=PATIENCE) == 0
    assert list(tmp_path.glob("gpumon*")) == []


def test_two_exporters_do_not_share_a_port(live_dir: Path) -> None:
    env = environment(live_dir)
    with exporting("--listen", "127.0.0.1:0", env=env) as (_, line):
        done = gpumon("export", "--listen", f"127.0.0.1:{port_of(line)}", env=env)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "stop the program that listens there, or pass another --listen" in done.stderr


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--listen", "9401"], "--listen must be [HOST]:PORT"),
        (["--listen", "127.0.0.1:x"], "--listen must be [HOST]:PORT"),
        (["--listen", "127.0.0.1:99999"], "--listen must be 0 to 65535"),
        (["--once", "--listen", ":9401"], "--once and --textfile start no server"),
        (["--textfile", "a", "--tls-cert", "b"], "--once and --textfile start no server"),
        (["--listen", ":9401", "--socket", "a"], "not allowed with"),
        (["--tls-cert", "none.pem", "--tls-key", "none.key"], "none.pem"),
        (["--tls-cert", "none.pem"], "--tls-key"),
        (["--client-ca", "ca.pem"], "--client-ca is for TLS"),
        (["--users", "everybody"], "invalid choice"),
        *(
            (["--dialect", "dcgm", "--once", "--host-label", name], f"{name} is already a label")
            for name in ("gpu", "UUID", "instance", "__name__")
        ),
        (["--dialect", "jobstats", "--host-label", "node"], "--host-label is for --dialect dcgm"),
        (["--socket-group", "video"], "--socket-group is for --socket"),
        (["--textfile", "a", "--socket-group", "video"], "--once and --textfile start no server"),
        (["--socket", "/nowhere/socket"], "No such file or directory: make its directory"),
        (["--client-ca", ""], "--client-ca is empty: pass a value, or omit it"),
        (["--socket", ""], "--socket is empty"),
        (["--textfile", ""], "--textfile is empty"),
        (["--listen", ""], "--listen is empty"),
        (["--host-label", ""], "--host-label is empty"),
        (["--textfile", "/nowhere/gpumon.prom"], "cannot write /nowhere/gpumon.prom"),
    ],
)
def test_what_makes_no_sense_is_refused_in_a_line(live_dir: Path, words: list[str], why: str) -> None:
    done = in_process("export", *words, env=environment(live_dir))
    assert done.returncode in (1, 2)
    assert why in done.stderr
    assert done.stderr.count("\n") == 1


def test_an_exporter_imports_no_driver_and_no_arrays(live_dir: Path) -> None:
    program = (
        "import sys; from gpumon.cli import main; main(['export', '--once']);"
        "print(sorted(m for m in sys.modules if m.split('.')[0] in ('pynvml', 'numpy', 'sqlite3')), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment(live_dir), capture_output=True, text=True, check=True
    )
    assert done.stderr == "[]\n"
