"""`gpumon service`: the unit file, the calls of systemctl, and what it refuses."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gpumon.cli.service import UNIT, Systemd, _changeable_by_others, _install, _status, _uninstall, unit_text
from gpumon.common.errors import GpumonError
from tests.conftest import ROOT

COMMAND = "/opt/gpumon/bin/python -m gpumon"


class FakeSystemctl:
    """A program `systemctl` that writes its arguments to a file, and prints and fails as told."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._log, self._program = directory / "calls", directory / "bin" / "systemctl"
        self._program.parent.mkdir()
        monkeypatch.setenv("PATH", str(self._program.parent), prepend=":")
        self.set()

    def set(self, output: str = "", error: str = "", code: int = 0) -> None:
        self._program.write_text(
            f"#!/bin/sh\necho \"$*\" >> '{self._log}'\nprintf '%s' '{output}'\nprintf '%s' '{error}' >&2\nexit {code}\n"
        )
        self._program.chmod(0o755)

    def calls(self) -> list[str]:
        return self._log.read_text().splitlines() if self._log.exists() else []


@pytest.fixture
def systemctl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeSystemctl:
    return FakeSystemctl(tmp_path, monkeypatch)


@pytest.fixture
def user(tmp_path: Path) -> Systemd:
    return Systemd(False, tmp_path / "config" / "systemd" / "user" / UNIT, lambda: True)


def test_the_unit_of_the_machine_is_the_one_in_deploy() -> None:
    text = unit_text("/opt/gpumon/bin/gpumon", is_system=True)
    assert text == (ROOT / "deploy" / "systemd" / UNIT).read_text(encoding="utf-8")


def test_the_unit_of_a_user_has_nothing_of_root() -> None:
    text = unit_text(COMMAND, is_system=False)
    assert f"ExecStart={COMMAND} daemon\n" in text
    assert "WantedBy=default.target" in text
    assert "Directory=" not in text


def test_the_manager_depends_on_the_user() -> None:
    assert Systemd.of_user(0, {}).unit == Path("/etc/systemd/system") / UNIT
    assert Systemd.of_user(1000, {"HOME": "/home/ada"}).unit == Path("/home/ada/.config/systemd/user") / UNIT
    assert Systemd.of_user(1000, {"XDG_CONFIG_HOME": "/x"}).unit == Path("/x/systemd/user") / UNIT
    assert Systemd.of_user(1000, {"HOME": "/"}).command("start") == ["systemctl", "--user", "start"]


class TestInstall:
    def test_writes_the_unit_and_starts_it(self, user: Systemd, systemctl: FakeSystemctl) -> None:
        assert _install(user, COMMAND, print_only=False) == 0
        assert user.has_unit()
        assert user.unit.stat().st_mode & 0o777 == 0o644
        expected = ["--user daemon-reload", f"--user enable {UNIT}", f"--user restart {UNIT}"]
        assert systemctl.calls() == expected
        assert _install(user, COMMAND, print_only=False) == 0, "a second time, after an upgrade"

    def test_print_changes_nothing(
        self, user: Systemd, systemctl: FakeSystemctl, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert _install(user, COMMAND, print_only=True) == 0
        assert _uninstall(user, print_only=True) == 0
        assert not user.unit.exists()
        assert systemctl.calls() == []
        output = capsys.readouterr().out
        assert f"ExecStart={COMMAND} daemon" in output
        assert f"systemctl --user enable {UNIT}" in output

    def test_a_unit_of_someone_else_stays(self, user: Systemd, systemctl: FakeSystemctl) -> None:
        user.unit.parent.mkdir(parents=True)
        user.unit.write_text("[Service]\nExecStart=/bin/true\n")
        for action in (lambda: _install(user, COMMAND, print_only=False), lambda: _uninstall(user, print_only=False)):
            with pytest.raises(GpumonError, match="not written by"):
                action()
        assert user.unit.read_text() == "[Service]\nExecStart=/bin/true\n"
        assert systemctl.calls() == []

    def test_without_systemd(self, user: Systemd) -> None:
        with pytest.raises(GpumonError, match="systemd"):
            _install(Systemd(False, user.unit, lambda: False), COMMAND, print_only=False)
        assert not user.unit.exists()

    def test_a_failure_of_systemctl_is_named(self, user: Systemd, systemctl: FakeSystemctl) -> None:
        systemctl.set(error="Failed to connect to bus:\nNo medium found", code=1)
        with pytest.raises(GpumonError) as raised:
            _install(user, COMMAND, print_only=False)
        assert "Failed to connect to bus: No medium found" in str(raised.value)

    @pytest.mark.skipif(os.getuid() != 0, reason="only root can give a file to another user")
    def test_root_runs_nothing_that_others_can_change(self, tmp_path: Path) -> None:
        program = tmp_path / "bin" / "python"
        program.parent.mkdir(mode=0o755)
        program.touch(0o755)
        mine = {path for path in _changeable_by_others([program]) if path.is_relative_to(tmp_path)}
        assert mine == set()
        link = tmp_path / "link"
        link.symlink_to(program)
        os.chown(program.parent, 12345, -1)
        assert program.parent in set(_changeable_by_others([link]))
        os.chown(program.parent, 0, -1)
        program.chmod(0o775)
        assert program in set(_changeable_by_others([link]))


class TestUninstall:
    def test_stops_and_removes(self, user: Systemd, systemctl: FakeSystemctl) -> None:
        _install(user, COMMAND, print_only=False)
        assert _uninstall(user, print_only=False) == 0
        assert not user.unit.exists()
        assert systemctl.calls()[-2:] == [f"--user disable --now {UNIT}", "--user daemon-reload"]

    def test_not_installed(self, user: Systemd) -> None:
        with pytest.raises(GpumonError, match="not installed"):
            _uninstall(user, print_only=False)


class TestStatus:
    def test_not_installed(self, user: Systemd) -> None:
        assert _status(user) == 1

    @pytest.mark.parametrize(("state", "code"), [("active", 0), ("failed", 1), ("activating", 1)])
    def test_state(
        self, user: Systemd, systemctl: FakeSystemctl, capsys: pytest.CaptureFixture[str], state: str, code: int
    ) -> None:
        _install(user, COMMAND, print_only=False)
        facts = f"ActiveState={state}\nSubState=x\nUnitFileState=enabled\nMainPID=42\nNRestarts=3\n"
        systemctl.set(output=facts)
        capsys.readouterr()
        assert _status(user) == code
        output = capsys.readouterr().out
        assert f"gpumon service: {state}" in output
        assert ("pid 42" in output) == (state == "active")
        assert "restarted 3 times" in output
