"""The first line: whose GPUs, how many do what as far as that is known, their power, how fresh; nothing moves."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import pytest
from textual.pilot import Pilot

from gpumon.analysis.gpu_state import GpuState
from gpumon.common.clock import SECOND
from gpumon.live import LiveState
from gpumon.model.device import Device
from gpumon.model.frame import Run, Sample
from gpumon.model.metrics import Availability
from gpumon.model.origin import SIMULATED, Driver, Origin, SourceInfo
from gpumon_tui.app import GpumonApp
from gpumon_tui.render.gpu_status import holder
from gpumon_tui.render.header import _counts, header
from gpumon_tui.state import View
from tests.builders import frame_of, judged, process, run, sample, tick
from tests.tui.fakes import GIB, LIVE, START, FakeFeed, recent
from tests.tui.screen import play, text

STALE = LiveState(False, "stale: last seen 14:24:59 (15 s ago)", 1.0, 15.0)
WIDTHS = (40, 60, 80, 100, 120, 160, 200, 320)


def heads(feed: FakeFeed, widths: Sequence[int] = WIDTHS, *keys: str) -> dict[int, str]:
    """The header at each width, after some keys."""
    lines: dict[int, str] = {}

    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.press(*keys)
        lines.update((cells, "".join(part.text for part in header(app.view, cells)).rstrip()) for cells in widths)

    play(feed, (120, 20), script)
    return lines


def head(feed: FakeFeed, cells: int, *keys: str) -> str:
    return heads(feed, [cells], *keys)[cells]


def hardware(**changes: Any) -> FakeFeed:
    return recent(label="", source="nvml", **changes)


def without_driver() -> FakeFeed:
    feed = hardware(problem="the NVIDIA driver is not loaded")
    feed.state_of_all = Availability.NO_DRIVER
    feed.advance()
    return feed


def test_liveness_and_clock_end_at_the_same_cells_in_every_state() -> None:
    recorded = LiveState(True, "replayed", 1.0)
    own = LiveState(True, "no daemon: sampling in this process", 1.0)
    states = {
        "● live": heads(hardware()),
        "‖ paused": heads(hardware(), WIDTHS, "space"),
        "○ stale 15 s": heads(hardware(live=STALE)),
        "▲ no driver": heads(without_driver()),
        "▸ replay 4×": heads(recent(label="REPLAY x.csv.gz ×4", source="replay", speed=4.0, live=recorded)),
        "● own sampler": heads(hardware(live=own)),
        "○ no GPU": heads(hardware(gpus=0, problem="no driver")),
    }
    for state, lines in states.items():
        for cells, line in lines.items():
            assert line[cells - 11 - len(state) : cells - 11] == state
            assert line[cells - 9 : cells - 3] in {"14:24:", "14:25:"}
    for cells, live in states["● live"].items():
        until = cells - 11 - len("● own sampler")
        assert live[:until] == states["‖ paused"][cells][:until], "nothing else moves"


@pytest.mark.parametrize("label", ["REPLAY t.gpumon (REPLAY a.csv.gz ×10)", "REPLAY 3×4.gpumon ×2 (SIMULATED)"])
def test_the_speed_is_that_of_playing_whatever_the_name_of_the_recording(label: str) -> None:
    for speed, state in ((1.0, "▸ replay"), (2.0, "▸ replay 2×"), (123456.0, "▸ replay 1.235e+05×")):
        feed = recent(label=label, source="replay", speed=speed, live=LiveState(True, "replayed", 1.0))
        line = head(feed, 120)
        assert line[: 120 - 11].endswith(f" {state}")
        assert line[120 - 9 : 120 - 3] in {"14:24:", "14:25:"}


def test_models_are_named_once_and_power_stands_beside_its_limit() -> None:
    line = head(hardware(), 160)
    assert line.startswith(" gpumon  node7  8 × H100 80GB  ")
    assert line[: 160 - 29].endswith(" of 5.60 kW")
    assert "6 busy · 1 allocated, idle · 1 free" in line


def test_that_none_is_free_is_said_only_where_that_is_known_of_all() -> None:
    assert "2 busy · 0 free" in head(hardware(gpus=2), 120)
    one_lost = head(hardware(gpus=2, lost=(1,)), 120)
    assert "1 busy · 1 lost" in one_lost
    assert "free" not in one_lost


def test_where_the_counts_have_no_room_the_free_gpus_are_counted_alone() -> None:
    widths = (54, 60, 66, 72, 79)
    assert all("1 free" in line for feed in (recent(), hardware()) for line in heads(feed, widths).values())
    for feed in (recent(live=STALE), recent(gpus=2, lost=(1,))):  # of a lost GPU it is unknown
        assert not any("free" in line for line in heads(feed, widths).values())


def test_one_word_stands_for_one_state_where_there_is_little_room() -> None:
    def counts(*states: GpuState) -> str:
        return "".join(part.text for part in _counts([judged(sample(), state) for state in states], is_brief=True))

    assert counts(GpuState.HELD, GpuState.IDLE, GpuState.LOST) == "1 held idle · 1 idle · 1 lost"
    assert counts(GpuState.HELD, GpuState.LOST) == "1 idle · 1 lost"


def test_of_gpus_that_do_not_answer_no_power_is_told() -> None:
    line = head(without_driver(), 160)
    assert "no GPU answers" in line
    assert "kW" not in line
    assert "3.19 of 4.90 kW, 7 of 8 GPUs" in head(hardware(lost=(3,)), 160), "of the seven that answer"
    assert "3.19 of 4.90 kW, 7 of 8 GPUs" in head(hardware(stale=(3,)), 160), "of the seven that answer now"
    assert "GPUs" not in head(hardware(), 160)
    assert "– of 5.60 kW" in head(hardware(stale=tuple(range(8))), 160)


def test_a_gpu_with_two_runs_says_that_there_is_another() -> None:
    one = run()
    assert holder(sample(0, run=one.key), one, (), 2).name == f"{one.name} +1"
    assert holder(sample(0, run=one.key), one, (), 1).name == one.name


def test_power_of_which_a_part_is_unknown_is_a_lower_bound() -> None:
    line = head(hardware(powerless=(3,)), 160)
    assert re.search(r"≥\d\.\d\d of 5\.60 kW, 7 of 8 GPUs", line)


def test_old_numbers_are_not_told_as_those_of_now() -> None:
    line = head(hardware(live=STALE), 160)
    assert "8 stale" in line
    assert "free" not in line
    assert "– of 5.60 kW" in line


def test_what_is_simulated_or_recorded_says_so_on_every_width() -> None:
    widths = (20, *WIDTHS)
    assert all(" SIMULATED " in line + " " for line in heads(recent(), widths).values())
    replayed = heads(recent(label="REPLAY x.csv", source="replay"), widths)
    assert all(" REPLAY " in line for line in replayed.values())


class BesideHardware(FakeFeed):
    """Two sources in one: the first GPUs are of this machine, those from the sixth on are simulated."""

    def origin(self) -> Origin:
        """That of both; the label is of the simulation alone."""
        parts = (Origin("nvml"), Origin("sim", "SIMULATED", capabilities=SIMULATED))
        return Origin("nvml,sim", "sim: SIMULATED", parts=tuple(SourceInfo(one) for one in parts))

    def sample(self, device: Device, second: int) -> Sample:
        """One that says of which source it is."""
        found = super().sample(device, second)
        return found._replace(device=device._replace(source="sim" if device.index >= 6 else "nvml"))


def test_simulated_gpus_among_those_of_this_machine_are_named_on_every_width() -> None:
    widths = (30, *WIDTHS)
    for line in heads(BesideHardware(first=600), widths).values():
        assert " SIMULATED 6–7 " in line + " "
        assert "sim:" not in line
    assert not any("SIMULATED" in line for line in heads(BesideHardware(first=600, gpus=6), widths).values())


def test_a_gpu_that_was_stale_when_its_daemon_fell_silent_grows_older_with_the_others() -> None:
    drawn = play(hardware(gpus=4, stale=(1,), live=STALE), (160, 24))
    assert [line for line in drawn if "stale 27 s" in line], "12 s in the frame, which is 15 s old"
    assert sum("stale 15 s" in line for line in drawn[2:]) == 3
    hanging = play(hardware(stale=tuple(range(8))), (160, 24))
    assert sum(line.rstrip().endswith("stale 12 s") for line in hanging[2:]) == 8, "in the row of each"
    assert hanging[0].rstrip().endswith(head(hardware(), 160).rstrip()[-8:]), "frames go on, and so does the clock"


def test_names_of_strangers_stay_plain_text() -> None:
    class Hostile(FakeFeed):
        def hostname(self) -> str:
            return "\x1b]0;pwn\x07[red]"

    line = head(Hostile(), 160)
    assert "\\x1b]0;pwn\\x07[red]" in line


def test_the_reason_has_a_line_only_while_there_is_one() -> None:
    feed = hardware(live=STALE)

    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        top = app.page.line_widgets[0].region.y
        assert app.page.reason.region == (0, 1, 120, 1)
        assert "last seen" in text(app)[1]
        feed.live = LIVE
        feed.advance()
        app.poll()
        await pilot.pause()
        assert not app.page.reason.display
        assert app.page.line_widgets[0].region.y == top - 1

    play(feed, (120, 40), script)


def test_driver_and_machine_stand_where_there_is_room() -> None:
    told = {120: (), 140: (), 160: ("driver 550.54.15", "CPU"), 200: ("driver 550.54.15", "CPU", "RAM")}
    for cells, line in heads(FakeFeed(seconds=100, source="nvml", label=""), [*told]).items():
        assert tuple(word for word in ("driver 550.54.15", "CPU", "RAM") if word in line) == told[cells]
    gone = FakeFeed(seconds=100, source="nvml", label="", state_of_all=Availability.NO_DRIVER)
    assert not any("driver 550" in line for line in heads(gone, [*told]).values())


def test_memory_of_a_small_machine_has_a_decimal() -> None:
    class Small(FakeFeed):
        def host(self, second: int) -> dict[str, float]:
            return super().host(second) | {"host.memory_used": 3.8 * GIB, "host.memory_total": 23.5 * GIB}

    assert "RAM  3.8 of 23.5 GiB" in play(Small(seconds=100, source="nvml", label=""), (200, 24))[0]


def test_below_gpus_stand_no_epochs_of_a_run_on_none_of_them() -> None:
    class OnCpu(FakeFeed):
        def runs(self, second: int) -> tuple[Run, ...]:
            return tuple(run._replace(gpus=()) for run in super().runs(second))

    assert any("epochs of" in line for line in play(hardware(), (160, 40)))
    assert not any("epochs of" in line for line in play(OnCpu(label="", source="nvml"), (160, 40)))


@pytest.mark.parametrize(
    ("cells", "said"),
    [(160, "1 busy · 1 light load · 1 pausing · 1 allocated, idle"), (80, "3 in use · 1 idle · 0 free")],
)
def test_gpus_are_counted_in_the_header_by_the_words_of_their_rows(cells: int, said: str) -> None:
    shares = (0.9, 0.1, 0.0, 0.0)
    view = View()
    view.hostname = "node7"
    kept = {"memory_used": 40 * 2.0**30, "memory_total": 80 * 2.0**30}
    for second in range(1, 80):
        now = [sample(at, utilization=share if at != 2 or second > 70 else 0.9, **kept)
               for at, share in enumerate(shares)]  # fmt: skip
        view.frame = frame_of(tick(second, now, [process(at, at) for at in range(4)]), second)
        view.add(view.frame)
    line = "".join(part.text for part in header(view, cells))
    assert f" {said}" in line
    assert [status.word() for status in view.statuses] == ["busy", "light load", "pausing", "allocated, idle"]


def counted(busy: Sequence[float], states: Sequence[Availability] = ()) -> list[str]:
    """The counts of the header in each second, of a GPU with these shares of use."""
    view, found = View(), []
    for second, share in enumerate(busy, 1):
        state = states[second - 1] if states else Availability.OK
        now = [sample(at, state if at else Availability.OK, utilization=share if at else 0.9, memory_used=0.0,
                      memory_total=80 * 2.0**30) for at in range(2)]  # fmt: skip
        times = {"time_ns": (START + second) * SECOND, "monotonic_ns": second * SECOND}
        view.frame = frame_of(tick(second, now, **times), second)
        view.add(view.frame)
        line = "".join(part.text for part in header(view, 160))
        found.append(" ".join(re.findall(r"\d+ (?:busy|free|pausing|lost)", line)))
    return found


def test_counts_stand_still_while_a_gpu_is_busy_each_other_second() -> None:
    assert len(set(counted([0.9, 0.0] * 10)[2:])) == 1
    assert counted([0.9, *[0.0] * 30])[-1] != counted([0.9] * 31)[-1], "what lasts is counted"


def test_a_lost_gpu_is_counted_at_once() -> None:
    states = [Availability.OK] * 5 + [Availability.LOST]
    assert "1 lost" in counted([0.9] * 6, states)[-1]


def test_the_version_of_the_driver_stays_where_a_gpu_pauses() -> None:
    def told(states: Sequence[float], cells: int) -> bool:
        view = View()
        view.hostname, view.driver = "node7", Driver("550.54.15", "CUDA 12.4")
        kept = {"memory_used": 40 * 2.0**30, "memory_total": 80 * 2.0**30}
        for second in range(1, 80):
            now = [sample(at, utilization=share if second > 70 else 0.9, **kept) for at, share in enumerate(states)]
            view.frame = frame_of(tick(second, now, [process(at, at) for at in range(4)]), second)
            view.add(view.frame)
        return "driver" in "".join(part.text for part in header(view, cells))

    for cells in range(100, 200, 4):
        assert told((0.9, 0.9, 0.9, 0.9), cells) == told((0.9, 0.9, 0.9, 0.0), cells)
