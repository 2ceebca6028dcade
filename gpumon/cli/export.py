"""Export the metrics of this node to Prometheus.

Reads the samples of a daemon and never calls the driver itself. By default it listens on this machine only. If the
daemon does not respond, only this fact is exported, and no stale values.
"""

from __future__ import annotations

import argparse
import sys
from threading import Thread
from typing import TYPE_CHECKING

from gpumon.cli.options import add_places, refuse_empty, require_partner, resolve_options
from gpumon.cli.signals import EndSignal
from gpumon.common.errors import EXIT_OK, UsageError
from gpumon.live import follow

if TYPE_CHECKING:
    from gpumon.common.net import Address
    from gpumon.export.scrape import Exporter

NATIVE, DCGM = "native", "dcgm"
PORTS = {
    NATIVE: 9401,
    DCGM: 9400,
    "jobstats": 9445,
}
"""Default TCP port of each dialect."""
USERS = ("name", "uid", "hash", "off")
_OPTIONS = ("--listen",)
_ACCESS = ("socket_group", "tls_cert", "tls_key", "client_ca")
_NEVER_EMPTY = ("listen", "socket", "textfile", "host_label", *_ACCESS)


def add_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("output")
    target = group.add_mutually_exclusive_group()
    ports = ", ".join(f"{port} for {name}" for name, port in PORTS.items())
    target.add_argument(
        "--listen", metavar="[HOST]:PORT",
        help="serve /metrics on this address; ':PORT' listens on all IPv4 and IPv6 addresses, and port 0 picks a free "
        f"port (without this option: 127.0.0.1, this machine only; port {ports})",
    )  # fmt: skip
    target.add_argument("--socket", metavar="PATH", help="serve on a Unix socket with mode 0600 instead of a port")
    group.add_argument(
        "--socket-group", metavar="GROUP",
        help="group that may also open the socket, such as the group of a proxy; sets mode 0660",
    )  # fmt: skip
    target.add_argument(
        "--textfile", metavar="FILE",
        help="write FILE every 15 s for the textfile collector of node_exporter, and remove it at exit",
    )  # fmt: skip
    group.add_argument(
        "--once", action="store_true", help="print the metrics once, or write the textfile once, and exit"
    )
    access = parser.add_argument_group("access", "For passwords and tokens, put a reverse proxy in front.")
    access.add_argument("--tls-cert", metavar="FILE", help="serve with TLS, with this certificate (PEM)")
    access.add_argument("--tls-key", metavar="FILE", help="private key of the certificate (PEM, without a passphrase)")
    access.add_argument(
        "--client-ca", metavar="FILE",
        help="accept only scrapers with a certificate that this authority signed (PEM; needs --tls-cert)",
    )  # fmt: skip
    content = parser.add_argument_group("content")
    content.add_argument(
        "--dialect", choices=tuple(PORTS), default=NATIVE,
        help="names, units and labels of the metrics: gpumon's own (native, the default), or as in NVIDIA's "
        "dcgm-exporter or in the exporter for jobstats",
    )  # fmt: skip
    content.add_argument(
        "--users",
        choices=USERS,
        default=USERS[0],
        help="how users are labeled: by name (default), user id or hash, or not at all (off)",
    )
    content.add_argument(
        "--host-label", metavar="NAME",
        help="label for the name of this host in the dialect dcgm: Hostname (default), hostname, or none",
    )  # fmt: skip
    add_places(parser)


def run(arguments: argparse.Namespace) -> int:
    refuse_empty(arguments, *_NEVER_EMPTY)
    places, arguments = resolve_options(arguments)
    from gpumon.export.scrape import DialectOptions, Exporter
    from gpumon.export.snapshot import UserNames

    require_partner(arguments, f"--dialect {DCGM}", "--host-label", is_there=arguments.dialect == DCGM)
    options = DialectOptions(UserNames(arguments.users), _host_label(arguments.host_label))
    exporter = Exporter(follow(places), arguments.dialect, options)
    if arguments.once or arguments.textfile:
        _refuse_access(arguments)
    if arguments.textfile:
        return _textfile(exporter, arguments.textfile, once=arguments.once)
    if arguments.once:
        sys.stdout.buffer.write(exporter.scrape())
        return EXIT_OK
    return _serve(exporter, arguments)


