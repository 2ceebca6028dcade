"""The pane and the tables of a notebook, in a real JupyterLab in a real browser."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import nbformat
import pytest
from playwright.sync_api import Browser, Page

from tests.conftest import cannot
from tests.notebooks import SOURCES
from tests.nvml import Stub
from tests.programs import PATIENCE, daemon, environment, until
from tests.web.conftest import PATIENCE_MS

LAB = Path(sys.prefix) / "jupyterlab" / "bin" / "jupyter-lab"
EVERY = 0.5
SECONDS = 10
CELLS = (
    "%load_ext gpumon\n%gpumon live 0.5",
    f"import time\nuntil = time.monotonic() + {SECONDS}\nwhile time.monotonic() < until: sum(range(999))",
    "%gpumon off\n1 + 1",
)
COUNT_PANES = """
window.panes = [];
new MutationObserver(() => {
  const pane = document.querySelector('.jp-OutputArea table.gpumon svg');
  const html = pane && pane.closest('table').outerHTML;
  if (html && html !== window.panes.at(-1)) window.panes.push(html);
}).observe(document, {childList: true, subtree: true});
"""

pytestmark = pytest.mark.slow


@pytest.fixture
def server(stub: Stub, tmp_path: Path) -> Iterator[str]:
    """The address of a JupyterLab with a notebook, whose kernel is our Python beside a daemon on the stub driver."""
    if not LAB.exists():
        cannot("JupyterLab is not installed: make test-all does that")
    live_dir, home = tmp_path / "live", tmp_path / "home"
    live_dir.mkdir(mode=0o700)
    home.mkdir()
    kernel = tmp_path / "data" / "kernels" / "tested"
    kernel.mkdir(parents=True)
    words = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    (kernel / "kernel.json").write_text(json.dumps({"argv": words, "display_name": "tested", "language": "python"}))
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in CELLS])
    notebook.metadata["kernelspec"] = {"name": "tested", "display_name": "tested", "language": "python"}
    nbformat.write(notebook, home / "measured.ipynb")
    env = {**environment(live_dir, stub.env()), "GPUMON_SOURCE": "nvml"}
    own = {"PYTHONPATH": SOURCES, "JUPYTER_PATH": str(tmp_path / "data"), "HOME": str(home)}
    options = {
        "ServerApp.root_dir": home, "ServerApp.ip": "127.0.0.1", "ServerApp.port": 0, "IdentityProvider.token": "",
        "ServerApp.disable_check_xsrf": True, "LabApp.expose_app_in_browser": True,
        "LabApp.extension_manager": "readonly",
    }  # fmt: skip
    flags = [*(f"--{name}={value}" for name, value in options.items()), "--allow-root", "--no-browser"]
    with daemon("--interval", "0.25", env=env):
        log = tmp_path / "lab.log"
        with log.open("w") as output:
            process = subprocess.Popen([LAB, *flags], env={**env, **own}, cwd=home, stdout=output, stderr=output)
        try:
            (address,) = until(lambda: re.findall(r"(http://127\.0\.0\.1:\d+)/lab", log.read_text())[:1])
            yield address
        finally:
            process.terminate()
            process.wait(timeout=PATIENCE)


class Lab:
    """A page of JupyterLab, and everything that it complained about or asked of other hosts."""

    def __init__(self, browser: Browser, address: str) -> None:
        self.foreign: list[str] = []
        self.complaints: list[str] = []
        self.context = browser.new_context(viewport={"width": 1400, "height": 1000})
        self.context.set_default_timeout(PATIENCE_MS)
        self.context.add_init_script(COUNT_PANES)
        self.context.on("request", lambda request: self._asked(request.url, address))
        self.page: Page = self.context.new_page()
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self._address = address

    def open(self) -> None:
        self.page.goto(f"{self._address}/lab/tree/measured.ipynb")
        self.page.locator(".jp-Notebook .jp-CodeCell").nth(len(CELLS) - 1).wait_for()
        self.page.locator(".jp-Notebook-ExecutionIndicator[data-status=idle]").wait_for(state="attached")

    def command(self, name: str) -> Any:
        return self.page.evaluate(f"window.jupyterapp.commands.execute({name!r})")

    def _asked(self, url: str, address: str) -> None:
        if urlsplit(url).scheme in ("http", "https", "ws", "wss") and urlsplit(url).netloc != urlsplit(address).netloc:
            self.foreign.append(url)


def test_pane_and_table(browser: Browser, server: str) -> None:
    lab = Lab(browser, server)
    try:
        lab.open()
        lab.command("notebook:run-all-cells")
        lab.page.locator(".jp-OutputArea-executeResult", has_text="2").wait_for()
        panes = lab.page.evaluate("window.panes")
        tables = lab.page.locator("table.gpumon")
        until(lambda: tables.count() == 1)
        assert len(panes) >= 0.8 * SECONDS / EVERY
        assert "Energy" in tables.inner_text()
        assert lab.page.locator("table.gpumon svg").count() == 0, "the pane became the table"
        colors = {}
        for theme in ("JupyterLab Light", "JupyterLab Dark"):
            lab.page.evaluate(f"window.jupyterapp.commands.execute('apputils:change-theme', {{theme: {theme!r}}})")
            lab.page.locator(f"body[data-jp-theme-name={theme!r}]").wait_for(state="attached")
            colors[theme] = lab.page.evaluate("getComputedStyle(document.querySelector('table.gpumon td')).color")
        assert len(set(colors.values())) == 2, "the text has the color of the theme"
        lab.command("docmanager:save")
        lab.page.locator(".jp-mod-dirty").wait_for(state="detached")
        lab.open()
        assert "Energy" in lab.page.locator("table.gpumon").inner_text()
        assert (lab.foreign, lab.complaints) == ([], [])
    finally:
        lab.context.close()
