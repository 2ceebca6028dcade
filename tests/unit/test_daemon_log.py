"""Facts that only the daemon knows reach its log, once each; those of a frame reach `gpumon status --verbose`."""

from __future__ import annotations

import os
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

import pytest

from gpumon.analysis.throttling import clock_event_reasons
from gpumon.common.clock import SECOND
from gpumon.common.paths import Places
from gpumon.daemon.recorder import Recorder
from gpumon.daemon.sampler import Sampler
from gpumon.daemon.service import PrivateSampler
from gpumon.model.device import Device
from gpumon.model.frame import Sample
from gpumon.model.metrics import GPU_METRICS, NEEDS, Availability, why_missing
from gpumon.reports.status_details import details
from gpumon.ring.reader import RingReader
from tests import builders
from tests.builders import device, frame_of, sample, tick
from tests.fakes import FakeClock
from tests.programs import PATIENCE
from tests.unit.test_sampler import FakeSource

NVIDIA, OTHER = "NVIDIA H200", "Some Card"


@pytest.fixture
def recorder(tmp_path: Path) -> Recorder:
    """A daemon's recorder on a source that gives what a test lays down; `said` is its log."""
    clock = FakeClock()
    return Recorder(Sampler(FakeSource(clock), clock), clock, str(tmp_path))


def logged(recorder: Recorder, rounds: int) -> Sequence[str]:
    said: list[str] = []
    recorder.log = said.append
    for number in range(rounds):
        recorder.store(tick(number + 1))
        recorder._clock.advance(1.0)  # type: ignore[attr-defined]
        recorder.heartbeat()
    return said


def test_a_refused_claim_is_logged_once(recorder: Recorder) -> None:
    recorder.sampler.refused = {"tag.1000.7.abcd": "GPU-1: in use, but by no process of ann\x1b[2J"}
    said = logged(recorder, 5)
    assert len(said) == 1
    assert "tag.1000.7.abcd" in said[0]
    assert "by no process of ann" in said[0]
    assert said[0].isprintable()


def test_claims_do_not_fill_the_log(recorder: Recorder) -> None:
    recorder.sampler.refused = {f"tag.1000.7.{number:04}": "in use" for number in range(1000)}
    assert len(logged(recorder, 3)) == 100


def test_frames_that_are_lost_are_logged_and_counted(recorder: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not logged(recorder, 1)
    real = os.pwrite

    def full(fd: int, raw: bytes, offset: int) -> int:
        if len(raw) > 100:  # a frame, and no heartbeat
            raise OSError(28, "No space left on device")
        return real(fd, raw, offset)

    monkeypatch.setattr(os, "pwrite", full)
    assert [("cannot be stored" in line) for line in logged(recorder, 3)] == [True]
    monkeypatch.setattr(os, "pwrite", real)
    (line,) = logged(recorder, 2)
    assert "3 frames were lost" in line


@pytest.mark.parametrize("directory", ["daemon", None])
def test_devices_that_are_swapped_for_others_for_ever_end_no_daemon(tmp_path: Path, directory: str | None) -> None:
    """As MIG instances, whose UUIDs are new each time; the frames before stay."""
    clock = FakeClock()
    recorder = Recorder(Sampler(FakeSource(clock), clock), clock, directory and str(tmp_path))
    for number in range(1, 41):
        recorder.store(tick(number, [builders.sample(number // 2), builders.sample(100 + number // 3)]))
    assert recorder.writer is not None
    frames = RingReader(os.dup(recorder.writer.fd)).since(0)
    recorder.close()
    found = [(frame.number, [sample.device.index for sample in frame.samples]) for frame in frames]
    assert found == [(number, [number // 2, 100 + number // 3]) for number in range(1, 41)]


def test_what_ends_sampling_in_a_views_own_process_is_kept_for_its_end() -> None:
    clock = FakeClock()

    class Broken(FakeSource):
        def read(self) -> Sequence[object]:  # type: ignore[override]
            raise RuntimeError("no more")

    sampler = PrivateSampler(Recorder(Sampler(Broken(clock), clock), clock)).start()
    sampler._thread.join(PATIENCE)
    assert str(sampler.failure) == "no more"


def test_a_view_that_ends_says_why_its_sampling_ended_before(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from gpumon.cli.sampling import private_sampler

    def fail(self: Sampler, *_: object) -> None:
        raise RuntimeError("no more")

    monkeypatch.setattr(Sampler, "run", fail)
    with private_sampler(Places(), Namespace(source="sim", interval=1.0, speed=1.0, gpm=True)):
        pass
    assert "RuntimeError: no more" in capsys.readouterr().err


def on(model: str, mask: float) -> Sample:
    return builders.sample(0, event_reasons=mask)._replace(device=Device("card", 0, model))


@pytest.mark.parametrize(
    ("model", "mask", "words"),
    [
        (NVIDIA, 0x0, ()),
        (NVIDIA, 0x1, ("idle",)),
        (NVIDIA, 0x44, ("power limit", "heat (hardware)")),
        (NVIDIA, 0x1004, ("power limit", "0x1000")),
        (NVIDIA, float("nan"), None),
        (OTHER, 0x4, None),
    ],
)
def test_clock_event_reasons_are_words(model: str, mask: float, words: tuple[str, ...] | None) -> None:
    assert clock_event_reasons(on(model, mask)) == words


def test_status_details_date_what_held_the_clocks_of_a_gpu_that_does_not_answer() -> None:
    now = on(NVIDIA, 0x4)
    late = now._replace(state=Availability.STALE, age=15.0)
    assert [next(details(frame_of(tick(1, [one])))) for one in (now, late)] == [
        "GPU 0: clock event reasons: power limit",
        "GPU 0: clock event reasons 15 s ago: power limit",
    ]


def test_status_details_tell_what_gpus_lack_and_what_that_needs() -> None:
    lacking = {
        "gpu.sm_activity": Availability.NOT_SUPPORTED, "gpu.dram_activity": Availability.NOT_SUPPORTED,
        "gpu.fan": Availability.NO_PERMISSION, "gpu.of_a_later_version": Availability.NO_PERMISSION,
        "gpu.ecc_corrected": Availability.NO_PERMISSION,
    }  # fmt: skip
    cards = [sample(gpu)._replace(device=device(gpu, missing=lacking)) for gpu in (0, 1)]
    found = list(details(frame_of(tick(1, [*cards, sample(2)]))))[:-1]
    assert found == [
        "GPU 0, 1: not available: DRAM activity, SM activity: this GPU or driver does not report it "
        "(needs Hopper or newer, and GPM in a driver of 525 or newer)",
        "GPU 0, 1: not available: corrected ECC errors, fan, of a later version: requires elevated privileges",
    ]


def test_needs_are_of_metrics_that_exist() -> None:
    assert NEEDS.keys() <= {metric.name for metric in GPU_METRICS}


def test_status_details_tell_what_slows_a_gpu_and_what_was_skipped() -> None:
    frame = frame_of(tick(1, [on(NVIDIA, 0x4)], skipped_ticks=3, sample_duration_ns=SECOND // 50))
    assert list(details(frame)) == [
        "GPU 0: clock event reasons: power limit",
        "sampling: one sample every 1 s, taken in 20 ms, 3 samples skipped since sampling began",
    ]


def test_an_older_driver_lacks_unattributed_memory_for_want_of_its_own_reservation() -> None:
    why = why_missing("gpu.memory_unattributed", Availability.NOT_SUPPORTED)
    assert "needs a driver newer than 470, which reports its own reservation" in why
