"""Metadata of a run: facts about its program (script, commit, library versions), parameters, notes and tags.

Finding these facts imports no library and does not read the command line. No environment variable is stored.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from gpumon.model.run import (
    CPUS,
    MAX_NOTES,
    MAX_PARAMETERS,
    NOTE_LENGTH,
    Metadata,
    Note,
    Parameter,
    bounded_text,
    unique_tags,
)
from gpumon.tracking.board import Board
from gpumon.tracking.context import default_name, is_notebook
from gpumon.tracking.git import DirtyCheck, find_repository, read_commit
from gpumon.tracking.warn import warn_once

LIBRARIES = (
    "torch", "lightning", "pytorch_lightning", "transformers", "accelerate", "ignite", "tensorflow", "keras", "jax",
    "xgboost", "lightgbm", "sklearn",
)  # fmt: skip
"""Modules whose versions are stored if the training has imported them."""
SCRIPT, COMMIT, DIRTY, PYTHON = "script", "commit", "dirty", "python"


class Program:
    """Facts about the program of this process, which are the same for all its runs."""

    def __init__(
        self, argv: Sequence[str], main: Mapping[str, Any], modules: Mapping[str, Any], env: Mapping[str, str]
    ) -> None:
        self._modules = modules
        self._facts: dict[str, Parameter] = {}
        self._check: DirtyCheck | None = None
        script, directory = _script(argv, main, env)
        if script:
            self._facts[SCRIPT] = script
        # A repository that contains a Python environment is not the repository of the programs installed in that
        # environment.
        repository = find_repository(directory) if directory and not _is_installed(directory) else None
        if repository is not None and (commit := read_commit(repository)):
            self._facts[COMMIT] = commit
            self._check = DirtyCheck(repository, env, "" if is_notebook(argv) else f"{directory}/{script}")

    @property
    def is_settled(self) -> bool:
        """Return whether the check for changed files has ended."""
        check = self._check
        if check is not None and check.is_over():
            self._check = None
            if check.answer is not None:
                self._facts[DIRTY] = check.answer
        return self._check is None

    def facts(self) -> dict[str, Parameter]:
        """Return the facts that have been found so far, by name."""
        _ = self.is_settled
        python = ".".join(map(str, sys.version_info[:3]))
        return {**self._facts, PYTHON: python, CPUS: usable_cpus(), **_versions(self._modules)}


def usable_cpus() -> int:
    """Return the number of CPU cores on which this process may run."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


_program: list[Program] = []


def current_program(env: Mapping[str, str]) -> Program:
    """Return the program of this process. The program is inspected only once, or in a notebook at each call."""
    if not _program or is_notebook(sys.argv):
        _program[:] = [Program(sys.argv, vars(sys.modules["__main__"]), sys.modules, env)]
    return _program[0]


def script_facts(path: str) -> dict[str, Parameter]:
    """Return the script name and the git commit for the program of another process, without starting a process.

    `path`: path of that program's script.
    """
    facts: dict[str, Parameter] = {SCRIPT: os.path.basename(path)}
    repository = find_repository(os.path.dirname(os.path.abspath(path)))
    if repository is not None and (commit := read_commit(repository)):
        facts[COMMIT] = commit
    return facts


def _script(argv: Sequence[str], main: Mapping[str, Any], env: Mapping[str, str]) -> tuple[str, str]:
    """Return the name of the script or notebook and its directory; both empty for interactive code."""
    path = main.get("__file__")
    if is_notebook(argv):
        return default_name(argv, env, main), os.getcwd()  # a kernel is started in the directory of its notebook
    if not isinstance(path, str):
        return "", ""
    return os.path.basename(path), os.path.dirname(os.path.abspath(path))


def _is_installed(directory: str) -> bool:
    parts = directory.split("/")
    if "site-packages" in parts or "dist-packages" in parts:
        return True
    return directory in {f"{root}/bin" for root in (sys.prefix, sys.base_prefix, sys.exec_prefix)}


def _versions(modules: Mapping[str, Any]) -> dict[str, Parameter]:
    versions: dict[str, Parameter] = {}
    for name in LIBRARIES:
        # `getattr` is avoided, because some modules import other modules on attribute access.
        version = getattr(modules.get(name), "__dict__", {}).get("__version__")
        if isinstance(version, str):
            versions[name] = str.__str__(version)
    return versions


