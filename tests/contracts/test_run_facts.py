"""The table of run facts is what the board, the ring, the ledger and the JSON have of a run, and no more."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from math import nan
from typing import Any

import pytest

from gpumon.model.frame import Run
from gpumon.model.origin import Driver, Origin
from gpumon.model.run import RUN_FACTS, Fact, RunFacts, facts_from_row, facts_to_row, read_facts
from gpumon.reports.status_json import document
from gpumon.ring.directory import Directory, unpack
from gpumon.storage.ledger.schema import TABLES
from gpumon.tracking.description import Description, decode, encode
from tests.builders import frame_of, tick

SHOWN = [fact for fact in RUN_FACTS if fact.key]


def told() -> RunFacts:
    """Each fact with a value of its own."""
    kinds = {name: type(default) for name, default in RunFacts._field_defaults.items()}
    return RunFacts(**{fact.name: kinds[fact.name](place) for place, fact in enumerate(RUN_FACTS, 2)})


def test_each_fact_has_a_row_and_a_default() -> None:
    assert tuple(fact.name for fact in RUN_FACTS) == RunFacts._fields == tuple(RunFacts._field_defaults)
    assert not any(RunFacts()), "a default is not told"


def test_facts_pass_through_a_board_and_the_ring() -> None:
    assert decode(encode(Description("net", "net-1", facts=told()))).facts == told()
    directory = Directory(1)
    directory.run(Run("tag.1", "net-1", "net", 1, "alice", facts=told()))
    packed = directory.pack(1, 1 << 16)
    found = unpack(packed)
    assert found is not None
    assert [run.facts for run in found.runs.values()] == [told()]


def test_facts_that_were_not_told_are_left_out_and_come_back_as_their_defaults() -> None:
    assert read_facts({}) == RunFacts()


@pytest.mark.parametrize("fact", RUN_FACTS, ids=lambda fact: fact.name)
def test_a_kept_fact_has_a_column_of_the_ledger_and_comes_back(fact: Fact) -> None:
    with closing(sqlite3.connect(":memory:")) as ledger:
        ledger.executescript(TABLES)
        columns = {row[1] for row in ledger.execute("PRAGMA table_info(rank)")}
    assert not fact.column or fact.column in columns
    kept = facts_from_row(facts_to_row(told()))
    assert getattr(kept, fact.name) == getattr(told() if fact.column else RunFacts(), fact.name)


@pytest.mark.parametrize("fact", SHOWN, ids=lambda fact: fact.name)
def test_a_shown_fact_is_null_until_it_is_told(fact: Fact) -> None:
    def shown(facts: RunFacts) -> Any:
        run = Run("tag.1", "net-1", "net", 1, "alice", facts=facts)
        frame = frame_of(tick(runs=[run]))
        return document(frame, Origin("sim"), Driver(), "node1", None)["runs"][0][fact.key]

    assert shown(RunFacts()) is None
    assert shown(told()) == getattr(told(), fact.name)


@pytest.mark.parametrize("value", [nan, float("inf"), -1, 1 << 40, True, None, [], "\x1b[31m" * 99])
def test_a_fact_of_a_stranger_is_bounded(value: object) -> None:
    found = read_facts(dict.fromkeys(RunFacts._fields, value))
    for fact, default in zip(found, RunFacts(), strict=True):
        assert fact == default or (isinstance(fact, str) and "\x1b" not in fact)
