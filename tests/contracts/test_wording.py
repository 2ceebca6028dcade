"""Wordings that people stumbled over, and that stay out of what they read."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PLACES = ("gpumon", "tui", "web", "docs", "README.md", "CONTRIBUTING.md", "examples")
STUMBLES = (
    "| gpumon | beside |",
    "as right as those of an hour",
    "wants a token even there",
    "Memory in all",
    "Swap in all",
    "wants more rights",
    "one look at GPUs",
    "beside the sampler",
    "say in the end what it cost",
    "only runs that go on",
    "whose name begins so",
    "and so for each of the others",
    "a file that is there is replaced",
    "let in everybody who can connect",
    "no run is like that",
    "Not alike",
    "hot against cold",
    "parquet is no text",
    "goes on with",
    "Worth a look",
    "worth a look",
    "nobody known",
    "held, but idle",
    "does not tell who was on the GPUs",
    "without a word",
    "how-manieth",
    "How a run stands",
    "Text for what is no number",
    "What strangers wrote",
    "The browser view. Not built yet.",
)

PLAIN = ("gpumon/tags", "gpumon/ring", "gpumon/ledger", "gpumon/history", "gpumon/recording")
"""Packages in which a sentence names its subject."""
UNNAMED = re.compile(
    r"\b(?:somebody|anybody|whoever|nobody|beside)\b|\b(?:is|are|was|were|has|have) told\b|\btold of\b|\bto go on\b",
    re.IGNORECASE,
)

BRITISH = re.compile(
    r"colour|behaviour|neighbour|favour|honour|flavour|judgement|(?:serial|initial|recogn|normal|organ|summar|minim|maxim"
    r"|optim|util|sanit|synchron|priorit|standard|author|custom|visual|special|categor|real|local|emphas|critic)is(?:e|ing)"
    r"|isation\b|(?:label|cancel|model|travel|signal|channel|level)l(?:ed|ing)\b|\banalys(?:e|ed|ing)\b|artefact"
    r"|catalogue|\bcentre|\bgrey\b|\blicence|towards|afterwards|whilst|\bfulfil\b|\bdefence\b|\blearnt\b",
    re.IGNORECASE,
)
"""British spellings; the product and its documentation are written in American English."""


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
            found[name] = re.sub(r"[\s#]+", " ", path.read_text(encoding="utf-8"))
    return found


@pytest.mark.parametrize("stumble", STUMBLES)
def test_nobody_reads_a_wording_that_people_stumbled_over(texts: dict[str, str], stumble: str) -> None:
    assert [name for name, text in texts.items() if stumble in text] == []


def test_docstrings_begin_with_a_verb_or_a_noun() -> None:
    """Not with a question: "Return the newest frame", "Seconds between ticks"."""
    found = [
        f"{path.relative_to(ROOT)}: {text}"
        for folder in ("gpumon", "tui", "web", "benchmarks", "docs")
        for path in sorted((ROOT / folder).rglob("*.py"))
        for text in re.findall(r'"""((?:What|How|Who|Whoever|Whose|Which)\b.*)', path.read_text(encoding="utf-8"))
    ]
    assert found == []


@pytest.mark.parametrize("package", PLAIN)
def test_a_sentence_names_its_subject(texts: dict[str, str], package: str) -> None:
    """The text of migrations is part of ledgers that exist: it stays."""
    of_package = {name: text for name, text in texts.items() if name.startswith(package)}
    assert of_package
    found = {name: UNNAMED.findall(text) for name, text in of_package.items() if not name.endswith("migrations.py")}
    assert {name: words for name, words in found.items() if words} == {}


def test_spelling_is_american(texts: dict[str, str]) -> None:
    assert {name: found for name, text in texts.items() if (found := set(BRITISH.findall(text)))} == {}


def test_the_texts_are_there(texts: dict[str, str]) -> None:
    assert {"README.md", "docs/runs.md", "gpumon/units.py"} <= texts.keys()
