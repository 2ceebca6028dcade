"""The pictures of both views in this folder, taken from the simulated machine: `python docs/shots.py [tui|web]`.

Needs playwright and the system's Chromium, which also draws what Textual exports of the terminal view. Nothing is
shown but what `gpumon web --source sim` and `gpumon tui --source sim` show.
Those of the fleet, users, events and a comparison are of the made-up lab of `states.py`, which has a history.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from playwright.sync_api import sync_playwright

from gpumon.cli.sampling import private_sampler
from gpumon.common.paths import Places
from gpumon.storage.ledger.reader import Ledgers
from gpumon_tui.app import GpumonApp

IMAGES = Path(__file__).parent / "images"
CHROMIUM = "/usr/bin/chromium"
PAGES = {"gpu": "#/gpu/0?window=600", "runs": "#/runs", "run": "#/run/sim-0-0"}
SETTLES = 75.0
"""Seconds after which states that need a minute of watching are known."""
READS = 5.0
"""Seconds after which what a page reads from disk is there."""
SIZES = {"": (1440, 900, "dark"), "-phone": (400, 860, "light")}
TERMINALS: Mapping[tuple[int, int], Mapping[str, str]] = {
    (160, 34): {"tui": "1", "tui-processes": "3 down enter"},
    (160, 45): {"tui-chart": "2" + 40 * " left", "tui-run": "escape 4 enter", "tui-events": "escape 5"},
    (200, 50): {"tui-200x50": "1"},
    (80, 24): {"tui-80x24": "1"},
    (40, 20): {"tui-40x20": "1"},
}
"""By columns and rows: names of pictures, and the keys that lead from one to the next."""


def main() -> None:
    """Take every picture, or those of one view."""
    wanted = sys.argv[1:] or ["tui", "web"]
    if "tui" in wanted:
        terminals()
    if "web" in wanted:
        pages()


def terminals() -> None:
    """Take a picture of the terminal view at every size."""
    pictures = asyncio.run(screens())
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        for name, drawn in pictures.items():
            width, height = (
                math.ceil(float(one)) for one in drawn.partition('viewBox="0 0 ')[2].partition('"')[0].split()
            )
            page = browser.new_page(viewport={"width": width, "height": height})
            page.set_content(f"<style>body {{ margin: 0 }} svg {{ display: block; width: {width}px }}</style>{drawn}")
            page.screenshot(path=IMAGES / f"{name}.png")
        browser.close()


async def screens() -> dict[str, str]:
    """The terminal view at every size, as SVG."""
    found = {}
    with tempfile.TemporaryDirectory() as directory:
        where, ledger = Places(explicit=directory), f"{directory}/ledger.sqlite"
        arguments = argparse.Namespace(source="sim", interval=1.0, speed=1.0, gpm=True)
        with private_sampler(where, arguments, ledger) as live:
            await asyncio.sleep(SETTLES)
            for size, pictures in TERMINALS.items():
                app = GpumonApp(live, ledgers=lambda: Ledgers([ledger]))
                async with app.run_test(size=size) as pilot:
                    for name, keys in pictures.items():
                        await pilot.press(*keys.split())
                        await asyncio.sleep(READS)
                        found[name] = app.export_screenshot(title="gpumon tui")
    return found


def pages() -> None:
    """Take a picture of every page of the browser view."""
    with tempfile.TemporaryDirectory() as directory:
        env = {**os.environ, "GPUMON_DIR": f"{directory}/live", "GPUMON_STATE_DIR": f"{directory}/state"}
        command = [sys.executable, "-m", "gpumon", "web", "--source", "sim", "--port", "0"]
        with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True) as served:
            assert served.stdout is not None
            try:
                take(served.stdout.readline().strip())
            finally:
                served.terminate()


def take(link: str) -> None:
    """A picture of every page at every size."""
    time.sleep(SETTLES)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        for ending, (width, height, theme) in SIZES.items():
            context = browser.new_context(
                viewport={"width": width, "height": height},
                color_scheme="dark" if theme == "dark" else "light",
                device_scale_factor=1 if not ending else 2,
            )
            page = context.new_page()
            for name, place in PAGES.items():
                page.goto(link + place)
                page.locator(".page:not([hidden]) tbody tr").first.wait_for()
                page.wait_for_timeout(4000)
                long = name in ("gpu", "run") and not ending
                page.screenshot(path=IMAGES / f"web-{name}{ending}.png", full_page=long)
            context.close()
        browser.close()


if __name__ == "__main__":
    main()
