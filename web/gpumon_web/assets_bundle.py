"""Our scripts and style sheets, each as one file without comments and indentation.

The scripts are ES modules. In the bundle, each is a function of its own in strict mode, called in the order in which a
browser would evaluate the modules. Modules may import each other in a circle, as long as they do not use such an import
before all have been evaluated.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

ENTRY = "main"
"""Module that starts the page."""
_SCRIPT_COMMENT = re.compile(r"/\*\*.*?\*/|(?:^|[ ])// .*?$", re.MULTILINE | re.DOTALL)
"""A comment of JSDoc, or one up to the end of a line. Our strings contain no such text, which a test checks."""
_STYLE_COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
_IMPORT = re.compile(
    r'^import (?:(?:\* as (?P<all>\w+)|\{ (?P<names>[^}]*) \}) from )?"\./(?P<module>\w+)\.js";\n', re.M
)
_EXPORT = re.compile(r"^export (?P<declaration>(?P<kind>(?:async )?function|const|class) (?P<name>\w+))", re.MULTILINE)


def bundle_modules(folder: Path, entry: str = ENTRY) -> str:
    """Return one script that does what the module `entry` and those that it imports do.

    It sets `window.gpumon` to an object with the exports of each module by its name.
    """
    texts = dict(_in_order(folder, entry))
    names = ", ".join(f"{name}: {{}}" for name in texts)
    parts = [
        f'"use strict";\n(() => {{\nconst modules = window.gpumon = {{{names}}};\n'
        "const imports = [];\n"
        'Object.defineProperty(modules, "link", { value() { for (const link of imports) { link(); } } });'
    ]
    for name, text in texts.items():
        if name == entry:
            parts.append("modules.link();")  # imports in a circle
        parts.append(_as_function(name, minify_script(text)))
    return "\n".join([*parts, "})();"])


def _in_order(folder: Path, name: str, seen: set[str] | None = None) -> Iterator[tuple[str, str]]:
    """Yield names and texts of the modules that a module imports, and of itself, in the order of their evaluation."""
    seen = set() if seen is None else seen
    seen.add(name)
    text = (folder / f"{name}.js").read_text("utf-8")
    for match in _IMPORT.finditer(text):
        if match["module"] not in seen:
            yield from _in_order(folder, match["module"], seen)
    yield name, text


def _as_function(name: str, text: str) -> str:
    links, exports = [], {"function": list[str](), "value": list[str]()}
    head = []
    for match in _IMPORT.finditer(text):
        if match["all"]:
            head.append(f"const {match['all']} = modules.{match['module']};")
        elif match["names"]:
            head.append(f"let {match['names']};")
            links.append(f"({{ {match['names']} }} = modules.{match['module']});")
    for match in _EXPORT.finditer(text):
        exports["function" if "function" in match["kind"] else "value"].append(match["name"])
    body = _EXPORT.sub(lambda match: match["declaration"], _IMPORT.sub("", text))
    if links:
        head += [f"const link = () => {{ {' '.join(links)} }};", "imports.push(link);", "link();"]
    # Functions exist before the body runs, so modules in a circle get them.
    functions, values = (
        [f"Object.assign(modules.{name}, {{ {', '.join(names)} }});"] if names else [] for names in exports.values()
    )
    return "\n".join(["(() => {", *head, *functions, body, *values, "})();"])


def minify_script(text: str) -> str:
    """Return a script without comments, indentation and empty lines; it keeps the other line breaks."""
    return _trim(_SCRIPT_COMMENT.sub("", text))


def minify_style(text: str) -> str:
    """Return a style sheet without comments, indentation and empty lines."""
    return _trim(_STYLE_COMMENT.sub("", text))


def _trim(text: str) -> str:
    return "".join(f"{line}\n" for line in map(str.strip, text.splitlines()) if line)


class Bundle:
    """A file made of several, whose address changes with its content."""

    def __init__(self, name: str, media_type: str, texts: Iterable[str]) -> None:
        self._body = "\n".join(texts).encode()
        self._name = name
        self._media_type = media_type
        self.address = f"assets/{name}?m={hashlib.sha256(self._body).hexdigest()[:12]}"
        """Address relative to the root of the app."""

    def route(self) -> Route:
        """Return the route of the bundle."""
        return Route(f"/assets/{self._name}", self._answer, methods=["GET"])

    async def _answer(self, request: Request) -> Response:
        del request
        return Response(self._body, media_type=self._media_type)


def bundle_scripts(folder: Path) -> Bundle:
    """Bundle the modules in a folder."""
    return Bundle("scripts.js", "text/javascript", [bundle_modules(folder)])


def bundle_styles(folder: Path) -> Bundle:
    """Bundle the style sheets in a folder, in the order of their names."""
    texts = (minify_style(path.read_text("utf-8")) for path in sorted(folder.glob("*.css")))
    return Bundle("styles.css", "text/css", texts)
