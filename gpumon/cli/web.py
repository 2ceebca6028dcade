"""Show GPUs, their users and every training with its epochs in a browser.

Joins a running daemon; without one, samples in its own process. Open the link that it prints. By default it listens on
this machine only; to reach it from another one, use a tunnel: ssh -L 8050:127.0.0.1:8050 SERVER.
With --prometheus, show the whole cluster, from a Prometheus that scrapes the exporters of the nodes.
"""

from __future__ import annotations

import argparse
import functools
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from gpumon.cli import web_token
from gpumon.cli.daemon_lookup import played_ledger
from gpumon.cli.options import (
    DEFAULT_SOURCE,
    add_cluster,
    add_places,
    add_source,
    open_prometheus,
    refuse_empty,
    refuse_options,
    require_partner,
    resolve_options,
)
from gpumon.cli.sampling import private_sampler
from gpumon.cli.streams import print_message
from gpumon.common.errors import EXIT_OK, GpumonError, MissingExtra, UsageError
from gpumon.common.paths import LEDGER, Places, history_paths, ledger_paths, make_private_dir
from gpumon.live import Live, follow

if TYPE_CHECKING:
    from dash import Dash

    from gpumon.common.privacy import People
    from gpumon_web.auth.gate import Gate
    from gpumon_web.components.person_colors import PersonColors
    from gpumon_web.jobs import Work
    from gpumon_web.live.positions import Recording


_HOST, _PORT = "127.0.0.1", 8050
_SHARED = ("action", "token_name", "dir", "state_dir")
"""Options that the subcommands also have."""
_NEVER_EMPTY = ("host", "socket", "token_file", "end_session", "alias", "prometheus", "prometheus_config")
_SALT_FILE = "web-names"
_NO_HISTORY = "No history is recorded for this source. 'gpumon daemon' records one."


def add_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("serving")
    group.add_argument("--host", help="address to listen on (default: 127.0.0.1, this machine only)")
    group.add_argument("--port", type=int, help="port to listen on (default: 8050; 0 picks a free one)")
    group.add_argument("--socket", metavar="PATH", help="listen on a Unix socket with mode 0600 instead of a port")
    group.add_argument(
        "--token-file",
        metavar="FILE",
        help="file with the token (default: generated once and kept in the state directory)",
    )
    group.add_argument("--sessions", action="store_true", help="list the signed-in browsers and exit")
    group.add_argument(
        "--end-session",
        metavar="ID",
        help="sign out the browser with this session id, or 'all', and exit; works while gpumon web is running",
    )
    group.add_argument("--no-token", action="store_true", help="disable authentication (loopback only)")
    group.add_argument(
        "--names",
        metavar="WAY",
        help="how names of users appear: shown, hashed or hidden (GPUMON_NAMES; default: shown)",
    )
    group.add_argument(
        "--alias", metavar="USER", help="print the hash of a user's name and the link to that user's page, and exit"
    )
    group.add_argument(
        "--allowed-host", metavar="NAME", action="append", default=[],
        help="additional host name to accept, such as the name of a proxy; repeatable",
    )  # fmt: skip
    group.add_argument(
        "--prefix", metavar="/PATH",
        help="path below which a proxy serves this view, such as /gpus, if it sends no X-Forwarded-Prefix",
    )  # fmt: skip
    add_cluster(parser)
    add_source(parser, f"the source of the running daemon, else {DEFAULT_SOURCE}")
    add_places(parser)
    parser.set_defaults(action="")
    commands = parser.add_subparsers(metavar="COMMAND", title="subcommands")
    web_token.add_parser(commands, parser.formatter_class)


