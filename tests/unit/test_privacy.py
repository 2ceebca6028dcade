"""Names of people, and texts that people wrote, where names are not shown."""

from __future__ import annotations

import pytest

from gpumon.common.privacy import HASHED, HIDDEN, SHOWN, SOMEBODY, People, contains_user_name
from gpumon.export.snapshot import UserNames


@pytest.mark.parametrize(
    ("text", "user", "named"),
    [
        ("/scratch/bob/ckpt", "bob", True),
        ("bob_v2-of-x", "BOB", True),
        ("bobsled, kebob, bob2", "bob", False),
        ("/home/zoe/x", "bob", True),
        ("/data/home/zoe/x", "", True),
        ("/homework", "", False),
        ("a b.*", "b.*", True),
        ("train_loss", "", False),
    ],
)
def test_a_user_is_named_by_a_whole_word_and_anybody_by_a_home(text: str, user: str, named: bool) -> None:
    assert contains_user_name(text, user) is named


@pytest.mark.parametrize("way", [HASHED, HIDDEN])
def test_texts_are_hidden_and_runs_are_told_apart(way: str) -> None:
    people = People(way, b"salt")
    assert {people.text("python"), people.text("/srv/x")} == {SOMEBODY}
    assert (people.text(""), people.run_id("")) == ("", "")
    assert people.run_id("net-1") == people.run_id("net-1") != people.run_id("net-2")
    assert people.run_id("net-1") != People(way, b"another").run_id("net-1")
    assert (people.label("SIMULATED"), people.label("REPLAY /srv/x.gz")) == ("SIMULATED", "REPLAY")


def test_nothing_is_hidden_where_names_are_shown() -> None:
    people = People(SHOWN)
    assert [people.text("x"), people.run_id("x"), people.name("x"), people.label("a b")] == ["x", "x", "x", "a b"]


@pytest.mark.parametrize("users", [UserNames.UID, UserNames.HASH, UserNames.OFF])
def test_the_exporter_hides_a_text_that_names_its_user(users: UserNames) -> None:
    assert (users.redact("bobs-pod", "bob"), users.redact("pod-of-bob", "bob")) == ("bobs-pod", SOMEBODY)
    assert users.run_id("net-1", "bob") == "net-1"
    assert users.run_id("bob-1", "bob") != users.run_id("bob-2", "bob")
    assert "bob" not in users.run_id("bob-1", "bob")
    assert UserNames.NAME.run_id("bob-1", "bob") == "bob-1"
