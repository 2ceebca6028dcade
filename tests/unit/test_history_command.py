"""`gpumon history`: what is kept, and a window of it for other programs."""

from __future__ import annotations

import argparse
import csv
import io
import os
import shutil
import time
from collections.abc import Callable
from contextlib import closing
from functools import cache
from math import nan
from pathlib import Path

import pytest

from gpumon.cli import main
from gpumon.cli.options import resolve_options
from gpumon.common.clock import SECOND
from gpumon.common.errors import UsageError
from gpumon.common.paths import Places
from gpumon.live import follow
from gpumon.model.origin import Capability, Origin
from gpumon.ring.writer import RingWriter
from gpumon.storage.history.tiers import SHAPES, USUAL_LIMITS
from tests.builders import device, sample, tick
from tests.months import fill

GPU = device().uuid
WRITES = "the daemon records it within a minute of its start; if it does not, see the daemon's log"


def values(subject: str, name: str, at: float) -> tuple[float, float, float]:
    if name not in ("gpu.utilization", "gpu.energy"):
        return nan, nan, nan
    return (0.25, 0.5, 0.75) if name == "gpu.utilization" else (400.0, 400.0, 400.0)


@pytest.fixture(scope="module")
def month_until(tmp_path_factory: pytest.TempPathFactory) -> Callable[[float], Path]:
    """A history by its end, made once: tests of the same five minutes copy it."""

    @cache
    def made(end: float) -> Path:
        path = tmp_path_factory.mktemp("month") / "history.sqlite"
        fill(str(path), [GPU], end, values, shapes=SHAPES[2:])
        return path

    return made