_MAX_PARAMETERS = 4 * MAX_PARAMETERS
_MAX_LENGTH = 4096


class RunMetadata:
    """Publishes the metadata of one run in its board.

    `find_program`: function that returns the program, or None if another process of the run publishes the facts about
    it.
    """

    def __init__(self, board: Board, find_program: Callable[[], Program] | None = None) -> None:
        self._board = board
        self._find_program = find_program
        self._program: Program | None = None
        self.is_pending = False
        """Whether more facts about the program are expected."""
        self._by_framework: set[str] = set()

    def start(self) -> None:
        """Inspect the program, and publish the facts that have been found so far."""
        if self._find_program is not None and self._board.on:
            try:
                self._program = self._find_program()
            except Exception as error:  # such as a removed directory, or an unusual module
                warn_once("program", f"script and commit are not recorded: {type(error).__name__}: {error}")
        self.update_program()

    def update_program(self) -> None:
        """Publish the facts about the program that have been found so far."""
        self.is_pending = False
        if self._program is None:
            return
        try:
            facts = self._program.facts()
            is_settled = self._program.is_settled
        except Exception as error:
            self._program = None
            warn_once("program", f"script and commit are not recorded: {type(error).__name__}: {error}")
            return
        self._board.update_about(lambda about: about._replace(program=facts))
        self.is_pending = not is_settled

    def config(self, values: object, named: Mapping[str, object], *, by_framework: bool = False) -> None:
        """Publish parameters. With `by_framework`, they do not replace parameters that the user gave."""
        if not self._board.on:
            return
        try:
            from gpumon.tracking.parameters import parameters  # most trainings never need this module

            fresh = parameters(values, named)
        except Exception as error:  # reading a user's mapping may raise anything
            kind = type(values).__name__
            warn_once("config", f"run.config({kind}): its values could not be read ({type(error).__name__})")
            return
        if values is not None and not fresh and not _is_empty(values):
            warn_once("config", f"run.config({type(values).__name__}): give a dict, a namespace or a dataclass")

        def merge(about: Metadata) -> Metadata:
            config = dict(about.config)
            for name, value in fresh.items():
                if by_framework and name in config and name not in self._by_framework:
                    continue
                if name in config or len(config) < _MAX_PARAMETERS:
                    config[name] = value
                    (self._by_framework.add if by_framework else self._by_framework.discard)(name)
            return about._replace(config=config)

        self._board.update_about(merge)

    def note(self, text: object) -> None:
        """Publish `text` as a note."""
        if not self._board.on:
            return
        line = _safe_line(text)
        if line:
            note = Note(time.time_ns(), line)
            self._board.update_about(lambda about: about._replace(notes=(*about.notes, note)[-2 * MAX_NOTES :]))

    def tag(self, texts: Iterable[object]) -> None:
        """Publish additional tags. Earlier tags stay."""
        if not self._board.on:
            return
        fresh = [_safe_line(text) for text in texts]

        def merge(about: Metadata) -> Metadata:
            tags = unique_tags((*about.tags, *fresh))
            if not set(unique_tags(fresh)) <= set(tags):
                warn_once("tags", f"a run can have at most {len(tags)} tags")
            return about._replace(tags=tags)

        self._board.update_about(merge)


def metadata_of(board: Board, env: Mapping[str, str], local_rank: int) -> RunMetadata:
    """Return the publisher of metadata for `board`. Only local rank 0 publishes facts about the program."""
    return RunMetadata(board, (lambda: current_program(env)) if local_rank == 0 else None)


def _safe_line(text: object) -> str:
    try:
        return _line(text)
    except Exception as error:  # such as a user's type of text, or a module that cannot be loaded
        warn_once("note", f"a note or tag is left out: {type(error).__name__}: {error}")
        return ""


def _line(text: object) -> str:
    if not isinstance(text, str | int | float | os.PathLike):
        warn_once("note", f"a note or tag must be a string, not a {type(text).__name__}")
        return ""
    from gpumon.tracking.secrets import masked_text  # compiling the patterns of this module takes milliseconds

    return bounded_text(masked_text(" ".join(str(text)[:_MAX_LENGTH].split())), NOTE_LENGTH)


def _is_empty(values: object) -> bool:
    try:
        return not values
    except Exception:  # comparing arrays raises an exception
        return False
