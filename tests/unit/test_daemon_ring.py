"""The ring of a daemon: made where there is room, kept through kills and failing disks, and made anew if needed."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from contextlib import closing
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from gpumon.common.clock import SECOND
from gpumon.common.errors import GpumonError
from gpumon.common.paths import Places
from gpumon.daemon import service
from gpumon.daemon.recorder import LostDirectory, Recorder
from gpumon.daemon.sampler import Sampler
from gpumon.live import WAITING, Live
from gpumon.model.frame import Frame
from gpumon.model.origin import HARDWARE, Origin
from gpumon.ring.reader import RingReader
from gpumon.ring.takeover import SPARE_ROWS
from tests.builders import sample, tick
from tests.fakes import FakeClock
from tests.unit.test_sampler import FakeSource


@pytest.mark.parametrize("is_private", [False, True])
def test_devices_that_come_one_after_another_lead_to_one_new_ring(tmp_path: Path, is_private: bool) -> None:
    clock = FakeClock()
    recorder = Recorder(Sampler(FakeSource(clock), clock), clock, None if is_private else str(tmp_path))
    rings = []
    for devices in range(2, 3 + SPARE_ROWS + 2):
        recorder.store(tick(devices, [sample(index, power=float(index)) for index in range(devices)]))
        if recorder.writer not in rings:
            rings.append(recorder.writer)
    assert [ring.layout.rows for ring in rings if ring] == [2, 3 + SPARE_ROWS, 4 + 2 * SPARE_ROWS]
    with closing(RingReader(recorder.open_ring()) if is_private else RingReader.open(f"{tmp_path}/ring")) as reader:
        frames = reader.since(0)
    assert [len(frame.samples) for frame in frames] == list(range(2, 3 + SPARE_ROWS + 2))
    recorder.close()


def test_a_private_ring_is_read_after_its_sampler_has_ended() -> None:
    clock = FakeClock()
    recorder = Recorder(Sampler(FakeSource(clock), clock), clock)
    for second in range(3):
        recorder.store(tick(second + 1, [sample(0, power=1.0)]))
    live = Live(recorder.open_ring, missing=WAITING)
    assert len(live.since(0)) == 3
    recorder.close()
    live.close()
    assert live.state().text.startswith("sampling in this process stopped")
    with open(os.devnull, "rb"):  # takes the number of the descriptor that was closed
        assert len(live.since(0)) == 3
    live.close()


LIVE = Origin("nvml", capabilities=HARDWARE)
FAILURES = {"EACCES": 13, "ENOSPC": 28, "EROFS": 30, "EIO": 5, "ESTALE": 116}


def daemon_in(directory: Path) -> Recorder:
    """A recorder on a source that gives what a test lays down, as a daemon has it."""
    clock = FakeClock()
    recorder = Recorder(Sampler(FakeSource(clock), clock), clock, str(directory))
    recorder.said = []  # type: ignore[attr-defined]
    recorder.log = recorder.said.append  # type: ignore[attr-defined]
    return recorder


def rounds(recorder: Recorder, numbers: range) -> list[str]:
    """Store ticks, a second apart; gives what the log has got."""
    for number in numbers:
        recorder.store(tick(number, origin=LIVE))
        recorder._clock.advance(1.0)  # type: ignore[attr-defined]
        recorder.heartbeat()
    said: list[str] = recorder.said  # type: ignore[attr-defined]
    return said


def frames_at(directory: Path) -> list[Frame]:
    with closing(RingReader.open(f"{directory}/ring")) as reader:
        assert reader.directory().origin == LIVE, "what the frames are from is known at every moment"
        return reader.since(0)


class TestKilled:
    """A daemon is killed at any call by which its files change."""

    def test_keeps_the_frames_of_the_one_before(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        before, after = tmp_path / "before", tmp_path / "after"
        before.mkdir()
        first = daemon_in(before)
        rounds(first, range(1, 4))
        first.close()
        for calls in range(1, 200):
            shutil.rmtree(after, ignore_errors=True)
            shutil.copytree(before, after)
            child = os.fork()
            if not child:
                try:
                    kill_at(calls, monkeypatch)
                    rounds(daemon_in(after), range(4, 6))
                except BaseException:
                    os._exit(1)
                os._exit(0)
            status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            numbers = [frame.number for frame in frames_at(after)]
            assert numbers[:3] == [1, 2, 3], f"killed at call {calls}"
            if status != 9:
                break
        assert (status, numbers) == (0, [1, 2, 3, 4, 5])
        assert calls > 15

    def test_publishes_no_ring_without_a_frame(self, tmp_path: Path) -> None:
        recorder = daemon_in(tmp_path)
        recorder.ensure_ring(tick(1, origin=LIVE))
        assert not (tmp_path / "ring").exists()
        recorder.store(tick(1, origin=LIVE))
        assert len(frames_at(tmp_path)) == 1
        recorder.close()


def kill_at(calls: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """End this process at one of the calls that change files."""
    numbers = count(1)

    def counted(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            if next(numbers) == calls:
                os._exit(9)
            return real(*arguments, **options)

        return call

    for name in ("pwrite", "rename", "unlink", "open", "posix_fallocate", "fchmod", "ftruncate"):
        monkeypatch.setattr(os, name, counted(getattr(os, name)))


def failing(monkeypatch: pytest.MonkeyPatch, names: tuple[str, ...], code: int) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(code, os.strerror(code))

    for name in names:
        monkeypatch.setattr(os, name, fail)


class TestFailingDirectory:
    """Nothing that the directory of a running daemon does for a while ends it, and each trouble is said once."""

    @pytest.mark.parametrize("code", FAILURES.values(), ids=FAILURES)
    @pytest.mark.parametrize("calls", [("stat", "lstat"), ("pwrite",), ("pread",)], ids=["stat", "write", "read"])
    def test_is_not_gone(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, calls: tuple[str, ...], code: int
    ) -> None:
        recorder = daemon_in(tmp_path)
        assert rounds(recorder, range(1, 4)) == []
        with monkeypatch.context() as harm:
            failing(harm, calls, code)
            assert len(rounds(recorder, range(4, 9))) == 1
        rounds(recorder, range(9, 12))
        times = [frame.monotonic_ns // SECOND for frame in frames_at(tmp_path)]
        assert times == [*range(1, 4), *([] if calls == ("pwrite",) else range(4, 9)), *range(9, 12)]
        recorder.close()

    @pytest.mark.parametrize("code", FAILURES.values(), ids=FAILURES)
    def test_makes_no_new_files_for_a_while(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
        """Somebody removed lock and ring, and neither can be made again."""
        recorder = daemon_in(tmp_path)
        rounds(recorder, range(1, 4))
        (tmp_path / "lock").unlink()
        (tmp_path / "ring").unlink()
        with monkeypatch.context() as harm:
            failing(harm, ("open", "posix_fallocate"), code)
            said = rounds(recorder, range(4, 20))
            assert len(said) == len(set(said)) <= 2
        rounds(recorder, range(20, 40))
        times = [frame.monotonic_ns // SECOND for frame in frames_at(tmp_path)]
        assert times[:4] == [1, 2, 3, 4], "what was there before it was removed"
        assert times[-10:] == [*range(30, 40)]
        assert (tmp_path / "lock").exists()
        recorder.close()

    def test_that_has_no_room_for_more_devices_goes_on_with_those_of_before(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        recorder = daemon_in(tmp_path)
        rounds(recorder, range(1, 3))
        with monkeypatch.context() as harm:
            failing(harm, ("posix_fallocate",), FAILURES["ENOSPC"])
            recorder.store(tick(3, [sample(gpu) for gpu in range(40)], origin=LIVE))
            rounds(recorder, range(4, 6))
        assert [frame.monotonic_ns // SECOND for frame in frames_at(tmp_path)] == [1, 2, 4, 5]
        recorder.close()

    def test_that_was_removed_ends_it(self, tmp_path: Path) -> None:
        (tmp_path / "live").mkdir()
        recorder = daemon_in(tmp_path / "live")
        rounds(recorder, range(1, 3))
        os.rename(tmp_path / "live", tmp_path / "elsewhere")
        with pytest.raises(LostDirectory, match="is gone"):
            rounds(recorder, range(3, 6))
        recorder.close()


class TestFullDirectory:
    """A daemon whose first directory has no room takes the next one, and nothing else is begun again."""

    @pytest.fixture
    def machine(self, tmp_path: Path) -> Places:
        for name in ("run", "shm", "state"):
            (tmp_path / name).mkdir()
        return Places(
            system=f"{tmp_path}/run/gpumon", runtime="", shared_memory=f"{tmp_path}/shm", state=f"{tmp_path}/state",
            user_runtime=f"{tmp_path}/run", uid=os.getuid(), system_state=f"{tmp_path}/var",
        )  # fmt: skip

    @staticmethod
    def begin(
        machine: Places, monkeypatch: pytest.MonkeyPatch, full: tuple[str, ...], call: str
    ) -> tuple[Recorder, FakeSource, list[int]]:
        clock = FakeClock()
        source, closed, real = FakeSource(clock), [], getattr(os, call)
        monkeypatch.setattr(source, "close", lambda: closed.append(1))
        monkeypatch.setattr(service, "make_sampler", lambda *_, **__: Sampler(source, clock))

        def write(fd: int, *more: Any) -> Any:
            if os.readlink(f"/proc/self/fd/{fd}").startswith(full):
                raise OSError(28, "No space left on device")
            return real(fd, *more)

        monkeypatch.setattr(os, call, write)
        return service.open_daemon(machine, "nvml", 1.0, 1.0, clock, log=lambda _: None), source, closed

    @pytest.mark.parametrize("call", ["posix_fallocate", "pwrite"], ids=["tiny", "full"])
    @pytest.mark.parametrize("last", [1, 2])
    def test_gives_way_to_the_next(
        self, machine: Places, monkeypatch: pytest.MonkeyPatch, last: int, call: str
    ) -> None:
        candidates = machine.candidates()
        recorder, source, closed = self.begin(machine, monkeypatch, tuple(candidates[:last]), call)
        assert recorder.directory == candidates[last]
        assert (len(source.reads), closed) == (1, []), "read once, and never closed"
        assert len(frames_at(Path(candidates[last]))) == 1
        assert not any(os.path.exists(f"{directory}/tags") for directory in candidates[:last])
        assert {name for directory in candidates[:last] for name in os.listdir(directory)} <= {"lock"}
        recorder.close()

    def test_that_was_named_is_the_only_one(self, machine: Places, monkeypatch: pytest.MonkeyPatch) -> None:
        named = machine._replace(explicit=f"{machine.state}/named")
        with pytest.raises(GpumonError, match="no room"):
            self.begin(named, monkeypatch, (named.explicit,), "posix_fallocate")

    def test_where_all_are_full_is_said_of_each(self, machine: Places, monkeypatch: pytest.MonkeyPatch) -> None:
        with pytest.raises(GpumonError) as error:
            self.begin(machine, monkeypatch, tuple(machine.candidates()), "posix_fallocate")
        assert all(directory in str(error.value) for directory in machine.candidates()[1:])
