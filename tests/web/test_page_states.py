"""The pages when something is odd: hostile names, nothing or very much to show, a server that goes and comes."""

from __future__ import annotations

import re
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page, Route, ViewportSize, expect

from gpumon.live import CATCHING_UP, LiveState
from gpumon.model.frame import Mark, Run, RunState, Sample, Tick
from gpumon.model.metrics import Availability
from gpumon.model.origin import Origin
from gpumon.model.process import Process
from tests.builders import TIME, boundary, device, process, run, sample, tick
from tests.nvml import Stub
from tests.programs import PATIENCE, daemon, environment, until
from tests.runs import BEGAN, Book, training
from tests.web.conftest import DESK, PATIENCE_MS, Visitor, on_a_port, visit, web
from tests.web.served import Served

expect.set_options(timeout=PATIENCE_MS)

GIB = 2.0**30
PHONE: ViewportSize = {"width": 400, "height": 800}
PAYLOADS = (
    '<script>document.title="hit"</script>',
    "<img src=x onerror='document.title=\"hit\"'>",
    "<svg onload='document.title=\"hit\"'>",
    '<a href="https://evil.example">click</a>',
    "<a href=\"javascript:document.title='hit'\">j</a>",
    '<span style="font-size:60px;fill:red;color:red">big</span>',
    "<b>bold</b><br><sub>low</sub>",
    "x<y and a>b",
    "%{y} %{customdata} {{x}}",
    "$\\href{https://evil.example}{x}$",
    "&lt;b&gt; &amp;",
    "A" * 400,
)
_FOUND = """() => ({
  links: [...document.querySelectorAll("a")]
    .map((one) => one.getAttribute("href") || one.getAttributeNS("http://www.w3.org/1999/xlink", "href") || "")
    .filter((href) => !/^(#|api\\/run\\.csv)/.test(href)),
  made: document.querySelectorAll(
    "main img, main script, main iframe, main sub, main [onerror], main [onload], main [onclick]").length,
  tall: [...document.querySelectorAll("main *")]
    .filter((one) => parseFloat(getComputedStyle(one).fontSize) > 40).length,
  red: [...document.querySelectorAll("main *")].filter((one) => ["rgb(255, 0, 0)"].includes(getComputedStyle(one).color)
    || getComputedStyle(one).fill === "rgb(255, 0, 0)").length,
  title: document.title,
})"""


def ticks(samples: Sequence[Sample], seconds: int = 30, **fields: Any) -> list[Tick]:
    return [tick(number, samples, **fields) for number in range(1, seconds)]


def busy(index: int, run_key: str = "") -> Sample:
    return sample(
        index, run=run_key, utilization=0.7, memory_used=20 * GIB, memory_total=80 * GIB, power=300.0,
        power_limit=700.0, temperature=60.0, clock_sm=1.9e9, memory_utilization=0.3,
    )  # fmt: skip


def inert(page: Page) -> None:
    """Fails when a name became anything but letters."""
    found = page.evaluate(_FOUND)
    assert found["links"] == []
    assert found["made"] == 0
    assert found["tall"] == 0
    assert found["red"] == 0
    assert found["title"] != "hit"


def fits(page: Page) -> None:
    assert page.evaluate("document.documentElement.scrollWidth") <= page.evaluate("innerWidth")


