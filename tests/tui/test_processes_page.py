"""The page of processes, as a person uses it: sort, filter, tree, totals, copy; also of very many and hostile names."""

from __future__ import annotations

import os
import re
from math import nan
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot

from gpumon.model.frame import Frame, Run
from gpumon.model.process import Process
from gpumon_tui.app import GpumonApp
from gpumon_tui.preferences import Preferences
from gpumon_tui.render.process_columns import COLUMNS, ORDERS, place_columns
from gpumon_tui.render.table import margin
from gpumon_tui.render.time_axis import HISTORY_START
from gpumon_tui.screens.processes import COVERED_HINT, ProcessesPage
from gpumon_tui.widgets.process_detail import ProcessFact, ProcessPicture, chart_cells, process_lines
from tests.crossed import crossed
from tests.instructions import instructions
from tests.tui.fakes import START, FakeFeed, recent
from tests.tui.screen import play, text

HOSTILE = (
    "[red]x[/]",
    "\x1b]0;pwn\x07",
    "\x9b31m",
    "日本語のプロセス名",
    "e\u0301" * 30,
    "\u202eltr",
    "\udce9",
    "a\tb\nc",
)
GIB = 2.0**30


def page(feed: FakeFeed, size: tuple[int, int], *keys: str) -> list[str]:
    """The page after some keys."""

    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.press("3", *keys)

    return play(feed, size, script)


def pids(lines: list[str]) -> list[int]:
    """Those of the rows, from above."""
    first = next(place for place, line in enumerate(lines) if "GPU" in line and "program" in line) + 1
    words = [line.strip("▌ ").split(" ")[0] for line in lines[first:-1]]
    return [int(word) for word in words if word.isdecimal()]


def in_title(lines: list[str]) -> str:
    return next(line for line in lines if "Processes " in line and "3 Processes" not in line)


class Confined(FakeFeed):
    """A process in a container of a job, one that encodes a video, one that is unknown but for its pid."""

    def processes(self, second: int) -> tuple[Process, ...]:
        changes: dict[int, dict[str, Any]] = {
            1000: {"container": "docker 3f2a9c1b04de", "job": "4242"},
            1037: {"encoder_utilization": 0.25, "decoder_utilization": 0.0, "memory_utilization": 0.61},
            1074: {
                "started": nan,
                "memory_used": nan,
                "cpu_utilization": nan,
                "host_memory": nan,
                "user": "",
                "name": "",
            },
        }
        return tuple(one._replace(**changes.get(one.pid, {})) for one in super().processes(second))


async def read(app: GpumonApp, pilot: Pilot[Any]) -> None:
    """Wait until the history of the process that is open has been read and drawn."""
    of = app.page
    assert isinstance(of, ProcessesPage)
    while not of.detail.trail.asked.is_idle:
        await pilot.pause(0.01)
    app.draw()
    await pilot.pause()


def test_process_opens_with_history_and_escape_closes_it() -> None:
    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.press("3", "slash", *"pid:1000", "enter", "enter")
        await read(app, pilot)
        shown = "\n".join(text(app))
        for told in ("1000  alice", "resnet50, rank 0 of 4", "7 (8/90), train", "job 4242", "0–100 %", "now"):
            assert told in shown
        assert sum("⠀" < letter <= "⣿" for letter in shown) > 20, "lines are drawn"
        await pilot.press("escape")
        assert "Esc close" not in "\n".join(text(app))
        assert "↵ open" in "\n".join(text(app)), "it is told of below the table, as long as there is room"
        assert "pid:1000" in in_title(text(app)), "the filter is closed by the next one"

    play(Confined(), (120, 40), script)


@pytest.mark.parametrize("cells", [1, 5])
def test_filter_can_be_typed_in_very_few_columns(cells: int) -> None:
    page(recent(), (cells, 10), "slash", *"train")


