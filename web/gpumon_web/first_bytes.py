"""The first sight of every page, in the document itself until the scripts have put the page up: its head, and veils."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape

from gpumon_web.page import Page

_CARD = '<div class="card"><i></i></div>'

_NO_SCRIPT = (
    '<noscript><p class="problem">This page needs JavaScript, which is off in this browser. '
    "'gpumon status' and 'gpumon top' show the same in a terminal.</p></noscript>"
)


def first_bytes(pages: Mapping[str, Page]) -> str:
    """Return markup without ids, scripts or requests of its own, which the first script of the page takes away.

    The tabs are links already: the address that they set is the one that the scripts open.
    """
    tabs = "".join(
        f'<a href="#/{escape(page.name)}">{escape(page.title)}</a>' for page in pages.values() if page.is_tab
    )
    return (
        '<div class="first" aria-busy="true"><header class="top">'
        f'<a class="brand" href="#/{escape(next(iter(pages)))}"><span class="logo"></span><span>gpumon</span></a>'
        f'<nav class="tabs" aria-label="Pages">{tabs}</nav><span class="live">connecting</span></header>'
        f"<main>{_NO_SCRIPT}<i></i>{_CARD}{_CARD}</main></div>"
    )
