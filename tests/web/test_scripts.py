"""The scripts of the pages: well-formed, right by themselves, and of one mind with Python about numbers as text."""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

import gpumon_web
from gpumon.model import units
from gpumon.model.metrics import Unit
from gpumon_web.assets_bundle import bundle_modules
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
    ("padded", units.padded_logged_number, tuple(value for value in LOGGED if value % 1)),
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


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of Node's tests, with the path of all scripts in one file."""
    path = tmp_path_factory.mktemp("scripts") / "scripts.js"
    path.write_text(bundle_modules(ASSETS[0].parent, "router"))
    return {**os.environ, "GPUMON_SCRIPTS": str(path)}


@pytest.mark.parametrize("script", ASSETS, ids=[path.name for path in ASSETS])
def test_a_script_is_well_formed(node: str, script: Path) -> None:
    text = script.read_text()
    found = subprocess.run(
        [node, "--check", "--input-type=module", "-"], input=text, capture_output=True, text=True, check=False
    )
    assert found.returncode == 0, found.stderr
    assert "// @ts-check" in text
    assert not re.search(r"^export (let|var|default|\{)|^import (?!\{|\* as|\")", text, re.MULTILINE), "not in a bundle"
    assert "console." not in text
    assert "innerHTML" not in text
    assert "eval(" not in text


@pytest.mark.parametrize("name", LOADED)
def test_the_scripts_do_by_themselves_what_they_say(node: str, name: str, environment: dict[str, str]) -> None:
    command = [node, "--test", str(SCRIPTS / name)]
    found = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stdout + found.stderr


def test_types_are_right() -> None:
    compiler = Path(sys.prefix) / "node_modules" / ".bin" / "tsc"
    if not compiler.exists():
        pytest.skip("tests/setup.sh has not installed the TypeScript compiler")
    command = [str(compiler), "-p", "jsconfig.json"]
    found = subprocess.run(command, cwd=SCRIPTS.parents[2], capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stdout


@pytest.fixture
def write(node: str, environment: dict[str, str]) -> Callable[[Sequence[Sequence[Any]]], list[str]]:
    """Return a function that calls functions of `format`, each given as [name, arguments], and returns the results."""

    def call(cases: Sequence[Sequence[Any]]) -> list[str]:
        done = subprocess.run(
            [node, str(SCRIPTS / "format.js")], input=json.dumps(cases), env=environment, capture_output=True,
            text=True, check=True,
        )  # fmt: skip
        results: list[str] = json.loads(done.stdout)
        return results

    return call


Write = Callable[[Sequence[Sequence[Any]]], list[str]]


def test_numbers_are_the_same_text_in_a_page_as_everywhere_else(write: Write) -> None:
    cases = [(name, value) for name, _, values in CASES for value in values]
    wanted = [python_text(value) for _, python_text, values in CASES for value in values]
    results = write([[name, [value]] for name, value in cases])
    assert list(zip(cases, results, strict=True)) == list(zip(cases, wanted, strict=True))


def test_energies_of_a_column_have_one_unit_but_for_a_sum_that_is_too_large_for_it(write: Write) -> None:
    for rows in (
        (1011.3, 812.0, 0.4),
        (5e3, 812.0, 17.9),
        (9e4, 180.1, 179.9, 0.0),
        (4e8, 8e5, 1700.0),
        (4e7, 8e5),
        (5e9, 8e4),
    ):
        sums = 10113.0, 4.2e7, 1823.3
        results = write([["joules", [value, max(rows)]] for value in (*rows, *sums)])
        assert results == [units.energy_in_column(value, max(rows)) for value in (*rows, *sums)]


def test_what_is_missing_is_the_same_dash(write: Write) -> None:
    assert write([[name, [None]] for name, _, _ in CASES]) == [units.MISSING] * len(CASES)


def test_the_scripts_show_the_kinds_that_python_names() -> None:
    text = next(path for path in ASSETS if path.name == "kinds.js").read_text()
    shown = ("{kind}:", " {kind} =", 'kind === "{kind}"')
    missing = [kind for kind in KINDS if not any(one.format(kind=kind) in text for one in shown)]
    assert missing == []
