"""The page of events, as a person uses it: what happened when, filtered, and the way to its moment on the chart."""

from __future__ import annotations

import re
from collections.abc import Sequence
from copy import copy
from dataclasses import replace
from itertools import takewhile
from typing import Any

import pytest
from textual.geometry import Size
from textual.pilot import Pilot

from gpumon.common.clock import SECOND
from gpumon.common.errors import GpumonError
from gpumon.common.numbers import NAN
from gpumon.live import LiveState
from gpumon.model import units
from gpumon.model.device import Device
from gpumon.model.events import BY_NAME, Event, EventSubject
from gpumon.model.frame import Frame, RunState, Sample
from gpumon.model.metrics import GPU_INDEX
from gpumon.model.origin import Capability, Origin
from gpumon.storage.events.query import LoggedEvent
from gpumon_tui.app import GpumonApp
from gpumon_tui.background_queries import BackgroundQueries
from gpumon_tui.data.events import EventHistory
from gpumon_tui.render.event_rows import EventRow, event_rows, filter_rows, merged_rows
from gpumon_tui.render.text_width import Line, length
from gpumon_tui.state import View
from gpumon_tui.widgets.event_table import EventPreview, EventTable
from tests.crossed import crossed
from tests.instructions import instructions
from tests.programs import until
from tests.tui.fakes import START, FakeFeed, FakePlayer, FakeWriter
from tests.tui.screen import play, text

NOW = START + 699
DAY = 86400
HOSTILE = "\x1b]0;pwn\x07日本[red]\u202e"


def event(
    ago: float, kind: str, gpu: int | None = None, user: str = "", run: str = "", *, lasted: float = NAN,
    ongoing: bool = False, cause: str = "", **details: Any,
) -> LoggedEvent:  # fmt: skip
    device = f"GPU-{gpu:04}" if gpu is not None else ""
    of = EventSubject(device, user, run, cause)
    name = f"GPU {gpu}" if gpu is not None else ""
    time_ns = round((NOW - ago) * SECOND)
    return LoggedEvent(time_ns, BY_NAME[kind], of, name, lasted, NOW * 10**9 if ongoing else 0, details)


LOG = sorted(
    [
        event(3 * DAY, "daemon_started", source="nvml"),
        event(DAY + 60, "driver_lost", reason="driver not loaded"),
        event(DAY + 8, "driver_reloaded", lasted=52, version="550.54.15", before="545.23.08"),
        event(40000, "run_began", user="bob", run="resnet50-1a2b", gpus=["GPU-0004"], name="resnet50"),
        event(30000, "run_ended", user="bob", run="resnet50-1a2b", gpus=["GPU-0004"], lasted=10000, state="finished"),
        event(20000, "gpu_lost", 2, reason="fallen off the bus"),
        event(19990, "xid", 2, cause="79", code=79),
        event(17000, "gpu_back", 2, lasted=3000),
        event(9000, "out_of_memory", 5, "carol", "vit-77", asked=2 * 2.0**30, free=1.1 * 2.0**30, name="vit"),
        event(8990, "run_died", user="carol", run="vit-77", gpus=["GPU-0005"], lasted=12.0, name="vit", state="died"),
        event(4000, "throttling_began", 3, cause="gpu.throttled_hw_thermal", ongoing=True),
        event(3000, "idle_began", 6, "dave", ongoing=True),
        event(699, "run_began", user="alice", run="id-0", gpus=[f"GPU-{n:04}" for n in range(4)], name="llama"),
    ],
    key=lambda one: one.time_ns,
)


def logged(path: str) -> Sequence[LoggedEvent]:
    return LOG


def no_log(path: str) -> Sequence[LoggedEvent]:
    raise GpumonError("no events recorded yet: start 'gpumon daemon'")


async def settled(app: GpumonApp, pilot: Pilot[Any]) -> None:
    """Wait until the log has been read."""
    while not app.view.ledger_runs.queries.is_idle:
        await pilot.pause(0.01)
    app.draw()
    await pilot.pause()


def opened(size: tuple[int, int], *keys: str, feed: FakeFeed | None = None, read: Any = logged) -> list[str]:
    """The page after some keys."""

    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.press("5")
        await settled(app, pilot)
        await pilot.press(*keys)

    return play(feed or FakeFeed(source="nvml", label=""), size, script, read_events=read)


