"""The pages for those who work on gpumon name what there is: files, modules, tests, targets and pages."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
ARCHITECTURE = ROOT / "docs" / "inside" / "architecture.md"
EXTENDING = ROOT / "docs" / "inside" / "extending.md"
CONTRIBUTING = ROOT / "CONTRIBUTING.md"
PAGES = [CONTRIBUTING, ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
VIEWS = {name: ROOT / name / f"gpumon_{name}" for name in ("tui", "web")}
GUIDES = (ARCHITECTURE, CONTRIBUTING, EXTENDING)
TREE = ("gpumon", "tui", "web", "tests", "docs", "benchmarks", "examples")
MADE = re.compile(r"^(?:# |\+\+\+ )(\S+\.(?:py|toml|json))$", re.MULTILINE)
"""A file that an example makes or changes."""
TESTS = "\n".join(path.read_text(encoding="utf-8") for path in sorted((ROOT / "tests").rglob("*.py")))


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def prose(page: Path) -> str:
    """The page without its blocks of code."""
    return re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)


def quoted(page: Path) -> Iterator[str]:
    """All that stands between backticks."""
    yield from re.findall(r"`([^`\n]+)`", prose(page))


def anchors(page: Path) -> set[str]:
    """The headings of a page as links name them."""
    heads = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


@pytest.mark.parametrize("page", GUIDES, ids=name)
def test_every_path_that_a_guide_names_is_there(page: Path) -> None:
    """Those that an example makes count for its own page only."""
    made = set(MADE.findall(page.read_text(encoding="utf-8")))
    words = {word.partition("::")[0] for word in quoted(page)}
    paths = {word for word in words if word.split("/")[0] in TREE and "/" in word and " " not in word}
    assert paths
    assert {path for path in paths - made if not (ROOT / path).exists()} == set()


@pytest.mark.parametrize("page", GUIDES, ids=name)
def test_every_module_that_a_guide_names_is_there(page: Path) -> None:
    lost = set()
    for word in quoted(page):
        if re.fullmatch(r"gpumon(_tui|_web)?(\.\w+)+", word):
            module = (ROOT / {"gpumon_tui": "tui", "gpumon_web": "web"}.get(word.split(".")[0], "")).joinpath(
                *word.split(".")
            )
            owner = module.parent.with_suffix(".py")  # the last part may be a name in it
            owner = owner if owner.is_file() else module.parent / "__init__.py"
            is_module = module.is_dir() or module.with_suffix(".py").is_file()
            if not is_module and not (owner.is_file() and re.search(rf"\b{module.name}\b", owner.read_text("utf-8"))):
                lost.add(word)
    assert lost == set()


@pytest.mark.parametrize("page", GUIDES, ids=name)
def test_every_test_that_a_guide_names_is_there(page: Path) -> None:
    files = {path.name for path in (ROOT / "tests").rglob("test_*.py")}
    named = {word for word in quoted(page) if re.fullmatch(r"test_\w+(\.py)?", word)}
    assert {word for word in named if word not in files and f"def {word}(" not in TESTS} == set()


def test_every_test_on_the_page_on_extending_is_found_where_it_says() -> None:
    """A test that is named without its file is in `tests/contracts`, and runs with them."""
    folder = ROOT / "tests" / "contracts"
    contracts = "\n".join(path.read_text(encoding="utf-8") for path in folder.glob("test_*.py"))
    named = {match for word in quoted(EXTENDING) if (match := re.fullmatch(r"(?:(tests/\S+\.py)::)?(test_\w+)", word))}
    assert len(named) > 40
    lost = set()
    for file, test in (match.groups() for match in named):
        text = (ROOT / file).read_text(encoding="utf-8") if file else contracts
        if f"def {test}(" not in text:
            lost.add(f"{file or 'tests/contracts'}: {test}")
    assert lost == set()


def test_every_folder_stands_in_the_drawing() -> None:
    drawing = ARCHITECTURE.read_text(encoding="utf-8").split("```")[3]
    core = {
        path.stem for path in (ROOT / "gpumon").iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()
    }
    views = {path.parent.name for view in VIEWS.values() for path in view.glob("*/__init__.py")}
    assert (core | views) - {"__init__", "__main__"} - set(re.findall(r"\w+", drawing)) == set()


def test_what_the_table_of_modules_lists_lies_there() -> None:
    text = ARCHITECTURE.read_text(encoding="utf-8")
    lost = set()
    for view, folder, what in re.findall(r"^\| `(?:(tui|web): )?([a-z_/]+)` \| (.+) \|$", text, re.MULTILINE):
        place = (VIEWS[view] if view else ROOT / "gpumon") / folder
        modules = {path.stem for path in place.rglob("*.py")} | {path.name for path in place.rglob("*/")}
        lost |= {f"{folder} {word}" for word in re.findall(r"`([a-z_]+)/?`", what) if word not in modules}
    assert lost == set()


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_link_leads_somewhere(page: Path) -> None:
    lost = set()
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        path, _, anchor = target.partition("#")
        if target.startswith("http"):
            continue
        file = (page.parent / path).resolve() if path else page
        if not file.exists() or (anchor and file.suffix == ".md" and anchor not in anchors(file)):
            lost.add(target)
    assert lost == set()


@pytest.mark.parametrize("page", [CONTRIBUTING, ROOT / "README.md"], ids=name)
def test_every_target_of_make_is_there(page: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    text = page.read_text(encoding="utf-8")
    assert set(re.findall(r"(?:^|`)make ([a-z-]+)", text, re.MULTILINE)) - targets == set()


def blocks(kind: str) -> list[str]:
    """The blocks of code of one kind on the page on extending."""
    return re.findall(rf"^```{kind}\n(.*?)^```", EXTENDING.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)


MOST_ADDED = 40
"""Most lines that additions may have put at a place where the page adds some."""
VERSION = "VERSION = N"
"""How the page writes the version of a file's tables, which each change increases."""


