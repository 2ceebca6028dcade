"""Signals from the page of processes: to the one that is meant, after a question, and only where its user may."""

from __future__ import annotations

import errno
import os
import pwd
import re
import signal
import subprocess
from collections.abc import Iterator
from math import nan
from pathlib import Path
from typing import Any

import pytest
from textual.events import Key
from textual.pilot import Pilot

from gpumon.common.procfs import read_stat
from gpumon.model.process import Process
from gpumon_tui.app import GpumonApp
from gpumon_tui.data.programs import boot_time
from gpumon_tui.data.signals import SignalRefused, SignalTarget
from gpumon_tui.screens.processes import ProcessesPage
from tests.programs import PATIENCE, Child, until, wait_for_end
from tests.tui.fakes import FakeFeed
from tests.tui.screen import play, text

TICK = os.sysconf("SC_CLK_TCK")


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    """A process that would sleep for a day."""
    with Child(["sleep", "86400"], stdin=subprocess.DEVNULL) as process:
        yield process
        process.kill()


def seen(child: subprocess.Popen[bytes], **changes: Any) -> Process:
    """The process as a frame has it."""
    stat = read_stat(child.pid)
    assert stat is not None
    user = pwd.getpwuid(os.geteuid()).pw_name
    one = Process(child.pid, "GPU-0000", "compute", "sleep", user, boot_time() + stat.started / TICK, 2.0**30)
    return one._replace(**changes)


def test_a_signal_reaches_the_process_and_its_end_is_seen(child: subprocess.Popen[bytes]) -> None:
    with SignalTarget(seen(child)) as target:
        assert not target.is_over
        target.send(signal.SIGTERM)
        until(lambda: target.is_over)
    assert child.wait() == -signal.SIGTERM


