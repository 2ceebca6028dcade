"""Completion in real shells: each command, option and choice of the parsers is offered where it can be given."""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

import pytest

from gpumon.cli import COMMANDS, main
from gpumon.cli.completion import SHELLS
from gpumon.cli.parser import parser_of
from gpumon.sources.registry import AUTO, KINDS, named
from gpumon.sources.sim import SCENARIOS
from tests.programs import environment
from tests.shells import SCRIPTS, offered, path_of, typing

FILE = "my run.gpumon"
FILES = ("FILE", "FILE.html", "PATH")


class Parsed(NamedTuple):
    """A command as argparse has it."""

    path: str
    parser: argparse.ArgumentParser
    below: list[str]

    def options(self) -> Iterator[argparse.Action]:
        return (action for action in self.parser._actions if action.option_strings)


def parsed(path: str, parser: argparse.ArgumentParser) -> Iterator[Parsed]:
    below = {name: one for action in parser._actions if isinstance(action, argparse._SubParsersAction)
             for name, one in action.choices.items()}  # fmt: skip
    yield Parsed(path, parser, list(below))
    for name, one in below.items():
        yield from parsed(f"{path} {name}", one)


def every_command() -> Iterator[Parsed]:
    for name in COMMANDS:
        module = import_module(f"gpumon.cli.{name}")
        parser = parser_of(name, module.__doc__)
        module.add_options(parser)
        yield from parsed(f"gpumon {name}", parser)


ALL = list(every_command())


