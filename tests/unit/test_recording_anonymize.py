"""An anonymized recording: no name is left in it, and what belonged together still does."""

from __future__ import annotations

import zlib
from pathlib import Path

import pytest

from gpumon.model.frame import Frame
from gpumon.model.metrics import GPU_INDEX
from gpumon.model.origin import Driver, Origin, SourceInfo
from gpumon.recording import format as forms
from gpumon.recording.anonymize import Anonymizer
from gpumon.recording.content import Context, RecordedFrame
from tests import builders
from tests.recorded import read, simulated, write

SECRETS = (
    "alice",
    "top-secret-llm",
    "/home/alice/train.py",
    "node7.example.org",
    "0ff1ce",
    "reward_of_acme",
    "acme-prod",
    "90125",
    "merger",
    "acmeflow",
)


def secret() -> RecordedFrame:
    """A frame that says much."""
    device = builders.device(0)._replace(uuid="GPU-0ff1ce")
    mig = builders.device(1)._replace(uuid="MIG-0ff1ce-1")
    samples = [
        builders.sample(0, run="tag.1000.alice")._replace(device=device),
        builders.sample(1, run="tag.1000.alice")._replace(device=mig),
    ]
    process = builders.process(user="alice", name="/home/alice/train.py", run="tag.1000.alice")._replace(
        uuid="GPU-0ff1ce", container="lxc acme-prod", pod="0ff1ce-11", job="90125"
    )
    run = builders.run(
        "tag.1000.alice", id="top-secret-llm-1", name="top-secret-llm", user="alice", gpus=("GPU-0ff1ce",),
        metrics={"loss": 0.5, "reward_of_acme": 0.25}, phase="merger", framework="acmeflow",
    )  # fmt: skip
    moment = builders.boundary(1, key="tag.1000.alice")._replace(phase="merger", metrics={"reward_of_acme": 0.25})
    tick = builders.tick(1, samples, [process], [run], [moment])
    problem = "cannot read /home/alice/train.py"
    origin = Origin("nvml", "REPLAY top-secret-llm", problem, parts=(SourceInfo(Origin("sim", problem=problem)),))
    return RecordedFrame(builders.frame_of(tick), Context(origin, Driver("570", "CUDA 12.8"), "node7.example.org"))


@pytest.fixture
def found() -> RecordedFrame:
    return Anonymizer().recorded(secret())


def test_no_name_is_left_in_the_file(tmp_path: Path, found: RecordedFrame) -> None:
    write(tmp_path / "a.gpumon", [found])
    raw = (tmp_path / "a.gpumon").read_bytes()
    header = forms.unpack_header(raw)
    text = raw[: header.size] + zlib.decompress(raw[header.size + forms.BLOCK_SIZE :][: block_length(raw, header.size)])
    assert [secret for secret in SECRETS if secret.encode() in text] == []
    assert b"node" not in text


def block_length(raw: bytes, at: int) -> int:
    return forms.unpack_block_head(raw[at : at + forms.BLOCK_SIZE]).stored


def test_what_belongs_together_still_does(found: RecordedFrame) -> None:
    frame = found.frame
    (run,) = frame.runs
    assert frame.samples[0].run == frame.processes[0].run == frame.boundaries[0].run == run.key == "key-1"
    assert run.gpus == (frame.samples[0].device.uuid,) == (frame.processes[0].uuid,) == ("GPU-1",)
    assert frame.samples[1].device.uuid == "MIG-1"
    assert run.user == frame.processes[0].user == "user-1"
    assert run.pid == frame.processes[0].pid
    assert run.phase == frame.boundaries[0].phase == "phase-1"
    assert run.metrics == {"loss": 0.5, "metric-1": 0.25}
    assert found.context.hostname == "host-1"


def test_what_a_bug_is_found_by_stays(found: RecordedFrame) -> None:
    before = secret()
    assert found.frame.time == before.frame.time
    assert found.frame.host == before.frame.host
    assert found.frame.samples[0].device.name == "NVIDIA H100"
    assert found.context.driver == before.context.driver
    assert found.context.origin.source == "nvml"
    assert [boundary.mark for boundary in found.frame.boundaries] == [b.mark for b in before.frame.boundaries]


def test_a_name_stays_the_same_from_frame_to_frame_and_is_another_in_another_recording(tmp_path: Path) -> None:
    recorded = simulated(4)
    anonymizer = Anonymizer()
    first, *_, last = (anonymizer.recorded(one).frame for one in recorded)
    assert [process.user for process in first.processes] == [process.user for process in last.processes]
    assert len({process.user for process in first.processes}) == len({p.user for p in recorded[0].frame.processes})
    other = Anonymizer()
    reversed_frame = Frame(1, 0, 0, 1.0, 0.0, 0, 0, builders.TickParts(builders.tick(processes=first.processes[::-1])))
    assert other.recorded(RecordedFrame(reversed_frame, Context())).frame.processes[0].user == "user-1"


def test_numbers_are_as_they_were(tmp_path: Path) -> None:
    (one,) = simulated(1)
    write(tmp_path / "a.gpumon", [Anonymizer().recorded(one)])
    (found,), _ = read(tmp_path / "a.gpumon")
    for before, after in zip(one.frame.samples, found.frame.samples, strict=True):
        assert after.values[GPU_INDEX["gpu.energy"]] == before.values[GPU_INDEX["gpu.energy"]]
