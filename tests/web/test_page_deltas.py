"""What a viewer of a page gets at each tick: all at first, then what changed after the frame that he has."""

from __future__ import annotations

import gzip
import json
from itertools import pairwise
from typing import Any

import pytest

from gpumon.common.clock import SECOND
from gpumon_web.components.page import Rows
from gpumon_web.feed import FIRST_WINDOW, PACE
from gpumon_web.live.values import PageFeed, PageVersions, TableVersions
from gpumon_web.pages import PAGES
from tests.builders import TIME, device, sample, tick
from tests.web.served import Served

FLEET = PAGES["fleet"]


def rows(*found: dict[str, Any]) -> Rows:
    return Rows(found)


def test_only_what_changed_after_a_viewers_frame_is_sent() -> None:
    view = PageVersions()
    view.update(5, {"a": 1, "b": 1, "t": rows({"key": "x", "c": 1, "d": 2})}, {"hostname": "node1"})
    view.update(6, {"a": 1, "b": 2, "t": rows({"key": "x", "c": 3, "d": 2})}, {"hostname": "node1"})
    view.update(9, {"a": 4, "b": 2, "t": rows({"key": "x", "c": 3, "d": 2})}, {"hostname": "node1"})
    assert view.since(5) == {"values": {"a": 4, "b": 2}, "server": {}, "tables": {"t": {"cells": {"x": {"c": 3}}}}}
    assert view.since(6) == {"values": {"a": 4}, "server": {}, "tables": {}}
    assert view.since(9) == {"values": {}, "server": {}, "tables": {}}


def test_whoever_has_seen_nothing_or_too_little_gets_all() -> None:
    view = PageVersions()
    view.update(5, {"a": 1, "t": rows({"key": "x", "c": 1})}, {"hostname": "node1"})
    view.update(6, {"a": 2, "t": rows({"key": "x", "c": 1})}, {"hostname": "node1"})
    for number in (0, 4, 7):
        found = view.since(number)
        assert found["reset"]
        assert found["values"] == {"a": 2}
        assert found["server"] == {"hostname": "node1"}
        assert found["tables"] == {"t": {"order": ["x"], "cells": {"x": {"key": "x", "c": 1}}}}


def test_a_value_that_is_gone_is_none_and_a_row_that_is_gone_is_in_no_order() -> None:
    view = PageVersions()
    view.update(1, {"a": 1, "t": rows({"key": "x"}, {"key": "y"})}, {})
    view.update(2, {"t": rows({"key": "y"})}, {})
    assert view.since(1) == {"values": {"a": None}, "server": {}, "tables": {"t": {"order": ["y"], "cells": {}}}}


def test_a_table_without_rows_is_a_table_too() -> None:
    table = TableVersions()
    table.update(3, rows())
    assert table.since(-1) == {"order": [], "cells": {}}
    assert table.since(3) == {}


def test_viewers_of_one_tick_get_the_same_bytes() -> None:
    served = Served([tick(1), tick(2)])
    views = PageFeed(served.feed)
    first = views.delta(FLEET, {}, "", 0)
    assert views.delta(FLEET, {}, "", 0) is first
    assert gzip.decompress(first.packed) == first.plain


def test_a_page_gets_its_lines_with_their_past_and_then_each_point_once() -> None:
    served = Served([tick(number) for number in range(1, 4)])
    seen = served.json("/api/delta?page=fleet")
    assert seen["series"] == {
        "t": [TIME / 1e9 + at for at in (1, 2, 3)], "lines": {device().uuid: [0.5, 0.5, 0.5]}, "whole": True,
        "every": 1.0,
    }  # fmt: skip
    assert seen["series"]["t"][-1] - seen["series"]["t"][0] <= FIRST_WINDOW
    served.writer.append(tick(4, [sample(0, utilization=0.25)]))
    seen = served.json(f"/api/delta?page=fleet&boot={seen['boot']}&since={seen['seq']}")
    assert seen["series"] == {"t": [TIME / 1e9 + 4], "lines": {device().uuid: [0.25]}, "whole": False, "every": 1.0}
    assert seen["tables"]["gpus"]["cells"][device().uuid]["now"] == 0.25


def test_lines_of_a_fast_ring_say_how_far_their_points_are_apart() -> None:
    tenth = SECOND // 10
    fast = [
        tick(n, interval_ns=tenth, time_ns=TIME + n * tenth, monotonic_ns=SECOND + n * tenth) for n in range(1, 21)
    ]  # fmt: skip
    served = Served(fast[:1])
    seen = served.json("/api/delta?page=fleet")
    for one in fast[1:]:
        served.writer.append(one)
    news = served.json(f"/api/delta?page=fleet&boot={seen['boot']}&since={seen['seq']}")["series"]
    assert news["every"] == PACE
    assert [after - before for before, after in pairwise(news["t"])] == pytest.approx([PACE] * (len(news["t"]) - 1))


def test_a_ring_that_began_anew_resets_a_viewer() -> None:
    served = Served([tick(number) for number in range(1, 20)])
    first = served.json("/api/delta?page=fleet")
    old, served.writer = served.writer, Served().writer
    old.close()
    served.live.close()
    served.writer.append(tick(1, [sample(0, utilization=0.9)]))
    after = served.json(f"/api/delta?page=fleet&boot={first['boot']}&since={first['seq']}")
    assert after["boot"] != first["boot"]
    assert after["reset"]
    assert after["series"]["t"] == [TIME / 1e9 + 1]


def test_an_address_of_no_page_gets_the_first() -> None:
    served = Served([tick(1)])
    for name in ("", "nope", "x" * 300):
        assert served.json(f"/api/delta?page={name}")["page"] == "fleet"


def test_before_the_first_frame_nothing_is_known() -> None:
    found = json.loads(PageFeed(Served().feed).delta(FLEET, {}, "", 0).plain)
    assert (found["seq"], found["values"], found["tables"], found["server"]) == (0, {}, {}, {})
