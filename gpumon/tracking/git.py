"""The commit that a program comes from, and whether its files were changed since.

The commit is read from git's own files. Whether the tree is dirty takes git itself, in a process that the training
never waits for: without its answer in time it is unknown.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from time import monotonic_ns
from typing import NamedTuple

from gpumon.common.paths import read_regular

_DEEPEST = 32
_MOST_BYTES = 1 << 22
_LARGEST_INDEX = 1 << 25
"""Bytes of an index of some 300 000 files: comparing more takes too much of the machine."""
_PATIENCE = 10_000_000_000
"""ns for which git is awaited."""
_DIGITS = frozenset("0123456789abcdef")
_DIFF = (
    "-c", "core.fsmonitor=false", "diff", "--quiet", "--no-ext-diff", "--no-textconv", "--ignore-submodules=dirty",
    "HEAD", "--",
)  # fmt: skip
_OWN = {"GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C"}
_PASSED_ON = ("PATH", "HOME", "XDG_CONFIG_HOME")
"""Variables that git needs to be found and to know its user's settings; none is kept."""


class Repository(NamedTuple):
    """A working tree, and where git keeps what it knows of it."""

    tree: str
    git_dir: str
    common_dir: str
    """The same, but for one that has several trees."""


def repository_of(directory: str) -> Repository | None:
    """The repository in whose tree `directory` is; None where it is in none."""
    tree = os.path.abspath(directory)
    for _ in range(_DEEPEST):
        found = f"{tree}/.git"
        if os.path.isfile(found):  # a further tree, or a submodule
            said = _read(found)
            git_dir = os.path.join(tree, said[7:].strip()) if said.startswith("gitdir:") else ""
        else:
            git_dir = found
        if git_dir and os.path.isfile(f"{git_dir}/HEAD"):
            common = _read(f"{git_dir}/commondir").strip()
            return Repository(tree, git_dir, os.path.join(git_dir, common) if common else git_dir)
        above = os.path.dirname(tree)
        if above == tree:
            return None
        tree = above
    return None


def commit_of(repository: Repository) -> str:
    """The id of the commit that is checked out; empty where there is none, or it cannot be read."""
    head = _read(f"{repository.git_dir}/HEAD").strip()
    if not head.startswith("ref:"):
        return head if _is_id(head) else ""
    name = head[4:].strip()
    if not name.startswith("refs/") or ".." in name:
        return ""
    for directory in (repository.git_dir, repository.common_dir):
        found = _read(f"{directory}/{name}").strip()
        if _is_id(found):
            return found
    for line in _read(f"{repository.common_dir}/packed-refs").splitlines():
        id, _, packed = line.partition(" ")
        if packed == name and _is_id(id):
            return id
    return ""


class DirtyCheck:
    """git, asked whether what runs differs from the commit.

    It does where a file that git knows was changed, or where git does not know `script` at all; other files that git
    does not know count for nothing.
    """

    def __init__(self, repository: Repository, env: Mapping[str, str], script: str = "") -> None:
        self.answer: bool | None = None
        """None while it is not known."""
        self._pid = 0
        self._since = monotonic_ns()
        self._tree = repository.tree
        self._env = {name: env[name] for name in _PASSED_ON if name in env} | _OWN
        self._next = ("ls-files", "--error-unmatch", "--", script) if script else ()
        try:
            if os.stat(f"{repository.git_dir}/index").st_size <= _LARGEST_INDEX:
                self._ask(_DIFF)
        except OSError:
            return  # nothing was ever added

    def is_over(self) -> bool:
        """Whether no answer is to come any more. Never waits."""
        if not self._pid:
            return True
        try:
            pid, status = os.waitpid(self._pid, os.WNOHANG)
        except ChildProcessError:  # other code of this process took its end, or this is a forked child
            self._pid = 0
            return True
        if not pid:
            if monotonic_ns() - self._since > _PATIENCE:
                with suppress(OSError):
                    os.kill(self._pid, signal.SIGKILL)
            return False
        self._pid = 0
        answer = {0: False, 1: True}.get(os.waitstatus_to_exitcode(status))
        if answer is False and self._next:
            words, self._next = self._next, ()
            self._ask(words)
            return not self._pid
        self.answer = answer
        return True

    def _ask(self, words: Sequence[str]) -> None:
        """Start git; without it the answer stays unknown."""
        nothing = [(os.POSIX_SPAWN_OPEN, fd, os.devnull, os.O_RDWR, 0) for fd in range(3)]
        with suppress(OSError, ValueError):
            # Neither a thread nor a copy of this process: both would disturb a training that forks, or is large.
            self._pid = os.posix_spawnp("git", ["git", "-C", self._tree, *words], self._env, file_actions=nothing)


def _is_id(text: str) -> bool:
    return len(text) in (40, 64) and _DIGITS.issuperset(text)


def _read(path: str) -> str:
    try:
        return read_regular(path, _MOST_BYTES, follow=True).decode("utf-8", "replace")
    except OSError:
        return ""
