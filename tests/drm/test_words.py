"""Views and advice have no words of NVIDIA for an AMD or Intel GPU."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpumon.analysis.gpu_status import gpu_statuses
from gpumon.cli.doctor.bundle import _UUID
from gpumon.cli.doctor.gpus import _unreadable_gpu
from gpumon.diagnosis.context import GpuContext, diagnose
from gpumon.diagnosis.gpu import GPU_RULES
from gpumon.model.device import Device
from gpumon.model.frame import Sample
from gpumon.model.metrics import PROCESSES, Availability
from gpumon.model.remedies import missing_reason
from gpumon.reports.status_details import details
from gpumon_web.health import checks
from tests.builders import frame_of, sample, tick
from tests.drm import trees
from tests.drm.reading import Machine

OF_NVIDIA = re.compile(
    r"nvidia|nvml|\bNVLink|\bMIG\b|\bXID\b|\bGPM\b|\bCUDA\b|Hopper|Ampere|Volta|Turing", re.IGNORECASE
)
WHOLE = Device("GPU-a1b2c3d4e5f60718", 0, "AMD Instinct MI300X", address="0000:1b:00.0")
DEVICES = {
    "whole": WHOLE,
    "divided": WHOLE._replace(missing={PROCESSES: Availability.OF_INSTANCES}),
    "partition": WHOLE._replace(uuid="XCP-3-a1b2c3d4e5f60718", parent=WHOLE.uuid, instance=3),
    "intel": Device("INTEL-0000:07:00.0", 0, "Intel Arc B580", address="0000:07:00.0"),
}


def faults(device: Device) -> Iterator[Sample]:
    """A device with each fault that a driver of the kernel may report, in each availability."""
    for state in set(Availability) - {Availability.IN_MIG_MODE}:
        yield sample(0, state)._replace(device=device)
        yield sample(0, state, ecc_uncorrected=3.0, temperature=110.0, event_reasons=127.0)._replace(device=device)
        yield sample(0)._replace(
            device=device._replace(missing={**device.missing, "gpu.fan": state, "gpu.power": state})
        )


@pytest.mark.parametrize("kind", DEVICES)
def test_findings_and_advice(kind: str) -> None:
    texts: set[str] = set()
    for one in faults(DEVICES[kind]):
        frame = frame_of(tick(1, [one]))
        findings = diagnose(GPU_RULES, [GpuContext(status=status, now=0.0) for status in gpu_statuses(frame, [])])
        texts |= {f"{finding.summary} {finding.action}" for finding in findings}
        texts |= {_unreadable_gpu(one, {}).remedy, one.reason}
    assert len(texts) > 10
    assert [text for text in texts if OF_NVIDIA.search(text)] == []


@pytest.mark.parametrize(
    "cards", [[trees.rx7900(), trees.mi300x(0, partitions=8)], [trees.battlemage(), trees.arc()]], ids=["amd", "intel"]
)
def test_details_of_a_machine(cards: list[trees.Card], tmp_path: Path) -> None:
    machine = Machine(tmp_path, cards)
    machine.read(1.0)
    samples = machine.read(3.0)
    lines = list(details(frame_of(tick(1, samples))))
    assert [line for line in lines if OF_NVIDIA.search(line)] == []
    reasons = {missing_reason(one.device, name) for one in samples for name in one.device.missing}
    assert [reason for reason in reasons if OF_NVIDIA.search(reason)] == []


@pytest.mark.parametrize("kind", DEVICES)
def test_health_of_a_page(kind: str) -> None:
    titles = [check["title"] for check in checks(sample(0)._replace(device=DEVICES[kind]))]
    assert [title for title in titles if OF_NVIDIA.search(title)] == []
    assert len(titles) == 4


@pytest.mark.parametrize("kind", ["whole", "partition"])
def test_a_bundle_has_no_serial_number(kind: str) -> None:
    assert "a1b2" not in _UUID.sub("-", f"of {DEVICES[kind].uuid}.")