def rows(lines: list[str]) -> list[str]:
    first = next(place for place, line in enumerate(lines) if "time" in line and "what" in line) + 1
    return [line for line in takewhile(str.strip, lines[first:-1]) if "▼" not in line]


def sheet(app: GpumonApp) -> EventTable:
    found = app.pages["Events"].line_widgets[1]
    assert isinstance(found, EventTable)
    return found


@pytest.mark.parametrize(
    ("size", "keys"),
    crossed(
        [(40, 20), (80, 24), (120, 40), (200, 50), (320, 90)],
        [(), ("slash", "x"), ("tab", "tab"), ("g", "g"), ("end",)],
    ),
)
def test_every_size_and_state_fits(size: tuple[int, int], keys: tuple[str, ...]) -> None:
    """Not slow: each size and each state once; the golden screens have the rows and a filter at every size."""
    nothing = FakeFeed(gpus=0, seconds=2, problem="no driver", source="nvml")
    for feed, read in ((FakeFeed(seconds=5, source="nvml"), logged), (nothing, no_log), (FakeFeed(seconds=2), logged)):
        lines = opened(size, *keys, feed=feed, read=read)
        assert len(lines) == size[1]
        assert all(len(line) <= size[0] for line in lines)
        assert any("Events" in line for line in lines)


STOPPED = [
    event(900, "daemon_started", source="nvml"),
    event(800, "throttling_began", 1, cause="gpu.throttled_hw_thermal"),
    event(790, "throttling_ended", 1, cause="gpu.throttled_hw_thermal", lasted=10),
    event(700, "throttling_began", 1, cause="gpu.throttled_hw_thermal"),
    event(690, "idle_began", 6, "dave"),
    event(600, "not_seen", 1, cause="gpu.throttled_hw_thermal", of="throttling_began", unseen=True),
    event(600, "not_seen", 6, "dave", of="idle_began", unseen=True),
    event(600, "not_seen", user="bob", run="resnet50-1a2b", of="run_began", unseen=True),
    event(599, "daemon_stopped", lasted=300),
]


def test_daemon_stop_is_one_event_and_open_events_get_a_minimum() -> None:
    found = rows(opened((120, 40), read=lambda path: STOPPED))
    assert sum("daemon stopped" in line for line in found) == 1
    assert [line for line in found if "end not seen" in line and "resnet50-1a2b" not in line] == []
    assert next(line for line in found if "throttling began" in line).endswith("≥ 1:40")
    assert next(line for line in found if "allocated but idle" in line).endswith("≥ 1:30")
    assert any("end not seen" in line for line in found), "of what began before all of this"
    ended = [line for line in found if "throttling" in line][1:]
    assert not any("≥" in line for line in ended), "its end was seen"


def restarted(gap: float) -> list[LoggedEvent]:
    """A log in which a daemon ran for 10 minutes, and the next one began `gap` seconds after its end."""
    first = [event(2000, "throttling_began", gpu, cause="gpu.throttled_hw_thermal") for gpu in range(4)]
    ends = [
        event(1400, "not_seen", gpu, cause="gpu.throttled_hw_thermal", of="throttling_began", lasted=600)
        for gpu in range(4)
    ]
    again = [
        event(1400 - gap, "throttling_began", gpu, cause="gpu.throttled_hw_thermal", ongoing=True, at_least=True)
        for gpu in range(4)
    ]
    stop, start = event(1400, "daemon_stopped", lasted=600), event(1400 - gap, "daemon_started", source="nvml")
    return [*first, event(1500, "run_died", user="bob", run="vit-77"), *ends, stop, start, *again]


def test_restart_is_one_event_with_the_unwatched_time() -> None:
    found = rows(opened((200, 50), read=lambda path: restarted(76)))
    (restart,) = [line for line in found if "daemon restarted" in line]
    assert "not sampled for 1 min, from" in restart
    assert "continued across the restart: throttling on GPU 0–3" in restart
    assert sum("throttling began" in line for line in found) == 4
    assert not any("end not seen" in line or "daemon started" in line for line in found)
    assert any("run died" in line for line in found)


def test_restart_has_the_time_of_the_next_start() -> None:
    log = restarted(76)
    (row,) = [one for one in merged_rows(log, (), {}, is_of_now=True) if one.event.kind.name == "daemon_restarted"]
    stop, start = (next(one for one in log if one.kind.name == name) for name in ("daemon_stopped", "daemon_started"))
    assert row.time == start.time_ns / SECOND
    assert row.text.startswith(f"not sampled for 1 min, from {units.clock(stop.time_ns / SECOND)}, ")


