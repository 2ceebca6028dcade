"""The pictures of the cluster page in this folder, of simulated nodes that a real Prometheus scrapes.

`PYTHONPATH=. python docs/cluster_shots.py [3|40|1000 ...]` takes those of so many nodes. Each size takes six minutes,
since sums and rates want some; that of 1,000 nodes 2 GB of memory.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

from benchmarks.cluster_engine import scraping, simulated

IMAGES = Path(__file__).parent / "images"
CHROMIUM = "/usr/bin/chromium"
GPUS = 8
INTERVAL = 60
"""Seconds between scrapes, and for one: a machine that has other work, too, gets round."""
SETTLES = 330.0
"""Seconds after which nodes with a fault have it, and rates are those of whole minutes."""
WIDE, PHONE = (1440, 1), (390, 2)
"""Width and pixels of each point."""
SIZES = (3, 40, 1000)
"""Nodes."""
SHOTS = {
    "": (WIDE, "dark"), "-light": (WIDE, "light"),
    "-phone": (PHONE, "dark"), "-phone-light": (PHONE, "light"),
}  # fmt: skip
"""Endings of names, and how each is taken."""
SETTLED = """() => /[0-9]/.test(document.querySelector("[data-bind=power]").textContent)
  && document.querySelector(".doubts").hidden
  && ![...document.querySelectorAll(".age")].some(age => /^(Unknown|Prometheus says)/.test(age.textContent))"""
"""Whether nothing of the page is unknown, and the rules are there."""
SETTINGS = """\
[groups]
vision = ["alice", "frank", "kim"]
language = ["bob", "carol", "dave"]

[cost]
currency = "EUR"
gpu-hour = { "H100" = 2.10, "A100" = 1.20, "L40S" = 0.60 }
kwh = 0.29
pue = 1.3
co2 = 380
"""


def main() -> None:
    """Take the pictures of the sizes that were named, or of all."""
    for nodes in map(int, sys.argv[1:] or SIZES):
        with (
            tempfile.TemporaryDirectory() as scratch,
            simulated(nodes, GPUS) as port,
            scraping(Path(scratch), port, INTERVAL, INTERVAL) as engine,
        ):
            time.sleep(SETTLES)
            with served(engine.url, Path(scratch)) as link:
                take(nodes, link)


@contextmanager
def served(engine: str, scratch: Path) -> Iterator[str]:
    """The page of Prometheus's cluster, with prices and groups; its link."""
    settings = scratch / "config" / "gpumon"
    settings.mkdir(parents=True)
    (settings / "config.toml").write_text(SETTINGS)
    env = {
        **os.environ, "XDG_CONFIG_HOME": str(settings.parent), "GPUMON_DIR": f"{scratch}/live",
        "GPUMON_STATE_DIR": f"{scratch}/state",
    }  # fmt: skip
    command = [sys.executable, "-m", "gpumon", "web", "--prometheus", engine, "--port", "0"]
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.terminate()


def take(nodes: int, link: str) -> None:
    """Take all pictures of one size."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        settle(browser, link)
        for ending, ((width, scale), theme) in SHOTS.items():
            picture(browser, link, IMAGES / f"cluster-{nodes}{ending}.png", width, scale, theme)
        browser.close()


def settle(browser: Browser, link: str) -> None:
    """Wait until each part of the page has an answer: a Prometheus server that has much else to do answers late."""
    page = browser.new_page()
    page.goto(link)
    page.locator("[data-bind=free]").first.wait_for()
    page.wait_for_function(SETTLED, timeout=600_000)
    page.close()


def picture(browser: Browser, link: str, path: Path, width: int, scale: int, theme: str) -> None:
    """Take one picture: the top of the page, as high as a desk's screen or two of a phone's."""
    context = browser.new_context(
        viewport={"width": width, "height": 1200 if scale == 1 else 1700}, device_scale_factor=scale,
        color_scheme="dark" if theme == "dark" else "light",
    )  # fmt: skip
    page = context.new_page()
    page.goto(link)
    page.locator("[data-bind=free]").first.wait_for()
    page.locator(".page:not([hidden]) tbody tr").first.wait_for()
    page.wait_for_timeout(4000)
    page.screenshot(path=path)
    context.close()


if __name__ == "__main__":
    main()
