"""A run of thousands of epochs, summed up by SQL: the same numbers as its rows give."""

from __future__ import annotations

from dataclasses import astuple
from pathlib import Path
from random import Random

import pytest

from gpumon.analysis.thresholds import INPUT_BOUND
from gpumon.common.numbers import is_known
from gpumon.diagnosis.past_findings import verdict
from gpumon.model.frame import RunState
from gpumon.storage.ledger import aggregate
from gpumon.storage.ledger.long_run import LongRun
from gpumon.storage.ledger.reader import Ledger
from gpumon.storage.ledger.records import Record
from gpumon.storage.ledger.summary import EpochSummary
from tests.runs import BEGAN, Book, measured

SECOND = 10**9
EPOCHS = 60


def irregular(book: Book, ranks: int, seed: int) -> None:
    """A run of which some epochs lack this or that, broke off, wait, throttle, or logged what is no number."""
    random = Random(seed)
    book.run("net-1", world_size=ranks, epochs=EPOCHS, state=RunState.RUNNING)
    for rank in range(ranks):
        key = book.rank("net-1", rank)
        uuid = book.device(key, rank)
        book.usage(key, -1, uuid, **measured(600.0))
        for at in range(EPOCHS):
            late = random.random() if ranks > 1 else 0.0
            begun = BEGAN + 10 * at + late
            seconds = 10.0 + random.random() - late
            ended = None if at == EPOCHS - 1 or random.random() < 0.05 else round((begun + seconds) * SECOND)
            book.epoch(
                key, at, epoch=at + 5, begun=round(begun * SECOND), ended=ended,
                seconds=random.choice((seconds, seconds, None if ended and ranks == 1 else seconds)),
                steps=random.choice((0, 100)), trained=random.choice((None, 8.0)),
                wait=random.choice((None, 0.0, 0.5, 4.0)), wait_of=random.choice((None, 9.0)),
                metrics=random.choice(('{"loss": 0.5}', '{"loss": 0.5}', '{"loss": "NaN"}', "{}")),
            )  # fmt: skip
            more = {"throttled_share": random.choice((0.0, 0.2)), "idle_share": random.choice((0.1, 0.1, 0.6, None)),
                    "energy": random.choice((5000.0, 5000.0, None))}  # fmt: skip
            book.usage(key, at, uuid, **measured(seconds, **more))  # type: ignore[arg-type]
            if at % 3 == 0:
                book.phase(key, at, "validate", 2.0, spans="[[1.0, 0.5], [4.0, 1.5]]")