def test_it_reaches_it_also_where_the_kernel_has_no_descriptors_of_processes(
    child: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(pid: int) -> int:
        raise OSError(errno.ENOSYS, "not implemented")

    monkeypatch.setattr(os, "pidfd_open", missing)
    with SignalTarget(seen(child)) as target:
        target.send(signal.SIGINT)
        until(lambda: target.is_over)
        with pytest.raises(SignalRefused, match="has ended already"):
            target.send(signal.SIGINT)
    assert child.wait() == -signal.SIGINT


def test_a_pid_that_was_used_again_gets_none(child: subprocess.Popen[bytes]) -> None:
    for started in (seen(child).started - 5.0, nan):
        with pytest.raises(SignalRefused, match="is another process here"):
            SignalTarget(seen(child, started=started))
    assert child.poll() is None


def test_a_process_that_ends_while_the_question_stands_gets_none(child: subprocess.Popen[bytes]) -> None:
    with SignalTarget(seen(child)) as target:
        child.kill()
        wait_for_end(child)
        for _ in ("a zombie", "gone"):
            with pytest.raises(SignalRefused, match="has ended already"):
                target.send(signal.SIGTERM)
            child.wait()


def test_another_users_process_gets_none_but_from_root(child: subprocess.Popen[bytes]) -> None:
    one = seen(child, user="bob")
    with pytest.raises(SignalRefused, match=f"process {child.pid} belongs to bob: ask them, or root"):
        SignalTarget(one, uid=os.geteuid() + 1)
    SignalTarget(one, uid=0).close()


def test_init_and_this_view_get_none() -> None:
    for pid in (0, 1, os.getpid()):
        with pytest.raises(SignalRefused, match="not one to be ended from here"):
            SignalTarget(Process(pid, "GPU-0000", "compute", "init", "root", 1.0))


def test_a_process_in_another_pid_namespace_gets_none_and_hears_why(tmp_path: Path) -> None:
    (tmp_path / "stat").write_text("btime 1000\n")
    for pid, namespace in (("77", "pid:[2]"), ("self", "pid:[1]")):
        (tmp_path / pid / "ns").mkdir(parents=True)
        (tmp_path / pid / "ns" / "pid").symlink_to(namespace)
    (tmp_path / "77" / "stat").write_text(f"77 (python) S 1 {'0 ' * 17}{500 * TICK} 0 0\n")
    one = Process(77, "GPU-0000", "compute", "python", "alice", 1500.0, container="docker 3f2a9c1b04de")
    with pytest.raises(SignalRefused, match="runs in docker 3f2a9c1b04de: end it there"):
        SignalTarget(one, str(tmp_path))
    (tmp_path / "77" / "ns" / "pid").unlink()
    (tmp_path / "77" / "status").write_text("Name:\tpython\nNSpid:\t77\t5\n")
    with pytest.raises(SignalRefused, match="end it there"):
        SignalTarget(one, str(tmp_path))


class Here(FakeFeed):
    """Processes of this machine: a child of the test, and what it is changed to."""

    def __init__(self, *processes: Process) -> None:
        self.own = processes
        super().__init__(gpus=2, seconds=3, source="nvml", label="")

    def processes(self, second: int) -> tuple[Process, ...]:
        return self.own


def page_of(app: GpumonApp) -> ProcessesPage:
    assert isinstance(app.page, ProcessesPage)
    return app.page


def test_the_answer_is_no_until_somebody_says_yes(child: subprocess.Popen[bytes]) -> None:
    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.press("3", "K")
        shown = "\n".join(text(app))
        assert f"End process {child.pid}?" in shown
        assert "sleep, GPU 0, yours" in shown
        assert "SIGTERM: asks it to end" in shown
        for keys in (("enter",), ("K", "escape"), ("f9", "k", "n"), ("K", "tab", "tab", "enter"), ("K", "1", "enter")):
            await pilot.press(*keys)
            assert "End process" not in "\n".join(text(app))
        assert app.page is page_of(app)
        assert child.poll() is None
        await pilot.press("K", "tab", "enter")
        said = "\n".join(text(app))
        assert f"SIGTERM sent to {child.pid} sleep" in said or f"{child.pid} sleep ended " in said, "it may be quick"
        assert child.wait() == -signal.SIGTERM
        app.draw()
        await pilot.pause()
        assert f"{child.pid} sleep ended " in "\n".join(text(app))

    play(Here(seen(child)), (120, 40), script)


def test_keys_that_come_at_once_keep_their_order(child: subprocess.Popen[bytes]) -> None:
    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.press("3")
        for key in ("K", "tab", "enter"):
            app.post_message(Key(key, None))
        for _ in range(5):
            await pilot.pause()
        assert child.wait(PATIENCE) == -signal.SIGTERM

    play(Here(seen(child)), (120, 40), script)


def test_another_signal_is_chosen_by_its_letter_and_buttons_can_be_clicked(child: subprocess.Popen[bytes]) -> None:
    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.press("3", "K", "k")
        row = next(place for place, line in enumerate(text(app)) if "Yes, kill" in line)
        await pilot.click(offset=(text(app)[row].index("No, keep"), row))
        assert child.poll() is None
        await pilot.press("K", "k")
        await pilot.click(offset=(text(app)[row].index("Yes, kill"), row))
        assert child.wait() == -signal.SIGKILL

    play(Here(seen(child)), (80, 24), script)


@pytest.mark.parametrize("size", [(40, 20), (80, 24), (120, 40)])
def test_the_end_of_a_run_is_named(child: subprocess.Popen[bytes], size: tuple[int, int]) -> None:
    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.press("3", "K")
        shown = " ".join("\n".join(text(app)).replace("▌", " ").split())
        assert "It is rank 0 of 2 of resnet50:" in shown
        assert "the whole run will" in shown
        assert "No, keep it" in shown
        assert "Yes, terminate" in shown

    play(Here(seen(child, run="run-0")), size, script)


def test_all_ranks_of_a_run_can_be_ended_together(child: subprocess.Popen[bytes]) -> None:
    with Child(["sleep", "86400"], stdin=subprocess.DEVNULL) as other:

        async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
            await pilot.press("3", "K", "r")
            assert "to all 2 ranks here" in "\n".join(text(app))
            await pilot.press("tab", "enter")
            assert re.search("SIGTERM sent to 2 ranks|2 ranks ended", "\n".join(text(app)))

        try:
            play(Here(seen(child, run="run-0"), seen(other, run="run-1", uuid="GPU-0001")), (120, 40), script)
            assert (child.wait(), other.wait()) == (-signal.SIGTERM, -signal.SIGTERM)
        finally:
            other.kill()


def test_tagged_processes_get_one_signal_after_one_question_that_lists_them(child: subprocess.Popen[bytes]) -> None:
    with Child(["sleep", "86400"], stdin=subprocess.DEVNULL) as other:
        gone = Process(2**22 - 1, "GPU-0001", "compute", "gone", "root", 5.0, 2.0**20)

        async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
            await pilot.press("3", "home", "space", "space", "space")
            assert "3 tagged" in "\n".join(text(app))
            assert sum(line.startswith("+") for line in text(app)) == 3
            await pilot.press("home", "space")
            assert "2 tagged" in "\n".join(text(app)), "a second time takes the tag away"
            await pilot.press("home", "space", "K")
            shown = "\n".join(text(app))
            assert "End 2 processes?" in shown
            for one in (child, other):
                assert f"{one.pid}  sleep, GPU 0, yours" in shown
            assert f"not sent: process {gone.pid} cannot be seen from here" in shown
            assert "They hold 2.0 GiB" in shown
            await pilot.press("enter")
            assert "3 tagged" in "\n".join(text(app)), "No keeps the tags"
            await pilot.press("K", "tab", "enter")
            assert re.search("SIGTERM sent to 2 processes|2 processes ended", "\n".join(text(app)))
            assert "tagged" not in titled(app)

        try:
            play(Here(seen(child), seen(other), gone), (120, 40), script)
            assert (child.wait(), other.wait()) == (-signal.SIGTERM, -signal.SIGTERM)
        finally:
            other.kill()


def test_tagged_processes_that_are_not_on_the_page_get_no_signal(child: subprocess.Popen[bytes]) -> None:
    hidden = seen(child)
    with Child(["sleep", "86400"], stdin=subprocess.DEVNULL) as other:
        shown = seen(other, uuid="GPU-0001")

        async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
            await pilot.press("3", "home", "space", "space")
            assert "2 tagged" in titled(app)
            await pilot.press("u", "K")
            assert "all 2 tagged processes are not on this page: u shows processes" in "\n".join(text(app))
            await pilot.press("u", "slash", *"gpu:7", "enter", "K", "y")
            assert "all 2 tagged processes are not on this page: Esc takes the filter away" in "\n".join(text(app))
            assert not app.clipboard
            await pilot.press("escape", "slash", *"gpu:1", "enter")
            assert "2 tagged, 1 unseen" in titled(app)
            await pilot.press("y", "K")
            assert [line.split("\t")[0] for line in app.clipboard.splitlines()] == [str(other.pid)]
            assert f"End process {other.pid}?" in "\n".join(text(app))
            assert "1 tagged process elsewhere will not get the signal." in "\n".join(text(app))
            await pilot.press("tab", "enter", "escape")
            assert "1 tagged" in titled(app), "the one that was not asked about keeps its tag"

        try:
            play(Here(hidden, shown), (120, 40), script)
            assert other.wait() == -signal.SIGTERM
            assert child.poll() is None
        finally:
            other.kill()


def test_a_zombie_is_named_as_one_with_its_parent(child: subprocess.Popen[bytes]) -> None:
    process = seen(child)
    child.kill()
    wait_for_end(child)
    with pytest.raises(SignalRefused, match=f"a zombie until its parent {os.getpid()} collects it"):
        SignalTarget(process)


def titled(app: GpumonApp) -> str:
    return next(line for line in text(app)[1:-1] if "Processes" in line)


def test_tags_are_of_processes_and_go_with_them_and_on_esc_and_u(child: subprocess.Popen[bytes]) -> None:
    one = seen(child)
    feed = Here(one, one._replace(uuid="GPU-0001"), one._replace(pid=77, name="other"))

    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.press("3", "slash", *"sleep", "enter", "home", "space")
        assert sum(line.startswith("+") for line in text(app)) == 2, "of one process on two GPUs both rows"
        await pilot.press("escape")
        assert "1 tagged" in titled(app), "the filter is closed before"
        await pilot.press("escape")
        assert "tagged" not in titled(app)
        await pilot.press("space", "U")
        assert "tagged" not in titled(app)
        await pilot.press("g", "space", "G", "space")
        assert "2 tagged" in titled(app)
        feed.own = (one._replace(started=one.started + 60), *feed.own[2:])
        feed.advance()
        app.poll()
        await pilot.pause()
        assert "1 tagged" in titled(app), "a pid that was used again is another process"

    play(feed, (120, 40), script)


@pytest.mark.parametrize("readonly", [True, False])
def test_nothing_is_asked_where_no_signal_may_be_sent(child: subprocess.Popen[bytes], readonly: bool) -> None:
    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        app.view.is_readonly = readonly
        await pilot.press("3", "K", "tab", "enter")
        shown = text(app)
        assert "End process" not in "\n".join(shown)
        assert "end…" not in shown[-1]
        await pilot.press("K")
        said = "started with --readonly" if readonly else "no processes of this machine now"
        assert said in "\n".join(text(app))

    feed = Here(seen(child))
    if not readonly:
        feed.source, feed.label = "sim", "SIMULATED"
    play(feed, (120, 40), script)
    assert child.poll() is None


def test_a_refusal_is_one_line(child: subprocess.Popen[bytes]) -> None:
    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.press("3")
        assert "end…" in text(app)[-1]
        await pilot.press("K")
        assert f"pid {child.pid} is another process here" in "\n".join(text(app))

    play(Here(seen(child, started=12.0)), (120, 40), script)