def test_hostile_names_are_letters_on_every_page_and_in_every_figure(browser: Browser, tmp_path: Path) -> None:
    key = "tag.1000.4711.abcd"
    name = " ".join(PAYLOADS[:8])
    people: list[Process] = [
        process(100 + at, 0, user=text, name=PAYLOADS[-1 - at], memory_used=GIB, run=key if at == 0 else "")
        for at, text in enumerate(PAYLOADS)
    ]
    hostile: Run = run(
        key, id="hostile-1a2b", name=name, user=PAYLOADS[4], gpus=(device(0).uuid,), epoch=3, state=RunState.RUNNING,
        framework=PAYLOADS[1], started=TIME / 1e9,
    )  # fmt: skip
    with Book(tmp_path) as book:
        rank = book.rank(
            book.run("hostile-1a2b", name=name, user=PAYLOADS[4], framework=PAYLOADS[1], hostname=PAYLOADS[0]), key=key
        )
        uuid = book.device(rank, 0, uuid=device(0).uuid, name=PAYLOADS[5])
        for at in range(3):
            logged = "{" + ", ".join(f'"{_escaped(text)}": {at + 1}' for text in PAYLOADS[:4]) + "}"
            book.epoch(rank, at, metrics=logged)
            book.phase(rank, at, PAYLOADS[3], 2.0)
        book.trace(rank, uuid, {"gpu.utilization": [(0.1, 0.5, 0.9)] * 30})
        book.trace(rank, "", {text: [(0.1, 0.5, 0.9)] * 30 for text in PAYLOADS[:6]})
        book.out_of_memory(rank)
    said = ticks(
        [busy(0, key), sample(1)], processes=people, runs=[hostile], hostname=PAYLOADS[5],
        boundaries=[boundary(1, 0)], origin=Origin("nvml", PAYLOADS[6], ""),
    )  # fmt: skip
    served = Served(said, [str(book.path)])
    with on_a_port(served) as link, visit(browser, link) as visitor:
        for place in ("#/fleet", "#/gpu/0?window=all", "#/runs", "#/run/hostile-1a2b"):
            page = visitor.open(place)
            expect(page.locator("main .page:not([hidden])")).to_contain_text("<")
            if "gpu" in place or "hostile" in place:
                figure = page.locator(".page:not([hidden]) .plot[data-drawn]")
                expect(figure).to_be_visible()
                box = figure.bounding_box()
                assert box
                page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 100)
            inert(page)
            fits(page)
        expect(page.locator("#page-run")).to_contain_text(PAYLOADS[0])
        expect(page.locator("#page-run .plot")).to_contain_text("<script>")


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


def test_a_server_without_a_gpu_says_so_and_what_to_do(browser: Browser) -> None:
    served = Served([tick(1, [], origin=Origin("nvml", "", "no driver answers: install the NVIDIA driver"))])
    with on_a_port(served) as link, visit(browser, link) as visitor:
        for place, shown in (
            ("#/fleet", "none"), ("#/runs", "runs"), ("#/gpu/0", "none"), ("#/run/none-0000", "run"),
        ):  # fmt: skip
            page = visitor.open(place)
            expect(page.locator("#problem")).to_have_text("No driver answers: install the NVIDIA driver.")
            expect(page.locator("#live")).to_have_text("no GPU can be read")
            expect(page.locator(f"#page-{shown}:not([hidden])")).to_contain_text(
                re.compile("No GPU|No run|No such run")
            )


def test_video_engines_of_processes_are_shown_where_one_uses_them(browser: Browser) -> None:
    people = [process(1), process(2, encoder_utilization=0.25, decoder_utilization=0.0)]
    served = Served([tick(1, [sample(0, utilization=0.5)], people)])
    with on_a_port(served) as link, visit(browser, link) as visitor:
        page = visitor.open("#/gpu/0")
        expect(page.locator("#page-gpu thead")).to_contain_text(re.compile("Encoder.*Decoder"))
        rows = page.locator("#page-gpu tbody tr")
        expect(rows.filter(has_text="25 %")).to_contain_text("0 %")
        expect(rows.filter(has_not_text="25 %")).not_to_contain_text("0 %")


def test_a_daemon_that_falls_silent_on_a_machine_without_a_gpu_is_said_to_be_silent(browser: Browser) -> None:
    served = Served([tick(1, [], origin=Origin("nvml", "", "install the NVIDIA driver"))])
    with on_a_port(served) as link, visit(browser, link) as visitor:
        page = visitor.open("#/")
        expect(page.locator("#page-none")).to_be_visible()
        expect(page.locator("#problem")).to_be_hidden()
        served.live.age = 90.0
        expect(page.locator("#problem")).to_contain_text("Stale: the daemon is silent. Last seen")
        expect(page.locator("#problem")).to_contain_text("'gpumon daemon status' says whether it runs")
        page.evaluate("location.hash = '#/runs'")
        expect(page.locator("#problem")).to_contain_text("Stale: the daemon is silent. Last seen")
        served.live.age = 0.0
        expect(page.locator("#problem")).to_have_text("Install the NVIDIA driver.")


