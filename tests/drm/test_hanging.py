"""A card whose files do not answer delays no other card, and keeps its last values with their age."""

from __future__ import annotations

import os
from pathlib import Path
from threading import Event

import pytest

from gpumon.common.clock import SystemClock
from gpumon.model.metrics import Availability
from gpumon.sources.base import ProcessInfo
from gpumon.sources.drm import DrmSource
from tests.drm import trees
from tests.drm.trees import Tree
from tests.programs import until


def test_a_hanging_card_is_stale_and_the_other_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hung, other = trees.mi300x(0), trees.mi300x(1)
    Tree(tmp_path, [hung, other])
    source = DrmSource(SystemClock(), lambda pid: ProcessInfo(), timeout=0.2, root=str(tmp_path))
    source.read()
    answers = Event()
    real = os.pread

    def wait(fd: int, length: int, offset: int) -> bytes:
        path = os.readlink(f"/proc/self/fd/{fd}")
        if hung.address in path and path.endswith("gpu_busy_percent"):
            answers.wait(60)
        return real(fd, length, offset)

    monkeypatch.setattr(os, "pread", wait)
    try:
        (first,) = source.read()
        (second,) = source.read()
        stale, fresh = second.samples
        assert stale.state is Availability.STALE
        assert stale.value("gpu.power") == first.samples[0].value("gpu.power")
        assert stale.age > 0
        assert fresh.state is Availability.OK
    finally:
        answers.set()
    assert until(lambda: source.read()[0].samples[0].state is Availability.OK)
    source.close()