def run(arguments: argparse.Namespace) -> int:
    if arguments.action:
        refuse_options(arguments, "web token", _SHARED, "serving")
    refuse_empty(arguments, *_NEVER_EMPTY)
    require_partner(arguments, "--prometheus", "--prometheus-config", is_there=arguments.prometheus is not None)
    if arguments.socket and (arguments.host is not None or arguments.port is not None):
        raise UsageError("--socket replaces --host and --port: pass only one of them")
    arguments.host, arguments.port = arguments.host or _HOST, _PORT if arguments.port is None else arguments.port
    places, arguments = resolve_options(arguments)
    if arguments.action:
        _make_state_dir(places)
        return web_token.run(places, arguments)
    if arguments.sessions or arguments.end_session:
        return _sessions(places, arguments.end_session)
    if arguments.alias:
        from gpumon.common.privacy import HASHED

        alias = _people(places, HASHED).alias(arguments.alias)
        print(f"{alias}  #/users?user={alias}")
        return EXIT_OK
    from gpumon.common.privacy import SHOWN

    try:
        from gpumon_web.server import Stop, links, serve
    except ImportError as error:
        raise MissingExtra("gpumon web", "web") from error
    from gpumon.common.net import Address, SocketFile, listen
    from gpumon_web.auth.api_tokens import TOKENS, USES, NamedTokens
    from gpumon_web.auth.failed_login_log import FILE as REFUSED
    from gpumon_web.auth.failed_login_log import FailedLoginLog
    from gpumon_web.auth.gate import Gate
    from gpumon_web.auth.session_file import FILE as SESSIONS
    from gpumon_web.auth.session_file import Sessions
    from gpumon_web.components.person_colors import FILE as COLORS
    from gpumon_web.components.person_colors import PersonColors
    from gpumon_web.http.prefix import parse_prefix, put_below
    from gpumon_web.jobs import ThreadWork
    from gpumon_web.names import named_work

    if arguments.prometheus and arguments.names not in ("", SHOWN):
        raise UsageError("--names is for one machine: for a cluster, see 'gpumon export --users'")
    prefix = parse_prefix(arguments.prefix) if arguments.prefix else ""
    address = Address(arguments.host, arguments.port, arguments.socket or "")
    token = _token(places, arguments, is_local=address.is_local)
    sock = listen(address)
    file = SocketFile(address.path)
    port = 0 if address.path else sock.getsockname()[1]
    stop = Stop()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    people = _people(places, arguments.names)
    thread = named_work(ThreadWork(), people)
    state_file = functools.partial(_state_file, places)

    def make_gate() -> Gate:
        named = NamedTokens(state_file(TOKENS), state_file(USES), thread)
        gate = Gate(token, _allowed_hosts(arguments), port, Sessions(state_file(SESSIONS), thread), named)
        gate.failed_logins = FailedLoginLog(state_file(REFUSED), thread)
        return gate

    if arguments.prometheus:
        app_factory = cluster_app(arguments, PersonColors(state_file(COLORS)))
    else:
        app_factory = _machine_app(places, arguments, people, thread, PersonColors(state_file(COLORS)))
    with app_factory as make_app:

        def print_links() -> None:
            for line in links(address, port, token, prefix):
                print(line, flush=True)

        app = make_app(make_gate())
        if prefix:
            put_below(app, prefix)
        try:
            serve(app, sock, print_links, stop)
        except KeyboardInterrupt:
            print(file=sys.stderr)
    file.remove()
    return EXIT_OK


@contextmanager
def _machine_app(
    places: Places, arguments: argparse.Namespace, people: People, thread: Work, colors: PersonColors
) -> Iterator[Callable[[Gate], Dash]]:  # fmt: skip
    """Yield a function that creates the app for this machine."""
    from gpumon.storage.sqlite.read import set_lock_timeout
    from gpumon_web.app import make_app
    from gpumon_web.components.person_colors import add_past_users
    from gpumon_web.feed import Feed, ring_reader
    from gpumon_web.jobs import LOCKED_FOR, ProcessWork
    from gpumon_web.live.accounts import Accounts
    from gpumon_web.live.running_findings import RunningFindings
    from gpumon_web.live.runs import Runs
    from gpumon_web.names import named_frames, named_work
    from gpumon_web.routes.pages import Sources

    set_lock_timeout(LOCKED_FOR)
    with (
        _open_live(places, arguments) as (live, ledgers),
        _recording(live, arguments.speed, people, colors) as recording,
    ):
        playback = live.playback if recording is None else None
        extent = (lambda: (playback.begin, playback.end)) if playback is not None else None
        feed = Feed(named_frames(live, people), recording.extent if recording else None, extent=extent)
        work = named_work(ProcessWork(), people)
        # The history file belongs to this machine. There is none for a simulation or recording that this process plays.
        has_source = arguments.source is not None
        accounts = Accounts(
            feed, lambda: [] if has_source else history_paths(places), work=work,
            missing=_NO_HISTORY if has_source else "", quick=thread, prices=arguments.prices,
            groups=arguments.user_groups, caps=arguments.caps,
        )  # fmt: skip

        def played() -> str:
            path = played_ledger(live, places)
            return path if os.path.exists(path) else ""

        runs = Runs(feed, ledgers, work=work, prices=arguments.prices, is_own=has_source, played=played)
        feed.recorded = RunningFindings(thread, runs.ledger_paths).of_runs
        sources = Sources(feed, runs, accounts, thread, recording, colors)
        thread.ask(add_past_users, lambda: (colors, ledgers(), [] if has_source else history_paths(places)))
        try:
            with ring_reader(feed):
                yield lambda gate: make_app(sources, gate)
        finally:
            work.close()


def _sessions(places: Places, end: str | None) -> int:
    """List the sessions. If `end` is not None, end the session with this id instead; "all" ends all sessions."""
    from gpumon_web.auth.api_tokens import TOKENS, names_by_tag, read_tokens
    from gpumon_web.auth.session_file import ALL, FILE, SessionEvent, append, open_sessions, read, tag_of

    file, now = f"{places.state}/{FILE}", time.time()
    sessions = open_sessions(read(file), now) if places.state else []
    if end is None:
        names = names_by_tag(read_tokens(f"{places.state}/{TOKENS}")) if sessions else {}
        for session in sessions:
            tag = tag_of(session.id)
            token = f"  token {names.get(tag, '(revoked)')}" if tag else ""
            since = time.strftime("%Y-%m-%d %H:%M", time.localtime(session.time))
            print(f"{session.id}  since {since}  from {session.peer}{token}")
        if not sessions:
            print("no browser is signed in")
        return EXIT_OK
    if end != ALL and end not in {session.id for session in sessions}:
        raise GpumonError(f"no such session: '{end}'. 'gpumon web --sessions' lists them")
    if sessions:
        try:
            append(file, SessionEvent(True, end, int(now), ""))
        except OSError as error:
            raise GpumonError(f"cannot write {file}: {error.strerror or error}") from error
    return EXIT_OK


