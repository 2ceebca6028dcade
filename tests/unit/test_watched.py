"""`gpumon top` under `watch` is told by the processes above it."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpumon.cli.top import is_watched


def tree(directory: Path, *names: str) -> None:
    """Processes 10, 11, ...: each the parent of the next."""
    for pid, name in enumerate(names, 10):
        home = directory / str(pid)
        home.mkdir()
        (home / "comm").write_text(f"{name}\n")
        (home / "stat").write_text(f"{pid} ({name}) S {pid - 1 if pid > 10 else 1} " + "0 " * 48 + "\n")


@pytest.mark.parametrize(
    ("names", "watched"),
    [
        (("watch", "gpumon"), True), (("watch", "sh", "gpumon"), True), (("bash", "gpumon"), False),
        (("watch", "bash", "bash", "gpumon"), False), (("watchdog", "gpumon"), False), (("gpumon",), False),
    ],
)  # fmt: skip
def test_watch_is_found_above_a_shell_or_at_once(tmp_path: Path, names: tuple[str, ...], watched: bool) -> None:
    tree(tmp_path, *names)
    assert is_watched(9 + len(names), str(tmp_path)) is watched


def test_a_system_without_processes_to_look_at_has_no_watch(tmp_path: Path) -> None:
    assert not is_watched(10, str(tmp_path))