class Hunk(NamedTuple):
    """A hunk of a diff: its lines with their signs."""

    path: str
    lines: tuple[str, ...]

    @property
    def removed(self) -> set[str]:
        return {line[1:] for line in self.lines if line[:1] == "-"}

    @property
    def kept(self) -> str:
        return "".join(f"{line[1:]}\n" for line in self.lines if line[:1] != "+")

    def pattern(self) -> re.Pattern[str]:
        """What the file must have: the lines of the hunk, with more lines only where it adds some."""
        gap = rf"((?:.*\n){{0,{MOST_ADDED}}}?)"
        parts = [
            gap if is_added else re.escape("".join(f"{line[1:]}\n" for line in lines))
            for is_added, lines in groupby(self.lines, key=lambda line: line[:1] == "+")
        ]
        return re.compile("^" + "".join(parts[1:] if parts[0] == gap else parts), re.MULTILINE)

    def is_found_once(self, text: str) -> bool:
        return bool(self.kept) and len(self.pattern().findall(text)) == 1

    def apply(self, text: str) -> str:
        """Add the lines of the hunk, after those that are at this place already."""
        match = self.pattern().search(text)
        assert match is not None
        gaps = iter(match.groups())
        parts: list[str] = []
        for is_added, lines in groupby(self.lines, key=lambda line: line[:1] == "+"):
            parts += [next(gaps)] if is_added and parts else []
            parts += [f"{line[1:]}\n" for line in lines if line[:1] != "-"]
        return _with_version(text[: match.start()] + "".join(parts) + text[match.end() :])


def _with_version(text: str) -> str:
    return re.sub(r"^VERSION = (?:\d+|N \+ 1)$", VERSION, text, flags=re.MULTILINE)


def hunks() -> Iterator[Hunk]:
    """Each hunk of the diffs on the page on extending."""
    for diff in re.split(r"^\+\+\+ ", "".join(blocks("diff")), flags=re.MULTILINE)[1:]:
        path, *parts = re.split(r"\n@@\n", diff.replace("\n@@\n", "\n\n@@\n"))
        for part in parts:
            yield Hunk(path.strip(), tuple(part.strip("\n").split("\n")))


def changed_files(page: Iterable[Hunk]) -> dict[str, str]:
    return {path: _with_version((ROOT / path).read_text(encoding="utf-8")) for path in {hunk.path for hunk in page}}


def test_the_diffs_of_the_page_on_extending_apply() -> None:
    page = list(hunks())
    assert len(page) > 20
    files = changed_files(page)
    lost = [(hunk.path, hunk.kept) for hunk in page if not hunk.is_found_once(files[hunk.path])]
    assert lost == [], (
        "these lines of diffs in docs/inside/extending.md are not in their file, or more than once: "
        "copy the lines before and after the addition from the file to the page"
    )


def test_following_the_page_on_extending_leaves_its_diffs_true() -> None:
    page = list(hunks())
    files = changed_files(page)
    for hunk in page:
        files[hunk.path] = hunk.apply(files[hunk.path])
    assert {line for hunk in page for line in hunk.removed} <= {VERSION}, "an addition only adds lines"
    lost = [(hunk.path, hunk.kept) for hunk in page if not hunk.is_found_once(files[hunk.path])]
    assert lost == [], (
        "the additions of docs/inside/extending.md change these lines of its own diffs: show other lines there"
    )


def defined(module: str) -> set[str]:
    """What a module of the product defines itself, and the modules in a package."""
    folder = {"gpumon_tui": "tui", "gpumon_web": "web"}.get(module.split(".")[0], "")
    path = (ROOT / folder).joinpath(*module.split("."))
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    names = {inside.stem for inside in path.glob("*")}
    for node in ast.parse(file.read_text(encoding="utf-8")).body if file.is_file() else ():
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        names |= {name.id for target in targets if target for name in ast.walk(target) if isinstance(name, ast.Name)}
        names.add(getattr(node, "name", ""))
    return names


def test_the_examples_of_the_page_on_extending_import_what_there_is() -> None:
    """From the module that defines it: mypy does not accept another one."""
    added = set(re.findall(r"^\+(\w+) = ", "".join(blocks("diff")), re.MULTILINE))
    imports = [
        (node.module, name.name)
        for block in blocks("python")
        for node in ast.walk(ast.parse(block))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("gpumon")
        for name in node.names
    ]
    assert len(imports) > 20
    lacking = {(module, name) for module, name in imports if module and name not in defined(module) | added}
    assert lacking == set()


def test_the_additions_touch_as_many_files_as_their_table_says() -> None:
    """Tests are not counted. A section may name a file that it does not show, but shows none more."""
    page = EXTENDING.read_text(encoding="utf-8")
    claimed = {anchor: int(files) for anchor, files in re.findall(r"\]\(#([\w-]+)\) \| (\d+) \|", page)}
    assert len(claimed) > 10
    shown = {}
    for section in re.split(r"^## ", page, flags=re.MULTILINE)[1:]:
        (anchor,) = (name.lower().replace(",", "").replace(" ", "-") for name in [section.partition("\n")[0]])
        files = {path for path in MADE.findall(section) if not path.startswith("tests/")}
        if anchor == "a-metric":
            files.discard("gpumon/sources/nvml/readings.py")  # instead of the row in fields.py
        shown[anchor] = len(files)
    assert {anchor: shown[anchor] for anchor in claimed if not 0 < shown[anchor] <= claimed[anchor]} == {}