def _state_file(places: Places, name: str) -> str:
    """Return the path of a file in the state directory.

    Empty if there is no state directory. The data of the file is then lost when the server ends.
    """
    try:
        _make_state_dir(places)
    except GpumonError:
        return ""
    return f"{places.state}/{name}"


def _make_state_dir(places: Places) -> None:
    if not places.state:
        raise GpumonError("no directory for the token: pass --state-dir or --token-file")
    try:
        os.makedirs(os.path.dirname(places.state) or "/", mode=0o700, exist_ok=True)
        make_private_dir(places.state, places.uid)
    except OSError as error:
        reason = error.strerror or error
        raise GpumonError(f"cannot store the token in {places.state}: {reason}; pass another --state-dir") from error


def _people(places: Places, way: str) -> People:
    """Return the policy for user names. `way`: value of `--names`.

    The secret for hashing names is generated once and stored in the state directory.
    """
    from gpumon.common.privacy import EVERYBODY, SHOWN, People

    if way in ("", SHOWN):
        return EVERYBODY
    from gpumon.common.net import token_from

    _make_state_dir(places)
    return People(way, token_from(f"{places.state}/{_SALT_FILE}", make=True).encode())


def _allowed_hosts(arguments: argparse.Namespace) -> list[str]:
    own = [] if arguments.host in ("0.0.0.0", "::") else [arguments.host]
    return [*own, *arguments.allowed_host]


def _token(places: Places, arguments: argparse.Namespace, *, is_local: bool) -> str | None:
    from gpumon.common.net import token_from
    from gpumon_web.server import TOKEN_FILE

    if arguments.no_token:
        if arguments.token_file:
            raise UsageError("--no-token and --token-file conflict: pass only one")
        if not is_local:
            raise UsageError("--no-token would open this server to the whole network: omit it, or listen on 127.0.0.1")
        return None
    if arguments.token_file:
        return token_from(arguments.token_file, make=False)
    _make_state_dir(places)
    return token_from(f"{places.state}/{TOKEN_FILE}", make=True)


@contextmanager
def _recording(
    live: Live, speed: float, people: People, colors: PersonColors
) -> Iterator[Recording | None]:  # fmt: skip
    """Yield the recording that this process plays, or None for other sources. Each viewer can seek in a recording."""
    from gpumon.recording.positions import Positions
    from gpumon_web.live.positions import Recording

    if live.playback is None or not live.playback.can_seek:
        yield None
        return
    positions = Positions(live.playback.path, live.playback.portion)
    try:
        yield Recording(positions, speed, people, colors)
    finally:
        positions.close()


@contextmanager
def _open_live(places: Places, arguments: argparse.Namespace) -> Iterator[tuple[Live, Callable[[], list[str]]]]:
    """Yield live data, and a function that returns the paths of the ledgers.

    Both belong to the daemon, or to a sampler in this process if no daemon is running.
    """
    live = follow(places)
    if arguments.source is None and live.has_writer():
        try:
            yield live, lambda: ledger_paths(places)
        finally:
            live.close()
        return
    live.close()
    from gpumon.common.scratch import scratch_directory

    # Runs are stored in a temporary ledger until this view ends, because only a daemon may write the real ledger.
    with scratch_directory("web") as directory:
        own = f"{directory}/{LEDGER}"
        with private_sampler(places, arguments, own) as sampled:
            yield sampled, lambda: [own, *ledger_paths(places)]


@contextmanager
def cluster_app(arguments: argparse.Namespace, colors: PersonColors) -> Iterator[Callable[[Gate], Dash]]:
    """Yield a function that creates the app for the cluster of `--prometheus`. All viewers share one poller."""
    client, access = open_prometheus(arguments)
    from gpumon.cluster.cost import cost_queries
    from gpumon.cluster.poller import ClusterPoller
    from gpumon.cluster.queries import GPU_QUERIES, QUERIES
    from gpumon_web.app import make_cluster_app
    from gpumon_web.cluster.views import CLUSTER_PAGES, ClusterViews

    poller = ClusterPoller(client, (*QUERIES, *GPU_QUERIES, *cost_queries(arguments.prices)))
    views = ClusterViews(poller, client.name, arguments.prices, access.node_page, arguments.user_groups)
    views.colors = colors
    try:
        poller.start(lambda missing: print_message(f"gpumon: {missing}"))
        yield lambda gate: make_cluster_app(views, CLUSTER_PAGES, gate)
    finally:
        poller.close()
        client.close()