def test_process_under_the_cursor_is_previewed() -> None:
    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.press("3", "down")
        await read(app, pilot)
        below = "\n".join(text(app))
        assert "↵ open" in below
        pid = next(line for line in text(app) if line.startswith("▌")).split()[1]
        assert below.count(f" {pid} ") == 2, "its row and its facts"
        assert "+ -" in text(app)[-1], "the window of its charts"
        await pilot.press("enter")
        await read(app, pilot)
        assert "program" not in "\n".join(text(app)), "no headings of the table"
        assert "Esc close" in "".join(text(app)[1:3])
        assert "Esc close" in text(app)[-1]
        assert "Space" not in text(app)[-1], "keys of rows are not offered where none is seen"
        await pilot.press("space")
        assert not app.page.table.tags, "and tag none"

    play(recent(processes_count=3), (200, 50), script)


def test_recording_without_processes_offers_no_keys() -> None:
    lines = page(recent(source="replay", label="REPLAY x.csv", processes_count=0), (160, 50))
    whole = "\n".join(lines)
    assert "this recording has no process data" in whole
    assert "bw %" not in whole
    assert not re.search(r"\bK\b|Space tag|sort|↵|by user|tree|/ filter", whole)


class Ending(FakeFeed):
    """Process 1666 ends after the first frames, and its pid is another's later."""

    def processes(self, second: int) -> tuple[Process, ...]:
        found = super().processes(second)
        if second < 30:
            return found
        others = tuple(one for one in found if one.pid != 1666)
        again = next(one for one in found if one.pid == 1666)
        return others if second < 32 else (*others, again._replace(started=START + 31.0, name="another"))


def test_ended_process_stays_open_and_says_so() -> None:
    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.press("3", "slash", *"pid:1666", "enter", "enter")
        for gone in (False, True, True, True, True):
            await read(app, pilot)
            shown = "\n".join(text(app))
            assert ("or released GPU 4, after" in shown) is gone
            title = next(line for line in text(app) if "1666  carol   python train.py" in line)
            assert ("GPU 4  ended" in title) is gone
            assert "1666  carol   python train.py" in shown
            feed.advance()
            app.poll()
            await pilot.pause()

    feed = Ending(seconds=30)
    play(feed, (120, 40), script)


@pytest.mark.parametrize(
    ("size", "keys"),
    crossed(
        [(40, 20), (80, 24), (120, 40), (200, 50), (320, 90)], [(), ("t",), ("u",), ("o",), ("slash", "x"), ("enter",)]
    ),
)
def test_every_size_and_state_fits(size: tuple[int, int], keys: tuple[str, ...]) -> None:
    """Not slow: each size and each state once; the golden screens have most of them at every size."""
    for feed in (
        Confined(seconds=70),
        FakeFeed(gpus=0, seconds=2, problem="no driver"),
        FakeFeed(seconds=2, processes_count=0),
    ):
        lines = page(feed, size, *keys)
        assert len(lines) == size[1]
        assert max(map(len, lines)) <= size[0]
        assert "gpumon" in lines[0]


def test_headings_sort_both_ways() -> None:
    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.press("3")
        line = next(place for place, words in enumerate(text(app)) if "program" in words)
        heading = text(app)[line]
        for title in ("PID", "GPU", "user", "GiB", "SM %", "CPU %", "time", "run", "epoch", "program"):
            await pilot.click(offset=(text(app)[line].index(title), line))
            await pilot.pause()
            once = pids(text(app))
            assert sum(arrow in text(app)[line] for arrow in "▼▲") == 1, title
            await pilot.click(offset=(text(app)[line].index(title), line))
            await pilot.pause()
            assert pids(text(app)) != once, title
        assert heading.replace("▼", " ").split() == text(app)[line].replace("▼", " ").replace("▲", " ").split()

    play(recent(), (120, 40), script)


def test_sort_column_is_always_shown_and_marked() -> None:
    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.press("3")
        page = app.page
        assert isinstance(page, ProcessesPage)
        line = page.table.region.y
        for _ in page.table.orders:
            await pilot.press("comma")
            await pilot.pause()
            assert sum(arrow in text(app)[line] for arrow in "▼▲") == 1, page.table.order

    play(recent(), (40, 24), script)


