"""Real processes for integration tests: daemons, trainings, whole commands."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, AnyStr, TypeVar
from unittest.mock import patch

T = TypeVar("T")
_OURS = ("GPUMON_DIR", "XDG_", "LINES", "COLUMNS")
"""What of our own environment programs do not get: a terminal's size is asked of the terminal."""


PATIENCE = 60.0
"""Seconds that a busy machine may take for what must come; who waits for an event pays no more than it takes."""


def environment(live_dir: Path, base: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment of a user whose live directory is `live_dir`, and who has no settings of his own.

    Frameworks compute in one thread: several wait for each other in busy loops, for minutes where the cores are taken.
    """
    env = {name: value for name, value in (base or os.environ).items() if not name.startswith(_OURS)}
    own = {"GPUMON_DIR": str(live_dir), "GPUMON_STATE_DIR": str(live_dir / "state"), "HOME": str(live_dir)}
    return {**env, **own, "OMP_NUM_THREADS": "1"}


def gpumon(
    *arguments: object,
    env: Mapping[str, str],
    timeout: float = 2 * PATIENCE,
    given: str | None = None,
    cwd: Path | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run a command of gpumon to its end; `given` comes to its standard input."""
    return subprocess.run(
        command(*arguments),
        env=dict(env),
        capture_output=True,
        text=True,
        errors="surrogateescape",
        timeout=timeout,
        check=False,
        input=given,
        cwd=cwd,
    )


def in_process(*arguments: object, env: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """Run a command of gpumon in this process, which saves the start of one: for commands that sample nothing."""
    from gpumon.cli import main

    out, err = io.StringIO(), io.StringIO()
    words = list(map(str, arguments))
    with patch.dict(os.environ, env, clear=True), redirect_stdout(out), redirect_stderr(err):
        code = main(words)
    return subprocess.CompletedProcess(words, code, out.getvalue(), err.getvalue())


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "gpumon", *map(str, arguments)]


class Child(subprocess.Popen[AnyStr]):
    """A child process that is killed when its test fails; `Popen` would wait for it to end by itself."""

    def __exit__(self, kind: type[BaseException] | None, *rest: Any) -> None:
        if kind is not None:
            self.kill()
        super().__exit__(kind, *rest)


@contextmanager
def daemon(*arguments: object, env: Mapping[str, str]) -> Iterator[subprocess.Popen[str]]:
    """A daemon in the foreground that has its first frame; stopped at the end."""
    process = subprocess.Popen(
        command("daemon", *arguments), env=dict(env), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        first = process.stdout.readline()
        assert first.startswith("gpumon daemon"), first + process.stderr.read()
        yield process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGCONT)
            process.terminate()
        process.wait(timeout=PATIENCE)
        process.stdout.close()
        process.stderr.close()


@contextmanager
def asked(source: str, env: Mapping[str, str]) -> Iterator[Callable[[object], Any]]:
    """A program of Python that answers each line of JSON with one; gives how to ask it."""
    with Child(
        [sys.executable, "-c", source], env=dict(env), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:

        def ask(question: object) -> Any:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(json.dumps(question) + "\n")
            process.stdin.flush()
            return json.loads(process.stdout.readline())

        yield ask


def status(env: Mapping[str, str], *arguments: object) -> dict[str, Any]:
    """What `gpumon status --json` prints."""
    done = gpumon("status", "--json", *arguments, env=env)
    assert done.stdout, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def until(true: Callable[[], T | None], timeout: float = PATIENCE) -> T:
    """Wait until `true` gives something; fails after `timeout` seconds."""
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        found = true()
        if found:
            return found
        time.sleep(0.05)
    raise AssertionError(f"did not come true within {timeout} s")


def with_its_table(run: Callable[[], subprocess.CompletedProcess[str]]) -> subprocess.CompletedProcess[str]:
    """What `gpumon run` came to; once more where a busy machine left it no time for its table, which then says so."""

    def ran() -> subprocess.CompletedProcess[str] | None:
        done = run()
        return None if "or the machine is busy" in done.stderr else done

    return until(ran)


def asleep(process: subprocess.Popen[Any]) -> float:
    """Seconds for which a program has slept so far: neither computed nor waited for a processor.

    Of its first thread. A busy machine makes a program take longer, but not sleep longer.
    """
    with open(f"/proc/{process.pid}/schedstat", "rb") as file:
        computed, queued, _ = map(int, file.read().split())
    with open(f"/proc/{process.pid}/stat", "rb") as file:
        begun = int(file.read().rpartition(b")")[2].split()[19]) / os.sysconf("SC_CLK_TCK")
    return time.clock_gettime(time.CLOCK_BOOTTIME) - begun - (computed + queued) / 1e9


def wait_for_end(process: subprocess.Popen[Any]) -> None:
    """Wait until a program has ended; it can still be asked about."""
    until(lambda: has_ended(process))


def slept_until_end(process: subprocess.Popen[Any]) -> float:
    """Wait until a program has ended, and return for how many seconds it slept until then.

    What its threads waited for a processor does not count, because its first thread sleeps while it waits for others.
    """
    before, queued = asleep(process), waited(process)
    until(lambda: waited(process) >= queued and has_ended(process))
    return asleep(process) - before - (waited(process) - queued)


_WAITED: dict[int, dict[str, int]] = {}
"""ns by process and thread; those that have ended too, or the sum would fall."""


def waited(process: subprocess.Popen[Any]) -> float:
    """Seconds that the threads of a process have waited for a processor, as far as it was asked while they were."""
    directory, known = f"/proc/{process.pid}/task", _WAITED.setdefault(process.pid, {})
    for thread in os.listdir(directory):
        try:
            known[thread] = int(Path(directory, thread, "schedstat").read_text().split()[1])
        except (FileNotFoundError, ProcessLookupError):  # it has ended
            continue
    return sum(known.values()) / 1e9


def has_ended(process: subprocess.Popen[Any]) -> bool:
    """Whether a program has ended. It can still be asked about."""
    return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is not None