def test_stopped_daemon_has_no_duration() -> None:
    (row,) = [
        one for one in merged_rows(restarted(400), (), {}, is_of_now=True) if one.event.kind.name == "daemon_stopped"
    ]
    assert (row.duration, row.text) == ("", "not sampled for 6 min, had run for 10:00")


def test_open_events_are_ongoing_only_while_observed() -> None:
    feed = FakeFeed(source="nvml", label="")
    assert any(line.endswith("ongoing") for line in rows(opened((120, 40), feed=feed)))
    feed.live = LiveState(False, "the daemon stopped 60 s ago", 1.0, 60.0)
    found = rows(opened((120, 40), feed=feed))
    assert not any("ongoing" in line for line in found)
    seen = f"last seen {units.moment(NOW)[11:16]}"
    assert next(line for line in found if "allocated but idle" in line).endswith(seen)
    feed = FakeFeed(source="nvml", label="", live=LiveState(True, "sampled by this view", 1.0))
    found = rows(opened((120, 40), feed=feed))
    assert next(line for line in found if "allocated but idle" in line).endswith(seen), "who wrote the log may be dead"


def test_log_of_a_new_daemon_is_read_at_once() -> None:
    logs = [[event(700, "daemon_started", source="nvml", ongoing=True)]]

    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.press("5")
        await settled(app, pilot)
        assert "daemon started" in "\n".join(text(app))
        logs[:] = [restarted(76)]
        app.poll()
        await settled(app, pilot)
        assert "daemon started" in "\n".join(text(app)), "what was read a moment ago is good while nothing has changed"
        feed.made_by = FakeWriter(pid=4712)
        app.poll()
        await settled(app, pilot)
        assert "daemon restarted" in "\n".join(text(app))

    feed = FakeFeed(source="nvml", label="")
    play(feed, (120, 40), script, read_events=lambda path: logs[0])


def test_unchanged_log_is_the_same_object() -> None:
    """Its rows, thousands perhaps, are not built and drawn again."""
    queries, path = BackgroundQueries(), "history.db"
    answers = iter([[*LOG], [replace(event) for event in LOG], [replace(event) for event in LOG[1:]]])
    history = EventHistory(queries, lambda _: next(answers))

    def read() -> Sequence[LoggedEvent] | None:
        queries.expire(("events", path))
        history.logged(path)
        until(lambda: queries.is_idle)
        return queries.cached(("events", path)).result

    first = read()
    assert read() is first
    assert read() == LOG[1:]


def test_old_log_says_nothing_about_now() -> None:
    old = replace(event(3000, "daemon_started", source="nvml"), until_ns=(NOW - 1800) * SECOND)
    assert event_rows([old], {}, now=NOW)[0].duration == f"last seen {units.moment(NOW - 1800)[11:16]}"
    days = replace(old, until_ns=(NOW - 2 * DAY) * SECOND)
    assert event_rows([days], {}, now=NOW)[0].duration == f"last seen {units.moment(NOW - 2 * DAY)[5:10]}"
    written = replace(old, until_ns=(NOW - 60) * SECOND)
    assert event_rows([written], {}, now=NOW)[0].duration == "ongoing"


HEAT = "gpu.throttled_hw_thermal"


def paused(*, by_log: bool) -> tuple[list[LoggedEvent], list[Event]]:
    """A daemon that stood still for 8 s while GPU 3 was throttled, as the log or the frames of a view tell it."""
    began = event(600, "throttling_began", 3, cause=HEAT, ongoing=True, at_least=True)
    end = event(300, "not_seen", 3, cause=HEAT, of="throttling_began", unseen=True)
    again = event(292, "throttling_began", 3, cause=HEAT, ongoing=True, at_least=True)
    if by_log:
        return [replace(began, until_ns=0), end, again], []
    known = replace(began, until_ns=round((NOW - 310) * SECOND))
    return [known], [Event(one.time_ns, one.kind.name, one.subject, one.details) for one in (end, again)]


