"""Whose color the lines of a GPU have: that of who is known to have held it then, and of nobody else."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from random import Random

import pytest

from gpumon.analysis.run_epochs import Epochs
from gpumon.common.clock import SECOND
from gpumon.common.privacy import HIDDEN, People, use_policy
from gpumon.daemon.followers import ActivityRecorder
from gpumon.model.process import Process
from gpumon.storage.history.schema import HISTORY_FILE
from gpumon.storage.processes.recorder import ProcessRecorder
from gpumon.storage.sqlite.write import open_to_write
from gpumon_web.charts.gpu_chart import Held, flat, held_by
from tests.builders import device, process, sample, tick

HOUR = 3600
BEGIN = 1_790_035_200
"""A border of an hour, s since 1970."""
EpochSpan = tuple[int, int, Sequence[Process]]
"""From and to (s after `BEGIN`), and who is on the GPU."""


def kept(path: Path, *stretches: EpochSpan, every: int = 1) -> str:
    """The file that a daemon keeps of them; gives its path."""
    parts = (ActivityRecorder(lambda: 0), ProcessRecorder())
    with closing(open_to_write(str(path), HISTORY_FILE, shared=False, uid=os.getuid(), log=pytest.fail)) as connection:
        for part in parts:
            part.on_open(connection)
        for begin, end, there in stretches:
            for second in range(begin, end, every):
                seen = tick(
                    1, [sample(0, utilization=0.5, memory_used=4e9, memory_total=8e10)], processes=there,
                    time_ns=(BEGIN + second) * SECOND, monotonic_ns=(10_000 + second) * SECOND,
                    interval_ns=every * SECOND,
                )  # fmt: skip
                for part in parts:
                    part.add(seen)
                if second % 60 == 0:
                    for part in parts:
                        part.write(connection)
        for part in parts:
            part.finish()
            part.write(connection)
    return str(path)


def held(path: str, begin: float, end: float, processes: Sequence[Process] = ()) -> list[tuple[int, int, str]]:
    found = held_by(BEGIN + begin, BEGIN + end, path, device().uuid, Epochs(), [], processes)
    return [(round(since - BEGIN), round(until - BEGIN), user) for since, until, user in found]


def one(begin: int, **fields: object) -> Process:
    return process(**{"started": BEGIN + begin, "memory_used": 4e9, **fields})


def test_of_an_hour_with_a_short_known_holder_only_their_time_has_a_color(tmp_path: Path) -> None:
    """It was free before, and afterwards the driver named nobody."""
    path = kept(tmp_path / "history.sqlite", (0, 600, []), (600, 660, [one(600)]), (660, 1200, []))
    assert held(path, 0, 1200) == [(600, pytest.approx(660, abs=5), "alice")]
    assert held(path, 660 + 10, 1200) == []
    assert held("", 0, 1200) == []


def test_a_process_whose_user_is_unknown_gives_no_color(tmp_path: Path) -> None:
    assert held(kept(tmp_path / "history.sqlite", (0, 300, [one(0, user="")])), 0, 300) == []


def test_an_hour_that_one_user_held_from_end_to_end_has_their_color_though_its_processes_are_forgotten(
    tmp_path: Path,
) -> None:
    path = kept(tmp_path / "history.sqlite", (0, 2 * HOUR + 1200, [one(0)]), every=10)
    with closing(open_to_write(path, HISTORY_FILE, shared=False, uid=os.getuid(), log=pytest.fail)) as connection:
        connection.execute("DELETE FROM process")
        connection.execute("DELETE FROM process_block")
    assert held(path, 0, 3 * HOUR) == [(0, 2 * HOUR, "alice")]


def test_a_process_that_is_there_now_held_the_gpu_since_it_came_and_not_since_it_began(tmp_path: Path) -> None:
    mine = one(-500)
    path = kept(tmp_path / "history.sqlite", (0, 600, []), (600, 900, [mine]))
    assert held(path, 0, 920, [mine]) == [(600, 920, "alice")]


def test_names_of_holders_are_hidden_where_the_policy_hides_them(tmp_path: Path) -> None:
    path = kept(tmp_path / "history.sqlite", (0, 300, [one(0)]))
    with use_policy(People(HIDDEN)):
        assert "alice" not in {user for *_, user in held(path, 0, 300)}


def test_spans_of_one_user_that_no_screen_shows_apart_are_one() -> None:
    spans = [(float(at), at + 0.5, "a") for at in range(1000)]
    assert flat(spans, 0, 1000, 0.5) == [(0, 999.5, "a")]
    assert len(flat(spans, 0, 1000)) == 1000


def test_the_later_of_many_spans_stands_wherever_they_overlap() -> None:
    random = Random(1)
    for _ in range(200):
        spans: list[Held] = []
        for _ in range(random.randrange(8)):
            since = random.randrange(20)
            spans.append((since, since + random.randrange(1, 8), random.choice("abc")))
        found = flat(spans, 2, 18)
        assert all(first[1] <= second[0] for first, second in pairwise(found))
        for at in range(2, 18):
            expected = next((user for since, until, user in reversed(spans) if since <= at < until), None)
            assert next((user for since, until, user in found if since <= at < until), None) == expected
