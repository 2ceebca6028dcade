"""Rules of the house that no other tool checks."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

import gpumon
from gpumon import cli

ROOT = Path(__file__).parents[2]
PACKAGES = ("gpumon", "tui/gpumon_tui", "web/gpumon_web")
MODULES = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
COMMANDS = ROOT / "gpumon" / "cli"


def loaded_by(code: str) -> set[str]:
    """The top-level packages that a fresh interpreter has loaded after `code`."""
    ask = f"{code}\nimport sys\nprint(*{{name.partition('.')[0] for name in sys.modules}})"
    done = subprocess.run([sys.executable, "-c", ask], cwd=ROOT, capture_output=True, text=True, check=True)
    return set(done.stdout.split())


class Source(NamedTuple):
    """A module as it is written."""

    path: Path
    text: str
    tree: ast.Module


@pytest.fixture(scope="module")
def sources() -> list[Source]:
    """All modules, read once: one test asks all of them, since a thousand tests of one each take much longer."""
    texts = {path: path.read_text(encoding="utf-8") for path in MODULES}
    assert len(texts) > 100
    return [Source(path, text, ast.parse(text)) for path, text in texts.items()]


def broken(rule: Callable[[Source], Iterable[str]], sources: Sequence[Source]) -> dict[str, list[str]]:
    """The modules that break a rule, and where each does."""
    found = {str(source.path.relative_to(ROOT)): list(rule(source)) for source in sources}
    return {module: places for module, places in found.items() if places}


def undocumented(source: Source) -> Iterator[str]:
    """Public modules, classes and functions of a file without a docstring."""
    if source.tree.body and not ast.get_docstring(source.tree):
        yield "the module"
    for node in source.tree.body:
        # The options and the body of a command are explained by its module's docstring, which is its help.
        is_command = COMMANDS in (source.path.parent, source.path.parent.parent) and getattr(node, "name", "") in (
            "add_options",
            "run",
        )
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and not is_command:
            documented = node.name.startswith("_") or ast.get_docstring(node)
            # An overload is explained where the function itself is.
            if not documented and not any("overload" in ast.dump(how) for how in node.decorator_list):
                yield node.name


def test_what_is_public_is_explained(sources: Sequence[Source]) -> None:
    assert broken(undocumented, sources) == {}


@pytest.mark.parametrize("code", ["import gpumon", "import gpumon; gpumon.run", "import gpumon.tracking.board"])
def test_a_training_loads_nothing_heavy_with_gpumon(code: str) -> None:
    heavy = {"numpy", "psutil", "pynvml", "asyncio", "torch", "textual", "dash", "plotly"}
    assert loaded_by(code) & heavy == set()


def test_the_terminal_view_loads_no_driver_and_no_numpy() -> None:
    loaded = loaded_by("import gpumon_tui.app")
    assert "textual" in loaded
    assert loaded & {"numpy", "psutil", "pynvml", "dash", "plotly", "torch"} == set()


def test_a_notebook_loads_no_driver_and_no_view() -> None:
    loaded = loaded_by("import gpumon.notebook")
    assert loaded & {"numpy", "psutil", "pynvml", "textual", "dash", "plotly", "torch", "IPython"} == set()


WEB = ("dash", "plotly", "fastapi", "starlette", "uvicorn", "httptools")
OPTIONAL = (
    "numpy",
    "httpx",
    "shtab",
    "mcp",
    "cryptography",
    "pandas",
    "pyarrow",
    "polars",
    "torch",
)
"""Packages of the extras: only the part that needs one may import it."""


@pytest.mark.parametrize(
    "module",
    ["gpumon_web.app", "gpumon_web.server", "gpumon_tui.session", *(f"gpumon.cli.{name}" for name in cli.COMMANDS)],
)
def test_an_installation_without_extras_is_enough(module: str) -> None:
    missing = OPTIONAL if module.startswith("gpumon_web") else OPTIONAL + WEB
    loaded_by(f"import sys; sys.modules.update(dict.fromkeys({missing})); import {module}")


def test_the_changelog_tells_of_this_version() -> None:
    changelog = ROOT / "CHANGELOG.md"
    assert changelog.is_file(), "CHANGELOG.md is missing"
    headings = [line for line in changelog.read_text(encoding="utf-8").splitlines() if line.startswith("## ")]
    assert any("Unreleased" in heading or gpumon.__version__ in heading for heading in headings)


def compares_with_itself(source: Source) -> bool:
    """Whether a file asks by `x == x` or `isnan` what `numbers.is_known` is for."""
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Compare):
            left = ast.dump(node.left)
            if any(left == ast.dump(other) for other in node.comparators):
                return True
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("isnan", "math.isnan"):
            return True
    return False


def other_ways(source: Source) -> Iterator[str]:
    said = "NaN != NaN; no call of is_known"
    if compares_with_itself(source) and source.path.name != "numbers.py" and said not in source.text:
        yield "use is_known, or say why a hot loop does not"


def test_whether_a_number_is_known_is_asked_in_one_way(sources: Sequence[Source]) -> None:
    assert broken(other_ways, sources) == {}


OPENED = {
    "gpumon/storage/sqlite/write.py": "the list of mounts of the kernel",
    "gpumon/common/rapl.py": "counters of the kernel",
    "gpumon/sources/nvml/sysfs.py": "attributes of the kernel",
    "gpumon/sources/drm/files.py": "attributes of the kernel, checked after they are opened without waiting",
    "gpumon/export/textfile.py": "only locked, not read",
    "gpumon/tracking/board_reader.py": "opened below a descriptor, and checked with its owner",
}
"""Modules that open files to read by themselves, and what these are."""


def opens_to_read(source: Source) -> Iterator[str]:
    """Calls that open a file to read without `open_regular`: a FIFO in its place would be waited for."""
    kernel = ("proc", "devnull", "/dev/", "O_PATH", "O_DIRECTORY", "dir_fd=home", "dir_fd=process_dir", "dir_fd=opened")
    for node in ast.walk(source.tree):
        if not isinstance(node, ast.Call):
            continue
        name, text = ast.unparse(node.func), ast.unparse(node)
        mode = next((str(one.value) for one in node.args[1:2] if isinstance(one, ast.Constant)), "r")
        reads = name == "os.open" and ("O_RDONLY" in text or "_READ" in text or "_OPEN" in text)
        reads |= name == "open" and mode.startswith("r") and not isinstance(node.args[0], ast.Constant)
        if reads and not any(word in text for word in kernel):
            yield f"line {node.lineno}: {text}"


def test_files_are_opened_to_read_by_one_function_that_refuses_what_is_no_file(sources: Sequence[Source]) -> None:
    found = broken(opens_to_read, sources)
    assert set(found) - set(OPENED) == set(), found
    assert set(OPENED) - set(found) == set()


def test_a_file_is_never_written_into_a_fifo(sources: Sequence[Source]) -> None:
    def waits(source: Source) -> Iterator[str]:
        for node in ast.walk(source.tree):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "os.open":
                text = ast.unparse(node)
                if "O_CREAT" in text and "O_EXCL" not in text and "O_RDWR" not in text and "O_NONBLOCK" not in text:
                    yield f"line {node.lineno}: {text}"

    assert broken(waits, sources) == {}