@pytest.mark.parametrize("by_log", [True, False])
def test_pause_of_the_daemon_does_not_split_an_event(by_log: bool) -> None:
    (row,) = merged_rows(*paused(by_log=by_log), {}, is_of_now=True, now=NOW)
    assert "not sampled for 8 s of it" in row.text
    assert row.time == NOW - 600
    assert row.duration == ("ongoing" if by_log else ""), "the log has not been written since"


def test_event_end_counts_from_before_the_pause() -> None:
    log, _ = paused(by_log=True)
    end = event(92, "throttling_ended", 3, cause=HEAT, lasted=200)
    last, first = merged_rows([*log[:2], replace(log[2], until_ns=0), end], [], {}, is_of_now=True, now=NOW)
    assert (first.duration, last.duration) == ("", "8:28")


def test_later_observation_replaces_an_unobserved_end() -> None:
    log, seen = paused(by_log=False)
    (row,) = merged_rows([replace(log[0], until_ns=NOW * SECOND)], seen, {}, is_of_now=True, now=NOW)
    assert row.duration == "ongoing"


def test_gpus_keep_their_numbers_without_frames() -> None:
    class Goes(FakeFeed):
        def frame(self, second: int) -> Frame:
            if second >= 700:
                self.devices = []
            return super().frame(second)

    feed = Goes(source="nvml", label="", lost=(1, 3))

    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.press("5")
        await settled(app, pilot)
        feed.advance(1)
        app.poll()
        await pilot.pause()
        assert not app.view.samples

    found = "\n".join(play(feed, (120, 40), script, read_events=no_log))
    assert "GPU 1" in found
    assert "GPU 3" in found
    assert "GPU-0" not in found


def test_newest_event_is_first_with_its_texts() -> None:
    found = rows(opened((120, 40)))
    assert found[0].split() == ["▌", "14:13:20", "▸", "run", "began", "GPU", "0–3", "alice", "id-0,", "llama"]
    assert any("out of memory" in line and "GPU 5" in line and "carol" in line and "2.0 GiB" in line for line in found)
    assert any("allocated but idle" in line and "ongoing" in line for line in found)
    assert "daemon started" in found[-1]


def test_filter_selects_events_and_escape_clears_it() -> None:
    whole = rows(opened((120, 40)))
    found = rows(opened((120, 40), "slash", *"carol", "enter"))
    assert found
    assert all("carol" in line for line in found)
    assert rows(opened((120, 40), "slash", *"carol", "enter", "escape")) == whole
    assert "all are hidden" in "\n".join(opened((120, 40), "slash", *"zzz"))


def test_gpu_filter_finds_events_of_runs() -> None:
    found = rows(opened((120, 40), "slash", *"gpu:3", "enter"))
    assert any("throttling" in line for line in found)
    assert any("GPU 0–3" in line for line in found)
    assert not any("GPU 5" in line for line in found)


def test_run_event_lists_all_gpus_of_the_run() -> None:
    labels = {f"GPU-{n:04}": str(n) for n in range(4)}
    began = event(600, "run_began", user="alice", run="net-1", gpus=["GPU-0000"])
    out_of_memory = event(400, "out_of_memory", 2, "alice", "net-1")
    ended = event(300, "run_ended", user="alice", run="net-1", gpus=["GPU-0000", "GPU-0001"], state="finished")
    found = event_rows([ended, out_of_memory, began], labels, now=NOW)
    assert [row.gpu for row in found] == ["GPU 0–1", "GPU 2", "GPU 0–1"]
    goes_on = event_rows([began], labels, now=NOW, runs={"net-1": [f"GPU-{n:04}" for n in range(3)]})
    assert filter_rows(goes_on, "all", "2", "") == goes_on
    assert not filter_rows(goes_on, "all", "3", "")


def test_tab_shows_critical_events_first() -> None:
    found = rows(opened((120, 40), "tab"))
    assert found
    assert all("▲" in line for line in found)


def test_enter_opens_the_time_on_the_chart() -> None:
    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.press("5")
        await settled(app, pilot)
        await pilot.press("slash", *"gpu:4", "enter")
        row = sheet(app).selected
        assert row is not None
        await pilot.press("enter")
        assert app.page.page_name == "Chart"
        assert app.view.subject == "GPU-0004"
        assert app.view.chart_time.cursor == row.time
        await pilot.press("5")
        assert sheet(app).selected == row

    play(FakeFeed(source="nvml", label=""), (120, 40), script, read_events=logged)