def _host_label(name: str | None) -> str | None:
    if name == "none":
        return ""
    if name is not None and not (name.isascii() and name.isidentifier()):
        raise UsageError(f"--host-label must be a name of letters, digits and underscores, or none, not '{name}'")
    if name is not None:
        from gpumon.export.dcgm import RESERVED_LABELS

        if name in RESERVED_LABELS or name.startswith("__"):
            raise UsageError(f"--host-label: {name} is already a label: pass another name, such as hostname")
    return name


def _refuse_access(arguments: argparse.Namespace) -> None:
    """Raise UsageError for options of the server, because `--once` and `--textfile` start no server."""
    has_access = any(getattr(arguments, name) for name in _ACCESS)
    if has_access or (arguments.once and (arguments.listen or arguments.socket)):
        raise UsageError(
            "--once and --textfile start no server: omit --listen, --socket, --socket-group, --tls-cert, --tls-key, "
            "--client-ca"
        )


def _textfile(exporter: Exporter, file: str, *, once: bool) -> int:
    from gpumon.export.textfile import maintain_textfile, write_textfile

    if once:
        write_textfile(exporter, file)
        return EXIT_OK
    with EndSignal() as stop:
        maintain_textfile(exporter, file, stop, log=_log)
    return EXIT_OK


def _serve(exporter: Exporter, arguments: argparse.Namespace) -> int:
    from gpumon.common.net import SocketFile, listen
    from gpumon.export.server import PATH, ScrapeServer, machine_names, tls_context

    require_partner(arguments, "--socket", "--socket-group", is_there=bool(arguments.socket))
    if bool(arguments.tls_cert) != bool(arguments.tls_key):
        raise UsageError("--tls-cert and --tls-key belong together: pass both, or neither")
    if arguments.client_ca and not arguments.tls_cert:
        raise UsageError("--client-ca is for TLS: pass --tls-cert and --tls-key with it, or omit it")
    context = None
    if arguments.tls_cert:
        context = tls_context(arguments.tls_cert, arguments.tls_key, arguments.client_ca or "")
    address = _address(arguments)
    with EndSignal() as stop:  # before the socket file is created, so that the file is always removed
        listener = listen(address, _OPTIONS)
        file = SocketFile(address.path)
        is_open = address.is_local and not address.path and not arguments.client_ca
        server = ScrapeServer(exporter, listener, context, machine_names() if is_open else None)
        Thread(target=server.serve_forever, name="gpumon-export", daemon=True).start()
        if not address.is_local and not arguments.client_ca:
            _log("anyone who reaches this address can read the metrics and user names: see --client-ca and --users")
        host = f"[{address.host}]" if ":" in address.host else address.host
        port = "" if address.path else listener.getsockname()[1]
        endpoint = address.path or f"{'https' if context else 'http'}://{host}:{port}{PATH}"
        print(f"gpumon export: {endpoint} ({arguments.dialect})", flush=True)
        stop.wait()
        file.remove()
        server.shutdown()
        server.server_close()
    return EXIT_OK


def _address(arguments: argparse.Namespace) -> Address:
    from gpumon.common.net import LOCAL, Address

    if arguments.socket:
        return Address(path=arguments.socket, group=arguments.socket_group or "")
    if not arguments.listen:
        return Address(LOCAL[0], PORTS[arguments.dialect])
    host, colon, port = arguments.listen.rpartition(":")
    if not colon or not (port.isascii() and port.isdigit()):
        raise UsageError(f"--listen must be [HOST]:PORT, such as 127.0.0.1:9401 or :9401, not '{arguments.listen}'")
    host = host.removeprefix("[").removesuffix("]")
    return Address(host or "::", int(port[:6]), is_everywhere=not host)


def _log(line: str) -> None:
    print(f"gpumon export: {line}", file=sys.stderr, flush=True)
