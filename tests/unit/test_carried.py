"""A view that samples by itself continues the runs that a daemon which has stopped left in its ledger."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest

from gpumon.common.numbers import is_known
from gpumon.daemon.followers import lazy_ledger
from gpumon.model.frame import Boundary, Mark, Tick
from gpumon.storage.ledger.reader import Ledger
from gpumon.storage.ledger.recorder import copy_runs
from gpumon.storage.ledger.records import Record
from tests.builders import device, run, sample, tick

KEY, GPU = run().key, device(0).uuid
ENDS = (2, 10, 18, 26)
"""Seconds at which an epoch ends and the next one begins."""


def told(until: int) -> list[Boundary]:
    """What a board tells that is read then: all from the start."""
    found = [Boundary(KEY, 1, Mark.RUN_BEGIN, -1, 0, "", *at(1))]
    for epoch, second in enumerate(ENDS):
        if epoch:
            found.append(Boundary(KEY, 2 * epoch + 1, Mark.EPOCH_END, epoch - 1, 10 * epoch, "", *at(second)))
        found.append(Boundary(KEY, 2 * epoch + 2, Mark.EPOCH_BEGIN, epoch, 10 * epoch, "train", *at(second)))
    return [one for one in found if one.monotonic_ns <= until * 10**9]


def at(second: int) -> tuple[int, int]:
    of = tick(second)
    return of.monotonic_ns, of.time_ns


def ticks(begin: int, end: int) -> list[Tick]:
    """From a second to before another; the first has the boundaries of before, each other one its own."""
    known: list[Boundary] = []
    found = []
    for second in range(begin, end):
        new = [one for one in told(second) if one not in known]
        known += new
        mine = run(gpus=(GPU,), started=at(1)[1] / 1e9)
        found.append(tick(second, [sample(0, energy=100.0 * second, power=100.0, utilization=0.5)], runs=[mine],
                          boundaries=new))  # fmt: skip
    return found


def kept(path: str, of: Sequence[Tick], earlier: Sequence[str] = ()) -> Record:
    follower = lazy_ledger(lambda: path, os.getuid(), print, waits=True, earlier=lambda: earlier)
    for one in of:
        follower.add(one)
    follower.close()
    with Ledger(path) as ledger:
        return ledger.record(run().id)


def energies(record: Record) -> dict[int, float]:
    """Energy by the number of the epoch, and of the whole run as -1."""
    found = {row.ordinal: row.value("energy") for row in record.whole_epochs}
    return {ordinal: energy for ordinal, energy in found.items() if is_known(energy)}


def test_epochs_of_before_are_told_with_what_the_daemon_measured(tmp_path: Path) -> None:
    daemons, own, alone = (str(tmp_path / name / "ledger.sqlite") for name in ("daemon", "own", "alone"))
    before = energies(kept(daemons, ticks(0, 14)))
    after = kept(own, ticks(16, 32), [daemons])
    assert before[0] == pytest.approx(800.0)
    told = energies(after)
    assert told[0] == before[0], "which nobody measures again"
    assert told[2] == pytest.approx(800.0), "which the view sampled"
    assert told[-1] == pytest.approx(3000.0, abs=150.0), "of all the run, as the counter went on"
    assert [row.epoch for row in after.epochs] == [0, 1, 2, 3]
    assert 0 not in energies(kept(alone, ticks(16, 32))), "without it nothing of that is known"
    with Ledger(daemons) as ledger:
        assert energies(ledger.record(run().id)) == before, "the ledger of a daemon stays as it is"


def test_runs_that_no_tick_tells_of_are_left_where_they_are(tmp_path: Path) -> None:
    daemons, own = (str(tmp_path / name / "ledger.sqlite") for name in ("daemon", "own"))
    kept(daemons, ticks(0, 14))
    copy_runs(own, [str(tmp_path / "none.sqlite"), daemons], ["tag.another"], os.getuid(), print)
    assert not os.path.exists(own)
    copy_runs(own, [str(tmp_path / "none.sqlite"), daemons], ["tag.another", KEY], os.getuid(), print)
    with Ledger(own) as ledger:
        assert [row.id for row in ledger.candidates()] == [run().id]


@pytest.mark.parametrize("spoiled", ["of another version", "damaged"])
def test_a_ledger_that_cannot_be_taken_over_leaves_the_view_with_its_own(tmp_path: Path, spoiled: str) -> None:
    daemons, own = (str(tmp_path / name / "ledger.sqlite") for name in ("daemon", "own"))
    kept(daemons, ticks(0, 14))
    if spoiled == "damaged":
        Path(daemons).write_bytes(b"no database" * 1000)
    else:
        with closing(sqlite3.connect(daemons)) as other:
            other.execute("PRAGMA user_version = 99")
    after = kept(own, ticks(16, 32), [daemons])
    assert 2 in energies(after)
    assert 0 not in energies(after)