def test_recent_event_is_read_out_in_the_current_window() -> None:
    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.press("5")
        await settled(app, pilot)
        row = sheet(app).selected
        assert row is not None
        await pilot.press("enter")
        end = app.view.chart_time.end if app.view.chart_time.is_past else app.view.now
        assert app.view.chart_time.cursor == row.time
        assert end - app.view.window <= row.time <= end

    play(FakeFeed(source="nvml", label=""), (120, 40), script, read_events=logged)


def test_page_without_a_log_shows_events_of_frames() -> None:
    lines = opened((120, 40), read=no_log)
    assert "start 'gpumon daemon'" in "\n".join(lines)
    assert "; watched since 14:" in "\n".join(lines)
    assert any("run began" in line for line in rows(lines))


def strip_of(lines: list[str], title: str = "24 hours") -> str:
    (line,) = [line for line in lines if line.strip().startswith(title)]
    return line.strip().removeprefix(title).strip()


def test_unwatched_time_is_dotted_in_the_strip() -> None:
    strip = strip_of(opened((120, 40), read=lambda path: LOG[:1]))
    assert strip[:-2] == "·" * (len(strip) - 2)  # all but the minutes of the frames
    assert strip[-1] in "▁▄▇"


def test_watched_time_without_events_is_a_line() -> None:
    lines = opened((120, 40), feed=FakeFeed(seconds=3500, epoch_seconds=4000, source="nvml", label=""))
    assert "▁▁" in strip_of(lines)


def test_watched_since_admits_earlier_rows() -> None:
    lines = "\n".join(opened((120, 40), read=no_log))
    assert "watched since 14:21:40, earlier rows as reported then" in lines


def recording(seconds: int, player: FakePlayer, size: tuple[int, int] = (120, 40)) -> list[str]:
    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.press("5")
        await settled(app, pilot)

    feed = FakeFeed(seconds=seconds, source="replay", label="REPLAY x.gpumon")
    return play(feed, size, script, player=player, read_events=logged)


def test_strip_of_a_recording_spans_its_duration() -> None:
    lines = recording(190, FakePlayer(START, START + 379))
    assert "24 hours" not in "\n".join(lines)
    assert "4 s a cell" in "\n".join(lines)
    strip = strip_of(lines, "recording")
    assert 45 <= len(strip) <= 50  # half of it has been played, and what comes is no line
    assert "·" not in strip


def test_recording_without_a_known_end_is_drawn_as_played() -> None:
    strip = strip_of(recording(100, FakePlayer(START)), "recording")
    assert len(strip) > 49
    assert "·" not in strip


def test_recording_says_that_it_has_no_log() -> None:
    said = " ".join(" ".join(recording(100, FakePlayer())).split())
    assert re.search(r"a recording has no event log: these events come from its frames, 14:\d\d:\d\d to 14:\d\d", said)


def lacking(frame: Frame) -> Frame:
    """The frame as it is once only its values are kept."""
    found = copy(frame)
    found.is_full = False
    return found


class Recording(FakeFeed):
    """Frames of a recording that knows processes."""

    def origin(self) -> Origin:
        return super().origin()._replace(capabilities=Capability.PROCESSES)


def test_log_is_checked_from_its_begin_at_any_speed() -> None:
    """Of frames that came at once only the last are full; a log has neither processes nor runs, and lacks nothing."""
    feed = FakeFeed(seconds=500, source="replay", label="REPLAY x.csv", processes_count=0)
    happened = EventHistory(BackgroundQueries())
    for first in (0, 250):
        frames = feed.frames[first : first + 250]
        happened.add([*map(lacking, frames[:-1]), frames[-1]], feed.origin(), feed.driver())
    happened.all_recorded()
    assert (happened.since, happened.until) == (feed.frames[0].time, feed.frames[-1].time)


def test_values_before_the_checked_frames_count_as_unwatched() -> None:
    feed = Recording(seconds=700, source="replay", label="REPLAY x.gpumon")
    frames = feed.frames
    feed.frames = [*map(lacking, frames[:-1]), frames[-1]]

    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.press("5")
        await settled(app, pilot)

    strip = strip_of(play(feed, (120, 40), script, player=FakePlayer(START, START + 1399)), "recording")
    assert strip[-1] != "·"
    assert set(strip[:-1].strip("▇▄")) <= {"·"}


