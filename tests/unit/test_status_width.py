"""`gpumon status` in the width of a terminal: nothing is wider, and which GPU is free is readable in all of them."""

from __future__ import annotations

import pytest

from gpumon.common.clock import SECOND
from gpumon.common.text import text_width
from gpumon.model.metrics import Availability
from gpumon.model.origin import Driver, Origin
from gpumon.reports.status_text import lines
from tests.builders import TIME, boundary, device, frame_of, process, run, sample, tick

WIDTHS = [40, 60, 100, 200]
SENTENCE = "processes of other users cannot be seen here because this is a container with pids of its own"


def shown(width: int, note: str = "stale: daemon, pid 4711, silent for 12 s") -> list[str]:
    mine = run(
        gpus=(device().uuid,), name="a-training-with-a-long-name", metrics={f"metric{i}": 0.5 for i in range(30)}
    )
    held = [
        process(run=mine.key),
        process(pid=9, uuid=device(1).uuid, user="名前がとても長い人", memory_used=30 * 2.0**30),
    ]
    samples = [
        sample(0, utilization=0.9, run=mine.key, memory_used=60e9, memory_total=80e9),
        sample(1, utilization=0.0, memory_used=32e9, memory_total=80e9, power=110.0, power_limit=700.0),
        sample(2, utilization=0.0, memory_used=0.0, memory_total=80e9, temperature=31.0),
        sample(3, Availability.LOST),
    ]
    of = frame_of(tick(1, samples, held, [mine]))
    origin = Origin("sim", "SIMULATED", notice=SENTENCE)
    return list(lines(of, origin, Driver("570.86.15"), "node1.cluster.example.org", note, width=width))


@pytest.mark.parametrize("width", WIDTHS)
def test_no_line_is_wider_and_which_gpu_is_free_and_what_is_wrong_stay_readable(width: int) -> None:
    told = shown(width)
    assert [line for line in told if text_width(line) > width] == []
    rows = {line.split()[0]: line for line in told if line[:3].strip().isdigit()}
    assert rows.keys() == {"0", "1", "2", "3"}
    assert rows["2"].endswith("  free")
    assert not any("free" in rows[other] for other in ("0", "1", "3"))
    assert "90%" in rows["0"]
    assert "lost" in rows["3"]
    text = " ".join(" ".join(told).split())
    assert "SIMULATED" in text
    assert "silent for 12 s" in text
    assert SENTENCE in text


def test_columns_stand_below_each_other() -> None:
    rows = [line for line in shown(100) if line[:3].strip() in ("0", "1", "2")]
    assert len({line.index("%") for line in rows}) == 1


def test_where_all_has_room_only_padding_differs_from_a_pipe() -> None:
    assert [line.split() for line in shown(2000)] == [line.split() for line in shown(0)]


@pytest.mark.parametrize("width", WIDTHS)
def test_epoch_time_left_and_loss_of_a_run_stay_in_every_width(width: int) -> None:
    now = TIME / SECOND + 600
    mine = run(
        gpus=(device().uuid,), name="resnet50-with-a-name", epoch=30, epochs=90, base=1, first_epoch=1, step=12345,
        phase="train", started=now - 600, epoch_started=now - 20, updated=now, metrics={"acc": 0.71, "loss": 1.055},
    )  # fmt: skip
    begins = [boundary(20 * place, place + 1) for place in range(30)]
    before = frame_of(tick(599, [sample(0, run=mine.key)], [], [mine], begins))
    of = frame_of(tick(600, [sample(0, run=mine.key)], [process(run=mine.key)], [mine]))
    told = list(lines(of, Origin("nvml"), Driver(), "node1", "daemon", before=[before], width=width))
    assert [line for line in told if text_width(line) > width] == []
    text = " ".join(" ".join(told).split())
    assert "epoch 30/90" in text
    assert " done, " in text
    assert " left" in text
    assert "loss 1.055" in text
    assert ("…" in text) == ("acc 0.71" not in text), "that there is more is said"
