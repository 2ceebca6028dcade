"""The origin of a ring's numbers as readers know it."""

from __future__ import annotations

import json
from typing import Any
from zlib import crc32

import pytest

from gpumon.model.origin import HARDWARE, RECORDED, SIMULATED, Capability, Driver, Origin
from gpumon.ring.directory import Directory, unpack
from gpumon.ring.layout import BLOB

CAPACITY = 1 << 16


def packed(origin: Origin) -> dict[str, Any]:
    """The stored directory of a writer."""
    directory = Directory(1)
    directory.set_origin(origin, Driver("580.65.06", "CUDA 13.0"), "node1")
    found: dict[str, Any] = json.loads(directory.pack(1, CAPACITY)[BLOB.size :])
    return found


def read(stored: dict[str, Any]) -> Origin:
    """The origin that a reader gets of it."""
    body = json.dumps(stored).encode()
    known = unpack(BLOB.pack(1, len(body), crc32(body), 0) + body)
    assert known is not None
    return known.origin


@pytest.mark.parametrize("capabilities", [HARDWARE, SIMULATED, RECORDED, Capability.PROCESSES])
def test_capabilities_travel_with_the_origin(capabilities: Capability) -> None:
    origin = Origin(
        "made", "MADE UP", "no driver", capabilities=capabilities, notice="a container", speed=2.5, lacks_card=True
    )
    assert read(packed(origin)) == origin


def test_a_capability_of_a_later_version_is_passed_over() -> None:
    stored = packed(Origin("nvml"))
    stored["origin"]["capabilities"] = ["live", "telepathy"]
    assert read(stored).capabilities is Capability.LIVE