def test_dropped_frames_restart_the_events() -> None:
    feed = FakeFeed(seconds=300)
    happened = EventHistory(BackgroundQueries())
    happened.add(feed.frames[:100], feed.origin(), feed.driver())
    assert len(happened.all_recorded()) > 0
    assert happened.since == feed.frames[0].time
    happened.add([lacking(frame) for frame in feed.frames[100:200]], feed.origin(), feed.driver())
    happened.add(feed.frames[200:], feed.origin(), feed.driver())
    happened.all_recorded()
    assert (happened.since, happened.until) == (feed.frames[200].time, feed.frames[-1].time)


class Faulty(FakeFeed):
    """Cards that report faults; frames have the code of the worst."""

    def sample(self, device: Device, second: int) -> Sample:
        first = [0.0] * 5 + [NAN] * 2 + [94.0] * 5 + [0.0] * 2 + [48.0] * 30
        values = list((found := super().sample(device, second)).values)
        values[GPU_INDEX["gpu.xid"]] = first[second] if device.index == 0 else 79.0
        return found._replace(values=values)


def test_xid_of_frames_is_an_event_without_a_log() -> None:
    feed = Faulty(gpus=2, seconds=20)
    happened = EventHistory(BackgroundQueries())
    happened.add(feed.frames, feed.origin(), feed.driver())
    xids = [one for one in happened.all_recorded() if one.kind == "xid"]
    gpu = feed.frames[0].samples[0].device.uuid
    assert [(one.subject.device, one.details["code"]) for one in xids] == [(gpu, 94), (gpu, 48)]
    assert [one.time_ns for one in xids] == [round(feed.frames[at].time * SECOND) for at in (7, 14)]
    log = [LoggedEvent(xids[0].time_ns - SECOND, BY_NAME["xid"], xids[0].subject, "GPU 0", NAN, 0, xids[0].details)]
    assert len(merged_rows(log, xids, {}, is_of_now=True, now=NOW)) == 2, "the log tells of the first, too"


def test_idle_begin_matches_the_overview() -> None:
    feed = FakeFeed()

    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await settled(app, pilot)
        while app.view.is_loading:
            await pilot.pause(0.01)
        feed.advance(299)
        app.poll()
        while app.view.is_loading:
            await pilot.pause(0.01)
        app.view.events.all_recorded()
        feed.advance()
        app.poll()
        await pilot.press("5")
        await settled(app, pilot)

    began = [line for line in play(feed, (160, 50), script) if "allocated but idle" in line]
    assert len(began) == 3  # one for each user of GPU 5, which has done nothing in all frames
    assert all(units.clock(START) in line for line in began), "as all frames tell, not the 200 with which events begin"


def test_simulation_does_not_mix_in_the_local_log() -> None:
    lines = " ".join(" ".join(opened((120, 40), feed=FakeFeed())).split())
    told = f"not from this machine; simulated since {units.clock(START)}, events since {units.clock(NOW - 199)}"
    assert told in lines
    assert "daemon started" not in lines


def test_simulation_claims_no_begin_it_does_not_know() -> None:
    late = FakeFeed(first=4000, seconds=4300)
    lines = " ".join(" ".join(opened((120, 40), feed=late)).split())
    assert f"simulated since {units.clock(START + 4000)} or before, events since" in lines


def test_new_event_is_first_and_the_cursor_stays() -> None:
    class Dies(FakeFeed):
        def runs(self, second: int) -> tuple[Any, ...]:
            over = {"state": RunState.DIED} if second >= 700 else {}
            return tuple(one._replace(**over) if one.id == "id-1" else one for one in super().runs(second))

    feed = Dies(source="nvml", label="")

    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.press("5")
        await settled(app, pilot)
        await pilot.press("down", "down")
        row = sheet(app).selected
        feed.advance(2)
        app.poll()
        await pilot.pause()
        found = rows(text(app))
        assert any("run died" in line and "id-1" in line for line in found)
        assert sheet(app).selected == row

    play(feed, (120, 40), script, read_events=logged)


def test_event_in_log_and_frame_is_listed_once() -> None:
    found = rows(opened((120, 40)))
    assert sum("run began" in line and "id-0" in line for line in found) == 1


