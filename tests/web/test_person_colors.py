"""Colors of people: given once, the same for every viewer, and kept over restarts of the server."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpumon_web.components.person_colors import COLORS, MAX_USERS, PersonColors, add_past_users
from tests.builders import process, tick
from tests.runs import Book
from tests.web.served import Served


def test_who_comes_and_goes_changes_the_color_of_nobody_else() -> None:
    colors = PersonColors()
    before = colors.styles(["alice", "bob", "carol"])
    after = colors.styles(["aaron", "carol", "zoe"])
    assert {name: after[name] for name in before} == before
    assert colors.styles() == after


def test_people_who_are_there_together_differ() -> None:
    colors = PersonColors()
    for number in range(40):
        colors.styles([f"past{number}"])
    there = [f"user{number}" for number in range(COLORS)]
    found = colors.styles(there)
    assert len({found[name] % COLORS for name in there}) == COLORS
    more = colors.styles([*there, "one-more"])
    assert more["one-more"] not in [found[name] for name in there]


def test_a_restart_and_a_second_server_give_the_same(tmp_path: Path) -> None:
    path = str(tmp_path / "web-colors")
    first, second = PersonColors(path), PersonColors(path)
    found = first.styles(["bob", "alice"])
    assert second.styles(["carol"]).items() >= found.items()
    assert first.styles(["carol"]) == second.styles() == PersonColors(path).styles()
    assert (tmp_path / "web-colors").stat().st_mode & 0o077 == 0


@pytest.mark.parametrize(
    "content", [b"\xff\xfe", b"[]\n{}\n[1]\n", b'["a", "bob"]\n[99, "bob"]\n[-1, "bob"]\n[true, 3]\n', b"[" * 100_000]
)
def test_a_damaged_file_costs_the_colors_in_it_and_nothing_else(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "web-colors"
    path.write_bytes(content)
    found = PersonColors(str(path)).styles(["bob"])
    assert [*found] == ["bob"]


def test_strangers_do_not_fill_it() -> None:
    colors = PersonColors()
    for number in range(0, 2 * MAX_USERS, 100):
        colors.styles(f"user{at}" for at in range(number, number + 100))
    assert len(colors.styles(["x" * 10_000])) == MAX_USERS


def test_people_of_the_past_have_theirs_in_the_order_of_their_first_run(tmp_path: Path) -> None:
    with Book(tmp_path) as book:
        for number, user in enumerate(("zoe", "alice", "zoe", "bob")):
            book.run(f"net{number}-1a2b", user=user, started=(number + 1) * 10**9)
        path = str(book.path)
    colors = PersonColors()
    add_past_users(colors, [path], [])
    assert [*colors.styles()] == ["zoe", "alice", "bob"]


def test_every_viewer_is_told_the_same_whoever_is_there_when_they_come() -> None:
    served = Served([tick(1, processes=[process(1, user="bob"), process(2, user="alice")])])
    early = served.told()["server"]["places"]
    served.writer.append(tick(2, processes=[process(3, user="aaron"), process(2, user="alice")]))
    late = served.told()["server"]["places"]
    assert late["alice"] == early["alice"]
    assert {*late} == {"aaron", "alice", "bob"}
