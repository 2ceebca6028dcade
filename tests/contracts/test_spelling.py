"""The product and its documentation are written in American English."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PLACES = ("gpumon", "tui", "web", "docs", "README.md", "CONTRIBUTING.md", "examples")
BRITISH = re.compile(
    r"colour|behaviour|neighbour|favour|honour|flavour|judgement|(?:serial|initial|recogn|normal|organ|summar|minim|maxim"
    r"|optim|util|sanit|synchron|priorit|standard|author|custom|visual|special|categor|real|local|emphas|critic)is(?:e|ing)"
    r"|isation\b|(?:label|cancel|model|travel|signal|channel|level)l(?:ed|ing)\b|\banalys(?:e|ed|ing)\b|artefact"
    r"|catalogue|\bcentre|\bgrey\b|\blicence|towards|afterwards|whilst|\bfulfil\b|\bdefence\b|\blearnt\b",
    re.IGNORECASE,
)
"""British spellings, none of which is used."""


@pytest.fixture(scope="module")
def texts() -> dict[str, str]:
    """Every text file of the product and its documentation, with single spaces: a phrase may go over a line's end."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", *PLACES],
        cwd=ROOT, capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    found = {}
    for name in filter(None, listed.split("\0")):
        path = ROOT / name
        if path.suffix in (".py", ".js", ".css", ".md", ".html") and not name.endswith(".min.js") and path.is_file():
            text = path.read_text(encoding="utf-8").replace('"Cancelled"', "")  # an exception of trio
            found[name] = re.sub(r"[\s#]+", " ", text)
    return found


def test_spelling_is_american(texts: dict[str, str]) -> None:
    assert {name: found for name, text in texts.items() if (found := set(BRITISH.findall(text)))} == {}


def test_the_texts_are_there(texts: dict[str, str]) -> None:
    assert {"README.md", "docs/read/runs.md", "gpumon/model/units.py"} <= texts.keys()
