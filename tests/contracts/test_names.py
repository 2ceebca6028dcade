"""A class name stands for one thing in the whole tree, so that a stack trace or a search says where one is."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = ("gpumon", "tui/gpumon_tui", "web/gpumon_web")
ONE_THING = {"GpuMonitor"}
"""The callback of every framework: users import it by this name from the module of theirs."""


def twice() -> dict[str, list[str]]:
    """The files of each class name that is defined more than once."""
    found = defaultdict(list)
    for path in sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                found[node.name].append(str(path.relative_to(ROOT)))
    return {name: files for name, files in found.items() if len(files) > 1}


def test_a_class_name_stands_for_one_thing() -> None:
    assert {name: files for name, files in twice().items() if name not in ONE_THING} == {}
