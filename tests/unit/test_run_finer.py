"""A past run with finer points than its trace, where kept history still has them."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from math import isnan, nan
from pathlib import Path

import pytest

from gpumon.reports import html
from gpumon.reports.figures.run_series import POINTS, RunSeries, refine
from gpumon.storage.history.envelope import Envelope
from gpumon.storage.history.open import open_history
from gpumon.storage.history.tiered_history import TieredHistory
from gpumon.storage.history.tiers import SHAPES
from gpumon.storage.ledger.reader import Ledger
from tests.builders import device
from tests.months import fill
from tests.runs import Book

GPU = device().uuid
HOUR = 3600
STALL = 1234
"""Seconds after the begin of the run at which the GPU stood still, for 10 s."""


@pytest.fixture
def begin() -> float:
    return (time.time() - 10 * HOUR) // 300 * 300


@pytest.fixture
def history(tmp_path: Path, begin: float) -> Iterator[TieredHistory]:
    """Cells of 10 s from an hour before the run to an hour after its first four."""
    stall = (begin + STALL) // 10 * 10

    def values(subject: str, name: str, at: float) -> tuple[float, float, float]:
        if not subject or name != "gpu.utilization" or begin + 3000 <= at < begin + 3300:
            return nan, nan, nan
        return (0.0,) * 3 if at == stall else (0.9,) * 3

    path = str(tmp_path / "history.sqlite")
    fill(path, [GPU], begin + 5 * HOUR, values, shapes=[SHAPES[1]._replace(keep=6 * HOUR)])
    with closing(open_history()) as found:
        found.set_path(path)
        yield found


def trace(begin: float, step: float, points: int) -> RunSeries:
    """A coarse line, which lacks one point."""
    mean = [0.8] * points
    mean[5] = nan
    return RunSeries(
        begin, step, {"gpu.utilization": Envelope(mean, mean, mean), "gpu.power": Envelope(mean, mean, mean)}
    )


def test_finer_points_stand_wherever_there_are_some_and_the_trace_elsewhere(
    history: TieredHistory, begin: float
) -> None:
    found = refine(trace(begin, 64.0, 450), history, GPU)
    assert found.step == 10
    assert found.points <= POINTS
    line = found.columns["gpu.utilization"]

    def at(second: float) -> float:
        return line.mean[int((begin + second - found.begun) // found.step)]

    assert at(STALL) == 0.0
    assert at(STALL + 30) == at(STALL - 30) == pytest.approx(0.9)
    assert at(3100) == 0.8, "what the history lacks is the trace's"
    assert at(6 * HOUR) == 0.8
    assert isnan(at(5 * 64 + 20)), "what the run's trace lacks is nobody's"
    assert set(found.columns["gpu.power"].mean[40:]) == {0.8}


def test_without_anything_finer_a_run_stays_as_it_is(history: TieredHistory, begin: float) -> None:
    for series in (trace(begin, 5.0, 450), trace(begin - 9 * HOUR, 64.0, 100), RunSeries(begin, 64.0, {})):
        assert refine(series, history, GPU) is series
    coarse = trace(begin, 64.0, 450)
    assert refine(coarse, history, "") is coarse
    assert refine(coarse, history, device(7).uuid) is coarse
    assert refine(coarse, open_history(), GPU) is coarse


def test_the_points_of_a_long_run_are_bounded(history: TieredHistory, begin: float) -> None:
    found = refine(trace(begin, 64.0, 450), history, GPU, points=1000)
    assert found.points <= 1000
    assert found.step == 30
    low = found.columns["gpu.utilization"].low[int((begin + STALL - found.begun) // found.step)]
    assert low == 0.0, "a stall is seen at any zoom"


def test_a_report_has_the_finer_points(tmp_path: Path, history: TieredHistory, begin: float) -> None:
    with Book(tmp_path / "state") as book:
        book.run(started=begin, ended=begin + 8 * HOUR)
        key = book.rank("resnet50-1a2b")
        uuid = book.device(key)
        book.trace(key, uuid, {"gpu.utilization": [(0.8, 0.8, 0.8)] * 450})
        with Ledger(str(book.path)) as ledger:
            record, traces = ledger.record("resnet50-1a2b"), ledger.traces("resnet50-1a2b")
    traces = [replace(one, begun=begin, step=64.0, uuid=GPU) for one in traces]
    record = replace(record, ranks=[
        replace(rank, devices=[replace(one, uuid=GPU) for one in rank.devices]) for rank in record.ranks
    ])  # fmt: skip

    def points(page: str) -> int:
        (found,) = re.findall(r'id="figures">(.*?)</script>', page, re.DOTALL)
        return max(len(line["y"]) for line in json.loads(found)[0]["data"] if "y" in line)

    plain, fine = html.page(record, traces, begin), html.page(record, traces, begin, history)
    assert points(plain) == 450
    assert points(fine) > 2800
    assert len(fine) < len(plain) + 500_000
