"""What is unknown, old or over is shown as that on every page: no number, state or line stands for it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from gpumon.model.frame import Run, RunState, Sample, Tick
from gpumon.model.metrics import PROCESSES, Availability
from gpumon.model.origin import RECORDED, Origin
from gpumon.model.process import Process
from tests.builders import TIME, boundary, device, process, run, sample, tick
from tests.programs import until
from tests.runs import Book
from tests.web.charted import across
from tests.web.conftest import DESK, PATIENCE_MS, Visitor, on_a_port, visit
from tests.web.served import Served

expect.set_options(timeout=PATIENCE_MS)

GIB = 2.0**30
FIRST, SECOND_RUN = "tag.1000.11.aaaa", "tag.1000.12.bbbb"
_INK = """(place, end) => {
  const copy = new OffscreenCanvas(place.width, place.height);
  const pen = copy.getContext("2d", { willReadFrequently: true });
  pen.drawImage(place, 0, 0);
  const column = (part) => pen.getImageData(Math.floor(part * (place.width - 1)), 0, 1, place.height - 3).data;
  return end.map((part) => column(part).some((value) => value > 0));
}"""
"""Whether a small chart has anything at some parts of its width, but for its base line."""

_BASE = """(place, parts) => {
  const { data } = place.getContext("2d").getImageData(0, place.height - 1, place.width, 1);
  return parts.map((part) => data[4 * Math.floor(part * (place.width - 1)) + 3] > 0);
}"""
"""Whether a small chart has its base line at some parts of its width."""


def gpu(index: int, state: Availability = Availability.OK, **values: float) -> Sample:
    usual = {
        "utilization": 0.7, "memory_used": 20 * GIB, "memory_total": 80 * GIB, "power": 300.0, "power_limit": 700.0,
        "temperature": 60.0, "pcie_sent": 0.0,
    }  # fmt: skip
    return sample(index, state, **{**usual, **values})


def trainings() -> list[Run]:
    """Two on GPU 0; the name of the second shows nothing."""
    usual = {"gpus": (device(0).uuid,), "started": TIME / 1e9, "epoch_started": TIME / 1e9 + 300, "epoch": 3}
    return [
        run(FIRST, id="net-a-1111", name="net-a", user="alice", **usual),
        run(SECOND_RUN, id="net-b-2222", name="   ", user="bob", **{**usual, "epoch": 5}),
    ]


def frames() -> Iterator[Tick]:
    """Ten minutes with a pause of two, of GPUs of which something or other is unknown."""
    people: list[Process] = [
        process(11, 0, user="alice", run=FIRST, memory_used=5 * GIB),
        process(12, 0, user="bob", run=SECOND_RUN, memory_used=6 * GIB),
        process(17049, 1, user="", name="", memory_used=42 * GIB),
        *(process(100 + at, 2, user="carol", name=f"worker-{at}", memory_used=GIB) for at in range(9)),
    ]
    blind = device(3, missing={PROCESSES: Availability.NO_PERMISSION})
    marks = [
        boundary(number, epoch, key=key)._replace(time_ns=TIME + (at + 60 * epoch) * 10**9)
        for key, at in ((FIRST, 100), (SECOND_RUN, 130)) for number, epoch in ((1, 0), (2, 1), (3, 2))
    ]  # fmt: skip
    for number in (*range(1, 240), *range(360, 600)):
        samples = [
            gpu(0, pcie_sent=number * 20 * GIB)._replace(run=FIRST), gpu(1), gpu(2),
            gpu(3, utilization=0.0, memory_used=0.0)._replace(device=blind),
            gpu(4, memory_total=float("nan")),
            gpu(5, Availability.STALE)._replace(age=12.0),
            gpu(6, utilization=float("nan")),
        ]  # fmt: skip
        yield tick(number, samples, people, trainings(), marks if number == 400 else [], hostname="node1")


@pytest.fixture(scope="module")
def link() -> Iterator[str]:
    """A server of GPUs of which something is unknown."""
    with on_a_port(Served(frames(), devices=7)) as found:
        yield found


@pytest.fixture(scope="module")
def _visitor(browser: Browser, link: str) -> Iterator[Visitor]:
    with visit(browser, link) as visitor:
        yield visitor


@pytest.fixture
def visitor(_visitor: Visitor) -> Iterator[Visitor]:
    """A viewer whom tests share."""
    _visitor.page.set_viewport_size(DESK)
    yield _visitor
    _visitor.check()


def row(page: Page, index: int) -> Locator:
    return page.locator(".fleet tbody tr").nth(index)


def test_the_fleet_says_of_each_gpu_what_is_known_and_no_more(visitor: Visitor, link: str) -> None:
    page = visitor.open("#/fleet")
    expect(page.locator(".fleet tbody tr")).to_have_count(7)
    # Two trainings: both, with their progress and a link, and one without a visible name by its id.
    for name, target in (("net-a", "#/run/net-a-1111"), ("net-b-2222", "#/run/net-b-2222")):
        expect(row(page, 0).get_by_role("link", name=name)).to_have_attribute("href", target)
    expect(row(page, 0).locator(".progress")).to_have_count(2)
    expect(row(page, 1)).to_contain_text("unknown(pid 17049)")
    expect(row(page, 2)).to_contain_text("worker-0, worker-1, worker-2 and 6 more")
    expect(row(page, 3)).to_contain_text(f"processes unknown: {Availability.NO_PERMISSION.reason}")
    expect(row(page, 3)).not_to_contain_text("free")
    expect(row(page, 4).locator(".pair")).to_have_text("20.0 GiB–")
    expect(row(page, 4).locator(".bar")).to_have_count(0)
    expect(row(page, 5)).to_contain_text("stale 12 s")
    expect(row(page, 5).locator(".state")).to_have_class("state stale")
    expect(row(page, 5)).to_have_class(re.compile("old"))
    expect(row(page, 6).locator(".big")).to_have_text("–")
    expect(row(page, 6).locator(".state")).to_have_class("state unknown")
    heads = page.locator("#page-fleet .headlines")
    expect(heads.locator(".headline").first).to_contain_text("–")
    expect(heads.locator(".headline").first).to_contain_text("unknown: GPU 3, 5–6")
    expect(heads).not_to_contain_text("of 7 free")
    expect(page).to_have_title("Fleet · node1")
    expect(heads).not_to_contain_text("all are in use")
    expect(heads).to_contain_text("from 5 of 7 GPUs")  # utilization: not of the one that is stale, nor unknown
    # A pause of two of the ten minutes is a hole in the small chart, and what came before and after is not.
    spark = row(page, 0).locator("canvas")
    assert spark.evaluate(_INK, [0.3, 0.45, 0.55, 0.8]) == [True, False, False, True]
    assert row(page, 5).locator("canvas").evaluate(_INK, [0.3, 0.8, 0.99]) == [False] * 3
    # Its base line ends where nothing was seen.
    assert spark.evaluate(_BASE, [0.3, 0.45, 0.55, 0.8]) == [True, False, False, True]
    assert row(page, 5).locator("canvas").evaluate(_BASE, [0.3, 0.8, 0.99]) == [False] * 3


def test_a_gpus_page_shows_the_epochs_of_each_run_in_a_ribbon_of_its_own(visitor: Visitor) -> None:
    page = visitor.open("#/gpu/0?window=all")
    plot = page.locator("#page-gpu .plot[data-drawn]")
    expect(plot).to_be_visible()
    begun = plot.evaluate("(place) => place.gpumonView.doc.runs.map((run) => [run.name, run.bands.map(([at]) => at)])")
    assert begun == [
        ["net-a", [TIME / 1e9 + at for at in (100, 160, 220, 300)]],
        ["net-b-2222", [TIME / 1e9 + at for at in (130, 190, 250, 300)]],
    ]
    page.mouse.move(*across(page, "gpu", 200 / 600))
    expect(plot.locator(".pill")).to_have_text(re.compile("net-a epoch 1 · train · net-b-2222 epoch 1 · train$"))
    parts = page.locator("#page-gpu dl.divided > div")
    expect(parts).to_have_text(["bob6.0 GiB", "alice5.0 GiB", "no listed process9.0 GiB", "free60.0 GiB"])


_COLORED = """(canvas, [shares, left, right, top, bottom]) => {
  const ratio = canvas.width / canvas.clientWidth;
  const pen = new OffscreenCanvas(canvas.width, canvas.height).getContext("2d", { willReadFrequently: true });
  pen.drawImage(canvas, 0, 0);
  return shares.map((share) => {
    const x = Math.floor((left + share * (right - left)) * ratio);
    const { data } = pen.getImageData(x, Math.ceil(top * ratio), 1, Math.floor((bottom - top) * ratio));
    let count = 0;
    for (let at = 0; at < data.length; at += 4) {
      const channels = [...data.slice(at, at + 3)];
      if (data[at + 3] && Math.max(...channels) - Math.min(...channels) > 60) { count += 1; }
    }
    return count > 0;
  });
}"""
"""Whether a chart has the color of a person at some shares of its width, between two heights (px)."""


def test_no_line_and_no_area_is_drawn_over_a_pause_and_no_axis_has_an_exponent(visitor: Visitor) -> None:
    page = visitor.open("#/gpu/0?window=all&panels=gpu.utilization,gpu.pcie_sent")
    plot = page.locator("#page-gpu .plot[data-drawn]")
    expect(plot).to_be_visible()
    left, right = plot.evaluate("(place) => place.gpumonView.plot")
    tops = "(place) => [...place.querySelectorAll('.gutter')].map((one) => [one.offsetTop, one.offsetHeight])"
    top, height = plot.evaluate(tops)[0]
    shares = [at / 600 for at in (100, 200, 250, 300, 350, 400, 500)]
    drawn = plot.locator("canvas").evaluate(_COLORED, [shares, left, right, top + 4, top + height - 4])
    assert drawn == [True, True, False, False, False, True, True]
    words = (
        "(place) => place.gpumonView.doc.panels.map(({ unit, lines: [{ mean }] }) =>"
        " gpumon.scale.axisScale.ticks(unit, 0, Math.max(...mean)).map((one) => one.text))"
    )
    ticks = [text for one in plot.evaluate(words) for text in one]
    assert any(text.endswith(" GiB/s") for text in ticks)
    assert not any("e" in text for text in ticks)


def seen(page: Page) -> list[float]:
    """From when to when the chart shows, in seconds since the first sample."""
    return [time - TIME / 1e9 for time in page.evaluate("document.querySelector('#page-gpu .plot').gpumonView.range")]


def test_nobody_gets_beyond_what_there_is(visitor: Visitor, link: str) -> None:
    page = visitor.open("#/gpu/0?window=60")
    expect(page.locator("#page-gpu .plot[data-drawn]")).to_be_visible()
    for _ in range(5):
        page.locator("#page-gpu").get_by_role("button", name="Zoom out").click()
    page.locator("#page-gpu").get_by_role("button", name="Later").click()
    until(lambda: seen(page) == pytest.approx([1, 599], abs=0.1))
    page.goto(f"{link}#/gpu/0?from=0&to=1e300")
    expect(page.locator("#page-gpu")).to_contain_text("is only partly sampled")
    until(lambda: seen(page) == pytest.approx([1, 599], abs=0.1))
    page.goto(f"{link}#/gpu/0?from=1000&to=2000")
    expect(page.locator("#page-gpu")).to_contain_text("There are no samples in the time of this link")
    expect(page.locator("#page-gpu .plot")).to_be_hidden()


def test_a_window_longer_than_what_there_is_says_since_when_that_is(browser: Browser) -> None:
    """Of 13 minutes the usual window, ten, is full: none that falls back to it passes here."""
    frames = [
        tick(number, [gpu(0)], time_ns=TIME + 2 * number * 10**9, monotonic_ns=(50 + 2 * number) * 10**9,
             interval_ns=2 * 10**9)
        for number in range(1, 400)
    ]  # fmt: skip
    with on_a_port(Served(frames, devices=1)) as link, visit(browser, link) as visitor:
        for window, button, is_longer in (("600", "10 min", False), ("3600", "1 h", True), ("60", "1 min", False),
                                          ("2678400", "31 d", True)):  # fmt: skip
            page = visitor.open(f"#/gpu/0?window={window}")
            page.reload()
            expect(page.get_by_role("button", name=button, exact=True)).to_have_attribute("aria-pressed", "true")
            cells = page.locator("#page-gpu .cells")
            expect(cells).to_contain_text(re.compile("samples|means"))
            begun = page.evaluate("(begun) => gpumon.format.moment(begun)", TIME / 1e9 + 2)
            if is_longer:
                expect(cells).to_contain_text(f"; kept since {begun}")
            else:
                assert "kept since" not in cells.inner_text()


def test_a_chart_that_is_saved_says_of_what_gpu_host_and_time_it_is(visitor: Visitor) -> None:
    page = visitor.open("#/gpu/0?window=60")
    expect(page.locator("#page-gpu .plot[data-drawn]")).to_be_visible()
    page.locator("#page-gpu .files > .button").click()
    with page.expect_download() as saved:
        page.locator("#page-gpu .menu").get_by_role("button", name="SVG", exact=True).click()
    svg = Path(saved.value.path()).read_text(encoding="utf-8")
    day = page.evaluate("gpumon.format.moment(gpumon.feed.feed.now).slice(0, 10)")
    *_, caption = re.findall("<text[^>]*>([^<]*)</text>", svg)
    assert caption.startswith(page.title())
    assert "GPU 0" in caption
    assert page.evaluate("gpumon.feed.feed.server.hostname") in caption
    assert caption.count(day) == 2


def test_a_process_list_that_is_unknown_is_not_called_empty(visitor: Visitor) -> None:
    page = visitor.open("#/gpu/3")
    expect(page.locator("#page-gpu")).to_contain_text(
        f"The process list is unknown: {Availability.NO_PERMISSION.reason}"
    )
    expect(page.locator("#page-gpu [data-bind=holders]")).to_have_text("holder unknown")


def test_a_page_or_a_run_that_is_none_is_said_to_be_none(visitor: Visitor, link: str) -> None:
    page = visitor.open("#/nowhere")
    expect(page.locator("#notice")).to_have_text('No such page: "nowhere". This is the fleet.')
    visitor.open("#/run/nope")
    expect(page.locator("#page-run h1")).to_have_text("No such run")
    expect(page.locator("#page-run")).to_contain_text("No run here has the id nope.")
    expect(page.locator("#page-run").get_by_role("link", name="All runs")).to_have_attribute("href", "#/runs")
    expect(page.locator("#notice")).to_be_hidden()
    assert page.locator("#page-run .card:visible, #page-run .headline:visible, #page-run button:visible").count() == 0
    visitor.open("#/gpu/99")
    expect(page.locator("#page-gpu h1")).to_have_text("No such GPU")
    assert page.locator("#page-gpu .card:visible, #page-gpu .headline:visible").count() == 0
    expect(page.locator("#page-gpu")).to_contain_text("No GPU of this server has the index or UUID 99.")
    page.locator("#page-gpu").get_by_role("link", name="All GPUs").click()
    expect(page.locator("#page-fleet tbody tr").first).to_be_visible()
    visitor.open("#/gpu/0")
    expect(page.locator("#page-gpu [data-bind=gone]")).to_be_hidden()


def test_a_person_has_one_color_on_every_page_and_in_every_order(visitor: Visitor) -> None:
    dot = "(one) => getComputedStyle(one, '::before').backgroundColor"
    page = visitor.open("#/runs")
    first = page.locator("#page-runs .person", has_text="bob").first.evaluate(dot)
    bar = page.locator("#page-runs tr", has_text="net-b-2222").locator(".bar i")
    assert bar.evaluate("(one) => getComputedStyle(one).backgroundColor") == first
    visitor.open("#/fleet")
    assert page.locator("#page-fleet .person", has_text="bob").first.evaluate(dot) == first


def test_what_is_old_is_dimmed_and_dated_and_nothing_is_claimed_of_now(browser: Browser) -> None:
    idle = [gpu(0), gpu(1, utilization=0.0, memory_used=0.0, memory_reserved=GIB)]
    served = Served(tick(number, idle) for number in range(1, 400))
    with on_a_port(served) as link, visit(browser, link, timezone_id="Asia/Kolkata") as visitor:
        page = visitor.open("#/fleet")
        heads = page.locator("#page-fleet .headlines")
        expect(heads).to_contain_text("1 of 2")
        bright = row(page, 0).locator(".c-power").evaluate("(one) => getComputedStyle(one).color")
        assert row(page, 0).locator("canvas").evaluate(_INK, [0.99]) == [True]
        served.live.age = 75.0
        expect(page.locator("#problem")).to_contain_text("Stale: the daemon is silent. Last seen 19:49:59 GMT+5:30")
        expect(page.locator("#problem .ago")).to_have_text("(1 min ago)")
        expect(heads).not_to_contain_text("of 2")
        expect(page.locator("#page-fleet .chip")).to_have_count(0)
        expect(row(page, 1)).not_to_contain_text("free")
        expect(page.locator(".fleet .state.busy, .fleet .state.free")).to_have_count(0)
        expect(page.locator("#page-fleet .look")).not_to_contain_text("free")
        assert row(page, 0).locator(".c-power").evaluate("(one) => getComputedStyle(one).color") != bright
        assert row(page, 0).locator("canvas").evaluate(_INK, [0.8, 0.95]) == [True, False]
        visitor.page.goto(f"{link}#/gpu/1")
        expect(page.locator("#page-gpu .head .tag").first).to_have_text("stale")


_HATCHED = """(place, [head, from, to]) => {
  const canvas = place.querySelector("canvas");
  const ratio = canvas.width / place.clientWidth;
  const [left, right] = place.gpumonView.plot;
  const at = (share) => Math.round((left + share * (right - left)) * ratio);
  const pen = new OffscreenCanvas(canvas.width, canvas.height).getContext("2d", { willReadFrequently: true });
  pen.drawImage(canvas, 0, 0);
  const row = pen.getImageData(at(from), Math.round((head + 80) * ratio), at(to) - at(from), 1).data;
  return row.filter((value, index) => index % 4 === 3 && value > 0).length > 10;
}"""
"""Whether a panel has ink between two parts of its width, on a height without a tick."""


@pytest.mark.parametrize(
    ("index", "said"), [(0, "70 %mean"), (1, "–lost 40 s"), (2, "–stale 40 s"), (3, "–asleep 40 s")]
)
def test_a_chart_has_no_value_of_now_of_a_gpu_that_does_not_answer_and_the_time_since_is_hatched(
    browser: Browser, index: int, said: str
) -> None:
    silent = (Availability.OK, Availability.LOST, Availability.STALE, Availability.ASLEEP)
    ticks = [tick(n, [sample(at, utilization=0.0 if at else 0.7) for at in range(4)]) for n in range(1, 50)]
    ticks += [
        tick(n, [sample(at, state, **({} if at else {"utilization": 0.7})) for at, state in enumerate(silent)])
        for n in range(50, 90)
    ]
    with on_a_port(Served(ticks, devices=4)) as link, visit(browser, link) as visitor:
        page = visitor.open(f"#/gpu/{index}")
        plot = page.locator("#page-gpu .plot[data-drawn]")
        gutter = plot.locator(".gutter").first
        expect(gutter).to_contain_text(said)
        head = float(gutter.evaluate("(one) => parseFloat(one.style.top)"))
        if index:
            assert plot.evaluate(_HATCHED, [head, 0.1, 0.45]) is False, "a line at zero"
            assert plot.evaluate(_HATCHED, [head, 0.6, 0.95]) is True
        else:
            assert plot.evaluate("(place) => place.gpumonView.doc.silent") is None


def test_a_chart_of_the_first_seconds_is_hatched_before_them(browser: Browser) -> None:
    served = Served([tick(n, [sample(0, utilization=0.0)]) for n in range(1, 11)], devices=1)
    with on_a_port(served) as link, visit(browser, link) as visitor:
        plot = visitor.open("#/gpu/0").locator("#page-gpu .plot[data-drawn]")
        head = float(plot.locator(".gutter").first.evaluate("(one) => parseFloat(one.style.top)"))
        assert [plot.evaluate(_HATCHED, [head, *part]) for part in ([0.05, 0.6], [0.75, 0.95])] == [True, False]
        key = visitor.page.locator("#page-gpu .hatchkey")
        expect(key).to_have_text("not seen")
        expect(key).to_be_visible()
        for number in range(11, 60):
            served.writer.append(tick(number, [sample(0, utilization=0.0)]))
        expect(key).to_be_hidden()


def test_a_run_is_not_said_to_run_now_while_the_daemon_is_silent(browser: Browser) -> None:
    served = Served(tick(n, [gpu(0)], runs=trainings()) for n in range(1, 60))
    with on_a_port(served) as link, visit(browser, link) as visitor:
        page = visitor.open("#/run/net-a-1111")
        state = page.locator("#page-run .head .tag").first
        expect(state).to_have_text("running")
        served.live.age = 30.0
        expect(state).to_have_text("last seen running")
        served.live.age = 0.0
        expect(state).to_have_text("running")


def test_a_chart_of_a_silent_daemon_has_no_value_of_now(browser: Browser) -> None:
    served = Served([tick(n, [gpu(0)]) for n in range(1, 60)])
    served.live.age = 30.0
    with on_a_port(served) as link, visit(browser, link) as visitor:
        page = visitor.open("#/gpu/0")
        expect(page.locator("#page-gpu .gutter").first).to_contain_text(re.compile(r"–stale 3[0-9]\ss"))


def test_memory_of_a_silent_daemon_is_that_of_its_last_report(browser: Browser) -> None:
    served = Served([tick(n, [gpu(0)]) for n in range(1, 60)])
    with on_a_port(served) as link, visit(browser, link) as visitor:
        page = visitor.open("#/gpu/0")
        memory = page.locator("#page-gpu .memory")
        expect(memory).to_contain_text("GiB")
        expect(memory).not_to_contain_text("last")
        served.live.age = 30.0
        expect(memory).to_contain_text("as last reported")
        expect(page.locator("#page-gpu dl.divided")).to_contain_text("free when last seen")


def test_a_server_that_is_gone_is_an_alert_with_the_time_of_what_is_shown(browser: Browser) -> None:
    served = Served(tick(number, [gpu(0)]) for number in range(1, 30))
    with on_a_port(served) as link, visit(browser, link, strict=False, timezone_id="UTC") as visitor:
        page = visitor.open("#/fleet")
        expect(page.locator("#page-fleet")).to_contain_text("70 %")
        visitor.context.set_offline(True)
        expect(page.locator("#problem")).to_contain_text("gpumon web does not answer")
        expect(page.locator("#problem")).to_contain_text("Last seen 14:13:49 UTC")
        expect(page.locator(".fleet .state")).to_have_class("state stale")


def test_a_recording_that_has_ended_is_not_live_and_its_gpus_are_not_busy(browser: Browser) -> None:
    over = Origin("replay", "REPLAY net.csv ended", ended=True, capabilities=RECORDED)
    served = Served(tick(number, [gpu(0), gpu(1)], origin=over) for number in range(1, 30))
    with on_a_port(served) as link, visit(browser, link) as visitor:
        page = visitor.page
        page.goto(f"{link}#/fleet")
        expect(page.locator("#live")).to_have_text("ended")
        expect(page.locator("#problem")).to_contain_text("The recording has ended. Its last values are from 2026-")
        expect(page.locator("#problem")).to_contain_text("start 'gpumon web' with it again")
        expect(page.locator(".fleet .state.busy")).to_have_count(0)
        expect(page.locator("#page-fleet .headlines")).not_to_contain_text("all are in use")
        expect(row(page, 0)).to_contain_text("70 %")


@pytest.mark.parametrize("place", ["", "#/gpu/0"])
def test_a_machine_without_a_gpu_says_what_was_looked_for_and_leads_on(
    browser: Browser, tmp_path: Any, place: str
) -> None:
    with Book(tmp_path) as book:
        book.run("net-1a2b", name="resnet50", state=RunState.FINISHED)
    why = "no NVIDIA driver answers: install it"
    served = Served([tick(1, [], origin=Origin("nvml", "", why))], [str(book.path)])
    with on_a_port(served) as link, visit(browser, link) as visitor:
        visitor.open(place)
        shown = visitor.page.locator("#page-none")
        said = shown.locator(".prose p")
        expect(said.nth(0)).to_have_text("No NVIDIA driver answers.")
        expect(said.nth(1)).to_have_text(re.compile("^Install it; GPUs appear .* nvidia-smi.* lists them.$"))
        for text in ("No GPU", "gpumon web --source sim --port 0", "CPU", "of a minute", "resnet50"):
            expect(shown).to_contain_text(text)
        expect(visitor.page.locator("main")).not_to_contain_text(re.compile("in use$|Nothing needs attention|Choose"))
        expect(shown.get_by_role("link", name="resnet50")).to_have_attribute("href", "#/run/net-1a2b")


def test_who_opens_a_machine_of_one_gpu_sees_that_gpu(browser: Browser) -> None:
    served = Served(tick(number, [gpu(0)]) for number in range(1, 30))
    with on_a_port(served) as link, visit(browser, link) as visitor:
        visitor.page.goto(link)
        expect(visitor.page.locator("#page-gpu h1")).to_have_text("GPU 0")
        expect(visitor.page.locator("#page-gpu .plot[data-drawn]")).to_be_visible()


def test_a_loss_that_is_no_number_is_an_alarm_and_no_missing_value(browser: Browser, tmp_path: Any) -> None:
    with Book(tmp_path) as book:
        rank = book.rank(book.run("net-1a2b"))
        for at, loss in enumerate(("0.5", '"NaN"')):
            book.epoch(rank, at, metrics=f'{{"loss": {loss}}}')
    served = Served([tick(1, [gpu(0)])], [str(book.path)])
    with on_a_port(served) as link, visit(browser, link) as visitor:
        page = visitor.open("#/run/net-1a2b")
        cells = page.get_by_role("table", name="Epochs").locator("td[data-label=loss]")
        expect(cells).to_have_text(["NaN", "0.5000"])
        expect(cells.first.locator(".alarm")).to_have_count(1)


def test_a_gpu_that_works_and_lists_no_process_is_not_said_to_have_none(browser: Browser) -> None:
    served = Served(
        tick(number, [gpu(0, memory_total=float("nan"), memory_used=0.5 * 2**30), gpu(1, memory_used=0.0)])
        for number in range(1, 9)
    )
    with on_a_port(served) as link, visit(browser, link) as visitor:
        page = visitor.open("#/fleet")
        for index in (0, 1):
            expect(row(page, index)).to_contain_text("unknown: the driver lists no process")
        visitor.open("#/gpu/0")
        expect(page.locator("#page-gpu [data-bind=holders]")).to_have_text("holder unknown")
        expect(page.locator("#page-gpu")).to_contain_text("there may be one")


_JUMP = """() => {
  const { doc } = document.querySelector("#page-gpu .plot").gpumonView;
  const [line] = doc.panels[0].lines;
  const longest = gpumon.trace.longestGap(line, doc.interval);
  const known = (at) => line.mean[at] !== null && line.mean[at - 1] !== null;
  const drawn = (at) => at && known(at) && line.x[at] - line.x[at - 1] <= longest;
  return [line.x.at(-1), Math.max(...line.x.map((time, at) => (drawn(at) ? time - line.x[at - 1] : 0)))];
}"""
"""The last time of a line, and its longest step without a break, in s."""


def test_no_line_goes_over_the_time_for_which_a_laptop_slept(browser: Browser) -> None:
    served = Served(tick(number, [gpu(0)]) for number in range(1, 120))
    with on_a_port(served) as link, visit(browser, link, strict=False) as visitor:
        page = visitor.open("#/gpu/0?window=all")
        expect(page.locator("#page-gpu .plot[data-drawn]")).to_be_visible()
        visitor.context.set_offline(True)
        expect(page.locator("#problem")).to_contain_text("gpumon web does not answer")
        for number in range(120, 2400):
            served.writer.append(tick(number, [gpu(0)]))
        visitor.context.set_offline(False)
        until(lambda: page.evaluate(_JUMP)[0] == TIME / 1e9 + 2399)
        served.writer.append(tick(2400, [gpu(0)]))
        until(lambda: page.evaluate(_JUMP)[0] == TIME / 1e9 + 2400)
        assert 0 < page.evaluate(_JUMP)[1] < 5


@pytest.mark.parametrize(("place", "title"), [("#/run/", "Runs"), ("#/gpu", "GPU 3")])
def test_an_address_without_a_name_leads_to_the_list_or_to_the_first(browser: Browser, place: str, title: str) -> None:
    served = Served(tick(number, [gpu(3), gpu(5)]) for number in range(1, 9))
    with on_a_port(served) as link, visit(browser, link) as visitor:
        page = visitor.open(place)
        expect(page.locator(".page:not([hidden]) h1")).to_have_text(title)
