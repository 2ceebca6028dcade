"""Show GPUs, their users and every training with its epochs in a browser.

Joins a running daemon; without one, samples in its own process. Open the link that it prints. It listens on
this machine only; from another one, use a tunnel: ssh -L 8050:127.0.0.1:8050 SERVER.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from gpumon.cli.options import DEFAULT_SOURCE, add_places, add_source, resolve_options
from gpumon.cli.private_sampler import private_sampler
from gpumon.errors import EXIT_OK, GpumonError, UsageError
from gpumon.live import Live, follow
from gpumon.paths import LEDGER, Places, ledger_paths, make_private_dir

if TYPE_CHECKING:
    from gpumon_web.positions import Recording


def add_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("serving")
    group.add_argument(
        "--host", default="127.0.0.1", help="address to listen on (default: 127.0.0.1, this machine only)"
    )
    group.add_argument("--port", type=int, default=8050, help="port to listen on (default: 8050); 0 picks a free one")
    group.add_argument("--socket", metavar="PATH", help="listen on a Unix socket with mode 0600 instead of a port")
    group.add_argument(
        "--token-file",
        metavar="FILE",
        help="file with the token; default: generated once and kept in the state directory",
    )
    group.add_argument("--sessions", action="store_true", help="list the browsers that have signed in, and exit")
    group.add_argument(
        "--end-session",
        metavar="ID",
        help="sign out the browser with this session ID, or 'all', and exit; gpumon web may be running",
    )
    group.add_argument("--no-token", action="store_true", help="disable authentication (loopback only)")
    group.add_argument(
        "--allowed-host", metavar="NAME", action="append", default=[],
        help="additional host name to accept, such as that of a proxy; can be repeated",
    )  # fmt: skip
    add_source(parser, f"the source of the running daemon, else {DEFAULT_SOURCE}")
    add_places(parser)


def run(arguments: argparse.Namespace) -> int:
    where, arguments = resolve_options(arguments)
    if arguments.sessions or arguments.end_session:
        return _sessions(where, arguments.end_session)
    try:
        from gpumon_web.serve import Address, Stop, links, listen, serve
    except ImportError as error:
        raise GpumonError(f"the browser view requires {error.name}: install gpumon with its dependencies") from error
    from gpumon_web.app import make_app
    from gpumon_web.feed import Feed
    from gpumon_web.gate import Gate
    from gpumon_web.routes import Sources
    from gpumon_web.runs import Runs
    from gpumon_web.sessions import Sessions
    from gpumon_web.work import processes, threads

    address = Address(arguments.host, arguments.port, arguments.socket or "")
    token = _token(where, arguments, is_local=address.is_local)
    opened = listen(address)
    port = 0 if address.path else opened.getsockname()[1]
    stop = Stop()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    with _watched(where, arguments) as (live, ledgers), _recording(live, arguments.speed) as recording:
        feed, work, thread = Feed(live, recording.extent if recording else None), processes(), threads()
        gate = Gate(token, _hosts(arguments), port, Sessions(_session_file(where), thread))
        app = make_app(Sources(feed, Runs(feed, ledgers, work=work), thread, recording), gate)

        def tell() -> None:
            for line in links(address, port, token):
                print(line, flush=True)

        try:
            serve(app, opened, tell, stop)
        except KeyboardInterrupt:
            print(file=sys.stderr)
        finally:
            work.close()
    if address.path:
        os.unlink(address.path)
    return EXIT_OK


def _sessions(where: Places, end: str | None) -> int:
    """List the sessions, or end one."""
    from gpumon_web.sessions import ALL, FILE, SessionEvent, append, open_ones, read

    file, now = f"{where.state}/{FILE}", time.time()
    going = open_ones(read(file), now) if where.state else []
    if end is None:
        for line in going:
            print(f"{line.id}  since {time.strftime('%Y-%m-%d %H:%M', time.localtime(line.time))}  from {line.peer}")
        if not going:
            print("no browser is signed in")
        return EXIT_OK
    if end != ALL and end not in {line.id for line in going}:
        raise GpumonError(f"no such session: '{end}'. 'gpumon web --sessions' lists them")
    if going:
        try:
            append(file, SessionEvent(True, end, int(now), ""))
        except OSError as error:
            raise GpumonError(f"cannot write {file}: {error.strerror or error}") from error
    return EXIT_OK


def _session_file(where: Places) -> str:
    """Where sessions are kept; empty, so that they end with the server, where there is no place."""
    from gpumon_web.sessions import FILE

    try:
        _make_state_dir(where)
    except GpumonError:
        return ""
    return f"{where.state}/{FILE}"


def _make_state_dir(where: Places) -> None:
    if not where.state:
        raise GpumonError("no directory for the token: pass --state-dir or --token-file")
    try:
        os.makedirs(os.path.dirname(where.state) or "/", mode=0o700, exist_ok=True)
        make_private_dir(where.state, where.uid)
    except OSError as error:
        raise GpumonError(f"cannot keep the token in {where.state}: {error.strerror or error}") from error


def _hosts(arguments: argparse.Namespace) -> list[str]:
    own = [] if arguments.host in ("0.0.0.0", "::") else [arguments.host]
    return [*own, *arguments.allowed_host]


def _token(where: Places, arguments: argparse.Namespace, *, is_local: bool) -> str | None:
    from gpumon_web.serve import TOKEN_FILE, token_from

    if arguments.no_token:
        if arguments.token_file:
            raise UsageError("--no-token and --token-file conflict: pass only one")
        if not is_local:
            raise UsageError("--no-token would open this server to the whole network: omit it, or listen on 127.0.0.1")
        return None
    if arguments.token_file:
        return token_from(arguments.token_file, make=False)
    _make_state_dir(where)
    return token_from(f"{where.state}/{TOKEN_FILE}", make=True)


@contextmanager
def _recording(live: Live, speed: float) -> Iterator[Recording | None]:
    """The recording that this process plays, for viewers who take it elsewhere; None of anything else."""
    from gpumon.recording.positions import Positions
    from gpumon_web.positions import Recording

    if live.playback is None or not live.playback.can_seek:
        yield None
        return
    positions = Positions(live.playback.path, live.playback.portion)
    try:
        yield Recording(positions, speed)
    finally:
        positions.close()


@contextmanager
def _watched(where: Places, arguments: argparse.Namespace) -> Iterator[tuple[Live, Callable[[], list[str]]]]:
    """Return the live data to show and the ledgers to read: the daemon's, or those sampled in this process."""
    live = follow(where)
    if arguments.source is None and live.has_writer():
        try:
            yield live, lambda: ledger_paths(where)
        finally:
            live.close()
        return
    live.close()
    # What a view sees by itself is gone with it: the real ledger belongs to daemons.
    with TemporaryDirectory(prefix="gpumon-web-") as directory:
        own = f"{directory}/{LEDGER}"
        with private_sampler(where, arguments, own) as sampled:
            yield sampled, lambda: [own, *ledger_paths(where)]
