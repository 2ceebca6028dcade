"""Real trainings, watched in the browser from begin to end: the table of epochs fills as they end."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from tests.nvml import Process, Stub
from tests.programs import PATIENCE, daemon, environment, until
from tests.trainings import need, train
from tests.web.conftest import PATIENCE_MS, visit, web
from tests.web.watched import EPOCHS

expect.set_options(timeout=PATIENCE_MS)

_SCRIPT = Path(__file__).with_name("watched.py")


@pytest.mark.parametrize(("framework", "first"), [("torch", 0), pytest.param("keras", 1, marks=pytest.mark.slow)])
def test_the_epochs_of_a_training_show_as_they_end(
    browser: Browser, stub: Stub, live_dir: Path, tmp_path: Path, framework: str, first: int
) -> None:
    """Not slow: a loop by hand. That Keras counts from 1 is held by test_callback_keras."""
    need("torch", framework)
    env, name = environment(live_dir, stub.env()), f"watched-{framework}"
    with (
        daemon("--interval", "0.2", env=env),
        web(env=env) as link,
        visit(browser, link) as visitor,
        ThreadPoolExecutor(1) as pool,
    ):
        page = visitor.open("#/runs")
        expect(page.locator("#page-runs")).to_contain_text("No runs yet")
        training = pool.submit(train, [_SCRIPT, framework, tmp_path], live_dir)
        try:
            pid = until(lambda: int((tmp_path / "pid").read_text() or 0) if (tmp_path / "pid").exists() else 0)
            stub.set_processes(0, [Process(pid, 2**30)])
            link_to_run = page.locator("#page-runs").get_by_role("link", name=name)
            link_to_run.wait_for(timeout=2 * PATIENCE_MS)
            visitor.open("#/fleet")
            expect(page.locator("#page-fleet tbody tr").first).to_contain_text(name)
            page.locator("#page-fleet").get_by_role("link", name=name).first.click()
            expect(page.locator("#page-run h1")).to_have_text(name)
            numbered = page.get_by_role("rowheader", name=re.compile(r"^\d+$"))
            rows = page.get_by_role("table", name="Epochs").locator("tbody tr").filter(has=numbered)
            for done in range(1, EPOCHS + 1):
                row = rows.filter(has=page.get_by_role("rowheader", name=str(first + done - 1), exact=True))
                # An epoch has ended when its loss is there and what it was is said of it.
                expect(row.locator("td[data-label=loss]")).to_have_text(re.compile(r"^\d"))
                expect(row.locator("td[data-label=Verdict]")).not_to_have_text(re.compile("running|not finished"))
                # No more than the next one can have begun: it waits until this one was seen.
                assert rows.count() <= done + 1
                expect(page.locator("#page-run .head .tag").first).to_have_text("running")
                (tmp_path / f"seen-{done}").touch()
            expect(page.locator("#page-run .head .tag").first).to_have_text("finished", timeout=2 * PATIENCE_MS)
            expect(rows).to_have_count(EPOCHS)
        finally:
            for done in range(1, EPOCHS + 1):
                (tmp_path / f"seen-{done}").touch()
        training.result(PATIENCE)
        visitor.open("#/runs")
        line = page.locator("#page-runs tbody tr").filter(has_text=name)
        expect(line).to_contain_text("finished")
        expect(line).to_contain_text(f"{EPOCHS}/{EPOCHS}")
