"""Finds the git commit of a program, and whether its files differ from that commit.

The commit is read from git's files. To find differences, git is run in a separate process, for which the training never
waits. If git does not finish in time, it is not recorded whether the files differ.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from time import monotonic_ns
from typing import NamedTuple

from gpumon.common.paths import read_regular

_MAX_DEPTH = 32
_MAX_BYTES = 1 << 22
_MAX_INDEX = 1 << 25
"""Maximum bytes of the index, which are sufficient for some 300,000 files. Comparing more files would load the machine
too much."""
_TIMEOUT = 10_000_000_000
"""ns after which git is killed."""
_DIGITS = frozenset("0123456789abcdef")
_DIFF = (
    "-c", "core.fsmonitor=false", "diff", "--quiet", "--no-ext-diff", "--no-textconv", "--ignore-submodules=dirty",
    "HEAD", "--",
)  # fmt: skip
_ENV = {"GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C"}
_INHERITED = ("PATH", "HOME", "XDG_CONFIG_HOME")
"""Environment variables that are needed to find git, and that git needs to read the user's settings. Their values are
not stored.
"""


class Repository(NamedTuple):
    """A working tree and the directories with git's files for it."""

    tree: str
    git_dir: str
    common_dir: str
    """Same as `git_dir`, unless the repository has several working trees."""


def find_repository(directory: str) -> Repository | None:
    """Return the repository whose working tree contains `directory`; None if there is none."""
    tree = os.path.abspath(directory)
    for _ in range(_MAX_DEPTH):
        git_dir = f"{tree}/.git"
        if os.path.isfile(git_dir):  # another working tree of a repository, or a submodule
            text = _read(git_dir)
            git_dir = os.path.join(tree, text[7:].strip()) if text.startswith("gitdir:") else ""
        if git_dir and os.path.isfile(f"{git_dir}/HEAD"):
            common = _read(f"{git_dir}/commondir").strip()
            return Repository(tree, git_dir, os.path.join(git_dir, common) if common else git_dir)
        parent = os.path.dirname(tree)
        if parent == tree:
            return None
        tree = parent
    return None


def read_commit(repository: Repository) -> str:
    """Return the id of the checked-out commit; empty if there is none or it cannot be read."""
    head = _read(f"{repository.git_dir}/HEAD").strip()
    if not head.startswith("ref:"):
        return head if _is_id(head) else ""
    name = head[4:].strip()
    if not name.startswith("refs/") or ".." in name:
        return ""
    for directory in (repository.git_dir, repository.common_dir):
        id = _read(f"{directory}/{name}").strip()
        if _is_id(id):
            return id
    for line in _read(f"{repository.common_dir}/packed-refs").splitlines():
        id, _, packed = line.partition(" ")
        if packed == name and _is_id(id):
            return id
    return ""


class DirtyCheck:
    """Runs git to check whether the working tree differs from the commit.

    It differs if a tracked file was changed, or if the file `script` is untracked. Other untracked files do not count.
    """

    def __init__(self, repository: Repository, env: Mapping[str, str], script: str = "") -> None:
        self.answer: bool | None = None
        """Whether the tree differs; None until git has answered."""
        self._pid = 0
        self._start_ns = monotonic_ns()
        self._tree = repository.tree
        self._env = {name: env[name] for name in _INHERITED if name in env} | _ENV
        self._next = ("ls-files", "--error-unmatch", "--", script) if script else ()
        try:
            if os.stat(f"{repository.git_dir}/index").st_size <= _MAX_INDEX:
                self._spawn(_DIFF)
        except OSError:
            return  # without an index, nothing was ever added to the repository

    def is_over(self) -> bool:
        """Return whether git has ended, with or without an answer. Never waits."""
        if not self._pid:
            return True
        try:
            pid, status = os.waitpid(self._pid, os.WNOHANG)
        except ChildProcessError:  # other code of this process has already waited for git, or this is a forked child
            self._pid = 0
            return True
        if not pid:
            if monotonic_ns() - self._start_ns > _TIMEOUT:
                with suppress(OSError):
                    os.kill(self._pid, signal.SIGKILL)
            return False
        self._pid = 0
        answer = {0: False, 1: True}.get(os.waitstatus_to_exitcode(status))
        if answer is False and self._next:
            arguments, self._next = self._next, ()
            self._spawn(arguments)
            return not self._pid
        self.answer = answer
        return True

    def _spawn(self, arguments: Sequence[str]) -> None:
        """Start git. If that fails, there is never an answer."""
        files = [(os.POSIX_SPAWN_OPEN, fd, os.devnull, os.O_RDWR, 0) for fd in range(3)]
        with suppress(OSError, ValueError):
            # A thread would disturb a training that forks, and a fork would disturb a training that uses much memory.
            self._pid = os.posix_spawnp("git", ["git", "-C", self._tree, *arguments], self._env, file_actions=files)


def _is_id(text: str) -> bool:
    return len(text) in (40, 64) and _DIGITS.issuperset(text)


def _read(path: str) -> str:
    try:
        return read_regular(path, _MAX_BYTES, follow=True).decode("utf-8", "replace")
    except OSError:
        return ""
