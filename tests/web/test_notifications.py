"""What reaches a viewer who looks elsewhere: the title of the tab, and notifications of changes that were seen."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from gpumon.common.clock import SECOND
from gpumon.model.frame import RunState, Tick
from gpumon.model.metrics import Availability
from gpumon.model.origin import RECORDED, Origin
from gpumon.model.run import RunFacts
from tests.builders import TIME, device, process, run, sample, tick
from tests.programs import until
from tests.web.conftest import on_a_port, visit
from tests.web.served import Served

GIB = 2.0**30
KEY = "tag.1000.7.aaaa"
FAKE = """
window.fired = JSON.parse(sessionStorage.getItem("fired") || "[]");
window.Notification = class {
  static permission = sessionStorage.getItem("permission") || "default";
  static async requestPermission() {
    window.Notification.permission = window.answer || "granted";
    sessionStorage.setItem("permission", window.Notification.permission);
    return window.Notification.permission;
  }
  constructor(title, options) {
    if (window.throws) { throw new TypeError("Illegal constructor"); }
    window.fired.push([title, options.body, options.tag]);
    this.close = () => {};
    window.shown = this;
  }
  addEventListener(name, heard) {
    this.heard = heard;
  }
};
"""
"""The browser's own, which asks nobody and shows nothing."""


def lab(
    number: int, *, state: RunState = RunState.RUNNING, second: int | None = None, free: bool = False,
    used: float = 0.8, lost: bool = False, epoch: int = 2, stalled_since: float = 0.0, **fields: Any,
) -> Tick:  # fmt: skip
    """A run of ada on GPU 0, and bob on GPU 1, which may be free."""
    second = number if second is None else second
    training = run(KEY, id="net-1a2b", name="net", pid=7, user="ada", epoch=epoch, epochs=40, state=state,
                   gpus=(device(0).uuid,), facts=RunFacts(stalled_since=stalled_since))  # fmt: skip
    over = state is not RunState.RUNNING
    idle = {"utilization": 0.0, "memory_used": 0.0, "memory_total": 80 * GIB}
    first = sample(0, run="" if over else KEY, state=Availability.LOST if lost else Availability.OK,
                   **(idle if over else {"utilization": used, "memory_used": GIB}))  # fmt: skip
    second_gpu = sample(1, **(idle if free else {"utilization": 0.5, "memory_used": GIB}))
    on_it = [] if over else [process(7, 0, user="ada", run=KEY)]
    on_it += [] if free else [process(8, 1, user="bob")]
    return tick(number, [first, second_gpu], on_it, [training], time_ns=TIME + second * SECOND,
                monotonic_ns=(50 + second) * SECOND, **fields)  # fmt: skip


@contextmanager
def watching(browser: Browser, *, me: str = "ada", fake: str = FAKE) -> Iterator[tuple[Served, Page]]:
    """A fleet page of somebody who said who they are, and asked for notifications where there is a fake."""
    served = Served([lab(number) for number in range(1, 4)])
    with on_a_port(served) as link, visit(browser, link) as visitor:
        visitor.context.add_init_script(f"localStorage.setItem('gpumon-me', {me!r});" if me else "")
        visitor.context.add_init_script(fake)
        page = visitor.open("#/fleet")
        expect(page.locator("#page-fleet tbody tr")).to_have_count(2)
        yield served, page


def ask(page: Page) -> None:
    button = page.get_by_role("button", name="Notify")
    button.click()
    expect(button).to_have_attribute("aria-pressed", "true")


