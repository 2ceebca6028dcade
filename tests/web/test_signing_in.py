"""Signing in by the form, and out again, as a person does it in a browser."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, expect

from gpumon_web.auth.api_tokens import TOKENS, NamedTokens, add_token, revoke_token
from tests.builders import tick
from tests.web.conftest import on_a_port, visit
from tests.web.served import TOKEN, Served


def test_a_token_is_typed_into_a_form_and_a_session_ended_by_a_button(browser: Browser) -> None:
    with on_a_port(Served([tick(1)])) as link, visit(browser, link.partition("?")[0]) as visitor:
        page = visitor.page
        page.goto(visitor.link)
        expect(page.get_by_role("heading")).to_have_text("Token required")
        found = Axe().run(page).response
        assert [one["id"] for one in found["violations"]] == []
        page.get_by_label("Token").fill("not-the-token-0123456789")
        page.get_by_role("button", name="Open").click()
        expect(page.get_by_role("heading")).to_have_text("Wrong token")
        page.get_by_label("Token").fill(TOKEN)
        page.keyboard.press("Enter")
        page.locator("body[data-state=live], body[data-state=stale]").wait_for(state="attached")
        assert page.url.partition("#")[0] == visitor.link
        assert not [one for one in page.context.cookies() if one["name"] == "gpumon-8050" and not one["httpOnly"]]
        page.get_by_role("button", name="Sign out").click()
        expect(page.get_by_role("heading")).to_have_text("Token required")
        assert page.context.cookies() == []


@pytest.mark.parametrize("tries", [0, 1, 2])
def test_a_link_leads_where_it_was_to_after_wrong_tokens_too(browser: Browser, tries: int) -> None:
    with on_a_port(Served([tick(1)])) as link, visit(browser, link.partition("?")[0]) as visitor:
        page, place = visitor.page, "#/users?period=month&day=2026-10-01"
        page.goto(visitor.link + ("?token=wrong-0123456789" if tries else "") + place)
        for _ in range(tries):
            page.get_by_label("Token").fill("not-the-token-0123456789")
            page.keyboard.press("Enter")
            expect(page.get_by_role("heading")).to_have_text("Wrong token")
        page.get_by_label("Token").fill(TOKEN)
        page.keyboard.press("Enter")
        page.locator("#page-users:visible").wait_for()
        assert page.url == visitor.link + place


def test_a_page_whose_token_is_revoked_says_how_to_sign_in_again(browser: Browser, tmp_path: Path) -> None:
    file = str(tmp_path / TOKENS)
    named = [add_token(file, name, 0.0) for name in ("phone", "desk")]
    with (
        on_a_port(Served([tick(1)], named=NamedTokens(file))) as link,
        visit(browser, link.partition("?")[0]) as visitor,
    ):
        page = visitor.page
        page.goto(visitor.link)
        page.get_by_label("Token").fill(named[0])
        page.keyboard.press("Enter")
        page.locator("body[data-state=live]").wait_for(state="attached")
        revoke_token(file, "phone")
        page.locator("body[data-state=locked]").wait_for(state="attached")
        said = r"This browser is signed out\. Last seen \d\d:\d\d:\d\d \S+ \(\d+ s ago\)\. Reload the page to sign in\."
        expect(page.locator("#problem")).to_have_text(re.compile(said))
        expect(page.get_by_role("button", name="Sign out")).to_have_count(0)
        page.get_by_role("link", name="Reload the page to sign in").click()
        expect(page.get_by_role("heading")).to_have_text("Token required")
        page.get_by_label("Token").fill(named[1])
        page.keyboard.press("Enter")
        page.locator("body[data-state=live]").wait_for(state="attached")


@pytest.mark.parametrize("width", [320, 400])
def test_the_page_that_asks_for_a_token_fits_a_phone(browser: Browser, width: int) -> None:
    with (
        on_a_port(Served([tick(1)])) as link,
        visit(browser, link.partition("?")[0], viewport={"width": width, "height": 700}) as visitor,
    ):
        visitor.page.goto(visitor.link)
        assert visitor.page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
