"""What commands say of themselves on a terminal."""

from __future__ import annotations

from gpumon.cli.streams import of_words


def test_a_line_breaks_between_words_and_a_path_stays_whole() -> None:
    path = "/a/directory/with/a/name/that/no/terminal/has/room/for"
    assert of_words(f"cannot read {path}: it is not there", 20) == f"cannot read\n{path}:\nit is not there"
    assert of_words("one\n two  three", 40) == "one\n two  three"