def test_sort_list_sorts_and_is_remembered() -> None:
    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.press("3", "o")
        assert "Sort by" in "\n".join(text(app))
        await pilot.press("home", "enter")
        assert pids(text(app)) == sorted(pids(text(app)))
        await pilot.press("1", "3", "I")
        assert pids(text(app)) == sorted(pids(text(app)), reverse=True)
        await pilot.press("f6", "escape")
        assert "Sort by" not in "\n".join(text(app))

    play(recent(), (120, 40), script)


class Begun(FakeFeed):
    """Processes whose use of the CPU is known from the next sample on."""

    is_known: bool = False

    def processes(self, second: int) -> tuple[Process, ...]:
        known = super().processes(second)
        return known if self.is_known else tuple(one._replace(cpu_utilization=nan) for one in known)


def test_key_sorts_by_a_column_without_values_yet() -> None:
    feed = Begun(seconds=3)

    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.press("3", "P")
        assert "CPU %" not in "\n".join(text(app))
        feed.is_known = True
        feed.advance()
        app.poll()
        await pilot.pause()
        assert "CPU %▼" in "\n".join(text(app))

    play(feed, (160, 40), script)


def test_order_is_kept_between_sessions(tmp_path: Path) -> None:
    def after(*keys: str) -> list[int]:
        found: list[int] = []

        async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
            app.view.preferences = Preferences(str(tmp_path / "tui.json"))
            await pilot.press("3", *keys)
            found.extend(pids(text(app)))
            app.view.preferences.close()

        play(recent(), (120, 40), script)
        return found

    ascending = sorted(after("o", "home", "enter"))
    assert after() == ascending
    after("I")
    assert after() == ascending[::-1]
    (tmp_path / "tui.json").write_text('{"processes sorted": "miracle down"}')
    assert after()[:3] == [1666, 1296, 1777], "by memory, where there is no such column"


def test_filter_counts_and_clears() -> None:
    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.press("3", "slash", *"mem", "greater_than_sign", *"10")
        assert "14 of 24" in in_title(text(app))
        await pilot.press("space", *"user", "colon", *"bob")
        shown = text(app)
        assert "4 of 24" in in_title(shown)
        assert all(" bob " in line for line in shown if any(f" {pid} " in line for pid in pids(shown)))
        await pilot.press("enter", "down")
        assert "mem>10 user:bob" in in_title(text(app)), "it stays while rows are looked at"
        await pilot.press("escape")
        assert "24" in in_title(text(app))
        assert "mem>10" not in in_title(text(app))

    play(recent(), (120, 40), script)


def test_letters_of_a_filter_are_no_keys() -> None:
    lines = page(recent(), (120, 40), "slash", *"q1k?")
    assert "/  q1k?" in in_title(lines)
    assert "3 Processes" in lines[-1]


def test_empty_filter_result_names_the_hiding_terms() -> None:
    lines = page(recent(), (120, 40), "slash", *"python", "space", "m", "e", "m", "greater_than_sign", *"99")
    said = "\n".join(lines)
    assert "0 of 24" in said
    assert "no process matches: of 24, python hides 16, mem>99 hides 24" in said


def test_the_footer_offers_to_end_processes_but_not_users() -> None:
    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.press("3")
        for back in ("escape", "u", "t", "enter"):
            assert "K end…" in text(app)[-1], back
            await pilot.press("u")
            assert "K end…" not in text(app)[-1]
            await pilot.press(back)
        assert "K end…" in text(app)[-1]

    play(recent(source="nvml", label=""), (200, 50), script)


def test_total_of_a_user_opens_its_processes() -> None:
    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.press("3", "u")
        shown = text(app)
        first = next(place for place, line in enumerate(shown) if line.split()[:1] == ["user"]) + 1
        users = [line.strip("▌ ").split()[0] for line in shown[first : first + 4]]
        assert users == ["alice", "bob", "carol", "dmitri"], "by their memory"
        await pilot.press("down", "enter")
        assert "6 of 24" in in_title(text(app))

    play(recent(), (120, 40), script)


