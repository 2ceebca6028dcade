"""What needs attention: the key, the list, and its order."""

from __future__ import annotations

from typing import Any

import pytest
from textual import events
from textual.pilot import Pilot

from gpumon.diagnosis.finding import Finding, Severity, Subject, group_findings
from gpumon.diagnosis.gpu import NOTHING
from gpumon.model.device import Device
from gpumon.model.frame import Sample
from gpumon.model.metrics import GPU_INDEX, Availability
from gpumon_tui.app import GpumonApp
from gpumon_tui.render import overview_rows
from gpumon_tui.render.text_width import length, width, wrap_limited, wrap_words
from gpumon_tui.screens.findings import LAST_SEEN, UNKNOWN, FindingsWindow, attention_lines, selected_first
from gpumon_tui.screens.window import ModalWindow
from gpumon_tui.widgets.bars import count_text
from tests.tui.fakes import FakeFeed
from tests.tui.screen import play, text


def finding(subject: str, severity: Severity = Severity.WARNING, summary: str = "idle for 7 min") -> Finding:
    return Finding("kind", severity, Subject("gpu", subject, f"GPU {subject}"), summary, "Ask the holder.")


def said(lines: Any) -> list[str]:
    return ["".join(segment.text for segment in line) for line in lines]


def test_each_finding_has_its_severity_its_summary_and_what_to_do() -> None:
    assert said(attention_lines([finding("3")], (), 60)) == ["GPU 3  warning", "  idle for 7 min", "  Ask the holder."]


def test_findings_of_what_is_selected_come_first_and_then_the_most_severe() -> None:
    found = [finding("1", Severity.CRITICAL), finding("2"), finding("3", Severity.CRITICAL), finding("4")]
    assert [one.subject.id for one in selected_first(found, {"4", "3"})] == ["3", "4", "1", "2"]


@pytest.mark.parametrize("cells", [12, 20, 34, 80])
def test_no_line_is_wider_than_its_room_and_no_word_is_lost(cells: int) -> None:
    long = finding("3", summary="idle for at least 6 h 37 min, 41.3 GiB held by 日本語の名前, dave")
    lines = attention_lines([long], (), cells, is_old=True)
    assert all(length(line) <= cells for line in lines)
    if cells >= 20:
        words = " ".join(said(lines)).split()
        assert [word for word in long.summary.split() if word not in words] == []


@pytest.mark.parametrize("name", ["a" * 200, "日本語" * 40])
def test_a_long_name_is_cut_and_not_what_is_wrong(name: str) -> None:
    one = Finding("kind", Severity.WARNING, Subject("run", "r", name), "waits for data 35 % of its time", "")
    found = group_findings([one])
    drawn = overview_rows.finding_line(found[0], 80, 1, overview_rows.subject_cells(found, 0, 80))
    line = "".join(segment.text for segment in drawn)
    assert one.summary in line
    assert name[:5] in line
    short = group_findings([finding("3")])
    assert overview_rows.subject_cells(short, 0, 80) == len("GPU 3")


def test_a_word_without_room_goes_on_in_the_next_line() -> None:
    assert all(width(line) <= 8 for line in wrap_words("an extraordinarily long word", 8))
    command = "'sudo nvidia-smi -i GPU-51000000-0000-4000-8000-000000000006 --gpu-reset'"
    for cells in (8, 20, 39, 40, 200):
        assert "".join(wrap_words(command, cells)).replace(" ", "") == command.replace(" ", ""), (
            "no letter of an id is cut"
        )


def test_without_a_finding_the_list_says_so_and_old_data_say_that_they_are_old() -> None:
    assert said(attention_lines([], (), 60)) == [NOTHING]
    assert said(attention_lines([], (), 60, is_old=True))[0] == UNKNOWN
    assert said(attention_lines([finding("1")], (), 60, is_old=True))[0] == LAST_SEEN
    assert count_text([]) == ""
    assert count_text(group_findings([finding("1"), finding("2", summary="idle for 9 min")])) == "2 findings"


def test_nothing_is_claimed_of_what_is_not_known() -> None:
    (line,) = said(attention_lines([], (), 80, unknown=["temperature", "runs"]))
    assert line == "No findings; not available here: temperature, runs."


def test_the_same_of_all_gpus_is_told_once() -> None:
    found = [finding(str(gpu)) for gpu in range(8)]
    assert said(attention_lines(found, (), 60)) == ["GPU 0–7  warning", "  idle for 7 min", "  Ask the holder."]


def attention_of(feed: FakeFeed, size: tuple[int, int]) -> list[str]:
    lines = play(feed, size)
    first = next(place for place, line in enumerate(lines) if line.strip().startswith("Attention"))
    return [line for line in lines[first : first + 4] if line.strip()]


def test_a_driver_that_is_gone_is_one_line_and_not_one_for_each_gpu() -> None:
    feed = FakeFeed(source="nvml", label="", problem="not loaded: try 'sudo modprobe nvidia'", seconds=5)
    feed.state_of_all = Availability.NO_DRIVER
    feed.advance()
    lines = play(feed, (120, 40))
    assert sum("GPU 0–7" in line for line in lines if "those of GPU 0–7 unknown" not in line) == 1, "but for processes"
    assert sum("modprobe" in line for line in lines if "driver lost" not in line) == 1, "but for the event itself"
    assert "more below" not in " ".join(lines)