def test_hostile_names_are_harmless() -> None:
    bad = [event(5, "run_died", user=HOSTILE, run=HOSTILE * 9, name=HOSTILE), event(4, "gpu_lost", 1, reason=HOSTILE)]
    for size in ((40, 20), (120, 40)):
        lines = "\n".join(opened(size, read=lambda path: bad))
        assert "\x1b" not in lines
        assert "\u202e" not in lines


def test_only_visible_rows_of_ten_thousand_are_drawn() -> None:
    many = [event(10_000_000 - 900 * n, "xid", n % 8, cause="31", code=31) for n in range(10_000)]

    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.press("5")
        while len(sheet(app).rows) < len(many):  # the log is read, then its rows are made: neither holds up a key
            assert instructions(app.draw) < 500_000
            await settled(app, pilot)

        def turn() -> None:
            sheet(app).move(1600)
            app.draw()

        assert max(instructions(turn) for _ in range(5)) < 500_000, "usual is a third, as of a thousand events"
        assert sheet(app).cursor == 8000
        row = sheet(app).selected
        for letters in "gpu xid":
            sheet(app).filter += letters
            assert instructions(sheet(app).follow) < 250_000, "a letter of the filter looks once into each row"
        assert sheet(app).selected == row

    play(FakeFeed(source="nvml", label=""), (120, 40), script, read_events=lambda path: many)


def test_page_is_drawn_before_the_log_is_read() -> None:
    from threading import Event as Flag

    release = Flag()

    def slow(path: str) -> Sequence[LoggedEvent]:
        release.wait(30)
        return LOG

    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.press("5")
        await pilot.pause()
        assert "reading the log" in "\n".join(text(app))
        release.set()
        await settled(app, pilot)
        assert "reading the log" not in "\n".join(text(app))

    play(FakeFeed(source="nvml", label=""), (120, 40), script, read_events=slow)


def test_preview_explains_and_charts_the_event() -> None:
    lines = opened((120, 40))
    (at,) = [place for place, line in enumerate(lines) if "open on the chart" in line]
    assert "14:13:20  GPU 0–3 run began" in lines[at]
    assert "When the run's first process on this machine began to report" in lines[at + 1]
    charts = chip_of(lines) + 1
    chip = lines[charts - 1].index("14:13:20") + 4
    assert any(line[chip : chip + 1] == "│" for line in lines[charts : charts + 6])
    assert "93 %" in lines[charts], "what was read at that moment"
    assert "·····" not in lines[charts]


def chip_of(lines: Sequence[str]) -> int:
    """The place of the line above the charts of a moment."""
    (at,) = [place for place, line in enumerate(lines) if "open on the chart" in line]
    return next(place for place, line in enumerate(lines) if place > at and re.fullmatch(r" +\d\d:\d\d:\d\d *", line))


def test_preview_charts_have_a_scale_and_a_history_note() -> None:
    lines = opened((120, 40))
    charts = lines[chip_of(lines) + 1 : -2]
    before = charts[0].index("100 %") + 6
    numbers = [line[14:before].split() for line in charts]
    assert numbers[0] == ["100", "%"]
    assert ["80", "GiB"] in numbers
    assert ["800", "W"] in numbers
    assert numbers.count(["0"]) == 3, "each begins at zero"
    (line,) = [line for line in charts if "history begins here" in line]
    assert not line[before : line.index("history begins here")].strip()


def test_page_without_events_offers_no_keys() -> None:
    feed = FakeFeed(gpus=2, seconds=5, source="replay", label="REPLAY a.csv")
    for frame in feed.frames:
        frame._runs = frame._boundaries = ()

    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.press("5")

    lines = play(feed, (160, 40), script)
    assert any("nothing has happened" in line for line in lines)
    assert not re.search(r"filter|g G|↵|Tab", "\n".join(lines))


def test_footer_offers_event_keys_at_once() -> None:
    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.press("5")
        assert "↵ moment" in text(app)[-1]

    play(FakeFeed(), (160, 40), script)


def test_preview_of_unwatched_time_is_dotted() -> None:
    lines = opened((120, 40), "down", "down", "down")
    first = lines[chip_of(lines) + 1]
    assert "–" in first[:6]
    assert "·····" in first


def test_event_without_a_gpu_has_no_chart() -> None:
    lines = "\n".join(opened((120, 40), "end"))
    assert "no GPU on screen: nothing to draw" in lines


