"""Ranks that count their rows differently, and what the ledger then reads as one epoch of the run."""

from __future__ import annotations

import json
import math
import random
from collections import defaultdict
from collections.abc import Sequence
from contextlib import closing
from itertools import pairwise
from pathlib import Path

import pytest

from gpumon.common.clock import SECOND
from gpumon.diagnosis.past_findings import FINE, verdict
from gpumon.model.frame import Boundary, Mark, RunState
from gpumon.storage.ledger import aggregate
from gpumon.storage.ledger.epoch_join import Row, join_epochs
from gpumon.storage.ledger.reader import Ledger
from gpumon.storage.ledger.recorder import LedgerRecorder
from gpumon.storage.ledger.records import Record
from gpumon.storage.ledger.row_keys import WHOLE_EPOCH, WHOLE_RUN
from gpumon.storage.ledger.writer import LedgerWriter
from tests.builders import TIME, run, tick
from tests.programs import PATIENCE
from tests.runs import BEGAN, Book, measured

RUN = "net-1"


def rows_of(*epochs: tuple[int, float, float]) -> list[Row]:
    """Rows of one rank: number, begin and end in seconds."""
    return [Row(number, round(begun * SECOND), round(ended * SECOND)) for number, begun, ended in epochs]


def numbered(numbers: Sequence[int], begun: float = 0.0, seconds: float = 1.0) -> list[Row]:
    """Rows of one rank, one behind the other."""
    times = [begun + seconds * index for index in range(len(numbers))]
    return rows_of(*((number, time, time + seconds) for number, time in zip(numbers, times, strict=True)))