def test_a_run_whose_page_was_opened_before_the_first_sample_is_not_said_to_be_gone(browser: Browser) -> None:
    served = Served()
    with on_a_port(served) as link, visit(browser, link) as visitor:
        expect(visitor.open("#/fleet").locator("#problem")).to_contain_text(re.compile("first sample|daemon"))
        page = visitor.open("#/run/net-1a2b")
        expect(page.locator("#page-run")).to_contain_text("It is unknown whether one is running")
        expect(page.locator("#page-run h1")).to_have_text("net-1a2b")
        served.writer.append(tick(1, [sample(0, utilization=0.5)], runs=[run(id="net-1a2b", name="net")]))
        expect(page.locator("#page-run h1")).to_have_text("net")
        expect(page.locator("#page-run")).not_to_contain_text("has this id")
        assert "No run here has the id" in str(served.json("/api/kept?page=run&id=other")["values"]["gone"])


def test_a_lost_gpu_is_said_to_be_lost_and_the_others_stay(browser: Browser) -> None:
    served = Served(ticks([busy(0), sample(1, Availability.LOST)]))
    with on_a_port(served) as link, visit(browser, link) as visitor:
        page = visitor.open("#/fleet")
        expect(page.locator(".fleet tbody tr").nth(1)).to_contain_text(Availability.LOST.reason)
        expect(page.locator(".fleet tbody tr").nth(0)).to_contain_text("70 %")
        page = visitor.open("#/gpu/1")
        expect(page.locator("#page-gpu")).to_contain_text(Availability.LOST.reason)


def test_an_unknown_page_is_the_fleet_and_an_unknown_gpu_is_said_to_be_none(browser: Browser) -> None:
    with on_a_port(Served(ticks([busy(0)]))) as link, visit(browser, link) as visitor:
        page = visitor.open("#/__proto__/x?y")
        expect(page.locator("#page-fleet tbody tr")).to_have_count(1)
        page = visitor.open("#/gpu/%E0%A4%A")
        expect(page.locator("#page-gpu h1")).to_have_text("No such GPU")
        page = visitor.open("#/gpu/0?window=-5&from=x&to=1e999")
        expect(page.locator("#page-gpu .plot[data-drawn]")).to_be_visible()


def test_sixteen_gpus_and_sixty_four_processes_have_their_places(browser: Browser) -> None:
    people = [
        process(1000 + at, 3, user=f"user{at % 9}", name=f"worker-{at}", memory_used=at * GIB / 64) for at in range(64)
    ]
    served = Served(ticks([busy(index) for index in range(16)], processes=people), devices=16)
    with on_a_port(served) as link, visit(browser, link) as visitor:
        page = visitor.open("#/fleet")
        expect(page.locator(".fleet tbody tr")).to_have_count(16)
        fits(page)
        page.set_viewport_size(PHONE)
        fits(page)
        page = visitor.open("#/gpu/3")
        expect(page.locator(".others a")).to_have_count(16)
        rows = page.get_by_role("table", name="Processes").locator("tbody tr")
        expect(rows.first).to_contain_text("worker-63")
        page.locator("#page-gpu .more").scroll_into_view_if_needed()
        expect(rows).to_have_count(64)
        fits(page)
        page.set_viewport_size(DESK)
        fits(page)


