"""Kinds of events are described once, in `gpumon/model/events.py`: the filters of both views and the page have each."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gpumon.common.numbers import NAN
from gpumon.model import events as model
from gpumon.model.events import EVENT_GROUPS, EVENT_KINDS, LASTING, EventKind, EventSubject
from gpumon.storage.events.query import LoggedEvent
from gpumon_tui.render import event_rows
from gpumon_web.pages import events as events_page
from gpumon_web.stored import events as stored_events
from tests.builders import TIME

ROOT = Path(__file__).parents[2]


def test_the_table_of_kinds_fits_together() -> None:
    names = [kind.name for kind in EVENT_KINDS]
    assert len(set(names)) == len(names)
    for kind in EVENT_KINDS:
        assert kind.severity in ("info", "warning", "critical")
        assert not kind.ends or kind.ends in LASTING
        assert not kind.unseen or kind.unseen in names
    assert {kind.ends for kind in EVENT_KINDS} - {""} == set(LASTING), "what begins has a kind that ends it"


@pytest.mark.parametrize("kind", EVENT_KINDS, ids=lambda kind: kind.name)
def test_each_view_shows_a_kind_in_the_filter_of_its_group(kind: EventKind) -> None:
    """The terminal has no filter for the daemon's own events."""
    event = LoggedEvent(round(TIME * 1e9), kind, EventSubject(), "", NAN, 0, {})
    (row,) = event_rows.event_rows([event], {})
    of_severity = {"attention", "critical", "warnings"}
    web = {name for name in stored_events.GROUPS if stored_events.is_in_group(event, name)} - of_severity
    terminal = {name for name in event_rows.GROUPS if event_rows.is_in_group(row, name)} - of_severity
    assert web > {stored_events.ALL}
    assert len(web) == 2
    assert terminal >= {event_rows.ALL}
    assert len(terminal) == (1 if kind.group == "daemon" else 2)


def test_each_group_has_kinds_and_each_filter_a_title() -> None:
    assert {kind.group for kind in EVENT_KINDS} == set(EVENT_GROUPS)
    assert events_page.TITLES.keys() == stored_events.GROUPS.keys()


def test_every_kind_is_named_where_events_are_detected() -> None:
    """An end that was not observed has the kind that `unseen` of its row names."""
    source = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "gpumon/storage/events").glob("*.py"))
    constants = {value: name for name, value in vars(model).items() if isinstance(value, str) and name.isupper()}
    closing = {kind.unseen for kind in EVENT_KINDS}
    detected = {
        kind.name
        for kind in EVENT_KINDS
        if f'"{kind.name}"' in source or re.search(rf"\b{constants.get(kind.name, 'no constant')}\b", source)
    }
    assert {kind.name for kind in EVENT_KINDS} - detected - closing == set()


def test_the_page_has_every_kind_with_its_meaning() -> None:
    page = (ROOT / "docs" / "read" / "history.md").read_text(encoding="utf-8")
    rows = {kind.name: f"| `{kind.name}` | {kind.label} | {kind.severity} | {kind.help} |" for kind in EVENT_KINDS}
    assert [name for name, row in rows.items() if row not in page] == []
