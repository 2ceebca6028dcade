"""The program of a run, as far as it is known without asking: its script, its commit, versions of libraries.

Nothing is imported for it, no command line is read, and no variable of the environment is kept.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from gpumon.model.run import MOST_NOTES, MOST_PARAMETERS, NOTE_LENGTH, About, Note, Parameter, bounded_text, unique_tags
from gpumon.tracking.board import Board
from gpumon.tracking.context import default_name, is_notebook
from gpumon.tracking.git import DirtyCheck, commit_of, repository_of
from gpumon.tracking.warn import warn_once

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


_MOST_HELD = 4 * MOST_PARAMETERS
_LONGEST = 4096


class Telling:
    """Particulars of one run, in its board; `of` gives the program, None where another process of it publishes that."""

    def __init__(self, board: Board, of: Callable[[], Program] | None = None) -> None:
        self._board = board
        self._of = of
        self._program: Program | None = None
        self.is_pending = False
        """Whether more of the program is to come."""
        self._by_framework: set[str] = set()

    def begin(self) -> None:
        """Publish the program, as far as it is known by now."""
        if self._of is not None and self._board.on:
            try:
                self._program = self._of()
            except Exception as error:  # a directory that is gone, a module that is odd
                warn_once("program", f"script and commit do not show: {type(error).__name__}: {error}")
        self.look()

    def look(self) -> None:
        """Publish the program anew, as far as it is known by now."""
        self.is_pending = False
        if self._program is None:
            return
        try:
            facts = self._program.facts()
            is_settled = self._program.is_settled
        except Exception as error:
            self._program = None
            warn_once("program", f"script and commit do not show: {type(error).__name__}: {error}")
            return
        self._board.tell(lambda about: about._replace(program=facts))
        self.is_pending = not is_settled

    def config(self, given: object, more: Mapping[str, object], *, by_framework: bool = False) -> None:
        """Publish parameters; those that the user gave stand against those that a framework knows."""
        if not self._board.on:
            return
        try:
            from gpumon.tracking.parameters import parameters  # most trainings never need it

            found = parameters(given, more)
        except Exception as error:  # a mapping of the user's own, that may do anything
            kind = type(given).__name__
            warn_once("config", f"run.config({kind}): its values could not be read ({type(error).__name__})")
            return
        if given is not None and not found and not _is_empty(given):
            warn_once("config", f"run.config({type(given).__name__}): give a dict, a namespace or a dataclass")

        def with_found(about: About) -> About:
            held = dict(about.config)
            for name, value in found.items():
                if by_framework and name in held and name not in self._by_framework:
                    continue
                if name in held or len(held) < _MOST_HELD:
                    held[name] = value
                    (self._by_framework.add if by_framework else self._by_framework.discard)(name)
            return about._replace(config=held)

        self._board.tell(with_found)

    def note(self, text: object) -> None:
        """Publish a note."""
        if not self._board.on:
            return
        said = _safe_line(text)
        if said:
            one = Note(time.time_ns(), said)
            self._board.tell(lambda about: about._replace(notes=(*about.notes, one)[-2 * MOST_NOTES :]))

    def tag(self, texts: Iterable[object]) -> None:
        """Publish tags, with those from before."""
        if not self._board.on:
            return
        fresh = [_safe_line(text) for text in texts]

        def with_tags(about: About) -> About:
            tags = unique_tags((*about.tags, *fresh))
            if not set(unique_tags(fresh)) <= set(tags):
                warn_once("tags", f"a run has at most {len(tags)} tags")
            return about._replace(tags=tags)

        self._board.tell(with_tags)


def telling(board: Board, env: Mapping[str, str], local_rank: int) -> Telling:
    """Return the particulars of the run of `board`: of the program only in the first of its processes here."""
    return Telling(board, (lambda: program(env)) if local_rank == 0 else None)


def _safe_line(text: object) -> str:
    try:
        return _line(text)
    except Exception as error:  # a text of the user's own type, a module that cannot be loaded just now
        warn_once("note", f"a note or tag is left out: {type(error).__name__}: {error}")
        return ""


def _line(text: object) -> str:
    if not isinstance(text, str | int | float | os.PathLike):
        warn_once("note", f"a note or tag is a text, not a {type(text).__name__}")
        return ""
    from gpumon.tracking.secrets import masked_text  # its patterns take milliseconds

    return bounded_text(masked_text(" ".join(str(text)[:_LONGEST].split())), NOTE_LENGTH)


def _is_empty(given: object) -> bool:
    try:
        return not given
    except Exception:  # as arrays do
        return False