def test_two_thousand_epochs_are_usable(browser: Browser, tmp_path: Path) -> None:
    with Book(tmp_path) as book:
        training(book, "long-1a2b", 2000, seconds=2.0, course=False, phases=False)
    served = Served(ticks([busy(0)]), [str(book.path)])
    with on_a_port(served) as link, visit(browser, link) as visitor:
        page = visitor.open("#/run/long-1a2b")
        table = page.get_by_role("table", name="Epochs")
        first = table.locator("tbody th").first
        expect(first).to_have_text("1,999")
        assert table.locator("tbody tr").count() < 400
        table.get_by_role("columnheader", name="Epoch").get_by_role("button").click()
        expect(first).to_contain_text("0–99")
        folded = table.locator("tbody tr").count()
        first.get_by_role("button").click()
        expect(table.locator("tbody th").nth(1)).to_have_text("0")
        table.get_by_role("columnheader", name="Time").get_by_role("button").click()
        more = page.locator("#page-run .more:not([hidden])")
        more.scroll_into_view_if_needed()
        until(lambda: table.locator("tbody tr").count() >= 120 > folded)
        expect(more).to_contain_text("of 2,000")


def test_a_run_that_the_ring_forgot_is_shown_from_the_ledger(browser: Browser, tmp_path: Path) -> None:
    with Book(tmp_path) as book:
        training(book, "resnet50-1a2b", 6, gpus=2, began=BEGAN)
    served = Served(ticks([busy(0)]), [str(book.path)])
    with on_a_port(served) as link, visit(browser, link) as visitor:
        page = visitor.open("#/runs")
        page.get_by_label("Filter runs by name, user or tag").fill("nobody like this")
        expect(page.locator("#page-runs")).to_contain_text("No matching runs")
        page.get_by_label("Filter runs by name, user or tag").fill("RESNET")
        page.get_by_role("link", name="resnet50").click()
        shown = page.locator("#page-run")
        expect(shown.locator(".plot[data-drawn]")).to_be_visible()
        for text in ("finished", "Utilization", "Device memory", "loss", "accuracy"):
            expect(shown).to_contain_text(text)
        expect(shown.get_by_role("table", name="Epochs").locator("tbody tr")).to_have_count(6)
        expect(shown.get_by_role("table", name="Ranks").locator("tbody tr")).to_have_count(2)
        expect(shown.get_by_role("link", name="CSV", exact=True)).to_be_visible()
        page.get_by_role("button", name="GPU 1").click()
        expect(page.get_by_role("button", name="GPU 1")).to_have_attribute("aria-pressed", "true")
        labels = "(place) => place.gpumonView.doc.panels.flatMap((one) => one.lines.map((line) => line.label))"
        until(lambda: "allocated" in shown.locator(".plot").evaluate(labels))
        assert "gpu=" in page.url


def test_the_epoch_table_grows_as_epochs_end(browser: Browser, tmp_path: Path) -> None:
    with Book(tmp_path) as book:
        rank = book.rank(book.run("resnet50-1a2b"), key="tag.1000.4711.abcd")
        book.epoch(rank, 0)
        working = run(epoch=1, state=RunState.RUNNING, gpus=(device(0).uuid,))
        served = Served(ticks([busy(0)], runs=[working]), [str(book.path)])
        with on_a_port(served) as link, visit(browser, link) as visitor:
            page = visitor.open("#/run/resnet50-1a2b")
            rows = page.get_by_role("table", name="Epochs").locator("tbody tr")
            expect(rows).to_have_count(1)
            book.epoch(rank, 1)
            for number in range(30, 40):
                served.writer.append(tick(number, [busy(0)], runs=[run(epoch=2, state=RunState.RUNNING)]))
            expect(rows).to_have_count(2)


def test_a_ring_that_begins_anew_needs_no_reload(browser: Browser) -> None:
    served = Served(ticks([busy(0)], 200))
    with on_a_port(served) as link, visit(browser, link) as visitor:
        page = visitor.open("#/gpu/0?window=all")
        expect(page.locator("#page-gpu .plot[data-drawn]")).to_be_visible()
        page.evaluate("window.sameDocument = true")
        fresh = Served(ticks([sample(0, utilization=0.11, memory_used=GIB, memory_total=80 * GIB)], 20))
        served.live.close()
        served.writer = fresh.writer
        expect(page.locator("#page-gpu .value").first).to_have_text("11 %")
        assert page.evaluate("window.sameDocument")


