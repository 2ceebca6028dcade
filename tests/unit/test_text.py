"""Text of strangers, made harmless."""

from __future__ import annotations

import re
import unicodedata

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gpumon.common.text import clean

# Written down apart from the code: what moves a cursor, turns the direction of text, or cannot be seen.
BIDIRECTIONAL = {0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A)}
INVISIBLE = {
    0x00AD,
    0x180E,
    *range(0x200B, 0x200E),
    0x2028,
    0x2029,
    *range(0x2060, 0x2066),
    *range(0x206A, 0x2070),
    0xFEFF,
}
TAGS = set(range(0xE0000, 0xE0080))
MARKS = re.compile("[\u0300-\u036f\u0483-\u0489\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\ufe20-\ufe2f]{3}")
HARMFUL = sorted(BIDIRECTIONAL | INVISIBLE | TAGS | set(range(0x20)) | set(range(0x7F, 0xA0)) | {0xD800, 0xDFFF})

strangers = st.text(
    st.one_of(
        st.characters(), st.sampled_from([chr(code) for code in HARMFUL]), st.sampled_from("\u0301\u0302\u20dda[")
    )
)


def is_harmful(character: str) -> bool:
    code = ord(character)
    return unicodedata.category(character) in ("Cc", "Cs", "Zl", "Zp") or code in BIDIRECTIONAL | INVISIBLE | TAGS


@given(strangers)
@example("\x1b]0;owned\x07")
@example("a" + "\u0301" * 40 + "b")
@example("\ud800\udfff")
def test_nothing_harmful_comes_through(text: str) -> None:
    cleaned = clean(text)
    assert not any(is_harmful(character) for character in cleaned)
    assert not MARKS.search(cleaned)
    cleaned.encode("utf-8")


@given(strangers, st.integers(0, 300))
def test_the_text_is_bounded(text: str, limit: int) -> None:
    assert len(clean(text, limit)) <= limit


@given(strangers)
def test_clean_text_stays_as_it_is(text: str) -> None:
    assert clean(clean(text)) == clean(text)


@given(st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E), max_size=256))
def test_plain_text_comes_through_unchanged(text: str) -> None:
    assert clean(text) == text


@pytest.mark.parametrize("code", HARMFUL)
def test_each_harmful_character_is_spelled_out(code: int) -> None:
    cleaned = clean(f"a{chr(code)}b")
    assert cleaned.isascii()
    assert cleaned.startswith("a\\")
    assert f"{code:x}" in cleaned


@pytest.mark.parametrize(
    "text", ["訓練モデル", "naïve façade", "пример", "é" + "a\u0301", "👍", "[red]x[/]", "<b>&amp;", "100 %"]
)
def test_letters_of_all_languages_and_markup_stay_for_the_view_to_show_plainly(text: str) -> None:
    assert clean(text) == text


def test_a_tower_of_marks_keeps_its_first_two() -> None:
    assert clean("z" + "\u0301\u0302\u0303" * 9 + "y") == "z\u0301\u0302y"


def test_a_huge_text_costs_no_more_than_its_beginning() -> None:
    assert clean("x" * 10**7, 64) == "x" * 64


def test_an_escape_may_be_cut_but_never_revived() -> None:
    assert clean("abc\x1b", 5) == "abc\\x"


@pytest.mark.parametrize(
    "text",
    [
        "a\U000e0100b",
        "a\U0001d173b",
        "a\u3164b",
        "a\u115fb",
        "a\u2800b",
        "a\xa0b",
        "alice\u3000",
        "👩\u200d💻",
        "ก" + "\u0e49" * 20,
    ],
)
def test_rarer_invisible_and_stacking_characters_are_spelled_out(text: str) -> None:
    assert clean(text) != text
