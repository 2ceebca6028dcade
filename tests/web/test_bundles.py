"""Our scripts and style sheets, each as one file: minified, in their order, by an address that changes with it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gpumon_web.app import ASSETS
from gpumon_web.assets_bundle import bundle_modules, bundle_scripts, bundle_styles, minify_script, minify_style
from tests.web.served import Served

SCRIPTS = sorted(ASSETS.glob("*.js"))


@pytest.mark.parametrize("path", ["scripts.js", "styles.css"])
def test_document_asks_for_one_file(path: str) -> None:
    client = Served().client()
    document = client.get("/").get_data(as_text=True)
    (address,) = re.findall(rf'="\./(assets/[^"]*\.{path.rpartition(".")[2]}[^"]*)"', document)
    assert address.startswith(f"assets/{path}?m=")
    answer = client.get(f"/{address}")
    assert (answer.status_code, answer.mimetype) == (200, {"scripts.js": "text/javascript"}.get(path, "text/css"))
    assert "immutable" in answer.headers["Cache-Control"]


def test_every_module_is_in_the_bundle() -> None:
    text = Served().client().get("/assets/scripts.js").get_data(as_text=True)
    (names,) = re.findall(r"const modules = window.gpumon = \{(.*)\};", text)
    assert sorted(name.removesuffix(": {}") for name in names.split(", ")) == [path.stem for path in SCRIPTS]


def write_modules(folder: Path, **texts: str) -> Path:
    for name, text in texts.items():
        (folder / f"{name}.js").write_text(text)
    return folder


class TestModules:
    def test_imported_module_comes_first(self, tmp_path: Path) -> None:
        folder = write_modules(
            tmp_path, main='import { two } from "./b.js";\n\ntwo();\n', a="export const one = 1;\n",
            b='import { one } from "./a.js";\n\nexport function two() { return one; }\n',
        )  # fmt: skip
        text = bundle_modules(folder)
        assert text.index("const one = 1") < text.index("function two") < text.index("two();\n")
        assert "import {" not in text
        assert "export " not in text

    def test_circle_ends(self, tmp_path: Path) -> None:
        folder = write_modules(
            tmp_path, main='import "./a.js";\n', a='import { b } from "./b.js";\nexport const a = 1;\n',
            b='import { a } from "./a.js";\nexport const b = 2;\n',
        )  # fmt: skip
        assert bundle_modules(folder).count("const a = 1;") == 1


def test_another_text_has_another_address(tmp_path: Path) -> None:
    (tmp_path / "main.js").write_text("a")
    before = bundle_scripts(tmp_path).address
    (tmp_path / "main.js").write_text("b")
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
        assert minify_script(text) == 'one();\nthree("a//b");\n'

    def test_style_has_no_comments(self) -> None:
        assert minify_style("/* a\n b */\na { b: c; } /* d */\n  e { }\n") == "a { b: c; }\ne { }\n"
