"""Renders a tree of Dash components as HTML, for pages that are shown before any script has run.

Texts and values of attributes are escaped. Whatever could run code or cannot be escaped raises MarkupError: components
other than HTML elements, scripts, styles, and addresses with a scheme.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from html import escape
from typing import Any

_NAMESPACE = "dash_html_components"
_ATTRIBUTES = {"className": "class", "htmlFor": "for", "tabIndex": "tabindex", "colSpan": "colspan"}
"""Names in HTML of properties that Dash names differently."""
_OF_DASH = frozenset(("children", "disable_n_clicks", "n_clicks", "key"))
"""Properties that are not attributes."""
_ADDRESSES = frozenset(("href", "src", "action", "formAction"))
_NAME = re.compile(r"[a-z][a-z0-9-]*")
_SCHEME = re.compile(r"[^/?#]*:")
_VOID = frozenset(("br", "hr", "img", "input", "wbr"))
"""Elements without an end tag."""
_RAW = frozenset(("script", "style", "iframe", "object", "embed", "base", "link", "meta"))
"""Elements whose content is not text, or that load something."""


class MarkupError(ValueError):
    """A component cannot be rendered as inert HTML."""


def to_html(tree: Any) -> str:
    """Return the HTML of a component, a text, a number, or a list of them; None is empty. Raises MarkupError."""
    return "".join(_parts(tree))


def _parts(tree: Any) -> Iterator[str]:
    if tree is None:
        return
    if isinstance(tree, (str, int, float)):
        yield escape(str(tree), quote=False)
    elif hasattr(tree, "to_plotly_json"):
        yield from _element(tree.to_plotly_json())
    elif isinstance(tree, Iterable):
        for child in tree:
            yield from _parts(child)
    else:
        raise MarkupError(f"not a component: {type(tree).__name__}")


def _element(component: dict[str, Any]) -> Iterator[str]:
    tag, properties = component["type"].lower(), component["props"]
    if component["namespace"] != _NAMESPACE or tag in _RAW:
        raise MarkupError(f"cannot be rendered as HTML: {component['namespace']}.{component['type']}")
    # Dash has `data-*` and `aria-*` in another order in each process.
    names = sorted(properties.keys() - _OF_DASH, key=lambda name: ("-" in name, name))
    attributes = (_attribute(name, properties[name]) for name in names)
    yield f"<{tag}{''.join(attributes)}>"
    if tag not in _VOID:
        yield from _parts(properties.get("children"))
        yield f"</{tag}>"


def _attribute(name: str, value: Any) -> str:
    """Return an attribute with a space before it; empty for a value that is missing or false."""
    if value is None or value is False:
        return ""
    name = _ATTRIBUTES.get(name, name)
    if _NAME.fullmatch(name) is None or name.startswith("on") or not isinstance(value, (str, int, float)):
        raise MarkupError(f"not an attribute: {name[:40]!r}")
    text = "" if value is True else str(value)
    if name in _ADDRESSES and _SCHEME.match(text):
        raise MarkupError(f"an address with a scheme: {text[:40]!r}")
    return f' {name}="{escape(text)}"'
