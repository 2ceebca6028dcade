"""Sockets that listen: on all addresses of both families, and on files that are removed by whoever made them."""

from __future__ import annotations

import os
import socket
import stat
from pathlib import Path

import pytest

from gpumon.common import net
from gpumon.common.errors import GpumonError
from gpumon.common.net import Address, SocketFile, listen

EVERYWHERE = Address("::", 0, is_everywhere=True)


def connects(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), timeout=30).close()
    except OSError:
        return False
    return True


def has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


def test_all_addresses_are_those_of_both_families() -> None:
    assert not EVERYWHERE.is_local
    with listen(EVERYWHERE) as opened:
        port = opened.getsockname()[1]
        assert connects("127.0.0.1", port)
        assert connects("::1", port) is has_ipv6()


def test_a_machine_without_ipv6_listens_on_all_addresses_that_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    bound = net._bind

    def without(host: str, port: int) -> socket.socket:
        if ":" in host:
            raise OSError(97, "Address family not supported by protocol")
        return bound(host, port)

    monkeypatch.setattr(net, "_bind", without)
    with listen(EVERYWHERE) as opened:
        assert opened.getsockname()[0] == "0.0.0.0"
        assert connects("127.0.0.1", opened.getsockname()[1])


def test_a_port_that_another_program_has_is_not_shared() -> None:
    with socket.create_server(("0.0.0.0", 0)) as taken, pytest.raises(GpumonError, match="stop the program"):
        listen(EVERYWHERE._replace(port=taken.getsockname()[1]))


def test_the_file_of_a_socket_is_removed_once_by_whoever_made_it(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    with listen(Address(path=str(path))):
        file = SocketFile(str(path))
        path.unlink()
        file.remove()
        with listen(Address(path=str(path))):
            file.remove()
            assert path.exists(), "of another program"
            SocketFile(str(path)).remove()
            assert not path.exists()
    SocketFile("").remove()


def test_a_socket_with_a_full_queue_is_not_taken_for_a_dead_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(tmp_path / "socket")
    waiting = []
    with socket.socket(socket.AF_UNIX) as busy:
        busy.bind(path)
        busy.listen(0)
        for _ in range(2):
            waiting.append(socket.socket(socket.AF_UNIX))
            waiting[-1].setblocking(False)
            if waiting[-1].connect_ex(path):
                break
        else:
            pytest.fail("the queue takes any number")
        with pytest.raises(GpumonError, match="Address already in use"):
            listen(Address(path=path))
    for one in waiting:
        one.close()
    listen(Address(path=path)).close()  # nobody is there any more


def test_a_group_may_open_a_socket_that_is_given_to_it(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    with listen(Address(path=str(path))):
        assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    path.unlink()
    with listen(Address(path=str(path), group=str(os.getgid()))):
        found = os.stat(path)
        assert (stat.S_IMODE(found.st_mode), found.st_gid) == (0o660, os.getgid())


def test_a_group_to_which_a_socket_cannot_be_given_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "socket"
    with pytest.raises(GpumonError, match="no group no-such-group: pass another --socket-group"):
        listen(Address(path=str(path), group="no-such-group"))

    def refused(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "chown", refused)
    with pytest.raises(GpumonError, match="Operation not permitted: add this user to it"):
        listen(Address(path=str(path), group="0"))
    assert not path.exists()


def test_a_directory_that_is_missing_is_said(tmp_path: Path) -> None:
    with pytest.raises(GpumonError, match="No such file or directory: make its directory"):
        listen(Address(path=str(tmp_path / "none" / "socket")))
