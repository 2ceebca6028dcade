"""One GPU that hangs, or is lost, among others that answer: nothing of it passes for a value of now."""

from __future__ import annotations

import re
from math import nan
from typing import Any

import pytest
from textual.pilot import Pilot

from gpumon.analysis.thresholds import SILENT
from gpumon.live import LiveState
from gpumon.model.device import Device
from gpumon.model.frame import Sample
from gpumon.model.metrics import Availability
from gpumon_tui.app import GpumonApp
from gpumon_tui.render.process_head import unknown_text
from tests.tui.fakes import FakeFeed
from tests.tui.screen import Script, play, text

SIZES = ((40, 20), (120, 40))


def silent(**options: Any) -> FakeFeed:
    """A machine whose GPU 1 is lost, and whose GPU 2 has hung for 12 s."""
    return FakeFeed(**{"label": "", "source": "nvml", "lost": (1,), "stale": (2,), "seconds": 300, **options})


def pressed(*keys: str) -> Script:
    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.press(*keys)

    return script


def row_of(screen: list[str], gpu: int) -> str:
    """The row of a GPU in its table."""
    return next(line for line in screen if re.match(rf"[▌ ] *{gpu} +[▁▂▃▄▅▆▇·▌]", line))


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
def test_a_gpu_that_hangs_has_no_utilization_of_now_and_the_age_of_its_other_values(size: tuple[int, int]) -> None:
    row = row_of(play(silent(), size), 2)
    assert "%" not in row
    assert "–" in row
    assert "stale 12 s" in row


def test_a_card_of_a_gpu_that_hangs_has_no_values_beside_one_that_answers() -> None:
    screen = play(silent(gpus=2, lost=(), stale=(0,)), (120, 40))
    assert any("breakdown unknown" in line for line in screen)
    assert not any("fan" in line or "1.95 GHz" in line for line in screen)
    assert any("– of 700 W" in line or "of 700 W" not in line for line in screen[5:] if "Power" in line)


def test_the_chart_page_says_of_silent_gpus_how_they_are_and_not_which_run_they_had() -> None:
    screen = play(silent(), (120, 40), pressed("2"))
    assert row_of(screen, 1).split()[-2:] == ["–", "lost"]
    assert row_of(screen, 2).split()[-4:] == ["–", "stale", "12", "s"]
    assert "resnet50" in row_of(screen, 3)


def test_a_mean_of_peers_counts_those_that_answer() -> None:
    screen = play(silent(), (80, 24), pressed("2"))
    assert "its peer " in screen[2], "GPUs 1 and 2 tell nothing"


@pytest.mark.parametrize("page", ["1", "3"])
def test_processes_of_silent_gpus_are_unknown_or_marked_as_of_before(page: str) -> None:
    for size in SIZES[1:]:
        screen = play(silent(), size, pressed(page))
        assert any("those of GPU 1 unknown, of GPU 2 stale 12 s" in line for line in screen), size
        rows = [line.split() for line in screen if "python" in line and "○2" in line]
        assert rows, size
        assert all("–" in row for row in rows), "its share of a GPU that does not answer"
    narrow = play(silent(), SIZES[0], pressed("3"))
    assert "those of GPU 1 unknown" in narrow[1]
    assert any("○2" in line for line in narrow)


def test_processes_of_gpus_that_answer_are_counted_without_a_word() -> None:
    for page in "13":
        assert not any("those of" in line for line in play(silent(lost=(), stale=()), (120, 40), pressed(page)))


def test_a_sleeping_gpu_has_no_process_and_one_in_mig_mode_leaves_them_to_its_instances() -> None:
    asleep = Sample(Device("GPU-0", 0, "", {}), Availability.ASLEEP, [])
    assert unknown_text([asleep]) == ""
    failed = Sample(Device("GPU-1", 1, "", {}), Availability.FAILED, [])
    assert unknown_text([asleep, failed]) == "those of GPU 1 unknown"


def test_values_of_a_driver_that_hangs_are_dated_by_when_they_were_read() -> None:
    feed = silent(gpus=2, lost=(), stale=(0, 1))

    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        assert "The values below are from 14:18:07." in text(app)[1]
        await pilot.press("space")
        feed.advance(5)
        app.poll()
        await pilot.pause()

    screen = play(feed, (120, 40), script)
    assert "‖ paused 5 s" in screen[0]
    assert "The values below are from 14:18:07." in screen[1]


def test_of_a_driver_that_never_answered_no_value_is_dated() -> None:
    class Never(FakeFeed):
        def sample(self, device: Device, second: int) -> Sample:
            found = super().sample(device, second)
            return found._replace(values=[nan] * len(found.values))

    screen = play(Never(gpus=2, seconds=10, source="nvml", stale=(0, 1)), (120, 40))
    assert "the driver does not answer · asked 12 s ago, never seen." in screen[1]
    assert "values below" not in screen[1]


def test_the_answer_of_a_narrow_terminal_says_of_when_it_is() -> None:
    feed = FakeFeed(seconds=300, label="", source="nvml")
    assert "1 free " in play(feed, (40, 20))[1]
    assert play(feed, (40, 20), pressed("space"))[1].startswith("  14:18:19  1 free ")
    ended = LiveState(False, "ended", 1.0)
    over = FakeFeed(seconds=300, label="REPLAY x.csv", source="replay", ended=True, live=ended)
    assert play(over, (40, 20))[1].startswith("  end  1 free ")


def test_the_answer_of_a_narrow_terminal_counts_what_is_unknown_before_it_tells_sizes() -> None:
    assert "2 unknown" in play(silent(), (40, 20))[1]


@pytest.mark.parametrize("keys", [(), ("2",)], ids=["overview", "chart"])
def test_a_chart_of_a_gpu_that_slept_all_the_time_says_so(keys: tuple[str, ...]) -> None:
    class Laptop(FakeFeed):
        """A GPU that is powered down."""

        def sample(self, device: Device, second: int) -> Sample:
            found = super().sample(device, second)
            return found._replace(state=Availability.ASLEEP, values=[nan] * len(found.values))

    screen = "\n".join(play(Laptop(gpus=1, seconds=100), (120, 40), pressed(*keys)))
    assert Availability.ASLEEP.reason in screen
    assert "no samples in this window" not in screen
    assert "of –, peak –" not in screen, "three dashes tell no more than one"


def test_what_needs_attention_is_as_old_as_the_row_of_its_gpu_in_every_frame() -> None:
    class Growing(FakeFeed):
        """A machine whose GPU 2 hangs from second 300 on."""

        def sample(self, device: Device, second: int) -> Sample:
            found = super().sample(device, second)
            is_silent = device.index == 2 and second >= 300
            return found._replace(state=Availability.STALE, age=second - 299.1) if is_silent else found

    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        for _ in range(12):
            feed.advance()
            app.poll()
            await pilot.pause()
            screen = text(app)
            (age,) = re.findall(r"stale (\d[\d.]* s)", row_of(screen, 2))
            told = re.findall(r"has not answered for (\d[\d.]* s)", "\n".join(screen))
            assert told == ([age] if float(age.split()[0]) >= SILENT else [])

    feed = Growing(label="", source="nvml", seconds=300)
    play(feed, (120, 40), script)
