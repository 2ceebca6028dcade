"""The HTML document that shows all pages: their layouts, rendered on the server, and our scripts that fill them.

The document is complete without Dash, whose scripts a browser loads once a page that Dash draws is opened
(`dash.js`).
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import version

from dash import html

from gpumon_web.assets_bundle import Bundle
from gpumon_web.auth.http_errors import SIGN_OUT
from gpumon_web.components.layout import aria, data
from gpumon_web.components.page import Page
from gpumon_web.markup import to_html

ROOT = "react-entry-point"
"""Id of the element into which Dash draws."""
INDEX = """\
<!DOCTYPE html>
<html lang="en">
<head>
{%metas%}
<title>{%title%}</title>
{%favicon%}
{%css%}
</head>
<body>
{%app_entry%}
{%config%}
<template id="dash">{%scripts%}{%renderer%}</template>
</body>
</html>
"""
"""The document, with placeholders that Dash replaces. A browser runs nothing in a template."""
THEME_SCRIPT = """\
try { const theme = localStorage.getItem("gpumon-theme"); if (theme) document.documentElement.dataset.theme = theme; }
catch { /* storage is off: the theme of the system */ }"""
"""Applies the theme that a viewer has chosen, before anything is drawn."""
PAGE_SCRIPT = """\
{ const [name, id] = location.hash.replace(/^#\\/?/, "").split(/[/?]/);
  const section = (name) => document.querySelector(`[data-page="${CSS.escape(name)}"]`);
  const found = section(name) || document.querySelector("[data-page]");
  const { needsId, tabOf } = found.dataset;
  (needsId && !id ? section(tabOf) : found).hidden = false; }"""
"""Shows the page that the address names, before the other scripts have arrived; `router.js` does the rest."""
_PLOTLY = "_dash-component-suites/plotly/package_data/plotly.min.js"
INLINE_SCRIPTS = (THEME_SCRIPT, PAGE_SCRIPT)
_NO_SCRIPT = (
    "This page needs JavaScript, which is off in this browser. 'gpumon status' and 'gpumon top' show the same in a "
    "terminal."
)


def head_markup(styles: Bundle, scripts: Bundle, prefix: str) -> str:
    """Return the elements in the head of the document; the scripts run once the document has been parsed."""
    return (
        f'<meta name="plotly" content="{prefix}{_PLOTLY}?m={version("plotly")}">\n'
        f"<script>{THEME_SCRIPT}</script>\n"
        f'<link rel="stylesheet" href="{prefix}{styles.address}">\n'
        f'<script defer src="{prefix}{scripts.address}"></script>'
    )


def body_markup(pages: Mapping[str, Page], *, signs_out: bool) -> str:
    """Return the elements of the body, with the layout of every page."""
    return f"{to_html(skeleton(pages, signs_out=signs_out))}\n<script>{PAGE_SCRIPT}</script>"


def skeleton(pages: Mapping[str, Page], *, signs_out: bool) -> html.Div:
    """Return the elements of all pages, without values: the scripts fill them."""
    # Dash insists on its element, also where it draws nothing.
    no_dash = [] if any(page.is_dash for page in pages.values()) else [html.Div(id=ROOT)]
    return html.Div(
        id="app",
        children=[
            html.A("Skip to content", href="#main", id="skip", className="skip"),
            html.Header(
                className="top",
                children=[
                    html.A(
                        className="brand",
                        href=f"#/{next(iter(pages))}",
                        children=[html.Span(className="logo", **aria(hidden="true")), html.Span("gpumon")],
                    ),
                    html.Span(id="hostname", className="host", hidden=True),
                    html.Nav(
                        className="tabs",
                        **aria(label="Pages"),
                        children=[
                            html.A(page.title, href=f"#/{page.name}", id=f"tab-{page.name}", **data(tab=page.name))
                            for page in pages.values()
                            if page.is_tab
                        ],
                    ),
                    html.Span(id="label", className="label", hidden=True),
                    # Without data, the visible text changes every second, the hidden one only with the state.
                    html.Span("connecting", id="live", className="live", **aria(hidden="true")),
                    html.Span(id="said", className="sr", role="status"),
                    html.Button(
                        [html.I(className="bell", **aria(hidden="true")), html.Span("Notify", className="word")],
                        id="notify",
                        className="icon",
                        type="button",
                        **aria(pressed="false", label="Notify"),
                    ),
                    html.Button(id="theme", className="icon", type="button", title="Light or dark"),
                ],
            ),
            html.Noscript(html.P(_NO_SCRIPT, className="problem")),
            html.Div(id="player", className="player", role="region", hidden=True, **aria(label="Playback")),
            html.P(id="problem", className="problem", hidden=True, role="alert"),
            html.P(id="notice", className="notice", hidden=True, role="status"),
            html.P(id="notified", className="notice", hidden=True, role="status"),
            html.Main(
                id="main",
                tabIndex="-1",
                children=[*(section(page) for page in pages.values()), *no_dash],
            ),
            *([_sign_out()] if signs_out else []),
        ],
    )


def section(page: Page) -> html.Section:
    """Return the section of a page, with its layout; its data attributes tell the scripts about the page."""
    attributes = data(
        page=page.name, title=page.title, tab_of=page.tab or page.name, args=" ".join(page.args),
        kept_args=" ".join((*page.args, *page.kept_args)), kept="1" if page.kept else "",
        dash="1" if page.is_dash else "", needs_id="1" if page.needs_id else "",
        without_gpus=page.without_gpus, subject=" ".join(page.subject),
    )  # fmt: skip
    layout = html.Div(id=ROOT) if page.is_dash else page.layout()
    return html.Section(layout, id=f"page-{page.name}", className="page", hidden=True, **attributes)


def _sign_out() -> html.Footer:
    """Return the sign-out button: a plain form, because a script could be tricked into sending it."""
    button = html.Button("Sign out", type="submit", className="button")
    return html.Footer(html.Form(button, action=SIGN_OUT.lstrip("/"), method="post"), className="foot")
