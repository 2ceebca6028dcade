"""What views and scripts read: always an answer, whatever becomes of the ring."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gpumon
from gpumon.common.errors import UsageError
from gpumon.common.paths import Places
from gpumon.live import Live, follow
from gpumon.model.frame import Tick
from gpumon.model.origin import Origin
from gpumon.model.units import clock, duration
from gpumon.ring import layout
from gpumon.ring.writer import RingWriter
from tests.builders import TIME, boundary, run, sample, tick
from tests.runs import Book, training

SECOND = 1_000_000_000


@pytest.fixture
def ring(tmp_path: Path) -> RingWriter:
    return RingWriter.create(str(tmp_path / "ring"), 2, SECOND)


@pytest.fixture
def live(tmp_path: Path) -> Live:
    return gpumon.connect(str(tmp_path))


def test_without_a_daemon_everything_is_empty_and_the_state_says_what_to_do(live: Live) -> None:
    assert live.latest() is None
    assert live.since(0) == []
    assert len(live.window("10m")) == 0
    assert not live.state().live
    assert "gpumon daemon" in live.state().text


def test_a_daemon_that_starts_later_is_found(live: Live, ring: RingWriter) -> None:
    ring.append(tick(1))
    frame = live.latest()
    assert frame is not None
    assert frame.number == 1
    assert live.state()[:4] == (True, "live", 1.0, 0.0)
    assert live.hostname() == "node1"


def test_a_new_generation_is_followed_and_frames_go_on(live: Live, ring: RingWriter, tmp_path: Path) -> None:
    ring.append(tick(1))
    assert [frame.number for frame in live.since(0)] == [1]
    new = RingWriter.create(str(tmp_path / "ring"), 2, SECOND, continues="nvml")
    new.append(tick(2))
    assert [frame.number for frame in live.since(1)] == [2]


def test_a_ring_that_begins_anew_is_given_from_its_beginning(live: Live, ring: RingWriter, tmp_path: Path) -> None:
    for number in range(1, 10):
        ring.append(tick(number))
    assert len(live.since(0)) == 9
    RingWriter.create(str(tmp_path / "ring"), 2, SECOND).append(tick(20))
    assert [frame.number for frame in live.since(9)] == [1]


def test_a_ring_whose_daemon_is_gone_does_not_hide_one_that_is_written(tmp_path: Path) -> None:
    where = Places(system=str(tmp_path / "system"), runtime=str(tmp_path / "runtime"), shared_memory="/nowhere")
    for directory in (tmp_path / "system", tmp_path / "runtime" / "gpumon"):
        directory.mkdir(parents=True)
    old = RingWriter.create(str(tmp_path / "system" / "ring"), 1, SECOND)
    old.append(tick(1))
    live = follow(where)
    assert live.state().live
    old.close()
    assert "stopped" in live.state().text
    RingWriter.create(str(tmp_path / "runtime" / "gpumon" / "ring"), 1, SECOND).append(tick(7, hostname="mine"))
    assert follow(where).state().live
    live._next_search = 0.0  # a second has gone by
    assert live.hostname() == "mine"


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a directory to somebody else")
def test_live_data_of_another_user_are_not_shown_unless_they_are_named(tmp_path: Path) -> None:
    tmp_path.chmod(0o1777)
    where = Places(system="/nowhere", shared_memory=str(tmp_path), uid=1000)
    os.mkdir(where.private, 0o755)
    RingWriter.create(f"{where.private}/ring", 1, SECOND).append(tick(1, hostname="FAKED"))
    os.chown(where.private, 4321, 4321)
    live = follow(where)
    assert live.latest() is None
    assert (live.state().live, live.hostname()) == (False, "")
    assert f"{where.private} belongs to another user" in live.state().text
    assert follow(where._replace(explicit=where.private)).hostname() == "FAKED"


def test_a_stopped_writer_is_told_from_a_silent_one(live: Live, ring: RingWriter) -> None:
    ring.append(tick(1))
    ring.close()
    assert "stopped" in live.state().text
    assert live.latest() is not None, "what it recorded can still be looked at"


def test_a_ring_whose_daemon_has_stopped_does_not_hide_one_whose_daemon_hangs(tmp_path: Path) -> None:
    where = Places(system=str(tmp_path / "system"), runtime=str(tmp_path / "runtime"), shared_memory="/nowhere")
    rings = []
    for directory in (tmp_path / "system", tmp_path / "runtime" / "gpumon"):
        directory.mkdir(parents=True)
        rings.append(RingWriter.create(str(directory / "ring"), 1, SECOND))
        rings[-1].append(now(hostname=directory.name))
    rings[0].close()
    silence(rings[1], 60)
    live = follow(where)
    assert (live.hostname(), live.state().stale) == ("gpumon", True)


def silence(ring: RingWriter, seconds: float) -> None:
    """As if the writer had not been heard for so long."""
    _, _, state, version = layout.HOT.unpack(os.pread(ring.fd, layout.HOT.size, layout.HOT_OFFSET))
    beat = time.monotonic_ns() - round(seconds * SECOND)
    os.pwrite(ring.fd, layout.HOT.pack(ring.head, beat, state, version), layout.HOT_OFFSET)


def now(**fields: Any) -> Tick:
    """A tick of this very moment."""
    return tick(1, monotonic_ns=time.monotonic_ns(), time_ns=time.time_ns(), **fields)


def test_a_writer_that_is_silent_for_longer_than_three_seconds_is_stale_since_its_newest_frame(
    live: Live, ring: RingWriter
) -> None:
    ring.append(now())
    assert live.state().live
    assert live.state().age == 0
    silence(ring, 3.5)
    state = live.state()
    assert (state.live, state.stale, state.interval) == (False, True, 1.0)
    assert 3.5 <= state.age < 4.5
    silence(ring, 60)
    assert (live.is_alive(), live.has_writer()) == (False, True), "its last values are better than none"
    assert state.since == ring_time(live)
    assert state.text == f"stale: last seen {clock(state.since)} ({duration(state.age)} ago)"


def ring_time(live: Live) -> float:
    newest = live.latest()
    assert newest is not None
    return newest.time


def test_a_writer_that_lives_and_can_store_nothing_is_stale(
    live: Live, ring: RingWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    ring.append(now())
    silence(ring, 8)
    with monkeypatch.context() as patched:
        patched.setattr(os, "pwrite", full)
        ring.append(now())
    ring.heartbeat()
    assert live.state().stale
    ring.append(now())
    assert live.state().live


def test_a_daemon_that_was_killed_is_gone_and_not_stale(live: Live, ring: RingWriter, tmp_path: Path) -> None:
    ring.append(now())
    raw = bytearray((tmp_path / "ring").read_bytes())
    pid, started = slice(56, 60), slice(64, 72)
    assert int.from_bytes(raw[pid], "little") == os.getpid()
    raw[started] = bytes(8)
    end = layout.SUPERBLOCK.size
    raw[end : end + 4] = layout.crc32(raw[:end]).to_bytes(4, "little")
    (tmp_path / "other").write_bytes(raw)
    os.rename(tmp_path / "other", tmp_path / "ring")
    ring.fd = os.open(tmp_path / "ring", os.O_RDWR)
    silence(ring, 10)
    state = live.state()
    assert (state.live, state.stale) == (False, False)
    assert state.text.startswith("the daemon is no longer running: last seen ")
    assert not live.has_writer()


def test_nothing_is_known_of_a_ring_that_is_not_there(tmp_path: Path) -> None:
    state = follow(Places(explicit=str(tmp_path))).state()
    assert (state.live, state.stale, state.age, state.since == state.since) == (False, False, 0, False)


def test_a_ring_that_is_gone_was_last_seen_by_the_clock(live: Live, ring: RingWriter, tmp_path: Path) -> None:
    newest = round((time.time() - 40) * SECOND)
    ring.append(tick(1, time_ns=newest))
    assert live.state().since == newest / SECOND
    os.remove(tmp_path / "ring")
    state = live.state()
    assert (state.live, state.since, "gpumon daemon" in state.text) == (False, newest / SECOND, True)
    assert 40 <= state.age < 100


def test_a_recording_that_has_ended_is_not_live_though_its_daemon_lives(live: Live, ring: RingWriter) -> None:
    ring.append(tick(1, origin=Origin("replay", "REPLAY log.csv")))
    assert live.state().live
    ring.append(tick(2, origin=Origin("replay", "REPLAY log.csv ended", ended=True)))
    assert live.state()[:2] == (False, "the recording has ended")
    assert live.origin().ended
    assert live.is_alive(), "it is still the ring to follow"


def test_a_ring_of_another_version_says_so(live: Live, ring: RingWriter, tmp_path: Path) -> None:
    raw = bytearray((tmp_path / "ring").read_bytes())
    raw[8] = 99
    from zlib import crc32

    raw[104:108] = crc32(raw[:104]).to_bytes(4, "little")
    (tmp_path / "other").write_bytes(raw)
    os.rename(tmp_path / "other", tmp_path / "ring")
    assert live.latest() is None
    assert "layout 99" in live.state().text
    del ring


def test_a_window_is_time_by_device_and_its_gaps_are_nan(live: Live, ring: RingWriter) -> None:
    for number in range(1, 121):
        samples = [sample(0, utilization=number / 200), *([sample(1, power=5.0)] if number != 119 else [])]
        ring.append(tick(number, samples))
    window = live.window("1m")
    assert len(window) == 60
    assert window["gpu.utilization"].shape == (60, 2)
    assert window["gpu.utilization"][-1, 0] == 0.6
    assert np.isnan(window["gpu.utilization"][:, 1]).all()
    assert np.isnan(window["gpu.power"][-2, 1])
    assert window["host.load"].shape == (60,)
    assert [device.index for device in window.devices] == [0, 1]
    assert window.time[-1] - window.time[0] == 59


@pytest.mark.parametrize("hours", [-1, 1])
def test_a_window_is_as_long_as_it_says_also_when_the_clock_was_set(live: Live, ring: RingWriter, hours: int) -> None:
    for number in range(1, 121):
        ring.append(tick(number, time_ns=TIME + number * SECOND + (hours * 3600 * SECOND if number > 100 else 0)))
    assert [frame.number for frame in live.window("1m").frames] == list(range(61, 121))


def test_a_window_knows_the_epochs_in_it_once(live: Live, ring: RingWriter) -> None:
    ring.append(tick(1, runs=[run()], boundaries=[boundary(1, 0)]))
    ring.append(tick(2, runs=[run()], boundaries=[boundary(1, 0), boundary(2, 1)]))
    assert [(found["epoch"], found["mark"]) for found in live.window(60).epochs()] == [
        (0, "epoch_begin"),
        (1, "epoch_begin"),
    ]


@pytest.mark.parametrize("length", ["", "m", "10", "ten minutes", "5x"])
def test_a_length_that_is_none_is_refused(live: Live, ring: RingWriter, length: str) -> None:
    ring.append(tick(1))
    with pytest.raises(UsageError, match="10m"):
        live.window(length)


def test_an_unknown_metric_is_refused(live: Live, ring: RingWriter) -> None:
    ring.append(tick(1))
    with pytest.raises(UsageError, match=r"gpu\.speed"):
        live.window("1m")["gpu.speed"]


NO_DESCRIPTOR = """
import os, resource, sys
import gpumon
from gpumon.common.errors import GpumonError
directory, loaded = sys.argv[1:]
if loaded:
    gpumon.connect, gpumon.ledger
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
held = []
try:
    while True:
        held.append(os.dup(0))
except OSError:
    pass
calls = {
    "connect": lambda: gpumon.connect(directory).latest(),
    "state": lambda: gpumon.connect(directory).state(),
    "ledger": lambda: gpumon.ledger(directory, directory).runs(),
    **{
        name: lambda name=name: getattr(gpumon.connect(directory), name)("1h")
        for name in ("window", "totals", "processes", "to_pandas", "to_arrow")
    },
}
for name, call in calls.items():
    try:
        call()
    except GpumonError as error:
        assert "\\n" not in str(error) and "Too many open files" in str(error), error
    except BaseException as error:
        os.closerange(3, 64)
        raise SystemExit(f"{name}: {error!r}")
"""


@pytest.mark.parametrize("loaded", ["", "loaded"])
def test_a_reader_without_a_free_descriptor_raises_only_errors_of_gpumon(
    ring: RingWriter, tmp_path: Path, loaded: str
) -> None:
    ring.append(tick(1))
    with Book(tmp_path) as book:
        training(book, "net-1", 2)
    command = [sys.executable, "-c", NO_DESCRIPTOR, str(tmp_path), loaded]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