def test_cursor_stays_on_its_process_and_selects_its_gpu() -> None:
    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.press("3", "down", "j")
        of = app.page
        assert isinstance(of, ProcessesPage)
        process = of.table.process
        assert process is not None
        assert app.view.subject == process.uuid
        for keys in (("o", "home", "enter"), ("I",), ("t",), ("t",)):
            await pilot.press(*keys)
            assert of.table.process is not None
            assert of.table.process.pid == process.pid

    play(recent(), (120, 40), script)


def test_page_keys_move_by_the_room_for_rows() -> None:
    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.press("3", "ctrl+d")
        assert isinstance(app.page, ProcessesPage)
        assert app.page.table.cursor == 2, "half a page is more than there are rows"

    play(recent(processes_count=3), (120, 40), script)


def test_selection_of_another_page_is_under_the_cursor() -> None:
    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        app.view.selected_process = (1629, "GPU-0003")
        await pilot.press("3")
        assert any(line.startswith("▌    1629") for line in text(app))
        await pilot.press("down")
        assert app.view.selected_process == (1259, "GPU-0000")

    play(recent(), (120, 40), script)


def test_click_selects_a_row_and_a_switch() -> None:
    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.press("3")
        row = next(place for place, line in enumerate(text(app)) if " 1296 " in line)
        await pilot.click(offset=(20, row))
        assert text(app)[row].startswith("▌")
        row = next(place for place, line in enumerate(text(app)) if "by user" in line)
        await pilot.click(offset=(text(app)[row].index("by user"), row))
        assert "processes" in "\n".join(text(app))

    play(recent(), (120, 40), script)


def test_dropped_processes_are_counted() -> None:
    assert "12 more have no room" in in_title(page(recent(left_out=(12, 0)), (80, 24)))
    assert "+12" in in_title(page(recent(left_out=(12, 0)), (40, 20)))


def test_copied_row_has_its_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    copied: list[str] = []
    monkeypatch.setattr(GpumonApp, "copy_to_clipboard", lambda self, words: copied.append(words))
    assert "copied" in "\n".join(page(recent(), (120, 40), "y"))
    assert copied[0].split("\t")[:4] == ["1666", "4", "carol", "22.4"]


def test_hostile_names_stay_plain_text() -> None:
    for size in ((40, 20), (120, 40)):
        for keys in ((), ("u",), ("t",), ("slash", "x")):
            lines = page(
                FakeFeed(seconds=5, names=HOSTILE, users=HOSTILE, run_names=(HOSTILE[1], HOSTILE[3])), size, *keys
            )
            assert len(lines) == size[1]
            assert not any(letter in line for line in lines for letter in "\x1b\x07\x9b\u202e\t")


class Crowded(FakeFeed):
    """Thousands of processes, which nobody sees all at once."""

    def processes(self, second: int) -> tuple[Process, ...]:
        one = super().processes(second)[0]
        return tuple(
            one._replace(pid=place + 2, uuid=self.devices[place % 8].uuid, memory_used=(place * 7 % 2000) * GIB / 100,
                         cpu_utilization=(place + second) % 9 / 3)
            for place in range(self.processes_count)
        )  # fmt: skip


def test_drawing_the_overview_does_not_depend_on_the_number_of_processes() -> None:
    spent = []

    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        assert "more with" in "\n".join(text(app))
        spent.append(instructions(app.draw))

    for count in (200, 2000):
        play(Crowded(seconds=3, processes_count=count), (120, 40), script)
    assert spent[1] < 1.1 * spent[0], spent


def test_only_visible_rows_of_two_thousand_are_drawn() -> None:
    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.press("3", "end")
        assert "2000" in in_title(text(app))
        of = app.page
        assert isinstance(of, ProcessesPage)
        made = []
        row = type(of.table).row
        of.table.row = lambda index: made.append(index) or row(of.table, index)  # type: ignore[func-returns-value, method-assign]
        spent = []
        for _ in range(3):
            feed.advance()
            spent.append(instructions(app.poll))
        assert len(made) <= 3 * 40, "only rows on screen are made"
        assert max(spent) < 2_500_000, "all of them are put in order; usual is a third"

    feed = Crowded(seconds=3, processes_count=2000)
    play(feed, (120, 40), script)


