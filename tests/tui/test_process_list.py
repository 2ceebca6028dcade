"""What the page of processes works out: names of scripts, filters, orders, kinship and sums."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from math import nan
from pathlib import Path

import pytest

from gpumon.analysis.gpu_state import IdleTime
from gpumon.common.config import read_prices
from gpumon.model.frame import RunState
from gpumon.model.process import Process
from gpumon.storage.history.buckets import WindowSpan
from gpumon.storage.processes.blocks import NAMES
from gpumon.storage.processes.query import MeasureUse, ProcessUse, ProcessWindow
from gpumon.storage.processes.reader import StoredProcess
from gpumon.storage.usage.account import Account, DeviceUse
from gpumon.storage.usage.query import HourUse, StoredAccounts, StoredDevice
from gpumon_tui.data.process_history import LeftOutReader, left_out
from gpumon_tui.data.processes import (
    ParentProcess,
    Parents,
    ProcessFacts,
    build_tree,
    count_hidden,
    frame_facts,
    matching,
    parse_terms,
)
from gpumon_tui.data.programs import OwnPrograms, command_line, script_name
from gpumon_tui.data.user_totals import KnownSum, MonthReader, UserTotal, user_totals
from gpumon_tui.render.month_columns import month_columns
from gpumon_tui.render.process_columns import COLUMNS, USER_COLUMNS, elapsed, idle_text, sort_rows
from tests.builders import run
from tests.programs import until
from tests.tui.fakes import START, FakeFeed

GIB = 2.0**30
FEED = FakeFeed(gpus=2, seconds=1)
FACTS = frame_facts(FEED.frames[0].samples, FEED.frames[0].runs, START + 0.0)
BOOT = 1_000


def process(pid: int, **values: object) -> Process:
    one = Process(pid, "GPU-0000", "compute", "python", "alice", started=START - 60.0, memory_used=GIB)
    return one._replace(**values)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("line", "script"),
    [
        ("python train.py --token secret", "train.py"),
        ("/opt/conda/bin/python3.11 -u -X faulthandler /home/a/src/train.py", "train.py"),
        ("python -m pkg.train --lr 1", "pkg.train"),
        ("python -um pkg.train", "pkg.train"),
        ("python -mpkg.train", "pkg.train"),
        ("python -Werror train.py", "train.py"),
        ("python -W error train.py", "train.py"),
        ("python --check-hash-based-pycs always train.py", "train.py"),
        ("python /site/pkg/__main__.py", "pkg"),
        ("pypy3 train.py", "train.py"),
        ("bash run.sh --password=x", "run.sh"),
        ("bash -c secret", ""),
        ("python -c import_secret", ""),
        ("python -", ""),
        ("python", ""),
        ("./server --token secret", ""),
        ("", ""),
    ],
)
def test_a_script_is_named_and_never_an_argument(line: str, script: str) -> None:
    assert script_name([word.encode() for word in line.split(" ")]) == script


def test_a_title_that_a_process_gave_itself_is_no_command_line() -> None:
    assert script_name([b"python train.py --token secret", b""]) == ""
    assert script_name([b"python", b"-m", b"secret text", b""]) == ""
    assert "\x1b" not in script_name([b"python", b"\x1b]0;pwn\x07.py"])


def of_kernel(
    proc: Path, pid: int, *, parent: int = 1, started: int = 500, name: str = "python", line: bytes = b""
) -> None:
    """A process below a /proc of the test."""
    (proc / "stat").write_text(f"cpu 1\nbtime {BOOT}\n")
    home = proc / str(pid)
    home.mkdir()
    fields = ["S", parent, *[0] * 17, started * os.sysconf("SC_CLK_TCK"), 0, 0]
    (home / "stat").write_text(f"{pid} ({name}) {' '.join(map(str, fields))}\n")
    (home / "cmdline").write_bytes(line)


def test_only_own_processes_are_read_and_only_the_one_that_is_meant(tmp_path: Path) -> None:
    of_kernel(tmp_path, 7, line=b"python\0train.py\0")
    mine = process(7, started=BOOT + 500.0)
    assert OwnPrograms(str(tmp_path)).name(mine) == "train.py"
    assert OwnPrograms(str(tmp_path), uid=os.geteuid() + 1).name(mine) == "", "another user's"
    assert OwnPrograms(str(tmp_path)).name(mine._replace(started=BOOT + 900.0)) == "", "its pid was used again"
    assert OwnPrograms(str(tmp_path)).name(mine._replace(started=nan)) == ""
    assert OwnPrograms(str(tmp_path)).name(mine._replace(pid=8)) == ""


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("python train.py --lr 0.1", "python train.py --lr 0.1"),
        ("python a.py --token=abc --api_key abc -v", "python a.py --token=*** --api_key *** -v"),
        ("env HF_TOKEN=abc WANDB_API_KEY=x python a.py", "env HF_TOKEN=*** WANDB_API_KEY=*** python a.py"),
        ("a --tokenizer gpt2 --max-tokens 9", "a --tokenizer gpt2 --max-tokens 9"),
        ("a --password --verbose", "a --password --verbose"),
        ("a s3://me:abc@host/b --tokenizer= x", "a s3://***@host/b --tokenizer= x"),
        ("a \x1b[31m", "a '\\x1b[31m'"),
        ("", ""),
    ],
)
def test_a_command_line_is_shown_without_its_secrets(line: str, shown: str) -> None:
    assert command_line([word.encode() for word in (*line.split(" "), "")]) == shown


def test_only_own_command_lines_are_read(tmp_path: Path) -> None:
    of_kernel(tmp_path, 7, line=b"python\0train.py\0--lr\x001\0")
    mine = process(7, started=BOOT + 500.0)
    assert OwnPrograms(str(tmp_path)).command(mine) == "python train.py --lr 1"
    assert OwnPrograms(str(tmp_path), uid=os.geteuid() + 1).command(mine) == ""
    assert OwnPrograms(str(tmp_path)).command(mine._replace(started=BOOT + 900.0)) == ""


def matched(text: str, processes: Sequence[Process], facts: ProcessFacts = FACTS) -> list[int]:
    return [one.pid for one in matching(processes, parse_terms(text), facts)]


def test_a_filter_takes_words_fields_and_numbers_that_all_hold() -> None:
    run = FEED.frames[0].runs[0]
    processes = [
        process(1, run=run.key, memory_used=10 * GIB, cpu_utilization=8.0),
        process(2, user="bob", name="java", sm_utilization=0.5),
        process(3, uuid="GPU-0001", memory_used=nan, started=START - 7200.0, job="4242"),
    ]
    assert matched("", processes) == [1, 2, 3]
    assert matched("PYTHON", processes) == [1, 3]
    assert matched("user:bo", processes) == [2]
    assert matched("!user:bob gpu:0", processes) == [1]
    assert matched("gpu:1", processes) == [3]
    assert matched(f"run:{run.name[:4]}", processes) == [1]
    assert matched("job:4242", processes) == [3]
    assert matched("pid:2", processes) == [2]
    assert matched("mem>1", processes) == [1], "what is unknown is not more, and a GiB is not more than one"
    assert matched("mem>=1", processes) == [1, 2]
    assert matched("cpu>=800", processes) == [1]
    assert matched("sm<60", processes) == [2]
    assert matched("time>1h", processes) == [3]
    assert matched("time>90m", processes) == [3]
    idle = FACTS._replace(idle={"GPU-0001": IdleTime(0.0, 700.0, at_least=False)})
    assert matched("idle>10m", processes, idle) == [3], "its GPU is allocated and does nothing"
    assert matched("!idle>10m", processes, idle) == [1, 2]
    assert matched("idle<10m", processes, idle) == [], "a GPU that works is not idle for a short time"


def test_idleness_that_may_have_begun_before_it_was_watched_is_told_as_a_least() -> None:
    assert idle_text(IdleTime(0.0, 11400.0, at_least=False)) == "idle 3 h"
    assert idle_text(IdleTime(0.0, 11400.0, at_least=True)) == "idle > 3 h"
    assert idle_text(IdleTime(0.0, 59.0, at_least=True)) == idle_text(None) == ""


@pytest.mark.parametrize("text", ["mem>", "user:", "!", "!gpu:", "mem"[:0]])
def test_what_is_not_finished_hides_nothing_yet(text: str) -> None:
    assert matched(text, [process(1)]) == [1]


def test_what_no_field_knows_is_looked_for_as_a_word() -> None:
    assert matched("ns:train", [process(1, name="ns:train.py"), process(2)]) == [1]
    assert matched("[(*", [process(1)]) == []


def test_each_term_says_how_many_it_hides() -> None:
    processes = [process(1), process(2, user="bob")]
    assert count_hidden(processes, parse_terms("user:bob mem>5 python"), FACTS) == [("user:bob", 1), ("mem>5", 2)]


@pytest.mark.parametrize("column", [column for column in COLUMNS if column.order], ids=lambda column: column.name)
def test_every_column_sorts_and_what_is_unknown_stands_last(column: object) -> None:
    by = next(one for one in COLUMNS if one is column)
    unknown = process(9, user="", name="", started=nan, memory_used=nan)
    known = [*FEED.processes(0), process(1, sm_utilization=0.1, encoder_utilization=0.1, job="7")]
    for falls in (True, False):
        rows = sort_rows([unknown, *known], by, falls, FACTS, lambda one: one.pid)
        assert sorted(one.pid for one in rows) == sorted(one.pid for one in [unknown, *known])
        if by.name not in ("pid", "gpu"):
            values = [by.order(one, FACTS) if by.order else 0 for one in rows]
            are_known = [value == value and value != "" for value in values]
            assert are_known == sorted(are_known, reverse=True)


def test_equals_keep_their_places_whichever_way_rows_stand() -> None:
    memory = next(column for column in COLUMNS if column.name == "mem")
    for falls in (True, False):
        assert [one.pid for one in sort_rows([process(2), process(1)], memory, falls, FACTS, lambda one: one.pid)] == [
            1,
            2,
        ]


def chains(**parents: Sequence[int]) -> Mapping[int, Sequence[ParentProcess]]:
    return {int(pid[1:]): [ParentProcess(one, f"name{one}") for one in above] for pid, above in parents.items()}


def drawn(processes: Sequence[Process], above: Mapping[int, Sequence[ParentProcess]]) -> list[tuple[int, int]]:
    rows = build_tree(processes, lambda one: above.get(one.pid, ()))
    return [(row.depth, row.process.pid if row.process else -row.parent.pid if row.parent else 0) for row in rows]


def test_a_child_stands_below_its_parent_and_siblings_below_one_that_is_on_no_gpu() -> None:
    processes = [process(pid) for pid in (5, 4, 3, 2)]
    above = chains(_4=[2, 90], _5=[70, 90], _3=[70, 90], _2=[])

    assert drawn(processes, above) == [(0, -70), (1, 5), (1, 3), (0, 2), (1, 4)]


def test_a_process_on_two_gpus_has_its_children_once() -> None:
    processes = [process(2), process(2, uuid="GPU-0001"), process(4)]
    assert drawn(processes, chains(_4=[2])) == [(0, 2), (0, 2), (1, 4)]


def test_a_far_or_lonely_parent_groups_nobody() -> None:
    assert drawn([process(2), process(3)], chains(_2=[70, 71, 90], _3=[72, 73, 90])) == [(0, 2), (0, 3)]


def test_parents_are_those_of_the_process_that_is_meant(tmp_path: Path) -> None:
    of_kernel(tmp_path, 50, parent=1, name="torch run)")
    of_kernel(tmp_path, 60, parent=50)
    parents = Parents(str(tmp_path))
    assert parents.above(process(60, started=BOOT + 500.0)) == (ParentProcess(50, "torch run)"),)
    assert parents.above(process(60, started=BOOT + 5000.0)) == ()
    assert parents.above(process(61, started=BOOT + 500.0)) == ()


def test_a_process_on_two_gpus_has_one_cpu_time_and_one_host_memory() -> None:
    values = {"cpu_utilization": 2.0, "host_memory": 3 * GIB, "sm_utilization": 0.5}
    (total,) = user_totals([process(2, **values), process(2, uuid="GPU-0001", **values)])
    assert (total.processes, len(total.gpus)) == (1, 2)
    assert (total.memory, total.sm) == (KnownSum(2 * GIB), KnownSum(1.0))
    assert (total.cpu, total.host_memory) == (KnownSum(2.0), KnownSum(3 * GIB))


def test_a_sum_of_which_a_part_is_unknown_says_so() -> None:
    (total,) = user_totals([process(2), process(3, memory_used=nan)])
    assert total.memory == KnownSum(GIB, is_whole=False)


def test_users_stand_by_their_memory_and_an_unknown_one_last() -> None:
    totals = user_totals(
        [process(1, user="a", memory_used=nan), process(2, user="b"), process(3, user="c", memory_used=9e9)]
    )
    assert [total.user for total in totals] == ["c", "b", "a"]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (nan, "–"),
        (-1, "–"),
        (9.9, "<10 s"),
        (42, "40 s"),
        (725, "12 m"),
        (3725, "1 h 02 m"),
        (43500, "12 h"),
        (86400 * 5, "5 d 00 h"),
        (86400 * 145, "145 d"),
    ],
)
def test_a_time_fits_its_column(seconds: float, text: str) -> None:
    assert elapsed(seconds) == text


def window(*uses: tuple[int, float]) -> ProcessWindow:
    measures = {name: MeasureUse(10.0, 5.0, 6.0) for name in NAMES}
    one = StoredProcess(1, "GPU-0000", 1, 1.0, "compute", 1.0, 0.0, "python", "alice", "", "", "")
    found = [ProcessUse(one._replace(number=pid, pid=pid, last=last), 9.0, measures) for pid, last in uses]
    return ProcessWindow(WindowSpan(0.0, 1.0), found)


def test_what_no_frame_has_room_for_comes_from_history_as_it_was_written_last() -> None:
    asked: list[tuple[float, float]] = []

    def read(path: str, span: WindowSpan) -> ProcessWindow:
        asked.append((span.begin, span.end))
        return window((1, 950.0), (2, 950.0), (3, 940.0), (4, 900.0))

    reader = LeftOutReader(lambda: None, read)
    assert reader.processes("", 1000.0, ()).processes == ()
    assert reader.processes("file", 1000.0, ()).processes == (), "it is being read"
    until(lambda: reader.asked.is_idle)
    found = reader.processes("file", 1000.0, [process(2)])
    assert [one.pid for one in found.processes] == [1, 3], "4 was gone by then, and 2 is in the frame"
    assert (found.until, found.processes[0].memory_used, found.processes[0].user) == (950.0, 5.0, "alice")
    assert asked == [(820.0, 1000.0), (935.0, 951.0)]
    assert reader.processes("file", 1200.0, ()).processes == (), "too old to say anything about now"


def test_history_that_says_nothing_of_now_gives_nothing() -> None:
    assert left_out("file", 1000.0, lambda path, span: window()).processes == ()


def test_the_month_of_each_user_has_its_cost_only_where_there_are_prices() -> None:
    hour, now = 3600.0, 1_800_000_000.0
    asked: list[tuple[float, float]] = []

    def read(path: str, begin: float, end: float) -> StoredAccounts:
        asked.append((begin, end))
        account = Account("ada", hour, hour, hour, 0.0, hour, 3.6e6)
        use = DeviceUse(observed=hour, held=hour)
        hours = [HourUse(now - 2 * hour, "GPU-0", use, [account]), HourUse(now - hour, "GPU-0", use, [account])]
        return StoredAccounts(hours, [StoredDevice("GPU-0", 0, "NVIDIA H100")])

    prices = read_prices({"currency": "EUR", "gpu-hour": 2.0, "kwh": 0.5})
    reader = MonthReader(lambda: None, read)
    assert reader.by_user("", now, prices) == reader.by_user("file", now, prices) == {}
    until(lambda: reader.asked.is_idle)
    months = reader.by_user("file", now, prices)
    begin = time.localtime(asked[0][0])
    assert (begin.tm_mday, begin.tm_hour, asked[0][1]) == (1, 0, now)
    totals = user_totals([process(2, user="ada", memory_used=9e9), process(3, user="bob")])
    ada, bob = (one._replace(month=months.get(one.user)) for one in totals)
    facts = frame_facts((), (), now)

    def shown(total: UserTotal) -> list[str]:
        return [one.cell(total, facts).text for one in month_columns(prices) if one not in USER_COLUMNS]

    assert [one.title for one in month_columns(prices) if one not in USER_COLUMNS] == [
        "this month", "cost", "idle cost", "power cost",
    ]  # fmt: skip
    assert shown(ada) == ["2.0 h", "4.00 EUR", "0.00 EUR", "1.00 EUR"]
    assert shown(bob) == ["–"] * 4, "nobody kept anything of him"


@pytest.mark.parametrize("state", RunState)
def test_a_process_is_of_its_run_while_that_goes_on(state: RunState) -> None:
    of = frame_facts([], [run("sim-0-0-0", state=state)], 10.0)
    assert (of.run(process(1, run="sim-0-0-0")) is not None) is (state is RunState.RUNNING)