@pytest.fixture
def filled(history_path: Path, month_until: Callable[[float], Path]) -> Path:
    history_path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    shutil.copy2(month_until(time.time() // 300 * 300), history_path)
    return history_path


def test_it_lists_what_is_kept_from_when_and_how_large(filled: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["history"]) == 0
    head, columns, tier = capsys.readouterr().out.splitlines()
    assert head.startswith(str(filled))
    assert head.endswith("1 GPU")
    assert columns.split() == ["CELLS", "FROM", "TO", "SPAN", "SIZE"]
    assert tier.split()[:2] == ["300", "s"]
    assert "32 d" in tier


@pytest.mark.parametrize(
    "words", [[], ["accounts"], ["events"], ["processes"], ["totals"], ["export", "--format", "csv"]]
)
def test_before_any_daemon_each_command_says_in_a_line_what_to_start(
    history_path: Path, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    live = Path(os.environ["GPUMON_DIR"])
    assert main(["history", *words]) == (1 if words else 0)
    (line,) = "".join(capsys.readouterr()).splitlines()
    assert f"{live} does not exist" in line
    live.mkdir(mode=0o700)
    assert main(["history", *words]) == (1 if words else 0)
    (line,) = "".join(capsys.readouterr()).splitlines()
    assert line.endswith(" recorded yet: start 'gpumon daemon'")


@pytest.mark.parametrize("words", [[], ["accounts"], ["events"], ["export", "--format", "csv"]])
def test_in_the_first_seconds_of_a_daemon_nobody_is_told_to_start_one(
    history_path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    (tmp_path / "live").mkdir(mode=0o700)
    with closing(RingWriter.create(str(tmp_path / "live" / "ring"), 1, SECOND)) as ring:
        ring.append(tick()._replace(time_ns=time.time_ns()))
        assert main(["history", *words]) == (1 if words else 0)
    (line,) = "".join(capsys.readouterr()).splitlines()
    assert line.endswith(f" recorded yet: {WRITES}")


def test_a_file_without_any_cell_is_an_empty_export_with_the_reason(
    history_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fill(str(history_path), [], 0.0, values)
    assert main(["history"]) == 0
    assert "no history yet: a running daemon writes it every 5 minutes" in capsys.readouterr().out
    assert main(["history", "export", "--format", "csv"]) == 0
    out, err = capsys.readouterr()
    assert len(out.splitlines()) == 1
    assert err == "gpumon: no history in this window: a running daemon writes it every 5 minutes, and when it stops\n"
    assert main(["history", "accounts"]) == 0
    assert "a running daemon records usage within a minute" in capsys.readouterr().out
    assert main(["history", "events"]) == 0
    assert "a running daemon records events within a minute" in capsys.readouterr().out


def test_a_window_in_python_says_that_nothing_was_ever_sampled(history_path: Path, tmp_path: Path) -> None:
    where = Places(explicit=str(tmp_path), state=str(history_path.parent))
    with closing(follow(where)) as live:
        for problem in (live.window("7d").problem, live.totals("7d").problem):
            assert problem.startswith("no daemon is running")
        fill(str(history_path), [GPU], time.time() // 300 * 300, values, shapes=SHAPES[2:])
        assert live.window("7d").problem == live.totals("7d").problem == ""


def test_beside_a_daemon_that_keeps_none_it_says_to_start_no_other(
    history_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GPUMON_DIR", str(tmp_path))
    ring = RingWriter.create(str(tmp_path / "ring"), 1, SECOND)
    ring.append(tick(1, [sample(0)], origin=Origin("nvml", capabilities=Capability.LIVE)))
    assert main(["history"]) == 0
    assert capsys.readouterr().out == f"no history recorded yet: {WRITES}\n"
    ring.close()


def test_a_window_as_csv_has_a_row_for_each_cell_and_metric(filled: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["history", "export", "--format", "csv", "--last", "2d"]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    busy = [row for row in rows if row["metric"] == "gpu.utilization"]
    assert len(busy) == len(rows) / 2 == pytest.approx(2 * 288, abs=1)
    assert {row["device"] for row in rows} == {GPU}
    assert {(row["low"], row["mean"], row["high"], row["unit"]) for row in busy} == {("0.25", "0.5", "0.75", "ratio")}
    assert {row["unit"] for row in rows} == {"ratio", "joules_per_second"}
    assert {float(row["begun_seconds"]) % 300 for row in rows} == {0.0}


def test_a_window_longer_than_history_has_what_is_kept(filled: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["history", "export", "--format", "csv", "--last", "32d"]) == 0
    month = capsys.readouterr().out
    assert main(["history", "export", "--format", "csv", "--last", "99999999d"]) == 0
    assert set(month.splitlines()) <= set(capsys.readouterr().out.splitlines())


def test_totals_of_gpus_that_are_gone_name_them_in_a_narrow_terminal(
    history_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = [f"{GPU[:-1]}{letter}" for letter in "ab"]
    fill(str(history_path), gone, time.time() // 300 * 300, values, shapes=SHAPES[2:])
    monkeypatch.setattr("gpumon.cli.history.output_width", lambda: 40)
    assert main(["history", "totals", "--since", "7d"]) == 0
    _, heading, *lines = capsys.readouterr().out.splitlines()
    assert heading.startswith("UUID")
    assert len({line.split()[0] for line in lines[:2]}) == 2
    assert all(len(line) <= 40 for line in [heading, *lines[:2]])


def test_a_window_as_parquet_is_the_same_table(filled: Path, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")
    path = tmp_path / "day.parquet"
    assert main(["history", "export", "--format", "parquet", "--last", "1d", "-o", str(path)]) == 0
    table = parquet.read_table(path)
    assert table.num_rows == pytest.approx(2 * 288, abs=2)
    assert set(table["mean"].to_pylist()) == {0.5, 400.0}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--format", "parquet"], "pass -o FILE"),
        (["--format", "csv", "--last", "soon"], "not a duration"),
        (["--format", "csv", "--last=-1h"], "not a duration"),
    ],
)
def test_what_cannot_be_exported_is_one_line(
    filled: Path, capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    assert main(["history", "export", *words]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert said in line


@pytest.mark.parametrize("words", [[], ["totals"]])
def test_a_damaged_file_is_one_line(history_path: Path, capsys: pytest.CaptureFixture[str], words: list[str]) -> None:
    history_path.parent.mkdir(mode=0o700)
    history_path.write_bytes(b"no database at all, but long enough to look like one" * 100)
    assert main(["history", *words]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert f"{history_path} is damaged (file is not a database)" in line


def settings(text: str, tmp_path: Path) -> tuple[float, int, float]:
    (tmp_path / "gpumon").mkdir(exist_ok=True)
    (tmp_path / "gpumon" / "config.toml").write_text(text)
    _, found = resolve_options(argparse.Namespace(), {"XDG_CONFIG_HOME": str(tmp_path)})
    return found.history_days, found.history_size, found.account_days


def test_limits_come_from_the_settings_file(tmp_path: Path) -> None:
    assert settings("", tmp_path) == USUAL_LIMITS
    assert settings('history-days = 7\nhistory-size = "150M"\naccount-days = 90', tmp_path) == (7.0, 150 * 2**20, 90.0)


@pytest.mark.parametrize(
    "text",
    ["history-days = 0", "history-days = 400", "account-days = 0", "account-days = 400", 'history-size = "much"',
     "history-size = 5"],
)  # fmt: skip
def test_a_limit_that_makes_no_sense_is_refused(text: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"config\.toml: invalid"):
        settings(text, tmp_path)