def test_what_has_no_room_is_told_with_the_key_that_opens_it() -> None:
    feed = FakeFeed(gpus=16, seconds=1500, source="nvml", label="", lost=(0, 3))
    found = attention_of(feed, (120, 24))
    shown = sum("△" in line or "▲" in line for line in found)
    assert ("of" in found[0].split("─")[0]) == ("! opens all" in found[0])
    assert shown <= 3


def test_a_source_that_tells_little_is_not_said_to_be_well() -> None:
    class Log(FakeFeed):
        def sample(self, device: Device, second: int) -> Sample:
            found = super().sample(device, second)
            missing = dict.fromkeys(("gpu.temperature", "gpu.temperature_memory"), Availability.NOT_RECORDED)
            return found._replace(device=device._replace(missing=missing))

        def processes(self, second: int) -> tuple[Any, ...]:
            return ()

        def runs(self, second: int) -> tuple[Any, ...]:
            return ()

    head = attention_of(Log(gpus=1, source="replay", label="REPLAY a.csv", seconds=5), (120, 40))[0]
    assert "no findings; not available here: temperature, processes, runs" in head
    assert "needs attention" not in head


def test_the_list_of_a_machine_whose_gpus_cannot_be_read_does_not_say_that_all_is_well() -> None:
    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.press("a")

    lines = "\n".join(play(FakeFeed(gpus=0, seconds=10, problem="no driver"), (100, 30), script))
    assert "No findings; not available here: GPUs." in lines
    assert "Nothing needs attention" not in lines


def test_hostile_text_stays_text() -> None:
    (head, *_) = attention_lines([finding("1")._replace(subject=Subject("run", "r", "[red]x[/]\x1b[2J"))], (), 60)
    assert "\x1b" not in "".join(said([head]))
    assert "[red]x[/]" in "".join(said([head]))


def test_a_key_opens_the_list_and_any_other_closes_it() -> None:
    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.press("a")
        opened = text(app)
        assert isinstance(app.screen, FindingsWindow)
        assert "GPU 3  critical" in "\n".join(opened)
        app.draw()
        await pilot.pause()
        assert text(app) == opened
        await pilot.press("x")
        assert not isinstance(app.screen, FindingsWindow)

    play(FakeFeed(lost=(3,)), (40, 10), script)


def test_the_line_of_keys_counts_what_needs_attention() -> None:
    assert "finding" in play(FakeFeed(lost=(3,)), (120, 40))[-1]
    calm = play(FakeFeed(gpus=1, seconds=5), (120, 40))[-1]
    assert "finding" not in calm
    assert "quit" in calm


@pytest.mark.parametrize("opened", ["a", "question_mark", "colon"])
def test_keys_typed_faster_than_a_window_closes_end_nothing(opened: str) -> None:
    seen: dict[str, Any] = {}

    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.press(opened)
        for key in ("escape", "escape", "escape", "3"):
            app.post_message(events.Key(key, None))
        await pilot.pause()
        await pilot.pause()
        seen["page"], seen["above"] = app.page.page_name, isinstance(app.screen, ModalWindow)

    play(FakeFeed(lost=(3,)), (80, 24), script)
    assert seen == {"page": "Processes", "above": False}


class Leftover(FakeFeed):
    """Memory on a GPU that the driver attributes to no process."""

    def sample(self, device: Device, second: int) -> Sample:
        found = super().sample(device, second)
        values = list(found.values)
        values[GPU_INDEX["gpu.memory_unattributed"]] = 18.0 * 2**30
        return found._replace(values=values)


def test_what_is_good_to_know_is_counted_beside_what_needs_attention_and_told_where_all_is() -> None:
    feed = Leftover(gpus=1, source="nvml", label="", seconds=5)
    assert "1 more to note" in attention_of(feed, (120, 40))[0]

    async def script(app: GpumonApp, pilot: Pilot[None]) -> None:
        await pilot.press("exclamation_mark")
        told = "\n".join(text(app))
        assert "GPU 0  info" in told
        assert "18.0 GiB held by no listed process" in told

    play(feed, (120, 40), script)


def test_a_sentence_that_has_no_room_ends_with_an_ellipsis() -> None:
    text = "Check the results of its runs, and reset it with 'sudo nvidia-smi --gpu-reset'; else replace the card."
    for cells in range(4, 60):
        for most in range(1, 8):
            lines = wrap_limited(text, cells, most)
            assert len(lines) <= most
            assert all(width(line) <= cells for line in lines)
            assert lines[-1].endswith("…") or lines == list(wrap_words(text, cells))
    assert wrap_limited(text, 30, 2)[-1] == "and reset it with 'sudo …"


def test_advice_beside_a_chart_is_told_in_full_where_there_is_room_and_is_never_cut_without_a_sign() -> None:
    long = Finding(
        "kind", Severity.CRITICAL, Subject("gpu", "GPU-0000", "GPU 0"), "it is broken",
        "Check the results of its runs, and reset it with 'sudo nvidia-smi --gpu-reset'; if errors return, "
        "replace the card.",
    )  # fmt: skip

    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        app.view.findings.warnings = lambda: [long]  # type: ignore[method-assign]
        await pilot.press("2")
        app.draw()

    assert "replace the card." in " ".join(" ".join(line[163:] for line in play(FakeFeed(), (200, 50), script)).split())
    brief = " ".join(" ".join(line[123:] for line in play(FakeFeed(), (160, 34), script)).split())
    assert "card." not in brief
    assert "…" in brief
