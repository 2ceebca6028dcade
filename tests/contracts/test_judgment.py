"""The same frame gives the same answers in every view, and nothing is judged in JavaScript."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from gpumon.analysis.gpu_state import GpuState
from gpumon.analysis.gpu_status import gpu_statuses
from gpumon.analysis.progress import progress
from gpumon.analysis.ranks import ranks_of
from gpumon.analysis.run_epochs import Epochs
from gpumon.common.clock import SECOND
from gpumon.model.frame import Boundary, Frame, Mark, Run, Sample
from gpumon.model.metrics import PROCESSES, Availability
from gpumon.model.origin import Driver, Origin
from gpumon.reports.status_json import document
from gpumon.reports.status_text import lines
from gpumon.storage.history.recent import RecentHistory
from gpumon_tui.render import run_list
from gpumon_tui.render.gpu_columns import gpu_columns
from gpumon_tui.render.gpu_row import GpuLine, gpu_row
from gpumon_tui.render.gpu_status import GpuHolder, gpu_status
from gpumon_tui.state import View
from gpumon_web.fleet import Fleet, make_gpu
from tests.builders import TIME, device, frame_of, process, run, sample, tick

GIB = 2.0**30
EMPTY = {"utilization": 0.0, "memory_used": 0.0, "memory_total": 80 * GIB, "memory_reserved": 0.5 * GIB}
HOLDING = {**EMPTY, "memory_used": 40 * GIB}

ASSETS = sorted((Path(__file__).parents[2] / "web/gpumon_web/assets").glob("[0-9a-z]*.js"))
FRACTION = re.compile(r"[<>]=?\s*0?\.\d")
NAMED = re.compile(r"const ([A-Z_]+) = (?:0?\.\d+|[0-9]+(?:\.\d+)?)\b")


@pytest.mark.parametrize("script", ASSETS, ids=lambda path: path.name)
def test_no_script_compares_a_share_with_a_threshold_of_its_own(script: Path) -> None:
    code = re.sub(r"//.*", "", script.read_text(encoding="utf-8"))
    assert not FRACTION.search(code), "judge it in gpumon/diagnosis, and send the finding"
    assert not re.search(r"INPUT_BOUND|THROTTLED|_share\s*[<>]", code)
    for name in NAMED.findall(code):
        assert not re.search(rf"\.(?:\w*share|temperature\w*|utilization\w*)\)?\s*[<>]=?\s*{name}\b", code)


@pytest.mark.parametrize(
    ("mask", "listed", "said"),
    [
        (0x0, [], ""),
        (0x1, ["idle"], ""),
        (0x24, ["power limit", "heat (driver)"], "power limit, heat (driver)"),
        (float("nan"), None, ""),
    ],
)
def test_what_holds_the_clocks_is_said_in_the_same_words_in_every_view(
    mask: float, listed: list[str] | None, said: str
) -> None:
    one = sample(0, **HOLDING, event_reasons=mask, clock_sm=1.5e9)
    one = one._replace(device=one.device._replace(name="NVIDIA H100"))
    frame = frame_of(tick(1, [one]))
    assert document(frame, Origin("nvml"), Driver(), "node", None)["gpus"][0]["clock_event_reasons"] == listed
    (status,) = gpu_statuses(frame, [])
    (throttling,) = (one["text"] for one in make_gpu(status, []).health if one["title"] == "Throttling")
    assert throttling == ("not reported" if listed is None else f"clocks held by {said}" if said else "none")
    label, nobody = gpu_status(status, RecentHistory()), GpuHolder("", False, "", ())
    columns = gpu_columns(200)
    told = GpuLine(one, status.state, label, "", nobody, math.nan, math.nan, math.nan, [])
    drawn = {placed.column.key: cell.text for placed, cell in zip(columns.placed, gpu_row(told, columns), strict=True)}
    assert drawn["clock_sm"] == "1.50"
    shown = drawn["throttled"]
    if said and listed:  # several have no room in the table
        assert shown == f"{len(listed)} reasons"
    else:
        assert shown == ("–" if listed is None else "no")


class Case(NamedTuple):
    """A GPU over some seconds, and the state that every view must give."""

    name: str
    seconds: Sequence[Sample | None]
    """One sample for each of the last seconds, None where no frame came; the last one is on screen."""
    state: GpuState
    word: str
    holders: Sequence[Any] = ()
    runs: Sequence[Run] = ()


def then(*parts: tuple[int, Sample | None]) -> list[Sample | None]:
    """So many seconds of each sample, one after the other."""
    return [one for count, one in parts for _ in range(count)]


BUSY = sample(0, **{**HOLDING, "utilization": 0.9})
IDLE_HELD = sample(0, **HOLDING)
IDLE_EMPTY = sample(0, **EMPTY)
UNLISTABLE = IDLE_EMPTY._replace(device=device(missing={PROCESSES: Availability.NO_PERMISSION}))
LOGGED = sample(0, utilization=0.0, memory_used=40 * GIB)._replace(device=UNLISTABLE.device)
LOGGED_EMPTY = sample(0, utilization=0.0, memory_used=0.1 * GIB)._replace(device=UNLISTABLE.device)
SILENT = sample(0, Availability.STALE, utilization=0.9)._replace(age=12.0)
MINE = run(gpus=(device().uuid,), started=TIME / SECOND)
CASES = [
    Case("works", then((100, BUSY)), GpuState.BUSY, "busy", [process()]),
    Case("works a little", then((100, sample(0, **{**HOLDING, "utilization": 0.05}))), GpuState.BUSY, "light load"),
    Case("held by a container that lists no process", then((100, IDLE_HELD)), GpuState.HELD, "allocated, idle"),
    Case("worked until 30 s ago, no process listed", then((70, BUSY), (30, IDLE_HELD)), GpuState.BUSY, "pausing"),
    Case("worked until 30 s ago, and is empty", then((70, BUSY), (30, IDLE_EMPTY)), GpuState.FREE, "free"),
    Case("worked until 90 s ago, process still there", then((10, BUSY), (90, IDLE_HELD)), GpuState.HELD,
         "allocated, idle", [process()]),
    Case("process without memory", then((100, IDLE_EMPTY)), GpuState.HELD, "allocated, idle",
         [process(memory_used=0.0)]),
    Case("claimed by a run that has no process on it yet", then((100, IDLE_EMPTY)), GpuState.HELD, "allocated, idle",
         (), [MINE]),
    Case("held, in the first frame of all", then((1, IDLE_HELD)), GpuState.ALLOCATED, "allocated", [process()]),
    Case("held, and watched for less than a minute", then((60, IDLE_HELD)), GpuState.ALLOCATED, "allocated"),
    Case("held, and watched for a minute", then((61, IDLE_HELD)), GpuState.HELD, "allocated, idle"),
    Case("worked before a gap of more than a minute", then((10, BUSY), (70, None), (20, IDLE_HELD)),
         GpuState.ALLOCATED, "allocated", [process()]),
    Case("works, in the first frame of all", then((1, BUSY)), GpuState.BUSY, "busy", [process()]),
    Case("empty, in the first frame of all", then((1, IDLE_EMPTY)), GpuState.FREE, "free"),
    Case("empty", then((100, IDLE_EMPTY)), GpuState.FREE, "free"),
    Case("empty, and processes cannot be listed", then((100, UNLISTABLE)), GpuState.IDLE, "idle"),
    Case("nobody tells of processes nor of its memory in all, and much is in use", then((100, LOGGED)), GpuState.HELD,
         "allocated, idle"),
    Case("the same, and little is in use", then((100, LOGGED_EMPTY)), GpuState.IDLE, "idle"),
    Case("utilization is unknown", then((100, sample(0, memory_used=0.0, memory_total=80 * GIB))), GpuState.UNKNOWN,
         "state unknown"),
    Case("lost", then((100, sample(0, Availability.LOST))), GpuState.LOST, "lost"),
    Case("asleep", then((100, sample(0, Availability.ASLEEP))), GpuState.ASLEEP, "asleep"),
    Case("not answering", then((100, SILENT)), GpuState.STALE, "stale 12 s"),
    Case("unreadable", then((100, sample(0, Availability.NO_PERMISSION))), GpuState.UNREADABLE,
         Availability.NO_PERMISSION.reason),
]  # fmt: skip


def frames_of(case: Case) -> list[Frame]:
    """The frames of a case, a second apart."""
    return [
        frame_of(tick(number, [one], case.holders, case.runs), number)
        for number, one in enumerate(case.seconds, start=1)
        if one is not None
    ]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_gpu_has_the_same_state_in_every_view(case: Case) -> None:
    frames = frames_of(case)
    newest, before = frames[-1], frames[:-1]
    fleet, view = Fleet(), View()
    for frame in frames:
        fleet.add(frame)
        view.activity.add(frame)
    view.frame = newest
    (gpu,) = fleet.about(newest, Epochs(), Origin("nvml"), Driver(), "node1").gpus
    told = document(newest, Origin("nvml"), Driver(), "node1", None, before=before)
    (one,) = newest.samples
    shown = gpu_status(view.statuses[0], RecentHistory())
    text = list(lines(newest, Origin("nvml"), Driver(), "node1", "", before))[1]
    assert {view.statuses[0].state.value, gpu.state.value, told["gpus"][0]["gpu_state"]} == {case.state.value}
    assert shown.word == case.word
    assert case.word in text
    assert told["gpus"][0]["state"] == one.state.name.lower(), "the availability keeps its key"


def epochs_of(*moments: float) -> list[Boundary]:
    """Epochs from 0 that begin at these seconds, each ended where the next begins."""
    found = [Boundary("r", 1, Mark.RUN_BEGIN, -1, 0, "", 0, TIME)]
    for epoch, second in enumerate(moments):
        at = round(second * SECOND)
        if epoch:
            found.append(Boundary("r", len(found) + 1, Mark.EPOCH_END, epoch - 1, 0, "", at, TIME + at))
        found.append(Boundary("r", len(found) + 1, Mark.EPOCH_BEGIN, epoch, 0, "train", at, TIME + at))
    return found


@pytest.mark.parametrize(
    ("now", "begins", "done", "left"),
    [
        (15.0, (0.0, 10.0), 0.375, 25.0),
        (10.0, (0.0, 10.0), 0.25, 30.0),
        (60.0, (0.0, 10.0), (1 + 0.99) / 4, 20.0),
        (38.0, (0.0, 10.0, 20.0, 30.0), 0.95, 2.0),
    ],
    ids=["half through the second of four", "at its begin", "overdue", "nearly over"],
)
def test_a_run_is_as_far_in_every_view(now: float, begins: Sequence[float], done: float, left: float) -> None:
    started = TIME / SECOND
    one = run("r", epochs=4, epoch=len(begins) - 1, epoch_started=started + begins[-1], started=started)
    newest = frame_of(tick(round(now), [IDLE_HELD], runs=[one], boundaries=epochs_of(*begins)))
    epochs = Epochs()
    epochs.add(newest)
    (ranks,) = ranks_of(newest.runs)
    found = progress(ranks, epochs, newest.time)
    assert (found.done, found.left) == (pytest.approx(done), pytest.approx(left))
    (row,) = Fleet().about(newest, epochs, Origin("nvml"), Driver(), "node1").runs.values()
    assert (row["progress"], row["left"]) == (pytest.approx(done, abs=1e-3), pytest.approx(left))
    (told,) = document(newest, Origin("nvml"), Driver(), "node1", None)["runs"]
    assert (told["progress"], told["time_left"]) == (pytest.approx(done, abs=1e-3), pytest.approx(left))
    text = "\n".join(lines(newest, Origin("nvml"), Driver(), "node1", ""))
    assert f"{round(done * 100)}% done" in text.replace("\u202f", "").replace(" %", "%")
    listed = run_list.from_frame(ranks, None, epochs, newest.time)
    assert (listed.share, listed.left) == (found.done, found.left)
    cells = [cell.text for cell in run_list.row(listed, None, newest.time, is_open=False, cells=160)]
    assert any(cell.strip().startswith(f"{left:.0f}") or f"0:{left:02.0f}" in cell for cell in cells), cells
