"""The program of a run, as far as it is known without asking: its script, its commit, versions of libraries.

Nothing is imported for it, no command line is read, and no variable of the environment is kept.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from gpumon.model.run import Parameter
from gpumon.tags.git import DirtyCheck, commit_of, repository_of
from gpumon.tags.naming import default_name, is_notebook

LIBRARIES = (
    "torch", "lightning", "pytorch_lightning", "transformers", "accelerate", "ignite", "tensorflow", "keras", "jax",
    "xgboost", "lightgbm", "sklearn",
)  # fmt: skip
"""Modules whose versions are kept where the training has imported them."""
SCRIPT, COMMIT, DIRTY, PYTHON = "script", "commit", "dirty", "python"


class Program:
    """Facts of this process; one for all runs in it."""

    def __init__(
        self, argv: Sequence[str], main: Mapping[str, Any], modules: Mapping[str, Any], env: Mapping[str, str]
    ) -> None:
        self._modules = modules
        self._facts: dict[str, Parameter] = {}
        self._check: DirtyCheck | None = None
        script, directory = _script(argv, main, env)
        if script:
            self._facts[SCRIPT] = script
        # What stands around an environment says nothing about the programs installed in it.
        repository = repository_of(directory) if directory and not _is_installed(directory) else None
        if repository is not None and (commit := commit_of(repository)):
            self._facts[COMMIT] = commit
            self._check = DirtyCheck(repository, env, "" if is_notebook(argv) else f"{directory}/{script}")

    @property
    def is_settled(self) -> bool:
        """Whether all that will ever be known of the tree is known."""
        check = self._check
        if check is not None and check.is_over():
            self._check = None
            if check.answer is not None:
                self._facts[DIRTY] = check.answer
        return self._check is None

    def facts(self) -> dict[str, Parameter]:
        """Facts that are known by now."""
        _ = self.is_settled
        return {**self._facts, PYTHON: ".".join(map(str, sys.version_info[:3])), **_versions(self._modules)}


_program: list[Program] = []


def program(env: Mapping[str, str]) -> Program:
    """The program that this process runs: looked at once, as its code was read; cells of a notebook change."""
    if not _program or is_notebook(sys.argv):
        _program[:] = [Program(sys.argv, vars(sys.modules["__main__"]), sys.modules, env)]
    return _program[0]


def script_facts(path: str) -> dict[str, Parameter]:
    """Script and commit of the program of another process; no process is started for it."""
    facts: dict[str, Parameter] = {SCRIPT: os.path.basename(path)}
    repository = repository_of(os.path.dirname(os.path.abspath(path)))
    if repository is not None and (commit := commit_of(repository)):
        facts[COMMIT] = commit
    return facts


def _script(argv: Sequence[str], main: Mapping[str, Any], env: Mapping[str, str]) -> tuple[str, str]:
    """The name of the script or notebook, and where it lies; empty for one that was typed in."""
    path = main.get("__file__")
    if is_notebook(argv):
        return default_name(argv, env, main), os.getcwd()  # a kernel is started in its notebook's directory
    if not isinstance(path, str):
        return "", ""
    return os.path.basename(path), os.path.dirname(os.path.abspath(path))


def _is_installed(directory: str) -> bool:
    parts = directory.split("/")
    if "site-packages" in parts or "dist-packages" in parts:
        return True
    return directory in {f"{root}/bin" for root in (sys.prefix, sys.base_prefix, sys.exec_prefix)}


def _versions(modules: Mapping[str, Any]) -> dict[str, Parameter]:
    found: dict[str, Parameter] = {}
    for name in LIBRARIES:
        # Not by getattr: some modules import others when they are asked for a name.
        version = getattr(modules.get(name), "__dict__", {}).get("__version__")
        if isinstance(version, str):
            found[name] = str.__str__(version)
    return found
