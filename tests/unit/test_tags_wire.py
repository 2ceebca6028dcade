"""The bytes of a board and of its description."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.common.errors import BoardError
from gpumon.model.frame import TRAINING, Mark
from gpumon.model.run import RunFacts
from gpumon.tracking import wire_format
from gpumon.tracking.description import MAX_PHASES, TRAIN, Description, decode, encode
from gpumon.tracking.wire_format import text_versions, unpack_event, unpack_header, unpack_memory, unpack_state

HEADER = wire_format.BoardHeader(wire_format.SIZE, 1, 2, 3, 4, 5, b"b" * 16, 6, 7)
METRICS = [0.5, *[math.nan] * 7]


def front_with(*states: tuple[int, bytes]) -> bytes:
    front = bytearray(wire_format.FRONT)
    for number, record in states:
        offset = wire_format.STATES[number & 1]
        front[offset : offset + len(record)] = record
    return bytes(front)


def state(number: int, epoch: int = 4) -> bytes:
    return wire_format.pack_state(
        wire_format.pack_head(number, 11, 22, 33, 44, 9, epoch, 1, 0), wire_format.pack_tail(METRICS)
    )


def test_regions_do_not_overlap() -> None:
    regions = [
        (0, wire_format.HEADER.size),
        *((offset, wire_format.STATE_SIZE) for offset in wire_format.STATES),
        (wire_format.EVENT_HEAD, 8),
        *((offset, wire_format.TEXT_HEADER.size) for offset in wire_format.DESCRIPTIONS),
        *((offset, wire_format.MEMORY_ROOM) for offset in wire_format.MEMORY),
        (wire_format.EVENTS, wire_format.EVENT_COUNT * wire_format.EVENT_SIZE),
        *((offset, wire_format.TEXT_ROOM) for offset in wire_format.TEXTS),
    ]
    regions.sort()
    ends = [offset + length for offset, length in regions]
    assert all(end <= offset for end, (offset, _) in zip(ends, regions[1:], strict=False))
    assert ends[-1] <= wire_format.SIZE
    assert 4 + wire_format.EVENT_BODY.size <= wire_format.EVENT_SIZE
    assert wire_format.FRONT <= wire_format.EVENTS


def test_marks_are_those_of_the_frame() -> None:
    assert {name: getattr(wire_format, name) for name in Mark.__members__} == {m.name: m.value for m in Mark}
    assert TRAIN == TRAINING


def test_a_header_comes_back() -> None:
    assert unpack_header(wire_format.pack_header(HEADER)) == HEADER


@pytest.mark.parametrize("at", [0, 9, 30, 83])
def test_a_damaged_header_is_refused(at: int) -> None:
    raw = bytearray(wire_format.pack_header(HEADER))
    raw[at] ^= 1
    with pytest.raises(BoardError):
        unpack_header(bytes(raw))


def test_the_newer_state_wins_and_comes_back_whole() -> None:
    found = unpack_state(front_with((7, state(7)), (8, state(8, epoch=5))))
    assert found is not None
    assert (found.number, found.epoch, found.step, found.wait_ns, found.epoch_monotonic_ns) == (8, 5, 33, 44, 9)
    assert found.metrics[0] == 0.5
    assert math.isnan(found.metrics[1])


def test_a_torn_state_gives_way_to_the_one_before() -> None:
    torn = bytearray(state(8))
    torn[60] ^= 1
    found = unpack_state(front_with((7, state(7)), (8, bytes(torn))))
    assert found is not None
    assert found.number == 7


def test_a_board_without_a_state_has_none() -> None:
    assert unpack_state(bytes(wire_format.FRONT)) is None
    assert unpack_state(b"") is None


def test_an_event_is_found_by_its_number_only() -> None:
    logged = (0.5, *[1.0] * 7)
    event = wire_format.Event(wire_format.OUT_OF_MEMORY, 1, 300, 11, 22, 33, 44, -1, 9, 2**40, 5, logged)
    ring = bytearray(wire_format.EVENT_COUNT * wire_format.EVENT_SIZE)
    offset = wire_format.event_offset(300) - wire_format.EVENTS
    record = wire_format.pack_event(event)
    ring[offset : offset + len(record)] = record
    more = bytearray(wire_format.EVENT_COUNT * wire_format.SUPPLEMENT_SIZE)
    offset = wire_format.supplement_offset(300) - wire_format.SUPPLEMENTS
    more[offset : offset + wire_format.SUPPLEMENT_SIZE] = wire_format.pack_supplement(event)
    assert unpack_event(bytes(ring), 300, bytes(more)) == event
    assert unpack_event(bytes(ring), 300 - wire_format.EVENT_COUNT, bytes(more)) is None
    assert unpack_event(b"", 300, bytes(more)) is None
    assert unpack_event(bytes(ring), 300, b"") is None


HELD = (
    wire_format.Memory(0, wire_format.device_mark("GPU-a"), 10, 20, 15, 11, 3, 9, 1, 2),
    wire_format.Memory(1, wire_format.device_mark("GPU-b"), 30),
)


def front_with_memory(number: int, record: bytes) -> bytes:
    front = bytearray(wire_format.FRONT)
    offset = wire_format.MEMORY[number & 1]
    front[offset : offset + len(record)] = record
    return bytes(front)


def test_framework_memory_survives_packing_and_missing_values_are_unknown() -> None:
    assert unpack_memory(front_with_memory(3, wire_format.pack_memory(3, 77, HELD))) == (77, HELD)
    assert HELD[1].reserved == wire_format.NOT_KNOWN
    assert unpack_memory(bytes(wire_format.FRONT)) == (0, ())


def test_a_torn_record_of_memory_gives_way_to_the_one_before() -> None:
    front = bytearray(front_with_memory(1, wire_format.pack_memory(1, 11, HELD[:1])))
    newer = bytearray(wire_format.pack_memory(2, 22, HELD))
    front[wire_format.MEMORY[0] : wire_format.MEMORY[0] + len(newer)] = newer
    assert unpack_memory(bytes(front))[0] == 22
    front[wire_format.MEMORY[0] + 30] ^= 1
    assert unpack_memory(bytes(front)) == (11, HELD[:1])


def test_memory_of_at_most_sixteen_devices_is_packed() -> None:
    many = [wire_format.Memory(i, i, i) for i in range(100)]
    record = wire_format.pack_memory(1, 1, many)
    assert len(record) <= wire_format.MEMORY_ROOM
    assert len(unpack_memory(front_with_memory(1, record))[1]) == wire_format.MAX_MEMORY


@given(st.binary(max_size=wire_format.MEMORY_ROOM))
def test_hostile_bytes_are_no_memory_record(raw: bytes) -> None:
    monotonic, devices = unpack_memory(front_with_memory(1, raw))
    assert (monotonic, devices) == (0, ()) or len(devices) <= wire_format.MAX_MEMORY


def test_a_device_is_known_by_a_number_that_is_never_nothing() -> None:
    assert wire_format.device_mark("") == 0
    assert wire_format.device_mark("GPU-a") != wire_format.device_mark("GPU-b") != 0


def test_the_newer_description_is_offered_first() -> None:
    front = bytearray(wire_format.FRONT)
    for version in (4, 5):
        where = wire_format.DESCRIPTIONS[version & 1]
        front[where : where + 16] = wire_format.pack_text_header(version, b"{}")
    assert [version for version, *_ in text_versions(bytes(front))] == [5, 4]


def test_a_description_comes_back() -> None:
    said = Description(
        "a", "a-1", "torch", 3, 1, 8, ("GPU-x",), "0,1", "PCI_BUS_ID", 90, 5, 1, ("loss",), ("", "train", "test"),
        RunFacts(batch=32),
    )  # fmt: skip
    assert decode(encode(said)) == said


def test_the_longest_description_has_room() -> None:
    wide = "\U0001f525" * 1000
    said = Description(
        wide, wide, wide, 2**31 - 1, 2**31 - 1, 2**31 - 1, ("GPU-" + "x" * 100,) * 99, wide, wide, 2**31 - 1, 0, 1,
        (wide,) * 99, (wide,) * 99,
    )  # fmt: skip
    text = encode(said)
    assert len(text) <= wire_format.TEXT_ROOM
    assert len(decode(text).phases) == MAX_PHASES


@pytest.mark.parametrize(
    "text",
    [b"", b"[]", b"null", b"\xff", b"[" * 7000, b'{"epochs":' + b"1" * 7000 + b"}", b'{"name": "\\ud800"'],
    ids=["empty", "list", "null", "no-utf8", "deep", "huge-number", "cut"],
)
def test_invalid_descriptions_are_refused(text: bytes) -> None:
    with pytest.raises(BoardError):
        decode(text)


def test_fields_of_a_wrong_type_read_as_absent() -> None:
    wrong = {name: {"a": 1} for name in Description._fields}
    assert decode(json.dumps(wrong).encode()) == Description("", "", phases=())
    odd = {"epochs": 2**40, "rank": -1, "world_size": 0, "metrics": [1, "b"], "devices": 7}
    many = decode(json.dumps(odd).encode())
    assert (many.epochs, many.rank, many.world_size, many.metrics, many.devices) == (0, 0, 1, ("", "b"), ())


def test_names_are_cleaned() -> None:
    said = decode(json.dumps({"name": "a\x1b[31m", "phases": ["", "\u202e"]}).encode())
    assert "\x1b" not in said.name
    assert "\u202e" not in said.phases[1]


LEAVES = st.none() | st.booleans() | st.floats() | st.integers() | st.text()


@given(st.recursive(LEAVES, lambda x: st.lists(x) | st.dictionaries(st.text(), x)))
def test_any_json_reads_as_a_description(found: object) -> None:
    text = json.dumps(dict.fromkeys(Description._fields, found))
    decode(text.encode())