def test_foreign_processes_get_no_local_script_name() -> None:
    class Ours(FakeFeed):
        def processes(self, second: int) -> tuple[Process, ...]:
            one = super().processes(second)[0]
            return (one._replace(pid=os.getpid(), name="trainer", started=START - 1.0),)

    lines = page(Ours(seconds=3), (120, 40))
    assert "trainer" in "\n".join(lines)
    assert "pytest" not in "\n".join(lines)


def test_enter_on_the_overview_opens_the_process() -> None:
    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.press("tab", "tab", "down", "down")
        pid, _ = app.view.selected_process or (0, "")
        await pilot.press("enter")
        await pilot.pause()
        assert re.search(rf"^ +{pid} .*── +(K end or signal… +)?Esc close", "\n".join(text(app)), re.MULTILINE)

    play(recent(processes_count=9), (160, 50), script)


def test_keys_do_not_change_a_covered_table() -> None:
    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.press("3")
        page = app.page
        assert isinstance(page, ProcessesPage)
        before = page.table.order, page.table.is_by_user, page.table.is_tree
        await pilot.press("enter")
        for key in ("P", "I", "comma", "u", "t", "space", "slash", "o"):
            await pilot.press(key)
            assert (page.table.order, page.table.is_by_user, page.table.is_tree) == before, key
            assert COVERED_HINT in text(app)[-1], key
        assert app.screen is page
        await pilot.press("escape", "P")
        assert page.table.order.name == "cpu"
        await pilot.press("u")
        assert "Space" not in text(app)[-1], "a user is not tagged"

    play(recent(processes_count=9), (120, 40), script)


class Joined(FakeFeed):
    """Frames as a ring has them for who begins at 400 s: older than two minutes they have no processes."""

    def frame(self, second: int) -> Frame:
        found = super().frame(second)
        found.is_full = second >= 280
        return found


def test_process_window_is_limited_to_known_history() -> None:
    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.press("3")
        page = app.page
        assert isinstance(page, ProcessesPage)
        assert (page.detail.window, app.view.window) == (120, 600), "frames alone tell of it"
        feed.advance(200)
        app.poll()
        assert page.detail.window == 600, "of the time since the view began more is known"
        await pilot.press("plus")
        assert page.detail.window == 900, "longer than what was on screen"
        await pilot.press("minus", "minus")
        assert page.detail.window == 300

    feed = Joined(processes_count=3, seconds=400)
    play(feed, (160, 50), script)


def test_process_history_without_a_daemon() -> None:
    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        feed.advance(250)
        app.poll()
        await pilot.press("3", "enter")
        await read(app, pilot)
        begin = next(at + len(HISTORY_START) for line in text(app) if (at := line.find(HISTORY_START)) >= 0)
        end = next(line.rindex(" now") for line in text(app) if line.rstrip().endswith(" now"))
        cells = chart_cells(120, margin(120))
        assert (end - begin) / cells == pytest.approx(370 / 600, abs=0.1)

    feed = Joined(processes_count=3, seconds=400)
    play(feed, (120, 40), script)


class Older(FakeFeed):
    """Processes that are older than all that is known of them."""

    def processes(self, second: int) -> tuple[Process, ...]:
        return tuple(one._replace(started=START - self.before) for one in super().processes(second))

    before = 3600.0


@pytest.mark.parametrize(("before", "is_told"), [(3600.0, True), (0.0, False)])
def test_charts_say_where_the_history_of_a_process_begins(before: float, is_told: bool) -> None:
    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.press("3", "enter")
        await read(app, pilot)
        assert any("history begins here" in line for line in text(app)) is is_told

    feed = Older(seconds=0)
    feed.before = before
    for _ in range(30):
        feed.advance()
    play(feed, (120, 40), script)


