"""XID errors: the table, and how they come into the event log."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpumon.common.clock import SECOND
from gpumon.model.events import Event
from gpumon.model.frame import Run, RunState, XidEvent
from gpumon.model.xids import XIDS, worse, xid_of
from gpumon.reports.events import details
from gpumon.storage.events.device_watch import RUN_END_MARGIN, XidWatch
from gpumon.storage.events.query import LoggedEvent
from tests.builders import device, run, tick
from tests.unit.test_events import NOON, at, log, path, told

__all__ = ["path"]
OF_APPLICATIONS = (13, 31, 43, 45)
OF_THE_CARD = (48, 63, 64, 74, 79, 94, 95, 119, 120)

# Immediate actions of NVIDIA's catalog; those of codes from 144 to 150 depend on more than the code.
IGNORED = (14, 37, 38, 43, 44, 63, 66, 67, 92, 93, 106, 107, 121, 137, 141, 157, 160, 161)
RESTARTED = (
    8, 11, 13, 25, 31, 32, *range(39, 42), 60, *range(68, 73), *range(75, 78), 80, *range(82, 87), 88, 89, 94,
    *range(96, 106), *range(126, 136), 139,
)  # fmt: skip
"""Codes after which the application is to be started again."""
RESET = (46, 62, 64, 95, 109, 110, 119, 120, 136, 140, 143, 155, 156, 158)
WORTH_A_LOOK = {32, 63, 92, 94, 121, 157}
"""Of these the catalog says that something is wrong with card or machine, though nothing is to do at once."""


def xid(code: int, seconds: float, index: int = 0) -> XidEvent:
    """An error, `seconds` after noon."""
    return XidEvent(
        device(index).uuid, code, round((1000 + seconds) * SECOND), round((NOON + seconds) * SECOND)
    )  # fmt: skip


def test_the_table_has_each_code_once_with_words() -> None:
    assert len({row.code for row in XIDS}) == len(XIDS)
    for row in XIDS:
        assert row.severity in ("info", "warning", "critical")
        assert row.meaning
        assert not row.meaning.endswith(".")
        assert not row.action.endswith(".")
        assert row.action or row.severity == "info"


def test_a_fault_of_an_application_is_no_alarm_about_the_card() -> None:
    assert {xid_of(code).is_of_card for code in OF_APPLICATIONS} == {False}
    assert all("application" in xid_of(code).meaning for code in OF_APPLICATIONS)
    assert {xid_of(code).is_of_card for code in OF_THE_CARD} == {True}


@pytest.mark.parametrize("code", IGNORED + RESTARTED)
def test_what_concerns_no_card_in_the_catalog_is_no_alarm(code: int) -> None:
    assert xid_of(code) in XIDS
    assert xid_of(code).severity == ("warning" if code in WORTH_A_LOOK else "info")


@pytest.mark.parametrize("code", RESET)
def test_what_takes_a_reset_in_the_catalog_is_one_and_says_so(code: int) -> None:
    assert xid_of(code).is_of_card
    assert "reset" in xid_of(code).action.lower()


def test_an_unknown_code_is_told_as_unknown() -> None:
    found = xid_of(4711)
    assert (found.code, found.severity) == (4711, "warning")
    assert found not in XIDS


def test_of_two_errors_the_worse_counts_and_the_first_of_equals() -> None:
    assert worse(0, 63) == worse(63, 0) == 63
    assert worse(63, 48) == worse(48, 63) == 48
    assert worse(48, 95) == 48
    assert worse(48, 79) == worse(79, 48) == worse(95, 79) == 79, "a reset helps no GPU that is off the bus"
    assert worse(0, 0) == 0


def test_an_error_is_logged_at_the_moment_of_its_report(path: Path) -> None:
    found = log(path, [at(0), at(1, xids=[xid(31, 0.25), xid(79, 0.75, 1)]), at(2)])
    assert told(found, "xid") == [(0.25, "xid"), (0.75, "xid")]
    application, card = (event for event in found if event.kind.name == "xid")
    assert (application.severity, card.severity) == ("info", "critical")
    assert (card.subject.device, card.subject.cause) == (device(1).uuid, "79")
    assert details(card).startswith("79: the GPU fell off the bus")


def test_two_errors_of_one_moment_are_two_events(path: Path) -> None:
    found = log(path, [at(0), at(1, xids=[xid(48, 0.5), xid(63, 0.5)])])
    assert sorted(event.subject.cause for event in found if event.kind.name == "xid") == ["48", "63"]


def told_of(watch: XidWatch, seconds: int, *errors: XidEvent) -> list[Event]:
    return list(watch.add(tick(monotonic_ns=(1000 + seconds) * SECOND, xids=errors)))


def test_a_flood_of_one_error_is_two_events_a_minute() -> None:
    watch = XidWatch()
    (first,) = told_of(watch, 1, *(xid(13, 0.5 + n / 1000) for n in range(400)))
    assert first.time_ns == xid(13, 0.5).time_ns
    assert "times" not in first.details
    for second in range(2, 60):
        assert told_of(watch, second, xid(13, second - 0.5)) == []
    last, again = told_of(watch, 61, xid(13, 60.9))
    assert last.time_ns == xid(13, 58.5).time_ns
    assert last.details["times"] == 399 + 58
    assert "times" not in again.details
    assert list(watch.finish()) == []


def test_another_code_and_another_gpu_are_told_at_once() -> None:
    watch = XidWatch()
    found = told_of(watch, 1, xid(13, 0.5), xid(31, 0.6), xid(13, 0.7, 1), xid(13, 0.8))
    assert [(one.subject.device, one.details["code"]) for one in found] == [
        (device(0).uuid, 13), (device(0).uuid, 31), (device(1).uuid, 13),
    ]  # fmt: skip
    (rest,) = watch.finish()
    assert rest.details["times"] == 1


def run_on(index: int = 0, **fields: Any) -> Run:
    """A run that trains on a GPU since noon."""
    return run(gpus=(device(index).uuid,), **{"started": NOON, "updated": NOON, **fields})


def of_runs(runs: Sequence[Run], seconds: float = 5.0) -> tuple[str, str]:
    """User and run of an error on the first GPU."""
    at = xid(31, seconds)
    (found,) = XidWatch().add(tick(monotonic_ns=at.monotonic_ns + 1, runs=runs, xids=[at]))
    return found.subject.user, found.subject.run


def test_an_error_names_the_run_on_its_gpu() -> None:
    one = run_on()
    assert of_runs([one]) == (one.user, one.id) != ("", "")
    ranks = [one, one._replace(key="tag.1000.4712.abcd", rank=1)]
    assert of_runs(ranks) == (one.user, one.id), "two ranks of one run"
    assert of_runs([run_on(1)]) == ("", "")


def test_of_several_runs_none_is_named() -> None:
    assert of_runs([run_on(), run_on(key="tag.1000.9.ef", id="other")]) == ("", "")


@pytest.mark.parametrize(
    ("ended", "is_named"),
    [(4.9, True), (6.0, True), (5.0 - RUN_END_MARGIN - 1, False)],
    ids=["by it", "after it", "long ago"],
)
def test_a_run_that_ended_by_an_error_is_named_for_a_while(ended: float, is_named: bool) -> None:
    over = run_on(started=NOON - 100, updated=NOON + ended, state=RunState.FAILED)
    assert (of_runs([over]) != ("", "")) is is_named


def test_repeats_are_told_in_words(path: Path) -> None:
    found = log(path, [at(0), at(1, xids=[xid(13, 0.5), xid(13, 0.6)])])
    texts = [details(event) for event in found if event.kind.name == "xid"]
    assert texts[1].endswith("1 more report within a minute")


def test_a_code_of_another_type_in_the_file_is_no_error(path: Path) -> None:
    (event,) = (one for one in log(path, [at(0), at(1, xids=[xid(48, 0.5)])]) if one.kind.name == "xid")
    odd: LoggedEvent = replace(event, details={"code": "48", "times": []})
    assert (odd.severity, details(odd)) == ("warning", "")
