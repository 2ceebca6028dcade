"""Viewers of one recording, each at a position of its own: what they are told agrees, and none moves another."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from random import Random
from threading import Thread
from typing import Any
from urllib.parse import urlencode

import pytest

from gpumon.recording.content import RecordedFrame
from gpumon.recording.positions import MAX_PAST_FRAMES, Positions
from gpumon_web.components.page import StoredSubject
from gpumon_web.live.positions import MAX_CACHED, Recording
from gpumon_web.pages import PAGES
from tests.builders import tick
from tests.recorded import simulated, write
from tests.web.served import Served
from tests.web.test_hostile import NASTY

FRAMES = 900


@pytest.fixture(scope="module")
def recorded() -> list[RecordedFrame]:
    """A quarter of an hour of a simulation of one GPU."""
    return simulated(FRAMES, "sim:one")


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory, recorded: list[RecordedFrame]) -> Path:
    file = tmp_path_factory.mktemp("recording") / "a.gpumon"
    write(file, recorded)
    return file


@pytest.fixture
def served(path: Path) -> Iterator[Served]:
    """A server that plays the recording, and is at its second frame."""
    positions = Positions(str(path))
    yield Served([tick(1), tick(2)], recording=Recording(positions, 10.0))
    positions.close()


def asked(served: Served, at: float, page: str = "fleet", boot: str = "", since: int = 0, **args: str) -> Any:
    more = "".join(f"&{name}={value}" for name, value in args.items())
    return served.json(f"/api/delta?page={page}&boot={boot}&since={since}&at={at!r}{more}")


def time_of(recorded: list[RecordedFrame], place: int) -> float:
    return recorded[place].frame.time + 0.001


def test_values_are_those_of_the_position(served: Served, recorded: list[RecordedFrame]) -> None:
    for place in (0, 1, 450, FRAMES - 1):
        found = asked(served, time_of(recorded, place))
        frame = recorded[place].frame
        assert found["now"] == pytest.approx(frame.time, abs=0.001)
        (cells,) = found["tables"]["gpus"]["cells"].values()
        assert cells["power_watts"] == pytest.approx(frame.samples[0].value("gpu.power"), abs=0.5)
        assert cells["memory_used_bytes"] == pytest.approx(frame.samples[0].value("gpu.memory_used"), rel=1e-3)
        assert found["recorded"] is True
        assert found["play"]["own"] is True
        assert found["label"].startswith("REPLAY a.gpumon")


def test_charts_have_nothing_from_after_the_position(served: Served, recorded: list[RecordedFrame]) -> None:
    later, at = time_of(recorded, 800), time_of(recorded, 640)
    asked(served, later)
    found = asked(served, at, "gpu", id="0")
    assert max(found["series"]["t"]) == pytest.approx(at, abs=0.01)
    for query in ("", "&window=600", f"&from={at - 100}&to={later}"):
        figure = served.json(f"/api/gpu?gpu=0&at={at}{query}")
        times = [time for times in figure["chart"]["times"] for time in times]
        assert times
        assert max(times) <= at
        assert figure["known"]["end"] <= at


def test_events_have_nothing_from_after_the_position(served: Served, recorded: list[RecordedFrame]) -> None:
    asked(served, time_of(recorded, 800))
    at = time_of(recorded, 640)
    (ribbon,) = served.json(f"/api/gpu?gpu=0&at={at}")["chart"]["runs"]
    assert ribbon["bands"]
    assert all(begin <= at and end <= at for begin, end, _ in ribbon["bands"])


@pytest.mark.parametrize(
    "page",
    [page.name for page in PAGES.values() if page.kept and page.kept_of in (StoredSubject.RUNS, StoredSubject.RUN)],
)
def test_pages_of_runs_know_those_of_the_position_and_say_so(
    served: Served, recorded: list[RecordedFrame], page: str
) -> None:
    run = recorded[640].frame.runs[0].id
    found = served.json(f"/api/kept?page={page}&id={run}&at={time_of(recorded, 640)}")
    assert "press Rejoin" in json.dumps(found["values"]) or page == "none"


def test_who_plays_on_is_told_what_is_new(served: Served, recorded: list[RecordedFrame]) -> None:
    first = asked(served, time_of(recorded, 700), "gpu", id="0")
    then = asked(served, time_of(recorded, 705), "gpu", first["boot"], first["seq"], id="0")
    assert then["boot"] == first["boot"]
    assert "reset" not in then
    assert len(then["series"]["t"]) == 5
    assert then["seq"] == first["seq"] + 5


def test_viewers_do_not_disturb_each_other(served: Served, recorded: list[RecordedFrame]) -> None:
    def told(place: int) -> Any:
        found = asked(served, time_of(recorded, place), "gpu", id="0")
        return {name: found[name] for name in ("now", "seq", "values", "tables", "play", "label")}

    alone = {place: told(place) for place in range(0, FRAMES, 60)}
    chance = Random(4)
    wrong: list[int] = []

    def look() -> None:
        for place in chance.choices(list(alone), k=25):
            if told(place) != alone[place]:
                wrong.append(place)

    viewers = [Thread(target=look) for _ in range(6)]
    for viewer in viewers:
        viewer.start()
    for viewer in viewers:
        viewer.join()
    assert wrong == []


def test_one_who_pauses_stays_while_another_plays_on_from_there(served: Served, recorded: list[RecordedFrame]) -> None:
    at = time_of(recorded, 500)
    paused = asked(served, at)
    playing = asked(served, at)
    assert paused["boot"] == playing["boot"], "they share what was made"
    asked(served, time_of(recorded, 520), boot=playing["boot"], since=playing["seq"])
    still = asked(served, at, boot=paused["boot"], since=paused["seq"])
    assert (still["now"], still["seq"]) == (paused["now"], paused["seq"])
    assert still["boot"] != paused["boot"]
    assert still["reset"] is True


def test_no_position_changes_what_all_others_see(served: Served, recorded: list[RecordedFrame]) -> None:
    before = served.json("/api/delta?page=fleet&boot=&since=0")
    for place in range(0, FRAMES, 100):
        asked(served, time_of(recorded, place))
    assert served.json("/api/delta?page=fleet&boot=&since=0") == before
    assert "play" not in before


def test_few_positions_are_kept_however_many_are_asked_for(path: Path, recorded: list[RecordedFrame]) -> None:
    recording = Recording(Positions(str(path)))
    for place in range(0, FRAMES, 20):
        recording.at(time_of(recorded, place))
    assert len(recording._cached) == MAX_CACHED
    recording.close()


def test_a_position_keeps_one_frame_and_few_values(path: Path, recorded: list[RecordedFrame]) -> None:
    recording = Recording(Positions(str(path)))
    place = recording.at(time_of(recorded, 700))
    assert [frame.number for frame in place.frames.since(0)] == [701], "the feed has taken in the others"
    assert len(place.feed.history.sampled()) > 500
    assert place.feed.history.keep == MAX_PAST_FRAMES
    recording.close()


def test_the_end_is_said(served: Served, recorded: list[RecordedFrame]) -> None:
    found = asked(served, time_of(recorded, FRAMES - 1))
    assert (found["ended"], found["live"]) == (True, False)
    assert found["play"]["next"] is None
    assert "ended" in found["label"]
    before = asked(served, time_of(recorded, FRAMES - 2))
    assert (before["ended"], before["live"]) == (False, True)


def test_damage_is_where_it_ends_and_is_named(tmp_path: Path, recorded: list[RecordedFrame]) -> None:
    raw = bytearray(write(tmp_path / "a.gpumon", recorded))
    raw[len(raw) // 2] ^= 1
    (tmp_path / "a.gpumon").write_bytes(raw)
    positions = Positions(str(tmp_path / "a.gpumon"))
    served = Served([tick(1)], recording=Recording(positions))
    found = asked(served, time_of(recorded, FRAMES - 1))
    assert found["ended"]
    assert found["now"] < recorded[FRAMES - 1].frame.time - 60
    assert found["play"]["end"] == pytest.approx(found["now"], abs=0.001)
    assert "is damaged: it plays up to" in found["play"]["problem"]
    assert "damaged after" in found["label"]
    positions.close()


@pytest.mark.parametrize("route", ["delta?page=gpu&id=0", "gpu?gpu=0", "kept?page=runs"])
def test_hostile_positions_are_refused_or_answered(served: Served, route: str) -> None:
    client, chance = served.client(), Random(7)
    values = [*NASTY, "", " ", "-0", "1e11", "-1e11", "1e12", "0x10", "1_0", "١٢", "nan", "inf", "-inf", "1e-320"]
    values += [str(chance.uniform(-1e11, 1e11)) for _ in range(20)]
    for value in values:
        answer = client.get(f"/api/{route}&{urlencode({'at': value})}")
        assert answer.status_code in (200, 400), (value, answer.status_code)


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
def test_no_position_can_be_written(served: Served, recorded: list[RecordedFrame], method: str) -> None:
    answer = served.client().open(f"/api/delta?page=fleet&at={time_of(recorded, 3)}", method=method)
    assert answer.status_code == 405


def test_what_is_no_recording_has_no_positions() -> None:
    served = Served([tick(1), tick(2)])
    found = served.json("/api/delta?page=fleet&boot=&since=0")
    assert served.json("/api/delta?page=fleet&boot=&since=0&at=5") == found
    assert "play" not in found
    assert "recorded" not in found
