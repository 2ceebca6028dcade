"""Our scripts as one file: all of them, in their order, by an address that changes with what they are."""

from __future__ import annotations

import re
from pathlib import Path

from gpumon_web.app import ASSETS
from gpumon_web.assets_bundle import ScriptBundle
from tests.web.served import Served

TAG = '<script src="/lab/assets/{}?m=1.5"></script>\n'


def _scripts(folder: Path, **texts: str) -> ScriptBundle:
    for name, text in texts.items():
        (folder / f"{name[1:].replace('_', '-')}.js").write_text(text)
    return ScriptBundle.from_folder(folder)


def test_the_document_asks_for_one_script_that_has_all_of_ours_in_their_order() -> None:
    client = Served().client()
    document = client.get("/").get_data(as_text=True)
    (address,) = re.findall(r'src="\.(/assets/[^"]*)"', document)
    assert re.findall(r"/assets/\d\d-", document) == []
    answer = client.get(address)
    assert (answer.status_code, answer.mimetype) == (200, "text/javascript")
    assert "immutable" in answer.headers["Cache-Control"]
    found = answer.get_data(as_text=True)
    places = [found.index(path.read_text()) for path in sorted(ASSETS.glob("[0-9][0-9]-*.js"))]
    assert len(places) > 30
    assert places == sorted(places)


def test_ours_is_the_first_script_and_the_others_stay_in_their_order(tmp_path: Path) -> None:
    one = _scripts(tmp_path, _10_a="a", _20_b="b")
    html = "".join(TAG.format(name) for name in ("first.js", "10-a.js", "20-b.js", "last.js"))
    found = re.findall(r'src="([^"]*)"', one.tags(html))
    assert [name.partition("?")[0] for name in found] == [
        "/lab/assets/scripts.js", "/lab/assets/first.js", "/lab/assets/last.js",
    ]  # fmt: skip
    assert one.tags(TAG.format("first.js")) == TAG.format("first.js")


def test_another_text_has_another_address(tmp_path: Path) -> None:
    html = TAG.format("10-a.js")
    before = _scripts(tmp_path, _10_a="a").tags(html)
    assert _scripts(tmp_path, _10_a="b").tags(html) != before
