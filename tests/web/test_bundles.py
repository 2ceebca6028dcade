"""Our scripts and style sheets, each as one file: minified, in their order, by an address that changes with it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gpumon_web.app import ASSETS
from gpumon_web.assets_bundle import bundle_scripts, bundle_styles, minify_script, minify_style
from tests.web.served import Served

SCRIPTS = sorted(ASSETS.glob("[0-9][0-9]-*.js"))


@pytest.mark.parametrize("path", ["scripts.js", "styles.css"])
def test_document_asks_for_one_file(path: str) -> None:
    client = Served().client()
    document = client.get("/").get_data(as_text=True)
    (address,) = re.findall(rf'="\./(assets/[^"]*\.{path.rpartition(".")[2]}[^"]*)"', document)
    assert address.startswith(f"assets/{path}?m=")
    answer = client.get(f"/{address}")
    assert (answer.status_code, answer.mimetype) == (200, {"scripts.js": "text/javascript"}.get(path, "text/css"))
    assert "immutable" in answer.headers["Cache-Control"]


def test_scripts_are_in_the_order_of_their_names() -> None:
    text = Served().client().get("/assets/scripts.js").get_data(as_text=True)
    places = [text.index(minify_script(path.read_text())) for path in SCRIPTS]
    assert len(places) > 30
    assert places == sorted(places)


def test_another_text_has_another_address(tmp_path: Path) -> None:
    (tmp_path / "10-a.js").write_text("a")
    before = bundle_scripts(tmp_path).address
    (tmp_path / "10-a.js").write_text("b")
    assert bundle_scripts(tmp_path).address != before
    assert bundle_styles(tmp_path).address.startswith("assets/styles.css?m=")


class TestMinified:
    @pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
    def test_script_loses_no_part_of_a_string(self, path: Path) -> None:
        for line in path.read_text().splitlines():
            code = line.rpartition(" // ")[0] or line
            assert line.startswith("//") or [code.count(quote) % 2 for quote in '"`'] == [0, 0], line

    def test_script_has_no_comments(self) -> None:
        text = '// first\n\n  one(); // two\n  three("a//b"); // four\n'
        assert minify_script(text) == 'one();\nthree("a//b");'

    def test_style_has_no_comments(self) -> None:
        assert minify_style("/* a\n b */\na { b: c; } /* d */\n  e { }\n") == "a { b: c; }\ne { }"