def show(page: Page, served: Served, *ticks: Tick) -> None:
    """Bring ticks one by one, each once the page has the one before."""
    for one in ticks:
        served.writer.append(one)
        page.wait_for_function("(time) => gpumon.feed.feed.now >= time", arg=one.time_ns // 10**6 / 1000)


def fired(page: Page) -> list[list[str]]:
    found: list[list[str]] = page.evaluate("window.fired")
    return found


@pytest.mark.parametrize(
    ("state", "words"),
    [
        (RunState.FAILED, "net has failed"), (RunState.INTERRUPTED, "net was interrupted"),
    ],
)  # fmt: skip
def test_the_end_of_my_run_is_told_once(browser: Browser, state: RunState, words: str) -> None:
    with watching(browser) as (served, page):
        ask(page)
        show(page, served, lab(4))
        assert fired(page) == []
        show(page, served, lab(5, state=state), lab(6, state=state), lab(7, state=state))
        told = [one for one in fired(page) if one[0].startswith("net")]
        assert [(title, body) for title, body, _ in told] == [(words, "node1")]


def test_a_gpu_that_becomes_free_is_told_and_leads_to_its_page(browser: Browser) -> None:
    with watching(browser, me="") as (served, page):
        ask(page)
        expect(page.locator("#notified")).to_contain_text("Say on the fleet page who you are")
        show(page, served, lab(4, free=True), lab(5, free=True))
        assert [title for title, *_ in fired(page)] == ["GPU 1 is free"]
        page.evaluate("window.shown.heard()")
        expect(page.locator("#page-gpu h1")).to_have_text("GPU 1")


def test_runs_of_others_are_no_news(browser: Browser) -> None:
    with watching(browser, me="bob") as (served, page):
        ask(page)
        show(page, served, lab(4, state=RunState.FAILED), lab(5, state=RunState.FAILED))
        assert [title for title, *_ in fired(page) if title.startswith("net")] == []


def test_a_run_that_stalls_is_told_and_a_gpu_that_was_lost_and_is_back_is_no_news(browser: Browser) -> None:
    with watching(browser) as (served, page):
        ask(page)
        show(page, served, lab(4, lost=True), lab(5))
        assert fired(page) == []
        # Facts that rarely change are updated every 5 s.
        stalled = (lab(number, second=10 * number, stalled_since=TIME / SECOND) for number in (6, 7))
        show(page, served, *stalled)
        assert [title for title, *_ in fired(page)] == ["net is stalled"]


def test_nothing_is_told_of_what_happened_while_nobody_saw_it(browser: Browser) -> None:
    with watching(browser) as (served, page):
        ask(page)
        show(page, served, lab(4, second=4000, free=True, state=RunState.FAILED))
        show(page, served, lab(5, second=4001, free=True, state=RunState.FAILED))
        assert fired(page) == []


def test_a_recording_has_no_news(browser: Browser) -> None:
    origin = Origin("replay", "REPLAY gpus.csv", capabilities=RECORDED)
    with watching(browser) as (served, page):
        show(page, served, lab(4, origin=origin))
        page.wait_for_function("() => gpumon.feed.feed.recorded")
        ask(page)
        show(page, served, lab(5, origin=origin, state=RunState.FAILED, free=True), lab(6, origin=origin, free=True))
        assert fired(page) == []


def test_the_choice_is_kept_and_ended_by_keys(browser: Browser) -> None:
    with watching(browser) as (_, page):
        ask(page)
        page.reload()
        button = page.get_by_role("button", name="Notify")
        expect(button).to_have_attribute("aria-pressed", "true")
        button.focus()
        page.keyboard.press("Enter")
        expect(button).to_have_attribute("aria-pressed", "false")
        expect(page.locator("#notified")).to_have_text("Notifications are off.")
        page.reload()
        expect(button).to_have_attribute("aria-pressed", "false")


def test_nobody_is_asked_before_the_button_is_pressed(browser: Browser) -> None:
    with watching(browser) as (served, page):
        show(page, served, lab(4, state=RunState.FAILED, free=True), lab(5, state=RunState.FAILED, free=True))
        assert fired(page) == []
        assert page.evaluate("Notification.permission") == "default"


def test_why_there_are_none_is_said_in_words(browser: Browser) -> None:
    cases = {
        "window.answer = 'denied'": "This browser refuses notifications",
        "window.answer = 'default'": "was not allowed",
        "delete window.Notification": "only to pages with https",
    }
    with watching(browser) as (_, page):
        for before, words in cases.items():
            page.evaluate("sessionStorage.clear()")
            page.reload()
            page.evaluate(before)
            page.get_by_role("button", name="Notify").click()
            expect(page.locator("#notified")).to_contain_text(words)
            expect(page.get_by_role("button", name="Notify")).to_have_attribute("aria-pressed", "false")


def test_a_browser_that_cannot_after_all_says_so(browser: Browser) -> None:
    with watching(browser) as (served, page):
        ask(page)
        page.evaluate("window.throws = true")
        show(page, served, lab(4, free=True))
        expect(page.locator("#notified")).to_have_text("This browser cannot notify from a page.")
        expect(page.get_by_role("button", name="Notify")).to_have_attribute("aria-pressed", "false")


def test_the_title_says_the_state_of_what_is_shown_and_follows_it(browser: Browser) -> None:
    with watching(browser) as (served, page):
        expect(page).to_have_title("0 of 2 free · node1")
        show(page, served, lab(4, free=True))
        expect(page).to_have_title("1 of 2 free · node1")
        page.goto(f"{page.url.partition('#')[0]}#/gpu/0")
        expect(page).to_have_title("GPU 0 busy, net · node1")
        show(page, served, lab(5, free=True, lost=True))
        expect(page).to_have_title("GPU 0 lost, net · node1")
        page.goto(f"{page.url.partition('#')[0]}#/run/net-1a2b")
        expect(page).to_have_title("epoch 2 (3/40) · net · node1")
        show(page, served, lab(6, epoch=3))
        expect(page).to_have_title("epoch 3 (4/40) · net · node1")
        show(page, served, lab(7, state=RunState.FAILED))
        expect(page).to_have_title("failed · net · node1")
        page.goto(f"{page.url.partition('#')[0]}#/events")
        expect(page).to_have_title("Events · node1")


def test_the_title_of_what_is_old_says_so_and_no_state(browser: Browser) -> None:
    with watching(browser) as (served, page):
        expect(page).to_have_title("0 of 2 free · node1")
        served.live.age = 30.0
        expect(page).to_have_title("stale · Fleet · node1")
        page.goto(f"{page.url.partition('#')[0]}#/gpu/0")
        expect(page).to_have_title("stale · GPU 0 · node1")
        served.live.age = 0.0
        until(lambda: page.title() == "GPU 0 busy, net · node1")