def with_metavar(*metavars: str) -> list[str]:
    """Each option that takes such a value, behind its command."""
    found = [
        f"{one.path} {name}"
        for one in ALL
        for action in one.options()
        if action.metavar in metavars
        for name in action.option_strings
    ]
    assert len(found) > 3
    return found


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a file and a directory."""
    folder = tmp_path / "folder"
    (folder / "sub").mkdir(parents=True)
    (folder / FILE).touch()
    return folder


@pytest.fixture
def env(tmp_path: Path) -> Mapping[str, str]:
    return environment(tmp_path)


@pytest.mark.parametrize("shell", SHELLS)
def test_the_script_that_gpumon_prints_loads(shell: str, env: Mapping[str, str]) -> None:
    script = f"'{sys.executable}' -m gpumon completion {shell}"
    load = {
        "bash": f"source <({script}); complete -p gpumon",
        "zsh": f"autoload -Uz compinit; compinit -u -D; source <({script}); print $_comps[gpumon]",
        "fish": f"{script} | source; complete -c gpumon | count",
    }
    options = {"bash": "--norc", "zsh": "-f", "fish": "--no-config"}
    done = subprocess.run(
        [path_of(shell), options[shell], "-c", load[shell]], env=dict(env), capture_output=True, text=True, check=True
    )
    assert done.stderr == ""
    told = {"bash": "complete -F _gpumon gpumon", "zsh": "_gpumon"}.get(shell, done.stdout.strip())
    assert done.stdout.strip() == told != "0"


@pytest.mark.parametrize("shell", SHELLS)
def test_each_command_is_offered_where_it_can_be_given(shell: str, folder: Path, env: Mapping[str, str]) -> None:
    expected = {"gpumon": set(COMMANDS)} | {one.path: set(one.below) for one in ALL if one.below}
    found = offered(shell, [f"{path} " for path in expected], folder, env)
    assert dict(zip(expected, found, strict=True)) == expected


@pytest.mark.parametrize("shell", SHELLS)
def test_each_option_is_offered_behind_its_command(shell: str, folder: Path, env: Mapping[str, str]) -> None:
    expected = {one.path: {name for action in one.options() for name in action.option_strings} for one in ALL}
    expected["gpumon"] = {"-h", "--help", "-V", "--version"}
    found = [
        words - {"-"} for words in offered(shell, [f"{path} -" for path in expected], folder, env)
    ]  # a word of zsh
    assert dict(zip(expected, found, strict=True)) == expected


def test_each_option_of_gpumon_itself_is_one_that_it_takes(folder: Path, env: Mapping[str, str]) -> None:
    (names,) = offered("bash", ["gpumon -"], folder, env)
    assert {name: main([name]) for name in names} == dict.fromkeys(names, 0)


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("between", [" ", "="])
def test_each_choice_is_offered_behind_its_option(
    shell: str, between: str, folder: Path, env: Mapping[str, str]
) -> None:
    expected = {
        f"{one.path} {action.option_strings[-1]}": set(action.choices)
        for one in ALL
        for action in one.options()
        if action.choices
    }
    assert len(expected) > 5
    found = offered(shell, [f"{path}{between}" for path in expected], folder, env)
    found = [{word.rpartition("=")[2] for word in words} for words in found]  # fish offers the option with it
    assert dict(zip(expected, found, strict=True)) == expected


@pytest.mark.parametrize("shell", SHELLS)
def test_each_source_is_offered(shell: str, folder: Path, env: Mapping[str, str]) -> None:
    names = {AUTO, *(kind.name + kind.argument.replace("FILE", "") for kind in KINDS if "[" not in kind.argument)}
    names |= {"sim", *(f"sim:{name}" for name in SCENARIOS if name != "default")}
    (found, behind) = offered(shell, ["gpumon tui --source ", "gpumon tui --source sim:fau"], folder, env)
    assert found == names
    assert behind == ({"faults"} if shell == "bash" else {"sim:faults"}), "bash replaces what stands behind the colon"
    assert all(named(f"{name}x" if name.endswith(":") else name) for name in found)


@pytest.mark.parametrize("shell", SHELLS)
def test_the_value_of_an_option_is_no_subcommand(shell: str, folder: Path, env: Mapping[str, str]) -> None:
    lines = ["gpumon runs --user list ", "gpumon runs --user=list ", "gpumon runs --tag a=b --where lr=1 "]
    (runs,) = (one for one in ALL if one.path == "gpumon runs")
    assert offered(shell, lines, folder, env) == [set(runs.below)] * 3


@pytest.mark.parametrize("shell", SHELLS)
def test_behind_a_name_that_is_no_subcommand_none_is_offered(shell: str, folder: Path, env: Mapping[str, str]) -> None:
    found = offered(shell, ["gpumon typo s", "gpumon runs show list "], folder, env)
    assert {word for words in found for word in words if not word.startswith("-")} == set()


@pytest.mark.parametrize("shell", SHELLS)
def test_the_command_that_gpumon_runs_gets_no_options_of_gpumon(
    shell: str, folder: Path, env: Mapping[str, str]
) -> None:
    before, *behind = offered(
        shell, ["gpumon run --na", "gpumon run nothing --na", "gpumon run -- nothing --na"], folder, env
    )
    assert before == {"--name"}
    assert behind == [set(), set()]


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_a_tab_completes_files_and_directories(shell: str, folder: Path, env: Mapping[str, str]) -> None:
    with typing(shell, folder, env) as shown:
        for words in with_metavar(*FILES):
            assert shown.line(f"{words} my")[-1] == FILE, words
        for words in with_metavar("DIR"):
            assert shown.line(f"{words} ")[-1].rstrip("/") == "sub", f"{words}: the file is no directory"
        assert shown.line("gpumon record --output=my")[-1] == f"--output={FILE}"
        assert shown.line("gpumon tui --source replay:my")[-1] == f"replay:{FILE}"
        assert shown.line("gpumon tui --source=replay:my")[-1] == f"--source=replay:{FILE}"
        assert shown.line("gpumon tui --source=sim:fau")[-1] == "--source=sim:faults"
        assert shown.line("gpumon run -- cat my")[-1] == FILE
        assert shown.line("gpumon web --port m")[-1] == "m", "a port is no file"


def test_fish_offers_files_and_directories(folder: Path, env: Mapping[str, str]) -> None:
    files = [f"{words} " for words in with_metavar(*FILES)] + ["gpumon run cat "]
    directories = [f"{words} " for words in with_metavar("DIR")]
    found = offered("fish", [*files, *directories], folder, env)
    assert all({FILE, "sub/"} <= words for words in found[: len(files)])
    assert all(words == {"sub/"} for words in found[len(files) :])
    (played, port) = offered("fish", ["gpumon tui --source replay:m", "gpumon web --port "], folder, env)
    assert (played, port) == ({f"replay:{FILE}"}, set())


@pytest.mark.parametrize("shell", SHELLS)
def test_gpumon_prints_the_script_that_it_ships(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    assert capsys.readouterr().out == (SCRIPTS / f"gpumon.{shell}").read_text(encoding="utf-8")


def test_a_shell_without_a_script_is_refused_with_those_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "tcsh"]) == 2
    said = capsys.readouterr().err
    assert all(shell in said for shell in SHELLS)
