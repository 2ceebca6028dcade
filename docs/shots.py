"""The pictures of the browser view in this folder, taken from the simulated machine: `python docs/shots.py`.

Needs playwright and the system's Chromium. Nothing is shown but what `gpumon web --source sim` shows.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from playwright.sync_api import sync_playwright

HERE = Path(__file__).parent
CHROMIUM = "/usr/bin/chromium"
PAGES = {"fleet": "#/fleet", "gpu": "#/gpu/0?window=600", "runs": "#/runs", "run": "#/run/sim-0-0"}
SETTLES = 75.0
"""Seconds after which states that need a minute of watching are known."""
SIZES = {"": (1440, 900, "dark"), "-phone": (400, 860, "light")}


def main() -> None:
    """Take every picture."""
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
                page.screenshot(path=HERE / f"web-{name}{ending}.png", full_page=name in ("gpu", "run") and not ending)
            context.close()
        browser.close()


if __name__ == "__main__":
    main()
