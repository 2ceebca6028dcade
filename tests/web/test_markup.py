"""Dash components as HTML: what a reader sees, and that no text, name or address can become code."""

from __future__ import annotations

from html.parser import HTMLParser
from typing import Any

import pytest
from dash import dcc, html
from hypothesis import given
from hypothesis import strategies as st

from gpumon_web.markup import MarkupError, to_html

HOSTILE = (
    "<script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "' onmouseover='alert(1)", "&lt;b&gt;",
    "</section><svg/onload=alert(1)>", "<!--", "]]>", "\x00<b>", "javascript:alert(1)", "{{7*7}}", "\u202e<i>",
)  # fmt: skip


class Read(HTMLParser):
    """What a browser reads: elements with their attributes, and texts."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


def test_elements_texts_and_attributes() -> None:
    tree = html.Section(
        ["before ", html.B(7), None, html.Ul(html.Li("x", hidden=True)), html.Br()],
        id="a", className="card", tabIndex="-1", **{"data-bind": "name", "aria-label": "A"},
    )  # fmt: skip
    assert to_html(tree) == (
        '<section class="card" id="a" tabindex="-1" aria-label="A" data-bind="name">'
        'before <b>7</b><ul><li hidden="">x</li></ul><br></section>'
    )


def test_false_and_missing_attributes_are_left_out() -> None:
    assert to_html(html.P(hidden=False, title=None)) == "<p></p>"


class TestHostile:
    @pytest.mark.parametrize("text", HOSTILE)
    def test_text_stays_text(self, text: str) -> None:
        read = Read(to_html(html.P([text, html.B(text)])))
        assert [tag for tag, _ in read.elements] == ["p", "b"]
        assert read.text == 2 * text

    @pytest.mark.parametrize("text", HOSTILE)
    def test_value_stays_a_value(self, text: str) -> None:
        read = Read(to_html(html.P(title=text, className=text, **{"data-name": text})))
        assert read.elements == [("p", {"title": text, "class": text, "data-name": text})]

    @given(st.text(alphabet=st.characters(exclude_characters="\r\x00", exclude_categories=["Cs"])))
    def test_any_text_stays_itself(self, text: str) -> None:
        read = Read(to_html(html.P(text, title=text)))
        assert (read.elements, read.text) == ([("p", {"title": text})], text)

    @pytest.mark.parametrize("name", ["data-x onload=alert(1)", "data-x>", "data-ä", "aria-'"])
    def test_name_of_an_attribute_is_refused(self, name: str) -> None:
        with pytest.raises(MarkupError):
            to_html(html.P(**{name: "1"}))

    @pytest.mark.parametrize("address", ["javascript:alert(1)", "JAVASCRIPT:x", "data:text/html,x", "https://x/y"])
    def test_address_with_a_scheme_is_refused(self, address: str) -> None:
        with pytest.raises(MarkupError):
            to_html(html.A("x", href=address))

    @pytest.mark.parametrize("address", ["#/run/a:b", "?a=b:c", "./x", "sign-out"])
    def test_relative_address_is_kept(self, address: str) -> None:
        assert Read(to_html(html.A("x", href=address))).elements == [("a", {"href": address})]

    @pytest.mark.parametrize(
        "component",
        [html.Script("alert(1)"), html.Base(href="x"), html.Iframe(src="x"), html.P(style={"color": "red"}),
         dcc.Markdown("<b>"), object()],
    )  # fmt: skip
    def test_what_is_no_text_is_refused(self, component: Any) -> None:
        with pytest.raises(MarkupError):
            to_html(component)
