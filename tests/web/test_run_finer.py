"""The page of a past run has finer points than its trace, where kept history still has them."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from gpumon.model.frame import RunState
from gpumon.storage.history.tiers import SHAPES
from gpumon_web.stored.run_page import run_document
from tests.months import fill
from tests.runs import Book
from tests.web.charted import lines

HOUR = 3600


@pytest.mark.parametrize(("state", "step"), [(RunState.FINISHED, 10.0), (RunState.RUNNING, 64.0)])
def test_a_run_that_is_over_is_as_fine_as_history_has_it(tmp_path: Path, state: RunState, step: float) -> None:
    begin = (time.time() - 9 * HOUR) // 300 * 300
    with Book(tmp_path / "state") as book:
        book.run(started=round(begin * 1e9), ended=round((begin + 8 * HOUR) * 1e9), state=state)
        key = book.rank("resnet50-1a2b")
        uuid = book.device(key)
        book.trace(key, uuid, {"gpu.utilization": [(0.8, 0.8, 0.8)] * 450}, step=64.0, begun=round(begin * 1e9))

        def values(subject: str, name: str, at: float) -> tuple[float, float, float]:
            return (0.5, 0.9, 1.0) if name == "gpu.utilization" else (float("nan"),) * 3

        history = str(book.path.parent / "history.sqlite")
        fill(history, [uuid], begin + 4 * HOUR, values, shapes=[SHAPES[1]._replace(keep=2 * HOUR)])
        found, _ = run_document([str(book.path)], "resnet50-1a2b", uuid, None, None, time.time(), None)
    assert found is not None
    line = lines(found["chart"])["gpu.utilization"]
    assert line["step"] == step
    assert len(line["mean"]) == pytest.approx(450 * 64 / step, abs=2)
    assert set(line["mean"]) == ({0.8, 0.9} if step == 10 else {0.8})
