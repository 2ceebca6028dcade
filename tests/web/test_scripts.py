"""The scripts of the pages: well-formed, right by themselves, and of one mind with Python about numbers as text."""

from __future__ import annotations

import json
import math
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

import gpumon_web
from gpumon.model import units
from gpumon.model.metrics import Unit
from gpumon_web.components.page import KINDS
from tests.conftest import cannot

ASSETS = sorted((Path(gpumon_web.__file__).parent / "assets").glob("*.js"))
SCRIPTS = Path(__file__).parent / "scripts"
LOADED = sorted(path.name for path in SCRIPTS.glob("*.test.js"))
RATIOS = (0.0, 0.004, 0.005, 0.015, 0.025, 0.125, 0.5, 0.945, 0.97, 0.999, 1.0, 12.345)
SECONDS = (0.0, 0.04, 0.05, 0.25, 0.45, 0.5, 1.5, 2.5, 8.0, 9.94, 9.95, 10.5, 11.5, 59.4, 59.5, 60.0, 200.0, 3599.4,
           3599.6, 3600.0, 3723.0, 86399.6, 86400.0, 273600.0, 1e7)  # fmt: skip
BYTES = (0.0, 1.0, 999.0, 999.5, 1000.0, 1023.0, 1024.0, 1536.0, 99.9 * 2**20, 99.95 * 2**20, 812 * 2**20, 2.0**30,
         1.25 * 2**30, 72 * 2**30, 80 * 2**30, 999.6 * 2**30, 3.3e12, 5e15)  # fmt: skip
WATTS = (0.0, 0.5, 1.5, 2.5, 66.4, 611.5, 612.5, 700.0, 1214.4, 123456.0)
JOULES = (0.0, 0.5, 999.0, 3599.0, 3600.0, 35999.0, 36000.0, 123456.0, 3.6e6, 4.2e7)
LOGGED = (0.0, 0.5, 0.00012345, 0.001, 0.0099995, 1.0, 1.25, 12.125, 999.96, 12345.6, 123456.0, 1e6, -0.25, -3e-9)
CASES: tuple[tuple[str, Callable[[float], str], tuple[float, ...]], ...] = (
    ("percent", lambda value: units.number(value, Unit.RATIO), RATIOS),
    ("bytes", lambda value: units.number(value, Unit.BYTES), BYTES),
    ("watts", lambda value: units.number(value, Unit.WATTS), WATTS),
    ("celsius", lambda value: units.number(value, Unit.CELSIUS), (*WATTS, -3.0)),
    ("gigahertz", lambda value: units.number(value, Unit.HERTZ), tuple(value * 1e6 for value in WATTS)),
    ("joules", lambda value: units.number(value, Unit.JOULES), JOULES),
    ("duration", units.duration, SECONDS),
    ("brief", units.fine_duration, (*SECONDS, 0.9994, 0.9995, 0.0125)),
    ("digits", units.padded_logged_number, tuple(value for value in LOGGED if value % 1)),
    ("span", units.long_duration, SECONDS),
    ("plain", units.logged_number, LOGGED),
    ("count", lambda value: units.number(round(value), Unit.COUNT) if math.isfinite(value) else units.MISSING,
     (0.0, 1.0, 2.5, 1e6)),
)  # fmt: skip


@pytest.fixture(scope="module")
def node() -> str:
    """Node, which runs the scripts where no browser does."""
    found = shutil.which("node")
    if found is None:
        cannot("node is not installed")
    assert found is not None
    return found


@pytest.mark.parametrize("script", ASSETS, ids=[path.name for path in ASSETS])
def test_a_script_is_well_formed(node: str, script: Path) -> None:
    found = subprocess.run([node, "--check", str(script)], capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr
    text = script.read_text()
    assert '"use strict";' in text
    assert "console." not in text
    assert "innerHTML" not in text
    assert "eval(" not in text


@pytest.mark.parametrize("name", LOADED)
def test_the_scripts_do_by_themselves_what_they_say(node: str, name: str) -> None:
    found = subprocess.run([node, "--test", str(SCRIPTS / name)], capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stdout + found.stderr


def test_numbers_are_the_same_text_in_a_page_as_everywhere_else(node: str) -> None:
    cases = [(name, value) for name, _, values in CASES for value in values]
    asked = json.dumps([[name, [value]] for name, value in cases])
    found = subprocess.run([node, str(SCRIPTS / "format.js")], input=asked, capture_output=True, text=True, check=True)
    wanted = [write(value) for _, write, values in CASES for value in values]
    assert list(zip(cases, json.loads(found.stdout), strict=True)) == list(zip(cases, wanted, strict=True))


def test_energies_of_a_column_have_one_unit_but_for_a_sum_that_is_too_large_for_it(node: str) -> None:
    for rows in (
        (1011.3, 812.0, 0.4),
        (5e3, 812.0, 17.9),
        (9e4, 180.1, 179.9, 0.0),
        (4e8, 8e5, 1700.0),
        (4e7, 8e5),
        (5e9, 8e4),
    ):
        sums = 10113.0, 4.2e7, 1823.3
        asked = json.dumps([["joules", [value, max(rows)]] for value in (*rows, *sums)])
        done = subprocess.run(
            [node, str(SCRIPTS / "format.js")], input=asked, capture_output=True, text=True, check=True
        )
        assert json.loads(done.stdout) == [units.energy_in_column(value, max(rows)) for value in (*rows, *sums)]


def test_what_is_missing_is_the_same_dash(node: str) -> None:
    asked = json.dumps([[name, [None]] for name, _, _ in CASES])
    found = subprocess.run([node, str(SCRIPTS / "format.js")], input=asked, capture_output=True, text=True, check=True)
    assert json.loads(found.stdout) == [units.MISSING] * len(CASES)


def test_the_scripts_show_the_kinds_that_python_names() -> None:
    text = next(path for path in ASSETS if path.name == "25-kinds.js").read_text()
    shown = ("{kind}:", " {kind} =", 'kind === "{kind}"')
    missing = [kind for kind in KINDS if not any(one.format(kind=kind) in text for one in shown)]
    assert missing == []