@pytest.fixture(
    params=[(1, 1, 0), (1, 2, 0), (3, 3, 0), (3, 4, 9)],
    ids=["one rank", "another", "three ranks", "three ranks that lost epochs"],
)
def read(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[LongRun, Record, list[EpochSummary]]:
    ranks, seed, lost = request.param
    with Book(tmp_path) as book:
        irregular(book, ranks, seed)
        for key in [key for (key,) in book.db.execute("SELECT key FROM rank")] if lost else ():
            book.lose(key, Random(key).sample(range(6, EPOCHS + 4), lost))
    with Ledger(str(book.path)) as ledger:
        found, record = ledger.long_run("net-1", EPOCHS - 1, 4), ledger.record("net-1")
    assert found is not None
    return found, record, aggregate.epoch_summaries(record)


def test_sums_are_those_of_all_rows(read: tuple[LongRun, Record, list[EpochSummary]]) -> None:
    found, record, epochs = read
    truth = aggregate.sum_epochs(epochs)
    assert found.sums[:2] + found.sums[3:] == pytest.approx(truth[:2] + truth[3:], nan_ok=True)
    if len(record.ranks) > 1:
        assert found.sums.overlap == pytest.approx(truth.overlap)
    totals = [aggregate.run_total(record, one) for one in (found.sums, epochs)]
    assert totals[0].steps == totals[1].steps
    assert [totals[0].trained, totals[0].wait_of] == pytest.approx([totals[1].trained, totals[1].wait_of], nan_ok=True)


def test_lengths_are_those_of_all_epochs_but_the_newest(read: tuple[LongRun, Record, list[EpochSummary]]) -> None:
    found, _, epochs = read
    ended = [one for one in epochs[:-1] if is_known(one.ended)]
    seconds = [one.seconds for one in ended if is_known(one.seconds)]
    energies = [one.value("energy") for one in epochs[:-1] if is_known(one.value("energy"))]
    truth = (len(ended), ended[-1].epoch, len(seconds), sum(seconds), min(seconds), max(seconds), max(energies))
    assert astuple(found.lengths) == pytest.approx(truth)


def test_bands_reach_from_the_begin_of_each_epoch_to_its_end(read: tuple[LongRun, Record, list[EpochSummary]]) -> None:
    found, _, epochs = read
    assert [(one.first, one.first_epoch) for one in found.bands] == [(one.ordinal, one.epoch) for one in epochs]
    assert [one.begun for one in found.bands] == pytest.approx([one.begun for one in epochs])
    over = [(band, one) for band, one in zip(found.bands, epochs, strict=True) if is_known(one.ended)]
    assert [band.ended for band, _ in over] == pytest.approx([one.ended for _, one in over])
    assert [band.longest for band, _ in over[1:]] == pytest.approx([one.seconds for _, one in over[1:]], nan_ok=True)


def test_each_epoch_that_needs_a_look_is_among_those_that_may(read: tuple[LongRun, Record, list[EpochSummary]]) -> None:
    found, _, epochs = read
    needing = {one.ordinal for one in epochs if (judged := verdict(one, running=True)) and judged.needs_a_look}
    assert needing <= {*found.suspects}
    assert found.suspects == sorted(found.suspects)
    assert any(one.wait_share >= INPUT_BOUND for one in epochs)
    odd = [one.ordinal for one in epochs if any(not is_known(value) for value in one.metrics.values())]
    assert found.first_nonfinite == min(odd) or len({rank.key for rank in read[1].ranks}) > 1


def test_phases_are_counted_and_the_newest_epochs_with_some_are_named(
    read: tuple[LongRun, Record, list[EpochSummary]],
) -> None:
    found, record, _ = read
    assert found.phases == len(aggregate.phase_spans(record))
    own = {row.ordinal for row in record.phases if row.rank == record.ranks[0].key}
    assert found.with_phases == sorted(own, reverse=True)[:4]


def test_only_of_a_run_whose_totals_are_kept_are_there_sums(tmp_path: Path) -> None:
    with Book(tmp_path) as book:
        irregular(book, 1, 1)
        with Ledger(str(book.path)) as ledger:
            assert ledger.long_run("net-1", EPOCHS, 4) is None, "it is no longer than that"
            book.db.execute("DELETE FROM usage WHERE ordinal = -1")
            assert ledger.long_run("net-1", EPOCHS - 1, 4) is None


def test_cells_of_another_type_are_unknown_and_no_error(tmp_path: Path) -> None:
    with Book(tmp_path) as book:
        irregular(book, 2, 1)
        for column in ("begun", "ended", "seconds", "wait", "trained", "steps", "metrics"):
            book.db.execute(f"UPDATE epoch SET {column} = 'x' WHERE ordinal % 7 = 3")
            book.db.execute(f"UPDATE epoch SET {column} = 9e999 WHERE ordinal % 11 = 4")
        book.db.execute("UPDATE epoch SET epoch = 'x' WHERE ordinal = 50")
        book.db.execute("UPDATE phase SET spans = '{'")
        book.db.execute("UPDATE usage SET energy = x'00', idle_share = 'much' WHERE ordinal > 20")
    with Ledger(str(book.path)) as ledger:
        found = ledger.long_run("net-1", EPOCHS - 1, 4)
        assert found is not None
        assert {type(one) for one in (*found.suspects, *(band.last_epoch for band in found.bands))} == {int}
        assert ledger.epoch_times("net-1")


def test_times_of_epochs_are_in_pieces_that_add_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpumon.storage.ledger.long_run.BANDS", 15)
    with Book(tmp_path) as book:
        irregular(book, 1, 4)
    with Ledger(str(book.path)) as ledger:
        found, epochs = ledger.epoch_times("net-1"), aggregate.epoch_summaries(ledger.record("net-1"))
    unfinished = [one for one in epochs if not is_known(one.ended)]
    assert len(found) <= 15 + len(unfinished)
    assert sum(one.times for one in found) == len(epochs)
    assert [one.begun for one in found if not is_known(one.ended)] == [one.begun for one in unfinished]
    assert sum(one.steps for one in found) == sum(one.steps or 0 for one in epochs)
    known = [one for one in found if is_known(one.energy)]
    for piece in known:
        within = [one for one in epochs if piece.begun <= one.begun and (
            one.ended <= piece.ended if is_known(piece.ended) else one.begun == piece.begun)]  # fmt: skip
        assert piece.energy == pytest.approx(sum(one.value("energy") for one in within))
    assert known
