"""Faults and links from the slow batch of fields; no driver, no process."""

from __future__ import annotations

import ctypes
import struct
from typing import Any

import pynvml
import pytest

from gpumon.model.metrics import Availability
from gpumon.sources.nvml.fields import FAULTS, LINK_COUNT, LINK_ERRORS, LINK_STATE
from gpumon.sources.nvml.slow_fields import METRICS, SlowFields
from gpumon.sources.nvml.values import DeviceValues
from tests.fakes import FakeClock
from tests.nvml.signatures import CheckedLibrary, buffer_of

HANDLE = ctypes.c_void_p(1)
UINT, ULL, INT = 1, 3, 5
FORMATS = {UINT: "=I", ULL: "=Q", INT: "=i"}
NOT_SUPPORTED, NO_PERMISSION = int(pynvml.NVML_ERROR_NOT_SUPPORTED), int(pynvml.NVML_ERROR_NO_PERMISSION)
INACTIVE, ACTIVE, ASLEEP, WITHOUT_TRAFFIC = 0, 1, 2, 3
REPLAY, RECOVERY, CRC = 161, 162, 163


class Card:
    """A GPU whose fields the test sets, by id, or by id and link."""

    def __init__(self, links: int = 0) -> None:
        self.fields: dict[int | tuple[int, int], tuple[int, int]] = {
            **{field.id: (ULL, 0) for field in FAULTS},
            LINK_COUNT: (UINT, links),
        }
        for link in range(links):
            self.fields[LINK_STATE, link] = (UINT, ACTIVE)
            for id, _ in LINK_ERRORS.values():
                self.fields[id, link] = (ULL, 0)
        self.codes: dict[int | tuple[int, int], int] = {}
        self.states: list[int] = []
        """Answers of nvmlDeviceGetNvLinkState."""
        self.asked: list[int] = []
        """Number of fields in each call."""
        self.most = 1000
        """Fields that the driver takes in one call."""
        self.answers = DeviceValues(FakeClock(), {})
        self.library: Any = CheckedLibrary(
            {"nvmlDeviceGetFieldValues": self._values, "nvmlDeviceGetNvLinkState": self._state}
        )
        batch = SlowFields.from_library(self.library)
        assert batch is not None
        self.batch = batch

    def read(self) -> int:
        """The code of one read."""
        return self.batch(HANDLE, self.answers)

    def __getitem__(self, metric: str) -> float | Availability:
        """A value, or why it is missing."""
        name = f"gpu.{metric}"
        assert (name in self.answers.values) != (name in self.answers.missing)
        return self.answers.values.get(name, self.answers.missing.get(name, Availability.OK))

    def _values(self, _: Any, count: Any, batch: Any) -> int:
        self.asked.append(count.value)
        if count.value > self.most:
            return int(pynvml.NVML_ERROR_UNKNOWN)
        for i in range(count.value):
            entry = batch[i]
            key = (entry.fieldId, entry.scopeId)
            known = self.fields.get(key) or (self.fields.get(entry.fieldId) if entry.scopeId == 0 else None)
            entry.nvmlReturn = self.codes.get(key) or self.codes.get(key[0]) or (0 if known else NOT_SUPPORTED)
            if known:
                entry.valueType = known[0]
                raw = struct.pack(FORMATS[known[0]], known[1]).ljust(8, b"\0")
                ctypes.memmove(ctypes.addressof(entry.value), raw, 8)
        return 0

    def _state(self, _: Any, link: Any, active: Any) -> int:
        if link.value >= len(self.states):
            return NOT_SUPPORTED
        buffer_of(active).value = self.states[link.value]
        return 0


def test_each_fault_is_the_number_of_its_field() -> None:
    card = Card()
    for place, field in enumerate(FAULTS):
        card.fields[field.id] = (UINT, place % 2)
    assert card.read() == 0
    assert [card.answers.values[field.metric] for field in FAULTS] == [place % 2 for place in range(len(FAULTS))]


def test_a_fault_that_the_driver_does_not_know_is_missing_alone() -> None:
    card = Card()
    del card.fields[230]
    card.codes[4] = NO_PERMISSION
    card.read()
    assert card["recovery_action"] is Availability.NOT_SUPPORTED
    assert card["ecc_uncorrected"] is Availability.NO_PERMISSION
    assert card["ecc_corrected"] == 0


@pytest.mark.parametrize(
    ("id", "metric", "value"),
    [
        (4, "ecc_uncorrected", (ULL, 2**64 - 1)), (4, "ecc_uncorrected", (UINT, 2**32 - 1)),
        (4, "ecc_uncorrected", (INT, -7)), (4, "ecc_uncorrected", (ULL, 2**60)), (144, "remapping_pending", (UINT, 2)),
        (145, "remapping_failed", (UINT, 17)), (LINK_COUNT, "nvlink_links", (UINT, 4096)),
        (LINK_COUNT, "nvlink_active", (UINT, 4096)),
    ],
)  # fmt: skip
def test_garbage_is_no_number(id: int, metric: str, value: tuple[int, int]) -> None:
    card = Card()
    card.fields[id] = value
    card.read()
    assert card[metric] is Availability.NOT_SUPPORTED


def test_a_driver_that_knows_no_field_is_not_supported() -> None:
    card = Card()
    card.fields.clear()
    assert card.read() == NOT_SUPPORTED
    assert not card.answers.values


