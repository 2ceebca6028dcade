"""An id of a run is one user's: what another user gives the same id to is another run."""

from __future__ import annotations

from gpumon.tags.description import ID_LENGTH
from gpumon.tags.run_ids import Named, RunIds

ALICE, MALLORY = 1001, 1004


def unasked(pid: int) -> int:
    raise AssertionError("no process is asked where no two users have an id")


def test_ranks_of_one_user_have_one_id() -> None:
    ids = RunIds()
    ranks = [Named("net-1", ALICE, 7), Named("net-1", ALICE, 8), Named("other", MALLORY, 9)]
    assert ids.of(ranks, unasked) == ["net-1", "net-1", "other"]


def test_an_id_is_his_who_had_it_first_until_he_has_no_run_with_it() -> None:
    ids = RunIds()
    hers, his = Named("net-1", ALICE, 7), Named("net-1", MALLORY, 6)
    assert ids.of([hers], unasked) == ["net-1"]
    assert ids.of([his, hers], {6: 100, 7: 200}.__getitem__) == ["net-1~1004", "net-1"], "whoever began first"
    assert ids.of([hers], unasked) == ["net-1"]
    assert ids.of([his], unasked) == ["net-1"]


def test_of_two_that_are_new_at_once_the_process_that_began_first_has_it() -> None:
    for pids in ([6, 7], [7, 6]):
        runs = [Named("net-1", ALICE if pid == 7 else MALLORY, pid) for pid in pids]
        found = RunIds().of(runs, {7: 100, 6: 200}.__getitem__)
        assert found == ["net-1" if pid == 7 else "net-1~1004" for pid in pids]


def test_a_process_that_is_gone_has_an_id_after_one_that_runs() -> None:
    runs = [Named("net-1", MALLORY, 0), Named("net-1", 1003, 5), Named("net-1", ALICE, 7)]
    assert RunIds().of(runs, {5: 0, 7: 100}.__getitem__) == ["net-1~1004", "net-1~1003", "net-1"]


def test_a_long_id_stays_as_long() -> None:
    id = "n" * ID_LENGTH
    _, found = RunIds().of([Named(id, ALICE, 7), Named(id, MALLORY, 8)], {7: 1, 8: 2}.__getitem__)
    assert (len(found), found[-5:]) == (ID_LENGTH, "~1004")


def test_runs_without_an_id_stay_without_one() -> None:
    assert RunIds().of([Named("", ALICE, 7), Named("", MALLORY, 8)], {7: 1, 8: 2}.__getitem__) == ["", ""]