@pytest.mark.parametrize("size", [(40, 20), (79, 40)])
def test_small_page_has_only_the_text_of_an_event(size: tuple[int, int]) -> None:
    many = [event(60.0 * ago, "daemon_started", source="nvml") for ago in range(60)]
    lines = opened(size, read=lambda path: sorted(many, key=lambda one: one.time_ns))
    title = next(place for place, line in enumerate(lines) if "daemon started ──" in line)
    assert len(lines) - 1 - title <= 3, "no more than its text, above the footer"


def test_few_events_leave_room_for_taller_charts() -> None:
    def tall(*keys: str) -> int:
        lines = opened((120, 60), *keys)
        first = next(place for place, line in enumerate(lines) if "open on the chart" in line)
        return len(lines) - first

    assert tall("slash", *"carol", "enter") > tall(), "fewer events, taller charts"
    assert any("Utilization" in line for line in opened((120, 60)))


def test_long_event_text_is_shown_below_the_table() -> None:
    lines = opened(
        (80, 24), "end", read=lambda path: [event(3000, "idle_began", 6, "dave", ongoing=True, at_least=True)]
    )
    assert not any("When the GPU was last busy" in line for line in rows(lines))
    below = " ".join(" ".join(lines).split())
    assert "idle since the first sample. When the GPU was last busy" in below
    assert "↵ open on the chart" in "\n".join(opened((80, 24), read=logged)), "where rows fill the page, too"


def test_source_without_frames_claims_no_events() -> None:
    class Silent(FakeFeed):
        """A feed before its first frame."""

        def since(self, number: int) -> list[Frame]:
            return []

        def state(self) -> LiveState:
            return LiveState(False, "waiting for the first sample", 1.0)

    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.press("5")
        await pilot.pause()

    screen = "\n".join(play(Silent(), (120, 40), script))
    assert "waiting for the first sample" in screen
    assert "nothing has happened" not in screen
    assert "no events" not in screen


def test_frame_end_closes_an_open_log_event() -> None:
    began = event(60, "run_began", user="eva", run="vit-78", ongoing=True)
    died = Event(round((NOW - 5) * SECOND), "run_died", began.subject, lasted=55.0)
    assert event_rows([began], {})[0].duration == "ongoing"
    last, first = merged_rows([began], [died], {}, is_of_now=True)
    assert (last.event.kind.name, first.event.kind.name) == ("run_died", "run_began")
    assert not first.is_open
    assert first.duration == ""
    before = died._replace(time_ns=round((NOW - 70) * SECOND))
    assert [one.duration for one in merged_rows([began], [before], {}, is_of_now=True)] == ["ongoing", "55 s"], (
        "of before it"
    )


def preview_lines(preview: EventPreview, row: EventRow, cells: int, rows: int) -> list[Line]:
    """Lines of the preview of an event in a widget of a size."""
    preview.event = row
    preview._size = Size(cells, rows)  # no app lays it out here
    return preview.lines()


def test_preview_has_no_markdown() -> None:
    view = View()
    view.frame = FakeFeed(gpus=1, seconds=3).frames[-1]
    (row,) = event_rows([event(60, "run_ended", user="bob", run="r", name="r", state="finished")], {})
    preview = EventPreview(view)
    lines = preview_lines(preview, row, 200, preview.needed_rows(200, 60, 60))
    told = "".join(part.text for line in lines for part in line)
    assert "failed run is critical" in told
    assert "`" not in told


@pytest.mark.parametrize("cells", [80, 100, 200])
def test_preview_meaning_uses_a_free_line(cells: int) -> None:
    view = View()
    view.frame = FakeFeed(gpus=1, seconds=3).frames[-1]
    preview = EventPreview(view)
    of_gpu = {"gpus": ["GPU-0000"]}
    long, short = event_rows(
        [event(60, "run_began", user="bob", run="r" * 20, name="r", **of_gpu), event(50, "daemon_started")], {}
    )
    high = preview.needed_rows(cells, 24, 14)
    drawn = preview_lines(preview, long, cells, high)
    told = " ".join(" ".join("".join(part.text for part in line) for line in drawn[2:4]).split())
    assert "some time before." in told
    assert len(drawn) == high, "as many rows as it asked for"
    assert all(length(line) <= cells for line in drawn[:4])
    assert preview.needed_rows(cells, 24, 11) == 11, "without a free line it has one"
    assert len(preview_lines(preview, short, cells, high)) <= high
