"""The devices of a run, and which claims to devices are accepted."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpumon.common.clock import SECOND
from gpumon.model.device import Device
from gpumon.model.frame import Run, RunState, Sample
from gpumon.model.metrics import PROCESSES, Availability
from gpumon.model.process import Process
from gpumon.tracking.board_directory import BudgetOwners
from gpumon.tracking.context import visible_uuids
from gpumon.tracking.matching import _MAX_CLAIMS, Claim, Match, UnprovenClaims, assign_runs, match_devices

ONE, TWO, MIG = "GPU-1111-aaaa", "GPU-2222-bbbb", "MIG-3333-cccc"
DEVICES = [Device(ONE, 0, "H200"), Device(TWO, 1, "H200"), Device(MIG, 2, "H200 MIG")]
MIXED = [Device(ONE, 0, "H200"), Device(TWO, 1, "T4")]


def process(pid: int, uuid: str, user: str) -> Process:
    return Process(pid, uuid, "compute", "python", user)


def claim(pid: int = 7, devices: tuple[str, ...] = (), visible: str = "", order: str = "", ranks: int = 1) -> Claim:
    return Claim(pid, 1000, "ann", devices, visible, order, ranks)


def test_claimed_devices_precede_listed_ones() -> None:
    found = match_devices(claim(devices=(TWO,)), DEVICES, [process(7, ONE, "ann"), process(7, TWO, "ann")])
    assert (found.devices, found.refused) == ((TWO,), "")


@pytest.mark.parametrize("uuid", ["GPU-1111", "GPU-1111-aaaa", "MIG-1111-aaaa"])
def test_a_claim_may_be_shortened_or_have_the_other_prefix(uuid: str) -> None:
    assert match_devices(claim(devices=(uuid,)), DEVICES, []).devices == (ONE,)


def test_an_ambiguous_or_unknown_claim_finds_nothing() -> None:
    assert match_devices(claim(devices=("GPU-",)), DEVICES, []).devices == ()
    assert match_devices(claim(devices=("GPU-9999",)), DEVICES, []).devices == ()


def test_a_gpu_that_only_others_use_is_refused_with_a_reason() -> None:
    found = match_devices(claim(devices=(ONE,)), DEVICES, [process(8, ONE, "bob")])
    assert found.devices == ()
    assert "ann" in found.refused


@pytest.mark.parametrize(
    "there", [[], [process(7, ONE, "")], [process(9, ONE, "")], [process(9, ONE, "ann"), process(8, ONE, "bob")]]
)
def test_a_claim_without_contradiction_is_accepted(there: list[Process]) -> None:
    assert match_devices(claim(devices=(ONE,)), DEVICES, there).devices == (ONE,)


def test_without_a_claim_the_driver_lists_the_devices() -> None:
    assert match_devices(claim(), DEVICES, [process(7, TWO, "ann"), process(8, ONE, "ann")]).devices == (TWO,)
    assert match_devices(claim(pid=0), DEVICES, [process(0, TWO, "ann")]).devices == ()


@pytest.mark.parametrize(
    ("devices", "visible", "order", "ranks", "expected"),
    [
        (DEVICES[:2], "1", "", 1, (TWO,)),
        (DEVICES[:2], "1,0", "", 1, (TWO, ONE)),
        (DEVICES[:2], "1,-1,0", "", 1, (TWO,)),
        (DEVICES[:2], "1,99,0", "", 1, (TWO,)),  # as CUDA reads it, the first that means none ends the list
        (DEVICES[:2], "99,1", "", 1, ()),
        (DEVICES[:2], "0,1,0", "", 1, ()),  # of a list that names one twice nothing is visible
        (DEVICES[:2], "1,GPU-1111,0", "", 1, (TWO,)),
        (DEVICES[:2], "0,1", "", 2, ()),
        (DEVICES[:2], "1", "", 2, (TWO,)),
        (MIXED, "1", "", 1, ()),
        (MIXED, "1", "PCI_BUS_ID", 1, (TWO,)),
        (MIXED, "", "PCI_BUS_ID", 1, ()),
        (MIXED, "9" * 300, "PCI_BUS_ID", 1, ()),
    ],
)
def test_numbers_are_used_only_if_they_are_driver_numbers(
    devices: list[Device], visible: str, order: str, ranks: int, expected: tuple[str, ...]
) -> None:
    assert match_devices(claim(visible=visible, order=order, ranks=ranks), devices, []).devices == expected


@pytest.mark.parametrize(
    ("visible", "expected"),
    [
        ("GPU-2222,GPU-1111", (TWO, ONE)),
        ("GPU-2222,GPU-9999,GPU-1111", (TWO,)),
        ("GPU-2222,0,GPU-1111", (TWO,)),
        ("GPU-2222,GPU-2222-bbbb", ()),
        ("GPU-,GPU-1111", ()),
        ("MIG-3333,GPU-1111", (MIG, ONE)),
    ],
)
def test_uuids_of_the_environment_are_read_as_cuda_reads_them(visible: str, expected: tuple[str, ...]) -> None:
    named = claim(devices=visible_uuids(visible), visible=visible)
    assert match_devices(named, DEVICES, []).devices == expected


def test_an_unknown_device_of_a_framework_does_not_hide_the_next() -> None:
    assert match_devices(claim(devices=("GPU-9999", TWO)), DEVICES, []).devices == (TWO,)


def test_numbers_of_another_pid_namespace_are_ignored() -> None:
    elsewhere = claim(visible="1")._replace(is_numbered_here=False)
    assert match_devices(elsewhere, DEVICES[:2], []).devices == ()
    assert match_devices(elsewhere, DEVICES[:2], [process(7, ONE, "ann")]).devices == (ONE,)
    assert match_devices(elsewhere._replace(devices=(TWO,)), DEVICES[:2], []).devices == (TWO,), "a UUID is the same"


LISTLESS = Device(ONE, 0, "H200", missing={PROCESSES: Availability.NO_PERMISSION})


@pytest.mark.parametrize(
    ("there", "device", "whole", "expected"),
    [
        ([], DEVICES[0], True, ()),
        ([process(8, TWO, "ann")], DEVICES[0], True, ()),
        ([process(7, ONE, "ann")], DEVICES[0], True, (ONE,)),
        ([process(9, ONE, "ann")], DEVICES[0], True, (ONE,)),  # one that the training started
        ([process(9, ONE, "")], DEVICES[0], True, (ONE,)),  # whose it is nobody knows
        ([], LISTLESS, True, (ONE,)),
        ([], DEVICES[0], False, (ONE,)),  # in a container
    ],
)
def test_an_expired_claim_needs_a_process_of_its_user(
    there: list[Process], device: Device, whole: bool, expected: tuple[str, ...]
) -> None:
    for named in (claim(devices=(ONE,)), claim(visible="0")):
        found = match_devices(named, [device], there, expired=[ONE], is_complete=whole)
        assert found.devices == expected
        assert bool(found.unproven) == (not expected)


def test_listed_devices_precede_a_claim_without_a_process() -> None:
    found = match_devices(claim(devices=(ONE,)), DEVICES, [process(7, TWO, "ann")])
    assert (found.devices, found.unproven) == ((TWO,), (ONE,))
    several = [process(7, TWO, "ann"), process(9, ONE, "ann")]
    assert match_devices(claim(devices=(ONE,)), DEVICES, several).devices == (ONE,), "it may have started the other"


def test_unproven_time_is_counted_over_all_runs_of_a_user() -> None:
    claims, alone = UnprovenClaims(), Match((ONE,), unproven=(ONE,))
    for second in range(0, 61, 20):
        claims.update(1000, alone, second * SECOND)
    assert claims.expired(1000, [ONE, TWO]) == []
    claims.update(1000, alone, 61 * SECOND)
    assert (claims.expired(1000, [ONE, TWO]), claims.expired(1001, [ONE])) == ([ONE], [])
    unlisted = match_devices(claim(devices=(ONE,)), [LISTLESS], [])
    claims.update(1000, unlisted, 62 * SECOND)
    assert claims.expired(1000, [ONE]) == [ONE], "a list that cannot be read for a moment proves nothing"
    listed = match_devices(claim(devices=(ONE,)), DEVICES, [process(7, ONE, "ann")])
    claims.update(1000, listed, 62 * SECOND)
    assert claims.expired(1000, [ONE]) == [], "the driver lists a process of the user"
    claims.update(1000, alone, 63 * SECOND)
    claims.forget(64 * SECOND + 3600 * SECOND)
    assert not claims._times


def test_unproven_time_is_counted_over_subordinate_uids(tmp_path: Path) -> None:
    (tmp_path / "subuid").write_text("4321:200000:65536\n")
    claims, alone = UnprovenClaims(BudgetOwners(str(tmp_path / "subuid"))), Match((ONE,), unproven=(ONE,))
    for second in range(70):
        claims.update(200_000 + second, alone, second * SECOND)
    assert [claims.expired(uid, [ONE]) for uid in (4321, 200_000, 265_535, 265_536)] == [[ONE], [ONE], [ONE], []]
    assert len(claims._times) == 1


def test_many_claims_do_not_evict_unproven_times() -> None:
    claims = UnprovenClaims()
    for second in (0, 61):
        claims.update(1, Match(unproven=(ONE,)), second * SECOND)
    for uid in range(2, _MAX_CLAIMS + 10):
        claims.update(uid, Match(unproven=(ONE,)), 61 * SECOND)
    assert len(claims._times) == _MAX_CLAIMS
    assert claims.expired(1, [ONE]) == [ONE]
    assert claims.expired(_MAX_CLAIMS + 20, [ONE]) == [ONE], "there is no room to measure the time of another user"
    assert claims.expired(2, [ONE]) == []


def test_claims_by_number_can_be_refused() -> None:
    assert match_devices(claim(visible="0"), DEVICES[:2], [process(8, ONE, "bob")]).refused


def run(key: str, started: float, gpus: tuple[str, ...], state: RunState = RunState.RUNNING) -> Run:
    return Run(key, key, key, 1, "ann", gpus=gpus, started=started, state=state)


def test_a_device_gets_the_newest_running_run() -> None:
    samples = [Sample(device, Availability.OK, ()) for device in DEVICES]
    runs = [run("inner", 2, (ONE,)), run("outer", 1, (ONE, TWO)), run("over", 3, (ONE,), RunState.FINISHED)]
    assert [sample.run for sample in assign_runs(samples, runs)] == ["inner", "outer", ""]
