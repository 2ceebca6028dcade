"""An id of a run is one user's: what another user gives the same id to is another run."""

from __future__ import annotations

import pytest

from gpumon.tracking import matching
from gpumon.tracking.description import ID_LENGTH
from gpumon.tracking.matching import RunIdentity, RunIds

ALICE, MALLORY = 1001, 1004


def unasked(pid: int) -> int:
    raise AssertionError("no process is asked where no two users have an id")


def test_ranks_of_one_user_have_one_id() -> None:
    ids = RunIds()
    ranks = [
        RunIdentity("net-1", ALICE, 7, "a"),
        RunIdentity("net-1", ALICE, 8, "b"),
        RunIdentity("other", MALLORY, 9, "c"),
    ]
    assert ids.resolve(ranks, unasked) == ["net-1", "net-1", "other"]


def test_an_id_is_his_who_had_it_first_until_he_has_no_run_with_it() -> None:
    ids = RunIds()
    hers, his = RunIdentity("net-1", ALICE, 7, "hers"), RunIdentity("net-1", MALLORY, 6, "his")
    assert ids.resolve([hers], unasked) == ["net-1"]
    assert ids.resolve([his, hers], {6: 100, 7: 200}.__getitem__) == ["net-1~1004", "net-1"], "whoever began first"
    assert ids.resolve([hers], unasked) == ["net-1"]
    assert ids.resolve([his], unasked) == ["net-1"]


def test_of_two_that_are_new_at_once_the_process_that_began_first_has_it() -> None:
    for pids in ([6, 7], [7, 6]):
        runs = [RunIdentity("net-1", ALICE if pid == 7 else MALLORY, pid, str(pid)) for pid in pids]
        found = RunIds().resolve(runs, {7: 100, 6: 200}.__getitem__)
        assert found == ["net-1" if pid == 7 else "net-1~1004" for pid in pids]


def test_a_process_that_is_gone_has_an_id_after_one_that_runs() -> None:
    runs = [
        RunIdentity("net-1", MALLORY, 0, "a"),
        RunIdentity("net-1", 1003, 5, "b"),
        RunIdentity("net-1", ALICE, 7, "c"),
    ]
    assert RunIds().resolve(runs, {5: 0, 7: 100}.__getitem__) == ["net-1~1004", "net-1~1003", "net-1"]


def test_a_long_id_stays_as_long() -> None:
    id = "n" * ID_LENGTH
    _, found = RunIds().resolve(
        [RunIdentity(id, ALICE, 7, "a"), RunIdentity(id, MALLORY, 8, "b")], {7: 1, 8: 2}.__getitem__
    )
    assert (len(found), found[-5:]) == (ID_LENGTH, "~1004")


def rank(
    key: str, number: int, began: float, *, is_over: bool = False, size: int = 2, id: str = "net-1"
) -> RunIdentity:
    return RunIdentity(id, ALICE, 7, key, number, size, began, is_over)


def test_each_attempt_of_a_launcher_is_a_run_of_its_own() -> None:
    ids = RunIds()
    first = [rank("a", 0, 1.0), rank("b", 1, 1.1)]
    assert ids.resolve(first, unasked) == ["net-1", "net-1"]
    over = [one._replace(is_over=True) for one in first]
    second = [rank("c", 1, 5.0), rank("d", 0, 5.1)]
    assert ids.resolve([*over, second[0]], unasked) == ["net-1", "net-1", "net-1~2"]
    assert ids.resolve([*over, *second], unasked) == ["net-1", "net-1", "net-1~2", "net-1~2"]
    assert ids.resolve(second, unasked) == ["net-1~2", "net-1~2"], "the first is not shown any more"
    assert ids.resolve([*second, rank("e", 0, 9.0)], unasked)[2] == "net-1~3", "whatever the second may look like"


def test_attempts_that_are_seen_at_once_are_told_apart_by_their_begin() -> None:
    for order in ([0, 1], [1, 0]):
        runs = [rank("a", 0, 1.0, is_over=True, size=1), rank("b", 0, 2.0, size=1)]
        found = RunIds().resolve([runs[place] for place in order], unasked)
        assert [found[order.index(place)] for place in (0, 1)] == ["net-1", "net-1~2"]


def test_a_rank_that_never_came_in_the_first_attempt_is_of_the_second() -> None:
    runs = [rank("a", 0, 1.0, is_over=True), rank("b", 0, 2.0), rank("c", 1, 2.1)]
    assert RunIds().resolve(runs, unasked) == ["net-1", "net-1~2", "net-1~2"]


def test_processes_that_share_an_id_and_know_no_rank_are_one_run() -> None:
    assert RunIds().resolve([rank("a", 0, 1.0, size=1), rank("b", 0, 2.0, size=1)], unasked) == ["net-1", "net-1"]


def test_an_attempt_that_counts_itself_is_not_taken_for_one_that_was_counted_here() -> None:
    runs = [rank("a", 0, 1.0, is_over=True), rank("b", 0, 2.0, is_over=True), rank("c", 0, 3.0, id="net-1~2")]
    assert RunIds().resolve(runs, unasked) == ["net-1", "net-1~2", "net-1~2~2"]


def test_runs_without_an_id_stay_without_one() -> None:
    assert RunIds().resolve(
        [RunIdentity("", ALICE, 7, "a"), RunIdentity("", MALLORY, 8, "b")], {7: 1, 8: 2}.__getitem__
    ) == ["", ""]


def test_thousands_of_attempts_are_told_apart_as_fast_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    compared = 0

    def count(one: RunIdentity, run: RunIdentity) -> bool:
        nonlocal compared
        compared += 1
        return is_earlier(one, run)

    is_earlier = matching._is_earlier
    monkeypatch.setattr(matching, "_is_earlier", count)
    runs = [rank(str(number), 0, float(number), is_over=True) for number in range(3000)]
    assert RunIds().resolve(runs, unasked)[-1] == "net-1~3000"
    assert compared < 2 * len(runs)
