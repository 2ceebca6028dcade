"""What commands say of themselves on a terminal."""

from __future__ import annotations

import argparse
import fcntl
import os
import pty
import resource
import struct
import termios
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

from gpumon.cli import COMMANDS, main
from gpumon.cli.parser import command_parser
from gpumon.cli.streams import shortened, terminal_size, write_output
from gpumon.common.errors import GpumonError
from gpumon.common.text import wrap_words


def test_a_line_breaks_between_words_and_a_path_stays_whole() -> None:
    path = "/a/directory/with/a/name/that/no/terminal/has/room/for"
    assert wrap_words(f"cannot read {path}: it is not there", 20) == ["cannot read", f"{path}:", "it is not there"]
    assert wrap_words("one\n two  three", 40) == ["one", " two  three"]
    assert wrap_words("one two", 0) == ["one two"]
    assert wrap_words("ユーザー ユーザー", 16) == ["ユーザー", "ユーザー"]


@pytest.mark.parametrize("width", [10, 20, 40])
def test_a_command_in_quotes_stays_on_one_line(width: int) -> None:
    command = "'sudo nvidia-smi -i GPU-51000000-0000-4000-8000-000000000006 --gpu-reset'"
    lines = wrap_words(f"Stop the driver's users, reset the GPU ({command}) or run {command}.", width)
    assert sum(command in line for line in lines) == 2
    assert all(len(line) <= width or command in line for line in lines)


@pytest.mark.parametrize(
    ("told", "columns", "lines"), [((0, 0), 80, 24), ((24, 0), 80, 24), ((0, 40), 40, 24), ((50, 132), 132, 50)]
)
def test_a_terminal_that_does_not_tell_its_size_has_the_usual_one(
    told: tuple[int, int], columns: int, lines: int
) -> None:
    ours, theirs = pty.openpty()
    try:
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", *told, 0, 0))
        assert terminal_size(theirs) == (columns, lines)
    finally:
        os.close(ours)
        os.close(theirs)


def parsers(name: str) -> Iterator[argparse.ArgumentParser]:
    """The parser of a command, and those of all below it."""
    module = import_module(f"gpumon.cli.{name}")
    parser = command_parser(name, module.__doc__)
    module.add_options(parser)
    waiting = [parser]
    while waiting:
        yield (one := waiting.pop())
        for action in one._actions:
            if isinstance(action, argparse._SubParsersAction):
                waiting += action.choices.values()


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize("columns", [80, 120])
def test_help_is_no_wider_than_the_terminal_and_breaks_no_word(
    name: str, columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    for parser in parsers(name):
        shown = parser.format_help()
        too_wide = [line for line in shown.splitlines() if len(line) > columns and " " in line.strip()]
        assert [line for line in too_wide if "gpumon " not in line] == []  # an example is copied as it stands
        assert set((parser.description or "").split()) <= set(shown.split())


class TestLongTexts:
    """What somebody typed is thousands of letters: an error shows its beginning."""

    def test_are_cut(self) -> None:
        assert shortened(f"no such run: {'x' * 5000}. Try another") == f"no such run: {'x' * 60}… Try another"

    def test_are_cut_in_many_words(self) -> None:
        assert len(shortened("a b " * 5000)) < 1200

    def test_a_path_stays_whole(self) -> None:
        text = f"cannot read /{'directory/' * 20}file: it is not there"
        assert shortened(text) == text

    @pytest.mark.parametrize(
        "words",
        [["x" * 5000], ["runs", "--limit", "x" * 5000], ["runs", "x" * 5000], ["runs", "--" + "x" * 5000],
         ["runs", "show", "x" * 5000], ["status", "--interval", "x" * 5000], ["tui", "--source", "x" * 5000],
         ["history", "totals", "--since", "y" * 5000], ["record", "-o", "/dev/null", "--for", "z" * 5000]],
        ids=lambda words: " ".join(words)[:20],
    )  # fmt: skip
    def test_in_an_option_are_not_echoed_whole(self, words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
        assert main(words) in (1, 2)
        assert len(capsys.readouterr().err) < 2500


class TestOutputFile:
    def test_stays_as_it_was_where_there_is_no_room_for_the_new_one(self, tmp_path: Path) -> None:
        path = tmp_path / "report.html"
        path.write_bytes(b"old")
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, limits[1]))
        try:
            with pytest.raises(GpumonError, match="cannot write"):
                write_output(str(path), bytes(1 << 17))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        assert path.read_bytes() == b"old"
        assert os.listdir(tmp_path) == ["report.html"]

    def test_is_replaced_with_its_mode_behind_a_link(self, tmp_path: Path) -> None:
        path, link = tmp_path / "report.html", tmp_path / "link"
        path.write_bytes(b"old")
        path.chmod(0o640)
        link.symlink_to(path)
        write_output(str(link), b"new")
        assert (path.read_bytes(), path.stat().st_mode & 0o777, link.is_symlink()) == (b"new", 0o640, True)

    def test_is_no_file_where_a_device_is_named(self) -> None:
        write_output(os.devnull, b"nothing")
        with pytest.raises(GpumonError, match="No space left"):
            write_output("/dev/full", b"too much")


class TestListOfCommands:
    def test_has_a_gap_behind_each_name(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["--help"]) == 0
        lines = capsys.readouterr().out.splitlines()
        for name, text in COMMANDS.items():
            (line,) = [line for line in lines if line.startswith(f"  {name} ")]
            assert line.removeprefix(f"  {name}").endswith(f"  {text}")


class TestUnknownWords:
    def test_help_names_a_command(self, capsys: pytest.CaptureFixture[str]) -> None:
        for name in COMMANDS:
            assert main(["help", name]) == 0
            by_word = capsys.readouterr()
            assert main([name, "--help"]) == 0
            assert (by_word.out, by_word.err) == (capsys.readouterr().out, "")
            assert by_word.out.startswith(f"usage: gpumon {name}")

    @pytest.mark.parametrize("words", [["help", "tiu"], ["tiu"], ["tiu", "--help"]])
    def test_a_mistyped_command_is_suggested(self, words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
        assert main(words) == 2
        assert "Did you mean 'tui'?" in capsys.readouterr().err

    @pytest.mark.parametrize(
        "name", sorted(COMMANDS.keys() - {"completion", "record", "run", "service", "wait", "notify"})
    )  # these need arguments
    def test_a_mistyped_option_is_suggested(self, name: str, capsys: pytest.CaptureFixture[str]) -> None:
        options = [word for action in next(parsers(name))._actions for word in action.option_strings]
        for option in [word for word in options if len(word) > len("--abc")]:
            assert main([name, f"{option[:-2]}{option[-1]}x"]) == 2
            assert f"Did you mean '{option}'?" in capsys.readouterr().err

    @pytest.mark.parametrize(
        ("words", "kind"),
        [
            (["status", "--interval", "x"], "not a number"), (["tui", "--speed=x"], "not a number"),
            (["runs", "--limit", "1.5"], "not a whole number"), (["web", "--port", "x"], "not a whole number"),
            (["top", "-n", "x"], "not a whole number"),
        ],
    )  # fmt: skip
    def test_a_value_that_is_no_number_is_named(
        self, words: list[str], kind: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert main(words) == 2
        error = capsys.readouterr().err
        assert f"{kind}: '{words[-1].rpartition('=')[2]}'" in error
        assert "invalid" not in error
