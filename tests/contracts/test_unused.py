"""What the product defines, the product or its documentation uses: what tests alone call is no part of it."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = ("gpumon", "tui/gpumon_tui", "web/gpumon_web")
BESIDE = (
    "pyproject.toml",
    "README.md",
    "docs/**/*.md",
    "docs/*.py",
    "benchmarks/**/*.py",
    "web/gpumon_web/assets/*.js",
)
"""Where names of the product are used, too."""
CALLED_BY_OTHERS = re.compile(r"_.*_$|_$|on_|(un)?load_ipython_extension$")
"""Names that Python and notebooks look for, and the hooks of frameworks, which a mixin may bring them."""


def words(text: str) -> Counter[str]:
    """Return how often each identifier stands in a text, comments and strings included."""
    return Counter(re.findall(r"\w+", text))


def defined(tree: ast.Module) -> Iterator[str]:
    """Yield names of a module, and of the methods of classes without a base: what a base calls is not to be seen."""
    for node in tree.body:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                if not node.decorator_list:  # else who decorates has it
                    yield node.name
            case ast.ClassDef():
                yield node.name
                if not node.bases:
                    yield from (one.name for one in node.body if isinstance(one, ast.FunctionDef))
            case ast.Assign():
                yield from (one.id for one in node.targets if isinstance(one, ast.Name))
            case ast.AnnAssign(target=ast.Name(id=name)):
                yield name


def unused(module: str, everywhere: Counter[str]) -> list[str]:
    """Return the names of a module that stand nowhere else, private ones nowhere else in it."""
    own = words(module)
    names = [name for name in defined(ast.parse(module)) if not CALLED_BY_OTHERS.match(name)]
    return [name for name in names if (own if name.startswith("_") else everywhere)[name] == 1]


def test_nothing_is_defined_that_only_tests_use() -> None:
    paths = [path for package in PACKAGES for path in (ROOT / package).rglob("*.py")]
    modules = {path: path.read_text(encoding="utf-8") for path in paths}
    beside = [path.read_text(encoding="utf-8") for pattern in BESIDE for path in ROOT.glob(pattern)]
    everywhere = words("\n".join([*modules.values(), *beside]))
    found = {
        str(path.relative_to(ROOT)): names for path, text in modules.items() if (names := unused(text, everywhere))
    }
    assert found == {}


def test_the_look_for_unused_names_finds_them() -> None:
    module = "_A = 1\n_B = 2\nC = 3\ndef d(): return _B\n"
    module += "class E:\n  def f(self): pass\nclass G(E):\n  def h(self): pass\n"
    assert unused(module, words(module) + words("C d G")) == ["_A", "f"]
