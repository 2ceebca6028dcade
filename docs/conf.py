"""Configuration of Sphinx for the documentation as a site: `make docs`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from gpumon import __version__

if TYPE_CHECKING:
    from sphinx.application import Sphinx

project = "gpumon"
author = "the gpumon contributors"
release = __version__
extensions = ["myst_parser"]
html_theme = "furo"
html_title = f"gpumon {release}"
html_show_sourcelink = False
html_copy_source = False
myst_heading_anchors = 4
suppress_warnings = ["misc.highlighting_failure"]

_OUTSIDE = re.compile(r"(?<!!)\[([^\]]+)\]\((?:\.\./)+((?!images/)[^)#]+\.md|[^)#]+\.py)(?:#[^)]*)?\)")
"""Links to files of the repository that are not part of the site."""


def _name_files(app: Sphinx, docname: str, source: list[str]) -> None:
    """Replace links that lead out of `docs/` by the path in the repository."""
    depth = docname.count("/") + 1

    def name_file(match: re.Match[str]) -> str:
        is_outside = match[0].count("../") >= depth
        return f"{match[1]} (`{match[2]}`)" if is_outside else match[0]

    source[0] = _OUTSIDE.sub(name_file, source[0])


def setup(app: Sphinx) -> None:
    """Register the hook for links."""
    app.connect("source-read", _name_files)