def test_a_daemon_that_is_killed_and_started_again_needs_no_reload(
    browser: Browser, stub: Stub, live_dir: Path
) -> None:
    env = environment(live_dir, stub.env())
    with daemon("--interval", "0.2", env=env) as first, web(env=env) as link, visit(browser, link) as visitor:
        page = visitor.open("#/fleet")
        expect(page.locator("body")).to_have_attribute("data-state", "live")
        page.evaluate("window.sameDocument = true")
        first.send_signal(signal.SIGKILL)
        first.wait(timeout=PATIENCE)
        expect(page.locator("body")).to_have_attribute("data-state", "stale")
        expect(page.locator("#problem")).to_contain_text("daemon")
        expect(page.locator("#said")).to_have_text("stale")
        with daemon("--interval", "0.2", env=env):
            expect(page.locator("body")).to_have_attribute("data-state", "live")
            seen = page.evaluate("gpumon.feed.feed.now")
            until(lambda: page.evaluate("gpumon.feed.feed.now") > seen)
            expect(page.locator("#problem")).to_be_hidden()
        assert page.evaluate("window.sameDocument")


def test_a_server_that_goes_away_is_said_to_be_away_and_found_again(browser: Browser) -> None:
    served = Served(ticks([busy(0)]))
    with on_a_port(served) as link, visit(browser, link, strict=False) as visitor:
        page = visitor.open("#/fleet")
        expect(page.locator("#page-fleet tbody tr")).to_have_count(1)
        visitor.context.set_offline(True)
        expect(page.locator("body")).to_have_attribute("data-state", "reconnecting")
        expect(page.locator("#live")).to_have_text("reconnecting")
        expect(page.locator("#page-fleet tbody tr")).to_have_count(1)
        page.get_by_role("link", name="Runs").click()
        expect(page.get_by_role("heading", name="Runs")).to_be_visible()
        visitor.context.set_offline(False)
        expect(page.locator("body")).not_to_have_attribute("data-state", "reconnecting")


# Notes when the page asks, and for when it plans to ask again: each in ms, by its own clock.
_NOTES = """
window.asked = [];
window.planned = [];
const ask = window.fetch, later = window.setTimeout;
window.fetch = (what, ...more) => {
  if (String(what).includes("api/delta")) { window.asked.push(performance.now()); }
  return ask(what, ...more);
};
window.setTimeout = (what, wait, ...more) => {
  if (what.name === "poll") { window.planned.push([performance.now(), wait]); }
  return later(what, wait, ...more);
};
"""


def test_a_page_that_is_opened_while_nobody_answers_claims_nothing_of_when_it_was_left(browser: Browser) -> None:
    free = sample(0, utilization=0.0, memory_used=0.0, memory_total=16 * GIB)
    with on_a_port(Served(ticks([free, busy(1)]))) as link, visit(browser, link, strict=False) as visitor:
        page = visitor.open("#/gpu/1")
        shown = page.locator("main .page:not([hidden])")
        expect(shown.locator("h1")).to_have_text("GPU 1")
        expect(shown.locator("[data-bind=memory]")).to_contain_text("GiB")
        page.evaluate("location.hash = '#/'")
        expect(shown.locator("[data-bind=free]")).to_have_text("1 of 2")
        page.evaluate("location.hash = '#/gpu/0'")
        expect(shown.locator("h1")).to_have_text("GPU 0")
        visitor.context.set_offline(True)
        expect(page.locator("body")).to_have_attribute("data-fresh", "false")
        page.evaluate("location.hash = '#/gpu/1'")
        expect(page.locator("#problem")).to_contain_text("does not answer")
        expect(page.locator("#problem")).to_contain_text("start 'gpumon web' there again")
        expect(shown.locator("h1")).to_have_text("GPU 1")
        expect(shown.locator("[data-bind=state]")).to_have_text("stale")
        page.evaluate("location.hash = '#/'")
        expect(shown.locator("[data-bind=free]")).to_have_text("–")
        expect(shown.locator(".chip")).to_have_count(0)
        expect(shown.locator("tbody tr")).to_have_count(2)
        page.evaluate("location.hash = '#/gpu/7'")
        for value in ("memory", "model", "holders"):
            expect(shown.locator(f"[data-bind={value}]")).to_have_text(re.compile("^–?$"))


