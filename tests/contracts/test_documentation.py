"""Commands, outputs, code and file names in the documentation match the program."""

from __future__ import annotations

import argparse
import ast
import os
import re
import shlex
import subprocess
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpumon.cli import main
from gpumon.cli.options import resolve_options
from gpumon.cli.parser import whole_parser
from gpumon.common.errors import UsageError
from gpumon.diagnosis import faults
from tests import documented
from tests.conftest import ROOT
from tests.documented import PAGES, Shown

SHOWN = [shown for page in PAGES for shown in documented.outputs(page)]
COMMANDS = [(page, command) for page in PAGES for command in documented.commands(page)]
MENTIONS = [(page, command) for page in PAGES for command in documented.mentions(page)]
INCOMPLETE = re.compile(r"the following arguments are required|expected (?:one|at least one) argument")
"""Errors of a command that is named without its arguments."""
CODE = [(page, code) for page in PAGES for code in documented.blocks(page, "python")]
LONGEST_README = 150


@pytest.fixture(scope="module")
def state_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("documented") / "state"
    documented.fill(directory)
    return directory


@pytest.fixture
def machine(state_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The environment and the time of the machine of the documentation, on which no daemon runs."""
    places = {"GPUMON_STATE_DIR": state_dir, "GPUMON_DIR": tmp_path / "live", "XDG_CONFIG_HOME": tmp_path}
    for name, value in {**places, "TZ": "UTC", "COLUMNS": documented.COLUMNS}.items():
        monkeypatch.setenv(name, str(value))
    time.tzset()
    with monkeypatch.context() as context:
        context.setattr(time, "time", lambda: float(documented.NOW))
        context.setattr(time, "time_ns", lambda: documented.NOW * 10**9)
        yield
    monkeypatch.undo()
    time.tzset()


def printed(shown: Shown, capsys: pytest.CaptureFixture[str]) -> str:
    """Run a command; gives what it prints."""
    if shown.command.startswith("gpumon run "):  # would train
        return documented.run_summary()
    assert main(shlex.split(shown.command)[1:]) == 0
    return re.sub(r"no daemon: \S+ does not exist", "no daemon", capsys.readouterr().out)


@pytest.mark.parametrize("shown", SHOWN, ids=str)
@pytest.mark.usefixtures("machine")
def test_outputs_are_those_of_the_program(shown: Shown, capsys: pytest.CaptureFixture[str]) -> None:
    output = printed(shown, capsys)
    comparable = documented.masked if shown.is_simulated else str.rstrip
    is_current = comparable(shown.output) == comparable(output)
    if os.environ.get("GPUMON_REWRITE_DOCS") and not is_current:
        documented.rewrite(shown, output)
    else:
        assert is_current, f"see tests/documented.py for how to update pages; the output is now\n{output}"


def test_pages_show_outputs() -> None:
    assert len(SHOWN) > 1
    assert len(COMMANDS) > 40
    assert len(MENTIONS) > 80
    assert len(CODE) > 10


def words_of(line: str) -> list[str]:
    """The arguments of the first command in a line of a shell."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    words: list[str] = []
    for word in lexer:
        if set(word) <= set(";|&()<>"):
            break
        words.append(word)
    return words[1:]


@pytest.fixture(scope="module")
def parser() -> argparse.ArgumentParser:
    return whole_parser()


def parse_error(parser: argparse.ArgumentParser, command: str) -> str:
    """Why the program would refuse a command; empty if it would not."""
    words = [word for word in words_of(command) if word != "--help"]
    try:
        parser.parse_args(words)
    except UsageError as error:
        return str(error)
    return ""


@pytest.mark.parametrize(("page", "command"), COMMANDS, ids=lambda value: getattr(value, "stem", value))
def test_commands_are_understood(page: Path, command: str, parser: argparse.ArgumentParser) -> None:
    assert parse_error(parser, command) == "", page


def test_mentioned_commands_exist(parser: argparse.ArgumentParser) -> None:
    errors = {(page.name, command): parse_error(parser, command) for page, command in MENTIONS}
    assert {name: error for name, error in errors.items() if error and not INCOMPLETE.search(error)} == {}


@pytest.mark.parametrize(("page", "code"), CODE, ids=lambda value: getattr(value, "stem", ""))
def test_python_compiles(page: Path, code: str) -> None:
    ast.parse(textwrap.dedent(code), str(page))


@pytest.mark.parametrize("page", ["runs", "history"])
@pytest.mark.usefixtures("machine")
def test_python_of_readers_runs(page: str) -> None:
    for package in ("numpy", "pandas", "polars", "pyarrow"):
        pytest.importorskip(package)
    code = "".join(documented.blocks(ROOT / "docs" / "read" / f"{page}.md", "python"))
    assert "import gpumon" in code
    exec(code, {})


def test_pages_that_texts_name_are_there() -> None:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    texts = [ROOT / name for name in listed.split("\0") if not name.startswith("docs/images/")]
    named = {
        name
        for path in texts
        if path.is_file() and path.suffix not in {".gz", ".png", ".woff2", ".ico"} and path.name != ".gitignore"
        for name in re.findall(r"\bdocs/[\w/-]+\.(?:md|png|1)\b", path.read_text(encoding="utf-8", errors="replace"))
    }
    assert len(named) > 10
    assert {name for name in named if not (ROOT / name).exists()} == set()


def test_the_page_on_findings_has_every_kind() -> None:
    page = (ROOT / "docs" / "read" / "findings.md").read_text(encoding="utf-8")
    rules = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "gpumon" / "diagnosis").glob("*.py"))
    kinds = {*re.findall(r"\bFinding\(\s*\"(\w+)\"", rules), *faults.OF_LINKS}
    assert len(kinds) > 15
    assert {kind for kind in kinds if f"`{kind}`" not in page} == set()


def test_the_page_on_settings_has_every_setting(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "reference" / "settings.md").read_text(encoding="utf-8")
    _, options = resolve_options(argparse.Namespace(), {"XDG_CONFIG_HOME": str(tmp_path)})
    names = vars(options).keys() - {"prices", "user_groups", "caps"}
    rows = {f"| `GPUMON_{name.upper()}` | `{name.replace('_', '-')}` |" for name in names}
    assert len(rows) > 10
    assert {row for row in rows if row not in page} == set()


def test_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= LONGEST_README