class TestJoinedEpochs:
    def test_are_counted_as_by_each_rank_where_all_agree(self) -> None:
        fits = [0, 1, 2, 0, 1, 2]
        assert join_epochs([numbered(fits), numbered(fits, 0.1)]) == [[*range(6)]] * 2

    def test_have_one_number_where_ranks_were_first_seen_in_different_epochs(self) -> None:
        assert join_epochs([numbered(range(3, 6), 3.0), numbered(range(5), 0.1)]) == [[3, 4, 5], [0, 1, 2, 3, 4]]

    def test_have_one_number_where_a_rank_lost_boundaries_in_the_middle(self) -> None:
        whole = numbered(range(6))
        assert join_epochs([whole, [*whole[:2], *whole[4:]]]) == [[*range(6)], [0, 1, 4, 5]]

    def test_have_one_number_where_ranks_that_drift_merge_different_ones(self) -> None:
        first = rows_of((0, 0.0, 0.3), (3, 0.3, 0.5), (5, 0.5, 0.6), (6, 0.6, 0.7))
        second = rows_of((0, 2.0, 2.1), (1, 2.1, 2.5), (5, 2.5, 2.7))
        assert join_epochs([first, second]) == [[0, 2, 3, 4], [0, 1, 3]]

    @pytest.mark.parametrize("seconds", [1.0, 50.0])
    def test_of_a_count_that_starts_over_are_those_at_the_same_time(self, seconds: float) -> None:
        fits = numbered([0, 1, 2, 0, 1, 2, 0, 1, 2], seconds=seconds)
        later = [row._replace(begun=row.begun + SECOND // 2, ended=row.ended + SECOND // 2) for row in fits]
        assert join_epochs([fits, later[3:]]) == [[*range(9)], [*range(3, 9)]]
        assert join_epochs([fits, [*later[:2], *later[5:]]]) == [[*range(9)], [0, 1, 5, 6, 7, 8]]

    @pytest.mark.parametrize(
        "numbers", [[0, 1] * 3, [0, 1, 2] * 3, [0] * 6, [*range(4), *range(2), *range(5)]], ids=str
    )
    @pytest.mark.parametrize(
        ("offset", "seconds"), [(0.2, 1.0), (1.3, 1.0), (3.2, 1.0), (0.0, 1.2), (0.0, 2.0), (9, 3.0)]
    )
    def test_of_ranks_of_different_speed_are_the_nth_of_each_if_no_boundary_was_lost(
        self, numbers: list[int], offset: float, seconds: float
    ) -> None:
        ranks = [numbered(numbers), numbered(numbers, offset, seconds), numbered(numbers, offset / 2)]
        assert join_epochs(ranks, has_lost=False) == [[*range(len(numbers))]] * 3
        for behind in range(1, len(numbers)):  # the slower one has not ended yet
            joined = join_epochs([ranks[0], ranks[1][:behind]], has_lost=False)
            assert joined == [[*range(len(numbers))], [*range(behind)]]

    def test_of_one_number_that_is_repeated_are_those_at_the_same_time(self) -> None:
        fits = numbered([0] * 5)
        assert join_epochs([[*fits[:1], *fits[2:]], fits[1:]]) == [[0, 2, 3, 4], [1, 2, 3, 4]]

    def test_of_one_number_are_two_where_each_rank_lost_the_start_that_the_other_saw(self) -> None:
        first = [*numbered(range(4)), *numbered(range(4, 8), 20.0)]  # the second fit was taken for the first
        second = [*numbered(range(4)), *numbered(range(8), 16.0)]
        joined = join_epochs([first, second])
        assert joined[0][4:] == joined[1][8:]


Truth = dict[tuple[int, int], int]
"""The index of each epoch in the training, by rank and begin."""


def random_ranks(dice: random.Random, *, lockstep: bool) -> tuple[list[list[Row]], Truth]:
    """Rows of ranks of one training with several fits, of which each rank lacks others; and which epochs they are.

    `lockstep`: the ranks wait for each other at the end of each epoch, as they do in a distributed training.
    """
    numbers = [number for _ in range(dice.randrange(1, 4)) for number in range(dice.randrange(5, 15))]
    ranks, truth = list[list[Row]](), Truth()
    times = [0.0] * dice.randrange(2, 5)
    whole: list[list[Row]] = [[] for _ in times]
    for number in numbers:
        for rank, time in enumerate(times):
            begun = time + 0.05 * dice.random()
            times[rank] = begun + 1 + dice.random()
            whole[rank] += rows_of((number, begun, times[rank]))
        if lockstep:
            times = [max(times)] * len(times)
    for rank, rows in enumerate(whole):
        truth |= {(rank, row.begun): index for index, row in enumerate(rows)}
        lost = set[int]()
        for _ in range(dice.randrange(3)):
            first = dice.randrange(len(rows))
            lost.update(range(first, first + dice.randrange(1, 4)))
        ranks.append([row for index, row in enumerate(rows) if index not in lost])
    return ranks, truth


@pytest.mark.parametrize("seeds", [range(first, first + 15) for first in range(0, 60, 15)], ids=str)
@pytest.mark.parametrize("lockstep", [True, False])
def test_no_joined_epoch_has_two_numbers_and_each_rank_is_in_order(seeds: range, lockstep: bool) -> None:
    for seed in seeds:
        check_random_ranks(seed, lockstep=lockstep)


def check_random_ranks(seed: int, *, lockstep: bool) -> None:
    ranks, truth = random_ranks(random.Random(seed), lockstep=lockstep)
    joined = join_epochs(ranks)
    numbers, epochs, places = defaultdict(set), defaultdict(set), defaultdict(set)
    for rank, (rows, ordinals) in enumerate(zip(ranks, joined, strict=True)):
        assert all(one < next for one, next in pairwise(ordinals))
        for row, ordinal in zip(rows, ordinals, strict=True):
            numbers[ordinal].add(row.number)
            epochs[ordinal].add(truth[rank, row.begun])
            places[truth[rank, row.begun]].add(ordinal)
    assert {*numbers} == {*range(len(numbers))}
    assert all(len(each) == 1 for each in numbers.values())
    if lockstep:
        assert all(len(each) == 1 for each in (*epochs.values(), *places.values()))


def merged(book: Book, key: str, uuid: str, epochs: int, dice: random.Random) -> None:
    """Epochs of 0.01 s and 5 J of one rank, some of which are merged into the one before, as a board does it."""
    own, number = 0, 0
    while number < epochs:
        count = min(epochs - number, dice.choice((1, 1, 2, 5)))
        begun = round((BEGAN + number / 100) * SECOND)
        ended = begun + round(count / 100 * SECOND)
        book.epoch(key, own, epoch=number, begun=begun, ended=ended, seconds=count / 100, steps=10 * count)
        book.usage(key, own, uuid, **measured(count / 100, energy=5.0 * count))
        own, number = own + 1, number + count
    book.db.execute("UPDATE rank SET steps = ?, folded_epochs = ? WHERE key = ?", (10 * epochs, epochs - own, key))
    book.usage(key, WHOLE_RUN, uuid, **measured(epochs / 100, energy=5.0 * epochs))


def energy(record: Record, ordinal: int | None = None) -> float:
    rows = [row for row in record.whole_epochs if row.ordinal == ordinal or (ordinal is None and row.ordinal >= 0)]
    return sum(row.value("energy") for row in rows)


@pytest.fixture
def book(tmp_path: Path) -> Book:
    return Book(tmp_path)


class TestMergedEpochs:
    """Ranks that merge different epochs."""

    @pytest.fixture(autouse=True)
    def fill(self, book: Book) -> None:
        book.run(RUN, world_size=2, epochs=200, state=RunState.FINISHED, ended=(BEGAN + 2) * SECOND)
        for rank in range(2):
            key = book.rank(RUN, rank, state=RunState.FINISHED, ended=(BEGAN + 2) * SECOND)
            merged(book, key, book.device(key, rank), 200, random.Random(rank))

    def test_have_one_number_each_and_lose_no_energy(self, book: Book) -> None:
        with Ledger(str(book.path)) as ledger:
            record = ledger.record(RUN)
        numbers = defaultdict(set)
        for row in record.epochs:
            numbers[row.ordinal].add(row.epoch)
        assert all(len(each) == 1 for each in numbers.values())
        assert [next(iter(numbers[ordinal])) for ordinal in sorted(numbers)] == sorted(set().union(*numbers.values()))
        assert energy(record) == pytest.approx(2 * 200 * 5.0)
        summaries = aggregate.epoch_summaries(record)
        least = [summary.value("energy_least") for summary in summaries if summary.lacks_ranks]
        known = [summary.value("energy") for summary in summaries if not summary.lacks_ranks]
        assert len(least) > 20
        assert len(known) > 20
        assert sum([*least, *known]) == pytest.approx(2 * 200 * 5.0)

    def test_do_not_count_twice(self, book: Book) -> None:
        with Ledger(str(book.path)) as ledger:
            record = ledger.record(RUN)
            (listed,) = ledger.runs()
        summaries = aggregate.epoch_summaries(record)
        assert (listed.done, record.done) == (200, 200)
        assert aggregate.run_total(record, summaries).steps == 2000

    def test_are_read_in_pages(self, book: Book) -> None:
        with Ledger(str(book.path)) as ledger:
            whole, count = ledger.record(RUN), ledger.epoch_count(RUN)
            pages = [ledger.record(RUN, ordinals=range(first, first + 10)) for first in range(0, count, 10)]
            chosen = ledger.record(RUN, ordinals=[3, 50])
        assert sorted(row for page in pages for row in page.epochs) == sorted(whole.epochs)
        each = aggregate.epoch_summaries(whole)
        assert str([epoch for page in pages for epoch in aggregate.epoch_summaries(page)]) == str(each)
        assert str(aggregate.epoch_summaries(chosen)) == str([each[3], each[50]])


def shifted(book: Book, **rank: object) -> list[str]:
    """A run of ten epochs and two ranks; the second rank lost epochs 0, 1 and 5."""
    book.run(RUN, world_size=2, epochs=10)
    keys = [book.rank(RUN, number, **rank) for number in range(2)]
    for number, key in enumerate(keys):
        uuid = book.device(key, number)
        book.usage(key, WHOLE_RUN, uuid, **measured(100.0))
        for ordinal in range(10):
            book.epoch(key, ordinal)
            book.phase(key, ordinal, "validate", float(ordinal), spans="[[0, 1]]")
            for phase in (WHOLE_EPOCH, "validate"):
                book.usage(key, ordinal, uuid, phase, **measured(energy=100.0 + ordinal))
    book.lose(keys[1], (0, 1, 5))
    return keys


class TestLostEpochs:
    def test_leave_the_others_with_those_of_the_same_number(self, book: Book) -> None:
        keys = shifted(book)
        with Ledger(str(book.path)) as ledger:
            record = ledger.record(RUN)
        assert [(row.ordinal, row.epoch) for row in record.epochs if row.rank == keys[1]] == [
            (number, number) for number in (2, 3, 4, 6, 7, 8, 9)
        ]
        assert all(energy(record, number) == 2 * (100.0 + number) for number in (2, 3, 4, 6, 7, 8, 9))
        phases = aggregate.phase_summaries(record)
        assert [phases[number][0].seconds for number in range(1, 10)] == [*range(1, 10)]

    def test_leave_lower_bounds_where_a_rank_is_missing(self, book: Book) -> None:
        shifted(book)
        with Ledger(str(book.path)) as ledger:
            record = ledger.record(RUN)
            page = ledger.record(RUN, ordinals=range(2))
        summaries, phases = aggregate.epoch_summaries(record), aggregate.phase_summaries(record)
        assert [summary.epoch for summary in summaries if summary.lacks_ranks] == [0, 1, 5]
        for part in (summaries[5], phases[5][0]):
            assert math.isnan(part.value("energy"))
            assert math.isnan(part.value("utilization_mean"))
            assert part.value("energy_least") == 105.0
        judged = [verdict(summary, running=True) for summary in summaries]
        assert [number for number, one in enumerate(judged) if one is None or one.kind != FINE] == [0, 1, 5]
        assert [summary.lacks_ranks for summary in aggregate.epoch_summaries(page)] == [True, True]

    def test_are_none_of_a_rank_that_ran_at_another_time(self, book: Book) -> None:
        keys = shifted(book)
        book.db.execute("UPDATE rank SET started = ? WHERE key = ?", ((BEGAN + 20) * SECOND, keys[1]))
        with Ledger(str(book.path)) as ledger:
            summaries = aggregate.epoch_summaries(ledger.record(RUN))
        assert [summary.epoch for summary in summaries if summary.lacks_ranks] == [5]

    def test_move_no_other_run(self, book: Book) -> None:
        shifted(book)
        book.run("other")
        key = book.rank("other")
        for ordinal in range(3):
            book.epoch(key, ordinal, epoch=5 + ordinal)
        with Ledger(str(book.path)) as ledger, ledger.snapshot():
            assert ledger.epoch_count(RUN) == 10
            assert [row.ordinal for row in ledger.record("other").epochs] == [0, 1, 2]
            assert {listed.run.id: listed.done for listed in ledger.runs()} == {RUN: 10, "other": 8}
            assert len(ledger.record(RUN).epochs) == 17

    def test_are_settled_in_the_order_of_the_run(self, book: Book) -> None:
        keys = shifted(book)
        for key, begun in zip(keys, (10, 5), strict=True):
            state = {"course": {"next": begun, "epochs": [{"epoch": [begun - 1]}]}}
            book.add("progress", rank=key, state=json.dumps(state))
        with Ledger(str(book.path)) as ledger:
            settled = ledger.settled_epochs(RUN)
        assert [number for number in range(10) if settled.has(number)] == [0, 1, 2, 3, 4, 5, 6], "8, 9 may still come"

    def test_are_counted_on_where_a_process_follows_another_of_its_rank(self, book: Book) -> None:
        book.run(RUN)
        died = book.rank(RUN, key="first", ended=(BEGAN + 25) * SECOND)
        again = book.rank(RUN, key="again", started=(BEGAN + 30) * SECOND)
        for ordinal in range(3):
            book.epoch(died, ordinal, **({"ended": None} if ordinal == 2 else {}))
            begun = (BEGAN + 40 + 10 * ordinal) * SECOND
            book.epoch(again, ordinal, epoch=2 + ordinal, begun=begun, ended=begun + 10 * SECOND)
        with Ledger(str(book.path)) as ledger:
            epochs = ledger.record(RUN).epochs
        assert [(row.rank, row.ordinal, row.epoch) for row in sorted(epochs, key=lambda row: row.ordinal)] == [
            (died, 0, 0), (died, 1, 1), (died, 2, 2), (again, 3, 2), (again, 4, 3), (again, 5, 4)
        ]  # fmt: skip

    def test_leave_times_of_epochs_in_the_order_of_the_run(self, book: Book) -> None:
        shifted(book)
        with Ledger(str(book.path)) as ledger:
            assert ledger.ordinals(RUN, BEGAN + 41, BEGAN + 69) == (4, 7)
            times = ledger.epoch_times(RUN)
        assert [time.seconds for time in times] == [10.0] * 10


class Rank:
    """Boundaries of one rank whose epochs of 2 s follow each other."""

    def __init__(self, number: int) -> None:
        self.run = run(key=f"tag.1000.{4711 + number}.abcd", id=RUN, rank=number, world_size=2, pid=4711 + number)
        self.boundaries = [self._mark(1, Mark.RUN_BEGIN, 1.0, -1, "")]
        for epoch in range(8):
            self.boundaries += [
                self._mark(2 * epoch + 2, Mark.EPOCH_BEGIN, 2.0 * epoch + 2, epoch, "train"),
                self._mark(2 * epoch + 3, Mark.EPOCH_END, 2.0 * epoch + 4, epoch, ""),
            ]
        self.boundaries.append(self._mark(18, Mark.RUN_END, 19.0, -1, ""))

    def _mark(self, number: int, mark: Mark, at: float, epoch: int, phase: str) -> Boundary:
        moment = round(at * SECOND)
        return Boundary(self.run.key, number, mark, epoch, 0, phase, moment, TIME + moment)


def test_ranks_that_lost_different_boundaries_are_recorded_under_the_same_epochs(tmp_path: Path) -> None:
    ranks = [Rank(0), Rank(1)]
    lost = {ranks[0].run.key: range(2, 6), ranks[1].run.key: range(10, 14)}  # epochs 0 and 1, 4 and 5
    path = tmp_path / "ledger.sqlite"
    writer = LedgerWriter(str(path), path.parent.stat().st_uid, pytest.fail).start()
    assert writer.wait_until_open(PATIENCE)
    with closing(LedgerRecorder(writer, keep=True)) as recorder:
        for second in range(24):
            due = [
                boundary
                for rank in ranks
                for boundary in rank.boundaries
                if second - 1 < boundary.monotonic_ns / SECOND <= second and boundary.number not in lost[boundary.run]
            ]
            moment = second * SECOND
            runs = [rank.run for rank in ranks]
            recorder.add(tick(0, [], runs=runs, boundaries=due, monotonic_ns=moment, time_ns=TIME + moment))
    with Ledger(str(path)) as ledger:
        summaries = aggregate.epoch_summaries(ledger.record(RUN))
    assert [(summary.ordinal, summary.epoch, summary.ranks) for summary in summaries] == [
        (number, number, 1 if number in (0, 1, 4, 5) else 2) for number in range(8)
    ]
    assert all(summary.ended - summary.begun == pytest.approx(2.0) for summary in summaries)