def test_a_link_to_what_is_shown_leads_there_though_the_address_named_none(viewer: Visitor) -> None:
    page = viewer.open("#/gpu/3")
    shown = page.locator("main .page:not([hidden])")
    page.locator("[data-tab=runs]").click()
    expect(shown.locator("h1")).to_have_text("Runs")
    page.locator("[data-tab=gpu]").click()
    expect(shown.locator("h1")).to_have_text("GPU 3")
    until(lambda: page.evaluate("location.hash") == "#/gpu/3")
    page.go_back()
    expect(shown.locator("h1")).to_have_text("Runs")


def test_a_tab_that_nobody_sees_asks_seldom_and_catches_up_at_once(browser: Browser) -> None:
    served = Served(ticks([busy(0)]))
    with on_a_port(served) as link, visit(browser, link) as visitor:
        visitor.context.add_init_script(_NOTES)
        page = visitor.open("#/fleet")
        until(lambda: page.evaluate("planned.length"))
        assert page.evaluate("planned.at(-1)[1]") == 1000
        _pretend(visitor, "hidden")
        until(lambda: page.evaluate("planned.at(-1)[1]") >= 10_000)  # once what was asked before is answered
        begun, wait = page.evaluate("planned.at(-1)")
        page.wait_for_timeout(1700)
        assert [at for at in page.evaluate("asked") if begun < at < begun + wait - 1] == []
        before = page.evaluate("asked.length")
        _pretend(visitor, "visible")
        assert page.evaluate("asked.length") > before


def _pretend(visitor: Visitor, state: str) -> None:
    """The page as its browser would have it behind another tab; headless Chromium has none."""
    visitor.page.evaluate(
        "(state) => { Object.defineProperty(document, 'hidden', {configurable: true, get: () => state === 'hidden'});"
        " document.dispatchEvent(new Event('visibilitychange')); }",
        state,
    )


def test_a_run_that_comes_before_the_first_tick_is_drawn_without_one(browser: Browser, tmp_path: Path) -> None:
    with Book(tmp_path) as book:
        training(book, "net-1a2b", 3)
        key, begun = (
            book.db.execute(f"SELECT {what}").fetchone()[0]
            for what in ("key FROM rank", "begun FROM epoch WHERE ordinal = 2")
        )
    phase = boundary(7, 2, Mark.PHASE, key)._replace(phase="validate", time_ns=begun + 8_000_000_000)
    served = Served([tick(1, runs=[run(key, id="net-1a2b", started=BEGAN)], boundaries=[phase])], [str(book.path)])
    with on_a_port(served) as link, visit(browser, link) as visitor:
        visitor.open("")  # and landed on its GPU: else that might come after the next address
        held = list[Route]()
        visitor.page.route("**/api/delta*", lambda route: held.append(route))
        visitor.page.goto(link.partition("?")[0] + "#/run/net-1a2b")
        visitor.page.reload()
        expect(visitor.page.locator("#page-run .plot[data-drawn]")).to_be_visible()
        assert held
        visitor.page.unroute("**/api/delta*")
        visitor.page.locator("body[data-state=live], body[data-state=stale]").wait_for(state="attached")


def test_before_the_first_sample_one_word_says_so_and_headlines_have_the_shape_of_what_comes(browser: Browser) -> None:
    veil = "(one) => [getComputedStyle(one, '::before').content, getComputedStyle(one, '::before').display]"
    for text, state, drawn in (
        (CATCHING_UP, "waiting", ['""', "block"]), ("stale: last seen 00:00:00 (42 s ago)", "stale", ['"–"', "inline"]),
    ):  # fmt: skip
        served = Served(devices=2)
        served.live.state = lambda text=text: LiveState(False, text, 1.0)  # type: ignore[method-assign]
        with on_a_port(served) as link, visit(browser, link) as visitor:
            page = visitor.open("#/fleet")
            expect(page.locator("#live")).to_have_text(state)
            values = page.locator("#page-fleet .headline .value").all()
            assert [one.evaluate(veil) for one in values] == [drawn] * 5