@pytest.mark.parametrize("cells", [80, 100, 110, 119, 120, 200])
def test_memory_and_peak_are_whole_at_any_width(cells: int) -> None:
    facts = [ProcessFact("GPU memory", "139.8 GiB, peak 139.8 GiB")]
    process = ProcessPicture(4711, "train.py", "GPU 0", (), facts, (), [], [], 60, "none")
    lines = process_lines(process, margin(cells), cells, 20)
    assert any(facts[0].text in "".join(part.text for part in line) for line in lines)


@pytest.mark.parametrize(("rows", "is_whole"), [(22, True), (14, False)])
def test_long_command_line_is_whole_or_ends_with_an_ellipsis(rows: int, is_whole: bool) -> None:
    words = [f"--option-{number}" for number in range(20)]
    facts = [ProcessFact(name, "known") for name in ("run", "epoch", "GPU memory", "host memory")]
    facts.append(ProcessFact("command", " ".join(words), rows=6))
    lines = process_lines(ProcessPicture(4711, "train.py", "GPU 0", (), facts, (), [], [], 60, "none"), 1, 80, rows)
    told = [line for line in ("".join(segment.text for segment in row).strip() for row in lines) if "--option" in line]
    assert ("--option-19" in told[-1]) is is_whole
    assert told[-1].endswith("…") is not is_whole


class Named(FakeFeed):
    """Processes of which every number is known, with names as scripts have them, of runs in their tenth epoch."""

    program = "finetune_llama_8b.py"

    def processes(self, second: int) -> tuple[Process, ...]:
        found = super().processes(second)
        return tuple(one._replace(name=self.program, memory_utilization=0.4, sm_utilization=0.9) for one in found)


@pytest.mark.parametrize("cells", [100, 120, 140, 160, 200])
def test_long_program_name_is_whole(cells: int) -> None:
    lines = page(Named(processes_count=4, users=2 * ("magdalen",), seconds=900), (cells, 24))
    row = next(line for line in lines if " 1000 " in line)
    assert row.endswith(f"  {Named.program}")
    assert {"1000", "magdalen", "resnet50", "10/90"} <= set(row.split())
    heading = next(line for line in lines if "program" in line)
    assert {"PID", "GPU", "user", "SM", "CPU", "time", "run", "epoch"} <= set(heading.split())
    assert ("bw %" in heading) == (cells >= 120), "numbers leave for a name only where both have no room"


@pytest.mark.parametrize("order", [one.name for one in ORDERS])
def test_program_column_has_fourteen_cells_in_any_order(order: str) -> None:
    for cells in range(60, 121):
        for columns in (COLUMNS, tuple(one for one in COLUMNS if one.name not in ("enc", "dec", "job"))):
            (room,) = (one.column.cells for one in place_columns(columns, cells, order) if one.column.key == "program")
            assert room >= len("jupyter-kernel"), (cells, room)


def test_epoch_column_fits_the_longest_plan() -> None:
    class Long(Named):
        def runs(self, second: int) -> tuple[Run, ...]:
            plans = {"id-0": (9, 10000), "id-1": (1, 3)}
            return tuple(one._replace(epoch=plans[one.id][0], epochs=plans[one.id][1]) for one in super().runs(second))

    lines = page(Long(processes_count=5, seconds=60), (120, 24))
    (first,) = (line.index("epoch") for line in lines if "program" in line)
    assert lines[4][:130].find("10/10000") + len("10/10000") == first + len("epoch"), "no form needs more room later"


def test_column_stays_after_its_values_are_gone() -> None:
    class Video(FakeFeed):
        def processes(self, second: int) -> tuple[Process, ...]:
            return tuple(one._replace(decoder_utilization=0.1 * (second % 2)) for one in super().processes(second))

    feed, titles = Video(first=600, seconds=602), []

    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.press("3")
        for _ in range(4):
            feed.advance()
            app.poll()
            await pilot.pause()
            titles.append(next(line for line in text(app) if "PID" in line))

    play(feed, (120, 40), script)
    assert "dec" in titles[-1]
    assert len(set(titles[1:])) == 1