def test_links_are_counted_by_their_states_within_one_call_more() -> None:
    card = Card(links=18)
    card.fields[LINK_STATE, 3] = (UINT, INACTIVE)
    card.fields[LINK_STATE, 4] = (UINT, WITHOUT_TRAFFIC)
    card.fields[LINK_STATE, 5] = (UINT, ASLEEP)
    card.read()
    assert (card["nvlink_links"], card["nvlink_active"]) == (18, 16)
    assert card.asked == [len(FAULTS) + 5, 4 * 18]
    card.read()
    assert len(card.asked) == 4


def test_a_driver_that_refuses_the_batch_of_links_gives_the_rest() -> None:
    card = Card(links=18)
    card.most = 40
    card.fields |= {52: (ULL, 5), 59: (ULL, 6), 38: (ULL, 7), 45: (ULL, 8)}
    card.read()
    assert (card["ecc_uncorrected"], card["nvlink_links"], card["nvlink_replays"]) == (0, 18, 5)
    assert card["nvlink_active"] is Availability.FAILED


@pytest.mark.parametrize("bad", ["state", "code"])
def test_links_of_which_one_is_not_known_are_not_counted(bad: str) -> None:
    card = Card(links=4)
    if bad == "state":
        card.fields[LINK_STATE, 2] = (UINT, 9)
    else:
        card.codes[LINK_STATE, 2] = NO_PERMISSION
    card.read()
    assert card["nvlink_links"] == 4
    assert card["nvlink_active"] is (Availability.NOT_SUPPORTED if bad == "state" else Availability.NO_PERMISSION)


def test_errors_are_those_of_the_links_that_are_up() -> None:
    card = Card(links=3)
    for link in range(3):
        card.fields[REPLAY, link] = (ULL, 10 + link)
    card.read()
    assert card["nvlink_replays"] == 33
    card.fields[LINK_STATE, 1] = (UINT, INACTIVE)
    card.codes[REPLAY, 1] = NOT_SUPPORTED
    card.read()
    assert card["nvlink_replays"] == 22


def test_errors_of_a_link_that_cannot_be_read_are_not_left_out_of_a_sum() -> None:
    card = Card(links=3)
    card.codes[CRC, 1] = NO_PERMISSION
    card.read()
    assert card["nvlink_crc_errors"] is Availability.NOT_SUPPORTED, "nor has the driver a total"
    assert card["nvlink_recoveries"] == 0


def test_a_driver_that_counts_no_errors_by_link_gives_its_totals() -> None:
    card = Card(links=2)
    for id in (REPLAY, RECOVERY, CRC):
        for link in range(2):
            del card.fields[id, link]
    card.fields |= {52: (ULL, 5), 59: (ULL, 6), 38: (ULL, 7), 45: (ULL, 8)}
    card.read()
    assert (card["nvlink_replays"], card["nvlink_recoveries"], card["nvlink_crc_errors"]) == (5, 6, 15)


def test_a_card_without_nvlink_says_so() -> None:
    card = Card()
    del card.fields[LINK_COUNT]
    card.read()
    for metric in ("nvlink_links", "nvlink_active", "nvlink_replays", "nvlink_crc_errors"):
        assert card[metric] is Availability.NOT_SUPPORTED


def test_without_a_field_for_states_links_are_asked_one_by_one_and_seldom() -> None:
    card = Card(links=6)
    for link in range(6):
        del card.fields[LINK_STATE, link]
    card.states = [1, 1, 0, 1, 1, 1]
    for _ in range(20):
        card.read()
        assert card["nvlink_active"] == 5
    assert card.library.calls.count("nvmlDeviceGetNvLinkState") == 12
    card.states = []
    for _ in range(10):
        card.read()
    assert card["nvlink_active"] is Availability.NOT_SUPPORTED


def test_links_that_come_and_go_are_asked_for() -> None:
    card = Card(links=2)
    card.read()
    card.fields |= {LINK_COUNT: (UINT, 4), (LINK_STATE, 2): (UINT, ACTIVE), (LINK_STATE, 3): (UINT, INACTIVE)}
    card.read()
    assert (card["nvlink_links"], card["nvlink_active"]) == (4, 3)
    card.fields[LINK_COUNT] = (UINT, 0)
    card.read()
    assert (card["nvlink_links"], card["nvlink_active"]) == (0, 0)


def test_a_call_that_fails_gives_its_code() -> None:
    card = Card()
    card.library.answers["nvmlDeviceGetFieldValues"] = NO_PERMISSION
    assert card.read() == NO_PERMISSION
    assert not card.answers.values


def test_the_row_names_what_the_batch_gives() -> None:
    card = Card(links=1)
    card.read()
    assert set(card.answers.values) == set(METRICS)


def test_what_is_as_before_is_given_again_after_all_was_forgotten_or_the_call_had_failed() -> None:
    card = Card(links=2)
    card.fields[4] = (ULL, 7)
    card.read()
    card.read()
    assert (card["ecc_uncorrected"], card["nvlink_active"]) == (7, 2)
    card.answers.clear()
    card.read()
    assert (card["ecc_uncorrected"], card["nvlink_active"]) == (7, 2)
    card.most = 0
    assert card.read() != 0
    for metric in METRICS:
        card.answers.set_missing(metric, Availability.FAILED)
    card.most = 1000
    card.read()
    assert (card.answers.values["gpu.ecc_uncorrected"], card.answers.values["gpu.nvlink_active"]) == (7, 2)
    card.fields[LINK_STATE, 1] = (UINT, INACTIVE)
    card.read()
    assert card.answers.values["gpu.nvlink_active"] == 1
