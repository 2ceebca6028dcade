"""Names of known users in texts that others wrote."""

from __future__ import annotations

import pickle

import pytest

from gpumon.common.privacy import HASHED, HIDDEN, LONGEST, MOST, SHOWN, KnownUsers, People

USERS = ("bob", "bob.smith", "Zoë", "lr", "a")


def people(*users: str, way: str = HIDDEN) -> People:
    return People(way, b"salt", known=KnownUsers(users))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("/scratch/bob/ckpt", "/scratch/hidden/ckpt"),
        ("bob_v2-of-BOB", "hidden_v2-of-hidden"),
        ("ask bob.smith", "ask hidden"),
        ("ask ZOË", "ask hidden"),
        ("bobsled, kebob, bob2", "bobsled, kebob, bob2"),
        ("/home/zoe/bob", "/home/hidden/hidden"),
        ("lr_max of lr", "lr_max of hidden"),
        ("a_b-a", "a_b-hidden"),
    ],
)
def test_a_name_is_replaced_where_it_is_a_whole_word_or_part_of_a_path(text: str, told: str) -> None:
    assert people(*USERS).words(text) == told
    assert people(*USERS, way=SHOWN).words(text) == text


@pytest.mark.parametrize("name", ["b.*", "x(", "[", "\\", "a|", "^", "(?P<home>", "}{", "İ", "ß"])
def test_a_name_of_any_letters_is_taken_as_it_is(name: str) -> None:
    assert people(name, "bob").words(f"/data/{name}/bob and all the rest") == "/data/hidden/hidden and all the rest"


def test_names_that_tell_nobody_are_left() -> None:
    text = "data_root /root/x at 1000, 17"
    assert people("", "root", "1000", "17").words(text) == text
    assert people().words("/srv/root/x", "root") == "/srv/hidden/x", "in runs of their own they are replaced"


def test_a_hash_is_that_of_the_name_and_is_not_searched_again() -> None:
    known = people("user", "Bob", way=HASHED)
    assert known.words("bob") == known.alias("Bob")
    assert known.words("user bob", "user") == f"{known.alias('user')} {known.alias('Bob')}"
    assert known.words("hidden user") == f"hidden {known.alias('user')}"


def test_a_user_is_sought_from_when_they_are_met() -> None:
    known = people()
    assert known.words("after bob") == "after bob"
    known.meet(["bob"])
    assert known.words("after bob") == "after hidden"
    assert pickle.loads(pickle.dumps(known)).words("after bob") == "after hidden"


def test_no_file_of_a_stranger_makes_the_names_endless() -> None:
    known = KnownUsers(["x" * (LONGEST + 1)])
    assert not known.names
    known.meet(f"user{number}" for number in range(2 * MOST))
    known.meet(["bob"])
    assert len(known.names) == MOST
