"""What belongs to a maker of GPUs stands in one table, and nowhere in what all of them share."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpumon.model.metrics import Availability
from gpumon.model.remedies import reset
from gpumon.model.vendors import (
    AMD,
    IDENTIFIERS,
    NVIDIA,
    VENDORS,
    Vendor,
    find_vendor,
    recovery_text,
    short_name,
    visible_devices,
    without_prefix,
)
from gpumon.tracking.context import find_devices
from gpumon.tracking.matching import Claim, match_devices
from tests.builders import device, sample

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("model", "uuid", "vendor"),
    [
        ("NVIDIA H100", "", NVIDIA),
        ("Tesla V100-SXM2", "GPU-1", NVIDIA),
        ("AMD Instinct MI300X", "GPU-1", AMD),
        ("unknown model", "MIG-1", NVIDIA),
        ("unknown model", "REPLAY-0", None),
    ],
)
def test_a_maker_is_known_by_the_model_else_by_the_identifier(model: str, uuid: str, vendor: Vendor | None) -> None:
    assert find_vendor(model, uuid) is vendor


def test_a_short_name_leaves_the_maker_out() -> None:
    assert [short_name(name) for name in ("NVIDIA H100", "AMD Instinct MI300X", "Tesla V100", "NVIDIA")] == [
        "H100", "Instinct MI300X", "Tesla V100", "NVIDIA",
    ]  # fmt: skip


def test_an_identifier_without_its_beginning_is_the_same_for_a_gpu_and_a_part() -> None:
    assert {without_prefix(prefix + "1234") for prefix in IDENTIFIERS} == {"1234"}


def test_devices_come_from_the_first_variable_that_is_set() -> None:
    assert visible_devices({}) == ""
    assert visible_devices({"ROCR_VISIBLE_DEVICES": "GPU-1", "CUDA_VISIBLE_DEVICES": ""}) == "GPU-1"
    assert find_devices({}, {"ROCR_VISIBLE_DEVICES": "GPU-12345678,GPU-23456789"}) == ("GPU-12345678", "GPU-23456789")


def test_numbers_mean_only_the_gpus_of_the_maker_whose_they_are() -> None:
    cards = [
        device(0)._replace(name="AMD Instinct MI300X"),
        device(1)._replace(name="NVIDIA H100"),
    ]
    claim = Claim(pid=1, user="alice", visible="0,1", order=NVIDIA.order[1])
    assert match_devices(claim, cards, []).devices == (cards[1].uuid,)


def test_a_gpu_that_must_be_reset_says_how_where_its_maker_has_a_command() -> None:
    broken = sample(0, Availability.RESET_REQUIRED)
    nvidia = broken._replace(device=broken.device._replace(name="NVIDIA H100"))
    other = broken._replace(device=broken.device._replace(name="AMD Instinct MI300X"))
    assert f"'sudo nvidia-smi -i {nvidia.device.uuid} --gpu-reset'" in reset(nvidia.device)
    assert "nvidia-smi" not in reset(other.device)


def test_what_all_makers_share_has_the_words_of_none() -> None:
    shared = [
        "model/metrics", "model/frame", "model/origin", "model/units", "model/panels", "daemon/sampler", "sources/base",
        "tracking/matching",
    ]  # fmt: skip
    texts = {name: (ROOT / "gpumon" / f"{name}.py").read_text(encoding="utf-8") for name in shared}
    words = ["nvidia-smi", "libnvidia", '"GPU-', '"MIG-', *(f'"{vendor.name}' for vendor in VENDORS)]
    assert [(name, word) for name, text in texts.items() for word in words if word in text] == []


def test_what_a_driver_requires_is_told_in_words_where_its_number_has_some() -> None:
    assert recovery_text(NVIDIA, 0) == recovery_text(None, 0) == "nothing"
    assert recovery_text(NVIDIA, 1) == "a reset of the GPU"
    assert (
        recovery_text(NVIDIA, 5)
        == recovery_text(AMD, 1)
        == recovery_text(None, 1)
        == recovery_text(NVIDIA, float("nan"))
        == ""
    )
